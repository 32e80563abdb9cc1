"""Tasks of aten's ops: which can be judged, what a recorded call becomes, and the stock op behind both."""

import json
import runpy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from gate_tasks import GENERIC, SOFTMAX, a_step, traced
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.aten_task import call, judged, reference, signature, stock_source
from qrprof.planner.gate.check import stock
from qrprof.planner.gate.draw import draw, load_sample
from qrprof.planner.gate.inputs import Inputs, inputs_of, recorded_inputs
from qrprof.planner.gate.qr_task import SETS, built_in
from qrprof.planner.gate.recorded import Unfit, fits, made
from qrprof.planner.gate.records import ArgSpec, Task
from qrprof.planner.gate.task import from_run
from qrprof.planner.gate.task_store import keep, load_task
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.calls import Tally, install

# --- which ops


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("aten::softmax", "aten::softmax.int: it is composed of other ops"),
        ("softmax.int", "`--op aten::_softmax`"),
        ("layer_norm", "`--op aten::native_layer_norm`"),
        ("linear", "`--op aten::addmm`"),
        ("matmul", "`--op aten::bmm`"),
        ("dropout", "draws random numbers"),
        ("relu_", "works in place"),
        ("view", "returns a view"),
        ("native_batch_norm", "writes to its running statistics"),
        ("cat", "takes a list of tensors (tensors)"),
        ("_linalg_eigh", "unique up to signs only"),
        ("clone", "has no kernel of its own"),
        ("nosuch", "has no op aten::nosuch"),
    ],
)
def test_an_op_that_cannot_be_judged_is_refused_by_name(op: str, said: str) -> None:
    with pytest.raises(QrprofError, match="no task for aten::") as error:
        judged(op)
    assert said in str(error.value)
    assert error.value.exit_code == Exit.USAGE


def test_leaf_ops_are_judged_by_the_overloads_that_have_a_kernel() -> None:
    assert judged("aten::_softmax") == ("_softmax",)
    assert judged("native_layer_norm.default") == ("native_layer_norm",)
    assert judged("sum") == ("sum.dim_IntList",)
    assert judged("linalg_qr") == ("linalg_qr",)


# --- the stock op


def candidate(source: str, folder: Path) -> FunctionType:
    (folder / "stock.py").write_text(source)
    found: FunctionType = runpy.run_path(str(folder / "stock.py"))["candidate"]
    return found


@pytest.mark.parametrize("task", [*GENERIC, built_in("small", "linalg_qr", "cpu")], ids=lambda task: task.op)
def test_the_stock_source_is_a_candidate_that_gives_the_stock_ops_bits(task: Task, tmp_path: Path) -> None:
    args = draw(task.development[0], 3, "cpu")
    outputs = candidate(stock_source(task.op), tmp_path)(*args)
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    assert all(torch.equal(a, b) for a, b in zip(outputs, stock(task, args), strict=True))
    assert len(signature(task.op)) == len(args)


def test_a_dtype_crosses_by_its_name(tmp_path: Path) -> None:
    x = torch.ones(3, 2)
    (found,) = call("sum.dim_IntList", (x, (0,), False, "float64"))
    assert found.dtype == torch.float64
    stock_sum = candidate(stock_source("sum.dim_IntList"), tmp_path)
    assert [stock_sum(x, [0], False, dtype).dtype for dtype in ("float64", None)] == [torch.float64, torch.float32]


def test_the_reference_is_in_float64() -> None:
    x = torch.full((1, 3), 1.0 / 3)
    (found,) = reference("_softmax", (x, 1, True))  # in float64 there is no half to widen
    assert found.dtype == torch.float64
    assert torch.equal(found, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_an_output_that_is_left_out_is_an_error() -> None:
    x = torch.ones(2, 3)
    mean, rstd = torch.zeros(2, 1), torch.ones(2, 1)
    with pytest.raises(TypeError, match="leaves out an output"):
        call("native_layer_norm_backward", (x, x, (3,), mean, rstd, None, None, (True, False, False)))


# --- a recorded call


def inputs(shapes: str, dtypes: str, values: tuple[str, ...], strides: str = "") -> Inputs:
    return Inputs(shapes, dtypes, strides or json.dumps([[]] * len(values)), values)


def test_a_call_becomes_a_case_with_its_strides_and_values_in_the_ops_order(tmp_path: Path) -> None:
    x, w = torch.ones(8, 16), torch.ones(16)
    traced(tmp_path / "t.json", lambda: torch.nn.functional.layer_norm(x.T.contiguous().T, (16,), w))
    (found,) = recorded_inputs(tmp_path / "t.json", "aten::native_layer_norm")
    case = made("native_layer_norm", found).case
    assert case.tensors == (ArgSpec((8, 16), "float32", (1, 8)), ArgSpec((16,), "float32"))
    assert (case.plain, case.layout) == (((16,), None, 1e-5), "tptpp")
    a, b, c, d, e = case.args(["x", "w"])
    assert (a, b, c, d) == ("x", (16,), "w", None)
    assert e == pytest.approx(1e-5)


def test_an_overload_that_calls_its_op_by_another_one_is_not_a_call_of_its_own(tmp_path: Path) -> None:
    """`x.var(0)` is var.dim around var.correction, and the trace names both aten::var."""
    x = torch.ones(8, 16)
    traced(tmp_path / "t.json", lambda: (x.var(0), x.sum(1), x.sort()))
    (found, count), *others = recorded_inputs(tmp_path / "t.json", "aten::var").items()
    assert others == []
    assert count == sum(recorded_inputs(tmp_path / "t.json", "aten::sum").values())
    assert made("var.correction", found).case.plain == ((0,), 1, False)
    assert recorded_inputs(tmp_path / "t.json", "aten::sort").total() == count


def test_a_linalg_drivers_call_is_the_outermost_one_as_its_time_is(tmp_path: Path) -> None:
    """The recorder reaches the stock op through its out= overload; the trace names both aten::linalg_qr."""
    x = torch.ones(3, 64, 64)
    undo = install(Tally())
    try:
        traced(tmp_path / "t.json", lambda: (torch.linalg.qr(x), x.sum(1)))
    finally:
        undo()
    (found, count), *others = recorded_inputs(tmp_path / "t.json", "aten::linalg_qr").items()
    assert others == []
    assert count == sum(recorded_inputs(tmp_path / "t.json", "aten::sum").values())
    assert made("linalg_qr", found).case.tensors == (ArgSpec((3, 64, 64), "float32"),)


def test_values_are_read_as_the_schema_has_them() -> None:
    one = inputs("[[8,8],[8,16],[16,8],[],[]]", "float,float,float,Scalar,Scalar", ("", "", "", "0.5", "2"))
    assert made("addmm", one).case.plain == (0.5, 2)
    one = inputs("[[4,4],[],[],[]]", "c10::BFloat16,ScalarList,Scalar,Scalar", ("", "[0, 1]", "False", "6"))
    assert made("sum.dim_IntList", one).case.plain == ((0, 1), False, "float32")
    one = inputs("[[8,16],[]]", "float,", ("", ""), "[[1,8],[]]")
    found = made("gelu", one)
    assert found.case.plain == ("none",)
    assert found.case.tensors[0].stride == (1, 8)
    assert found.assumed == ("approximate='none'",)


def test_places_are_bounded_by_what_they_are_places_in() -> None:
    one = inputs("[[9,16],[],[5]]", "float,Scalar,long int", ("", "0", ""))
    assert made("index_select", one).case.tensors[1] == ArgSpec((5,), "int64", None, 9)


@pytest.mark.parametrize(
    ("op", "one", "why"),
    [
        ("exp", inputs("[[4]]", "c10::complex<float>", ("",)), "no known type|complex"),
        ("exp", inputs("[[4,4]]", "float", ("",), "[[1,1]]"), "overlap in memory"),
        ("take", inputs("[[4],[2]]", "float,long int", ("", "")), "bounds are not known"),
    ],
)
def test_a_call_that_cannot_be_drawn_says_why(op: str, one: Inputs, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        made(op, one)


USUAL = {  # what calls of these ops have for arguments, mostly
    "exp": ["float"],
    "addmm": ["float", "float", "c10::Half", "Scalar", "Scalar"],
    "_softmax": ["float", "Scalar", "Scalar"],
    "index_select": ["float", "Scalar", "long int"],
    "sum.dim_IntList": ["double", "ScalarList", "Scalar", "Scalar"],
    "gelu": ["float", ""],
}
KINDS = st.sampled_from(["float", "bool", "Scalar", "ScalarList", "TensorList", "", "c10::Odd"])
SIZES = st.lists(st.one_of(st.integers(0, 5), st.integers(-1, 5), st.lists(st.integers(0, 3))), max_size=3)
TEXTS = st.sampled_from(["", "0", "-1", "7", "1.5", "True", "False", "[]", "[0, 1]", "[x]", "inf", "[1.5", "15"])


def arguments(op: str) -> st.SearchStrategy[tuple[str, list[tuple[Any, ...]]]]:
    each = [st.tuples(st.one_of(st.just(kind), st.just(kind), KINDS), SIZES, SIZES, TEXTS) for kind in USUAL[op]]
    return st.tuples(st.just(op), st.tuples(*each).map(list))


@given(call=st.sampled_from(sorted(USUAL)).flatmap(arguments))
def test_a_call_of_any_kind_becomes_a_case_or_says_why_not(call: tuple[str, list[tuple[Any, ...]]]) -> None:
    op, arguments = call
    types, dims, strides, values = zip(*arguments, strict=True)
    args = {"Input Dims": [*dims], "Input type": [*types], "Input Strides": [*strides], "Concrete Inputs": [*values]}
    one = inputs_of({"args": args})
    assert one is not None
    if not fits(op, one):
        return
    with suppress(Unfit):
        case = made(op, one).case
        assert len(case.args([None] * len(case.tensors))) == len(one.types)


@pytest.mark.parametrize("left_out", ["Input Dims", "Input type", "Concrete Inputs"])
def test_a_call_without_its_inputs_is_none(left_out: str) -> None:
    args = {"Input Dims": [[2]], "Input type": ["float"], "Concrete Inputs": [""]}
    assert inputs_of({"args": args}) == Inputs("[[2]]", "float", "[[]]", ("",))
    assert inputs_of({"args": {key: value for key, value in args.items() if key != left_out}}) is None
    assert inputs_of({"args": args | {left_out: []}}) is None
    assert inputs_of({}) is None


def test_overloads_are_told_apart_by_their_arguments() -> None:
    scalar = inputs("[[4],[],[]]", "float,Scalar,Scalar", ("", "2", "1"))
    tensor = inputs("[[4],[4],[]]", "float,float,Scalar", ("", "", "1"))
    assert (fits("add.Tensor", tensor), fits("add.Tensor", scalar)) == (True, False)
    assert not fits("exp", tensor)


# --- of a run

Saved = Callable[[str, list[dict[str, Any]]], Any]


@pytest.fixture
def run(saved: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a saved run with a real trace of two steps; a cache with nothing in it."""
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    found = saved("task", [])
    traced(found.folder / "rank0.trace.json", a_step)
    folder: Path = found.folder
    return folder


def test_the_cases_of_a_run_are_its_calls_weighted_with_their_time(run: Path) -> None:
    task = from_run(run, "aten::_softmax")
    assert (task.op, task.device, task.checker, task.origin) == ("_softmax", "cpu", "relative", run.name)
    assert task.arguments == ("self", "dim", "half_to_float")
    found = {(case.tensors[0].shape, case.plain[0]): case.weight for case in task.development}
    assert found.keys() == {((8, 16), -1), ((16, 8), 0)}
    assert sum(found.values()) == pytest.approx(1)
    assert [case.weight for case in task.development] == sorted(found.values(), reverse=True)
    assert task.step_ns is not None
    assert task.step_ns > 0


@pytest.mark.parametrize("op", ["native_layer_norm", "mm", "addmm", "gelu", "sum", "linalg_qr"])
def test_a_task_of_each_kind_of_op_can_be_drawn_and_answered(run: Path, op: str) -> None:
    task = from_run(run, op)
    assert task.checker == ("qr" if op == "linalg_qr" else "relative")
    for case in task.development:
        assert stock(task, draw(case, 1, "cpu"))


def test_what_a_trace_does_not_hold_is_assumed_and_said(run: Path) -> None:
    assert from_run(run, "gelu").notes == ("assumed: approximate='none'; traces do not hold texts",)


def test_an_op_that_the_run_does_not_call_is_refused_with_near_names(run: Path) -> None:
    with pytest.raises(QrprofError, match=r"has no aten::_log_softmax in its steps; nearest: .*aten::_softmax"):
        from_run(run, "_log_softmax")


def test_captured_matrices_are_parted_between_development_and_holdout(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "samples"
    folder.mkdir(parents=True)
    kept = {f"aten::linalg_qr [3, 6, 4] train.py:3 #{n}": torch.full((3, 6, 4), float(n + 1)) for n in range(2)}
    torch.save(kept | {"aten::linalg_qr [9, 9] train.py:3 #0": torch.ones(9, 9)}, folder / f"{run.name}.rank0.pt")
    (case,) = from_run(run, "linalg_qr").development
    assert (len(case.samples), len(case.held)) == (1, 1)
    assert set(case.samples).isdisjoint(case.held)
    (a, _) = draw(case, 7, "cpu")
    assert isinstance(a, torch.Tensor)
    assert torch.equal(a.abs(), load_sample(case.samples[0]))  # its signs are drawn anew
    assert not torch.equal(a, draw(case, 8, "cpu")[0])  # type: ignore[arg-type]
    (folder / f"{run.name}.rank0.pt").unlink()
    with pytest.raises(QrprofError, match=r"not in .* any more"):
        draw(case, 7, "cpu")


# --- kept


def test_a_task_is_read_as_it_was_written_and_named_by_all_it_asks(tmp_path: Path) -> None:
    odd = replace(
        SOFTMAX.development[0],
        plain=(1, False, float("inf"), (1, 2), (1.0,), (True,), None, "none"),
        layout="tpppppppp",
    )
    first = keep(tmp_path, replace(SOFTMAX, development=(odd,)))
    assert keep(tmp_path, replace(SOFTMAX, development=(odd,))) == first
    assert repr(load_task(tmp_path, first.id)) == repr(first)  # (1.0,) == (1,) == (True,)
    other = keep(tmp_path, replace(SOFTMAX, development=(replace(odd, weight=0.5),)))
    assert other.id != first.id
    with pytest.raises(QrprofError, match="'test' is ambiguous"):
        load_task(tmp_path, "test")
    with pytest.raises(QrprofError, match="'nosuch' is unknown"):
        load_task(tmp_path, "nosuch")


def test_a_file_that_is_no_task_says_so(tmp_path: Path) -> None:
    path = tmp_path / ".qrprof" / "tasks" / keep(tmp_path, SOFTMAX).id / "task.json"
    path.write_text(path.read_text().replace('"schema_number": 1', '"schema_number": 9'))
    with pytest.raises(QrprofError, match="has schema 9, this qrprof reads 1"):
        load_task(tmp_path, "test")
    path.write_text("{}")
    with pytest.raises(QrprofError, match="is no task"):
        load_task(tmp_path, "test")


def test_the_built_in_sets_hold_the_contests_lanes() -> None:
    assert {len(SETS["contest-512"]), len(SETS["contest-1024"])} == {4, 3}
    task = built_in("contest-512", "geqrf", "cuda")
    assert {case.tensors[0].shape for case in task.development} == {(640, 512, 512)}
    assert sum(case.weight for case in task.development) == pytest.approx(1)
    for name, op, said in (("nosuch", "geqrf", "no set 'nosuch'"), ("small", "ormqr", "no QR op 'ormqr'")):
        with pytest.raises(QrprofError, match=said):
            built_in(name, op, "cpu")
