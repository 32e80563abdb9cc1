"""From recorded times to the unprofiled step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.calibrate import HIGHEST, Calibration, calibrate
from qrprof.profiler.cost import LOWEST
from qrprof.profiler.linalg import row_signature
from qrprof.profiler.unlike import UNLIKE

QR = {"shapes": "[[64,64],[]]", "dtypes": "float,"}


UNKNOWN = float("nan")


def of_pieces(
    build: Any,
    recorded: Sequence[float],
    step: int,
    weight: Sequence[float] = (),
    known: Sequence[float] = (),
    on_device: bool = True,
) -> Calibration:
    """Pieces, each in a step of weight 1 and without a known time if not said otherwise."""
    ns = np.array(recorded, dtype=np.float64)
    weights, kept = np.array(weight or [1.0] * len(ns)), np.array(known or [UNKNOWN] * len(ns))
    return calibrate(ns, weights, kept, build.run([step]), on_device)


# --- pieces


def test_each_piece_loses_the_same_cost(build: Any) -> None:
    """Of 1210 ns 201 must go: the piece of 10 gives no more than 7 of them, the others 97 each."""
    found = of_pieces(build, [1000, 10, 200], 1009)
    assert found.ns.tolist() == pytest.approx([903, 3, 103])
    assert found.factor == pytest.approx(1009 / 1210)


def test_long_pieces_hardly_shrink(build: Any) -> None:
    """3.5 of 10 ms must go, from a piece of 5 ms and a thousand of 5 us: 3.5 us from each."""
    found = of_pieces(build, [5e6, *[5e3] * 1000], 6_500_000)
    assert found.ns[0] == pytest.approx(5e6 - 3.5e6 / 1001)
    assert found.ns[1:].tolist() == pytest.approx([5e3 - 3.5e6 / 1001] * 1000)


def test_a_piece_loses_by_the_weight_of_its_step(build: Any) -> None:
    """400 and 100 ns in a step of weight 3/4, 200 in one of 1/4; a cost of 40 each takes 30, 30 and 10 of 425."""
    found = of_pieces(build, [300, 75, 50], 355, weight=[0.75, 0.75, 0.25])
    assert found.ns.tolist() == pytest.approx([270, 45, 40])


def test_known_times_are_kept(build: Any) -> None:
    """A piece of 500 took 90; of the 600 ns of the others 120 must go."""
    found = of_pieces(build, [400, 500, 200], 570, known=[UNKNOWN, 90, UNKNOWN], on_device=False)
    assert found.ns.tolist() == pytest.approx([340, 90, 140])
    assert found.factor == pytest.approx(480 / 600)


def test_all_pieces_can_shrink_to_their_lowest(build: Any) -> None:
    assert of_pieces(build, [700, 200, 100], 300).ns.tolist() == pytest.approx([210, 60, 30])


def test_pieces_grow_by_one_factor(build: Any) -> None:
    found = of_pieces(build, [700, 200, 100], 1080)
    assert found.ns.tolist() == pytest.approx([756, 216, 108])
    assert found.factor == pytest.approx(1.08)


@pytest.mark.parametrize(
    ("busy", "gauged", "expected"),
    [
        (900, 400, [900, 100]),
        (1000, 400, [1000, 0]),
        (1010, 400, [1000, 0]),  # busy all the time, give or take
        (1030, 400, None),
        (900, 100, None),  # the profiler did not cost that much
        (1010, 100, None),
    ],
)
def test_idle_time_goes_where_the_gauged_cost_explains_it(
    build: Any, busy: int, gauged: float, expected: list[float] | None
) -> None:
    """Of a recorded step of 1340 or less, an unprofiled one takes 1000."""
    recorded, weight, known = np.array([busy, 340.0]), np.ones(2), np.array([busy, UNKNOWN])
    found = calibrate(recorded, weight, known, build.run([1000]), True, lambda: gauged)
    assert (found.withheld is None) == (expected is not None)
    assert found.ns.tolist() == pytest.approx(expected or recorded.tolist())


PIECES = st.lists(
    st.tuples(st.integers(1, 10**9), st.floats(0.01, 1.0), st.none() | st.floats(0.0, 1e9)), min_size=1, max_size=30
)


@given(pieces=PIECES, scale=st.floats(LOWEST, HIGHEST), on_device=st.booleans())
def test_pieces_meet_the_step_and_keep_their_order(
    build: Any, pieces: list[tuple[int, float, float | None]], scale: float, on_device: bool
) -> None:
    raw, weight = np.array([float(piece[0]) for piece in pieces]), np.array([piece[1] for piece in pieces])
    recorded = raw * weight
    known = np.array([UNKNOWN if piece[2] is None else piece[2] for piece in pieces])
    if on_device:
        known = np.where(np.isnan(known), known, recorded)
    sought = np.isnan(known)
    step = round(scale * recorded[sought].sum() + known[~sought].sum())
    found = calibrate(recorded, weight, known, build.run([step] if step else []), on_device)
    if not step or found.withheld:
        assert found.ns.tolist() == recorded.tolist()
        return
    assert found.ns.sum() == pytest.approx(step)
    if found.ns.tolist() == pytest.approx((recorded * step / recorded.sum()).tolist()):
        return  # undisturbed
    assert found.ns[~sought].tolist() == known[~sought].tolist()
    ns, before = found.ns[sought], recorded[sought]
    assert (ns >= LOWEST * before * (1 - 1e-9)).all()
    assert (ns <= before * max(1.0, HIGHEST if found.factor is None else found.factor) * (1 + 1e-9)).all()
    longest_first = np.argsort(-raw[sought], kind="stable")
    left = (ns / weight[sought])[longest_first]
    assert (np.diff(left) <= 1e-9 * left[:-1]).all()


# --- partitions


def busy_step(build: Any, busy: int, idle: int) -> list[dict[str, Any]]:
    return [
        build.mark(0, 0),
        build.op("aten::mm", 0, idle),
        build.launch(1, 1, 2),
        build.mark(1, busy + idle),
        build.kernel("k", idle, idle + busy, 1),
    ]


def test_host_rows_are_scaled_to_the_unprofiled_step(build: Any) -> None:
    parts = build.divide(busy_step(build, 400, 600), build.run([690, 710]))
    assert parts.step_ns == 700
    assert parts.factor == pytest.approx(0.5)
    assert parts.withheld is None
    assert parts.rows.set_index("key")["ns"].to_dict() == pytest.approx({"aten::mm": 400, "gap:launch": 300})
    assert parts.rows["recorded_ns"].sum() == parts.recorded_ns == 1000


def test_a_run_that_was_never_timed_is_left_as_recorded(build: Any) -> None:
    parts = build.divide(busy_step(build, 400, 600), build.run())
    assert (parts.step_ns, parts.factor, parts.withheld) == (None, None, None)
    assert parts.rows["ns"].tolist() == parts.rows["recorded_ns"].tolist() == [600, 400]


@pytest.mark.parametrize("step", [982, 1000, 1018])
def test_a_step_recorded_within_two_percent_is_scaled_as_a_whole(build: Any, step: int) -> None:
    parts = build.divide(busy_step(build, 990, 10), build.run([step]))
    assert parts.factor == pytest.approx(step / 1000)
    assert parts.withheld is None
    assert parts.rows["ns"].tolist() == pytest.approx([0.99 * step, 0.01 * step])


@pytest.mark.parametrize(
    ("busy", "idle", "step", "reason"),
    [
        (1100, 100, 1000, "device work alone takes 1.10 us of a recorded step, more than the whole unprofiled step of"),
        (900, 600, 1000, "would be scaled by 0.17, outside 0.3 to 1.1"),
        (500, 400, 1000, "would be scaled by 1.25, outside 0.3 to 1.1"),
    ],
)
def test_what_does_not_fit_the_unprofiled_step_is_withheld(
    build: Any, busy: int, idle: int, step: int, reason: str
) -> None:
    parts = build.divide(busy_step(build, busy, idle), build.run([step]))
    assert reason in (parts.withheld or "")
    assert (parts.withheld or "").endswith(f": {UNLIKE}")
    assert parts.factor is None
    assert parts.rows["ns"].tolist() == parts.rows["recorded_ns"].tolist()


def cpu_linalg(build: Any) -> list[dict[str, Any]]:
    return [
        build.mark(0, 0),
        build.op("aten::linalg_qr", 0, 300, **QR),
        build.note("Optimizer.step#SOAP.step", 300, 400),
        build.op("aten::linalg_qr", 300, 400, **QR),
        build.op("aten::linalg_inv", 400, 500, shapes="[[8,8]]", dtypes="float"),
        build.op("aten::mm", 500, 900),
        build.mark(1, 1000),
    ]


def test_cpu_linalg_takes_the_time_measured_without_the_profiler(build: Any) -> None:
    linalg = [
        build.linalg("aten::linalg_qr", (64, 64), "a.py:1", ns=150.0),
        build.linalg("aten::linalg_qr", (64, 64), "a.py:2", ns=50.0),
        build.linalg("aten::linalg_qr", (5, 5), "a.py:2", ns=7.0),  # not in the trace: no row
    ]
    parts = build.divide(cpu_linalg(build), build.run([500], linalg=linalg))
    ns = parts.rows.groupby(["key", "phase"])["ns"].sum().to_dict()
    assert ns == {
        ("aten::linalg_qr", "forward"): pytest.approx(150),
        ("aten::linalg_qr", "optimizer"): pytest.approx(50),
        # 300 of the other 600 must go: 70 of each piece of 100, which leaves 160 for the one of 400
        ("aten::linalg_inv", "forward"): pytest.approx(30),
        ("aten::mm", "forward"): pytest.approx(240),
        ("gap:host", "forward"): pytest.approx(30),
    }
    assert parts.factor == pytest.approx(0.5)
    assert parts.rows["ns"].sum() == pytest.approx(parts.step_ns)


def test_cpu_withheld_by_the_factor_unless_the_step_is_undisturbed(build: Any) -> None:
    linalg = [build.linalg("aten::linalg_qr", (64, 64), ns=900.0)]
    parts = build.divide(cpu_linalg(build), build.run([950], linalg=linalg))
    assert "scaled by 0.08" in (parts.withheld or "")
    parts = build.divide(cpu_linalg(build), build.run([990], linalg=linalg))
    assert parts.factor == pytest.approx(0.99)
    assert parts.rows["ns"].sum() == pytest.approx(990)


@pytest.mark.parametrize("shapes", ["", "[]", "[5]", "[[[2,2]]]"])
def test_a_row_without_the_shape_of_its_first_input_has_no_signature(shapes: str) -> None:
    assert row_signature("aten::linalg_qr", shapes, "float") is None
