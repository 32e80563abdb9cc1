"""The recorder inside the user's program: driven by step boundaries, quiet between them.

It is installed when the script imports torch, follows `plan.decide`, writes the run as soon as the
recording is complete, and removes every hook. All of it runs in the thread that trains.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from qrprof.profiler.recording import boundaries, calls, clock, gauge, runrecord, window
from qrprof.profiler.recording.agree import Agree
from qrprof.profiler.recording.clock import Stamp
from qrprof.profiler.recording.plan import Decision, Phase, Progress, Step, decide
from qrprof.profiler.recording.runrecord import Block, Facts, SeenStep, Task

OPENING_SECONDS = 10.0  # of a program in which no step has ended yet; an op costs about 1 kB of memory
THEIRS = "the script runs torch.profiler itself; steps it profiled were left alone"
Report = Callable[[dict[str, Any]], None]


class Recorder:
    def __init__(self, task: Task, report: Report, agree: Agree) -> None:
        self.task = task
        self.report = report
        self.agree = agree
        self.tally = calls.Tally()
        self.pid = os.getpid()
        self.began = time.monotonic()
        self.installed_ns = time.perf_counter_ns()
        self.source = ""
        self.notes: list[str] = []
        self.stepped: boundaries.Stepped = {}
        self.undo: list[Callable[[], None]] = []
        self.boundaries = 0
        self.decisions = 0
        self.opening: window.Opening | None = None
        self.turn = window.Turn()
        self.profiled = False  # torch.profiler has been started
        self.finished = True  # until it is installed
        self.reset()

    def reset(self) -> None:
        """Back to the warm-up, with nothing seen and nothing recorded."""
        self.phase, self.length = Phase.WARMUP, max(1, self.task.settings.warmup)
        self.into = 0  # boundaries since the phase began
        self.seen: list[SeenStep] = []
        self.blocks: list[Block] = []
        self.stamps: list[list[Stamp]] = []  # of the block under way; our own decisions lie between two stretches
        self.disturbed = False  # the script's own profiler ran in this phase: its steps are not ours to time or record
        self.window: window.Window | None = None
        self.gauge_ns: float | None = None
        self.recorded: list[int] = []
        self.windows = 0
        self.tally.sampling = self.samples_wanted()

    # --- installing and removing

    def prepare(self) -> None:
        """Called before the script runs."""
        if self.task.range_name is not None:
            self.undo.append(boundaries.watch_nvtx(self.task.range_name, self.boundary))

    def install(self) -> None:
        """Called once torch has been imported."""
        task = self.task
        self.finished = False
        self.installed_ns = time.perf_counter_ns()
        os.register_at_fork(after_in_child=self.abandon)
        self.undo.append(calls.install(self.tally))
        self.undo.append(window.watch_other_profilers(self.turn, lambda: self.guard(self.other_started)))
        if task.range_name is not None:
            self.undo.append(boundaries.watch_range(task.range_name, self.boundary))
            return
        self.undo.append(boundaries.watch_optimizers(self.boundary, self.stepped))
        if task.settings.record:
            self.profiled = True
            self.tally.sampling = False  # its copies would stand in the window as the op's own
            self.opening = window.Opening(self.turn, task.shapes, OPENING_SECONDS)

    def guard(self, work: Callable[[], None]) -> None:
        """Do work of ours inside the script, which must not die of it: an error ends the recording instead."""
        not_compiled = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        try:
            (not_compiled(work) if not_compiled else work)()
        except Exception as error:  # noqa: BLE001 - the border between the script and us
            self.give_up(f"the recorder failed ({type(error).__name__}: {error}); the script went on without it")

    def give_up(self, sentence: str) -> None:
        self.finished = True
        self.report({"error": sentence})
        with contextlib.suppress(Exception):
            self.remove_hooks()
            self.drop_opening()
            if self.window is not None and self.window.running:
                self.window.stop()

    def abandon(self) -> None:
        """In a forked copy: count no steps, write nothing, and let no profiler go on collecting events."""
        import torch

        self.finished = True
        self.tally.sampling = False
        opening = self.opening is not None and self.opening.running()
        if opening or (self.window is not None and self.window.running):
            torch._C._autograd._clear_callbacks()  # type: ignore[attr-defined]

    def remove_hooks(self) -> None:
        for step in reversed(self.undo):
            step()
        self.undo.clear()

    # --- boundaries

    def boundary(self, source: str) -> None:
        """A step has ended."""
        if not self.finished and os.getpid() == self.pid:
            self.guard(lambda: self.step_ended(source))

    def step_ended(self, source: str) -> None:
        if self.boundaries == 0:
            self.source, self.began = source, time.monotonic()
            self.drop_opening()
            self.tally.sampling = self.samples_wanted()
        index, counts = self.boundaries, self.tally.take()
        self.boundaries += 1
        self.into += 1
        if not self.disturbed:
            if self.phase is Phase.UNPROFILED:
                self.stamps[-1].append(clock.stamp())
            if self.phase in (Phase.UNPROFILED, Phase.RECORD):
                self.seen.append(SeenStep(index, counts, self.host_ns(), min(self.windows, 1)))
            if self.phase is Phase.RECORD:
                self.record_boundary(index + 1)
        if self.into >= self.length and not self.finished:
            self.next_phase()

    def host_ns(self) -> int | None:
        if self.phase is not Phase.UNPROFILED:
            return None
        before, after = self.stamps[-1][-2:]
        return after.host_ns - before.host_ns

    def record_boundary(self, next_step: int) -> None:
        """The lead-in step ends with the first mark; the last mark ends the window; one step settles."""
        if self.window is None or self.into == self.length:
            return
        self.window.mark(next_step)
        if self.into == self.length - 1:
            gauge.record()
            self.close_window()

    def next_phase(self) -> None:
        decision = self.decided()
        if decision.phase is not Phase.UNPROFILED:
            self.close_block()
        if decision.phase is Phase.WARMUP:
            self.reset()
        self.phase, self.length, self.into = decision.phase, decision.steps, 0
        self.disturbed = self.turn.theirs
        self.tally.sampling = self.samples_wanted() and decision.phase in (Phase.WARMUP, Phase.SAMPLE)
        self.report({"phase": decision.phase.value, "steps": self.boundaries})
        match decision.phase:
            case Phase.UNPROFILED:
                self.stamps.append([clock.stamp()])
            case Phase.RECORD:
                self.length += 2  # the lead-in step and the settling one
                self.open_window()
            case Phase.DONE:
                self.finish()

    def samples_wanted(self) -> bool:
        return self.task.samples is not None and self.task.repeat == 0

    def decided(self) -> Decision:
        if self.phase is Phase.STOP:
            self.finish()
            leave(0)
        own = self.own_decision()
        self.decisions += 1
        try:
            agreed = self.agree(self.decisions, {"phase": own.phase.value, "steps": own.steps})
        except RuntimeError:
            self.notes.append("rank 0 gave no word for a minute: this rank chose its steps by itself")
            self.agree = lambda _, decision: decision
            return own
        return Decision(Phase(agreed["phase"]), agreed["steps"])

    def own_decision(self) -> Decision:
        if not self.disturbed:
            return decide(self.progress(), self.task.settings)
        if self.recorded:
            return Decision(Phase.DONE, 0)
        return Decision(Phase.WARMUP, self.task.settings.steps)  # begin again once their profiler is done

    def progress(self) -> Progress:
        steps = tuple(Step(s.index, runrecord.pattern(s.counts), s.host_ns, s.block) for s in self.seen)
        known = {call for step in self.seen for call in step.counts}
        return Progress(
            steps=steps,
            last=self.phase,
            windows=self.windows,
            recorded=tuple(self.recorded),
            seconds=time.monotonic() - self.began,
            unsampled=self.samples_wanted() and bool(known - self.tally.samples.keys()),
        )

    # --- the window

    def close_block(self) -> None:
        steps = sum(len(stretch) - 1 for stretch in self.stamps)
        if steps:
            stretches = tuple(tuple(stretch) for stretch in self.stamps)
            self.blocks.append(Block(self.seen[-1].index - steps + 1, stretches))
        self.stamps = []

    def open_window(self) -> None:
        self.window = None
        if not self.turn.theirs:
            self.profiled = True
            self.gauge_ns = gauge.plain_ns()
            self.window = window.Window(self.turn, self.task.shapes, clock.uses_device())
            self.window.start()

    def close_window(self) -> None:
        """Stop the profiler, keep the whole steps it holds, and write the run as it stands."""
        if self.window is None or not self.window.running:
            return
        self.window.stop()
        if len(self.window.marks) < 2:
            return
        recorded = self.window.marks[:-1]
        if self.save(self.window):
            self.recorded, self.windows = recorded, self.windows + 1
            self.write()

    def save(self, kept: window.Window) -> bool:
        path = self.task.folder / runrecord.trace_name(self.task.rank)
        try:
            kept.save(path)
        except OSError as error:
            self.give_up(f"cannot write {path}: {error.strerror or error}; free space or give --out")
            return False
        return True

    def drop_opening(self, *, another_follows: bool = False) -> None:
        if self.opening is not None:
            self.opening.drop(another_follows=another_follows)
            self.opening = None

    # --- other profilers

    def other_started(self) -> None:
        """The script starts torch.profiler itself: ours must be gone before."""
        if self.finished:
            return
        if THEIRS not in self.notes:
            self.notes.append(THEIRS)
        self.disturbed = True
        self.drop_opening(another_follows=True)
        self.close_block()
        if self.window is not None and self.window.running:
            self.window.stop(another_follows=True)

    # --- the end

    def at_exit(self) -> None:
        """The program ends: keep what is whole."""
        if not self.finished and os.getpid() == self.pid:
            self.guard(self.end)

    def end(self) -> None:
        self.close_block()
        if self.boundaries == 0 and self.opening is not None:
            self.record_whole_run()
        elif self.window is not None and self.window.running and self.recorded:
            self.window.stop()  # a second recording, cut short: the first one is whole
        elif self.window is not None and self.window.running:
            wanted = self.length - 2
            self.close_window()
            self.notes.append(f"the script ended after {len(self.recorded)} of {wanted} steps to record")
        if not self.finished:
            self.finish(over=True)

    def record_whole_run(self) -> None:
        opening, self.opening = self.opening, None
        if opening is None:
            return
        kept = opening.keep()
        if kept is not None and self.save(kept):
            self.source, self.recorded = "whole run", [0]
            if opening.cut:
                self.notes.append(f"only the first {OPENING_SECONDS:.0f} s were recorded; give --range NAME for steps")

    def finish(self, over: bool = False) -> None:
        self.finished = True
        self.remove_hooks()
        if self.task.repeat or self.recorded:
            self.write()
        self.report(
            {
                "over": over,
                "steps": self.boundaries,
                "recorded": len(self.recorded),
                "source": self.source,
                "theirs": THEIRS in self.notes,
            }
        )

    def facts(self) -> Facts:
        return Facts(
            source=self.source,
            seen=tuple(self.seen),
            blocks=tuple(self.blocks),
            recorded=tuple(self.recorded),
            samples=self.tally.samples,
            gauge_ns=self.gauge_ns,
            notes=(*self.notes, *boundaries.uneven(self.stepped)),
            wall_ns=time.perf_counter_ns() - self.installed_ns,
        )

    def write(self) -> None:
        try:
            runrecord.write(self.task, self.facts())
        except OSError as error:
            self.give_up(f"cannot write {self.task.folder}: {error.strerror or error}; free space or give --out")


def leave(status: int) -> None:
    """End the program without running its handlers: no exception is thrown into user code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, broken, closed
            stream.flush()
    os._exit(status)
