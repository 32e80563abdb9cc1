"""The search over a file's tunables, on made up speeds."""

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import mean

import pytest

from qrprof.planner.gate.records import Domain, Interval, Outcome, Task, Tolerance
from qrprof.planner.optimize.records import Candidate, Known, Proposed
from qrprof.planner.optimize.search import ROUNDS, Search
from qrprof.planner.optimize.tunables import tunables

TASK = Task("t", "geqrf", "cpu", (), Domain(), "qr", Tolerance(), "built in")
SMALL = "TUNABLES = {'A': (1, 2, 3), 'B': ('x', 'y'), 'T': ((1, 1), (2, 2))}\nA = 1\nB = 'x'\nT = (1, 1)\n"
WIDE = (
    f"TUNABLES = {{{', '.join(f'{name!r}: (1, 2, 4, 8)' for name in 'ABCDEFGH')}}}\n"
    + "\n".join(f"{name} = 1" for name in "ABCDEFGH")
    + "\n"
)
Speed = Callable[[Mapping[str, object]], float | None]


def judged(proposed: Proposed, speed: Speed, before: int) -> list[Candidate]:
    found = []
    for number, one in enumerate(proposed.proposals, before + 1):
        times = speed(one.settings)
        outcome: Outcome = "FAIL" if times is None else "PASS"
        over = None if times is None else Interval(times, times, times)
        sha256 = hashlib.sha256(one.source.encode()).hexdigest()
        found.append(Candidate(number, sha256, one, proposed.rung, outcome, over, ""))
    return found


def run(source: str, speed: Speed, *, seed: int = 0, wanted: int = 1, most: int = 1000) -> list[Candidate]:
    """All candidates, a row for each time that one was proposed."""
    search, tried = Search(source, rng=random.Random(seed), beam=4), list[Candidate]()
    while len(tried) < most:
        proposed = search.propose(Known(TASK, source, tried=tuple(tried), wanted=wanted))
        assert bool(proposed.proposals) == (proposed.done is None)
        if proposed.done:
            break
        tried += judged(proposed, speed, len(tried))
    return tried


def additive(settings: Mapping[str, object]) -> float:
    """4 is best for all; 1.5 to the 8th in all, seen from the start."""
    return math.prod({1: 1.0, 2: 1.2, 4: 1.5, 8: 0.9}[int(str(value))] for value in settings.values())


def test_a_file_that_declares_nothing_is_done_at_once() -> None:
    proposed = Search("A = 1\n", rng=random.Random(0), beam=4).propose(Known(TASK, "A = 1\n"))
    assert not proposed.proposals
    assert proposed.done is not None
    assert "the starting file declares nothing to vary" in proposed.done


def test_where_no_file_was_given_it_is_said_how_to_give_one() -> None:
    stock = Search("A = 1\n", rng=random.Random(0), beam=4, stock=True)
    done = stock.propose(Known(TASK, "A = 1\n")).done
    assert done is not None
    assert "no starting file is shipped for this task" in done
    assert "--start" in done


@pytest.mark.parametrize("wanted", [1, 5])
def test_a_small_space_is_searched_whole_and_each_source_comes_once_a_rung(wanted: int) -> None:
    tried = run(SMALL, lambda settings: 1.0 + 0.1 * int(str(settings["A"])), wanted=wanted)
    sources = {one.proposal.source for one in tried}
    assert len(sources) == 3 * 2 * 2 - 1
    assert SMALL not in sources
    times = [sum(one.proposal.source == source for one in tried) for source in sources]
    assert max(times) <= len(ROUNDS)
    assert sum(count > 1 for count in times) == len(sources) // 4


def test_a_source_has_the_settings_that_are_told() -> None:
    for one in run(SMALL, lambda settings: 1.0):
        assert {found.name: found.value for found in tunables(one.proposal.source)} == one.proposal.settings


def test_what_changed_is_told_from_a_parent_that_was_tried() -> None:
    tried = run(WIDE, additive, most=30)
    shas = {one.sha256 for one in tried}
    assert tried[0].proposal.parent is None
    assert all(one.proposal.parent in shas for one in tried if one.proposal.parent is not None)
    assert all(" -> " in one.proposal.changed for one in tried)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [1, 4])
def test_the_best_of_65536_is_found_in_60(seed: int, wanted: int) -> None:
    tried = run(WIDE, additive, seed=seed, wanted=wanted, most=60)
    assert max(one.over.mid for one in tried if one.over) == pytest.approx(1.5**8)


@pytest.mark.parametrize("seed", range(5))
def test_values_that_fail_are_left(seed: int) -> None:
    def speed(settings: Mapping[str, object]) -> float | None:
        return None if 8 in settings.values() else additive(settings)

    tried = run(WIDE, speed, seed=seed, wanted=4, most=60)
    assert max(one.over.mid for one in tried if one.over) > 0.6 * 1.5**8
    assert sum(one.outcome == "FAIL" for one in tried) < 20
    assert sum(one.outcome == "FAIL" for one in tried[-20:]) < 4


def proposed(tried: list[Candidate]) -> Proposed:
    return Search(WIDE, rng=random.Random(0), beam=4).propose(Known(TASK, WIDE, tried=tuple(tried), wanted=8))


def test_a_machine_that_failed_says_nothing_of_values() -> None:
    first = judged(proposed([]), lambda settings: None, 0)
    lost = proposed([replace(one, outcome="INFRA") for one in first]).proposals
    changes = [sum(value != 1 for value in one.settings.values()) for one in lost]
    assert max(changes) > 1  # where many fail one value is changed at a time
    assert not {one.source for one in lost} & {one.proposal.source for one in first}


def test_the_same_seed_proposes_the_same() -> None:
    first, second, other = (run(WIDE, additive, seed=seed, most=30) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_the_fastest_are_timed_longer() -> None:
    search, tried = Search(WIDE, rng=random.Random(0), beam=4), list[Candidate]()
    rounds: dict[str, list[int]] = {}
    for _ in range(60):
        proposed = search.propose(Known(TASK, WIDE, tried=tuple(tried)))
        for one in proposed.proposals:
            rounds.setdefault(one.source, []).append(proposed.rounds)
        tried += judged(proposed, additive, len(tried))
    assert all(tuple(seen) == ROUNDS[: len(seen)] for seen in rounds.values())
    longer = {source for source, seen in rounds.items() if len(seen) > 1}
    speeds = {source: additive({one.name: one.value for one in tunables(source)}) for source in rounds}
    assert 0 < len(longer) <= len(rounds) // 4
    assert mean(speeds[source] for source in longer) > mean(speeds[source] for source in set(rounds) - longer)


def test_another_search_goes_on_where_one_was_killed() -> None:
    before = run(SMALL, lambda settings: 1.0, most=6)
    again = Search(SMALL, rng=random.Random(9), beam=4)
    proposed = again.propose(Known(TASK, SMALL, tried=tuple(before), wanted=100))
    assert not {one.source for one in proposed.proposals} & {one.proposal.source for one in before}


def test_on_a_plateau_several_values_change_at_once() -> None:
    tried = tuple(run(WIDE, additive, most=40))
    search = Search(WIDE, rng=random.Random(0), beam=4)
    proposed = search.propose(Known(TASK, WIDE, tried=tried, wanted=20, plateau=True))
    best = max(tried, key=lambda one: one.over.mid if one.over else 0.0).proposal.settings
    apart = [sum(one.settings[name] != best[name] for name in best) for one in proposed.proposals]
    assert max(apart) > 1
