"""Traces that others recorded, as a run: a folder of records and columns, without the traces themselves."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import ANNOTATION, HOST, MARK_PREFIX
from qrprof.profiler.load import cache_file
from qrprof.profiler.read import ranked, read_all
from qrprof.profiler.readers.chrome import Progress
from qrprof.profiler.readers.metadata import UNKNOWN_GPU
from qrprof.profiler.readers.source import Source
from qrprof.profiler.runinfo import IMPORTED, SCHEMA, DeviceInfo, RunInfo
from qrprof.profiler.steps import PROFILER_STEP
from qrprof.profiler.store import RUN_FILE, make_run_folder, new_run_id, open_store, run_file, write_private
from qrprof.profiler.trace import Trace, read_cache, write_cache

INT64: Final = 1 << 63


@dataclass(frozen=True)
class Imported:
    """A rank as it was taken; of its trace only what is asked of all ranks together is kept in memory."""

    rank: int
    source: Source  # its trace holds no events any more
    events: int
    device_work: int
    first_ns: int  # wall time, where the trace knows that of its zero
    last_ns: int
    steps: str
    used: tuple[DeviceInfo, ...]  # the devices that it worked on
    notes: tuple[str, ...]  # what the reader had to say


def import_run(
    paths: Sequence[Path], root: Path, now: datetime, progress: Progress | None = None
) -> tuple[Path, list[Imported]]:
    """Make a run of the files, which are one process or the ranks of one job, in `root/.qrprof`.

    Returns its folder and its ranks in order. Raises QrprofError where a file cannot be read, the files are not of one
    job, or the folder cannot be written; then no run is left behind.
    """
    sources = ranked(read_all(paths, progress))
    first = next(sources)  # a file that is no trace leaves no folder behind
    folder = make_run_folder(open_store(root) / "runs", new_run_id(paths[0].resolve().name.split(".")[0], now))
    try:
        taken = sorted(take(folder, chain([first], sources)), key=lambda one: one.rank)
        together = align(folder, taken)
        taken = [replace(one, notes=(*one.notes, *together)) for one in taken]
        for one in reversed(taken):  # the lowest rank's record comes last: it makes the folder a run
            name = RUN_FILE if one is taken[0] else run_file(one.rank)
            run = record(folder.name, one, world_size(taken), paths, now)
            write_private(folder / name, run.model_dump_json(indent=1) + "\n")
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise QrprofError(
                f"cannot write {folder}: {error.strerror}; make room, or work in another folder"
            ) from None
        raise
    return folder, taken


def take(folder: Path, sources: Iterator[tuple[int, Source]]) -> Iterator[Imported]:
    """Write each rank's columns as it comes."""
    for rank, source in sources:
        trace = source.trace
        write_cache(replace(trace, warnings=()), folder / cache_file(rank))  # the record has the warnings
        yield Imported(
            rank=rank,
            source=source.without_events(),
            events=len(trace.events),
            device_work=len(trace.device_work()),
            first_ns=int(trace.events["start"].min()) + trace.base_ns,
            last_ns=int(trace.events["end"].max()) + trace.base_ns,
            steps=source.steps or steps_of(trace),
            used=used(source),
            notes=trace.warnings,
        )


def steps_of(trace: Trace) -> str:
    """What `find_steps` takes the steps from."""
    annotations = trace.of_kind(ANNOTATION)
    names = [str(name) for name in annotations.loc[annotations["device"] == HOST, "name"].unique()]
    if sum(name.startswith(MARK_PREFIX) for name in names) > 1:
        return "marks of qrprof"
    return "ProfilerStep" if any(name.startswith(PROFILER_STEP) for name in names) else "whole trace"


def used(source: Source) -> tuple[DeviceInfo, ...]:
    """The devices that the process worked on, by what the file says of them.

    Work may name its device by another number than the file's list does (ROCm): then all listed must be alike.
    """
    known = {device.index: device for device in source.devices}
    alike = len({(device.name, device.memory_bytes) for device in source.devices}) == 1
    other = source.devices[0] if alike else DeviceInfo(index=0, kind="cuda", name=UNKNOWN_GPU, memory_bytes=0)
    numbers = sorted(set(source.trace.device_work()["device"].tolist()))
    return tuple(known.get(number, other.model_copy(update={"index": number})) for number in numbers)


# --- all ranks together


def align(folder: Path, taken: Sequence[Imported]) -> list[str]:
    """Let the times of all ranks count from one zero, and say what stands against comparing them."""
    notes = []
    bases = {one.source.trace.base_ns for one in taken}
    zero = min(bases)
    known = all(bases) or len(bases) == 1
    if known and max(one.last_ns for one in taken) - zero < INT64:
        for one in taken:
            shift(folder / cache_file(one.rank), one.source.trace.base_ns - zero)
    else:
        notes.append("the ranks' clocks are not aligned: not all files say when their zero was")
    if known and max(one.first_ns for one in taken) > min(one.last_ns for one in taken):
        notes.append("not all ranks overlap in time: their clocks differ, or they are of several recordings")
    if len(taken) < world_size(taken):
        notes.append(f"{len(taken)} of {world_size(taken)} ranks were imported")
    return notes


def shift(cache: Path, ns: int) -> None:
    trace = read_cache(cache) if ns else None
    if trace is not None:
        events = trace.events.assign(start=trace.events["start"] + ns, end=trace.events["end"] + ns)
        write_cache(replace(trace, events=events, base_ns=trace.base_ns - ns), cache)


def world_size(taken: Sequence[Imported]) -> int:
    return max(one.source.world_size or one.rank + 1 for one in taken)


def record(run_id: str, one: Imported, world: int, paths: Sequence[Path], now: datetime) -> RunInfo:
    return RunInfo(
        schema_number=SCHEMA,
        id=run_id,
        created=now.isoformat(timespec="seconds"),
        command=[str(path) for path in paths],
        cwd=str(Path.cwd()),
        step_source=f"{IMPORTED}, {one.steps}",
        rank=one.rank,
        world_size=world,
        versions=dict(one.source.versions),
        devices=list(one.used),
        threads=0,
        period=None,
        kinds=[],
        unprofiled=[],
        recorded=[],
        linalg=[],
        repeats=[],
        notes=list(one.notes),
        trace=str(one.source.path.absolute()),
        exit_code=None,
    )
