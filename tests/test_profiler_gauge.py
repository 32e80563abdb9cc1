"""The profiler's cost, from calls whose time without it is known: read from a trace, and taken off a hidden host."""

import gzip
import json
from typing import Any

import pytest
from replay_asks import changes, model, predict
from replay_cases import Action, Busy, Change, Launch, Machine, Op, steps

from qrprof.planner.replay.ranks import joint_of, replay
from qrprof.profiler.events import ANNOTATION, GAUGE
from qrprof.profiler.facts import find_facts
from qrprof.profiler.gauge import host_cost, segment_cost
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

COST = 900
ROUNDS = 4
FASTER = Change(kernels={"gemm": 0.01})


def step(cost: int, kernel_ns: int) -> list[Action]:
    """A step on a machine whose profiler costs so much a segment."""

    def mm() -> Op:
        return Op("aten::mm", (Busy(3000 + cost), Launch("gemm", kernel_ns, api=4000 + cost), Busy(2000 + cost)))

    return [Busy(7000 + cost), *[mm() for _ in range(10)]]


def gauged(machine: Machine, cost: int, blocks: int = 3) -> tuple[Trace, int]:
    """The machine's trace with blocks of calls after it, and what a block takes without the profiler."""
    rows, at = list(machine.rows), int(machine.now)
    plain = 0
    for _ in range(blocks):
        at += 50_000
        begun, plain = at, 0
        for own in (1500, 2500, 600, 800) * ROUNDS:
            rows.append({"kind": "op", "name": "aten::add", "start": at, "end": at + own + cost, "track": 1})
            plain += own + 400
            at += own + cost + 400 + cost
        rows.append({"kind": ANNOTATION, "name": GAUGE, "start": begun, "end": at, "track": 1})
    return Trace.from_rows(rows), plain


def told(build: Any, step_ns: float, gauge_ns: float | None) -> RunInfo:
    run: RunInfo = build.run([round(step_ns)] * 5).model_copy(update={"gauge_ns": gauge_ns})
    return run


@pytest.mark.parametrize("cost", [0, 50, COST])
def test_the_cost_is_what_the_calls_took_more_in_the_trace(build: Any, cost: int) -> None:
    """Of 400 ns between two calls 280 may be the profiler's: what they cannot lose the longer ones do."""
    trace, plain = gauged(Machine(steps(*[step(cost, 50_000)] * 4)), cost)
    found = segment_cost(find_facts(trace), told(build, 1, plain))
    assert found == pytest.approx(cost, abs=1)


def test_a_block_that_was_interrupted_does_not_count(build: Any) -> None:
    trace, plain = gauged(Machine(steps(*[step(COST, 50_000)] * 4)), COST)
    last = trace.events["name"] == GAUGE
    place = trace.events.index[last][-1]
    trace.events.loc[place, "end"] += 10_000_000
    assert segment_cost(find_facts(trace), told(build, 1, plain)) == pytest.approx(COST, abs=1)


def test_without_a_gauge_no_cost_is_known(build: Any) -> None:
    trace, plain = gauged(Machine(steps(*[step(COST, 50_000)] * 4)), COST)
    facts = find_facts(trace)
    assert segment_cost(facts, None) is None
    assert segment_cost(facts, told(build, 1, None)) is None
    assert segment_cost(find_facts(Machine(steps(*[step(COST, 50_000)] * 4)).trace), told(build, 1, plain)) is None


def test_a_host_that_its_device_hid_loses_the_cost(build: Any) -> None:
    """With fast kernels the host is the bound, and the program runs without a profiler."""
    true = Machine(steps(*[step(0, 50_000)] * 4)).mean_step()
    recorded = Machine(steps(*[step(COST, 50_000)] * 4))
    trace, plain = gauged(recorded, COST)
    assert recorded.mean_step() == pytest.approx(true, rel=0.01)
    faster = Machine(steps(*[step(0, 50_000)] * 4), FASTER).mean_step()
    known, unknown = (model(trace, told(build, true, gauge)) for gauge in (plain, None))
    assert (known.withheld, unknown.withheld) == (None, None)
    assert (known.base_ns, unknown.base_ns) == pytest.approx((true, true))
    assert predict(known, FASTER) == pytest.approx(faster, rel=0.01)
    assert predict(unknown, FASTER) > 1.2 * faster


def test_steps_that_show_the_cost_are_believed_before_the_gauge(build: Any) -> None:
    """A host-bound step as long with as without the profiler: nothing was hidden, whatever other calls lost."""
    machine = Machine(steps(*[step(0, 1000)] * 4))
    trace, plain = gauged(machine, COST)
    found = model(trace, told(build, machine.mean_step(), plain))
    assert found.base_ns == pytest.approx(machine.mean_step())
    assert predict(found, FASTER) == pytest.approx(Machine(steps(*[step(0, 1000)] * 4), FASTER).mean_step(), rel=0.01)


def test_hosts_of_ranks_lose_it_too(build: Any) -> None:
    """Two ranks that never meet: each is as it would be alone."""
    true = Machine(steps(*[step(0, 50_000)] * 4)).mean_step()
    trace, plain = gauged(Machine(steps(*[step(COST, 50_000)] * 4)), COST)
    faster = Machine(steps(*[step(0, 50_000)] * 4), FASTER).mean_step()

    def predicted(gauge_ns: float | None) -> dict[int, float]:
        facts, runs = dict.fromkeys((0, 1), find_facts(trace)), dict.fromkeys((0, 1), told(build, true, gauge_ns))
        found = joint_of(facts, runs)
        assert found.withheld is None
        assert [one.base_ns for one in found.models.values()] == pytest.approx([true, true])
        asked = {rank: changes(one.graph, FASTER) for rank, one in found.models.items()}
        return {rank: one.step_ns for rank, one in replay(found, asked).ranks.items()}

    assert predicted(plain) == pytest.approx({0: faster, 1: faster}, rel=0.01)
    assert min(predicted(None).values()) > 1.2 * faster


def test_a_device_that_waited_for_the_profiler_alone_is_calibrated(build: Any) -> None:
    """Recorded, it idles for 59 us of a step; unprofiled it is the slower one, and idles for its launches alone."""
    kernel_ns, cost = 10_000, 2000
    true = Machine(steps(*[step(0, kernel_ns)] * 4)).mean_step()
    recorded = Machine(steps(*[step(cost, kernel_ns)] * 4))
    trace, plain = gauged(recorded, cost)
    run = told(build, true, plain)
    facts = find_facts(trace, run)
    assert host_cost(facts, run) > recorded.mean_step() - true
    known, unknown = divide(facts, run), divide(facts, told(build, true, None))
    assert known.withheld is None
    assert known.factor is not None
    assert 0 < known.factor < 0.3
    assert known.rows["ns"].sum() == pytest.approx(true, rel=1e-4)
    assert "outside 0.3 to 1.1" in (unknown.withheld or "")


def test_more_than_the_profiler_cost_is_not_believed(build: Any) -> None:
    """The same steps, said to take less than without what was gauged."""
    kernel_ns, cost = 10_000, 2000
    true = Machine(steps(*[step(0, kernel_ns)] * 4)).mean_step()
    trace, plain = gauged(Machine(steps(*[step(cost, kernel_ns)] * 4)), cost // 3)
    parts = divide(find_facts(trace), told(build, true, plain))
    assert "outside 0.3 to 1.1" in (parts.withheld or "")


def test_the_recorder_gauges_between_steps(workshop: Any) -> None:
    ended = workshop.train("for i in range(60): step()\n")
    run, trace = ended.load()
    blocks = trace.events[trace.events["name"] == GAUGE]
    assert len(blocks) == 24
    assert run.gauge_ns > 0
    with gzip.open(ended.run_folders[0] / "rank0.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    marks = [event["ts"] for event in events if event.get("name", "").startswith("qrprof.step#")]
    assert min(event["ts"] for event in events if event.get("name") == GAUGE) > max(marks)
    cost = segment_cost(find_facts(trace, run), run)
    assert cost is not None
    assert cost > 0
