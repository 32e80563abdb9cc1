"""`qrprof task`: what it makes of a run, lists and shows."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Workshop
from gate_tasks import MARKS

from qrprof.profiler.events import MARK_PREFIX
from qrprof.tui.cli import run as qrprof

Call = tuple[int, str, str]
PAGE = """\
softmax-20260131-120000-train-{hash}
op        aten::_softmax on cpu
from      20260131-120000-train, where these calls take 60.0 us of a mean step
candidate def candidate(self, dim, half_to_float), in a file of its own
returns   what the op returns for the same arguments, in its dtypes, shapes and
          strides
checks    error against float64, no more than 4 times the stock kernel's own, or
          32 units of rounding (2 for results of 16 bits)
holdout   any smaller first size, down to 1; any strides; values uniform, wide,
          offset, sparse, constant, one_bad; scaled by 0.01, 100

weight case                inputs
50.0 % 64x8 dim=-1         float32[64,8], -1, False
33.3 % 8x16 dim=1          float32[8,16], 1, False
16.7 % 8x16 dim=0 strided  float32[8,16] strides [1,8], 0, False
"""


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Call]:
    """Call `qrprof task` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def of(*args: str) -> Call:
        capsys.readouterr()
        code = qrprof(["task", *args])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return of


def op(
    name: str, at: float, us: float, dims: list[list[int]], types: str, values: str, strides: list[list[int]]
) -> Any:
    """One event of the trace; `types` and `values` are separated by blanks, "_" being an empty one."""
    lists = {key: [x if x != "_" else "" for x in text.split()] for key, text in (("t", types), ("v", values))}
    inputs = {"Input Dims": dims, "Input type": lists["t"], "Concrete Inputs": lists["v"], "Input Strides": strides}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": inputs}


def softmax(at: float, us: float, shape: list[int], dim: int, strides: list[int]) -> Any:
    return op("aten::_softmax", at, us, [shape, [], []], "float Scalar Scalar", f"_ {dim} False", [strides, [], []])


def events() -> list[Any]:
    """Two steps of 400 us, each with two kinds of softmax of one shape, 20 us and 10 us, and one of another, 30 us."""
    marks = [
        {"ph": "X", "cat": "user_annotation", "name": f"{MARK_PREFIX}{n}", "pid": 1, "tid": 1, "ts": at, "dur": 1}
        for n, at in zip(MARKS, (0, 400, 800), strict=True)
    ]
    calls = [
        one
        for start in (10, 410)
        for one in (
            softmax(start, 10, [8, 16], 1, [16, 1]),
            softmax(start + 20, 10, [8, 16], 1, [16, 1]),
            softmax(start + 40, 10, [8, 16], 0, [1, 8]),
            softmax(start + 60, 30, [64, 8], -1, [8, 1]),
            op("aten::linear", start + 100, 50, [[8, 8], [8, 8]], "float float", "_ _", [[8, 1], [8, 1]]),
        )
    ]
    return [*marks, *calls]


@pytest.fixture
def traced(saved: Callable[..., Any], call: Callable[..., Call]) -> Callable[..., Call]:
    saved("task", events()).change(unprofiled=[])
    return call


def made(call: Callable[..., Call], *args: str) -> str:
    code, _, err = call("new", *args)
    assert code == 0
    return err.strip().removeprefix("qrprof: kept as ")


def test_a_runs_calls_are_weighted_by_calls_times_time(traced: Callable[..., Call]) -> None:
    code, out, err = traced("new", "--from", "20260131", "--op", "aten::_softmax")
    name = err.strip().removeprefix("qrprof: kept as ")
    assert (code, out.split()) == (0, PAGE.format(hash=name[-6:]).split())
    assert traced("show", "softmax") == (0, out, "")


def test_the_record_is_the_task_as_it_is_kept(traced: Callable[..., Call], tmp_path: Path) -> None:
    name = made(traced, "--from", "20260131", "--op", "_softmax")
    code, out, err = traced("show", name, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["schema"] == 1
    assert shown["task"] == json.loads((tmp_path / ".qrprof" / "tasks" / name / "task.json").read_text())
    assert [round(case["weight"], 3) for case in shown["task"]["development"]] == [0.5, 0.333, 0.167]


def test_a_composite_is_refused_with_the_op_to_take(traced: Callable[..., Call], tmp_path: Path) -> None:
    code, out, err = traced("new", "--from", "20260131", "--op", "aten::linear")
    assert (code, out) == (2, "")
    assert err.startswith("qrprof: no task for aten::linear: it is composed of other ops")
    assert err.strip().endswith("`--op aten::addmm`")
    assert not (tmp_path / ".qrprof" / "tasks").exists()


def test_a_run_without_recorded_values_says_what_to_do(saved: Callable[..., Any], call: Callable[..., Call]) -> None:
    bare = [event | {"args": {}} if event["cat"] == "cpu_op" else event for event in events()]
    saved("task", bare).change(unprofiled=[])
    code, _, err = call("new", "--from", "20260131", "--op", "_softmax")
    assert code == 2
    assert "has no call of aten::_softmax with its shapes, strides and values" in err


def test_qr_sets_are_listed_and_shown(call: Callable[..., Call]) -> None:
    assert call("list")[:2] == (0, "")
    assert "no tasks in .qrprof" in call("list")[2]
    name = made(call, "--qr", "small", "--device", "cpu")
    assert name.startswith("geqrf-small-")
    assert made(call, "--qr", "small", "--device", "cpu") == name
    lane = made(call, "--qr", "contest-512", "--op", "linalg_qr", "--device", "cuda")
    code, out, err = call("list", "--json")
    assert (code, err) == (0, "")
    assert [task["id"] for task in json.loads(out)["tasks"]] == [name, lane]
    assert "strict LAPACK residuals in float64" in " ".join(call("show", "geqrf")[1].split())
    assert "25.0 % 640x512 mixed float32[640,512,512], reduced (mixed cond 2)" in " ".join(
        call("show", lane)[1].split()
    )


def test_a_broken_task_is_listed_with_its_reason(call: Callable[..., Call], tmp_path: Path) -> None:
    name = made(call, "--qr", "small", "--device", "cpu")
    (tmp_path / ".qrprof" / "tasks" / name / "task.json").write_text("{}")
    code, out, _ = call("list")
    assert code == 0
    assert "is no task" in " ".join(out.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("new",), "give --from RUN with --op, or --qr SET"),
        (("new", "--from", "x", "--qr", "small"), "give --from RUN with --op, or --qr SET"),
        (("new", "--from", "x"), "with --from give --op"),
        (("new", "--from", "x", "--op", "mm", "--device", "cpu"), "no --device"),
        (("new", "--qr", "nosuch"), "there are small, contest-32"),
        (("new", "--qr", "small", "--op", "mm"), "there are geqrf and linalg_qr"),
        (("new", "--from", "x", "--op", "mm"), "no runs in"),
        (("show", "x"), "make one with `qrprof task new"),
    ],
)
def test_what_is_missing_or_wrong_is_said(call: Callable[..., Call], args: tuple[str, ...], said: str) -> None:
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert said in err


def test_tasks_are_listed_and_shown_without_torch(call: Callable[..., Call], tmp_path: Path) -> None:
    name = made(call, "--qr", "small", "--device", "cpu")
    code = (
        "import sys; from qrprof.tui.cli import run; "
        f"codes = [run(['task', 'list']), run(['task', 'show', '{name}'])]; "
        "sys.exit(any(codes) or 'torch' in sys.modules or 'triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 0


TRAIN = """
norm, net = torch.nn.LayerNorm(16), torch.nn.Linear(16, 8)
for _ in range(60):
    x = norm(torch.randn(32, 16))
    torch.nn.functional.gelu(net(x)).softmax(-1).mean().backward()
    torch.linalg.qr(torch.randn(4, 6, 6))
    x.detach() @ torch.ones(16, 4)
    step()
"""


@pytest.mark.slow
def test_a_traced_program_gives_tasks_with_its_captured_matrices(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = workshop.train(TRAIN)
    assert ended.code == 0
    monkeypatch.chdir(workshop.folder)
    monkeypatch.setenv("QRPROF_CACHE", str(workshop.folder / "cache"))
    for name in ("_softmax", "native_layer_norm", "mm", "addmm", "gelu", "linalg_qr"):
        capsys.readouterr()
        assert qrprof(["task", "new", "--from", ended.run.id, "--op", name, "--json"]) == 0
        task = json.loads(capsys.readouterr().out)["task"]
        assert task["origin"] == ended.run.id
        if name == "linalg_qr":
            (case,) = task["development"]
            assert (len(case["samples"]), len(case["held"])) == (1, 1)
