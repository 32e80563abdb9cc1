"""`qrprof ranks`: the ranks of a run side by side, and who waits for whom."""

import dataclasses
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd
from rich.console import RenderableType

from qrprof.profiler import load, units
from qrprof.profiler.collectives import Clock
from qrprof.profiler.coverage import Coverage, Verdict, describe
from qrprof.profiler.errors import Exit
from qrprof.profiler.events import HOST
from qrprof.profiler.ranks import Arrivals, Ranks, RankTimes, compare, look
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.commands.rank import in_ms
from qrprof.tui.output import Cell, Column, field, name, table, title, write, write_csv, write_json
from qrprof.tui.ranking import to_ms

LABEL: Final = 10  # width of the labels
TIMES: Final = (
    Column("rank"),
    *(
        Column(what, right=True)
        for what in ("step", "unprof.", "busy", "compute", "comm.", "exposed", "idle", "waits", "causes")
    ),
)
COLLECTIVES: Final = (
    Column("collective", wraps=True),
    Column("calls", right=True),
    Column("latency", right=True),
    Column("skew", right=True),
    Column("waiting", right=True),
    Column("came last"),
)
WORST: Final = (Verdict.ABSTAIN, Verdict.PARTIAL, Verdict.TRUSTED)


@click.command(epilog="Example: qrprof ranks --csv > ranks.csv")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every collective.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the ranks' times as CSV, in ns.")
def command(run: str | None, as_json: bool, as_csv: bool) -> int:
    """Compare the ranks of a run: who waits for whom.

    RUN is a run's id, the start of one, or its folder; without it, the last run. Times are of a mean recorded step.
    "exposed" is communication while nothing is computed, "waits" what a rank waits in collectives for others, "causes"
    what others wait for it.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    folder = find_run(Path.cwd(), run)
    runs, seen = [], []
    for number in load.ranks(folder):
        info, trace = load.load_run(folder, number)
        runs.append(info)
        seen.append(look(number, trace, info))  # the traces are not kept: there may be many
    found = compare(seen)
    if as_json:
        write_json(record(runs[0], found))
    elif as_csv:
        write_csv(times_frame(found))
    else:
        write(page(runs[0], found))
    return Exit.OK


def page(run: RunInfo, found: Ranks) -> list[RenderableType]:
    there = len(found.coverage)
    of = f"{there} of {run.world_size} ranks" if there < run.world_size else f"{there} ranks" if there > 1 else "1 rank"
    several = len(found.times) > 1
    blocks: list[RenderableType] = [
        field("run", f"{run.id}: {shlex.join(run.command)} ({of})", LABEL),
        field("coverage", coverage_line(found.coverage), LABEL),
        *([field("clocks", clock_line(found.collectives.clock), LABEL)] if several else []),
        field("straggler", found.why, LABEL),
        "",
        title("A mean recorded step, ms:"),
        times_table(found),
    ]
    if len(found.collectives.members):
        blocks += ["", title("Collectives of a mean step, ms:"), collectives_table(found)]
    if found.collectives.left_out and several:
        blocks += ["", field("note", left_out_line(found))]
    return blocks


def coverage_line(covered: Mapping[int, Coverage]) -> str:
    """How many ranks there are of each verdict, and the worst one's in full."""
    worst = min(covered, key=lambda rank: (WORST.index(covered[rank].verdict), rank))
    verdicts = Counter(one.verdict for one in covered.values())
    counted = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in WORST if verdicts[verdict])
    return f"{counted}; rank {worst}: {describe(covered[worst])}"


def clock_line(clock: Clock) -> str:
    if clock.name == "unknown":
        return "unknown: the traces have no common zero, and no barrier-like collective to line them up by"
    off = "" if clock.off_ns is None else f"; their ends on two ranks differ by {units.time(clock.off_ns)} (median)"
    if clock.name == "aligned":
        return f"lined up by the ends of {clock.checked} barrier-like collectives, not as recorded{off}"
    if not clock.checked:
        return "as recorded; no barrier-like collective to check them by"
    return f"as recorded; {clock.contradicted} of {clock.checked} barrier-like collectives contradict them{off}"


def times_table(found: Ranks) -> RenderableType:
    met = {(one.rank, one.device): one for one in found.arrivals}
    return table(TIMES, [times_row(found, times, met.get((times.rank, times.device))) for times in found.times])


def times_row(found: Ranks, times: RankTimes, met: Arrivals | None) -> list[Cell]:
    waits, causes = (met.wait_ns, met.caused_ns) if met else (None, None)
    spent = (times.step_ns, times.unprofiled_ns, times.busy_ns, times.compute_ns)
    shown = (*spent, times.communication_ns, times.exposed_ns, times.idle_ns, waits, causes)
    return [found.label(times).removeprefix("rank "), *(in_ms(ns) for ns in shown)]


def collectives_table(found: Ranks) -> RenderableType:
    return table(COLLECTIVES, [collective_row(found, what, rows) for what, rows in by_name(found)])


def by_name(found: Ranks) -> list[tuple[str, pd.DataFrame]]:
    """The collectives by name, those most waited in first; times are of a mean step."""
    frame = found.collectives.table()
    for column in ("latency_ns", "skew_ns", "wait_ns"):
        frame[column] *= frame["weight"]
    groups = [(str(what), rows) for what, rows in frame.groupby("name")]
    return sorted(groups, key=lambda group: -float(group[1]["wait_ns"].sum()))


def collective_row(found: Ranks, what: str, rows: pd.DataFrame) -> list[Cell]:
    calls = float(rows["weight"].sum())
    late = rows.groupby(["last_rank", "last_device"])["wait_ns"].agg(["sum", "size"]).sort_values("sum")
    (rank, device), times = late.index[-1], int(late["size"].iloc[-1])
    member = next(one for one in found.arrivals if (one.rank, one.device) == (rank, device))
    return [
        name(what),
        units.calls(calls),
        in_ms(float(rows["latency_ns"].sum()) / calls),
        in_ms(float(rows["skew_ns"].sum()) / calls),
        in_ms(float(rows["wait_ns"].sum())),
        f"{found.label(member)} ({times} of {len(rows)})",
    ]


def left_out_line(found: Ranks) -> str:
    return (
        f"{found.collectives.left_out} communications in the steps were left out: no rank has their counterpart, ranks "
        "have differently many, or they do not run at the same time"
    )


# --- the records


def times_frame(found: Ranks) -> pd.DataFrame:
    """A row a rank and device (none on a host): its times and its part in the waiting, NaN where it is not known."""
    times, met = frame_of(RankTimes, found.times), frame_of(Arrivals, found.arrivals)
    frame = times.merge(met, on=["rank", "device"], how="left")
    return frame.assign(device=frame["device"].astype("Int64").mask(frame["device"] == HOST))


def frame_of(kind: type[RankTimes] | type[Arrivals], rows: Sequence[RankTimes | Arrivals]) -> pd.DataFrame:
    columns = [field.name for field in dataclasses.fields(kind)]
    return pd.DataFrame(rows, columns=columns).astype({name: float for name in columns if name.endswith("_ns")})


def record(run: RunInfo, found: Ranks) -> dict[str, Any]:
    """Times in ms of a mean recorded step; of single collectives in ns, as recorded."""
    times, late = times_frame(found), found.straggler
    slow = times[(times["rank"] == late.rank) & (times["device"].fillna(HOST) == late.device)] if late else times[:0]
    collectives = found.collectives.table().rename(columns={"start": "start_ns"})
    collectives["last_device"] = collectives["last_device"].astype("Int64").mask(collectives["last_device"] == HOST)
    return {
        "run": run.id,
        "world_size": run.world_size,
        "coverage": {str(rank): dataclasses.asdict(one) for rank, one in found.coverage.items()},
        "clock": dataclasses.asdict(found.collectives.clock),
        "ranks": [per_step(values) for values in records(times)],
        "wait_ms": to_ms(found.wait_ns),
        "straggler": next((per_step(values) for values in records(slow)), None),
        "why": found.why,
        "collectives": records(collectives),
        "left_out": found.collectives.left_out,
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.to_dict("records")
    return [{str(key): None if pd.isna(value) else value for key, value in row.items()} for row in rows]


def per_step(row: dict[str, Any]) -> dict[str, Any]:
    """With the times in ms."""
    return {
        key.removesuffix("_ns") + "_ms" if key.endswith("_ns") else key: to_ms(value) if key.endswith("_ns") else value
        for key, value in row.items()
    }
