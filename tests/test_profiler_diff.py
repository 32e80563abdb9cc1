"""What one run takes more or less time for than another: known answers, and what holds for any two."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qrprof.profiler.diff import Diff, Side, diff, regressed, side
from qrprof.profiler.noise import Noise
from qrprof.profiler.read import ranked, read, read_all
from qrprof.profiler.runinfo import DeviceInfo, RecordedStep, RunInfo
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))

Op = tuple[str, int]  # name, with shapes behind a space where it has some, and ns
Make = Callable[..., Side]

STEADY = Noise("within-run", 0.0)

FIRST: list[Op] = [("mm", 500), ("add", 300)]
SECOND: list[Op] = [("mm", 250), ("add", 300), ("relu", 100)]


@pytest.fixture(scope="session")
def make(build: Any) -> Make:
    """A run on a CPU: a step of these ops one after the other and `rest` ns of host work, unprofiled as recorded."""

    def make(ops: Sequence[Op], rest: int = 200, unprofiled: int | None = None, noise: Noise | None = STEADY) -> Side:
        rows, now = [build.mark(0, 0)], 0
        for name, ns in ops:
            key, _, shapes = name.partition(" ")
            rows.append(build.op(key, now, now + ns, shapes=shapes))
            now += ns
        now += rest
        run = build.run([now if unprofiled is None else unprofiled])
        return replace(side(Trace.from_rows([*rows, build.mark(1, now)]), run), noise=noise)

    return make


def by_key(found: Diff, column: str) -> dict[str, Any]:
    return dict(zip(found.rows["key"], found.rows[column], strict=True))


# --- rows


def test_each_row_takes_more_or_less_time(make: Make) -> None:
    found = diff(make(FIRST), make(SECOND))
    assert by_key(found, "delta_ns") == {"mm": -250, "relu": 100, "add": 0, "gap:host": 0}
    assert by_key(found, "change") == {"mm": "faster", "relu": "new", "add": "no change", "gap:host": "no change"}
    assert by_key(found, "speedup") == pytest.approx(
        {"mm": 2, "relu": float("nan"), "add": 1, "gap:host": 1}, nan_ok=True
    )
    assert by_key(found, "matched") == {"mm": "shape", "relu": "", "add": "shape", "gap:host": "shape"}
    assert by_key(found, "calls_a") == pytest.approx(
        {"mm": 1, "relu": 0, "add": 1, "gap:host": float("nan")}, nan_ok=True
    )
    assert found.rows["key"].iloc[:2].tolist() == ["mm", "relu"]  # the largest difference first
    assert (found.a_ns, found.b_ns) == (1000, 850)
    assert found.rows["delta_ns"].sum() == 850 - 1000
    assert found.calibrated
    assert (found.floor_ns, found.noise) == (0, "within-run")


def test_what_only_the_first_run_has_is_gone(make: Make) -> None:
    assert by_key(diff(make(SECOND), make(FIRST)), "change")["relu"] == "gone"


def test_rows_are_matched_by_shapes_dtypes_and_phase(build: Any) -> None:
    def one(shapes: str, dtypes: str, start: int) -> Side:
        rows = [build.mark(0, 0), build.op("aten::add", 0, 100), build.mark(1, 1000)]
        rows += [build.op("aten::mm", start, start + 100, shapes=shapes, dtypes=dtypes)]
        rows += [build.note("Optimizer.step#SGD.step", 500, 900)]
        return side(Trace.from_rows(rows), build.run([1000] * 5))

    same = one("[[8,8]]", "float", 200)
    for shapes in ("[[8,8]]", "[[4,4]]", ""):
        for other in (one(shapes, "double", 200), one(shapes, "float", 600)):
            rows = diff(same, other).rows.query("key == 'aten::mm'")
            assert rows["delta_ns"].sort_values().tolist() == [-100, 100]
            assert set(rows["matched"]) == {""}
    assert diff(same, same).rows.query("key == 'aten::mm'")["delta_ns"].tolist() == [0]


def test_steps_as_unprofiled(make: Make) -> None:
    """The recorded step of 1000 stands for one of 800.

    The mark's 1 ns, which lies in mm, gives 0.7 of the 200; what mm, add and host work give of the rest is the same.
    """
    found = diff(make(FIRST, unprofiled=800), make(FIRST))
    cost = 199.3 / 3
    assert by_key(found, "a_ns") == pytest.approx({"mm": 499.3 - cost, "add": 300 - cost, "gap:host": 200 - cost})
    assert found.unprofiled_ns == (800, 1000)
    assert found.steps_ns == (800, 1000)


def test_rows_as_recorded_where_a_run_has_no_other(build: Any, make: Make) -> None:
    only = Trace.from_rows([build.mark(0, 0), build.op("mm", 0, 500), build.mark(1, 1000)])
    found = diff(side(only, build.run()), make([("mm", 500)], 500, unprofiled=800))
    assert not found.calibrated
    assert found.unprofiled_ns is None
    assert found.steps_ns == (1000, 1000)
    assert found.rows["delta_ns"].abs().max() == 0


def test_rows_as_recorded_where_one_cannot_be_scaled(make: Make) -> None:
    """A step of 100 cannot have been one of 1000 in the recording; the steps are compared all the same."""
    found = diff(make(FIRST, unprofiled=100), make(FIRST))
    assert not found.calibrated
    assert (found.a_ns, found.b_ns) == (1000, 1000)
    assert found.steps_ns == (100, 1000)


# --- noise


def test_differences_below_the_noise_are_no_change(make: Make) -> None:
    """Noise of 6 % and 8 % of 1000 ns: the difference has 100 ns."""
    a = make([("mm", 500), ("add", 300)], noise=Noise("run-to-run", 0.06))
    b = make([("mm", 400), ("add", 401)], rest=199, noise=Noise("run-to-run", 0.08))
    found = diff(a, b)
    assert found.floor_ns == pytest.approx(100)
    assert found.noise == "run-to-run"
    assert by_key(found, "change") == {"add": "slower", "mm": "no change", "gap:host": "no change"}


def test_noise_is_run_to_run_where_the_run_was_repeated(build: Any) -> None:
    trace = Trace.from_rows([build.mark(0, 0), build.op("mm", 0, 1000), build.mark(1, 1000)])
    run = build.run([1000] * 5)
    repeated = run.model_copy(update={"repeats": [[1100] * 5, [900] * 5]})
    found = diff(side(trace, repeated), side(trace, repeated))
    assert found.noise == "run-to-run"
    assert found.floor_ns == pytest.approx(2**0.5 * 100)
    assert diff(side(trace, repeated), side(trace, run)).noise == "run-to-run of A, within-run of B"


def test_noise_of_a_run_without_unprofiled_steps_is_that_of_the_recorded(build: Any) -> None:
    def recorded(*lengths: int) -> Side:
        rows, now = [build.mark(0, 0)], 0
        for number, ns in enumerate(lengths, start=1):
            rows += [build.op("mm", now, now + ns), build.mark(number, now + ns)]
            now += ns
        return side(Trace.from_rows(rows), build.run())

    found = diff(recorded(100, 100, 100, 100, 100), recorded(90, 110, 90, 110, 100))
    assert found.noise == "within-run"
    assert 5 < (found.floor_ns or 0) <= 10
    few = diff(recorded(100, 100), recorded(300, 300))
    assert (few.noise, few.floor_ns) == (None, None)
    assert by_key(few, "change") == {"mm": ""}


def test_kinds_of_recorded_steps_are_not_noise(build: Any) -> None:
    rows, now, kinds = [build.mark(0, 0)], 0, "AABABBAB"
    for number, kind in enumerate(kinds, start=1):
        now += 100 if kind == "A" else 300
        rows += [build.op("mm", now - 100, now), build.mark(number, now)]
    steps = [RecordedStep(index=number, kind=kind, weight=1 / 8) for number, kind in enumerate(kinds)]
    run = build.run().model_copy(update={"recorded": steps})
    found = diff(side(Trace.from_rows(rows), run), side(Trace.from_rows(rows), run))
    assert (found.noise, found.floor_ns) == ("within-run", 0)


# --- what is not compared


def test_comparability_is_the_time_in_ops_called_equally_often(make: Make) -> None:
    found = diff(make(FIRST), make(SECOND))
    assert found.comparability == pytest.approx((800 + 550) / (800 + 650))  # all but relu
    twice = diff(make(FIRST), make([("mm", 250), ("mm", 250), ("add", 300)]))
    assert twice.comparability == pytest.approx(600 / 1600)  # mm is called twice as often


def test_other_programs_are_not_compared(make: Make) -> None:
    found = diff(make(FIRST), make([("conv", 700), ("add", 100)]))
    assert found.comparability == pytest.approx(400 / 1600)
    assert found.withheld is not None
    assert found.withheld.startswith("only 25.0 % of their time in ops")
    assert found.rows.empty
    assert found.steps_ns == (1000, 1000)


def test_programs_without_ops_are_not_compared(make: Make) -> None:
    found = diff(make([]), make([]))
    assert (found.comparability, found.withheld) == (None, "neither run has time in ops")


def test_other_kinds_of_device_are_not_compared(build: Any, make: Make) -> None:
    rows = [build.mark(0, 0), build.op("mm", 0, 500), build.op("add", 500, 800), build.mark(1, 1000)]
    rows += [build.launch(1, 10, 20), build.kernel("mm", 30, 900, 1)]
    on_device = side(Trace.from_rows(rows), build.run([1000] * 5))
    assert (diff(make(FIRST), on_device).withheld or "").startswith("A ran on cpu, B on cuda")

    def of(kind: str) -> Side:
        device = DeviceInfo(index=0, kind=kind, name="", memory_bytes=0)
        return replace(on_device, run=on_device.run.model_copy(update={"devices": [device]}))

    assert (diff(of("cuda"), of("xpu")).withheld or "").startswith("A ran on cuda, B on xpu")
    assert diff(of("cuda"), of("cuda")).withheld is None


def test_a_run_that_lost_its_device_is_not_compared(build: Any, make: Make) -> None:
    rows = [build.mark(0, 0), build.op("mm", 0, 500), build.op("add", 500, 800), build.mark(1, 1000)]
    lost = side(Trace.from_rows([*rows, build.launch(1, 10, 20)]), build.run([1000] * 5))
    found = diff(make(FIRST), lost)
    assert (found.withheld or "").startswith("the trace of B does not say where its step goes")


# --- the gate


@pytest.mark.parametrize(("ns", "limit", "fails"), [(1059, 0.05, False), (1061, 0.05, True), (900, 0.0, False)])
def test_slower_by_more_than_the_limit_and_the_noise(make: Make, ns: int, limit: float, fails: bool) -> None:
    """A takes 1000 ns, the noise of the difference is 10."""
    found = diff(make(FIRST, noise=Noise("within-run", 0.01)), make(FIRST, unprofiled=ns))
    assert found.floor_ns == pytest.approx(10)
    assert regressed(found, limit) is fails


def test_one_evaluation_more_is_no_regression(build: Any) -> None:
    """Two runs of a program that evaluates now and then, which is most of its mean step."""

    def run_of(evaluations: int) -> Side:
        durations = [60_000 if step in (17, 67, 117)[:evaluations] else 1000 + step % 3 for step in range(125)]
        rows = [build.mark(0, 0), build.op("mm", 0, 1000), build.mark(1, 1000)]
        return side(Trace.from_rows(rows), build.run(durations))

    found = diff(run_of(2), run_of(3))
    assert found.steps_ns[1] > 1.2 * found.steps_ns[0]
    assert not regressed(found, 0.05)


def test_unknown_noise_does_not_excuse_a_slower_step(make: Make) -> None:
    found = diff(make(FIRST), make(FIRST, unprofiled=1060, noise=None))
    assert found.floor_ns is None
    assert regressed(found, 0.05)


# --- any runs


def some_ops() -> st.SearchStrategy[list[Op]]:
    names = ["mm", "add", "mm [[1]]", "mm [[2]]", "mm [[3]]", "mm [[4]]", "qr [[1]]", "qr [[2]]"]
    return st.lists(st.tuples(st.sampled_from(names), st.integers(1, 500)), max_size=6)


def turned(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of diff(b, a) as those of diff(a, b)."""
    words = {"slower": "faster", "faster": "slower", "new": "gone", "gone": "new", "no change": "no change"}
    swapped = rows.rename(columns={"a_ns": "b_ns", "b_ns": "a_ns", "calls_a": "calls_b", "calls_b": "calls_a"})
    return swapped.assign(
        shapes=[" -> ".join(reversed(shapes.split(" -> "))) for shapes in rows["shapes"]],
        delta_ns=-rows["delta_ns"],
        change=rows["change"].map(words),
    )


@settings(max_examples=50)
@given(
    first=some_ops(),
    second=some_ops(),
    shared=st.sampled_from([0, 9000]),  # ns in one op; with the larger, the runs are comparable whatever else they do
    rest=st.tuples(st.integers(1, 300), st.integers(1, 300)),
)
@example(first=[("mm [[1]]", 5), ("mm [[2]]", 5)], second=[("mm [[4]]", 7), ("mm [[3]]", 7)], shared=9000, rest=(1, 1))
def test_differences_sum_to_that_of_the_steps_and_turn_with_the_runs(
    make: Make, first: list[Op], second: list[Op], shared: int, rest: tuple[int, int]
) -> None:
    common: list[Op] = [("conv", shared)] if shared else []
    a, b = make(common + first, rest[0]), make(common + second, rest[1])
    there, back = diff(a, b), diff(b, a)
    assert there.comparability == back.comparability
    assert (there.withheld is None) == (back.withheld is None)
    assert there.withheld is None or not shared
    if there.withheld is None:
        assert there.rows["delta_ns"].sum() == pytest.approx(there.b_ns - there.a_ns)
        same = ["key", "shapes", "phase", "matched", "a_ns", "b_ns", "calls_a", "calls_b", "delta_ns", "change"]
        pd.testing.assert_frame_equal(there.rows[same], turned(back.rows)[same])
        left = there.rows[(there.rows["matched"] == "") & (there.rows["shapes"] != "")]
        assert not left.groupby("key")["change"].nunique().gt(1).any()  # not some new and some gone
    alone = diff(a, a)
    assert alone.withheld is None or not (common + first)
    assert set(alone.rows["change"]) <= {"no change"}
    assert set(alone.rows["matched"]) <= {"shape"}


# --- recorded traces


def own(build: Any, name: str) -> Side:
    times = json.loads((DATA / "own_h200.json").read_text())[name]
    run: RunInfo = build.run(
        [round(1e6 * ms) for ms in times["unprofiled_step_ms_before"] + times["unprofiled_step_ms_after"]]
    )
    return side(read(DATA / f"{name}.json.gz"), run)


def test_h200_a_slow_loader_is_data_loading(build: Any) -> None:
    """The same model with a slow DataLoader and without one: 9 ms and 29 ms a step."""
    found = diff(own(build, "own_h200_adamw_fused"), own(build, "own_h200_loader_bound"))
    assert found.withheld is None
    assert found.comparability is not None
    assert found.comparability > 0.95
    first = found.rows.iloc[0]
    assert (first["key"], first["change"], first["a_ns"], first["calls_b"]) == ("gap:data", "new", 0, 1)
    assert first["delta_ns"] / (found.b_ns - found.a_ns) > 0.7
    assert found.rows["delta_ns"].sum() == pytest.approx(found.b_ns - found.a_ns)
    ops = found.rows[found.rows["kind"] == "op"]
    assert set(ops["change"]) == {"no change"}  # the device does the same work
    assert regressed(found, 0.05)
    assert not regressed(diff(own(build, "own_h200_loader_bound"), own(build, "own_h200_adamw_fused")), 0.05)


def test_h200_a_graph_is_not_compared_with_its_ops_one_by_one(build: Any) -> None:
    found = diff(own(build, "own_h200_mlp_eager"), own(build, "own_h200_mlp_cudagraph"))
    assert found.comparability == pytest.approx(0, abs=0.01)
    assert (found.withheld or "").endswith("B replays graphs, whose kernels have no ops")
    assert found.steps_ns == pytest.approx((1.11e6, 0.343e6), rel=0.01)


@pytest.mark.parametrize("name", sorted(json.loads((DATA / "own_h200.json").read_text())))
def test_h200_a_run_has_no_change_to_itself(build: Any, name: str) -> None:
    """Replays of a graph too: their kernels are told apart by name."""
    one = own(build, name)
    found = diff(one, one)
    assert found.withheld is None
    assert found.comparability == 1
    assert set(found.rows["change"]) == {"no change"}
    assert not regressed(found, 0.0)
    if name == "own_h200_mlp_cudagraph":
        assert found.rows.query("key == 'cudaGraphLaunch'")["kernel"].str.len().min() > 0


def test_nsys_windows_cut_by_time_are_not_compared(build: Any) -> None:
    """Both hold 300 ms, in which 17 and 15 steps began: no op is called equally often."""
    names = ("nsys_h100x2_mfu_before.sqlite", "nsys_h100x2_mfu_after.sqlite")
    if not all((PUBLIC / name).is_file() for name in names):
        pytest.skip(f"no {names[0]} in {PUBLIC} (QRPROF_TRACES)")
    first, second = (next(source.trace for _, source in ranked(read_all([PUBLIC / name]))) for name in names)
    run = build.run().model_copy(update={"step_source": "imported, whole trace"})
    found = diff(side(first, run), side(second, run))
    assert found.comparability is not None
    assert found.comparability < 0.05
    assert (found.withheld or "").endswith("A and B have no steps: their calls depend on where the recording was cut")
    assert diff(side(first, run), side(first, run)).withheld is None
