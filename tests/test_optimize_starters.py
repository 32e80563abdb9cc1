"""The starting files that come along: what they import, how they are set, and that they are right."""

import ast
import builtins
import dis
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal

import nvrtc_aot
import pytest
import torch

from qrprof.kernels.checks import residuals, residuals_qr, strict
from qrprof.kernels.qr.configs import SM90, Rows
from qrprof.kernels.qr.source import source as source_of
from qrprof.planner.gate.qr_task import domain
from qrprof.planner.gate.records import ArgSpec, Task, TaskCase, Tolerance
from qrprof.planner.gate.witness import ALLOWED
from qrprof.planner.optimize.starters import starter
from qrprof.planner.optimize.tunables import tunables, with_settings

Op = Literal["geqrf", "linalg_qr"]
OPS: tuple[Op, ...] = ("geqrf", "linalg_qr")
LANES = [(40, 176, 176), (40, 352, 352), (60, 1024, 1024), (2, 4096, 4096), (20, 32, 32), (5, 700, 90)]


def task(op: str, device: Literal["cpu", "cuda"], *shapes: tuple[int, ...], dtype: str = "float32") -> Task:
    plain = () if op == "geqrf" else ("reduced",)
    cases = tuple(TaskCase(str(shape), 1 / len(shapes), (ArgSpec(shape, dtype),), plain) for shape in shapes)
    return Task("t", op, device, cases, domain("all"), "qr", Tolerance(), "built in")


def source(op: str, device: Literal["cpu", "cuda"], *shapes: tuple[int, ...]) -> str:
    found = starter(task(op, device, *shapes))
    assert found is not None
    return found


def loaded(text: str, folder: Path) -> ModuleType:
    path = folder / "candidate.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def values(text: str) -> dict[str, Any]:
    return {one.name: one.value for one in tunables(text)}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_file_imports_what_candidates_may(op: Op, device: Literal["cpu", "cuda"]) -> None:
    text = source(op, device, (40, 352, 352), (40, 8, 8))
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name
        for node in imported
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert {str(name).partition(".")[0] for name in names} <= ALLOWED
    assert "qrprof." not in text
    assert "def candidate(" in text


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from instructions(inner)


@pytest.mark.parametrize("op", OPS)
def test_every_name_of_a_bundled_file_is_there(op: Op) -> None:
    code = compile(source(op, "cuda", (40, 352, 352), (40, 8, 8)), "candidate.py", "exec")
    bound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    used = {one.argval for one in instructions(code) if one.opname == "LOAD_GLOBAL"}
    assert "factor_leaf" in used
    assert used <= bound | set(dir(builtins))


@pytest.mark.parametrize(("batch", "m", "n"), LANES)
def test_a_lane_is_set_as_the_included_kernels_are(batch: int, m: int, n: int) -> None:
    text = source("geqrf", "cuda", (batch, m, n))
    found = values(text)
    if m <= 128:
        assert set(found) == {"SMALL_WARPS"}
        return
    blocked = next(one for one in SM90.blocked if min(m, n) <= one.columns)
    rows = next(one for one in SM90.rows if m <= one.rows and batch <= one.batch)
    assert found["WIDTH"] == blocked.width
    assert found["OUTER"] == (
        blocked.outer.columns,
        blocked.outer.block_rows,
        blocked.outer.warps,
        blocked.outer.stages,
    )
    tallest = max((name for name in found if name.startswith("LEAF_")), key=lambda name: int(name[5:]))
    assert found[tallest] == (rows.each, rows.threads, rows.cluster)
    assert "SMALL_WARPS" not in found


@pytest.mark.parametrize(
    "without",
    [
        task("_softmax", "cuda", (40, 352)),
        task("geqrf", "cuda", (40, 352, 352), dtype="float64"),
        task("geqrf", "cuda", (1, 5000, 100)),
    ],
)
def test_where_there_is_none(without: Task) -> None:
    assert starter(without) is None


@pytest.mark.skipif(nvrtc_aot.library() is None, reason="no NVRTC library (the package nvidia-cuda-nvrtc has one)")
def test_every_choice_of_a_leaf_compiles() -> None:
    text = source("geqrf", "cuda", (2, 4096, 4096))
    (cuda,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ROWS_CU" and node.value is not None
    ]
    assert cuda.strip() == source_of("rows.cu").strip()
    for one in tunables(text):
        if one.name.startswith("LEAF_"):
            rows = int(one.name.removeprefix("LEAF_"))
            choices: Any = {one.value, *one.choices}
            for each, threads, cluster in choices:
                assert each * threads * cluster >= rows
                kernel = nvrtc_aot.of_rows(Rows(rows, 1, each, threads, cluster))
                assert nvrtc_aot.resources(kernel).registers * kernel.threads <= 65536


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(300, 8, 2), (7, 5, 5), (3, 2, 6), (2, 3, 9, 4), (5, 1, 1), (40, 20)])
def test_the_file_for_a_cpu_is_right(op: Op, shape: tuple[int, ...], tmp_path: Path) -> None:
    text = source(op, "cpu", shape)
    generator = torch.Generator().manual_seed(0)
    for settings in ({}, {"CHUNK": 128, "LIBRARY_FROM": 64}):
        a = torch.randn(*shape, generator=generator)
        a[..., -1] = a[..., 0]
        ours = loaded(with_settings(text, settings), tmp_path).candidate(a)
        right(op, a, ours)


def right(op: Op, a: torch.Tensor, ours: tuple[torch.Tensor, ...]) -> None:
    stock = torch.geqrf(a) if op == "geqrf" else torch.linalg.qr(a)
    assert [(x.shape, x.stride(), x.dtype) for x in ours] == [(x.shape, x.stride(), x.dtype) for x in stock]
    measure = residuals if op == "geqrf" else residuals_qr
    assert strict(measure(a, *ours), measure(a, *stock)).passed


INTERPRETED = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["candidate"] = module
spec.loader.exec_module(module)
a = torch.randn(1, 70, 40, generator=torch.Generator().manual_seed(0))
torch.save((a, module.candidate(a)), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "settings"), [("geqrf", {}), ("geqrf", {"WIDTH": 32, "PRECISION": "tf32x3", "SPLITS": 1}), ("linalg_qr", {})]
)
def test_the_file_for_a_gpu_is_right_in_tritons_interpreter(op: Op, settings: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path, results = tmp_path / "candidate.py", tmp_path / "results"
    path.write_text(with_settings(source(op, "cuda", (40, 352, 352)), settings), encoding="utf-8")
    ours = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", INTERPRETED, str(path), str(results)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=ours)
    assert done.returncode == 0, done.stderr
    right(op, *torch.load(results))


@pytest.mark.slow
def test_the_kernels_of_a_bundled_file_compile_for_an_h200(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("kernels of this process are interpreted")
    import triton_aot

    module = loaded(source("geqrf", "cuda", (40, 352, 352)), tmp_path)
    kernels = {kernel.name: kernel for kernel in triton_aot.of_config(module.CONFIG)}
    for name in ("prepare", "finish", "halves 64", "y 64", "gram 64 True", "join 64 of 32", "larfb 64", "inner 64"):
        kernel = kernels[name]
        own = triton_aot.Kernel(
            name, getattr(module, kernel.function.__name__), kernel.constants, kernel.warps, kernel.stages
        )
        assert triton_aot.resources(own).shared <= 227 * 1024
