"""What `qrprof whatif --all-ranks` prints, and its record as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.planner.estimate import Estimate
from qrprof.planner.replay.ranks import Joint
from qrprof.planner.whatif import Change, Lookup, look_ups, speedup
from qrprof.planner.whatif_parts import Subject
from qrprof.planner.whatif_ranks import Crew, RanksWhatIf, crew_of, parse_for_ranks, slowest, what_if_ranks
from qrprof.profiler import load, units
from qrprof.profiler.devices import devices_folder, peaks_for
from qrprof.profiler.noise import Noise, of_run
from qrprof.profiler.store import find_run
from qrprof.tui.commands.rank import in_ms
from qrprof.tui.commands.ranks import clock_line, coverage_line
from qrprof.tui.output import Cell, Column, field, name, table, title
from qrprof.tui.ranking import replay_record, run_line, to_ms

CHANGES: Final = (
    Column("what", wraps=True),
    Column("set to"),
    Column("ranks"),
    Column("device, ms", right=True),
    Column("host, ms", right=True),
)
STEPS: Final = (
    Column("rank"),
    Column("step", right=True),
    Column("new", right=True),
    Column("gain", right=True),
    Column("faster", right=True),
    Column("waits", right=True),
    Column("new", right=True),
)


@dataclass(frozen=True)
class RanksAnswer:
    crew: Crew
    found: RanksWhatIf
    step: Estimate
    noises: tuple[Noise | None, ...]  # by rank
    notes: tuple[str, ...]


def ask_ranks(run: str | None, settings: Sequence[str]) -> RanksAnswer:
    wanted = [parse_for_ranks(text) for text in settings]
    folder = find_run(Path.cwd(), run)
    loaded = {number: load.load_run(folder, number) for number in load.ranks(folder)}
    runs = {rank: info for rank, (info, _) in loaded.items()}
    if max(info.world_size for info in runs.values()) < 2:
        raise click.UsageError("--all-ranks is for runs of several ranks: leave it out for this one")
    crew = crew_of(runs, {rank: trace for rank, (_, trace) in loaded.items()})
    found = what_if_ranks(crew, wanted, look_up)
    noises = tuple(of_run(info) for info in runs.values())
    said = [text for info, trace in loaded.values() for text in (*info.notes, *trace.warnings)]
    notes = tuple(dict.fromkeys([*remarks(crew), *said]))
    return RanksAnswer(crew, found, found.estimate(crew.joint, noises), noises, notes)


def look_up(subject: Subject) -> Mapping[str, Lookup]:
    return look_ups(subject, peaks_for(subject.run, devices_folder()))


def remarks(crew: Crew) -> list[str]:
    """What a reader of the figures must know of this replay."""
    joint, found = crew.joint, []
    if not joint.meetings.count:
        found.append("no collective was found on two ranks: each is replayed as if it were alone")
    if joint.left_out:
        found.append(
            f"{joint.left_out} communications in the steps keep their recorded durations, waiting included: no other "
            "rank has their counterpart, or they do not run at the same time"
        )
    if any(subject.run.step_ns() is None for subject in crew.subjects.values()):
        found.append("not all ranks ran unprofiled steps: times are as recorded, and hold the profiler's own cost")
    return found


# --- the page


def ranks_page(answer: RanksAnswer) -> list[RenderableType]:
    crew, found = answer.crew, answer.found
    run = next(iter(crew.subjects.values())).run
    blocks: list[RenderableType] = [
        field("run", f"{run_line(run.model_copy(update={'world_size': 1}))} ({len(crew.subjects)} ranks)"),
        field("coverage", coverage_line(crew.coverage)),
        field("clocks", clock_line(crew.joint.clock)),
        field("replay", ranks_replay_line(crew.joint)),
        "",
        table(CHANGES, change_rows(found)),
        "",
        title("A mean step of each rank, and its waiting in collectives, ms:"),
        table(STEPS, [step_row(found, rank) for rank in found.base.ranks]),
        "",
        *outcome(answer),
    ]
    if answer.notes:
        blocks += ["", *(field("note", text) for text in answer.notes)]
    return blocks


def ranks_replay_line(joint: Joint) -> str:
    models = joint.models.values()
    parts = [f"off by {units.share(max(abs(one.error) for one in models))} of a rank's recorded step at most"]
    if explained := [one.explained for one in models if one.explained is not None]:
        parts.append(f"{units.share(min(explained))} of a rank's device starts explained at least")
    if joint.meetings.off_ns is not None:
        count = joint.meetings.count
        parts.append(
            f"{count} collectives end within {units.time(joint.meetings.off_ns)} (median) of when the last member's "
            "coming lets them"
        )
    return ", ".join(parts)


def change_rows(found: RanksWhatIf) -> list[list[Cell]]:
    """A row a setting; its times are the mean of its ranks'."""
    rows: list[list[Cell]] = []
    for place, (_, at, spec) in enumerate(found.settings):
        parts = [change.part for change in found.changed(place).values()]
        times = [statistics.mean(part.device_ns for part in parts), statistics.mean(part.host_ns for part in parts)]
        shown = (in_ms(ns) if ns else units.MISSING for ns in times)
        rows.append([name(parts[0].label), spec.text, "all" if at is None else str(at), *shown])
    return rows


def step_row(found: RanksWhatIf, rank: int) -> list[Cell]:
    base, new = found.base.ranks[rank], found.new.ranks[rank]
    gained = in_ms(base.step_ns - new.step_ns)
    faster = units.ratio(speedup(base.step_ns, new.step_ns))
    return [str(rank), in_ms(base.step_ns), in_ms(new.step_ns), gained, faster, in_ms(base.wait_ns), in_ms(new.wait_ns)]


def outcome(answer: RanksAnswer) -> list[RenderableType]:
    found, step = answer.found, answer.step
    moved = f"{units.time(abs(found.gain_ns))} a step {'gained' if found.gain_ns >= 0 else 'lost'}"
    between = "not known: the noise of the step was not measured"
    if all(answer.noises):
        between = f"{units.time(step.low)} and {units.time(step.high)}, by the replay's own errors and the noise"
    (before, old), (after, new) = slowest(found.base), slowest(found.new)
    whose = "the last rank is done" if found.base.step_ns is not None else "the slowest rank"
    return [
        field(
            "what if",
            f"{units.time(found.base_ns)} -> {units.time(found.step_ns)}, {units.ratio(found.speedup)}, {moved} "
            f"({whose})",
        ),
        field("between", between),
        field("slowest", f"rank {before}, {units.time(old)} -> rank {after}, {units.time(new)}"),
    ]


# --- JSON


def ranks_record(answer: RanksAnswer) -> dict[str, Any]:
    """Times in ms of a mean step; `step_ms` is of all ranks together."""
    crew, found, step = answer.crew, answer.found, answer.step
    return {
        "run": crew.label,
        "base_ms": to_ms(found.base_ns),
        "step_ms": to_ms(found.step_ns),
        "speedup": found.speedup,
        "together": found.base.step_ns is not None,
        "low_ms": to_ms(step.low),
        "high_ms": to_ms(step.high),
        "basis": step.basis,
        "slowest": {"base": slowest(found.base)[0], "new": slowest(found.new)[0]},
        "ranks": [rank_record(answer, rank) for rank in found.base.ranks],
        "collectives": crew.joint.meetings.count,
        "collectives_off_ms": to_ms(crew.joint.meetings.off_ns),
        "left_out": crew.joint.left_out,
        "clock": asdict(crew.joint.clock),
        "notes": list(answer.notes),
    }


def rank_record(answer: RanksAnswer, rank: int) -> dict[str, Any]:
    found, subject = answer.found, answer.crew.subjects[rank]
    base, new = found.base.ranks[rank], found.new.ranks[rank]
    return {
        "rank": rank,
        "base_ms": to_ms(base.step_ns),
        "step_ms": to_ms(new.step_ns),
        "speedup": speedup(base.step_ns, new.step_ns),
        "base_wait_ms": to_ms(base.wait_ns),
        "wait_ms": to_ms(new.wait_ns),
        "changes": [change_record(change) for change in found.changes[rank]],
        "replay": replay_record(subject.model),
        "coverage": asdict(subject.partition.coverage),
    }


def change_record(change: Change) -> dict[str, Any]:
    part = change.part
    return {
        "key": part.key,
        "kind": part.kind,
        "set": change.spec.text,
        "factor": change.factor,
        "basis": change.basis,
        "calls": part.calls,
        "device_ms": to_ms(part.device_ns),
        "host_ms": to_ms(part.host_ns),
    }
