"""One run, ranked: what `rank` and `show` print from, and its record as JSON."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from qrprof.planner.estimate import Estimate
from qrprof.planner.measured import measured_for, untimed
from qrprof.planner.replay.model import Model, model_of
from qrprof.planner.targets import Target, rank
from qrprof.profiler import units
from qrprof.profiler.devices import Peaks, devices_folder, peaks_for
from qrprof.profiler.facts import find_facts
from qrprof.profiler.linalg import by_signature, row_signature
from qrprof.profiler.load import load_run
from qrprof.profiler.noise import Noise, frequency, lasting_drift, of_run
from qrprof.profiler.partition import CALL_IDENTITY, Partition, divide
from qrprof.profiler.runinfo import LinalgCall, RunInfo
from qrprof.profiler.store import find_run

DRIFT = 0.05  # between the means of the first and the last unprofiled block: less is not worth a note
MS = 1e6  # ns


@dataclass(frozen=True)
class Ranking:
    run: RunInfo
    warnings: tuple[str, ...]  # of the trace's reader
    partition: Partition
    peaks: Peaks | None
    noise: Noise | None
    model: Model  # by whose replay gains are known
    targets: list[Target]  # best first


def load_ranking(name: str | None, number: int = 0) -> Ranking:
    """Rank the run called `name` (see `find_run`) by the trace of its process `number`."""
    run, trace = load_run(find_run(Path.cwd(), name), number)
    facts = find_facts(trace, run)
    return ranking_of(run, trace.warnings, divide(facts, run), model_of(facts, run))


def ranking_of(run: RunInfo, warnings: tuple[str, ...], divided: Partition, model: Model) -> Ranking:
    """The same of a run whose time is divided and whose replay is there."""
    peaks, noise = peaks_for(run, devices_folder()), of_run(run)
    targets = rank(divided, run, peaks, noise, model, measured_for(run))
    return Ranking(run, warnings, divided, peaks, noise, model, targets)


def run_line(run: RunInfo) -> str:
    """A run by its id and command, and its process where there are several."""
    process = f" (rank {run.rank} of {run.world_size})" if run.world_size > 1 else ""
    return f"{run.id}: {shlex.join(run.command)}{process}"


def noise_ns(ranking: Ranking) -> float | None:
    """The noise of a mean step, ns; None where it, or the step, was not measured."""
    noise, step = ranking.noise, ranking.partition.step_ns
    return noise.fraction * step if noise and step else None


def overhead_x(found: Partition) -> float | None:
    """Length of a recorded step over that of an unprofiled one."""
    return found.recorded_ns / found.step_ns if found.step_ns else None


def short(key: str) -> str:
    """A key as a person types it: without the one namespace that nearly all ops share."""
    return key.removeprefix("aten::")


def notes(ranking: Ranking) -> list[str]:
    """What a reader of the figures must know, a sentence each."""
    run, found = ranking.run, []
    if ranking.partition.step_ns is None:
        found.append("no step ran unprofiled: shares are of the recorded time, which holds the profiler's own cost")
    moved = lasting_drift(run.unprofiled, frequency(run))
    if abs(moved) > DRIFT:
        change = "longer" if moved > 0 else "shorter"
        found.append(
            f"the unprofiled steps after the recording are {units.share(abs(moved))} {change} than those before it: "
            "the machine or the program was not steady"
        )
    if ranking.model.withheld and not ranking.partition.withheld:
        found.append(f"gains are bare ceilings, since the step cannot be replayed: {ranking.model.withheld}")
    if ranking.peaks is None:
        found.append("no peaks measured for this device: run `qrprof doctor --measure` for estimates below the ceiling")
    if ranking.partition.withheld is None and (missing := untimed(ranking.partition, run)):
        ops = ", ".join(dict.fromkeys(one.signature[0] for one in missing))
        found.append(f"what the included kernels would gain for {ops} was not timed: run `qrprof probe`")
    return [*found, *run.notes, *ranking.warnings]


def parts(ranking: Ranking, key: str) -> pd.DataFrame:
    """The partition's rows of one key, with the calls of their owning op (NaN where calls have no meaning)."""
    rows = ranking.partition.rows
    return rows[rows["key"] == key].merge(ranking.partition.calls, on=CALL_IDENTITY, how="left")


def linalg_ns(ranking: Ranking, call: LinalgCall) -> float | None:
    """ns a step of a linalg call: as timed without the profiler, else of its rows where no other call shares them."""
    if call.ns_per_step is not None:
        return call.ns_per_step
    same = next(calls for calls in by_signature(ranking.run.linalg).values() if call in calls)
    if len(same) > 1:
        return None
    signature = next(iter(by_signature(same)))
    rows = ranking.partition.rows
    mine = [
        ns
        for key, shapes, dtypes, ns in zip(rows["key"], rows["shapes"], rows["dtypes"], rows["ns"], strict=True)
        if row_signature(key, shapes, dtypes) == signature
    ]
    return float(sum(mine)) if mine else None


def linalg_calls(ranking: Ranking, calls: Sequence[LinalgCall]) -> list[tuple[LinalgCall, float | None]]:
    """Calls with their ns a step, the longest first, then those with most numbers to work on."""
    timed = [(call, linalg_ns(ranking, call)) for call in calls]
    return sorted(timed, key=lambda pair: (pair[1] or 0.0, pair[0].calls_per_step * math.prod(pair[0].shape)))[::-1]


# --- JSON


def to_ms(ns: float | None) -> float | None:
    return None if ns is None else ns / MS


def record(ranking: Ranking) -> dict[str, Any]:
    """Times in ms of a mean step; shares sum to 1 unless withheld."""
    found, noise = ranking.partition, ranking.noise
    return {
        "run": ranking.run.id,
        "coverage": asdict(found.coverage),
        "step_ms": to_ms(found.step_ns),
        "rows": [target_record(ranking, target) for target in ranking.targets],
        "noise": {"name": noise.name, "ms": to_ms(noise_ns(ranking))} if noise else None,
        "factor": found.factor,
        "overhead_x": overhead_x(found),
        "withheld": found.withheld,
        "replay": replay_record(ranking.model),
        "notes": notes(ranking),
        "linalg": [linalg_record(call, ns) for call, ns in linalg_calls(ranking, ranking.run.linalg)],
    }


def replay_record(model: Model) -> dict[str, Any]:
    """How well the unchanged replay meets the recorded step; fractions."""
    return {
        "base_ms": to_ms(model.base_ns),
        "error": model.error,
        "explained": model.explained,
        "next_step_error": model.next_step_error,
        "withheld": model.withheld,
    }


def replay_line(model: Model) -> str:
    """The same for a reader."""
    if model.withheld:
        return f"withheld: {model.withheld}"
    parts = [f"off by {units.share(abs(model.error))} of the recorded step"]
    if model.explained is not None:
        parts.append(f"{units.share(model.explained)} of the device's starts explained")
    if model.next_step_error is not None:
        parts.append(f"{units.share(abs(model.next_step_error))} off with the residuals of the step before")
    return ", ".join(parts)


def target_record(ranking: Ranking, target: Target) -> dict[str, Any]:
    gain = target.gain_ns
    return {
        "key": target.key,
        "kind": target.kind,
        "share": target.share,
        "ms": to_ms(target.ns),
        "calls": target.calls,
        "ceiling_x": target.ceiling_x,
        "gain_ms": interval(gain) if gain else None,
        "by_share_ms": interval(target.by_share_ns) if target.by_share_ns else None,
        "basis": gain.basis if gain else None,
        "advice": target.advice,
        "why": target.why,
        "dont_bother": target.dont_bother,
        "overlap": target.overlap,
        "parts": [part_record(part) for part in parts(ranking, target.key).to_dict("records")],
    }


def interval(gain: Estimate) -> dict[str, float | None]:
    return {"low": to_ms(gain.low), "mid": to_ms(gain.mid), "high": to_ms(gain.high)}


def part_record(part: dict[Any, Any]) -> dict[str, Any]:
    named = {column: part[column] for column in ("op", "shapes", "dtypes", "phase", "where", "kernel")}
    return {**named, "ms": to_ms(part["ns"]), "calls": part["calls"], "launches": part["launches"]}


def linalg_record(call: LinalgCall, ns: float | None) -> dict[str, Any]:
    return {**call.model_dump(exclude={"ns_per_step"}), "ms_per_step": to_ms(ns)}
