"""What to do about a target, and why: one table of rules, the first that fits speaks."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from qrprof.planner.estimate import Basis, Estimate
from qrprof.profiler import units
from qrprof.profiler.devices import Peaks
from qrprof.profiler.linalg import LINALG_DRIVERS
from qrprof.profiler.pauses import PAUSE
from qrprof.profiler.runinfo import LinalgCall, RunInfo

QR: Final = ("linalg_qr", "geqrf", "linalg_householder_product")
FUSED_OPTIMIZERS: Final = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim, with a fused= argument
RUNTIME_CALL: Final = re.compile(r"(cuda|cu|hip)[A-Z]")  # owns what is launched outside all ops
FRAMEWORK: Final = re.compile(r"autograd::|torch::autograd|\w+Backward\d*$")
COMPUTE_BOUND: Final = 0.3  # of an op's time at the peak of its type
SAME_SHAPE: Final = 2.0  # calls in a step that make a batch


@dataclass(frozen=True)
class Facts:
    """What is known of a target. "Most" means: with most of its time."""

    key: str
    ns: float  # a step
    step_ns: float | None  # None: withheld, the times are no shares of a step
    calls: float | None  # a step
    on_device: bool
    run: RunInfo
    peaks: Peaks | None
    work_kind: str  # of most, a class of `roofline.EFFICIENCY`; "" unknown
    shapes: str  # of most, as in the trace
    dtype: str  # of most, as in the trace
    same_calls: float  # a step, with the shapes of most
    flops: float  # a step, of the parts with known work
    tf32: bool  # most ran as TF32
    host_copy: bool  # most is copies between host and device
    phase: str  # of most
    blamed: str  # of most; gaps only
    blamed_ns: float  # a step, of `blamed`
    where: str  # of most
    linalg: tuple[LinalgCall, ...]  # calls of this op in the unprofiled steps
    achievable: Estimate | None
    fused: bool = False  # the optimizer's step calls a fused kernel

    @property
    def share(self) -> float | None:
        return self.ns / self.step_ns if self.step_ns else None

    @property
    def name(self) -> str:
        return self.key.removeprefix("aten::")


class Rule(NamedTuple):
    applies: Callable[[Facts], bool]
    advice: Callable[[Facts], str]
    why: Callable[[Facts], str]


def advise(facts: Facts) -> tuple[str, str]:
    """(what to do, why with numbers), a sentence each."""
    rule = next(rule for rule in RULES if rule.applies(facts))
    return rule.advice(facts), rule.why(facts)


def spent(facts: Facts) -> str:
    count = "" if facts.calls is None else f" in {units.calls(facts.calls)} call{'' if facts.calls == 1 else 's'}"
    if facts.step_ns is None:
        return f"{units.time(facts.ns)} as recorded{count}"
    return f"{units.time(facts.ns)} of a step of {units.time(facts.step_ns)} ({units.share(facts.share)}){count}"


def place(facts: Facts) -> str:
    """Whom most of a gap is blamed on, as the end of a sentence."""
    culprit = f", most of it in {facts.blamed}" if facts.blamed else ""
    return culprit + (f" at {facts.where}" if facts.where not in facts.blamed else "")


def needed(facts: Facts) -> str:
    """How far the op is from what the device can do, as the end of a sentence."""
    found = facts.achievable
    if found is None:
        return ""
    if found.basis is Basis.MEASURED:
        return f"; the included kernels, timed on this device, need {units.time(found.mid)} for these calls"
    if found.mid is None:
        return "; nothing better than that ceiling is known for its inputs on this device"
    rate = f", at {units.rate(1e9 * facts.flops / facts.ns)}" if facts.flops and facts.ns else ""
    return f"{rate}; its work needs {units.time(found.low)} to {units.time(found.high)} on this device"


def alone(facts: Facts) -> str:
    found = facts.achievable
    if found is None or found.mid is None:
        return ""
    return f": alone it needs {units.time(found.mid)} to {units.time(found.high)}, fused with its neighbours nothing"


def calls_when_called(call: LinalgCall, run: RunInfo) -> float:
    """Calls in a step that makes any: steps of other kinds (no refresh of a preconditioner) do not count."""
    return call.calls_per_step / run.steps_with(call.op)


def alike(facts: Facts) -> tuple[float, str, str]:
    """(calls in one step, shape, place) of linalg calls that could be one batch: as the unprofiled steps made them."""
    if facts.linalg:
        call = max(facts.linalg, key=lambda call: call.calls_per_step)
        return calls_when_called(call, facts.run), " x ".join(map(str, call.shape)), call.site
    shape = json.loads(facts.shapes)[0] if facts.shapes else []
    return facts.same_calls, " x ".join(map(str, shape)), facts.where


def can_batch(facts: Facts) -> bool:
    return facts.key in LINALG_DRIVERS and alike(facts)[0] >= SAME_SHAPE


def same_shape(facts: Facts) -> str:
    count, shape, site = alike(facts)
    calls = f"{units.calls(count)} with {shape}" + (f" at {site}" if site else "")
    return f"{spent(facts)}, {calls} in one step{needed(facts)}."


def optimizer_fix(facts: Facts) -> str:
    optimizer = facts.run.step_source.removeprefix("optimizer ")
    if optimizer in FUSED_OPTIMIZERS:
        return f"Give {optimizer} fused=True: one kernel updates all parameters."
    return "Compile the optimizer's step (torch.compile(optimizer.step)): its elementwise ops fuse."


def tensor_cores(facts: Facts) -> str:
    rates = facts.peaks.flops if facts.peaks else {}
    if not {"float", "tf32"} <= rates.keys():
        return f"{spent(facts)}, in float outside the tensor cores."
    faster = units.ratio(rates["tf32"] / rates["float"])
    return (
        f"{spent(facts)}, in float outside the tensor cores; here a large TF32 product runs {faster} as fast "
        f"({units.rate(rates['tf32'])} against {units.rate(rates['float'])})."
    )


def loader_workers(facts: Facts) -> str:
    if facts.step_ns is None or facts.achievable is None:
        return f"The step waits {spent(facts)} for data."
    rest, left = units.time(facts.step_ns - facts.ns), units.time(facts.achievable.mid)
    return (
        f"The step waits {spent(facts)} for data and works {rest}: of 4 workers' loading {left} would be left to wait."
    )


def is_gap(cause: str) -> Callable[[Facts], bool]:
    return lambda f: f.key == f"gap:{cause}"


def float_bound(facts: Facts) -> bool:
    """Whether float arithmetic outside the tensor cores is what most of the time goes to, not latency or memory."""
    if facts.work_kind not in ("product", "convolution") or facts.dtype != "float":
        return False
    peak = facts.peaks.flops.get("float") if facts.peaks else None
    busy = peak is None or 1e9 * facts.flops / peak >= COMPUTE_BOUND * facts.ns
    return facts.on_device and not facts.tf32 and busy


def unfused_optimizer(facts: Facts) -> bool:
    many = facts.name.startswith("_foreach") or facts.work_kind == "elementwise"
    return facts.phase == "optimizer" and many and not facts.fused


RULES: Final = (
    Rule(
        lambda f: f.key == "gap:data" and "MultiProcessing" in f.blamed,
        lambda f: "Raise num_workers and prefetch_factor of the DataLoader, or make its transforms cheaper.",
        lambda f: f"The loader's workers do not keep up: the step waits {spent(f)}.",
    ),
    Rule(
        is_gap("data"),
        lambda f: (
            "Load data in worker processes: DataLoader(num_workers=4, persistent_workers=True"
            + (", pin_memory=True)." if f.on_device else ").")
        ),
        loader_workers,
    ),
    Rule(
        is_gap("sync"),
        lambda f: "Read results of the device less often: .item() and print(loss) each n-th step, no boolean masks.",
        lambda f: f"The host waits for the device, and then the device for the host, {spent(f)}{place(f)}.",
    ),
    Rule(
        is_gap("copy"),
        lambda f: "Copy from pinned memory with non_blocking=True, and keep on the device what it needs again.",
        lambda f: f"The device idles during blocking copies, {spent(f)}{place(f)}.",
    ),
    Rule(
        is_gap("alloc"),
        lambda f: "Keep tensor sizes constant from step to step, or set PYTORCH_ALLOC_CONF=expandable_segments:True.",
        lambda f: f"The device idles while the driver allocates, {spent(f)}{place(f)}.",
    ),
    Rule(
        is_gap("launch"),
        lambda f: 'Launch fewer kernels: torch.compile(mode="reduce-overhead"), a CUDA graph, a foreach optimizer.',
        lambda f: (
            f"The host launches more slowly than the device works: idle {spent(f)}{place(f)}"
            + (f"; a launch costs the host {units.time(f.peaks.launch_ns)} here." if f.peaks else ".")
        ),
    ),
    Rule(
        lambda f: f.key == "gap:host" and f.on_device,
        lambda f: "Do less Python between the ops of a step: torch.compile the model, move logging out of the loop.",
        lambda f: f"The device idles while the host runs no op, {spent(f)}{place(f)}.",
    ),
    Rule(
        lambda f: f.key == "gap:host" and f.run.world_size > 1,
        lambda f: "See `qrprof ranks` first: waiting for another rank in a collective on the host counts as host work.",
        lambda f: (
            f"Host work, that is python, the framework between ops, and waiting for ranks, takes {spent(f)}{place(f)}."
        ),
    ),
    Rule(
        lambda f: f.key == "gap:host" and f.blamed.startswith(PAUSE),
        lambda f: f"Profile your own Python {f.blamed.removeprefix(PAUSE)}, such as loading or logging.",
        lambda f: (
            f"Host work takes {spent(f)}, {units.time(f.blamed_ns)} of it in {f.blamed}, where torch does not run."
        ),
    ),
    Rule(
        is_gap("host"),
        lambda f: "Run fewer and larger ops: torch.compile the model, and use batched ops in place of Python loops.",
        lambda f: f"Host work, that is python and the framework between ops, takes {spent(f)}{place(f)}.",
    ),
    Rule(
        is_gap("unknown"),
        lambda f: "Record with CPU activities on: the trace does not show what the host did.",
        lambda f: f"The device idles while the trace does not show the host, {spent(f)}.",
    ),
    Rule(
        lambda f: f.key == "unattributed",
        lambda f: "Record more steps: this device work was launched before the recording began, or by no known op.",
        lambda f: f"Device work without a launch in the trace takes {spent(f)}.",
    ),
    Rule(
        lambda f: RUNTIME_CALL.match(f.key) is not None,
        lambda f: (
            "Look at its kernels one by one: they are launched outside torch's ops, as CUDA graphs and custom code do."
        ),
        lambda f: f"What {f.key} launches takes {spent(f)}.",
    ),
    Rule(
        lambda f: f.host_copy,
        lambda f: "Copy from pinned memory with non_blocking=True, ahead of its use, or keep the data on the device.",
        lambda f: f"Copies between host and device take {spent(f)}.",
    ),
    Rule(
        lambda f: f.achievable is not None and f.achievable.basis is Basis.MEASURED,
        lambda f: "Swap in the included kernels: `qrprof swaps accept qr`.",
        same_shape,
    ),
    Rule(
        can_batch,
        lambda f: (
            f"Stack the matrices of one shape and call {f.name} once on the batch, with a kernel that works on all of"
            " them at a time."
        ),
        same_shape,
    ),
    Rule(
        lambda f: f.name in QR and not f.on_device and any(math.prod(call.shape[:-2]) > 1 for call in f.linalg),
        lambda f: (
            "Share a batch's matrices over threads, one LAPACK thread each, as qrprof.kernels.install() does;"
            " torch takes them one after the other."
        ),
        same_shape,
    ),
    Rule(
        lambda f: f.name in QR,
        lambda f: "Replace it by a faster QR kernel: blocked Householder with the panel kept in registers.",
        same_shape,
    ),
    Rule(
        float_bound,
        lambda f: 'Allow TF32 (torch.set_float32_matmul_precision("high")), or train under bfloat16 autocast.',
        tensor_cores,
    ),
    Rule(unfused_optimizer, optimizer_fix, lambda f: f"The optimizer's step runs {f.name} for {spent(f)}."),
    Rule(
        lambda f: f.work_kind == "elementwise",
        lambda f: "Fuse it with its neighbours: torch.compile the code around it.",
        lambda f: f"{spent(f)}, bound by memory{alone(f)}.",
    ),
    Rule(
        lambda f: f.work_kind == "none" or FRAMEWORK.match(f.key) is not None,
        lambda f: "Run fewer ops: torch.compile removes views, allocations and the framework's own work.",
        lambda f: f"The framework's own work, without arithmetic, takes {spent(f)}.",
    ),
    Rule(
        lambda f: True,
        lambda f: f"Replace {f.name} by a faster kernel for these shapes, or call it less.",
        lambda f: f"{spent(f)}{needed(f)}.",
    ),
)
