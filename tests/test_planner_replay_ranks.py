"""Ranks replayed together: against a simulator of ranks that meet in collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import Action, Busy, Launch, Machine, Op, Synchronize, steps

from qrprof.planner.replay.changes import Changes, both, change_communication, change_items, change_rows, unchanged
from qrprof.planner.replay.graph import Graph
from qrprof.planner.replay.model import model_of, step_of
from qrprof.planner.replay.ranks import Joint, Replay, joint_of, replay
from qrprof.profiler.facts import find_facts
from qrprof.profiler.trace import Trace
from qrprof.profiler.unlike import UNLIKE

US = 1000
WALL = 1_700_000_000 * 10**9  # ns: November 2023
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
DELAY, PAUSE, CALL = 2000, 1000, 5000  # ns

Factors = Mapping[tuple[int, str], float]  # by rank and kernel; a kernel's own time


@dataclass(frozen=True)
class Member:
    """What a rank does in each step, ns: mm, the collective (a transfer once all have come), add; and its host."""

    mm: int
    transfer: int = 50 * US
    add: int = 20 * US
    host: int = 10 * US  # a launch and what lies before it

    def host_step(self) -> int:
        return 3 * self.host + 1


@dataclass(frozen=True)
class Job:
    """Ranks that meet once a step; their devices run what their hosts launch. Steps before the first mark have none."""

    members: Sequence[Member]
    steps: int = 4
    before: int = 0  # of the steps, those before the first mark
    name: str = ALL_REDUCE

    def play(self, build: Any, factors: Factors | None = None) -> tuple[dict[int, Trace], dict[int, float], float]:
        """(traces, each rank's mean step, that of all together), ns."""
        asked = factors or {}
        rows: dict[int, list[Any]] = {rank: [] for rank in range(len(self.members))}
        done = dict.fromkeys(rows, -np.inf)
        bounds: dict[int, list[float]] = {rank: [] for rank in rows}
        for step in range(self.steps + 1):
            for rank, member in enumerate(self.members):
                now = step * member.host_step()
                if step >= self.before:
                    rows[rank].append(build.mark(step, now))
                    bounds[rank].append(max(now, done[rank]))
            if step < self.steps:
                self._step(build, step, asked, rows, done)
        traces = {rank: replace(Trace.from_rows(found), base_ns=WALL) for rank, found in rows.items()}
        spans = {rank: np.diff(found).mean() for rank, found in bounds.items()}
        return traces, spans, float(np.diff(np.max(list(bounds.values()), axis=0)).mean())

    def _step(self, build: Any, step: int, asked: Factors, rows: Any, done: Any) -> None:
        arrived = {}

        def follow(rank: int, place: int) -> float:
            returned = step * self.members[rank].host_step() + 1 + (place + 1) * self.members[rank].host
            call = 10 * step + place + 1
            rows[rank].append(build.launch(call, returned - CALL, returned))
            started: float = max(returned + DELAY, done[rank] + PAUSE)
            return started

        def work(rank: int, name: str, place: int, start: float, ns: float) -> None:
            rows[rank].append(build.kernel(name, start, start + ns, 10 * step + place + 1))
            done[rank] = start + ns

        def factor(rank: int, name: str) -> float:
            return asked.get((rank, name), 1.0) if step >= self.before else 1.0

        for rank, member in enumerate(self.members):
            work(rank, "mm", 0, follow(rank, 0), member.mm * factor(rank, "mm"))
            arrived[rank] = follow(rank, 1)
        came = max(arrived.values())
        for rank, member in enumerate(self.members):
            ends = came + member.transfer * factor(rank, self.name)
            work(rank, self.name, 1, arrived[rank], ends - arrived[rank])
            work(rank, "add", 2, follow(rank, 2), member.add * factor(rank, "add"))


def joint(traces: Mapping[int, Trace], runs: Any = None) -> Joint:
    return joint_of({rank: find_facts(trace) for rank, trace in traces.items()}, runs)


def ask(found: Joint, factors: Factors) -> Replay:
    changes: dict[int, Changes] = {}
    for (rank, name), factor in factors.items():
        graph = found.models[rank].graph
        one = change_items(graph, graph.facts.work.name == name, factor)
        changes[rank] = both(changes.get(rank, unchanged(graph)), one)
    return replay(found, changes)


def steps_of(found: Replay) -> dict[int, float]:
    return {rank: one.step_ns for rank, one in found.ranks.items()}


def waits_of(found: Replay) -> dict[int, float]:
    return {rank: one.wait_ns for rank, one in found.ranks.items()}


# --- two ranks, of which the second computes longer: steps of 300 + 50 + 20 us and three pauses of 1 us

LATE = Job([Member(mm=100 * US), Member(mm=300 * US)])


@pytest.fixture(scope="module")
def late(build: Any) -> Joint:
    return joint(LATE.play(build)[0])


def test_unchanged_they_give_the_record(build: Any, late: Joint) -> None:
    _, spans, all_ns = LATE.play(build)
    found = replay(late, {})
    assert steps_of(found) == pytest.approx(spans)
    assert found.step_ns == pytest.approx(all_ns)
    assert [model.error for model in late.models.values()] == [0, 0]
    assert [model.explained for model in late.models.values()] == [1, 1]
    assert (late.withheld, late.left_out, late.meetings.count, late.meetings.off_ns) == (None, 0, 4, 0)
    assert waits_of(found) == {0: 200 * US, 1: 0}


def test_a_rank_that_waits_gains_nothing_by_being_faster(late: Joint) -> None:
    base = replay(late, {})
    for factor in (0.5, 0.25):
        found = ask(late, {(0, "mm"): factor})
        assert (steps_of(found), found.step_ns) == (steps_of(base), base.step_ns)
        assert waits_of(found) == pytest.approx({0: (300 - 100 * factor) * US, 1: 0})


def test_the_rank_that_is_waited_for_gains_for_all_until_they_are_even(late: Joint) -> None:
    base = replay(late, {})
    for factor, gain in ((0.9, 30), (0.5, 150), (1 / 3, 200), (0.0, 200)):
        found = ask(late, {(1, "mm"): factor})
        assert steps_of(found) == pytest.approx({rank: ns - gain * US for rank, ns in steps_of(base).items()})
        assert found.step_ns == pytest.approx((base.step_ns or 0) - gain * US)
        assert waits_of(found)[0] == pytest.approx((200 - gain) * US)


def test_a_slower_rank_holds_up_all_once_it_is_the_last(late: Joint) -> None:
    base = steps_of(replay(late, {}))
    assert steps_of(ask(late, {(0, "mm"): 2.0})) == base
    assert steps_of(ask(late, {(0, "mm"): 5.0})) == pytest.approx({rank: ns + 200 * US for rank, ns in base.items()})


def test_without_communication_ranks_still_wait(late: Joint) -> None:
    """Only the transfer goes, of 50 us."""
    base, graphs = replay(late, {}), {rank: model.graph for rank, model in late.models.items()}
    found = replay(late, {rank: change_communication(graph, 0) for rank, graph in graphs.items()})
    assert steps_of(found) == pytest.approx({rank: ns - 50 * US for rank, ns in steps_of(base).items()})
    assert waits_of(found) == pytest.approx(waits_of(base))


def test_members_whose_transfers_differ(build: Any) -> None:
    """A broadcast of 50 us to one rank, of 80 to the other."""
    job = Job([Member(mm=100 * US), Member(mm=300 * US, transfer=80 * US)])
    found = joint(job.play(build)[0])
    assert found.meetings.off_ns == pytest.approx(15 * US)  # 0 of the one, 30 us of the other
    for factors in ({(1, ALL_REDUCE): 0.5}, {(0, ALL_REDUCE): 0.5}, {(0, ALL_REDUCE): 3.0, (1, "mm"): 0.5}):
        _, spans, all_ns = job.play(build, factors)
        assert steps_of(ask(found, factors)) == pytest.approx(spans)
        assert ask(found, factors).step_ns == pytest.approx(all_ns)


def test_a_lead_in_stays_as_recorded(build: Any) -> None:
    """In two steps before the first mark no collective is matched: a change there would move one rank alone."""
    job = replace(LATE, steps=6, before=2)
    found = joint(job.play(build)[0])
    assert (found.withheld, found.meetings.count) == (None, 4)
    for factors in ({(0, "mm"): 0.5}, {(1, "mm"): 0.5}, {(1, "mm"): 0.1, (0, "add"): 2.0}):
        assert steps_of(ask(found, factors)) == pytest.approx(job.play(build, factors)[1])


def test_clocks_that_are_lined_up(build: Any) -> None:
    """Without what their clocks have in common; rank 1's is a minute ahead."""
    traces, spans, all_ns = LATE.play(build)
    apart = {rank: moved(replace(trace, base_ns=0), rank * 60 * 10**9) for rank, trace in traces.items()}
    found = joint(apart)
    assert (found.clock.name, found.withheld) == ("aligned", None)
    assert steps_of(replay(found, {})) == pytest.approx(spans)
    assert replay(found, {}).step_ns == pytest.approx(all_ns)
    gone = ask(found, {(1, "mm"): 0.0})
    assert waits_of(gone)[0] == pytest.approx(0)


def moved(trace: Trace, ns: int) -> Trace:
    events = trace.events
    return replace(trace, events=events.assign(start=events["start"] + ns, end=events["end"] + ns))


# --- any ranks

members = st.builds(
    Member,
    mm=st.integers(1, 300).map(lambda us: us * US),
    transfer=st.integers(2, 80).map(lambda us: us * US),
    add=st.integers(1, 50).map(lambda us: us * US),
    host=st.integers(8, 100).map(lambda us: us * US),
)
jobs = st.builds(Job, st.lists(members, min_size=2, max_size=4), st.integers(1, 4))
factors = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from(["mm", "add", ALL_REDUCE])),
    st.sampled_from([0.0, 0.25, 0.5, 2.0, 5.0]),
)


def only(job: Job, asked: Factors) -> Factors:
    return {(rank, name): factor for (rank, name), factor in asked.items() if rank < len(job.members)}


@settings(max_examples=60)
@given(jobs, factors)
def test_they_give_what_the_simulator_does(build: Any, job: Job, asked: Factors) -> None:
    traces, spans, all_ns = job.play(build)
    found = joint(traces)
    assert steps_of(replay(found, {})) == pytest.approx(spans)
    assert replay(found, {}).step_ns == pytest.approx(all_ns)
    assert found.meetings.count == job.steps
    mine = only(job, asked)
    _, spans, all_ns = job.play(build, mine)
    assert steps_of(ask(found, mine)) == pytest.approx(spans)
    assert ask(found, mine).step_ns == pytest.approx(all_ns)


@settings(max_examples=60)
@given(jobs, factors, st.integers(0, 3), st.sampled_from(["mm", "add", ALL_REDUCE]), st.floats(1, 5))
def test_nothing_that_takes_longer_shortens_a_step(
    build: Any, job: Job, asked: Factors, rank: int, name: str, longer: float
) -> None:
    found = joint(job.play(build)[0])
    before = only(job, asked)
    after = only(job, {**before, (rank, name): before.get((rank, name), 1.0) * longer})
    shorter, other = steps_of(ask(found, before)), steps_of(ask(found, after))
    assert all(other[one] >= shorter[one] - 1e-3 for one in shorter)


launched = st.builds(Launch, st.sampled_from(["gemm", "add"]), st.integers(1, 40).map(lambda us: us * US + 1))
actions = st.one_of(
    st.integers(1, 40).map(lambda us: Busy(us * US)),
    launched,
    st.just(Synchronize()),
    launched.map(lambda launch: Op("aten::mm", (Busy(501), launch))),
)
programs = st.lists(st.lists(actions, min_size=1, max_size=6), min_size=1, max_size=3).map(lambda found: steps(*found))


@settings(max_examples=60)
@given(st.lists(programs, min_size=1, max_size=3), st.sampled_from([0.0, 0.5, 2.0]))
def test_ranks_that_never_meet_are_replayed_as_each_alone(found: list[tuple[Action, ...]], factor: float) -> None:
    facts = {rank: find_facts(Machine(program).trace) for rank, program in enumerate(found)}
    alone = {rank: model_of(one) for rank, one in facts.items()}
    tied = joint_of(facts)

    def change(graph: Graph) -> Changes:
        return change_rows(graph, (graph.facts.host.rows["name"] == "aten::mm").to_numpy(), factor)

    asked = {rank: change(model.graph) for rank, model in alone.items()}
    assert steps_of(replay(tied, {})) == pytest.approx({rank: model.base_ns for rank, model in alone.items()})
    expected = {rank: step_of(model, asked[rank]) for rank, model in alone.items()}
    assert steps_of(replay(tied, asked)) == pytest.approx(expected)
    assert (tied.meetings.count, replay(tied, asked).step_ns) == (0, None)


# --- the profiler's cost

HOST_BOUND = Job([Member(mm=100 * US), Member(mm=20 * US, host=100 * US)])


def test_one_cost_for_all_hosts_meets_the_unprofiled_step(build: Any) -> None:
    """Rank 1's host bounds both; rank 0 waits for it, and no cost of its own would make it any faster."""
    traces, spans, _ = HOST_BOUND.play(build)
    wanted = round(0.9 * sum(spans.values()) / 2)
    found = joint(traces, {rank: build.run([wanted] * 5) for rank in traces})
    assert found.withheld is None
    assert sum(model.base_ns for model in found.models.values()) / 2 == pytest.approx(wanted, rel=1e-6)
    assert all(model.base_ns < spans[rank] for rank, model in found.models.items())
    assert all(model.error == pytest.approx(0) for model in found.models.values())


def test_close_to_the_unprofiled_step_all_times_take_one_factor(build: Any) -> None:
    traces, spans, all_ns = LATE.play(build)
    found = joint(traces, {rank: build.run([round(1.05 * spans[rank])] * 5) for rank in traces})
    assert replay(found, {}).step_ns == pytest.approx(1.05 * all_ns, rel=1e-6)


@pytest.mark.parametrize(("times", "said"), [(0.3, "replay in"), (3.0, "replay in")])
def test_steps_that_no_cost_explains(build: Any, times: float, said: str) -> None:
    traces, spans, _ = LATE.play(build)
    found = joint(traces, {rank: build.run([round(times * spans[rank])] * 5) for rank in traces})
    assert said in (found.withheld or "")
    assert (found.withheld or "").endswith(f": {UNLIKE}")


# --- what is withheld


def test_a_rank_that_is_missing(build: Any) -> None:
    traces, _, _ = LATE.play(build)
    runs = {rank: build.run().model_copy(update={"world_size": 8}) for rank in traces}
    assert joint(traces, runs).withheld == "2 of 8 ranks are there, and any other may be waited for"


def test_clocks_that_are_unknown(build: Any) -> None:
    traces, _, _ = replace(LATE, name=SEND_RECV).play(build)
    found = joint({rank: replace(trace, base_ns=0) for rank, trace in traces.items()})
    assert (found.withheld or "").startswith("the ranks' clocks have no common zero")


def test_a_rank_that_lost_events(build: Any) -> None:
    traces, _, _ = LATE.play(build)
    events = traces[1].events
    lost = replace(traces[1], events=events[(events["kind"] != "kernel") | (events["name"] == ALL_REDUCE)])
    assert (joint({0: traces[0], 1: lost}).withheld or "").startswith("rank 1: ")


def test_ranks_that_communicate_on_the_host(build: Any) -> None:
    def rank(start: int) -> Trace:
        rows = [build.mark(0, 0), build.mark(1, 1000), build.op("aten::mm", 10, 400)]
        return replace(Trace.from_rows([*rows, build.note("gloo:all_reduce", start, 700, 2)]), base_ns=WALL)

    assert "communicate on the host" in (joint({0: rank(300), 1: rank(500)}).withheld or "")
