"""Short traces of the stock and the swapped program, side by side: which other work takes longer, what is launched."""

import os
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from qrprof.planner.verify.processes import Program
from qrprof.planner.verify.records import Compared, Slower
from qrprof.profiler.devices import cpu_name
from qrprof.profiler.diff import diff, side
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import KERNEL
from qrprof.profiler.load import load_run
from qrprof.profiler.store import RUN_FILE
from qrprof.profiler.trace import Trace


def base_record(name: str, program: Program) -> dict[str, Any]:
    """What the parent knows of a run, for its record."""
    cpu = {"index": 0, "kind": "cpu", "name": cpu_name(), "memory_bytes": psutil.virtual_memory().total, "uuid": ""}
    return {
        "id": name,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": [*(["-m"] if program.module else []), program.script, *program.args],
        "cwd": os.getcwd(),
        "world_size": 1,
        "devices": [cpu],
    }


def compared(folder: Path, ops: Collection[str]) -> Compared:
    """Of the traces in the folders A (stock) and B; rows of `ops` are the swaps' own."""
    if not all((folder / name / RUN_FILE).exists() for name in "AB"):
        return Compared((), (), "the program ended before a trace of it was whole")
    try:
        (a, first), (b, second) = (load_run(folder / name) for name in "AB")
    except QrprofError as error:
        return Compared((), (), str(error))
    found = diff(side(first, a), side(second, b))
    rows = found.rows[(found.rows["change"] == "slower") & ~found.rows["key"].isin([f"aten::{op}" for op in ops])]
    slower = tuple(
        Slower(str(row["key"]), str(row["shapes"]), float(row["delta_ns"])) for row in rows.to_dict("records")
    )
    return Compared(slower, tuple(sorted(kernels(second) - kernels(first))), found.withheld)


def kernels(trace: Trace) -> set[str]:
    return {str(name) for name in trace.of_kind(KERNEL)["name"].unique()}
