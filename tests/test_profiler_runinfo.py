"""The record of a run: what its step takes, and records that cannot be read."""

from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import Block, StepKind, read_run_info


def test_a_step_is_the_mean_over_kinds_as_often_as_they_occur(build: Any) -> None:
    # Kind B occurs each 50th step, but one of the 20 timed steps was one: the plain mean would be 14.5.
    kinds = [StepKind(name="A", label="", frequency=0.98), StepKind(name="B", label="", frequency=0.02)]
    block = Block(clock="host clock", first_step=0, durations_ns=[10] * 19 + [100], kinds=["A"] * 19 + ["B"])
    run = build.run().model_copy(update={"kinds": kinds, "unprofiled": [block]})
    assert run.step_ns() == pytest.approx(0.98 * 10 + 0.02 * 100)


def test_a_run_that_was_never_timed_has_no_step(build: Any) -> None:
    assert build.run().step_ns() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a run record"),
        ("[1, 2]", "is not a run record"),
        ('{"schema_number": 99}', "has schema 99, this qrprof reads 1"),
        ('{"schema_number": 1}', "is not a run record (id: Field required)"),
    ],
)
def test_a_broken_record_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(QrprofError) as caught:
        read_run_info(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_record_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(QrprofError, match=r"cannot read .*run\.json: No such file"):
        read_run_info(tmp_path / "run.json")
