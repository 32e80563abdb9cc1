"""The starting files that come along: QR as this package does it, each in one file, set for a task's shapes."""

import math
from importlib.resources import files
from typing import Final

from qrprof.kernels.qr.configs import SM90, Tiles
from qrprof.planner.gate.records import Task, TaskCase
from qrprof.planner.optimize.bundle import bundle
from qrprof.planner.optimize.tunables import tunables, with_settings

OPS: Final = {"geqrf": "geqrf_candidate", "linalg_qr": "qr_candidate"}
LEAVES: Final = (256, 512, 1024, 2048, 4096)  # rows up to which leaves have a setting of their own
FIXED: Final = 128  # rows of a leaf up to which there is nothing to choose
SMALL: Final = "SMALL_WARPS"


def starter(task: Task) -> str | None:
    """The file to start from for the task's op, device and shapes; None: there is none."""
    if task.op not in OPS or any(spec.dtype != "float32" for case in task.development for spec in case.tensors):
        return None
    if task.device == "cpu":
        source = files("qrprof.planner.optimize").joinpath("starting", "qr_cpu.py").read_text(encoding="utf-8")
        return source.replace(f"def {OPS[task.op]}(", "def candidate(")
    if max(sizes(case)[1] for case in task.development) > LEAVES[-1]:
        return None
    return set_for(bundle("qr_cuda", OPS[task.op]), task)


def set_for(source: str, task: Task) -> str:
    """With the settings of the case with the most work; TUNABLES has only what the task's shapes reach."""
    kept = {one.name: one.choices for one in tunables(source) if reached(one.name, task)}
    return with_settings(source, {"TUNABLES": kept, **settings(max(task.development, key=work))})


def settings(case: TaskCase) -> dict[str, object]:
    """Of the included kernels for an H100 or H200 (kernels/qr/configs)."""
    batch, m, n = sizes(case)
    blocked = next(one for one in SM90.blocked if min(m, n) <= one.columns)
    leaves = {rows: next(one for one in SM90.rows if rows <= one.rows and batch <= one.batch) for rows in LEAVES}
    return {
        "WIDTH": blocked.width,
        **{f"LEAF_{rows}": (one.each, one.threads, one.cluster) for rows, one in leaves.items()},
        "INNER": tiles(blocked.inner),
        "GRAM": tiles(blocked.gram)[1:],
        "OUTER": tiles(blocked.outer),
        "BY_LEAVES": blocked.by_leaves,
    }


def reached(name: str, task: Task) -> bool:
    """Whether a call of one of the task's shapes depends on this setting."""
    blocked = [sizes(case) for case in task.development if not is_small(task.op, case)]
    if name == SMALL:
        return len(blocked) < len(task.development)
    tallest = max((m for _, m, _ in blocked), default=0)
    leaf = next((rows for rows in LEAVES if name == f"LEAF_{rows}"), None)
    return tallest > (FIXED if leaf == LEAVES[0] else leaf // 2) if leaf else bool(blocked)


def is_small(op: str, case: TaskCase) -> bool:
    """Whether one program factors the matrix, and there is nothing more to do with it."""
    _, m, n = sizes(case)
    return op == "geqrf" and any(m <= one.rows and n <= one.columns for one in SM90.small)


def work(case: TaskCase) -> int:
    batch, m, n = sizes(case)
    return batch * m * n * min(m, n)


def sizes(case: TaskCase) -> tuple[int, int, int]:
    """The number of matrices, their rows and columns."""
    *batch, m, n = case.tensors[0].shape
    return math.prod(batch), m, n


def tiles(of: Tiles) -> tuple[int, int, int, int]:
    return of.columns, of.block_rows, of.warps, of.stages
