"""Short traces of the stock and the swapped program, side by side: which other work takes longer, what is launched."""

from collections.abc import Collection
from pathlib import Path

from qrprof.planner.verify.records import Compared, Slower
from qrprof.profiler.diff import diff, side
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import KERNEL
from qrprof.profiler.load import load_run
from qrprof.profiler.store import RUN_FILE
from qrprof.profiler.trace import Trace


def compared(folder: Path, ops: Collection[str]) -> Compared:
    """Of the traces in the folders A (stock) and B; rows of `ops` are the swaps' own."""
    if not all((folder / name / RUN_FILE).exists() for name in "AB"):
        return Compared((), (), "a trace of it is not whole: the program ended too soon, or uses torch.profiler itself")
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
