"""`run.json` as the child writes it: from what was seen, step by step, to the record of `runinfo`.

Plain dicts and the standard library only: this runs inside the user's program.
"""

import importlib.metadata
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import qrprof
from qrprof.profiler.recording.calls import Call
from qrprof.profiler.recording.clock import Stamp, durations_ns, uses_device
from qrprof.profiler.recording.plan import MAX_PERIOD, Settings, Step, find_period, kinds_of, weights, whole_periods
from qrprof.profiler.store import make_private, replacing, run_file

SCHEMA = 1

Counts = Mapping[Call, Sequence[int]]  # call -> [count, host ns]


@dataclass(frozen=True)
class Task:
    """What the child was asked to do. Paths are absolute: the script may change its folder."""

    settings: Settings
    folder: Path  # of the run
    samples: Path | None  # file for matrix samples
    range_name: str | None
    shapes: bool
    rank: int
    repeat: int  # 0: the recording run; k: the k-th run that is only timed
    base: dict[str, Any] = field(default_factory=dict)  # what the parent knows of the run


@dataclass(frozen=True)
class SeenStep:
    index: int
    counts: Counts
    host_ns: int | None  # None where it was not timed
    block: int


@dataclass(frozen=True)
class Block:
    first_step: int
    stretches: tuple[tuple[Stamp, ...], ...]  # of boundaries; what lies between two stretches is no step's time


@dataclass(frozen=True)
class Facts:
    """Everything the recorder saw."""

    source: str
    seen: tuple[SeenStep, ...]
    blocks: tuple[Block, ...]
    recorded: tuple[int, ...]
    samples: Mapping[Call, Sequence[Any]]
    gauge_ns: float | None
    notes: tuple[str, ...]
    wall_ns: int  # from the import of torch until now


def pattern(counts: Counts) -> tuple[tuple[str, int], ...]:
    """What a step called, whatever the call site: (op and shape, count), sorted."""
    merged: Counter[str] = Counter()
    for call, (count, _) in counts.items():
        merged[f"{call.op.removeprefix('aten::')}{list(call.shape)}"] += count
    return tuple(sorted(merged.items()))


def trace_name(rank: int) -> str:
    return f"rank{rank}.trace.json.gz"


def write(task: Task, facts: Facts) -> None:
    """Write the run's record (or a repeat's step times), and the matrix samples. Raises OSError."""
    if task.repeat:
        times = [ns for block in facts.blocks for ns in durations_ns(block.stretches)[1]] or [facts.wall_ns]
        write_json(task.folder / f"repeat{task.repeat}.rank{task.rank}.json", times)
        return
    if task.samples is not None and facts.samples:
        facts = with_samples_kept(task.samples, facts)
    write_json(task.folder / run_file(task.rank), build(task, facts))


def with_samples_kept(path: Path, facts: Facts) -> Facts:
    """Write the samples; where that fails the run is still whole, without them."""
    try:
        write_samples(path, facts.samples)
    except (OSError, RuntimeError) as error:  # torch.save raises the latter on a full disk
        reason = error.strerror if isinstance(error, OSError) else "torch.save failed; is the disk full?"
        return replace(facts, samples={}, notes=(*facts.notes, f"no matrix samples: cannot write {path}: {reason}"))
    return facts


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_samples(path: Path, samples: Mapping[Call, Sequence[Any]]) -> None:
    """Matrices by call, as torch tensors in one file that loads with weights_only=True."""
    import torch

    make_private(path.parent)
    named = {
        f"{call.op} {list(call.shape)} {call.site} #{i}": m
        for call, kept in samples.items()
        for i, m in enumerate(kept)
    }
    with replacing(path) as temporary:
        torch.save(named, temporary)


def build(task: Task, facts: Facts) -> dict[str, Any]:
    """The record of `runinfo.RunInfo`."""
    kinds = kinds_of([Step(s.index, pattern(s.counts), s.host_ns, s.block) for s in facts.seen])
    period = find_period(kinds)
    kind_of = {step.index: kind for step, kind in zip(facts.seen, kinds, strict=True)}
    blocks = unprofiled(facts.blocks, kind_of, period)
    timed = {
        index for block in blocks for index in range(block["first_step"], block["first_step"] + len(block["kinds"]))
    }
    recorded_kinds = [kind_of.get(index, "A") for index in facts.recorded]
    return {
        "schema_number": SCHEMA,
        **task.base,
        "step_source": facts.source,
        "rank": task.rank,
        "versions": versions(),
        "devices": devices() + task.base["devices"],
        "threads": threads(),
        "period": period if facts.seen else None,
        "kinds": kind_records(facts.seen, kinds, period),
        "unprofiled": blocks,
        "recorded": [
            {"index": index, "kind": kind, "weight": weight}
            for index, kind, weight in zip(
                facts.recorded, recorded_kinds, weights(recorded_kinds, kinds, period), strict=True
            )
        ],
        "linalg": linalg_records([s for s in facts.seen if s.index in timed], facts.samples),
        "gauge_ns": facts.gauge_ns,
        "repeats": [],
        "notes": [*facts.notes, *kind_notes(set(kinds), set(recorded_kinds), period, len(kinds))],
        "trace": trace_name(task.rank),
        "exit_code": None,
    }


def unprofiled(blocks: Sequence[Block], kind_of: Mapping[int, str], period: int | None) -> list[dict[str, Any]]:
    """The blocks cut to whole periods, since a part of one is no fair sample; uncut where none holds a whole one."""
    cut = [block_record(block, kind_of, period) for block in blocks]
    return [block for block in cut if block["durations_ns"]] or [block_record(block, kind_of, 1) for block in blocks]


def block_record(block: Block, kind_of: Mapping[int, str], period: int | None) -> dict[str, Any]:
    clock, durations = durations_ns(block.stretches)
    kept = list(whole_periods(durations, period))
    first = block.first_step + len(durations) - len(kept)
    names = [kind_of.get(first + i, "A") for i in range(len(kept))]
    return {"clock": clock, "first_step": first, "durations_ns": kept, "kinds": names}


def kind_records(seen: Sequence[SeenStep], kinds: Sequence[str], period: int | None) -> list[dict[str, Any]]:
    if not seen:
        return [{"name": "A", "label": "the whole run", "frequency": 1.0}]
    last = kinds[len(kinds) % (period or 1) :] or kinds
    example = dict(zip(kinds, seen, strict=True))
    return [
        {"name": kind, "label": label(example[kind].counts, kind), "frequency": count / len(last)}
        for kind, count in Counter(last).most_common()
    ]


def label(counts: Counts, kind: str) -> str:
    by_op: Counter[str] = Counter()
    for call, (count, _) in counts.items():
        by_op[call.op.removeprefix("aten::")] += count
    text = ", ".join(f"{count} {op}" for op, count in by_op.most_common()) or "no linalg calls"
    if kind.endswith("++"):
        return f"{text}, slower still"
    return f"{text}, slow" if kind.endswith("+") else text


def kind_notes(seen: set[str], recorded: set[str], period: int | None, steps: int) -> list[str]:
    if not seen or (period is not None and seen <= recorded):
        return []
    why = "" if period is not None else f", and no period up to {MAX_PERIOD} was found in {steps} steps"
    return [f"steps differ: the recorded ones are {len(recorded & seen)} of {len(seen)} kinds{why}"]


def linalg_records(steps: Sequence[SeenStep], samples: Mapping[Call, Sequence[Any]]) -> list[dict[str, Any]]:
    total: dict[Call, list[int]] = {}
    for step in steps:
        for call, (count, ns) in step.counts.items():
            entry = total.setdefault(call, [0, 0])
            entry[0] += count
            entry[1] += ns
    return [
        {
            "op": call.op,
            "shape": list(call.shape),
            "dtype": call.dtype,
            "strides": list(call.strides),
            "device": call.device,
            "site": call.site,
            "calls_per_step": count / len(steps),
            "ns_per_step": ns / len(steps) if call.device == "cpu" else None,
            "samples": len(samples.get(call, ())),
        }
        for call, (count, ns) in total.items()
    ]


def versions() -> dict[str, str]:
    import torch

    found = {"qrprof": qrprof.__version__, "python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.version.hip:
        found["hip"] = torch.version.hip
    return {**found, **installed(("triton", "numpy"))}


def installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def devices() -> list[dict[str, Any]]:
    """The CUDA device the program trained on, where it used one."""
    import torch

    if not uses_device():
        return []
    index = torch.cuda.current_device()
    found = torch.cuda.get_device_properties(index)
    uuid = str(getattr(found, "uuid", ""))
    return [{"index": index, "kind": "cuda", "name": found.name, "memory_bytes": found.total_memory, "uuid": uuid}]


def threads() -> int:
    import torch

    return torch.get_num_threads()
