"""A run watched for how long its steps take, without a profiler, and how much memory it holds after each.

What is read between two steps lies outside of both. Where a trace is asked for, it is of the steps after those.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qrprof.kernels.running.training import ending, guarded, held, hits, peak, swaps
from qrprof.kernels.running.watched import Timed
from qrprof.profiler.recording import boundaries, clock, runrecord, window
from qrprof.profiler.recording.clock import Stamp
from qrprof.profiler.recording.plan import Settings
from qrprof.profiler.recording.runrecord import Block, Facts, SeenStep, Task


@dataclass(frozen=True)
class Pace:
    file: Path  # of the record
    warmup: int
    steps: int
    traced: int  # steps to trace after them; 0: none
    folder: Path | None  # of the trace and its run's record
    base: dict[str, Any] = field(default_factory=dict)  # what the parent knows of the run


@dataclass
class Seen:
    steps: int = 0
    source: str = ""
    stretches: list[tuple[Stamp, Stamp]] = field(default_factory=list)
    begin: Stamp | None = None
    memory: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)
    hits: int = 0  # by the end of the step before
    turn: window.Turn = field(default_factory=window.Turn)
    opened: window.Window | None = None
    untraced: bool = False  # the program uses torch's profiler itself


def install(settings: dict[str, Any]) -> None:
    """`settings`: file, warmup, steps, traced, folder, base; as Pace."""
    folder = Path(settings["folder"]) if settings["folder"] else None
    pace = Pace(
        Path(settings["file"]), settings["warmup"], settings["steps"], settings["traced"], folder, settings["base"]
    )
    seen, pid = Seen(), os.getpid()

    def record() -> Timed:
        kind, steps = clock.durations_ns(seen.stretches)
        return Timed(kind, tuple(steps), tuple(seen.memory), tuple(seen.served), peak(), swaps())

    end = ending(pace.file, record)

    def boundary(source: str) -> None:
        if os.getpid() == pid:
            guarded(pace.file, lambda: step_ended(source, seen, pace, end))

    def theirs() -> None:
        if os.getpid() == pid:
            guarded(pace.file, lambda: give_way(seen))

    boundaries.watch_optimizers(boundary)
    if pace.traced:
        window.watch_other_profilers(seen.turn, theirs)


def step_ended(source: str, seen: Seen, pace: Pace, end: Callable[[], None]) -> None:
    seen.source = source
    ended, before = clock.stamp(), seen.hits
    seen.hits = hits()
    if seen.begin is not None:
        seen.stretches.append((seen.begin, ended))
        seen.memory.append(held())
        seen.served.append(seen.hits - before)
    seen.steps += 1
    into, traced = seen.steps - pace.warmup - pace.steps, 0 if seen.untraced else pace.traced
    if into >= 0 and traced:
        trace(into, seen, pace)
    if into >= (traced + 1 if traced else 0):
        end()
    seen.begin = clock.stamp() if seen.steps >= pace.warmup and into < 0 else None


def give_way(seen: Seen) -> None:
    """torch has one profiler, and crashes where two use it in turns."""
    seen.untraced = True
    if seen.opened is not None and seen.opened.running:
        seen.opened.stop(another_follows=True)


def trace(into: int, seen: Seen, pace: Pace) -> None:
    """The window opens with a lead-in step, and closes with the last step's mark."""
    if into == 0:
        seen.opened = window.Window(seen.turn, shapes=True, device=clock.uses_device())
        seen.opened.start()
        return
    if seen.opened is None:
        return
    seen.opened.mark(seen.steps)
    if into == pace.traced + 1:
        seen.opened.stop()
        keep(seen.opened, seen, pace)


def keep(kept: window.Window, seen: Seen, pace: Pace) -> None:
    """Write the trace, and the record of a run whose unprofiled steps are the timed ones."""
    if pace.folder is None:
        return
    kept.save(pace.folder / runrecord.trace_name(0))
    recorded = tuple(kept.marks[:-1])
    timed = range(pace.warmup, pace.warmup + pace.steps)
    steps = [SeenStep(index, {}, None, 0) for index in (*timed, *recorded)]
    blocks = (Block(pace.warmup, tuple(seen.stretches)),)
    wall_ns = sum(clock.durations_ns(seen.stretches)[1])
    facts = Facts(seen.source, tuple(steps), blocks, recorded, {}, gauge_ns=None, notes=(), wall_ns=wall_ns)
    task = Task(Settings(), pace.folder, None, None, True, 0, 0, pace.base)
    runrecord.write(task, facts)
