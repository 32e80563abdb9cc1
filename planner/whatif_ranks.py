"""What-ifs of all ranks of a run: `linalg_qr=4x` is of each of them, `linalg_qr@7=4x` of rank 7 alone."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.replay.ranks import Joint, Replay, joint_of, replay
from qrprof.planner.whatif import Change, Lookup, Spec, combine, find_changes, parse_setting, speedup
from qrprof.planner.whatif_parts import Subject
from qrprof.profiler.coverage import Coverage
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.noise import Noise
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

AT_RANK: Final = re.compile(r"(.+)@([0-9]+)")

Setting = tuple[str, int | None, Spec]  # key, rank (None: all), what its time becomes


@dataclass(frozen=True)
class Crew:
    """The ranks of a run that questions are asked of, by rank."""

    joint: Joint
    subjects: Mapping[int, Subject]

    @property
    def coverage(self) -> dict[int, Coverage]:
        return {rank: subject.partition.coverage for rank, subject in self.subjects.items()}

    @property
    def label(self) -> str:
        return next(iter(self.subjects.values())).run.id


@dataclass(frozen=True)
class RanksWhatIf:
    """A scenario, and the steps of all ranks before and after."""

    settings: tuple[Setting, ...]
    changes: Mapping[int, tuple[Change, ...]]  # by rank, in the order of its settings
    base: Replay
    new: Replay

    def changed(self, place: int) -> dict[int, Change]:
        """What one of the settings changes, by rank."""
        found = {}
        for rank, changes in self.changes.items():
            mine = [number for number, (_, at, _) in enumerate(self.settings) if at in (None, rank)]
            if place in mine:
                found[rank] = changes[mine.index(place)]
        return found

    @property
    def base_ns(self) -> float:
        """ns of a mean step of all ranks together; of the slowest one where nothing ties them."""
        return together(self.base)

    @property
    def step_ns(self) -> float:
        return together(self.new)

    @property
    def gain_ns(self) -> float:
        return self.base_ns - self.step_ns

    @property
    def speedup(self) -> float:
        return speedup(self.base_ns, self.step_ns)

    def estimate(self, joint: Joint, noises: Sequence[Noise | None]) -> Estimate:
        """The step, give or take what the replay of the worst rank was off by and the largest noise.

        Its basis is the weakest of the changes'.
        """
        off = max(abs(one.error) + abs(one.next_step_error or 0.0) for one in joint.models.values())
        off += max((noise.fraction for noise in noises if noise), default=0.0)
        bases = [change.basis for changes in self.changes.values() for change in changes]
        basis = max(bases, key=list(Basis).index, default=Basis.MEASURED)
        return Estimate(self.step_ns * max(1 - off, 0.0), self.step_ns, self.step_ns * (1 + off), basis)


def together(found: Replay) -> float:
    return slowest(found)[1] if found.step_ns is None else found.step_ns


def slowest(found: Replay) -> tuple[int, float]:
    """The rank with the longest mean step, and that step, ns."""
    rank = max(found.ranks, key=lambda one: (found.ranks[one].step_ns, -one))
    return rank, found.ranks[rank].step_ns


def crew_of(runs: Mapping[int, RunInfo], traces: Mapping[int, Trace]) -> Crew:
    """Build and check the model of a run's ranks.

    Raises QrprofError where it must not be believed, or a trace is empty.
    """
    facts = {rank: find_facts(traces[rank], runs[rank]) for rank in sorted(traces)}
    joint = joint_of(facts, runs)
    if joint.withheld:
        run = runs[min(runs)].id
        raise QrprofError(f"what-ifs of all ranks of run {run} are withheld: {joint.withheld}")
    return Crew(
        joint, {rank: Subject(runs[rank], joint.models[rank], divide(facts[rank], runs[rank])) for rank in facts}
    )


def parse_for_ranks(text: str) -> Setting:
    """KEY=SPEC or KEY@RANK=SPEC. Raises QrprofError (exit code 2)."""
    key, spec = parse_setting(text)
    found = AT_RANK.fullmatch(key)
    return (found[1], int(found[2]), spec) if found else (key, None, spec)


def what_if_ranks(
    crew: Crew, settings: Sequence[Setting], look_up: Callable[[Subject], Mapping[str, Lookup]]
) -> RanksWhatIf:
    """The steps of a scenario; `look_up` answers TABLE and ROOFLINE for a rank.

    Raises QrprofError (exit code 2) where a rank does not exist, or a key is none in a rank that it is set in.
    """
    there = list(crew.subjects)
    for key, rank, _ in settings:
        if rank is not None and rank not in there:
            ranks = ", ".join(map(str, there))
            raise QrprofError(f"{key}@{rank}: run {crew.label} has no rank {rank}; its ranks: {ranks}", Exit.USAGE)
    changes = {rank: _changes_of(crew.subjects[rank], rank, settings, look_up) for rank in there}
    combined = {rank: combine(crew.subjects[rank], found) for rank, found in changes.items() if found}
    return RanksWhatIf(tuple(settings), changes, replay(crew.joint, {}), replay(crew.joint, combined))


def _changes_of(
    subject: Subject, rank: int, settings: Sequence[Setting], look_up: Callable[[Subject], Mapping[str, Lookup]]
) -> tuple[Change, ...]:
    mine = [(key, spec) for key, at, spec in settings if at in (None, rank)]
    try:
        return find_changes(subject, mine, look_up(subject))
    except QrprofError as error:
        raise QrprofError(f"rank {rank}: {error}; KEY@RANK=SPEC is for one rank alone", error.exit_code) from None
