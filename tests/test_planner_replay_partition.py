"""On one thread of a CPU the replay and the partition are the same sum: each row gains what it takes."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.replay.levers import find_levers
from qrprof.planner.replay.model import model_of
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

SMALL_RUN = Path(__file__).parent / "data" / "small_run"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
QR = {"shapes": "[[64,64],[]]", "dtypes": "float,"}


def agree(trace: Trace, run: RunInfo) -> bool:
    """Whether both are calibrated; they must then agree within 0.1 % of the step."""
    facts = find_facts(trace, run)
    parts, model = divide(facts, run), model_of(facts, run)
    assert (parts.withheld is None) == (model.withheld is None)
    if parts.withheld or parts.step_ns is None:
        return False
    assert model.base_ns == pytest.approx(parts.step_ns, rel=1e-6)
    levers = find_levers(model)
    for key, ns in parts.rows.groupby("key")["ns"].sum().items():
        assert levers.gain(str(key), 0) == pytest.approx(ns, abs=1e-3 * parts.step_ns)
    return True


def test_what_a_data_loader_calls_is_data_loading(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note(LOADER, 100, 500),
        build.op("aten::stack", 200, 400),
        build.op("aten::stack", 600, 700),
        build.mark(1, 1000),
    ]
    run = build.run([1000] * 8)
    assert agree(Trace.from_rows(rows), run)


def test_a_saved_run(tmp_path: Path) -> None:
    run, trace = load_run(Path(shutil.copytree(SMALL_RUN, tmp_path / "run")), 0)
    assert agree(trace, run)
    assert agree(trace, run.model_copy(update={"linalg": []}))


def steps(build: Any) -> Trace:
    """Two steps, of 100 and of 140 us, that begin and end inside ops; between them pieces of 1 to 40 us."""
    rows = [
        build.mark(0, 10),
        build.op("aten::add", 0, 12),
        build.note(LOADER, 14, 30),
        build.op("aten::linear", 32, 80),
        build.op("aten::addmm", 40, 60),
        build.op("aten::linalg_qr", 82, 105, **QR),
        build.op("aten::copy_", 84, 90),
        build.mark(1, 110),
        build.op("aten::add", 108, 150),
        build.note("Optimizer.step#SOAP.step", 152, 220),
        build.op("aten::linalg_qr", 160, 200, **QR),
        build.op("aten::mul", 205, 206),
        build.mark(2, 250),
        build.op("aten::add", 245, 260),
    ]
    return Trace.from_rows([row | {"start": 1000 * row["start"], "end": 1000 * row["end"]} for row in rows])


@pytest.mark.parametrize("qr_us", [None, 20, 60])
@pytest.mark.parametrize("step_us", [50, 80, 100, 112, 115, 118, 121, 126])
def test_steps_of_different_weights(build: Any, step_us: int, qr_us: int | None) -> None:
    """Recorded a mean step takes 112 us, or near it: it may shrink, stay undisturbed, or grow."""
    linalg = [] if qr_us is None else [build.linalg("aten::linalg_qr", (64, 64), ns=1000.0 * qr_us)]
    agree(steps(build), build.run([1000 * step_us], weights={0: 0.7, 1: 0.3}, linalg=linalg))


def test_which_steps_are_calibrated(build: Any) -> None:
    """Not where all that is no linalg would have to shrink below 0.3 of its time, or grow by more than a tenth."""
    weights = {0: 0.7, 1: 0.3}
    fits = [agree(steps(build), build.run([1000 * us], weights=weights)) for us in (30, 50, 100, 112, 120, 130)]
    assert fits == [False, True, True, True, True, False]


OPS = st.lists(st.tuples(st.sampled_from(["aten::mm", "aten::linalg_qr", "mine", LOADER]), st.integers(1, 400)))


@given(
    ops=OPS, pauses=st.lists(st.integers(0, 300), min_size=30, max_size=30), scale=st.floats(0.2, 1.2), qr=st.booleans()
)
def test_any_ops_in_a_row(build: Any, ops: list[tuple[str, int]], pauses: list[int], scale: float, qr: bool) -> None:
    rows, now = [build.mark(0, 0)], 10
    for (name, ns), pause in zip(ops, pauses, strict=False):
        shapes = QR if name == "aten::linalg_qr" else {}
        rows.append(build.op(name, now, now + ns, **shapes) if "::" in name else build.note(name, now, now + ns))
        now += ns + pause
    linalg = [build.linalg("aten::linalg_qr", (64, 64), ns=100.0)] if qr else []
    agree(Trace.from_rows([*rows, build.mark(1, now)]), build.run([round(scale * now) + 1], linalg=linalg))
