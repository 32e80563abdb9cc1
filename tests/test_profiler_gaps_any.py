"""What holds for the gaps of any trace, recorded ones among them: they agree with the partition."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.profiler.calibrate import calibrate_device
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.gaps import THRESHOLD_NS, Idle, by_cause, find_idle
from qrprof.profiler.partition import partition
from qrprof.profiler.readers import kineto
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import window_at
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

Rows = list[dict[str, Any]]


def idle_of(trace: Trace, run: RunInfo | None = None) -> Idle:
    return find_idle(find_facts(trace, run), run)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Rows in units of 500 ns, some of them with a host side."""
    span = st.tuples(st.integers(0, 200), st.integers(0, 60))
    names = ["op aten::mm", "op c10d::barrier", f"annotation {LOADER}", "annotation gloo:all_reduce"]
    names += [
        "runtime cudaLaunchKernel",
        "runtime cudaStreamSynchronize",
        "runtime cudaMalloc",
        "overhead Buffer Flush",
    ]
    host = st.tuples(st.sampled_from(names), span, st.integers(1, 3), st.integers(0, 8))
    device = st.tuples(st.sampled_from(["k", "ncclDevKernel"]), span, st.integers(7, 9), st.integers(0, 8))
    rows: Rows = [
        {"kind": name.split()[0], "name": name.split()[1], "start": s, "end": s + d, "track": thread, "correlation": c}
        for name, (s, d), thread, c in draw(st.lists(host, max_size=20))
    ]
    rows += [
        {"kind": "kernel", "name": name, "start": s, "end": s + d, "device": 0, "track": stream, "correlation": c}
        for name, (s, d), stream, c in draw(st.lists(device, min_size=1, max_size=15))
    ]
    rows += [
        {"kind": "annotation", "name": f"qrprof.step#{n}", "start": at, "end": at + 1, "track": 1}
        for n, at in enumerate(sorted(draw(st.sets(st.integers(0, 250), max_size=4))))
    ]
    rows.append({"kind": "kernel", "name": "k", "start": 0, "end": 1, "device": 0, "track": 7, "correlation": 0})
    scaled: Rows = [row | {"start": 500 * row["start"], "end": 500 * row["end"]} for row in rows]
    return Trace.from_rows(scaled)


def calibrated_pauses(facts: Facts, run: RunInfo) -> float:
    """ns of the unprofiled step in idle intervals up to the threshold."""
    idle, times = facts.swept.idle, calibrate_device(facts, run)
    short = idle.only(idle.end - idle.start <= THRESHOLD_NS)
    parts = ((times.queued, times.queued_ns), (times.starved, times.starved_ns))
    return float(sum(ns[window_at(short, pieces.start) >= 0].sum() for pieces, ns in parts))


def agree(trace: Trace, run: RunInfo) -> None:
    """Gaps are disjoint, in the steps and over the threshold, and with the shorter ones they are the idle time."""
    idle, parts, facts = idle_of(trace, run), partition(trace, run), find_facts(trace, run)
    steps = facts.steps.device
    if idle.gaps is None:
        assert idle.withheld
        return
    windows = list(zip(steps.start.tolist(), steps.end.tolist(), strict=True))
    for gap in idle.gaps:
        assert gap.ns > THRESHOLD_NS
        assert any(start <= gap.start and gap.end <= end for start, end in windows)
    assert all(gap.end <= following.start for gap, following in pairwise(idle.gaps))
    (device,) = idle.devices
    assert device.busy_ns == pytest.approx(parts.busy_ns)
    assert device.busy_ns + device.gap_ns + device.short_ns == pytest.approx(parts.recorded_ns)
    assert sum(gap.weight * gap.ns for gap in idle.gaps) == pytest.approx(device.gap_ns)
    causes = parts.rows[parts.rows["kind"] == "gap"]
    assert device.gap_ns + device.short_ns == pytest.approx(causes["recorded_ns"].sum())
    assert by_cause(idle)["recorded_ns"].sum() == pytest.approx(device.gap_ns)
    assert idle.factor == (parts.factor and pytest.approx(parts.factor))
    assert (idle.withheld is None) == (parts.withheld is None)
    if parts.step_ns and parts.withheld is None:
        rest = calibrated_pauses(facts, run) / parts.step_ns
        assert by_cause(idle)["share"].sum() + rest == pytest.approx(causes["ns"].sum() / parts.step_ns)


@settings(deadline=None, max_examples=60)
@given(trace=traces(), step=st.none() | st.integers(100, 20_000))
def test_gaps_and_pauses_are_the_idle_time_of_the_partition(build: Any, trace: Trace, step: int | None) -> None:
    steps = [10 * step + 7] if step else []  # all other times are multiples of 50: no bound of a factor is met exactly
    agree(trace, build.run(steps, weights={0: 0.7, 1: 0.2, 2: 0.1}))


def recorded() -> list[Any]:
    public = sorted(PUBLIC.glob("*.json.gz")) if PUBLIC.is_dir() else []
    found = [*sorted(DATA.glob("own_h200_*.json.gz")), *(path for path in public if not path.name.startswith("own_"))]
    return [pytest.param(path, id=path.name.removesuffix(".json.gz")) for path in found]


@pytest.mark.parametrize("path", recorded())
def test_recorded_traces_agree_with_their_partition(build: Any, path: Path) -> None:
    trace = kineto.read(path)
    idle = idle_of(trace)
    agree(trace, build.run([int(0.9 * idle.recorded_ns)]))


# --- known answers of recorded traces


def h200(name: str) -> Idle:
    return idle_of(kineto.read(DATA / f"{name}.json.gz"))


def test_h200_the_loader_is_one_long_gap_a_step() -> None:
    idle = h200("own_h200_loader_bound")
    waits = [gap for gap in idle.gaps or [] if gap.cause == "data"]
    assert [(gap.step, round(gap.ns / 1e6, 1), gap.op) for gap in waits] == [(2, 17.7, LOADER), (3, 17.6, LOADER)]
    assert all(gap.share == pytest.approx(0.5, abs=0.01) for gap in waits)
    assert by_cause(idle).iloc[0]["cause"] == "data"


def test_h200_small_layers_wait_for_their_launches() -> None:
    first, *_ = by_cause(h200("own_h200_mlp_eager")).to_dict("records")
    assert (first["cause"], first["share"]) == ("launch", pytest.approx(0.775, abs=0.01))


@pytest.mark.parametrize("name", ["own_h200_mlp_cudagraph", "own_h200_qr_loop_8x512", "own_h200_two_streams_overlap"])
def test_h200_traces_whose_queue_is_full_have_hardly_a_gap(name: str) -> None:
    idle = h200(name)
    assert sum(gap.weight * gap.ns for gap in idle.gaps or []) < 0.02 * idle.recorded_ns
