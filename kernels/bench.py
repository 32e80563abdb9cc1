"""geqrf of this library against its peers: times, accuracy, and which lane served, case by case.

Peers, all float32:
    torch        torch.geqrf on the same device
    multistream  the same, matrix by matrix, over 16 CUDA streams: the vendor's routine without the loop's idle time
    cpu          torch.geqrf on the CPU with one thread
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import psutil
import torch
from torch import Tensor

from qrprof.kernels import checks, qr
from qrprof.kernels.bench_cases import Case
from qrprof.kernels.checks import Residuals, Verdict
from qrprof.kernels.qr import dispatch, lanes
from qrprof.kernels.timing import Clock, Contender, Measured, Warm, calls_of, compare, warm_up
from qrprof.profiler.devices import Peaks

OURS: Final = "qrprof"
TORCH, MULTISTREAM, CPU = "torch", "multistream", "cpu"
PEERS: Final = {"cuda": (TORCH, MULTISTREAM, CPU), "cpu": (TORCH, CPU)}
DEFAULT_PEERS: Final = {"cuda": (TORCH, MULTISTREAM), "cpu": (TORCH, CPU)}
STREAMS: Final = 16
INPUT_BYTES: Final = 256 << 20  # of all inputs of a case, or one input
FREE: Final = 4  # a fourth of what is free, at most
CHECKED: Final = 10_007  # added to the seed of the input that is checked; timed inputs count from 0
TF32_PRODUCTS: Final = 3  # in place of one in float32, at its accuracy

Factor = Callable[[Tensor], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What all cases of a run have in common. `seconds` bounds the readings of a case."""

    device: torch.device
    peers: tuple[str, ...]
    seconds: float
    clock: Clock  # of `device`
    host: Clock
    peaks: Peaks | None = None  # of `device`


@dataclass(frozen=True)
class Check:
    """Of one call on an input that is not timed; `stock` is torch's result on the same device."""

    own: Residuals
    stock: Residuals
    strict: Verdict
    contest: Verdict
    same_bits: bool  # as torch's


@dataclass(frozen=True)
class Result:
    """A case; where it failed, `failed` says why, and what had not been found by then is None."""

    case: Case
    lane: str
    fallback: str | None  # why not the lane that the table names
    floor_ns: float | None
    failed: str | None = None
    check: Check | None = None
    ours: Measured | None = None
    peers: Mapping[str, Measured | str] = field(default_factory=dict)  # a text says why there are no times

    @property
    def right(self) -> bool:
        return self.failed is None and self.check is not None and self.check.strict.passed and self.check.contest.passed

    @property
    def flops_per_s(self) -> float | None:
        return 1e9 * self.case.flops / self.ours.device.median_ns if self.ours else None

    @property
    def floor_share(self) -> float | None:
        """Of the device time: what must remain of it by flops and bytes."""
        return self.floor_ns / self.ours.device.median_ns if self.ours and self.floor_ns else None


def bench(case: Case, setup: Setup) -> Result:
    """One case; that it failed is a result too. Raises nothing that a kernel raises."""
    lane, fallback = lane_here(case, setup.device)
    start = Result(case, lane, fallback, floor_ns(case, setup.peaks))
    found = attempt(lambda: measure(start, setup))
    return replace(start, failed=found) if isinstance(found, str) else found


def attempt(work: Callable[[], T]) -> T | str:
    """What `work` returns, or why it did not."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 -- a kernel raises its compiler's errors, the driver's, its own mistakes
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def measure(start: Result, setup: Setup) -> Result:
    case = start.case
    release(setup.device)
    first = case.make(setup.device)
    ours = warm_up(Contender(OURS, qr.geqrf, [first], setup.clock))
    checked = check(case.make(setup.device, CHECKED))
    tried = {name: attempt(lambda name=name: warm_up(peer(name, first, setup))) for name in setup.peers}  # type: ignore[misc]
    warm = [ours, *(one for one in tried.values() if isinstance(one, Warm))]
    count = min(max(calls_of(one.once_ns) for one in warm), room(case, setup.device))
    inputs = [first, *(case.make(setup.device, fresh) for fresh in range(1, count))]
    measured = compare([with_inputs(one, inputs) for one in warm], setup.seconds)
    times = {one.contender.name: found for one, found in zip(warm, measured, strict=True)}
    peers = {name: times.get(name) or str(tried[name]) for name in setup.peers}
    return replace(start, check=checked, ours=times[OURS], peers=peers)


def release(device: torch.device) -> None:
    """Graphs and inputs of the case before are gone; their memory goes back too."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def room(case: Case, device: torch.device) -> int:
    """How many inputs fit."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return max(1, min(INPUT_BYTES, free // FREE) // case.bytes)


def with_inputs(warm: Warm, inputs: Sequence[Tensor]) -> Warm:
    """The same values for everybody, each where it works."""
    where = warm.contender.inputs[0].device
    return replace(warm, contender=replace(warm.contender, inputs=[one.to(where) for one in inputs]))


def check(a: Tensor) -> Check:
    h, tau = qr.geqrf(a)
    stock_h, stock_tau = torch.geqrf(a)
    own, stock = checks.residuals(a, h, tau), checks.residuals(a, stock_h, stock_tau)
    same = torch.equal(h, stock_h) and torch.equal(tau, stock_tau)
    return Check(own, stock, checks.strict(own, stock), checks.contest(own), same)


# --- peers


def peer(name: str, a: Tensor, setup: Setup) -> Contender:
    if name == CPU:
        return Contender(name, one_thread, [a.cpu()], setup.host)
    return Contender(name, torch.geqrf if name == TORCH else multistream(setup.device), [a], setup.clock)


def one_thread(a: Tensor) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return torch.geqrf(a)
    finally:
        torch.set_num_threads(before)


def multistream(device: torch.device) -> Factor:
    streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]  # type: ignore[no-untyped-call]

    def factor(a: Tensor) -> tuple[Tensor, Tensor]:
        batch, m, n = a.shape
        h, tau = a.new_empty(batch, n, m).mT, a.new_empty(batch, min(m, n))
        here = torch.cuda.current_stream(device)
        used = streams[:batch]
        for stream in used:
            stream.wait_stream(here)
        for i in range(batch):
            with torch.cuda.stream(used[i % len(used)]):
                torch.geqrf(a[i], out=(h[i], tau[i]))
        for stream in used:
            here.wait_stream(stream)
        return h, tau

    return factor


# --- facts of a case


def lane_here(case: Case, device: torch.device) -> tuple[str, str | None]:
    """(lane that serves geqrf, why it is not the one that the table names)."""
    named = dispatch.lane("geqrf", device.type, "float32", case.batch, case.m, case.n)
    if lanes.usable(named, device):
        return named, None
    here = lanes.lane_of_shape("geqrf", device, torch.float32, torch.Size((case.batch, case.m, case.n)))
    return here, f"{named} does not work on this device with this build of torch, or without triton"


def floor_ns(case: Case, peaks: Peaks | None) -> float | None:
    """What flops, by the faster way to float32 accuracy, and bytes, A read and H written, take at measured peaks."""
    if peaks is None:
        return None
    rate = max(peaks.flops.get("float", 0.0), peaks.flops.get("tf32", 0.0) / TF32_PRODUCTS)
    return 1e9 * max(case.flops / rate, 2 * case.bytes / peaks.copy_bytes_per_s) if rate else None
