"""From recorded times to the unprofiled step."""

from typing import Any

import pytest

from qrprof.profiler.linalg import row_signature

QR = {"shapes": "[[64,64],[]]", "dtypes": "float,"}


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
        ("aten::linalg_inv", "forward"): pytest.approx(50),
        ("aten::mm", "forward"): pytest.approx(200),
        ("gap:host", "forward"): pytest.approx(50),
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
