"""docs/gate.md names each row once, detectors and stages that there are, and what the self-test expects of a row."""

import re
from pathlib import Path

import pytest

from qrprof.planner.gate.records import DETECTORS, STAGES
from qrprof.planner.gate.selftest import Attack, attacks
from qrprof.profiler.errors import Exit
from qrprof.tui.commands.gate import CODES

TEXT = (Path(__file__).parents[1] / "docs" / "gate.md").read_text(encoding="utf-8")
ROWS = {
    int(number): (what, counters)
    for number, _, what, counters in re.findall(r"^\| (\d+) (E|M|E/M) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)
}
NONE = ("no detector", "not here", "cannot occur")


def named(number: int) -> set[str]:
    """The detectors that a row names."""
    return set(re.findall(r"`([a-z0-9-]+)`", ROWS[number][1]))


def test_every_row_is_there_once_and_in_order() -> None:
    assert list(ROWS) == list(range(1, 66))
    assert len(re.findall(r"^\| \d+ (?:E|M|E/M) \|", TEXT, re.MULTILINE)) == 65


@pytest.mark.parametrize("number", range(1, 66))
def test_a_row_names_detectors_that_there_are_or_says_why_none(number: int) -> None:
    assert named(number) <= set(DETECTORS)
    counters = ROWS[number][1]
    assert named(number) or any(why in counters for why in NONE)
    if not any(why in counters for why in NONE):
        assert any(stage in counters for stage in (*STAGES, "every stage", "any stage", "nothing at all"))


def test_every_detector_counters_something() -> None:
    assert set().union(*map(named, ROWS)) == set(DETECTORS)


def test_every_stage_and_outcome_is_explained() -> None:
    for stage in STAGES:
        assert f"\n| {stage} | " in TEXT
    for outcome, code in CODES.items():
        assert f"\n| {outcome} | {int(code)} | " in TEXT
    assert f"\n| (usage) | {int(Exit.USAGE)} | " in TEXT
    assert f"\n| (refused) | {int(Exit.NO_DEVICE)} | " in TEXT


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_a_candidate_of_the_self_test_meets_the_detector_of_its_rows(attack: Attack) -> None:
    if attack.expect:
        assert all(attack.expect in named(number) for number in attack.rows), [named(number) for number in attack.rows]
