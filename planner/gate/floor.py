"""A time below which no kernel can do a case's work on this device, from the peaks that were measured on it."""

import json
from typing import Final

from qrprof.planner.counts import Work, work
from qrprof.planner.gate.records import ArgSpec, TaskCase
from qrprof.profiler.devices import Peaks

CALL_NS: Final = {"cpu": 200.0, "cuda": 1000.0}  # a call from Python that allocates one output; a kernel of no work
CACHE: Final = 10.0  # times the copy rate of memory: inputs were written just before, and may sit in a cache
MARGIN: Final = 2.0  # a peak that was measured beside busy neighbours may be half

TRACE_NAMES: Final = {
    "float32": "float",
    "float64": "double",
    "bfloat16": "c10::BFloat16",
    "float16": "c10::Half",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


def floor_ns(op: str, case: TaskCase, device: str, peaks: Peaks | None) -> float:
    """ns of one call, at least. Without peaks, or for work that is not known, what any call takes."""
    least = CALL_NS[device]
    todo = case_work(op, case)
    if peaks is None or todo is None:
        return least
    compute = todo.least_flops / max(peaks.flops.values())
    memory = todo.bytes / (CACHE * peaks.copy_bytes_per_s)
    return max(least, 1e9 * compute / MARGIN, 1e9 * memory / MARGIN)


def case_work(op: str, case: TaskCase) -> Work | None:
    """Flops and bytes of one call; None: not known for this op."""
    given = case.args(case.tensors)
    shapes = json.dumps([list(arg.shape) if isinstance(arg, ArgSpec) else [] for arg in given])
    dtypes = ",".join(TRACE_NAMES.get(arg.dtype, "?") if isinstance(arg, ArgSpec) else "Scalar" for arg in given)
    return work(f"aten::{op.partition('.')[0]}", shapes, dtypes)
