"""A verification from start to end: the program trains alike, then its steps are timed, then both are compared.

What shows that the swaps do harm ends it: times of a wrong program are of no use.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from qrprof.kernels import adapters
from qrprof.kernels.running.watched import Machine, Swaps, Timed, Trained, read_timed, read_trained
from qrprof.kernels.swapfile import Entry
from qrprof.planner.optimize.slots import held, slot_of
from qrprof.planner.predictions import Prediction
from qrprof.planner.verify.equivalence import equivalence
from qrprof.planner.verify.processes import Ended, Leg, Program, require, run, run_all
from qrprof.planner.verify.protocol import Round, gain_of, memory_of
from qrprof.planner.verify.records import (
    DRIFTED,
    HARMFUL,
    IDLE,
    Equivalence,
    Finding,
    Memory,
    Verification,
)
from qrprof.planner.verify.traces import compared
from qrprof.planner.verify.verdict import expected_of, is_held, of_swaps, of_timed, of_times, outcome_of
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.spawn import base_record

SPREAD: Final = 5  # stock runs with moved inputs
TIMED_NS: Final = 1_000_000_000  # of steps in a process
MOST_TIMED: Final = 10  # times the steps asked for
TRACED_NS: Final = 1_000_000_000  # of steps
MOST_TRACED: Final = 5  # steps
ROOM: Final = 1.25  # times its peak that a process may need
PATIENCE, COMPILING_S = 10, 300.0  # times a stock process's seconds, and seconds more, that another may take
QR_OPS: Final = ("linalg_qr", "geqrf", "linalg_householder_product")
MORE_MEMORY: Final = 1.1  # times the stock peak that are worth a note

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    program: Program
    swaps: Path  # a swaps.json
    entries: tuple[Entry, ...]  # of it
    warmup: int
    steps: int  # compared; as many are timed in a process, or more where they are short
    rounds: int
    prediction: Prediction | None
    folder: Path  # a new one, for records, snapshots and traces


def verify(task: Task, say: Say) -> Verification:
    """Raises QrprofError where the stock program fails, and where there is nothing to compare."""
    began = time.monotonic()
    training = trains_alike(task, say)
    findings, rounds, swaps = list(training.findings), list[Round](), training.swaps
    if not {one.kind for one in findings} & (HARMFUL | IDLE):
        with held(slot_of({"uuid": gpu} if (gpu := training.machine.gpu) else {}), lambda: waiting(say)):
            rounds, crash = timed_rounds(task, steps_to_time(task, training.step_ns), say)
        findings += [*crash, *of_timed(rounds)]
        swaps = rounds[-1].swapped[-1].swaps if rounds else swaps
    gain, memory = (gain_of(rounds), memory_of(rounds)) if rounds else (None, None)
    findings += list(of_times(gain, memory)) if rounds else []
    expected = expected_of(task.prediction) if task.prediction else None
    traces = compared(task.folder, ops_of(task.entries)) if rounds else None
    return Verification(
        outcome=outcome_of(findings, gain),
        findings=tuple(findings),
        swaps=swaps,
        equivalence=training.same,
        gain=gain,
        memory=memory,
        compared=traces,
        expected=expected,
        held=is_held(expected, gain) if expected and gain else None,
        machine=training.machine,
        notes=tuple(notes(swaps, training.same, memory)),
        seconds=time.monotonic() - began,
    )


def ops_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The ops that the entries serve, as aten names them."""
    found: list[str] = []
    for entry in entries:
        if entry.kind == "adapter":
            found.append(adapters.find(entry.name).op.removeprefix("aten::"))
        else:
            found += [entry.op] if entry.op else QR_OPS
    return tuple(dict.fromkeys(found))


# --- training


@dataclass(frozen=True)
class Training:
    swaps: Swaps  # what they did in the compared steps
    same: Equivalence | None  # None: the swapped program did not get there
    findings: tuple[Finding, ...]  # all that speaks against the swaps so far
    machine: Machine
    step_ns: float  # of the stock program, roughly


def trains_alike(task: Task, say: Say) -> Training:
    say("1 of 3: the stock program, and its state after each of the first steps")
    leader = run(task.program, watched_training(task, "stock", None, leads=True), task.folder)
    lead = read_trained(require(leader, task.program))
    if not lead.steps:
        raise QrprofError(
            f"{task.program.script} ended before an optimizer's step; there is no training to compare", Exit.USAGE
        )
    step_ns = median(step.ns for step in lead.steps)
    at_once = processes_at_once(lead, SPREAD + 1)
    say(f"2 of 3: the swapped program, and {SPREAD} stock ones whose inputs are moved by one rounding")
    legs = [watched_training(task, "swapped", task.swaps), *moved_training(task, range(SPREAD))]
    limit_s = limit_of(leader)
    processes = run_all(task.program, legs, task.folder, at_once, limit_s)
    swapped = next(processes)
    if crash := crashed(swapped):
        return Training(Swaps(), None, (crash,), lead.machine, step_ns)
    ours = read_trained(swapped.file)
    findings = of_swaps(ours.swaps)
    if {one.kind for one in findings} & IDLE:
        return Training(ours.swaps, None, tuple(findings), lead.machine, step_ns)

    def further(seeds: Iterable[int]) -> Iterator[Ended]:
        return run_all(task.program, moved_training(task, seeds), task.folder, at_once, limit_s)

    same = same_as(lead, ours, list(processes), further, say)
    if isinstance(same, Finding):
        return Training(ours.swaps, None, (*findings, same), lead.machine, step_ns)
    return Training(ours.swaps, same, (*findings, *same.findings), lead.machine, step_ns)


def same_as(
    lead: Trained, ours: Trained, moved: Sequence[Ended], further: Callable[[Iterable[int]], Iterable[Ended]], say: Say
) -> Equivalence | Finding:
    """Whether the swapped run is within the spread; where it alone drifts further, of twice as many runs."""
    if failed := cannot_bear(moved):
        return failed
    same = equivalence(lead, [read_trained(one.file) for one in moved], ours)
    if len(moved) > SPREAD or not same.findings or any(one.kind not in DRIFTED for one in same.findings):
        return same
    say(f"it drifts further than they do: {SPREAD} more of them, to see how far rounding alone can go")
    return same_as(lead, ours, [*moved, *further(range(SPREAD, 2 * SPREAD))], further, say)


def cannot_bear(moved: Iterable[Ended]) -> Finding | None:
    """Of stock runs whose inputs were moved by one rounding: that one of them failed."""
    failed = next((one for one in moved if not one.well), None)
    if failed is None:
        return None
    return Finding("not repeatable", f"where inputs are moved by one rounding the stock program {failed.how}")


def moved_training(task: Task, seeds: Iterable[int]) -> list[Leg]:
    return [watched_training(task, f"moved{seed}", None, seed=seed) for seed in seeds]


def watched_training(task: Task, name: str, swaps: Path | None, leads: bool = False, seed: int | None = None) -> Leg:
    forced = max(1, task.steps // 2)
    watch: dict[str, Any] = {
        "kind": "train",
        "folder": str(task.folder),
        "leads": leads,
        "forced": forced,
        "steps": 1 + task.steps,  # the first one begins before anything is known
    }
    if seed is not None:
        watch["rounding"] = {"ops": ops_of(task.entries), "seed": seed}
    return Leg(name, swaps, watch)


def processes_at_once(lead: Trained, most: int) -> int:
    """How many the machine's cores and the memory of what the program trains on have room for."""
    cores = (psutil.cpu_count(logical=False) or 1) // 2
    return max(1, min(most, cores, int(lead.machine.memory / (ROOM * max(lead.peak, 1)))))


def crashed(ended: Ended) -> Finding | None:
    """Of a swapped program whose stock twin ended well."""
    return None if ended.well else Finding("crashed", f"with the swaps the program {ended.how}")


def limit_of(stock: Ended) -> float:
    """Seconds after which a process that does the same is taken to hang."""
    return PATIENCE * stock.seconds + COMPILING_S


# --- times


@contextmanager
def waiting(say: Say) -> Iterator[None]:
    say("waiting: another qrprof measures on this device")
    yield


def steps_to_time(task: Task, step_ns: float) -> int:
    """Short steps are timed more often: a few of them are mostly noise."""
    return min(max(task.steps, int(TIMED_NS // max(step_ns, 1))), MOST_TIMED * task.steps)


def timed_rounds(task: Task, steps: int, say: Say) -> tuple[list[Round], list[Finding]]:
    """Rounds of stock, swapped, swapped, stock; none, and why, where the swapped program fails."""
    rounds = []
    for number in range(task.rounds):
        say(f"3 of 3: steps are timed, round {number + 1} of {task.rounds}: stock, swapped, swapped, stock")
        last = number == task.rounds - 1
        found, limit_s = list[Timed](), None
        for i in range(4):
            traced = traced_steps(found[0]) if last and i >= 2 else 0
            leg = watched_times(task, f"time{number}-{i}", i in (1, 2), steps, traced)
            ended = run(task.program, leg, task.folder, limit_s)
            limit_s = limit_s or limit_of(ended)
            if leg.swaps and (crash := crashed(ended)):
                return [], [crash]
            found.append(read_timed(require(ended, task.program)))
        rounds.append(Round(found[0], (found[1], found[2]), found[3]))
    return rounds, []


def traced_steps(timed: Timed) -> int:
    """As many as a trace of TRACED_NS holds."""
    return max(1, min(MOST_TRACED, TRACED_NS * len(timed.steps_ns) // max(sum(timed.steps_ns), 1)))


def watched_times(task: Task, name: str, swapped: bool, steps: int, traced: int) -> Leg:
    program, folder = task.program, task.folder / ("B" if swapped else "A")
    folder.mkdir(exist_ok=True)
    watch = {
        "kind": "time",
        "warmup": task.warmup,
        "steps": steps,
        "traced": traced,
        "folder": str(folder),
        "base": base_record(folder.name, program.script, program.args, program.module, 1),
    }
    return Leg(name, task.swaps if swapped else None, watch)


# --- remarks


def notes(swaps: Swaps, same: Equivalence | None, memory: Memory | None) -> Iterator[str]:
    if swaps.hits:
        yield from swaps.refused
        yield from (f"{name} served no call" for name, calls in swaps.by_name.items() if name and not calls)
    yield from (
        f"no call of {name} fell in the steps that begin alike, so nothing is shown of it: give more --steps"
        for name in (same.untouched if same else ())
    )
    if same and same.amplified and not same.amplified.decides:
        yield (
            "the program amplifies rounding: only the steps that begin alike decide"
            if same.free
            else ("no free steps followed those that begin alike")
        )
    if memory and memory.swapped_peak > MORE_MEMORY * memory.stock_peak:
        yield (
            f"the swaps need more memory: {units.size(memory.swapped_peak)} at the peak,"
            f" {units.size(memory.stock_peak)} without"
        )
