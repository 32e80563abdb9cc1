"""Where the step goes without a device: the innermost op of the steps' thread."""

from typing import Any

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
QR = {"shapes": "[[64,64],[]]", "dtypes": "float,"}


def test_cpu_nested_ops(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.op("aten::linear", 10, 90),
        build.op("aten::addmm", 20, 50),
        build.op("aten::other", 0, 100, thread=2),
        build.mark(1, 100),
    ]
    parts = build.divide(rows, build.run())
    assert not parts.on_device
    assert (parts.recorded_ns, parts.busy_ns) == (100, 0)
    assert build.recorded(parts) == {
        ("aten::linear", "aten::linear"): 50,
        ("aten::addmm", "aten::addmm"): 30,
        ("gap:host", ""): 20,
    }
    assert build.calls(parts) == {"aten::linear": 1, "aten::addmm": 1}
    assert parts.rows["launches"].sum() == 0


def test_cpu_an_overload_within_another_of_its_op_is_one_call(build: Any) -> None:
    """As of `x.var(0)`, or of a driver that calls its out= form."""
    rows = [
        build.mark(0, 0),
        build.op("aten::var", 10, 50),
        build.op("aten::var", 15, 45),
        build.op("aten::var", 50, 60),
        build.op("aten::linalg_qr", 60, 90, **QR),
        build.op("aten::linalg_qr", 65, 85, **QR),
        build.mark(1, 100),
    ]
    parts = build.divide(rows, build.run())
    assert build.calls(parts) == {"aten::var": 2, "aten::linalg_qr": 1}
    assert build.recorded(parts)["aten::var", "aten::var"] == 50


def test_cpu_the_time_around_such_a_call_is_that_calls(build: Any) -> None:
    """`x.sort()` is sort around sort.stable, which has one argument more."""
    inner = [(1, 40, "[[64],[],[],[]]"), (2, 35, "[[64],[],[],[],[]]")]
    rows = [build.op("aten::sort", 10 + at, 10 + end, shapes=shapes) for at, end, shapes in inner]
    around = build.op("aten::sort", 10, 60, shapes="[[64],[],[]]")
    parts = build.divide([build.mark(0, 0), around, *rows, build.mark(1, 100)], build.run())
    ops = parts.rows[parts.rows["kind"] == "op"]
    assert ops.groupby(["key", "shapes"], observed=True)["recorded_ns"].sum().to_dict() == {
        ("aten::sort", "[[64],[],[],[],[]]"): 50
    }
    assert parts.calls.groupby(["key", "shapes"], observed=True)["calls"].sum().to_dict() == {
        ("aten::sort", "[[64],[],[],[],[]]"): 1
    }


def test_cpu_linalg_driver_owns_what_it_calls(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note("Optimizer.step#SOAP.step", 5, 95),
        build.op("aten::linalg_qr", 10, 80, **QR),
        build.op("aten::copy_", 20, 40),
        build.mark(1, 90),
    ]
    assert build.recorded(build.divide(rows, build.run()), "key", "op", "phase") == {
        ("aten::linalg_qr", "aten::linalg_qr", "optimizer"): 70,
        ("gap:host", "Optimizer.step#SOAP.step", "optimizer"): 15,
        ("gap:host", "", "forward"): 5,
    }


def test_cpu_data_loading_holds_the_ops_inside_it(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note(LOADER, 10, 60),
        build.op("aten::stack", 20, 50),
        build.op("aten::mm", 60, 100),
        build.note(LOADER, 105, 125),
        build.mark(1, 125),
    ]
    parts = build.divide(rows, build.run())
    assert build.recorded(parts) == {("gap:data", LOADER): 70, ("aten::mm", "aten::mm"): 40, ("gap:host", ""): 15}
    assert build.calls(parts) == {"aten::mm": 1, "gap:data": 2}
