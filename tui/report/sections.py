"""What is said of one run, section by section, in the words and figures of the commands that say the same."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from qrprof.planner.replay.path import by_bound, by_op, find_path
from qrprof.planner.targets import Target
from qrprof.profiler import units
from qrprof.profiler.blame import GAP_LABELS
from qrprof.profiler.gaps import Idle, by_cause
from qrprof.profiler.launches import per_step
from qrprof.profiler.panelsums import PanelColumn, PanelShape, block_columns, by_call, by_shape
from qrprof.profiler.phases import COPY, FUSED, GEQR2, LARFB, LARFT, ORGQR, ORMQR, UNKNOWN
from qrprof.tui.app.session import Session
from qrprof.tui.commands import gaps, launches, panels, path, rank
from qrprof.tui.output import Cell as TextCell
from qrprof.tui.output import Column, name
from qrprof.tui.ranking import Ranking, linalg_calls, short
from qrprof.tui.report.blocks import OTHER, Bar, Block, Cell, Fields, Head, Items, Row, Section, Stack, Table

Hues = Mapping[str, int]  # by key of the ranking
TOP: Final = 12  # rows of a table
HUES: Final = 6  # rows of the ranking with a hue of their own
LEAST: Final = 0.01  # of the step, that such a row has
PHASE_HUES: Final = {GEQR2: 1, LARFT: 2, LARFB: 3, ORGQR: 4, ORMQR: 4, COPY: 5, UNKNOWN: 6}
SMALLEST: Final = 0.0005  # share that is not 0.0 % in print
SHAPES: Final = 4  # QR shapes with their phases


def hues_of(ranking: Ranking) -> Hues:
    """The first rows of the ranking with a good part of the step, by which they are known everywhere on the page."""
    step = sum(target.ns for target in ranking.targets if target.kind != "fix")
    keys = [target.key for target in ranked(ranking) if target.kind != "fix" and target.ns >= LEAST * step]
    return {key: hue for hue, key in enumerate(keys[:HUES], start=OTHER + 1)}


def ranked(ranking: Ranking) -> list[Target]:
    return rank.choose(ranking.targets, TOP)[0]


def heads(columns: Iterable[Column], *spare: str) -> list[Head]:
    return [Head(column.header, column.right, column.header in spare) for column in columns]


def drawn(cells: Sequence[TextCell], place: int, bar: Cell) -> list[Cell]:
    """Cells of a table for the terminal with a bar that is drawn."""
    return [*cells[:place], bar, *cells[place + 1 :]]


# --- the ranking


def summary(session: Session, hues: Hues) -> Section:
    ranking = session.ranking
    first = rank.do_first(ranking.targets)
    glance = step_bar(ranking, hues)
    blocks: list[Block] = [glance] if glance else []
    if first:
        blocks.append(Items("Do first", first, numbered=first != rank.NOTHING))
    return Section("summary", "Summary", [*blocks, Fields(rank.about(ranking)[1:])])


def ranking_section(session: Session, hues: Hues) -> Section:
    ranking = session.ranking
    shown, rest = rank.choose(ranking.targets, TOP)
    least = LEAST * sum(target.ns for target in shown)
    rows = [target_row(number, target, hues, least) for number, target in enumerate(shown, start=1)]
    if rest:
        rows.append(Row(drawn(rank.sums(f"{len(rest)} others", rest), 4, Bar(share_of(rest)))))
    total = rank.sums("total", ranking.targets)
    blocks: list[Block] = [Table("", heads(rank.TARGETS, "#", "", "calls", "ceiling", "basis"), rows, total)]
    if ranking.run.linalg:
        blocks.append(linalg_table(ranking))
    lead = (
        "Where the step goes, and what would make it faster. ceiling: the speedup of the step if the row took no time "
        "at all; gain: what the step would save with a good kernel, in ms; in noise: less than the step's own noise."
    )
    return Section("ranking", "Ranking", blocks, lead)


def target_row(number: int, target: Target, hues: Hues, least: float) -> Row:
    """With what to do about it, where that gains `least` ns of a step or may gain anything."""
    cells = drawn(rank.row(number, target), 4, Bar(target.share, hues.get(target.key, OTHER)))
    small = target.dont_bother is not None or (target.gain_ns is not None and target.gain_ns.high < least)
    return Row(cells, () if small else (target.advice, target.why))


def share_of(targets: Sequence[Target]) -> float | None:
    shares = [target.share for target in targets if target.share is not None]
    return sum(shares) if shares else None


def linalg_table(ranking: Ranking) -> Table:
    calls = linalg_calls(ranking, ranking.run.linalg)
    rows = [Row(rank.linalg_row(call, ns)) for call, ns in calls[:TOP]]
    note = f"{len(calls) - TOP} others" if len(calls) > TOP else ""
    return Table("Linear algebra, calls of a mean step", heads(rank.LINALG, "dtype"), rows, note=note)


def step_bar(ranking: Ranking, hues: Hues) -> Stack | None:
    """Where the step goes, at a glance; None where shares are withheld."""
    parts = [
        (rank.label(target), target.share, hues.get(target.key, OTHER))
        for target in ranking.targets
        if target.key in hues and target.share is not None
    ]
    rest = 1.0 - sum(share for _, share, _ in parts)
    return Stack([*parts, *[("others", rest, OTHER)] * (rest > SMALLEST)]) if parts else None


# --- the critical path, gaps, launches


def path_section(session: Session, hues: Hues) -> Section:
    lead = "What the step waits for, one thing after the other: what is not on this path makes the step no faster."
    title = "Critical path"
    if session.model.withheld:
        return Section("path", title, [Fields([("withheld", session.model.withheld)])], lead)
    found = find_path(session.model)
    bounds, ops = by_bound(found), by_op(found)
    sums = bounds.groupby("bound")[["ns", "stretches"]].sum().sort_values("ns", ascending=False)
    rows = [
        Row(drawn(path.category_row(found, str(bound), ns, count), 3, Bar(ns / found.step_ns)))
        for bound, ns, count in sums.itertuples(name=None)
    ]
    total = drawn(path.category_row(found, "step", found.step_ns, bounds["stretches"].sum(), ""), 3, Bar(None))
    by_ops = [
        Row(
            [
                name(short(op) or path.OUTSIDE),
                bound,
                *path.length(found, ns),
                Bar(ns / found.step_ns, hues.get(op, OTHER)),
            ]
        )
        for op, bound, ns in ops[["op", "bound", "ns"]].head(TOP).itertuples(index=False)
    ]
    tables = [
        Table("", heads(path.CATEGORIES, "stretches"), rows, total),
        Table("By op", heads(path.OPS), by_ops, note=f"{len(ops) - TOP} others" if len(ops) > TOP else ""),
    ]
    return Section("path", title, tables, lead)


def gaps_section(session: Session, hues: Hues) -> Section:
    idle = session.idle
    lead = "When the device had nothing to do for more than 3 us inside a recorded step, and why."
    if idle.gaps is None:
        return Section("gaps", "Gaps", [Fields([("withheld", idle.withheld or "")])], lead)
    facts = [(gaps.label(device, idle), gaps.device_line(device, idle)) for device in idle.devices]
    blocks: list[Block] = [Fields([*facts, ("step", gaps.step_line(idle))]), causes_table(idle, hues)]
    if idle.gaps:
        longest = sorted(idle.gaps, key=lambda gap: -gap.ns)[:TOP]
        rows = [Row(gaps.longest_row(gap)) for gap in longest]
        rest = f"{len(idle.gaps) - TOP:,} others; " if len(idle.gaps) > TOP else ""
        title = "The longest gaps, as recorded"
        blocks.append(Table(title, heads(gaps.LONGEST, "step", "next work"), rows, note=rest + gaps.WHOLE))
    return Section("gaps", "Gaps", blocks, lead)


def causes_table(idle: Idle, hues: Hues) -> Table:
    several = len(idle.devices) > 1
    rows = []
    for device, cause, count, ns, share in by_cause(idle)[["device", "cause", "gaps", "ns", "share"]].itertuples(
        index=False
    ):
        label = GAP_LABELS[cause] + (f" (device {device})" if several else "")
        bar = Bar(share, hues.get(f"gap:{cause}", OTHER))
        rows.append(Row(drawn(gaps.causes_row(label, count, ns, share), 4, bar)))
    return Table("", heads(gaps.CAUSES), rows)


def launches_section(session: Session, hues: Hues) -> Section:
    found = session.launches
    lead = (
        "full: launches that found their stream still busy when they returned, where the device is the limit; empty: "
        "the others, where the host is; wait: mean time from a launch to the start of its work."
    )
    if found.calls.empty:
        return Section("launches", "Launches", [Fields([("withheld", found.withheld or "")])])
    total = launches.total_of(found)
    pairs = [
        ("launches", launches.launches_line(found, total)),
        ("short", launches.short_line(total)),
        ("graph", launches.graph_line(found)),
    ]
    sums = per_step(found.calls, "op")
    columns = (Column("op"), *launches.COLUMNS)
    rows = [Row(launches.row_of(row["op"], row)) for row in sums[:TOP].to_dict("records")]
    note = f"{len(sums) - TOP} others" if len(sums) > TOP else ""
    spare = heads(columns, "depth", "<10 us", "full", "wait us")
    table = Table("By op, of the mean recorded step", spare, rows, note=note)
    return Section("launches", "Launches", [Fields(pairs), table], lead)


# --- QR panels


def panels_section(session: Session, hues: Hues) -> Section:
    steps = session.panels
    shapes = by_shape(by_call(steps))
    title = "QR panels"
    lead = (
        "QR calls of the recorded steps by phase, named after LAPACK: geqr2 factors a panel, larft builds T, larfb "
        "applies the block to the rest, orgqr forms Q, ormqr applies it; gap: the device did nothing."
    )
    if not shapes:
        return Section("panels", title, [Fields([("panels", "no QR calls in the recorded steps")])])
    blocks: list[Block] = [Table("", [Head("call"), Head("phases")], [shape_row(shape) for shape in shapes[:SHAPES]])]
    if len(shapes) > SHAPES:
        blocks.append(Fields([("others", units.counted(len(shapes) - SHAPES, "other shape"))]))
    columns = [column for column in block_columns(steps, shapes[0]) if column.part]
    blocks += [
        columns_table(part, shapes[0], [column for column in columns if column.part == part])
        for part in dict.fromkeys(column.part for column in columns)
    ]
    return Section("panels", title, blocks, lead)


def shape_row(shape: PanelShape) -> Row:
    library = f", {shape.library}" if shape.library else ""
    parts = [(phase, share, phase_hue(phase)) for phase, share in shape.shares().items()]
    return Row([f"{panels.label(shape)}{library}", Stack(parts)], [panels.shape_line(shape)])


def phase_hue(phase: str) -> int:
    return PHASE_HUES.get(GEQR2 if phase.startswith(FUSED) else phase, OTHER)


def columns_table(part: str, shape: PanelShape, columns: Sequence[PanelColumn]) -> Table:
    """Of one part of a call, its block columns."""
    phases = panels.phases_of(columns)
    names = ["m x n", "nb", *(phase.removeprefix(FUSED) for phase in phases), panels.GAP, "us", "GFLOP/s"]
    rows = [Row(panels.column_row(column, phases)) for column in columns[:TOP]]
    note = f"{len(columns) - TOP} other block columns" if len(columns) > TOP else ""
    title = f"{part} of {panels.label(shape)}, us of the mean call"
    return Table(title, [Head(one, right=one != names[0]) for one in names], rows, note=note)
