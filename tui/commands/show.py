"""`qrprof show`: one row of the ranking in full."""

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.roofline import PEAK
from qrprof.planner.rows import of_key
from qrprof.planner.targets import REPLAYED, Target, split
from qrprof.profiler import units
from qrprof.profiler.coverage import describe
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.linalg import by_signature, row_signature
from qrprof.profiler.runinfo import LinalgCall
from qrprof.tui.commands.rank import in_ms, linalg_table
from qrprof.tui.output import Cell, Column, field, full, table, title, write, write_json
from qrprof.tui.ranking import Ranking, linalg_calls, linalg_record, load_ranking, parts, short, target_record, to_ms

NEAREST: Final = 3  # names in an error, at most
LONGEST: Final = 240  # cells of a name
ALIKE: Final = 0.01  # of a gain, by which two answers may differ and count as one
BASIS: Final = {
    Basis.MEASURED: "a kernel timed on this device for these shapes",
    Basis.TABLE: "a kernel timed on this model of device for these shapes",
    Basis.ROOFLINE: "flops and bytes of the shapes over this device's measured peaks",
    Basis.CEILING: "a bound only: nothing is known of what must remain",
}
OP_PARTS: Final = (
    Column("ms/step", right=True),
    Column("calls", right=True),
    Column("phase"),
    Column("shapes", wraps=True),
    Column("types", wraps=True),
    Column("where", wraps=True),
)
GAP_PARTS: Final = (*OP_PARTS[:3], Column("blamed", wraps=True), Column("where", wraps=True))
KERNELS: Final = (Column("ms/step", right=True), Column("launches", right=True), Column("kernel", wraps=True))


@click.command(epilog="Example: qrprof show linalg_qr")
@click.argument("key")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(key: str, run: str | None, as_json: bool, number: int) -> int:
    """Show one row of the ranking in full.

    KEY is a name of `qrprof rank`, or a part of one that no other has; RUN a run's id, the start of one, or its
    folder, by default the last run.
    """
    ranking = load_ranking(run, number)
    target = find_target(ranking, key)
    if as_json:
        write_json(show_record(ranking, target))
    else:
        write(page(ranking, target))
    return Exit.OK


def find_target(ranking: Ranking, key: str) -> Target:
    """The target called `key`, with or without its namespace, or the only one with `key` in its name.

    Raises QrprofError (exit code 2) where none or several match.
    """
    exact = [target for target in ranking.targets if key in (target.key, target.key.rpartition(":")[2])]
    matches = exact or [target for target in ranking.targets if key in target.key]
    if len(matches) == 1:
        return matches[0]
    known = [full(short(target.key), LONGEST) for target in matches or ranking.targets]
    if matches:
        problem, names = f"{key!r} is in the names of {len(matches)} rows", known[:NEAREST]
    else:
        problem, names = f"no row {key!r} in run {ranking.run.id}", difflib.get_close_matches(key, known, n=NEAREST)
    nearest = f"; nearest: {', '.join(names)}" if names else ""
    raise QrprofError(f"{problem}{nearest}; list all with `qrprof rank --top 1000`", Exit.USAGE)


def page(ranking: Ranking, target: Target) -> list[RenderableType]:
    frame = parts(ranking, target.key)
    blocks: list[RenderableType] = [
        title(full(target.key, LONGEST)),
        field("coverage", describe(ranking.partition.coverage)),
        field("time", time_line(ranking, target)),
    ]
    if target.gain_ns and target.achievable_ns:
        blocks.append(field("gain", gain_line(target)))
        if line := share_line(ranking, target):
            blocks.append(field("by share", line))
        blocks.append(field("basis", BASIS[target.gain_ns.basis]))
    if target.dont_bother:
        blocks.append(field("in noise", target.dont_bother))
    if line := work_line(roofline(ranking, target)):
        blocks.append(field("roofline", line))
    blocks += [field("advice", target.advice), field("why", target.why)]
    if len(frame):
        blocks += ["", title("Where it goes:"), parts_table(target, frame)]
    if frame["kernel"].any():
        blocks += ["", title("Kernels:"), kernels_table(frame)]
    if calls := calls_of(ranking, frame):
        blocks += ["", title("Calls of a mean step:"), linalg_table(ranking, calls, len(calls))]
    return blocks


def time_line(ranking: Ranking, target: Target) -> str:
    counted = "" if target.calls is None else f", {units.counted(target.calls, 'call')}"
    line = f"{units.time(target.ns)} of a mean step{counted}"
    if target.share is not None:
        line += f", {units.share(target.share)}"
    if target.overlap:
        line += "; other streams worked at the same time: the step may gain less"
    withheld = ranking.partition.withheld
    return f"{line}; as recorded, no share of the step: {withheld}" if withheld else line


def gain_line(target: Target) -> str:
    found, left = target.gain_ns, target.achievable_ns
    if found is None or left is None:
        return units.MISSING
    ceiling = f"the step at most {units.ratio(target.ceiling_x)} as fast"
    if found.basis is Basis.CEILING:
        return f"{span(found)} a step; {ceiling}"
    expected = "" if found.mid is None else f", {units.time(found.mid)} expected"
    remains = f"{units.time(left.low)} to {units.time(left.high)} would remain"
    return f"{span(found)} a step{expected}; {remains}; {ceiling}"


def span(gain: Estimate) -> str:
    most = units.time(gain.high)
    return f"up to {most}" if gain.basis is Basis.CEILING else f"{units.time(gain.low)} to {most}"


def share_line(ranking: Ranking, target: Target) -> str:
    """What the row's share says of the gain, and why the replay says something else; "" where nothing was replayed."""
    gain, share, step = target.gain_ns, target.by_share_ns, ranking.partition.step_ns or ranking.partition.recorded_ns
    if gain is None or share is None or ranking.model.withheld or target.ns < REPLAYED * step:
        return ""
    if abs(gain.high - share.high) <= ALIKE * share.high:
        why = "a replay of the step says the same"
    elif gain.high < share.high:
        why = "a replay of the step gains less, since other work fills part of that time"
    else:
        why = "a replay of the step gains more, since the same work also holds it up in the time of other rows"
    return f"{span(share)} a step; {why}"


# --- roofline


@dataclass(frozen=True)
class Roofline:
    """Work of a step by the inputs whose work is known, the rates reached on them, and the device's measured peaks."""

    flops: float
    bytes: float
    type: str  # of the arithmetic of most of it, as `Peaks.flops` names it; "" none
    flops_per_s: float
    peak_flops_per_s: float | None
    bytes_per_s: float
    peak_bytes_per_s: float | None


def roofline(ranking: Ranking, target: Target) -> Roofline | None:
    """None for a gap, and where the work of no inputs is known."""
    peaks, (rows, counts) = ranking.peaks, of_key(ranking.partition, target.key)
    known = [(part, part.todo) for part in split(target.key, rows, counts, peaks) if part.todo and part.ns]
    if target.kind != "op" or not known:
        return None
    main, todo = max(known, key=lambda pair: pair[0].ns)
    kind = "tf32" if main.tf32 else PEAK.get(todo.dtype, todo.dtype)
    seconds = sum(part.ns for part, _ in known) / 1e9
    flops = sum(part.calls * todo.flops for part, todo in known)
    moved = sum(part.calls * todo.bytes for part, todo in known)
    return Roofline(
        flops=flops,
        bytes=moved,
        type=kind,
        flops_per_s=flops / seconds,
        peak_flops_per_s=peaks.flops.get(kind) if peaks else None,
        bytes_per_s=moved / seconds,
        peak_bytes_per_s=peaks.copy_bytes_per_s if peaks else None,
    )


def work_line(found: Roofline | None) -> str:
    if found is None or not found.bytes:
        return ""
    peak = f"peak {units.size(found.peak_bytes_per_s)}/s (copy)" if found.peak_bytes_per_s else "peak not measured"
    moved = f"{units.size(found.bytes)} a step at {units.size(found.bytes_per_s)}/s, {peak}"
    if not found.flops:
        return moved
    peak = f"peak {units.rate(found.peak_flops_per_s)}" if found.peak_flops_per_s else "peak not measured"
    done = units.rate(found.flops).removesuffix("/s")
    return f"{done} a step at {units.rate(found.flops_per_s)}, {peak} ({found.type}); {moved}"


# --- tables


def parts_table(target: Target, frame: pd.DataFrame) -> RenderableType:
    named = ["phase", "op", "where"] if target.kind == "gap" else ["phase", "shapes", "dtypes", "where"]
    # A call is listed with each kernel and each blamed op that it stands beside: it is one call all the same.
    once = frame.groupby(named, sort=False).agg(ns=("ns", "sum"), calls=("calls", "max")).reset_index()
    once = once.sort_values("ns", ascending=False)[["ns", "calls", *named]]
    rows = [
        (in_ms(ns), units.calls(None if pd.isna(calls) else calls), *(spaced(text) for text in texts))
        for ns, calls, *texts in once.itertuples(index=False)
    ]
    return table(GAP_PARTS if target.kind == "gap" else OP_PARTS, rows)


def spaced(text: str) -> str:
    """A cell that may wrap between inputs."""
    text = text.strip(",").replace("],[", "], [").replace(",c10::", ", c10::")
    return full(text, LONGEST) or units.MISSING


def kernels_table(frame: pd.DataFrame) -> RenderableType:
    kernels = frame.groupby("kernel", sort=False).agg(ns=("ns", "sum"), launches=("launches", "sum")).reset_index()
    rows: list[Sequence[Cell]] = [
        (in_ms(ns), units.calls(launches), full(kernel, LONGEST))
        for kernel, ns, launches in kernels.sort_values("ns", ascending=False).itertuples(index=False)
    ]
    return table(KERNELS, rows)


def calls_of(ranking: Ranking, frame: pd.DataFrame) -> list[LinalgCall]:
    """The recorder's linalg calls that these rows are of."""
    recorded = by_signature(ranking.run.linalg)
    columns = frame[["key", "shapes", "dtypes"]].drop_duplicates()
    signatures = dict.fromkeys(row_signature(*row) for row in columns.itertuples(index=False))
    return [call for signature in signatures if signature for call in recorded.get(signature, [])]


def show_record(ranking: Ranking, target: Target) -> dict[str, Any]:
    calls = linalg_calls(ranking, calls_of(ranking, parts(ranking, target.key)))
    work = roofline(ranking, target)
    return {
        "run": ranking.run.id,
        "coverage": dataclasses.asdict(ranking.partition.coverage),
        "step_ms": to_ms(ranking.partition.step_ns),
        "withheld": ranking.partition.withheld,
        **target_record(ranking, target),
        "roofline": dataclasses.asdict(work) if work else None,
        "linalg": [linalg_record(call, ns) for call, ns in calls],
    }
