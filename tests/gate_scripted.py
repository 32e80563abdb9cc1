"""A worker without a process: the candidate is a function of this test, and time passes as the test says."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from qrprof.planner.gate.aten_task import call as stock_call
from qrprof.planner.gate.draw import laid_out
from qrprof.planner.gate.gate import Lane, run_gate
from qrprof.planner.gate.records import ArgSpec, Domain, Stage, Task, TaskCase, Tolerance, Verdict
from qrprof.planner.gate.replies import TENSOR, Arguments, Built, Call, Ended, Reply, Seen, Sign

Candidate = Callable[..., Any]


class Clock:
    """ns that pass only when a worker says so."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


@dataclass(frozen=True)
class Script:
    """A file's content: `make` gives the candidate anew for each process; the rest is what its worker sees."""

    make: Callable[[], Candidate]
    cost_ns: float = 5e6  # of a call
    trip_ns: float = 20_000.0  # of a call's inputs and outputs
    spread: float = 0.01  # of a request's time
    hidden: float = 0.0  # share of the cost that the child's clock does not see
    watched: Callable[[int], tuple[Sign, ...]] = lambda number: ()  # signs of a watched request, by its number
    late: tuple[Sign, ...] = ()  # of every watched call
    peak_bytes: int | None = 0
    kernels: tuple[str, ...] | None = None  # that run
    declared: tuple[str, ...] = ()
    built: tuple[Sign, ...] = ()
    ends: Mapping[int, Ended] = field(default_factory=dict)  # by number of the request, the import being 0


class ScriptedWorker:
    layer = "none"

    def __init__(self, script: Script, clock: Clock, seed: int) -> None:
        self.script = script
        self.clock = clock
        self.random = random.Random(seed)
        self.requests = 0
        self.last: list[Arguments] = []

    def build(self) -> Built:
        self.end()
        self.candidate = self.script.make()
        return Built(1.0, self.script.declared, self.script.built)

    def call(self, inputs: Sequence[Arguments], *, watch: bool = False, again: bool = False) -> Reply:
        self.end()
        given = self.refilled(inputs) if again else [own(args) for args in inputs]
        self.last = given
        results = [answer(self.candidate, args) for args in given]
        late = self.script.late if watch else ()
        calls = tuple(
            called(number, given, results, mutated(args, mine), late)
            for number, (args, mine) in enumerate(zip(inputs, given, strict=True))
        )
        work = self.passing(self.script.cost_ns * len(inputs))
        trip = self.passing(self.script.trip_ns * len(inputs))
        return Reply(
            calls,
            wall_ns=work + trip,
            testimony_ns=round(work * (1 - self.script.hidden)),
            signs=self.script.watched(self.requests) if watch else (),
            kernels=self.script.kernels if watch else None,
            peak_bytes=self.script.peak_bytes if watch else None,
        )

    def echo(self, inputs: Sequence[Arguments], outputs: Sequence[Sequence[Tensor]]) -> int:
        return self.passing(self.script.trip_ns * len(inputs))

    def refilled(self, inputs: Sequence[Arguments]) -> list[Arguments]:
        for mine, new in zip(self.last, inputs, strict=True):
            for old, value in zip(mine, new, strict=True):
                if isinstance(old, Tensor):
                    old.data.copy_(value)
        return self.last

    def passing(self, ns: float) -> int:
        taken = round(ns * (1 + self.script.spread * abs(self.random.gauss(0, 1))))
        self.clock.ns += taken
        return taken

    def end(self) -> None:
        if self.requests in self.script.ends:
            raise self.script.ends[self.requests]
        self.requests += 1


def workers(scripts: Mapping[str, Script], clock: Clock) -> Callable[[Path], Any]:
    """Workers on files by name."""
    started = 0

    @contextmanager
    def start(source: Path) -> Iterator[ScriptedWorker]:
        nonlocal started
        started += 1
        yield ScriptedWorker(scripts[source.name], clock, started)

    return start


def own(args: Arguments) -> Arguments:
    return tuple(copied(value) if isinstance(value, Tensor) else value for value in args)


def copied(value: Tensor) -> Tensor:
    return laid_out(value, ArgSpec(tuple(value.shape), name(value), value.stride()))


def name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def answer(candidate: Candidate, args: Arguments) -> tuple[Any, ...] | str:
    """The outputs, or what was raised."""
    try:
        result = candidate(*args)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return result if isinstance(result, tuple) else (result,)


def mutated(args: Arguments, mine: Arguments) -> tuple[int, ...]:
    pairs = enumerate(zip(args, mine, strict=True))
    return tuple(at for at, (a, b) in pairs if isinstance(a, Tensor) and not a.equal(b) and not a.isnan().any())


def called(
    number: int,
    given: Sequence[Arguments],
    results: Sequence[tuple[Any, ...] | str],
    changed: tuple[int, ...],
    late: tuple[Sign, ...],
) -> Call:
    """Outputs are taken when all calls have returned, as a worker does."""
    result = results[number]
    if isinstance(result, str):
        return Call((), (), result, changed, late)
    others = {f"argument {at}": value for at, value in enumerate(given[number]) if isinstance(value, Tensor)}
    for other, outputs in enumerate(results):
        if other != number and not isinstance(outputs, str):
            others |= {
                f"output {at} of call {other}": value for at, value in enumerate(outputs) if type(value) is Tensor
            }
    seen = tuple(look(value, others) for value in result)
    plain = tuple(value.detach().clone().contiguous() if type(value) is Tensor else Tensor() for value in result)
    return Call(plain, seen, None, changed, late)


def look(value: Any, others: Mapping[str, Tensor]) -> Seen:
    if type(value) is not Tensor or value.__dict__:
        return Seen(f"a {type(value).__name__}")
    return Seen(
        TENSOR,
        name(value),
        tuple(value.shape),
        value.stride(),
        int(value.storage_offset()),
        value.device.type,
        value.requires_grad,
        tuple(whose for whose, other in others.items() if overlap(value, other)),
    )


def overlap(a: Tensor, b: Tensor) -> bool:
    return bool(a.numel() and b.numel()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


# --- tasks


def case(rows: int, columns: int, weight: float) -> TaskCase:
    return TaskCase(f"{rows}x{columns}", weight, (ArgSpec((rows, columns), "float32"),), (1, False))


SOFTMAX = Task(
    "softmax",
    "_softmax",
    "cpu",
    (case(16, 8, 0.4), case(8, 12, 0.6)),
    Domain("leading", 2, True, ("wide", "offset", "one_bad"), (1.0, 0.01)),
    "relative",
    Tolerance(),
    "built in",
)
GEQRF = Task(
    "geqrf",
    "geqrf",
    "cpu",
    (TaskCase("6x8x4", 1.0, (ArgSpec((6, 8, 4), "float32"),), structure="dense"),),
    Domain("leading", 2, True, ("upper", "rankdef", "single_bad", "huge")),
    "qr",
    Tolerance(),
    "built in",
)


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    weights = (x.contiguous() - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


def stock_of(task: Task) -> Candidate:
    return lambda *args: stock_call(task.op, args)


FIRST = Lane()


def gate(
    tmp_path: Path,
    script: Script,
    *,
    task: Task = SOFTMAX,
    parent: Script | None = None,
    stock: Script | None = None,
    until: Stage = "holdout",
    lane: Lane = FIRST,
    seed: int = 0,
) -> Verdict:
    clock = Clock()
    files = {"stock.py": stock or Script(lambda: stock_of(task)), "candidate.py": script}
    paths = {name: tmp_path / name for name in ("candidate.py", "parent.py")}
    for path in paths.values():
        path.write_text("def candidate(*args): ...\n", encoding="utf-8")
    if parent:
        files["parent.py"] = parent
    seeds = iter(range(1000 * seed + 1, 10**9))
    return run_gate(
        task,
        paths["candidate.py"],
        paths["parent.py"] if parent else None,
        workers=workers(files, clock),
        clock=clock,
        seeds=lambda: next(seeds),
        lane=lane,
        until=until,
    )


def found(verdict: Verdict) -> set[str]:
    return {finding.detector for finding in verdict.findings if finding.outcome != "PASS"}


def fast(candidate: Candidate = softmax, **fields: Any) -> Script:
    return Script(lambda: candidate, cost_ns=2e6, **fields)


def imprecise(x: Tensor, dim: int, half: bool) -> Tensor:
    return softmax(x.bfloat16(), dim).float()
