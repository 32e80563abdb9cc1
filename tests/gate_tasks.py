"""Tasks and a small trace that several tests of the gate use."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from qrprof.planner.gate.records import ArgSpec, Checker, Domain, Plain, Task, TaskCase, Tolerance
from qrprof.profiler.events import MARK_PREFIX

MARKS = (10, 11, 12)  # the steps of tests/data/small_run


def case(*shapes: tuple[int, ...], plain: tuple[Plain, ...] = (), dtype: str = "float32", **fields: object) -> TaskCase:
    name = " ".join("x".join(map(str, shape)) for shape in shapes)
    return TaskCase(name, 1.0, tuple(ArgSpec(shape, dtype) for shape in shapes), plain, **fields)  # type: ignore[arg-type]


def task(op: str, *cases: TaskCase, checker: Checker = "relative", domain: Domain | None = None) -> Task:
    return Task("test", op, "cpu", cases, domain or Domain(), checker, Tolerance(), "built in")


SOFTMAX = task("_softmax", case((16, 33), plain=(1, False)))
LAYER_NORM = task("native_layer_norm", case((16, 40), (40,), (40,), plain=((40,), 1e-5), layout="tpttp"))
MM = task("mm", case((12, 96), (96, 8)))
ADDMM = task("addmm", case((8,), (12, 64), (64, 8), plain=(1, 1)))
GELU = task("gelu", case((30, 40), plain=("none",)))
GENERIC = (SOFTMAX, LAYER_NORM, MM, ADDMM, GELU)


def traced(path: Path, step: Callable[[], object]) -> None:
    """Write torch.profiler's trace of two steps, between the recorder's marks; it watches all threads, as there."""
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, experimental_config=config) as profiler:
        for mark in MARKS:
            with record_function(f"{MARK_PREFIX}{mark}"):
                pass
            if mark != MARKS[-1]:
                step()
    profiler.export_chrome_trace(str(path))


def a_step() -> None:
    """One step that calls each of GENERIC's ops, some in two ways, and ops that make no task."""
    x, w = torch.ones(8, 16), torch.ones(16)
    functional = torch.nn.functional
    for _ in range(3):
        torch.softmax(x, -1)
    torch.softmax(x.T, 0)
    functional.layer_norm(x, (16,), w, w)
    functional.gelu(functional.linear(x, torch.ones(4, 16), torch.ones(4)))
    x @ x.T
    x.sum(dim=0)
    torch.linalg.qr(torch.ones(3, 6, 4))
    functional.dropout(x).relu_().view(-1)
