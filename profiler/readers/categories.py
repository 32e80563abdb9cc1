"""The categories that Kineto has given its events since 2020, as kinds."""

from typing import Any, Final

from qrprof.profiler.events import ANNOTATION, COPY, KERNEL, MEMSET, OP, OVERHEAD, RUNTIME, SYNC

KIND_OF: Final = {
    "cpu_op": OP,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME,  # of ROCm too
    "cuda_driver": RUNTIME,
    "xpu_runtime": RUNTIME,
    "xpu_driver": RUNTIME,
    "privateuse1_runtime": RUNTIME,
    "privateuse1_driver": RUNTIME,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": MEMSET,
    "cuda_sync": SYNC,
    "cuda_event": SYNC,
    "xpu_sync": SYNC,
    "overhead": OVERHEAD,
    "Operator": OP,  # this one and those below: 2020 to 2021
    "Runtime": RUNTIME,
    "Kernel": KERNEL,
    "Memcpy": COPY,
    "Memset": MEMSET,
}
# Spans that others account for: an annotation drawn on the device covers gaps, a Python frame its ops.
DROPPED: Final = frozenset({"gpu_user_annotation", "python_function", "Trace"})
OLD_OP: Final = "Operator"  # had no category beside it for ranges: only their names tell them from ops
RANGES: Final = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)")  # of torch itself


def kind_of(category: Any, name: Any) -> str | None:
    """None where it is no category of a row."""
    if category == OLD_OP and type(name) is str and name.startswith(RANGES):
        return ANNOTATION
    return KIND_OF.get(category) if type(category) is str else None
