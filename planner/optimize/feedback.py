"""What a proposer is told of the profile: one sentence each, with figures, of the run, of the task and of a verdict."""

from collections.abc import Iterator, Mapping
from typing import Final

from qrprof.planner.counts import Work
from qrprof.planner.gate.floor import case_work, floor_ns
from qrprof.planner.gate.records import CaseTime, Task, TaskCase, Verdict
from qrprof.planner.optimize.records import Known
from qrprof.planner.roofline import Levels, remaining
from qrprof.profiler import units
from qrprof.profiler.devices import Peaks
from qrprof.profiler.events import CAUSE_LABELS
from qrprof.profiler.facts import Facts
from qrprof.profiler.gaps import find_idle
from qrprof.profiler.launches import find_launches, per_step
from qrprof.profiler.panels import find_panels
from qrprof.profiler.panelsums import PanelShape, by_call, by_shape
from qrprof.profiler.runinfo import RunInfo

SHAPES: Final = 3  # of QR calls that are told
SMALL: Final = 0.01  # share of a call below which a phase is not told


def of_run(facts: Facts, run: RunInfo, task: Task) -> tuple[str, ...]:
    """What the task's op costs the run: its time, its launches, idle time that it is to blame for, its QR calls."""
    key = f"aten::{task.op.partition('.')[0]}"
    return (
        *cost(key, task.step_ns, run.step_ns()),
        *launching(facts, run, key),
        *idling(facts, run, key),
        *(panel(shape) for shape in panel_shapes(facts, key)),
    )


def cost(key: str, ns: float | None, step_ns: float | None) -> Iterator[str]:
    if ns is not None and step_ns:
        yield f"{key} takes {units.time(ns)} of a mean step of {units.time(step_ns)}, {units.share(ns / step_ns)}"


def launching(facts: Facts, run: RunInfo | None, key: str) -> Iterator[str]:
    """How many kernels the op launches, and how short they are. Nothing where the trace has no launches."""
    found = find_launches(facts, run)
    if found.calls.empty:
        return
    ops = per_step(found.calls, "op")
    for row in ops[ops["op"] == key].to_dict("records"):
        if row["items"] > 0:
            yield (
                f"it launches {units.calls(row['items'])} kernels a step, {units.time(row['work_ns'] / row['items'])} "
                f"each on average, {units.calls(row['short'])} of them under 10 us"
            )


def idling(facts: Facts, run: RunInfo | None, key: str) -> Iterator[str]:
    """Idle time of the device that the op is to blame for, by cause."""
    sums: dict[str, float] = {}
    for gap in find_idle(facts, run).gaps or []:
        if gap.op == key:
            sums[gap.cause] = sums.get(gap.cause, 0.0) + gap.weight * gap.ns
    for cause, ns in sorted(sums.items(), key=lambda pair: -pair[1]):
        yield f"the device idles {units.time(ns)} a step inside it ({CAUSE_LABELS[cause]})"


def panel_shapes(facts: Facts, key: str) -> list[PanelShape]:
    """QR calls of the op by shape, the largest first, where they are split into phases."""
    shapes = by_shape(by_call(find_panels(facts)))
    return [shape for shape in shapes if shape.op == key and shape.phases and shape.ns][:SHAPES]


def panel(shape: PanelShape) -> str:
    """ "QR of 8 x 512 x 512 by cuSOLVER: 13.4 ms a call; geqr2 40.1 %, larfb 33.0 %, gaps 20.5 %"."""
    parts: Mapping[str, float | None] = {**(shape.phases or {}), "gaps": shape.gap}
    told = sorted(((ns, phase) for phase, ns in parts.items() if ns), reverse=True)
    shares = [(ns / (shape.ns or ns), phase) for ns, phase in told]
    sizes = f" of {shape.size.batch} x {shape.size.m} x {shape.size.n}" if shape.size else ""
    library = f" by {shape.library}" if shape.library else ""
    listed = ", ".join(f"{phase} {units.share(share)}" for share, phase in shares if share >= SMALL)
    return f"QR{sizes}{library}: {units.time(shape.ns)} a call; {listed}"


def of_task(task: Task, peaks: Peaks | None) -> tuple[str, ...]:
    """For each case what it costs by this device's measured peaks. Nothing without peaks, or for unknown work."""
    return tuple(f"{case.name}: {text}" for case in task.development if (text := bounds(task, case, peaks)))


def bounds(task: Task, case: TaskCase, peaks: Peaks | None) -> str:
    todo = case_work(task.op, case)
    levels = levels_of(todo, peaks)
    if todo is None or levels is None:
        return ""
    floor = floor_ns(task.op, case, task.device, peaks)
    flops = f"{units.digits(todo.flops / 1e6)} Mflop, " if todo.flops else ""
    return (
        f"{units.share(case.weight)} of the time; {flops}{units.size(todo.bytes)} moved; "
        f"a good kernel takes {units.time(levels.mid)}, none less than {units.time(floor)}"
    )


def levels_of(todo: Work | None, peaks: Peaks | None) -> Levels | None:
    """Of one call; None where its work or the peaks are not known."""
    return remaining(todo, 1.0, peaks) if todo and peaks else None


def of_verdict(verdict: Verdict, task: Task, peaks: Peaks | None) -> tuple[str, ...]:
    """What the file judged last achieved, and where it gained least. Nothing where it was not timed."""
    if not verdict.times:
        return ()
    cases = {case.name: case for case in task.development}
    told = [achieved(time, task, cases[time.case], peaks) for time in verdict.times if time.case in cases]
    if len(verdict.times) > 1:
        worst = min(verdict.times, key=lambda time: time.speedup.mid)
        told.append(f"it gained least on {worst.case}: {units.ratio(worst.speedup.mid)} the stock op's speed")
    return tuple(told)


def achieved(time: CaseTime, task: Task, case: TaskCase, peaks: Peaks | None) -> str:
    told = (
        f"{time.case}: the file judged last {units.time(time.candidate_ns)}, the stock op {units.time(time.stock_ns)}"
    )
    levels = levels_of(case_work(task.op, case), peaks)
    if levels is None or not levels.mid or time.candidate_ns <= 0:
        return told
    return f"{told}; {units.share(levels.mid / time.candidate_ns)} of what a good kernel reaches"


def of_best(known: Known) -> tuple[str, ...]:
    """Where the best of the first lane gains least, by its latest short look. Nothing of a task of one case."""
    best = known.beam[0][0] if known.beam and known.beam[0] else None
    if best is None or len(best.cases) < 2:
        return ()
    name, over = min(best.cases.items(), key=lambda pair: pair[1].mid)
    return (f"try {best.number} gains least on {name}: {units.ratio(over.mid)} the speed of what it has to beat",)
