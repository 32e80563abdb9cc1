"""Nsight Systems' SQLite export of any version: each process that used a GPU as a trace of its own.

Tables and columns are there or not, by version and by what was recorded. Only those named here are
read: the captured environment lies in others. Launches and their work are joined by correlation and
process, so the processes are separated first: their correlations, devices and threads may have the same numbers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import (
    ANNOTATION,
    COLUMNS,
    COPY,
    DEVICE_WORK,
    HOST,
    KERNEL,
    KINDS,
    MEMSET,
    OP,
    OVERHEAD,
    RUNTIME,
    SYNC,
)
from qrprof.profiler.nesting import Ints
from qrprof.profiler.readers.chrome import Progress
from qrprof.profiler.readers.codes import CODE_OF, INT32, NS_LIMIT, Codes
from qrprof.profiler.readers.export import (
    ABSENT,
    Export,
    Table,
    base_ns,
    fetch,
    fetch_pieces,
    gpus,
    opened,
    product_version,
    strings,
)
from qrprof.profiler.readers.nvtx import as_steps, parse
from qrprof.profiler.readers.repair import IMPOSSIBLE, MASKED, counted
from qrprof.profiler.readers.source import Source
from qrprof.profiler.readers.texts import Masked, coded
from qrprof.profiler.trace import DEFAULTS, Trace, sort_events

CUPTI: Final = "CUPTI_ACTIVITY_KIND_"
PLACE: Final = {"deviceId": 0, "streamId": 0, "correlationId": 0, "globalPid": ABSENT}
NAMES: Final = {"demangledName": ABSENT, "shortName": ABSENT, "mangledName": ABSENT}  # of a kernel, best first
VERSION: Final = re.compile(r"_v\d{4,5}$")  # cudaLaunchKernel_v7000
TRANSFERS: Final = dict(enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1))
MIGRATIONS: Final = {11: "HtoD", 12: "DtoH", 13: "DtoD"}  # of managed memory
MEMORY: Final = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed")))
SYNCS: Final = dict(enumerate(("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"), 1))
PROCESS, THREAD = 24, 0xFFFFFF  # of a global id: what is above is the process, what is in it the thread
ALL_STREAMS: Final = 0xFFFFFFFF
UNKNOWN: Final = ABSENT >> PROCESS
OTHERS: Final = "other processes of the file used no GPU and were left out"
WHOLE_GRAPHS: Final = (
    "CUDA graphs were recorded whole, without their kernels: record them with `nsys profile --cuda-graph-trace=node`"
)
NO_OPS: Final = (
    "no ops in the file, so nobody is blamed for a launch: record the program under "
    "torch.autograd.profiler.emit_nvtx(record_shapes=True) with `--trace=cuda,nvtx`"
)
TEXTS: Final = ("name", "shapes", "dtypes")


@dataclass
class Rows:
    """The rows so far: by table the columns, and the process; texts by their place in `texts`."""

    parts: list[Table] = field(default_factory=list)
    texts: dict[str, Codes] = field(
        default_factory=lambda: {"name": Codes(), "shapes": Codes({"": 0}), "dtypes": Codes({"": 0})}
    )
    whole_graphs: set[int] = field(default_factory=set)  # processes whose graph replays are one row each


def read_sources(path: Path, progress: Progress | None = None) -> list[Source]:
    """The processes of an export that used a GPU, by device and process id; else the one with most events.

    Raises QrprofError where the file cannot be read, is no export or holds no events.
    """
    with opened(path, progress) as export:
        rows = Rows()
        read_device(export, rows)
        read_host(export, rows)
        sources = split(path, export, rows)
    if progress:
        progress(export.size, export.size)
    return sources


# --- tables


def read_device(export: Export, rows: Rows) -> None:
    kernels = fetch(export, f"{CUPTI}KERNEL", {**PLACE, **NAMES})
    name = np.full(len(kernels["start"]), ABSENT)
    for column in NAMES:
        name = np.where(name == ABSENT, kernels[column], name)
    put(rows, KERNEL, kernels, by_id(export, rows, name, "kernel"))
    read_graphs(export, rows, kernels)
    copies = fetch(export, f"{CUPTI}MEMCPY", {**PLACE, "bytes": -1, "copyKind": 0, "srcKind": 255, "dstKind": 255})
    kinds = (copies["copyKind"] & 255) << 16 | (copies["srcKind"] & 255) << 8 | (copies["dstKind"] & 255)
    put(rows, COPY, copies, by_value(rows, kinds, copy_name))
    memsets = fetch(export, f"{CUPTI}MEMSET", {**PLACE, "bytes": -1, "memKind": ABSENT})
    put(
        rows,
        MEMSET,
        memsets,
        by_value(rows, memsets["memKind"], lambda kind: f"Memset ({MEMORY.get(kind, 'Unknown')})"),
    )
    syncs = fetch(export, f"{CUPTI}SYNCHRONIZATION", {**PLACE, "syncType": 0})
    syncs["streamId"] = np.where(syncs["streamId"] == ALL_STREAMS, -1, syncs["streamId"])
    put(rows, SYNC, syncs, by_value(rows, syncs["syncType"], lambda kind: SYNCS.get(kind, "Sync")))


def read_graphs(export: Export, rows: Rows, kernels: Table) -> None:
    """Graph replays that were recorded as one span each; where their kernels are there too, those are enough."""
    graphs = fetch(export, f"{CUPTI}GRAPH_TRACE", {**PLACE, "graphId": 0})
    known = set(zip(kernels["globalPid"].tolist(), kernels["correlationId"].tolist(), strict=True))
    own = zip(graphs["globalPid"].tolist(), graphs["correlationId"].tolist(), strict=True)
    whole = np.array([pair not in known for pair in own], dtype=bool)
    graphs = {column: numbers[whole] for column, numbers in graphs.items()}
    rows.whole_graphs |= set((graphs["globalPid"] >> PROCESS).tolist())
    put(rows, KERNEL, graphs, by_value(rows, graphs["graphId"], lambda graph: f"CUDA graph {graph}"))


def read_host(export: Export, rows: Rows) -> None:
    calls = fetch(export, f"{CUPTI}RUNTIME", {"globalTid": ABSENT, "correlationId": 0, "nameId": ABSENT})
    put(rows, RUNTIME, calls, by_id(export, rows, calls["nameId"], "CUDA call"))
    for table in (f"{CUPTI}OVERHEAD", "PROFILER_OVERHEAD"):
        costs = fetch(export, table, {"globalTid": ABSENT, "nameId": ABSENT})
        put(rows, OVERHEAD, costs, by_id(export, rows, costs["nameId"], "profiler"))
    read_ranges(export, rows)


def read_ranges(export: Export, rows: Rows) -> None:
    """NVTX ranges with a text; one that ends on another thread than it began on is of neither."""
    columns = {"globalTid": ABSENT, "endGlobalTid": ABSENT, "textId": ABSENT}
    for ranges, texts in fetch_pieces(export, "NVTX_EVENTS", columns, "text"):
        registered = strings(export, np.unique(ranges["textId"]).tolist())
        ids = ranges["textId"].tolist()
        told = (registered.get(key, "") if text is None else text for text, key in zip(texts, ids, strict=True))
        parsed = [parse(text) for text in told]
        kept = (ranges["endGlobalTid"] == ABSENT) | (ranges["endGlobalTid"] == ranges["globalTid"])
        kept &= np.array([bool(one.name) for one in parsed])
        by_text = {
            "kind": [CODE_OF[one.kind] for one in parsed],
            "name": [rows.texts["name"][one.name] for one in parsed],
            "sequence": [one.sequence for one in parsed],
            "shapes": [rows.texts["shapes"][one.shapes] for one in parsed],
        }
        ranges |= {column: np.array(numbers, dtype=np.int64) for column, numbers in by_text.items()}
        ranges = {column: numbers[kept] for column, numbers in ranges.items()}
        put(rows, ANNOTATION, ranges, ranges["name"])


def put(rows: Rows, kind: str, table: Table, name: Ints) -> None:
    """Take a table's rows as rows of a trace; rows beyond the range of times are left out."""
    on_device = "deviceId" in table
    owner = table["globalPid" if on_device else "globalTid"]
    length = len(owner)
    device = table["deviceId"] if on_device else np.full(length, HOST)
    columns: Table = {
        "kind": table.get("kind", np.full(length, CODE_OF[kind])),
        "name": name,
        "start": table["start"],
        "end": table["end"],
        "device": np.where((device >= HOST) & (device < INT32), device, 0),
        "track": table["streamId"] if on_device else owner & THREAD,
        "correlation": np.maximum(table.get("correlationId", np.zeros(length, dtype=np.int64)), 0),
        "sequence": table.get("sequence", np.full(length, DEFAULTS["sequence"])),
        "shapes": table.get("shapes", np.zeros(length, dtype=np.int64)),
        "dtypes": np.zeros(length, dtype=np.int64),
        "bytes": table.get("bytes", np.full(length, DEFAULTS["bytes"])),
        "awaits": np.full(length, DEFAULTS["awaits"]),
        "awaits_stream": np.full(length, DEFAULTS["awaits_stream"]),
        "process": owner >> PROCESS,
    }
    kept = (np.abs(table["start"]) < NS_LIMIT) & (np.abs(table["end"]) < NS_LIMIT)
    rows.parts.append({column: numbers[kept] for column, numbers in columns.items()})


# --- names


def by_id(export: Export, rows: Rows, ids: Ints, unknown: str) -> Ints:
    """Codes of names that stand in StringIds."""
    registered = strings(export, np.unique(ids).tolist())
    return by_value(rows, ids, lambda key: VERSION.sub("", registered.get(key, unknown)))


def by_value(rows: Rows, values: Ints, name: Callable[[int], str]) -> Ints:
    """Codes of the names of values."""
    distinct, place = np.unique(values, return_inverse=True)
    codes = [rows.texts["name"][name(value)] for value in distinct.tolist()]
    return np.array(codes, dtype=np.int64)[place]


def copy_name(kinds: int) -> str:
    """As Kineto writes it: `Memcpy HtoD (Pageable -> Device)`."""
    transfer = (TRANSFERS | MIGRATIONS).get(kinds >> 16, "Unknown")
    return f"Memcpy {transfer} ({MEMORY.get(kinds >> 8 & 255, 'Unknown')} -> {MEMORY.get(kinds & 255, 'Unknown')})"


# --- processes


def split(path: Path, export: Export, rows: Rows) -> list[Source]:
    """One source a process."""
    masked = Masked()
    columns = {column: np.concatenate([part.pop(column) for part in rows.parts]) for column in list(rows.parts[0])}
    impossible = columns["end"] < columns["start"]
    columns["end"] = np.maximum(columns["start"], columns["end"])
    texts = {column: coded(columns.pop(column), texts, masked) for column, texts in rows.texts.items()}
    kinds = pd.Categorical.from_codes(columns.pop("kind"), pd.Index(KINDS))
    frame = pd.DataFrame({"kind": kinds, **texts, **columns, "impossible": impossible})
    if frame.empty:
        raise QrprofError(f"{path} holds no CUDA or NVTX events; record it with `nsys profile --trace=cuda,nvtx`")
    frame["process"] = adopted(frame["process"].to_numpy())
    chosen = used_a_gpu(frame)
    others = frame["process"].nunique() - len(chosen)
    devices, base, versions = gpus(export), base_ns(export), product_version(export)
    sources = []
    for number, process in enumerate(chosen):
        own = frame[frame["process"] == process]
        events, steps = as_steps(tidy(own))
        found = {IMPOSSIBLE: int(own["impossible"].sum()), MASKED: masked.count, OTHERS: others}
        remarks = [WHOLE_GRAPHS] * (process in rows.whole_graphs) + [NO_OPS] * (not (events["kind"] == OP).any())
        trace = Trace(events, base, (*counted(found), *remarks))
        several = len(chosen) > 1
        part, rank = (f"process {process & THREAD}", number) if several else ("", None)
        sources.append(Source(trace, path, part, rank, devices=devices, versions=versions, steps=steps))
    return sources


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The events of one process: in order, and without the names of the others."""
    events = sort_events(frame[list(COLUMNS)].astype(COLUMNS))
    return events.assign(**{column: events[column].cat.remove_unused_categories() for column in TEXTS})


def adopted(processes: Ints) -> Ints:
    """Rows that name no process are those of the one with most rows."""
    known = processes[processes != UNKNOWN]
    if not len(known):
        return processes
    ids, counts = np.unique(known, return_counts=True)
    return np.where(processes == UNKNOWN, ids[counts.argmax()], processes)


def used_a_gpu(frame: pd.DataFrame) -> list[int]:
    """The processes with device work, or else with CUDA calls, or else the one with most rows; lowest devices first."""
    for kinds in (DEVICE_WORK, (RUNTIME,)):
        rows = frame[frame["kind"].isin(kinds)]
        if len(rows):
            lowest = rows.groupby("process")["device"].min()
            return [process for _, process in sorted(zip(lowest, lowest.index, strict=True))]
    return [int(frame["process"].mode().iloc[0])]
