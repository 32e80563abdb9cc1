"""Kineto's Chrome JSON, as torch.profiler writes it for CPU and CUDA, as a `Trace`."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
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
    COPY,
    DEVICE_WORK,
    HOST,
    KERNEL,
    MEMSET,
    OP,
    OVERHEAD,
    RUNTIME,
    SYNC,
)
from qrprof.profiler.readers.chrome import CHUNK, Found, event_batches
from qrprof.profiler.trace import DEFAULTS, Trace, sort_events

KIND_OF: Final = {
    "cpu_op": OP,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": MEMSET,
    "cuda_sync": SYNC,
    "cuda_event": SYNC,
    "overhead": OVERHEAD,
}
# Spans that others account for: an annotation drawn on the device covers gaps, a Python frame its ops.
DROPPED: Final = frozenset({"gpu_user_annotation", "python_function", "Trace"})
ON_DEVICE: Final = frozenset({*DEVICE_WORK, SYNC})
HOST_SPANS: Final = frozenset({OP, ANNOTATION, OVERHEAD})  # no launch and no work: nothing to join

NS_LIMIT: Final = 1 << 62  # start and duration below it: their sum is an int64
INT32: Final = 1 << 31
INT64: Final = 1 << 63
SHOWN: Final = 5  # unknown categories that a warning names
UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass
class Columns:
    """The rows so far, a column an array; texts are coded by their place in `texts`."""

    data: dict[str, "array[int]"] = field(
        default_factory=lambda: {name: array("i" if kind == "category" else "q") for name, kind in COLUMNS.items()}
    )
    texts: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {} for name, kind in COLUMNS.items() if kind == "category"}
    )
    tracks: dict[str, int] = field(default_factory=dict)  # threads that have a name and no number
    unknown: Counter[str] = field(default_factory=Counter)  # events of each unknown category
    timeless: int = 0  # events without a usable ts and dur


def read(path: Path) -> Trace:
    """Read a trace, plain or gzip. `start` and `end` count from the file's own zero, which is `base_ns`.

    Raises QrprofError where the file cannot be read, is no trace or holds no event of a known category.
    """
    return read_in_chunks(path, CHUNK)


def read_in_chunks(path: Path, chunk_bytes: int) -> Trace:
    found, columns = Found(), Columns()
    for batch in event_batches(path, found, chunk_bytes):
        add(batch, columns)
    warnings = warn(found, columns)
    if not columns.data["start"]:
        reason = f" ({'; '.join(warnings)})" if warnings else ""
        raise QrprofError(f"{path} holds no events{reason}; record it with CPU or CUDA activities on")
    return Trace(sort_events(frame(columns)), found.base_ns, warnings)


def add(batch: Iterable[Any], columns: Columns) -> None:
    rows = [row for event in batch if isinstance(event, dict) and (row := row_of(event, columns))]
    for column, values in zip(columns.data.values(), zip(*rows, strict=True), strict=False):  # no rows: no values
        column.extend(values)


def row_of(event: Mapping[str, Any], columns: Columns) -> tuple[int, ...] | None:
    """The event's values in the order of COLUMNS, texts as codes; None where it is no row of a trace."""
    if event.get("ph") != "X":
        return None
    category = str(event.get("cat", ""))
    kind = KIND_OF.get(category)
    if kind is None:
        if category not in DROPPED:
            columns.unknown[category] += 1
        return None
    try:
        start, duration = to_ns(event["ts"]), to_ns(event["dur"])
    except (KeyError, TypeError, ValueError):
        start, duration = 0, -1
    if duration < 0:
        columns.timeless += 1
        return None
    args = event.get("args")
    if not isinstance(args, dict):
        args = {}
    texts = columns.texts
    return (
        code(kind, texts["kind"]),
        code(str(event.get("name", "")), texts["name"]),
        start,
        start + duration,
        *place(event, args, kind, columns.tracks),
        0 if kind in HOST_SPANS else correlation(args),
        number(args.get("Sequence number"), DEFAULTS["sequence"]),
        code(shapes(args), texts["shapes"]),
        code(dtypes(args), texts["dtypes"]),
        number(args.get("bytes"), DEFAULTS["bytes"]),
    )


def place(event: Mapping[str, Any], args: Mapping[str, Any], kind: str, tracks: dict[str, int]) -> tuple[int, int]:
    """Device and track: the arguments name them better than pid and tid, which only draw the row."""
    if kind not in ON_DEVICE:
        return HOST, track(event.get("tid"), tracks)
    device = number(args.get("device", event.get("pid")), 0)
    return device if 0 <= device < INT32 else 0, track(args.get("stream", event.get("tid")), tracks)


def track(value: Any, tracks: dict[str, int]) -> int:
    """A thread's or stream's number; one that only has a name gets a negative number of its own."""
    if isinstance(value, str):
        return tracks.setdefault(value, -2 - len(tracks))
    return number(value, DEFAULTS["track"])


def correlation(args: Mapping[str, Any]) -> int:
    value = args.get("correlation")
    if value is None:
        value = next((value for key, value in args.items() if key.lower() == "correlation"), None)
    return max(0, number(value, DEFAULTS["correlation"]))


def shapes(args: Mapping[str, Any]) -> str:
    dims = args.get("Input Dims")
    try:
        return "" if dims is None else orjson.dumps(dims).decode()
    except TypeError:  # an integer beyond 64 bits
        return ""


def dtypes(args: Mapping[str, Any]) -> str:
    types = args.get("Input type")
    return ",".join(map(str, types)) if isinstance(types, list) else ""


def number(value: Any, default: int) -> int:
    return value if type(value) is int and -INT64 <= value < INT64 else default


def code(text: str, codes: dict[str, int]) -> int:
    known = codes.get(text)
    if known is not None:
        return known
    return codes.setdefault(UNPRINTABLE.sub(" ", text), len(codes))


def to_ns(text: Any) -> int:
    """Microseconds as decimal text in ns, exact; digits beyond the ns are rounded.

    Raises TypeError or ValueError where it is no number or beyond the range of int64 times.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no time")
    whole, _, decimals = text.partition(".")
    try:
        ns = int(whole + decimals) if len(decimals) == 3 else 1000 * int(text)
    except ValueError:
        ns = round_to_ns(text)
    if not -NS_LIMIT < ns < NS_LIMIT:
        raise ValueError(f"{text} is beyond the range of times")
    return ns


def round_to_ns(text: str) -> int:
    try:
        us = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no time") from None
    if not us.is_finite() or us.adjusted() > 18:
        raise ValueError(f"{text} is beyond the range of times")
    return int(us.scaleb(3).to_integral_value())


def frame(columns: Columns) -> pd.DataFrame:
    def values(name: str) -> Any:
        data: NDArray[np.integer[Any]] = np.frombuffer(columns.data[name], dtype=columns.data[name].typecode)
        if name in columns.texts:
            return pd.Categorical.from_codes(data, pd.Index(list(columns.texts[name])))
        return data.astype(COLUMNS[name], copy=False)

    return pd.DataFrame({name: values(name) for name in COLUMNS})


def warn(found: Found, columns: Columns) -> tuple[str, ...]:
    """What was left out or repaired, one line each."""
    unknown = columns.unknown.most_common()
    named = ", ".join(f"{name[:40]!r} ({count})" for name, count in unknown[:SHOWN]) + ", ..." * (len(unknown) > SHOWN)
    counted = (
        (columns.unknown.total(), f"events of unknown categories were left out: {named}"),
        (columns.timeless, "events without a usable time were left out"),
        (found.broken, "stretches of the file are no JSON and were left out"),
        (found.repaired, "events with raw control characters or bad UTF-8 were read with them replaced"),
    )
    lines = [f"{count} {what}" for count, what in counted if count]
    if not found.complete:
        lines.append(f"the file breaks off: the {len(columns.data['start'])} events up to there were kept")
    return tuple(lines)
