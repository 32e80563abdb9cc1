"""`qrprof verdict`: what the gate found of a candidate, with all the evidence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from qrprof.planner.gate.environment import moved, remarks, stays
from qrprof.planner.gate.evidence import VERDICT, Kept, Listed, find, listed, spread
from qrprof.planner.gate.records import STAGES, CaseTime, Finding, Interval, Verdict
from qrprof.planner.ledger import ledger_file, looked_up, opened
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER
from qrprof.tui.commands.bench import in_ms
from qrprof.tui.output import Cell, Column, field, full, name, say, table, title, write, write_json

SHA: Final = 12  # digits of a hash that are shown
LIST: Final = (
    Column("verdict"),
    Column("task", wraps=True),
    Column("outcome"),
    Column("speedup", right=True),
    Column("on"),
    Column("candidate", wraps=True),
)
COSTS: Final = (Column("stage"), Column("seconds", right=True), Column("checked", right=True))
MOVED: Final = (Column(""), Column("before", wraps=True), Column("after", wraps=True))
SPREAD: Final = (
    Column("case", wraps=True),
    Column("of"),
    Column("n", right=True),
    *(Column(percentile, right=True) for percentile in ("p50", "p95", "p99")),
)


@click.command(epilog="Example: qrprof verdict 20260201-0900")
@click.argument("wanted", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(wanted: str | None, as_json: bool) -> int:
    """Show what the gate found of a candidate.

    ID is a verdict's id or the start of one; without it all are listed, the newest first. Speedups are comparable only
    between verdicts that were found on the same machine: those with the same letter in the column "on".
    """
    if wanted is None:
        return show_list(looked_up(Path.cwd(), listed), as_json)
    kept = lookup(Path.cwd(), wanted)
    if as_json:
        write_json(record(kept))
    else:
        write(page(kept))
    return Exit.OK


def lookup(root: Path, wanted: str) -> Kept:
    if not ledger_file(root).exists():
        raise QrprofError(f"no verdicts in {FOLDER}; make one with `qrprof gate FILE --task TASK`", Exit.USAGE)
    with opened(root) as connection:
        return find(connection, wanted)


def show_list(found: Sequence[Listed], as_json: bool) -> int:
    if as_json:
        write_json({"verdicts": [asdict(one) for one in found]})
    elif found:
        write([table(LIST, [row(one, letter(one, found)) for one in found])])
    else:
        say(f"no verdicts in {FOLDER}; `qrprof gate FILE --task TASK` makes one")
    return Exit.OK


def row(one: Listed, on: str) -> list[Cell]:
    return [full(one.id), name(one.task), one.outcome, units.ratio(one.speedup), on, name(one.file)]


def letter(one: Listed, found: Sequence[Listed]) -> str:
    """The machines by the order in which they appear: A, B, ..., Z, 27, 28."""
    number = list(dict.fromkeys(other.machine for other in found)).index(one.machine)
    return chr(ord("A") + number) if number < 26 else str(number + 1)


# --- the page


def page(kept: Kept) -> list[RenderableType]:
    verdict = kept.verdict
    decisive = distinct(verdict.findings)
    hints = [finding for finding in verdict.findings if finding.outcome == "PASS"]
    blocks: list[RenderableType] = [
        title(headline(verdict)),
        field("why", why(verdict)),
        *(field(label, text) for label, text in facts(kept)),
    ]
    if len(decisive) > 1:  # one alone is the reason why
        blocks += [
            "",
            title("Findings:"),
            *(field(finding.outcome, said(finding, times)) for finding, times in decisive.items()),
        ]
    if verdict.times:
        blocks += ["", title("Times of a call, ms, medians by the parent's clock:"), *times_blocks(verdict)]
    if verdict.costs:
        blocks += ["", title("Stages:"), costs_table(verdict)]
    if hints:
        blocks += ["", title("Worth a look, and of no weight:"), *(field(hint.detector, hint.detail) for hint in hints)]
    if verdict.environment:
        blocks += ["", title("Machine:"), *machine_blocks(verdict)]
    return blocks


def headline(verdict: Verdict) -> str:
    if verdict.speedup is None:
        return f"{verdict.outcome}: not timed"
    return f"{verdict.outcome}: {between(verdict.speedup)} the speed of stock"


def between(speedup: Interval) -> str:
    return f"{units.ratio(speedup.mid)} ({units.ratio(speedup.low)} to {units.ratio(speedup.high)})"


def why(verdict: Verdict) -> str:
    """The finding that decided, or for a pass what was asked for and reached."""
    found = distinct(verdict.findings)
    decisive = next((finding for finding in found if finding.outcome == verdict.outcome), None)
    if decisive:
        more = f" (and {len(found) - 1} more below)" if len(found) > 1 else ""
        return said(decisive, found[decisive]) + more
    checked, of = sum(cost.checked for cost in verdict.costs), sum(cost.of for cost in verdict.costs)
    done = f"{checked} of {of} checks in {len(verdict.costs)} stages"
    if verdict.outcome != "PASS":
        return f"the evidence is not complete: {done}"
    if verdict.needed is None or verdict.speedup is None:
        return f"nothing was found in {done}"
    return f"nothing was found in {done}, and at least {verdict.speedup.low:.3f}x is more than {needed(verdict)}"


def needed(verdict: Verdict) -> str:
    """The bound that a speedup has to exceed, and where it comes from."""
    tries = "1 try" if verdict.tries == 1 else f"{verdict.tries} tries"
    return f"the {verdict.needed:.3f}x that {tries} and {units.share(verdict.noise)} of noise ask for"


def distinct(findings: Sequence[Finding]) -> Counter[Finding]:
    """What speaks against a pass, and how often the same was found."""
    return Counter(finding for finding in findings if finding.outcome != "PASS")


def said(finding: Finding, times: int) -> str:
    where = f"{finding.stage} stage" + (f", {finding.case}" if finding.case else "")
    often = f" ({times} times)" if times > 1 else ""
    return f"{where}: {finding.detector}: {finding.detail}{often}"


def facts(kept: Kept) -> list[tuple[str, str]]:
    """What was judged, how, and what was left out."""
    verdict = kept.verdict
    reached = {cost.stage for cost in verdict.costs}
    left = [stage for stage in STAGES if stage not in reached]
    found = [
        ("verdict", f"{verdict.id}, {kept.made_at}, qrprof {kept.version}"),
        (
            "candidate",
            f"{kept.file} (sha256 {verdict.candidate[:SHA]}{'; the file has changed since' * changed(kept)})",
        ),
        ("parent", kept.parent or "none"),
        ("task", verdict.task),
        ("sandbox", verdict.layer),
        ("lane", f"try {verdict.tries}; queries of the holdout used: {verdict.holdout_queries}"),
    ]
    if verdict.over_parent:
        found.append(("to parent", f"{between(verdict.over_parent)} the speed of the parent candidate"))
    if verdict.times:
        worst = min(verdict.times, key=lambda time: time.speedup.mid)
        found.append(("worst", f"{worst.case}: {between(worst.speedup)}"))
    if peaks := [time.peak_bytes for time in verdict.times if time.peak_bytes is not None]:
        found.append(("memory", f"{units.size(max(peaks))} at most for a call, beyond what was held before"))
    if verdict.noise is not None:
        found.append(("noise", f"{units.share(verdict.noise)}, stock against stock"))
    if left:
        found.append(("not run", ", ".join(left)))
    return found + [("skipped", text) for text in verdict.skipped]


def changed(kept: Kept) -> bool:
    """Whether the candidate's file, where it is still there, is no longer what was judged."""
    try:
        return sha256(Path(kept.file).read_bytes()).hexdigest() != kept.verdict.candidate
    except OSError:
        return False


# --- tables


def times_blocks(verdict: Verdict) -> list[RenderableType]:
    with_parent = any(time.parent_ns is not None for time in verdict.times)
    columns = [
        Column("case", wraps=True),
        Column("stock", right=True),
        *([Column("parent", right=True)] if with_parent else []),
        Column("candidate", right=True),
        Column("speedup", right=True),
        Column("low..high", right=True),
        Column("pairs", right=True),
        Column("calls", right=True),
    ]
    blocks: list[RenderableType] = [table(columns, [times_row(time, with_parent) for time in verdict.times])]
    if rows := [cells for time in verdict.times for cells in spread_rows(time)]:
        blocks += ["", title("Single readings of a call, ms:"), table(SPREAD, rows)]
    return blocks


def times_row(time: CaseTime, with_parent: bool) -> list[Cell]:
    return [
        name(time.case),
        in_ms(time.stock_ns),
        *([in_ms(time.parent_ns)] if with_parent else []),
        in_ms(time.candidate_ns),
        units.ratio(time.speedup.mid),
        f"{units.ratio(time.speedup.low)}..{units.ratio(time.speedup.high)}",
        str(time.pairs),
        str(time.calls),
    ]


def spread_rows(time: CaseTime) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for leg, readings in time.samples.items():
        if found := spread(readings):
            ends = (in_ms(found.p50_ns), in_ms(found.p95_ns), in_ms(found.p99_ns))
            rows.append([name(time.case), full(leg), str(found.n), *ends])
    return rows


def costs_table(verdict: Verdict) -> RenderableType:
    rows = [(cost.stage, f"{cost.seconds:.1f}", f"{cost.checked} of {cost.of}") for cost in verdict.costs]
    checked, of = sum(cost.checked for cost in verdict.costs), sum(cost.of for cost in verdict.costs)
    total = ("total", f"{sum(cost.seconds for cost in verdict.costs):.1f}", f"{checked} of {of}")
    return table(COSTS, rows, total)


def machine_blocks(verdict: Verdict) -> list[RenderableType]:
    known = stays(verdict.environment)
    blocks: list[RenderableType] = [
        field("device", known.pop("device", units.MISSING)),
        field("with", ", ".join(f"{label} {text}" for label, text in known.items())),
    ]
    pairs = [
        (full(label), full(before) or units.MISSING, full(after) or units.MISSING)
        for label, (before, after) in moved(verdict.environment).items()
    ]
    if pairs:
        blocks += ["", table(MOVED, pairs)]
    return blocks + [field("note", text) for text in remarks(verdict.environment)]


# --- the record


def record(kept: Kept) -> dict[str, Any]:
    """Times in ns of a call; `spread` holds the percentiles of each case's readings by leg."""
    verdict = kept.verdict
    return {
        "verdict": VERDICT.dump_python(verdict),
        "made_at": kept.made_at,
        "file": kept.file,
        "parent": kept.parent,
        "version": kept.version,
        "why": why(verdict),
        "spread": {
            time.case: {leg: asdict(found) for leg, one in time.samples.items() if (found := spread(one))}
            for time in verdict.times
        },
        "remarks": remarks(verdict.environment),
    }
