"""The replay against the simulator's exact answers, and on traces that lack something."""

from typing import Any

import numpy as np
import pytest
from replay_asks import model, predict
from replay_cases import (
    NODE,
    SAME,
    SIDE,
    Action,
    Backward,
    Busy,
    Change,
    GraphLaunch,
    Item,
    Launch,
    Load,
    Machine,
    Op,
    Record,
    Rules,
    Synchronize,
    WaitEvent,
    steps,
)

from qrprof.planner.replay.changes import GRAPH_PAUSE_NS
from qrprof.planner.replay.model import Model
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import HOST, SYNC
from qrprof.profiler.trace import Trace

Program = tuple[Action, ...]


def mm(ns: int, stream: int = 7) -> Op:
    return Op("aten::mm", (Busy(3000), Launch("gemm", ns, stream), Busy(2000)))


def add(ns: int = 3000, stream: int = 7) -> Op:
    return Op("aten::add", (Busy(2000), Launch("add", ns, stream), Busy(1000)))


HOST_BOUND: Program = (Busy(7000), *[mm(2000), add()] * 5)
DEVICE_BOUND: Program = (Busy(7000), *[mm(50_000), add()] * 5)
GRAPH: Program = (Busy(4000), GraphLaunch(tuple(("gemm" if place % 2 else "add", 4000) for place in range(40))))
TWO_STREAMS: Program = (Busy(3000), *[mm(40_000), add(20_000, SIDE)] * 4)
EVENTS: Program = (
    *(Busy(3000), mm(60_000), Record("a"), WaitEvent("a"), add(20_000, SIDE)),
    *(Record("b", SIDE), WaitEvent("b", 7), mm(10_000), mm(20_000)),
)
AUTOGRAD: Program = (
    *(Busy(3000), mm(2000), mm(2000)),
    Backward((Op(NODE, (Busy(4000), mm(3000), Busy(1000))), Busy(3000), Op(NODE, (Busy(4000), mm(3000))))),
    *(Busy(5000), add()),
)
SERIAL: Program = (Busy(7000), mm(50_000), Synchronize(), Busy(5000), add(), Synchronize())
COPYING: Program = (*HOST_BOUND, Item(1500))
SYNCED: Program = (*DEVICE_BOUND, Synchronize())
ONE_AWAITED: Program = (*TWO_STREAMS, Synchronize(SIDE))
QUEUED: Program = (Busy(3000), *[add(20_000)] * 700)
CASES: dict[str, Program] = {
    "serial": steps(*[SERIAL] * 4),
    "host bound": steps(*[HOST_BOUND] * 4),
    "host runs ahead over steps": steps(*[DEVICE_BOUND] * 4),
    "sync each step": steps(*[SYNCED] * 4),
    "sync of a stream": steps(*[ONE_AWAITED] * 4),
    "blocking copy": steps(*[[*DEVICE_BOUND, Item(2000), Busy(3000)]] * 4),
    "blocking copies between small ops": steps(*[COPYING * 2] * 4),
    "data loading": steps(*[[Load(300_000), *DEVICE_BOUND]] * 4),
    "data loading behind the device": steps(*[[Load(30_000), *DEVICE_BOUND]] * 4),
    "graph of many kernels": steps(*[GRAPH] * 4),
    "graph, then sync": steps(*[[*GRAPH, Synchronize()]] * 4),
    "two streams": steps(*[TWO_STREAMS] * 4),
    "two streams, then sync": steps(*[[*TWO_STREAMS, Synchronize()]] * 4),
    "events between streams": steps(*[EVENTS] * 4),
    "events between streams, then sync": steps(*[[*EVENTS, Synchronize()]] * 4),
    "autograd's thread": steps(*[AUTOGRAD] * 4),
    "autograd's thread, then sync": steps(*[[*AUTOGRAD, Synchronize(7)]] * 4),
    "full launch queue": steps(*[QUEUED] * 3),
    "steps that differ": steps(DEVICE_BOUND, HOST_BOUND, SYNCED, HOST_BOUND),
}
CHANGES = {
    "unchanged": SAME,
    "op in half its time": Change(ops={"aten::mm": 0.5}),
    "op gone": Change(ops={"aten::mm": 0}),
    "other op in half its time": Change(ops={"aten::add": 0.5}),
    "kernel 4x faster": Change(kernels={"gemm": 0.25}),
    "kernel gone": Change(kernels={"gemm": 0}),
    "other kernel 5x faster": Change(kernels={"add": 0.2}),
    "kernel 3x slower": Change(kernels={"gemm": 3}),
    "launch=0": Change(causes={"launch": 0}),
    "launch in half its time": Change(causes={"launch": 0.5}),
    "sync=0": Change(causes={"sync": 0}),
    "copy=0": Change(causes={"copy": 0}),
    "gap:data=0": Change(causes={"data": 0}),
    "all at once": Change(ops={"aten::mm": 0.5}, kernels={"add": 0.5}, causes={"launch": 0.5, "sync": 0, "data": 0}),
}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: model(Machine(program).trace) for name, program in CASES.items()}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("case", CASES)
def test_it_predicts_what_the_simulator_gives(case: str, change: Change, models: dict[str, Model]) -> None:
    assert predict(models[case], change) == pytest.approx(Machine(CASES[case], change).mean_step(), abs=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_an_exact_trace_is_replayed_exactly(case: str, models: dict[str, Model]) -> None:
    found = models[case]
    assert found.error == pytest.approx(0, abs=1e-12)
    assert (found.explained, found.withheld) == (1.0, None)
    assert found.base_ns == pytest.approx(Machine(CASES[case]).mean_step(), abs=1e-3)


def test_the_simulator_leaves_graph_kernels_the_same_pause() -> None:
    assert Rules().between == GRAPH_PAUSE_NS


def test_a_faster_kernel_gains_until_the_host_is_the_bound(models: dict[str, Model]) -> None:
    """5 x (9 + 7) us of ops and 7 us between: a step of the host takes 87 us and its mark."""
    found = models["host runs ahead over steps"]
    gains = [found.base_ns - predict(found, Change(kernels={"gemm": factor})) for factor in (0.8, 0.4, 0.2, 0.1, 0)]
    assert gains[0] == 5 * 0.2 * 50_000
    assert gains[1] == 5 * 0.6 * 50_000
    assert gains[1] < gains[2] < 5 * 0.8 * 50_000
    assert gains[2] < gains[3] == gains[4]
    assert predict(found, Change(kernels={"gemm": 0})) == pytest.approx(88_001, abs=1)


def test_a_slower_kernel_costs_only_when_the_device_is_the_bound(models: dict[str, Model]) -> None:
    found = models["host bound"]
    assert predict(found, Change(kernels={"gemm": 2})) == found.base_ns
    assert predict(found, Change(kernels={"gemm": 50})) > 5 * 50 * 2000


def test_steps_count_by_their_weights(build: Any) -> None:
    program = CASES["steps that differ"]
    weights = {0: 0.1, 1: 0.5, 2: 0.1, 3: 0.3}
    run = build.run(weights=weights)
    found = model(Machine(program).trace, run)
    for change in CHANGES.values():
        assert predict(found, change) == pytest.approx(
            Machine(program, change).mean_step([*weights.values()]), abs=1e-3
        )


def test_the_launch_queue_was_full() -> None:
    """The case is what its name says: the last calls take longer than the first, which 1024 launches lie between."""
    events = Machine(CASES["full launch queue"]).trace.events
    calls = events[events["name"] == "cudaLaunchKernel"]
    spent = (calls["end"] - calls["start"]).to_numpy()
    assert (spent[:1024] == 4000).all()
    assert spent[-1] > 10_000


@pytest.mark.parametrize("queue", [1005, 1021, 1024])
@pytest.mark.parametrize("factor", [0.0, 0.25, 0.5])
def test_how_many_launches_fit_the_queue_is_read_off_the_trace(queue: int, factor: float) -> None:
    """H200s took 1021. Taken for the host's own time, the waiting would stay when the kernels are faster."""
    rules = Rules(queue=queue)
    found = model(Machine(CASES["full launch queue"], rules=rules).trace)
    change = Change(kernels={"add": factor})
    exact = Machine(CASES["full launch queue"], change, rules).mean_step()
    assert found.explained == 1.0
    assert predict(found, change) == pytest.approx(exact, abs=1)


def test_streams_that_wait_are_told_without_records_of_it() -> None:
    rows = [row for row in Machine(CASES["events between streams"]).rows if row["kind"] != SYNC]
    found = model(Trace.from_rows(rows))
    assert (found.explained, found.withheld) == (1.0, None)
    for change in (Change(kernels={"gemm": 0.5}), Change(kernels={"gemm": 3}), Change(kernels={"add": 0.5})):
        exact = Machine(CASES["events between streams"], change).mean_step()
        assert predict(found, change) == pytest.approx(exact, rel=0.01)


def test_what_follows_a_wait_at_the_same_instant_waits_too() -> None:
    """Old traces are in microseconds: a mark, or the next launch, has the time at which a call returned."""
    body: Program = (Launch("gemm", 50_000), Synchronize())
    program = steps(*[body] * 3)
    found = model(Machine(program).trace)
    slower = Change(kernels={"gemm": 3})
    assert predict(found, slower) == pytest.approx(Machine(program, slower).mean_step(), abs=1e-3)
    assert predict(found, slower) == found.base_ns + 100_000


# --- traces that lack something

WHOLE = Machine(steps(*[[*HOST_BOUND, Synchronize()]] * 4)).rows


def test_device_only() -> None:
    found = model(Trace.from_rows(row for row in WHOLE if row.get("device", HOST) != HOST))
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found.withheld  # most kernels came when the host launched them, which is not in the file


def test_host_only() -> None:
    """A program on a CPU: what its ops take is all there is."""
    rows = [row for row in WHOLE if row["kind"] in ("op", "annotation")]
    found = model(Trace.from_rows(rows))
    assert (found.explained, found.withheld) == (None, None)
    spent = sum(row["end"] - row["start"] for row in rows if row["name"] == "aten::mm") / 4
    assert found.base_ns - predict(found, Change(ops={"aten::mm": 0})) == pytest.approx(spent)
    assert predict(found, Change(causes={"launch": 1, "sync": 0, "copy": 0})) == found.base_ns


def test_launches_without_any_device_work() -> None:
    assert model(Trace.from_rows(row for row in WHOLE if row.get("device", HOST) == HOST)).withheld


def test_without_marks_the_whole_trace_is_one_step() -> None:
    rows = [row for row in WHOLE if row["kind"] != "annotation"]
    found = model(Trace.from_rows(rows))
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found.recorded_ns == max(row["end"] for row in rows) - min(row["start"] for row in rows)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(QrprofError, match="holds no time"):
        model(Trace.from_rows([]))


@pytest.mark.parametrize("place", [0, 4, 5, 7], ids=lambda place: str(WHOLE[place]["kind"]))
def test_one_event(place: int) -> None:
    found = model(Trace.from_rows([WHOLE[place]]))
    ns = WHOLE[place]["end"] - WHOLE[place]["start"]
    assert (found.recorded_ns, found.replayed_ns) == (ns, ns)


@pytest.mark.parametrize("skew_ns", [-20_000, -1500, 1500, 20_000])
def test_clocks_that_disagree(skew_ns: int) -> None:
    """The device's clock is behind or ahead of the host's: kernels start before their launches, or long after."""
    rows = [
        row if row.get("device", HOST) == HOST else row | {"start": row["start"] + skew_ns, "end": row["end"] + skew_ns}
        for row in WHOLE
    ]
    found = model(Trace.from_rows(rows))
    assert found.error == pytest.approx(0, abs=1e-12)
    times = predict(found, Change(kernels={"gemm": 0.5})), found.base_ns, predict(found, Change(kernels={"gemm": 2}))
    assert list(times) == sorted(times)
    assert np.isfinite(times).all()
