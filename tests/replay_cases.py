"""A simulator of programs, to test the replay against: it gives a trace, and the exact steps with other durations.

It knows nothing of the replay. A program is what its host threads do, action by action; its device runs each stream
in order. Times are ns. The rules of the machine:

- A kernel starts `delay` after its launching call returned, `pause` after the one before it on its stream ended, and
  `wait` after the event that its stream waits for; whatever comes last.
- A launching call returns no earlier than `room` after the launch `queue` before it on its stream has started.
- A synchronising call takes `own`, and returns no earlier than `back` after what it waits for is done.
- A step ends when the host has passed its mark and the work launched before it is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from qrprof.profiler.events import ANNOTATION, COPY, KERNEL, MARK_PREFIX, OP, RUNTIME, SYNC
from qrprof.profiler.trace import Trace

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NODE = "autograd::engine::evaluate_function: MmBackward0"
MAIN, ENGINE = 1, 2  # threads
SIDE = 20  # a second stream


@dataclass(frozen=True)
class Busy:
    ns: int


@dataclass(frozen=True)
class Op:
    name: str
    body: tuple["Action", ...]


@dataclass(frozen=True)
class Launch:
    kernel: str
    ns: int
    stream: int = 7
    api: int = 4000


@dataclass(frozen=True)
class GraphLaunch:
    """One launch of many kernels; each follows the one before it by the machine's `inside`."""

    kernels: tuple[tuple[str, int], ...]
    stream: int = 7
    api: int = 9000


@dataclass(frozen=True)
class Item:
    """A copy to the host that blocks its caller."""

    ns: int
    stream: int = 7


@dataclass(frozen=True)
class Record:
    event: str
    stream: int = 7


@dataclass(frozen=True)
class WaitEvent:
    event: str
    stream: int = SIDE


@dataclass(frozen=True)
class Synchronize:
    stream: int | None = None  # None: all of the device


@dataclass(frozen=True)
class Load:
    ns: int


@dataclass(frozen=True)
class Backward:
    """The engine's thread works; the calling thread pauses, from `hand` ns before it begins until it ends."""

    body: tuple["Action", ...]
    hand: int = 6000


@dataclass(frozen=True)
class Mark:
    pass


Action = Busy | Op | Launch | GraphLaunch | Item | Record | WaitEvent | Synchronize | Load | Backward | Mark
LAUNCHING = (Launch, GraphLaunch, Item)


@dataclass(frozen=True)
class Rules:
    delay: int = 2000
    pause: int = 1000
    inside: int = 500
    wait: int = 1500
    own: int = 2000
    back: int = 2000
    call: int = 2000  # of an event call
    queue: int = 1024
    room: int = 700  # from the start of work to the return of the launch that it blocked
    between: int = 300  # pause that is left where nothing is launched any more


@dataclass(frozen=True)
class Change:
    """Factors by name: of all that an op does and calls, of kernels, of causes ("launch", "sync", "copy", "data")."""

    ops: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, float] = field(default_factory=dict)
    causes: Mapping[str, float] = field(default_factory=dict)


SAME = Change()


def steps(*bodies: Sequence[Action], before: Sequence[Action] = ()) -> tuple[Action, ...]:
    """A program of these steps, and what it does before the first of them."""
    return (*before, *(action for body in bodies for action in (Mark(), *body)), Mark())


def count_launches(program: Sequence[Action]) -> list[int]:
    """Of each step; before the first mark counts as one."""
    counts = [0]
    for action in program:
        if isinstance(action, Mark):
            counts.append(0)
        elif isinstance(action, LAUNCHING):
            counts[-1] += 1
        elif isinstance(action, Op | Backward):
            counts[-1] += sum(count_launches(action.body))
    return counts


class Machine:
    """Runs one program, once."""

    def __init__(self, program: Sequence[Action], change: Change = SAME, rules: Rules | None = None) -> None:
        self.change = change
        self.rules = rules or Rules()
        self.now: float = 0
        self.thread = MAIN
        self.rows: list[dict[str, Any]] = []
        self.bounds: list[float] = []
        self.open: list[str] = []  # ops, the innermost last
        self.ends: dict[int, float] = {}  # of the last work of each stream
        self.starts: dict[int, list[float]] = {}
        self.held: dict[int, float] = {}  # no work of the stream before that
        self.recorded: dict[str, tuple[float, int, int]] = {}  # when an event is done, its call, its stream
        self.correlation = 0
        self.launches, self.launched = count_launches(program), 0
        self.body(program)

    @property
    def trace(self) -> Trace:
        return Trace.from_rows(self.rows)

    def mean_step(self, weights: Sequence[float] = ()) -> float:
        spans = [end - start for start, end in zip(self.bounds, self.bounds[1:], strict=False)]
        shares = weights or [1.0] * len(spans)
        return sum(span * share for span, share in zip(spans, shares, strict=True)) / sum(shares)

    # --- time

    def factor(self, cause: str = "") -> float:
        return prod(self.change.ops.get(name, 1) for name in set(self.open)) * self.change.causes.get(cause, 1)

    def spend(self, ns: float, cause: str) -> None:
        self.now += ns * self.factor(cause)

    def pass_by(self, ns: float) -> None:
        """Work of the host itself: in an op it is part of launching, and so is what lies between two launches."""
        between = 0 < self.launched < self.launches[len(self.bounds)]
        self.spend(ns, "launch" if self.open or between else "host")

    def row(self, kind: str, name: str, start: float, end: float, **columns: Any) -> None:
        self.rows.append({"kind": kind, "name": name, "start": start, "end": end, "track": self.thread} | columns)

    def on_device(self, kind: str, name: str, start: float, end: float, stream: int, **columns: Any) -> None:
        self.row(kind, name, start, end, **({"device": 0, "track": stream, "correlation": self.correlation} | columns))

    # --- actions

    def body(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case Busy(ns):
                self.pass_by(ns)
            case Op(name, body):
                self.op(name, body)
            case Launch(kernel, ns, stream, api):
                self.launch("cudaLaunchKernel", ((kernel, ns),), stream, api)
            case GraphLaunch(kernels, stream, api):
                self.launch("cudaGraphLaunch", kernels, stream, api)
            case Item(ns, stream):
                self.op("aten::_local_scalar_dense", (), (ns, stream))
            case Record(event, stream):
                self.call("cudaEventRecord")
                self.recorded[event] = max(self.now, self.ends.get(stream, 0)), self.correlation, stream
            case WaitEvent(event, stream):
                self.wait(event, stream)
            case Synchronize(stream):
                self.synchronize(stream)
            case Load(ns):
                start = self.now
                self.spend(ns, "data")
                self.row(ANNOTATION, LOADER, start, self.now)
            case Backward(body, hand):
                self.pass_by(hand)
                self.thread = ENGINE
                self.body(body)
                self.thread = MAIN
            case Mark():
                self.row(ANNOTATION, f"{MARK_PREFIX}{len(self.bounds)}", self.now, self.now + 1)
                self.bounds.append(max(self.now, *self.ends.values(), 0))
                self.now += 1
                self.launched = 0

    def op(self, name: str, body: Sequence[Action], copied: tuple[int, int] | None = None) -> None:
        start = self.now
        self.open.append(name)
        self.body(body)
        if copied:
            self.copy_back(*copied)
        self.open.pop()
        self.row(OP, name, start, self.now)

    def call(self, name: str) -> None:
        self.correlation += 1
        start = self.now
        self.spend(self.rules.call, "launch")
        self.row(RUNTIME, name, start, self.now, correlation=self.correlation)

    def launch(self, name: str, kernels: Sequence[tuple[str, int]], stream: int, api: int) -> None:
        self.correlation += 1
        self.launched += 1
        start = self.now
        self.spend(api, "launch")
        starts = self.starts.setdefault(stream, [])
        if len(starts) >= self.rules.queue:
            self.now = max(self.now, starts[-self.rules.queue] + self.rules.room)
        self.row(RUNTIME, name, start, self.now, correlation=self.correlation)
        for place, (kernel, ns) in enumerate(kernels):
            self.work(KERNEL, kernel, ns, stream, self.now, self.rules.inside if place else self.rules.pause)

    def work(self, kind: str, name: str, ns: float, stream: int, called: float, pause: float) -> float:
        """Put work on a stream; its end."""
        owned = self.factor()
        least = min(pause, self.rules.between) if "launch" in self.change.causes else 0
        pause = max(pause * owned * self.change.causes.get("launch", 1), least)
        start = called + self.rules.delay * owned
        if stream in self.ends:
            start = max(start, self.ends[stream] + pause)
        if stream in self.held:
            start = max(start, self.held.pop(stream) + self.rules.wait * owned)
        ns *= owned * self.change.kernels.get(name, 1) * (self.change.causes.get("copy", 1) if kind == COPY else 1)
        self.starts.setdefault(stream, []).append(start)
        self.ends[stream] = start + ns
        self.on_device(kind, name, start, start + ns, stream)
        return start + ns

    def copy_back(self, ns: int, stream: int) -> None:
        self.correlation += 1
        self.launched += 1
        start = self.now
        done = self.work(COPY, "Memcpy DtoH", ns, stream, start, self.rules.pause)
        self.until(done, "copy")
        self.row(RUNTIME, "cudaMemcpyAsync", start, self.now, correlation=self.correlation)

    def wait(self, event: str, stream: int) -> None:
        self.call("cudaStreamWaitEvent")
        moment, call, recorded = self.recorded[event]
        self.held[stream] = max(moment, self.held.get(stream, 0))
        awaits = {"awaits": call, "awaits_stream": recorded}
        self.on_device(SYNC, "Stream Wait Event", self.now, self.now + 1, stream, **awaits)

    def synchronize(self, stream: int | None) -> None:
        self.correlation += 1
        start = self.now
        awaited = self.ends.values() if stream is None else [self.ends.get(stream, 0)]
        self.until(max(awaited, default=0), "sync")
        name = "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"
        self.row(RUNTIME, name, start, self.now, correlation=self.correlation)
        if stream is not None:
            self.on_device(SYNC, "Stream Sync", start, self.now, stream)

    def until(self, done: float, cause: str) -> None:
        """Wait for the device; a wait that takes no time waits for nothing."""
        factor = self.factor(cause)
        if factor:
            self.now = max(self.now + self.rules.own * factor, done + self.rules.back * factor)
