"""The time that a good kernel would need for an op's work on a device whose peaks were measured.

Roofline: S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009.
"""

import math
from typing import Final, NamedTuple

from qrprof.planner.counts import Work
from qrprof.profiler.devices import Peaks

# The measured product that bounds arithmetic of a type. Half and bfloat16 run at one rate on tensor cores.
PEAK: Final = {"float": "float", "double": "double", "c10::BFloat16": "bfloat16", "c10::Half": "bfloat16"}
TF32_KINDS: Final = ("product", "convolution")  # what torch's TF32 switches reach


class Levels(NamedTuple):
    """Remaining ns a step: `low` if all goes well, `mid` for a good kernel, `high` for a merely decent one."""

    low: float
    mid: float
    high: float


# Fraction of the measured peak that a kernel of the class reaches (low, mid, high *time*, so best first).
# inf: fused into its neighbours the op moves and computes nothing of its own.
EFFICIENCY: Final[dict[str, dict[str, tuple[float, float, float]]]] = {
    "cuda": {
        "product": (0.95, 0.8, 0.6),  # cuBLAS from large square to short K; the peak itself is a large product
        "convolution": (0.9, 0.5, 0.25),  # implicit GEMM; cuDNN on an H200 0.5 in fp32, less in TF32 for layout changes
        "attention": (1.6, 0.6, 0.3),  # cuDNN on an H200 0.5 at 4096 keys; a causal mask (0.9) halves the work
        "factorisation": (0.6, 0.35, 0.15),  # batched QR, 640 of 512 x 512: best public 0.6 of fp32, others 0.35
        "spectral": (0.3, 0.15, 0.05),  # half of the reduction is matrix-vector products; cuSOLVER 0.13 at n = 4096
        "memory": (0.95, 0.75, 0.5),  # of the copy rate: well vectorised, with a reduction, strided
        "elementwise": (math.inf, 0.75, 0.5),  # the same alone; torch.compile can make it vanish
        "none": (math.inf, 1.0, 1.0),  # views, allocations and dispatch: compiled code has none
    },
    "cpu": {
        "product": (0.95, 0.8, 0.6),  # MKL and oneDNN, as above
        "convolution": (0.9, 0.6, 0.4),  # oneDNN, as above
        "attention": (1.4, 0.5, 0.25),  # blocked, softmax in between; a causal mask halves the work
        "factorisation": (0.5, 0.25, 0.1),  # LAPACK's blocked factorisations: panels run at memory speed
        "spectral": (0.3, 0.15, 0.05),  # as on CUDA
        "memory": (0.95, 0.75, 0.5),  # as on CUDA
        "elementwise": (math.inf, 0.75, 0.5),  # as on CUDA
        "none": (math.inf, 1.0, 1.0),  # as on CUDA
    },
}
# A factorisation's columns depend on one another. On a GPU each costs a reduction over the panel: H200 register panels
# take 2 to 5 us a column, the best public entries 0.5 to 1. On a CPU the efficiency holds it already.
COLUMN_NS: Final = {"cuda": (500.0, 1000.0, 2000.0), "cpu": (0.0, 0.0, 0.0)}
# A kernel of no work keeps an H200 busy for 1 to 2 us. A CPU's floor is the op's own measured launch.
KERNEL_NS: Final = (1000.0, 2000.0, 3000.0)
LAUNCHES: Final = (0.5, 1.0, 2.0)  # of a CPU's measured launch: a view costs half of an op, wide signatures double


def remaining(todo: Work, calls: float, peaks: Peaks, tf32: bool = False, steps: float = 1.0) -> Levels | None:
    """ns a step that `calls` calls of `todo` need: the largest of compute, memory, column chain and launch floor.

    `tf32`: the call is known to have used TF32. Where it is not, and the device has it, `low` of a float product or
    convolution is what allowing TF32 would give. `low` of a factorisation takes the calls of a step as one batch;
    `steps` is the share of steps that make any. None where the peak of the type was not measured.
    """
    name = PEAK.get(todo.dtype, todo.dtype)
    peak = peaks.flops.get("tf32" if tf32 and name == "float" else name, 0.0)
    if todo.flops and not peak:
        return None
    best = max(peak, peaks.flops.get("tf32", 0.0)) if name == "float" and todo.kind in TF32_KINDS else peak
    floor = KERNEL_NS if peaks.kind == "cuda" else tuple(peaks.launch_ns * factor for factor in LAUNCHES)

    def level(index: int) -> float:
        compute, memory = EFFICIENCY[peaks.kind][todo.kind][index], EFFICIENCY[peaks.kind]["memory"][index]
        if math.isinf(compute):
            return 0.0
        count, rate = (todo.least_flops, best) if index == 0 else (todo.flops, peak)
        in_turn = min(calls, steps) if index == 0 and todo.columns else calls
        return max(
            1e9 * calls * count / (rate * compute) if count else 0.0,
            1e9 * calls * todo.bytes / (peaks.copy_bytes_per_s * memory),
            in_turn * COLUMN_NS[peaks.kind][index] * todo.columns,
            in_turn * floor[index],
        )

    return Levels(level(0), level(1), level(2))
