"""How much of what happened is in the trace, and whether its idle time may be believed.

Launches and device work are joined by correlation; each side may lack the other. Work without a launch was
launched before the file begins, or its launch was lost: its op is unknown, but the device was busy with it. A
launch without work makes a busy device look idle, so beyond a floor the verdict is to abstain: idle time
is then withheld. So it is where the file breaks off, since its events are in no order of time, and where a
replay of a graph owns only a part of what another replay from the same place owns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from qrprof.profiler import units
from qrprof.profiler.events import RUNTIME
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.nesting import pick
from qrprof.profiler.replays import count_replays
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import lost_launches

FLOOR: Final = 0.10  # of the launches without device work, above which idle time is withheld
NO_WORK: Final = "no device work in the steps"
FEW: Final = 50  # queued items, whose median says nothing
LONG_PAUSE_NS: Final = 10_000  # queued work follows at once, in 1 to 4 us on all devices seen
TOLERANCE: Final = 0.01  # of the launches, or of the work, unmatched in a trusted trace


class Verdict(StrEnum):
    TRUSTED = "trusted"
    PARTIAL = "partial"  # idle time holds; the reasons say what does not
    ABSTAIN = "abstain"  # what looks idle may be work that is not in the file


@dataclass(frozen=True)
class Matched:
    """Numbers of launches (calls whose names say that they launch, or that own work) and of items of device work."""

    launches_with_work: int
    launches_without_work: int
    work_with_launch: int
    work_without_launch: int

    @property
    def launches(self) -> int:
        return self.launches_with_work + self.launches_without_work

    @property
    def work(self) -> int:
        return self.work_with_launch + self.work_without_launch


@dataclass(frozen=True)
class Coverage:
    steps: int  # recorded steps used
    in_steps: Matched
    in_file: Matched
    inversions: int  # items of work that start before their launch does
    worst_inversion_ns: int
    replays: int  # launches that own several items, kernels among them
    incomplete_replays: int  # that own only a part of what another from the same place owns
    replays_constant: bool | None  # none is incomplete; None: no place replays twice
    host_only: bool  # no device work in the file
    device_only: bool  # no host events in the file
    calls_only: bool  # of the host only runtime calls
    complete: bool  # the file does not break off
    queue_pause_ns: float  # median between an item that was queued in time and the one before it; 0: there are few
    verdict: Verdict
    reasons: tuple[str, ...]  # of a verdict that is not `trusted`, a sentence each, the weightiest first

    @property
    def abstains(self) -> str | None:
        """Why idle time is withheld; None where it is not."""
        return self.reasons[0] if self.verdict is Verdict.ABSTAIN else None


def coverage(trace: Trace, run: RunInfo | None = None) -> Coverage:
    """What a trace covers. Raises QrprofError where it is empty."""
    return cover(find_facts(trace, run))


def cover(facts: Facts) -> Coverage:
    host, work, steps = facts.host, facts.work, facts.steps
    matched = work.launch >= 0
    launches, lost = np.unique(work.launch[matched]), lost_launches(host, work)
    inside = facts.swept.ns > 0
    early = (pick(host.start, work.launch, 0) - work.began)[matched]
    replays = count_replays(facts)
    found = Coverage(
        steps=len(steps.numbers),
        in_steps=Matched(
            int((weight_at(steps.host, host.start[launches]) > 0).sum()),
            int((weight_at(steps.host, host.start[lost]) > 0).sum()),
            int((inside & matched).sum()),
            int((inside & ~matched).sum()),
        ),
        in_file=Matched(len(launches), len(lost), int(matched.sum()), int((~matched).sum())),
        inversions=int((early > 0).sum()),
        worst_inversion_ns=int(early.max(initial=0)),
        replays=replays.count,
        incomplete_replays=replays.incomplete,
        replays_constant=replays.incomplete == 0 if replays.compared else None,
        host_only=not len(work.name),
        device_only=not len(host.start),
        calls_only=bool(len(host.start) and (host.rows["kind"] == RUNTIME).all()),
        complete=facts.trace.complete,
        queue_pause_ns=_queue_pause(facts),
        verdict=Verdict.TRUSTED,
        reasons=(),
    )
    grave, light = list(_grave(found)), list(_light(found))
    verdict = Verdict.ABSTAIN if grave else Verdict.PARTIAL if light else Verdict.TRUSTED
    return replace(found, verdict=verdict, reasons=(*grave, *light))


def _queue_pause(facts: Facts) -> float:
    work = facts.work
    queued = (work.launch >= 0) & (pick(facts.host.end, work.launch, 0) < work.before)
    return float(np.median((work.start - work.before)[queued])) if queued.sum() >= FEW else 0.0


def describe(found: Coverage) -> str:
    """A coverage in one line."""
    if found.verdict is Verdict.ABSTAIN:
        return f"{found.verdict}: {'; '.join(found.reasons)}"
    steps = units.counted(found.steps, "step")
    if found.host_only:
        return f"host only: no launches and no device work; {steps}"
    inside, outside = found.in_steps, found.in_file.work_without_launch - found.in_steps.work_without_launch
    matched = f"{inside.launches} launches and {inside.work} items of device work in {steps}"
    if not (inside.launches_without_work or inside.work_without_launch):
        matched += ", all matched"
    before = f"; {outside} items outside them have no launch" if outside else ""
    return f"{found.verdict}: {'; '.join([*found.reasons, matched])}{before}"


def _grave(found: Coverage) -> Iterable[str]:
    """Why idle time may be work that is not in the file."""
    if not found.complete:
        yield "the file breaks off: what looks idle may be work that is not in it"
    if found.in_file.launches and not found.in_file.work:
        yield f"{found.in_file.launches} launches and no device work: the device's side is not in the file"
    elif found.in_steps.launches_without_work > FLOOR * found.in_steps.launches:
        yield (
            f"{found.in_steps.launches_without_work} of {found.in_steps.launches} launches in the steps have no device "
            "work: what looks idle may be work that is not in the file"
        )
    elif found.in_file.work and not found.in_steps.work:
        yield NO_WORK
    if found.incomplete_replays:
        yield (
            f"{found.incomplete_replays} of {found.replays} graph replays own only a part of what another from the "
            "same place owns: what looks idle may be work that is not in the file"
        )


def _light(found: Coverage) -> Iterable[str]:
    """What else the trace does not say."""
    inside, matched = found.in_steps, found.in_file.work_with_launch
    if found.device_only:
        yield "no host events in the file: nothing says why the device was idle"
        return
    if found.calls_only:
        yield "no ops in the file: nothing says what the host did between its calls"
    if inside.work_without_launch > TOLERANCE * inside.work:
        yield (
            f"{inside.work_without_launch} of {inside.work} items of device work in the steps have no launch: "
            "their op is unknown"
        )
    if TOLERANCE * inside.launches < inside.launches_without_work <= FLOOR * inside.launches:
        yield f"{inside.launches_without_work} of {inside.launches} launches in the steps have no device work"
    if found.inversions > TOLERANCE * matched:
        yield (
            f"{found.inversions} of {matched} items of device work start before their launch does, at most "
            f"{units.time(float(found.worst_inversion_ns))}: the clocks of host and device disagree"
        )
    if found.queue_pause_ns > LONG_PAUSE_NS:
        yield (
            f"work that was queued in time starts a median of {units.time(found.queue_pause_ns)} after the work before "
            "it: events are missing in between, as in a sampled trace"
        )
