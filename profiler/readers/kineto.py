"""Kineto's Chrome JSON, as torch.profiler has written it since 2020 for CPU and accelerators, as a `Trace`."""

import gc
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import (
    ANNOTATION,
    COLUMNS,
    DEVICE_WORK,
    HOST,
    KINDS,
    OP,
    OVERHEAD,
    RUNTIME,
    SYNC,
)
from qrprof.profiler.readers.categories import DROPPED, kind_of
from qrprof.profiler.readers.chrome import CHUNK, Batch, Found, Progress, event_batches
from qrprof.profiler.readers.codes import CODE_OF, INT32, NS_LIMIT, Codes
from qrprof.profiler.readers.metadata import devices_of, rank_of, versions_of
from qrprof.profiler.readers.repair import IMPOSSIBLE, MASKED, OVERRUNS, STRAYS, counted, cut_overruns, drop_strays
from qrprof.profiler.readers.source import Source
from qrprof.profiler.readers.texts import Masked, coded
from qrprof.profiler.trace import DEFAULTS, Trace, sort_events

ON_DEVICE: Final = frozenset({*DEVICE_WORK, SYNC})
HOST_SPANS: Final = frozenset({OP, ANNOTATION, OVERHEAD})  # no launch and no work: nothing to join
CALLS: Final = frozenset({OP, RUNTIME})  # what a process does itself
NOTHING: Final[dict[str, Any]] = {}
NO_SEQUENCE, NO_BYTES, NO_STREAM = DEFAULTS["sequence"], DEFAULTS["bytes"], DEFAULTS["awaits_stream"]

US_LIMIT: Final = NS_LIMIT / 1000
INT64: Final = 1 << 63
SHOWN: Final = 5  # unknown categories that a warning names

ROWS_AT_ONCE: Final = 4096  # arrays of a few rows cost more than their rows

Row = tuple[Any, ...]  # in the order of COLUMNS, but with a duration for the end
Ints = NDArray[np.int64]


@dataclass
class Columns:
    """The rows so far, a column an array; texts are coded by their place in `texts`."""

    pending: list[Row] = field(default_factory=list)  # rows that are not in the columns yet
    data: dict[str, "array[int]"] = field(default_factory=lambda: {name: array("q") for name in COLUMNS})
    names: Codes = field(default_factory=Codes)
    shapes: Codes = field(default_factory=Codes)
    dtypes: Codes = field(default_factory=Codes)
    tracks: dict[str, int] = field(default_factory=dict)  # threads that have a name and no number
    unknown: Counter[str] = field(default_factory=Counter)  # events of each unknown category
    processes: set[int | str] = field(default_factory=set)  # of the ops and calls
    unfinished: int = 0  # spans that were open when the recording ended
    timeless: int = 0  # events without a usable ts and dur
    impossible: int = 0  # spans that took less than no time, or 146 years


def read(path: Path) -> Trace:
    """Read a trace, plain or gzip. `start` and `end` count from the file's own zero, which is `base_ns`.

    Raises QrprofError where the file cannot be read, is no trace or holds no event of a known category.
    """
    return read_source(path).trace


def read_in_chunks(path: Path, chunk_bytes: int) -> Trace:
    return read_source(path, None, chunk_bytes).trace


def read_source(path: Path, progress: Progress | None = None, chunk_bytes: int = CHUNK) -> Source:
    """Read a trace with what the file says of its process; `progress` is told the bytes read and all.

    Raises QrprofError as `read` does.
    """
    found, columns = Found(), Columns()
    with collector_off():
        for batch in event_batches(path, found, chunk_bytes, progress):
            add(batch, columns)
        flush(columns)
    masked = Masked()
    frame, strays = drop_strays(frame_of(columns, masked))
    frame, overruns = cut_overruns(frame)
    warnings = warn(found, columns, {STRAYS: strays, OVERRUNS: overruns, MASKED: masked.count}, len(frame))
    if frame.empty:
        reason = f" ({'; '.join(warnings)})" if warnings else ""
        raise QrprofError(f"{path} holds no events{reason}; record it with CPU or CUDA activities on")
    rank, world_size = rank_of(found.metadata)
    trace = Trace(sort_events(frame), found.base_ns, warnings, found.listed)
    return Source(
        trace,
        path,
        rank=rank,
        world_size=world_size,
        devices=devices_of(found.metadata),
        versions=versions_of(found.metadata),
    )


@contextmanager
def collector_off() -> Iterator[None]:
    """Without the cycle collector, which would walk millions of young dicts that hold no cycle: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# --- events to rows


def add(batch: Batch, columns: Columns) -> None:
    spans = [event for event in batch if type(event) is dict and event.get("ph") == "X"]
    columns.pending += [row for span in spans if (row := row_of(span, columns))]
    if len(columns.pending) >= ROWS_AT_ONCE:
        flush(columns)


def flush(columns: Columns) -> None:
    """Take the pending rows into the columns."""
    if not columns.pending:
        return
    rows, columns.pending = columns.pending, []
    kind, name, start, duration, device, track, *numbers, shapes, dtypes, size, awaits, stream = zip(*rows, strict=True)
    start_ns, timed = to_ns(start)
    duration_ns, lasting = to_ns(duration)
    kept = timed & lasting & (np.abs(start_ns) < NS_LIMIT)
    impossible = kept & ((duration_ns < 0) | (duration_ns >= NS_LIMIT))
    columns.timeless += int((~kept).sum())
    columns.impossible += int(impossible.sum())
    values: dict[str, Ints] = {
        "kind": np.array(kind, dtype=np.int64),
        "name": np.array(name, dtype=np.int64),
        "start": start_ns,
        "end": start_ns + np.where(impossible, 0, duration_ns),
        "device": np.array(device, dtype=np.int64),
        "track": tracks_of(track, columns.tracks),
        "correlation": np.maximum(whole(numbers[0], 0), 0),
        "sequence": whole(numbers[1], NO_SEQUENCE),
        "shapes": np.array(shapes, dtype=np.int64),
        "dtypes": np.array(dtypes, dtype=np.int64),
        "bytes": whole(size, NO_BYTES),
        "awaits": np.maximum(whole(awaits, 0), 0),
        "awaits_stream": whole(stream, NO_STREAM),
    }
    for column, data in columns.data.items():
        data.frombytes(values[column][kept].tobytes())


def row_of(event: Mapping[str, Any], columns: Columns) -> Row | None:
    """The values of a complete event, texts as codes and times as they are; None where it is no row of a trace."""
    category, name = event.get("cat", ""), event.get("name", "")
    kind = kind_of(category, name)
    if kind is None:
        if str(category) not in DROPPED:
            columns.unknown[str(category)] += 1
        return None
    args = event.get("args")
    if type(args) is not dict:
        args = NOTHING
    if args.get("finished") in (False, "false") and kind != ANNOTATION:  # a range still open holds what ran in it
        columns.unfinished += 1
        return None
    if kind in ON_DEVICE:
        device, track = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
        if type(device) is not int or not 0 <= device < INT32:
            device = 0
    else:
        device, track = HOST, event.get("tid")
        if kind in CALLS and type(event.get("pid")) in (int, str):
            columns.processes.add(event["pid"])
    return (
        CODE_OF[kind],
        columns.names[name if type(name) is str else str(name)],
        event.get("ts"),
        event.get("dur"),
        device,
        track,
        0 if kind in HOST_SPANS else correlation(args),
        args.get("Sequence number", NO_SEQUENCE),
        columns.shapes[shapes(args["Input Dims"]) if "Input Dims" in args else b""],
        columns.dtypes[dtypes(args["Input type"]) if "Input type" in args else ""],
        args.get("bytes", NO_BYTES),
        args.get("wait_on_cuda_event_record_corr_id", 0) if kind == SYNC else 0,
        args.get("wait_on_stream", NO_STREAM) if kind == SYNC else NO_STREAM,
    )


def correlation(args: Mapping[str, Any]) -> Any:
    value = args.get("correlation")
    if value is None:
        value = next((value for key, value in args.items() if key.lower() == "correlation"), 0)
    return value


def shapes(dims: Any) -> bytes:
    try:
        return b"" if dims is None else orjson.dumps(dims)
    except TypeError:  # an integer beyond 64 bits
        return b""


def dtypes(types: Any) -> str:
    if type(types) is not list:
        return ""
    try:
        return ",".join(types)
    except TypeError:
        return ",".join(map(str, types))


# --- columns of numbers


def whole(values: Sequence[Any], default: int) -> Ints:
    """Integers of 64 bits; `default` for anything else."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            return np.array(values, dtype=np.int64)
    fits = (value if type(value) is int and -INT64 <= value < INT64 else default for value in values)
    return np.fromiter(fits, dtype=np.int64, count=len(values))


def tracks_of(values: Sequence[Any], tracks: dict[str, int]) -> Ints:
    """Numbers of threads and streams; one that only has a name gets a negative number of its own."""
    if str in map(type, values):
        values = [tracks.setdefault(value, -2 - len(tracks)) if type(value) is str else value for value in values]
    return whole(values, DEFAULTS["track"])


def to_ns(values: Sequence[Any]) -> tuple[Ints, NDArray[np.bool_]]:
    """Microseconds, as numbers of at most three decimals or as text, in ns; and which of them are numbers.

    What is beyond the range of times comes out as NS_LIMIT or more, or as minus that.
    """
    if set(map(type, values)) <= {float, int}:
        with suppress(OverflowError):
            us = np.array(values, dtype=np.float64)
            known = ~np.isnan(us)
            us = np.clip(np.where(known, us, 0.0), -US_LIMIT, US_LIMIT)
            floor = np.floor(us)
            return floor.astype(np.int64) * 1000 + np.rint((us - floor) * 1000).astype(np.int64), known
    exact = [text_to_ns(value) for value in values]
    clipped = (min(max(one or 0, -NS_LIMIT), NS_LIMIT) for one in exact)
    return np.fromiter(clipped, dtype=np.int64, count=len(exact)), np.array([one is not None for one in exact])


def text_to_ns(value: Any) -> int | None:
    """Digits beyond the ns are rounded; None where it is no number."""
    text = value if type(value) is str else repr(value) if type(value) in (int, float) else ""
    whole_us, _, decimals = text.partition(".")
    with suppress(ValueError):
        return int(whole_us + decimals) if len(decimals) == 3 else 1000 * int(text)
    with suppress(InvalidOperation):
        us = Decimal(text)
        if us.is_finite():
            return NS_LIMIT if us.adjusted() > 18 else int(us.scaleb(3).to_integral_value())
    return None


# --- the frame


def frame_of(columns: Columns, masked: Masked) -> pd.DataFrame:
    texts = {"name": columns.names, "shapes": columns.shapes, "dtypes": columns.dtypes}

    def values(name: str) -> Any:
        data: Ints = np.frombuffer(columns.data[name], dtype=np.int64)
        if name == "kind":
            return pd.Categorical.from_codes(data, pd.Index(KINDS))
        if name in texts:
            return coded(data, texts[name], masked)
        return data.astype(COLUMNS[name], copy=False)

    return pd.DataFrame({name: values(name) for name in COLUMNS})


ODD: Final = "events with raw control characters, bad UTF-8 or numbers that JSON has not (NaN) were read all the same"


def warn(found: Found, columns: Columns, repairs: Mapping[str, int], kept: int) -> tuple[str, ...]:
    """What was left out or repaired, one line each."""
    unknown = columns.unknown.most_common()
    named = ", ".join(f"{name[:40]!r} ({count})" for name, count in unknown[:SHOWN]) + ", ..." * (len(unknown) > SHOWN)
    numbers = {
        f"events of unknown categories were left out: {named}": columns.unknown.total(),
        "events without a usable time were left out": columns.timeless,
        "spans still open at the end of the recording were left out": columns.unfinished,
        IMPOSSIBLE: columns.impossible,
        **repairs,
        "stretches of the file are no JSON and were left out": found.broken,
        ODD: found.repaired,
    }
    lines = counted(numbers)
    if (processes := len(columns.processes)) > 1:  # each counts its correlations from 1, so they may be mixed up
        lines.append(f"ops of {processes} processes are in one file; launches are matched by correlation alone")
    if not found.listed:
        lines.append(f"the file breaks off: the {kept} events up to there were kept")
    elif not found.complete:
        lines.append("the file breaks off after its events, which were all kept")
    return tuple(lines)
