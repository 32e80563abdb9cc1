"""The loop, by scripted parts: what is asked, kept and decided, and when it ends."""

from pathlib import Path

import pytest
from optimize_scripted import Bench, ScriptedProposer, file


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_best_that_passes_all_stages_is_what_an_optimization_ends_with(bench: Bench) -> None:
    start = bench.begin()
    events = bench.run(start, ScriptedProposer(file(1.2), file(3.0), file(2.0)))
    assert events[-1].record["best"] == 2
