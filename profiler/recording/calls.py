"""What linalg was called with: a counting override on each linalg op, below autograd.

Every override calls the stock kernel (`stock`), taken by `torch.library.get_kernel` before it was installed.
It costs about 5 us a call of these ops, twice that on large matrices, and nothing elsewhere.
"""

import functools
import os
import sys
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qrprof.profiler.recording.stock import stock_call

# Ops with a kernel of their own on the device key, as torch.linalg's functions reach them.
OPS = (
    "linalg_qr",
    "geqrf",
    "linalg_householder_product",
    "ormqr",
    "_linalg_eigh",
    "linalg_eig",
    "_linalg_svd",
    "linalg_cholesky_ex",
    "cholesky_solve",
    "cholesky_inverse",
    "linalg_inv_ex",
    "_linalg_solve_ex",
    "linalg_solve_triangular",
    "linalg_lu_factor_ex",
    "linalg_ldl_factor_ex",
    "linalg_lstsq",
    "linalg_matrix_exp",
)
KEYS = ("CPU", "CUDA")
SAMPLE_BYTES = 256 * 1024 * 1024
SAMPLES_A_CALL = 2
START_FOLDER = os.getcwd()  # the script may leave it


@dataclass(frozen=True)
class Call:
    """One linalg op at one call site with one input layout."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str
    site: str


@dataclass
class Tally:
    """Calls of the step under way, and the samples kept. Handed to the recorder step by step."""

    counts: dict[Call, list[int]] = field(default_factory=dict)  # call -> [count, host ns]
    samples: dict[Call, list[Any]] = field(default_factory=dict)
    sampled_bytes: int = 0
    sampling: bool = False

    def take(self) -> dict[Call, list[int]]:
        """The calls since the last take."""
        counts, self.counts = self.counts, {}
        return counts


def install(tally: Tally) -> Callable[[], None]:
    """Override the linalg ops so that `tally` sees each call. Returns the function that undoes it."""
    import torch

    keys = [key for key in KEYS if key == "CPU" or torch.version.cuda or torch.version.hip]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once")
        entries = [override(f"aten::{op}", key, tally) for op in OPS for key in keys if overridable(f"aten::{op}", key)]

    original = torch.library.get_kernel
    torch.library.get_kernel = stock_kernels(original, {(entry.op, entry.key): entry.kernel for entry in entries})

    def remove() -> None:
        torch.library.get_kernel = original
        for entry in entries:
            entry.library._destroy()
        entries.clear()

    return remove


def stock_kernels(original: Callable[..., Any], stock: dict[tuple[str, str], Any]) -> Callable[..., Any]:
    """`torch.library.get_kernel` as without us: a script that keeps a kernel must not keep ours, which will go."""

    def get_kernel(op: Any, key: Any) -> Any:
        name = op if isinstance(op, str) else getattr(op, "_name", "")
        kernel = stock.get((name.removesuffix(".default"), key if isinstance(key, str) else key.name))
        return original(op, key) if kernel is None else kernel

    return get_kernel


def overridable(op: str, key: str) -> bool:
    """Whether `op` has its own kernel on `key`; overriding a composite would sever its backward."""
    import torch

    has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return has_kernel(op, key) and not has_kernel(op, "CompositeImplicitAutograd")
    except RuntimeError:  # no such op in this torch
        return False


@dataclass(frozen=True)
class Override:
    op: str
    key: str
    kernel: Any  # the stock one
    library: Any


def override(op: str, key: str, tally: Tally) -> Override:
    import torch

    kernel = torch.library.get_kernel(op, key)
    stock = stock_call(op.removeprefix("aten::"), kernel)
    timed = key == "CPU"  # on a device the call returns before the work is done

    def counting(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():  # what we do with the matrix is not the script's doing
            call = describe(op, args[0], call_site())
            if tally.sampling:
                keep_sample(tally, call, args[0])
            begin = time.perf_counter_ns()
            result = stock(keyset, *args, **kwargs)
        entry = tally.counts.setdefault(call, [0, 0])
        entry[0] += 1
        entry[1] += time.perf_counter_ns() - begin if timed else 0
        return result

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl(op.removeprefix("aten::"), counting, key, with_keyset=True, allow_override=True)
    return Override(op, key, kernel, library)


def describe(op: str, matrix: Any, site: str) -> Call:
    return Call(
        op=op,
        shape=tuple(matrix.shape),
        dtype=str(matrix.dtype).removeprefix("torch."),
        strides=tuple(matrix.stride()),
        device=matrix.device.type,
        site=site,
    )


def call_site() -> str:
    """`file.py:12` of the nearest frame outside torch (and what it generates) and this package; "" if there is none."""
    frame = sys._getframe(1)
    while is_inner(frame):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def is_inner(frame: types.FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith(("torch.", "qrprof.")) or frame.f_code.co_filename.startswith(("<", torch_folder()))


@functools.cache
def torch_folder() -> str:
    import torch

    return os.path.dirname(torch.__file__) + os.sep


@functools.cache
def short_path(name: str) -> str:
    """The path as a reader knows it: below site-packages, else relative to the folder the script was started in."""
    _, found, rest = name.rpartition("site-packages/")
    if found or not os.path.isabs(name):
        return rest
    relative = os.path.relpath(name, START_FOLDER)
    return name if relative.startswith("..") else relative


def keep_sample(tally: Tally, call: Call, matrix: Any) -> None:
    import torch

    kept = tally.samples.setdefault(call, [])
    size = matrix.numel() * matrix.element_size()
    if len(kept) >= SAMPLES_A_CALL or tally.sampled_bytes + size > SAMPLE_BYTES:
        return
    if matrix.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    kept.append(matrix.detach().to("cpu", copy=True))
    tally.sampled_bytes += size
