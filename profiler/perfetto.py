"""A trace as Chrome JSON that ui.perfetto.dev opens: its rows, and what was found out about them as further tracks.

The viewer drops a slice that overlaps another one of its track without lying inside it, so what overlaps goes to
further lanes of the track. Rows are written as Kineto writes them, and read back they are the same; times
are the decimal text of whole nanoseconds. What is added (gaps, QR calls and their block columns, arrows) is written
as other kinds of events, which readers of traces pass over.
"""

import gzip
import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, cast

import numpy as np
import pandas as pd

from qrprof.profiler.blame import GAP_LABELS
from qrprof.profiler.coverage import cover, describe
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import ANNOTATION, COPY, DEVICE_WORK, HOST, KERNEL, MEMSET, OP, OVERHEAD, RUNTIME, SYNC
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.gaps import Gap, find_idle
from qrprof.profiler.lanes import Event, Places, apart_lanes, find_places, numbered, process_names, thread_names
from qrprof.profiler.panels import PanelStep, find_panels
from qrprof.profiler.panelsums import PanelCall, by_call
from qrprof.profiler.redact import Redact, names_here, redactor
from qrprof.profiler.runinfo import DeviceInfo, RunInfo
from qrprof.profiler.store import replacing
from qrprof.profiler.trace import DEFAULTS, Trace

CATEGORY: Final = {
    OP: "cpu_op",
    ANNOTATION: "user_annotation",
    RUNTIME: "cuda_runtime",
    OVERHEAD: "overhead",
    KERNEL: "kernel",
    COPY: "gpu_memcpy",
    MEMSET: "gpu_memset",
    SYNC: "cuda_sync",
}
NOTHING_AWAITED: Final = [DEFAULTS["awaits"], DEFAULTS["awaits_stream"]]
FOUND: Final = 1  # the process of what was found out

Write = Callable[[str], Any]


class Slice(NamedTuple):
    """Something found out about a stretch of time."""

    track: str
    start: int
    end: int
    name: str
    args: Mapping[str, Any]


class Written(NamedTuple):
    """How much an exported file holds."""

    rows: int
    arrows: int
    gaps: int
    calls: int  # of QR


def export(trace: Trace, path: Path, run: RunInfo | None = None, redacted: bool = False) -> Written:
    """`export_facts` of a trace. Raises QrprofError where the trace is empty, too."""
    return export_facts(find_facts(trace, run), path, run, redacted)


def export_facts(
    facts: Facts, path: Path, run: RunInfo | None = None, redacted: bool = False, known: Sequence[Slice] = ()
) -> Written:
    """Write a trace with its gaps and QR calls to `path`, gzipped where that ends in .gz; `known` is drawn beside them.

    With `redacted`, texts hold no paths, users, hosts or tokens (`redact`). An old file is replaced once the new one
    is whole. Raises QrprofError where the file cannot be written.
    """
    redact = _redactor(facts.trace, run) if redacted else str
    with written(path) as file:
        return _write(facts, run, redact, file.write, known)


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """A text file, gzipped where `path` ends in .gz, that takes the place of `path` once it is whole."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as raw:
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.name.endswith(".gz") else raw
            with packed, TextIOWrapper(cast("Any", packed), encoding="utf-8") as file:
                yield file
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; give another file") from None


def _redactor(trace: Trace, run: RunInfo | None) -> Redact:
    texts = [str(name) for name in trace.events["name"].cat.categories]
    return redactor([*texts, *(run.command if run else ()), run.cwd if run else ""], names_here())


def _write(facts: Facts, run: RunInfo | None, redact: Redact, write: Write, known: Sequence[Slice]) -> Written:
    idle, steps = find_idle(facts, run), find_panels(facts)
    calls = [call for call in by_call(steps) if call.start is not None]
    gaps = idle.gaps or []
    blocks = [_block(step) for step in steps if step.part and step.kernels]
    found = [*known, *map(_gap, gaps), *map(_call, calls), *blocks]
    devices = {device.index: redact(device.name) for device in _devices(run)}
    places = find_places(facts.trace.events, devices, facts.steps.thread)
    write(f'{{"displayTimeUnit": "ms", {_head(facts, run, redact)}"traceEvents": [')
    write(",".join(f"\n{_dump(event)}" for event in places.names))
    rows = _write_rows(facts.trace.events, places, redact, write)
    arrows = _write_arrows(facts.trace.events, places, write)
    _write_found(found, redact, write)
    write("\n]}\n")
    return Written(rows, arrows, len(gaps), len(calls))


def _head(facts: Facts, run: RunInfo | None, redact: Redact) -> str:
    """What a reader of the file should know beside the events, as Kineto writes it where it does."""
    told: Event = {"coverage": describe(cover(facts))}
    head: Event = {"baseTimeNanoseconds": facts.trace.base_ns} if facts.trace.base_ns else {}
    if run:
        told |= {"run": redact(run.id), "command": redact(shlex.join(run.command))}
        head["distributedInfo"] = {"rank": run.rank, "world_size": run.world_size}
        head["deviceProperties"] = [
            {"id": device.index, "name": redact(device.name), "totalGlobalMem": device.memory_bytes}
            for device in _devices(run)
        ]
    return "".join(f"{_dump(key)}: {_dump(value)}, " for key, value in {**head, "otherData": told}.items())


def _devices(run: RunInfo | None) -> list[DeviceInfo]:
    return [device for device in run.devices if device.kind != "cpu"] if run else []


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def us(ns: int) -> str:
    """Nanoseconds as the decimal text of microseconds, exact."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' * (ns < 0)}{whole}.{rest:03d}"


# --- the trace's rows


def _write_rows(events: pd.DataFrame, places: Places, redact: Redact, write: Write) -> int:
    """One complete event a row, in the order of the rows: readers keep it where starts and ends are the same."""
    names = [_dump(redact(str(name))) for name in events["name"].cat.categories]
    kinds = [_dump(CATEGORY[kind]) for kind in events["kind"].cat.categories]
    inputs = [f'"Input Dims": {shapes}, ' if shapes else "" for shapes in events["shapes"].cat.categories]
    types = [f'"Input type": {_dump(kinds.split(","))}, ' if kinds else "" for kinds in events["dtypes"].cat.categories]
    coded = [events[column].cat.codes.tolist() for column in ("kind", "name", "shapes", "dtypes")]
    whole = ("start", "end", "device", "track", "correlation", "sequence", "bytes", "awaits", "awaits_stream")
    plain = [events[column].tolist() for column in whole]
    for row in zip(*coded, *plain, places.pid.tolist(), places.tid.tolist(), strict=True):
        kind, name, shapes, dtypes, start, end, device, track, correlation, sequence, size, *awaited, pid, tid = row
        args = inputs[shapes] + types[dtypes]
        if device != HOST:
            args += f'"device": {device}, "stream": {track}, '
        if correlation:
            args += f'"correlation": {correlation}, '
        if sequence != DEFAULTS["sequence"]:
            args += f'"Sequence number": {sequence}, '
        if size != DEFAULTS["bytes"]:
            args += f'"bytes": {size}, '
        if awaited != NOTHING_AWAITED:
            args += '"wait_on_cuda_event_record_corr_id": {}, "wait_on_stream": {}, '.format(*awaited)
        write(
            f',\n{{"ph": "X", "cat": {kinds[kind]}, "name": {names[name]}, "pid": {pid}, "tid": {tid}, '
            f'"ts": {us(start)}, "dur": {us(end - start)}, "args": {{{args[:-2]}}}}}'
        )
    return len(events)


def _write_arrows(events: pd.DataFrame, places: Places, write: Write) -> int:
    """An arrow from each launch to each item of work that it launched; the join is that of `work`."""
    rows = pd.DataFrame({"correlation": events["correlation"], "start": events["start"], "row": np.arange(len(events))})
    launches = rows[(events["kind"] == RUNTIME) & (rows["correlation"] != 0)].drop_duplicates("correlation")
    work = rows[events["kind"].isin(DEVICE_WORK) & (rows["correlation"] != 0)]
    arrows = work.merge(launches, on="correlation", suffixes=("_to", "_from"))
    ends = arrows[["row_from", "start_from", "row_to", "start_to"]].to_numpy().tolist()
    for number, (source, launched, target, started) in enumerate(ends, start=1):
        for phase, row, at in (('"s"', source, launched), ('"f", "bp": "e"', target, started)):
            write(
                f',\n{{"ph": {phase}, "id": {number}, "cat": "ac2g", "name": "ac2g", '
                f'"pid": {places.pid[row]}, "tid": {places.tid[row]}, "ts": {us(at)}}}'
            )
    return len(ends)


# --- what was found out


def _write_found(found: Sequence[Slice], redact: Redact, write: Write) -> None:
    """Slices as pairs of begin and end, each track on as many lanes as it needs."""
    tracks: dict[str, list[Slice]] = defaultdict(list)
    for one in found:
        tracks[one.track].append(one)
    names, tid = process_names(FOUND, "qrprof"), 0
    for track, slices in tracks.items():
        slices.sort(key=lambda one: (one.start, one.end))
        lanes = apart_lanes([one.start for one in slices], [one.end for one in slices])
        for lane in range(max(lanes) + 1):
            tid += 1
            names += thread_names(FOUND, tid, f"{track}{numbered(lane)}", tid)
            for one in (one for one, own in zip(slices, lanes, strict=True) if own == lane):
                _write_slice(one, tid, redact, write)
    for event in names if tid else ():
        write(f",\n{_dump(event)}")


def _write_slice(one: Slice, tid: int, redact: Redact, write: Write) -> None:
    known = {key: value for key, value in one.args.items() if value not in (None, "")}
    args = {key: redact(value) if isinstance(value, str) else value for key, value in known.items()}
    where = f'"name": {_dump(redact(one.name))}, "cat": "qrprof", "pid": {FOUND}, "tid": {tid}'
    write(f',\n{{"ph": "B", {where}, "ts": {us(one.start)}, "args": {_dump(args)}}}')
    write(f',\n{{"ph": "E", {where}, "ts": {us(one.end)}}}')


def _gap(gap: Gap) -> Slice:
    label = GAP_LABELS[gap.cause]
    args = {"cause": label, "op": gap.op, "event": gap.event, "where": gap.where, "phase": gap.phase, "step": gap.step}
    name = f"{label}: {gap.op or gap.event}" if gap.op or gap.event else label
    told = {**args, "share of the step": gap.share, "before": gap.before, "after": gap.after}
    return Slice(f"gaps of device {gap.device}", gap.start, gap.end, name, told)


def _call(call: PanelCall) -> Slice:
    size = f"{call.size.batch} x {call.size.m} x {call.size.n} " if call.size else ""
    name = f"{call.op.removeprefix('aten::')} {size}{call.dtype}".strip()
    args = {"library": call.library, "GFLOP/s": call.gflops, "note": call.note}
    return Slice("QR calls", call.start or 0, call.end or 0, name, args | _times(call.phases, call.gap))


def _block(step: PanelStep) -> Slice:
    place = "" if step.column is None else f" {step.column}"
    size = "" if step.nb is None else f": {step.m} x {step.n}, nb {step.nb}"
    args = {"matrix": step.matrix, "GFLOP/s": step.gflops, "note": step.note}
    times = _times(step.phases, step.gap)
    return Slice("QR block columns", step.start or 0, step.end or 0, f"{step.part}{place}{size}", args | times)


def _times(phases: Mapping[str, float | None] | None, gap: int | None) -> dict[str, float | None]:
    """ns as us by phase, the gaps last."""
    times = {**(phases or {}), "gap": gap}
    return {f"{phase}, us": None if ns is None else ns / 1000 for phase, ns in times.items()}
