"""What the swaps of a program did, in words: a line for each, or all of it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from qrprof.kernels.modes import Mode
from qrprof.profiler import units

Done = Mapping[str, Any]  # as `kernels.running.report` writes it
Row = Mapping[str, Any]  # fields of `kernels.counters.Report`


def record(done: Done | None, mode: Mode) -> dict[str, Any]:
    """For JSON; `swaps`, `adapters` and `refused` are null where the program left no report."""
    return {"mode": asdict(mode), **{name: done and done[name] for name in ("swaps", "adapters", "refused")}}


# --- in short


def lines(done: Done) -> Iterator[str]:
    """One for each swap, which may stand at several ops and devices."""
    for name in dict.fromkeys(row["name"] for row in done["swaps"]):
        yield line(name, [row for row in done["swaps"] if row["name"] == name])


def line(name: str, rows: Sequence[Row]) -> str:
    hits, shadowed, failed = (sum(row[key] for row in rows) for key in ("hits", "shadowed", "failed"))
    reasons = why_stock(rows)
    calls = hits + shadowed + reasons.total()
    if not calls:
        return f"swap {name}: none of its ops was called"
    parts = [f"swap {name} served {hits} of {calls} calls"]
    if shadowed:
        parts = [f"swap {name} computed {shadowed} of {calls} calls beside the stock kernel", *map(beside, rows)]
    if reasons:
        parts.append(f"stock alone: {in_words(reasons)}")
    if failed:
        parts.append(f"{failed} checked results were wrong")
    if any(row["open"] for row in rows):
        parts.append("the circuit opened: stock served every later call")
    return "; ".join(part for part in parts if part)


def beside(row: Row) -> str:
    if row["difference"] is None:
        return ""
    times = f"{units.time(row['p50_ns'])}, stock {units.time(row['stock_p50_ns'])}"
    return f"{row['op']} on {row['key']} {times}, at most {row['difference']:.2g} apart"


def why_stock(rows: Sequence[Row]) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row["fallbacks"])
    return reasons


def in_words(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({calls})" for reason, calls in reasons.most_common())


# --- in full


def paragraphs(done: Done) -> Iterator[str]:
    """All that is known of each op that was called, line by line, and of each swap none of whose ops was."""
    called = [row for row in done["swaps"] if row["hits"] or row["shadowed"] or row["fallbacks"]]
    for row in called:
        yield from paragraph(row)
    names = {row["name"] for row in called}
    yield from (f"swap {row['name']}: none of its ops was called" for row in quiet(done["swaps"], names))


def quiet(rows: Sequence[Row], called: set[str]) -> list[Row]:
    """The first row of each swap that is not among those called."""
    return list({row["name"]: row for row in reversed(rows) if row["name"] not in called}.values())


def paragraph(row: Row) -> Iterator[str]:
    reasons = why_stock([row])
    yield f"swap {row['name']}: {row['op']} on {row['key']}, circuit {'open' if row['open'] else 'closed'}"
    yield f"  calls   {row['hits']} served, {row['shadowed']} computed by both, {reasons.total()} by stock alone"
    if reasons:
        yield f"  why     {in_words(reasons)}"
    results, raised = units.counted(row["checked"], "result"), units.counted(row["errors"], "call")
    yield f"  checks  {results}, {row['failed']} wrong, {raised} raised"
    for title, prefix in (("times ", ""), ("stock ", "stock_")):
        if row[f"{prefix}p50_ns"] is not None:
            times = (f"{q} {units.time(row[f'{prefix}{q}_ns'])}" for q in ("p50", "p95", "p99"))
            yield f"  {title}  {', '.join(times)}"
    if row["difference"] is not None:
        yield f"  apart   at most {row['difference']:.2g} of the largest number"
