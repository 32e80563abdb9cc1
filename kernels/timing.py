"""The timing protocol for kernels: two times of a call, taken of several contenders in turn.

`call` is one eager call on an idle device: what a program waits for that has nothing else to do. `device` is what the
device needs: a CUDA graph of up to MOST_CALLS calls, each on an input of its own, is replayed, and its time divided by
their number. Before every reading the L2 is filled with other data. Where a call cannot be captured, and on a CPU, a
loop of calls stands for the graph, and the record says so. Contenders take turns there and back (ABBA), so that a
drifting clock, heat and neighbours meet all of them alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np
import torch

from qrprof.kernels.capture import NoGraph, captured
from qrprof.profiler.recording.clock import DEVICE_EVENTS, HOST_CLOCK

MOST_CALLS: Final = 50  # of a graph; as many as the QR contest times at once
READING_NS: Final = 100e6  # of one reading of the device time: fewer calls where they are long
MOST_PAIRS: Final = 50  # of rounds, there and back
FLUSH_BYTES: Final = 256 << 20  # written before each reading, at least
TIMES_L2: Final = 4

EAGER: Final = "one eager call on an idle device"
GRAPH: Final = "CUDA graph"
LOOP: Final = "loop of calls"


class Clock(Protocol):
    """A device and how time is taken on it. All times are in ns."""

    @property
    def name(self) -> str: ...

    def now(self) -> int:
        """The host's clock, for budgets and for what compiles."""

    def idle(self) -> None:
        """Wait until the device has nothing left to do."""

    def flush(self) -> None:
        """Have the device fill its L2 with other data; does not wait for that."""

    def span(self, work: Callable[[], object]) -> float:
        """ns from the begin of `work` to the end of all that it gave the device."""

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """What does the same again as one graph. Raises NoGraph."""

    def peak_bytes(self, work: Callable[[], object]) -> int | None:
        """Most device memory that `work` holds at a time beyond what was held before it; None: not known."""


@dataclass(frozen=True)
class HostClock:
    """A CPU: calls return when they are done."""

    name: str = HOST_CLOCK

    def now(self) -> int:
        return perf_counter_ns()

    def idle(self) -> None:
        return

    def flush(self) -> None:
        return

    def span(self, work: Callable[[], object]) -> float:
        start = perf_counter_ns()
        work()
        return perf_counter_ns() - start

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        raise NoGraph("a CPU has no graphs")

    def peak_bytes(self, work: Callable[[], object]) -> int | None:
        work()
        return None


class DeviceClock:
    """A GPU, by events in its current stream. Holds a buffer larger than the GPU's L2."""

    name = DEVICE_EVENTS

    def __init__(self, device: torch.device) -> None:
        self.device = device
        l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        self.other_data = torch.empty(max(FLUSH_BYTES, TIMES_L2 * l2_bytes), dtype=torch.uint8, device=device)

    def now(self) -> int:
        return perf_counter_ns()

    def idle(self) -> None:
        torch.cuda.synchronize(self.device)

    def flush(self) -> None:
        self.other_data.zero_()

    def span(self, work: Callable[[], object]) -> float:
        with torch.cuda.device(self.device):
            start, end = (torch.Event(self.device, enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
        return 1e6 * start.elapsed_time(end)

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        try:
            graph, _ = captured(work, self.device)
        except NoGraph as error:
            raise NoGraph(f"no capture: {error}") from None
        return graph.replay

    def peak_bytes(self, work: Callable[[], object]) -> int | None:
        self.idle()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        self.idle()
        return torch.cuda.max_memory_allocated(self.device) - before


def clock_of(device: torch.device) -> Clock:
    return DeviceClock(device) if device.type == "cuda" else HostClock()


@dataclass(frozen=True)
class Contender:
    """`call` takes one of `inputs`, which differ in value, not in cost."""

    name: str
    call: Callable[[Any], object]
    inputs: Sequence[Any]
    clock: Clock


@dataclass(frozen=True)
class Warm:
    """A contender that has run: the first call, which compiles, and memory are apart from the times of a call."""

    contender: Contender
    first_ns: float
    once_ns: float  # of a later call, roughly
    peak_bytes: int | None  # beside the input: results and workspace


@dataclass(frozen=True)
class Timing:
    """Quantiles of the time of one call, over `n` readings of `calls` calls each, and how they were taken."""

    n: int
    calls: int
    median_ns: float
    p05_ns: float
    p95_ns: float
    clock: str
    how: str


@dataclass(frozen=True)
class Measured:
    first_ns: float
    peak_bytes: int | None
    call: Timing
    device: Timing


def warm_up(contender: Contender) -> Warm:
    """Three calls, so that what follows compiles nothing. Raises what the call raises."""
    clock, inputs = contender.clock, contender.inputs

    def once() -> float:
        start = clock.now()
        contender.call(inputs[0])
        clock.idle()
        return clock.now() - start

    clock.idle()
    first_ns = once()
    peak = clock.peak_bytes(lambda: contender.call(inputs[0]))
    return Warm(contender, first_ns, once(), peak)


def compare(field: Sequence[Warm], seconds: float) -> list[Measured]:
    """Both times of each contender; readings end after about `seconds`, at the earliest after two of each."""
    if not field:
        return []
    now = field[0].contender.clock.now
    readers = [(EagerReader(warm), GraphReader(warm)) for warm in field]
    calls = take_turns([eager.read for eager, _ in readers], seconds / 2, now)
    spans = take_turns([graph.read for _, graph in readers], seconds / 2, now)
    return [
        Measured(warm.first_ns, warm.peak_bytes, eager.timing(one), graph.timing(many))
        for warm, (eager, graph), one, many in zip(field, readers, calls, spans, strict=True)
    ]


class EagerReader:
    """Reads `call`, on the next input each time."""

    def __init__(self, warm: Warm) -> None:
        self.contender = warm.contender
        self.taken = 0

    def read(self) -> float:
        clock, inputs = self.contender.clock, self.contender.inputs
        chosen = inputs[self.taken % len(inputs)]
        self.taken += 1
        clock.flush()
        clock.idle()
        return clock.span(lambda: self.contender.call(chosen))

    def timing(self, readings: Sequence[float]) -> Timing:
        return timing(readings, 1, self.contender.clock.name, EAGER)


class GraphReader:
    """Reads `device`; the graph is made here."""

    def __init__(self, warm: Warm) -> None:
        self.clock = warm.contender.clock
        self.inputs = warm.contender.inputs[: calls_of(warm.once_ns)]
        call = warm.contender.call

        def work() -> None:
            for one in self.inputs:
                call(one)

        self.how = GRAPH
        try:
            self.work = self.clock.capture(work)
            self.work()  # the first replay uploads the graph
        except NoGraph as error:
            self.work, self.how = work, f"{LOOP}: {error}"

    def read(self) -> float:
        """The flush keeps the device busy while the host launches what comes after it."""
        self.clock.idle()
        self.clock.flush()
        return self.clock.span(self.work) / len(self.inputs)

    def timing(self, readings: Sequence[float]) -> Timing:
        return timing(readings, len(self.inputs), self.clock.name, self.how)


def calls_of(once_ns: float) -> int:
    """How many calls, each on an input of its own, one reading of the device time holds, where there are inputs."""
    return max(1, min(MOST_CALLS, int(READING_NS / max(once_ns, 1.0))))


def take_turns(readers: Sequence[Callable[[], float]], seconds: float, now: Callable[[], int]) -> list[list[float]]:
    """Readings of each reader, in rounds: every second round goes through them backwards.

    Ends where another pair of rounds would go beyond `seconds`, after one pair at the earliest.
    """
    readings: list[list[float]] = [[] for _ in readers]
    there = list(zip(readers, readings, strict=True))
    start = now()
    for pairs in range(1, MOST_PAIRS + 1):
        for read, taken in (*there, *reversed(there)):
            taken.append(read())
        elapsed = now() - start
        if elapsed + elapsed / pairs > 1e9 * seconds:
            break
    return readings


def timing(readings: Sequence[float], calls: int, clock: str, how: str) -> Timing:
    p05, median, p95 = (float(ns) for ns in np.quantile(readings, (0.05, 0.5, 0.95)))
    return Timing(len(readings), calls, median, p05, p95, clock, how)
