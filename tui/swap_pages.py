"""Swaps as they are shown: a table of all, and of one its evidence, its life and its whole source."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import RenderableType

from qrprof import __version__
from qrprof.kernels.sources import HERE
from qrprof.kernels.swapfile import Case
from qrprof.planner.gate.evidence import Kept
from qrprof.planner.gate.records import Task, Verdict
from qrprof.planner.swaps.proposals import about
from qrprof.planner.swaps.records import Change, KeptSwap
from qrprof.profiler import units
from qrprof.tui.commands.task import CHECKERS
from qrprof.tui.commands.verdict import SHA, between, headline, why
from qrprof.tui.output import Cell, Column, field, full, name, table, title

TAB: Final = 4
LIST: Final = (
    Column("swap", wraps=True),
    Column("kind"),
    Column("state"),
    Column("speedup", right=True),
    Column("on", wraps=True),
    Column("since"),
)
LIFE: Final = (Column("at"), Column("state"), Column("who"), Column("why", wraps=True))
RIGHTS: Final = "Once accepted, this code runs inside your programs, with all of their rights."


@dataclass(frozen=True)
class Shown:
    """A swap with what the working folder and this machine know of it."""

    kept: KeptSwap
    evidence: Kept | None  # the gate's
    task: Task | None
    source: str | None  # of a candidate, or the diff of a patch
    trusted: bool  # accepted by this user on this machine

    @property
    def verdict(self) -> Verdict | None:
        return self.evidence.verdict if self.evidence else None


def row(one: Shown) -> list[Cell]:
    kept, entry = one.kept, one.kept.entry
    speedup = one.verdict.speedup if one.verdict else None
    ratio = units.ratio(speedup.mid if speedup else None)
    where = (entry.machine or entry.device or "any device") if entry else units.MISSING
    return [name(kept.name), kept.swap.kind, state(one), ratio, name(where), kept.changes[-1].at[:16]]


def state(one: Shown) -> str:
    """The state, and that an accepted one was not accepted by this user."""
    missing = one.kept.state == "accepted" and one.kept.entry is not None and not one.trusted
    return f"{one.kept.state}, not by you" if missing else one.kept.state


def all_of_them(found: Sequence[Shown]) -> RenderableType:
    return table(LIST, [row(one) for one in found])


def page(one: Shown) -> list[RenderableType]:
    """All but the source, which `source_lines` gives."""
    swap = one.kept.swap
    served = f"aten::{swap.op}" if swap.op else about(swap.name, swap.kind) or (swap.patch.title if swap.patch else "")
    blocks: list[RenderableType] = [
        title(f"{swap.name}: {state(one)}"),
        field("kind", swap.kind),
        field("what", served),
        field("sha256", swap.sha256[:SHA]),
    ]
    if swap.entry and swap.entry.cases:
        blocks += [field("serves", calls(case)) for case in swap.entry.cases]
    if swap.run_id:
        blocks.append(field("run", swap.run_id))
    if swap.prediction is not None:
        blocks.append(field("predicted", f"prediction {swap.prediction} of `qrprof predictions`"))
    blocks += [field(label, text) for label, text in evidence(one)]
    if swap.kind in ("included", "adapter"):
        blocks.append(field("source", f"part of qrprof {__version__}, in {HERE}"))
    return [*blocks, "", table(LIFE, [life(change) for change in one.kept.changes])]


def calls(case: Case) -> str:
    """ "float32[1..8,16], -1, False": the arguments of the calls that a candidate serves, in order."""
    tensors = [tensor(*one) for one in zip(case.dtypes, case.shapes, strict=False)]
    plain = [str(value) for value in case.plain]
    order = case.layout or "t" * len(tensors) + "p" * len(plain)
    given: dict[str, Iterator[str]] = {"t": iter(tensors), "p": iter(plain)}
    found = [next(given[kind], "?") for kind in order if kind in given]
    return ", ".join(found) + ("" if case.strided else ", contiguous")


def tensor(dtype: str, shape: Sequence[tuple[int, int]]) -> str:
    sizes = [str(high) if low == high else f"{low}..{high}" for low, high in shape]
    return f"{dtype}[{','.join(sizes)}]"


def life(change: Change) -> list[Cell]:
    reason = f"{change.why}, because: {change.override}" if change.override else change.why
    return [change.at[:16], change.state, name(change.who), full(reason)]


def evidence(one: Shown) -> list[tuple[str, str]]:
    """In short: what was checked and measured, and what guards the program."""
    if one.kept.swap.patch:
        return [("file", one.kept.swap.patch.path), ("why", one.kept.swap.patch.why)]
    found = judged(one.verdict, one.task) if one.verdict else [("verdict", "none on this machine")]
    return [*found, *guards(one)]


def judged(verdict: Verdict, task: Task | None) -> list[tuple[str, str]]:
    found = [("verdict", f"{headline(verdict)} (`qrprof verdict {verdict.id}`)"), ("because", why(verdict))]
    if task:
        found.append(("errors", CHECKERS[task.checker].format(**asdict(task.tolerance))))
    if verdict.times:
        worst = min(verdict.times, key=lambda time: time.speedup.mid)
        found.append(("worst", f"{worst.case}: {between(worst.speedup)}"))
    if peaks := [time.peak_bytes for time in verdict.times if time.peak_bytes is not None]:
        found.append(("memory", f"{units.size(max(peaks))} at most for a call, beyond what was held before"))
    if build := [cost.seconds for cost in verdict.costs if cost.stage == "build"]:
        found.append(("build", f"{build[0]:.1f} s, once in each process"))
    return [*found, ("sandbox", f"it was judged in: {verdict.layer}; in your program there is none")]


def guards(one: Shown) -> list[tuple[str, str]]:
    if one.kept.swap.kind == "adapter":
        return [("guards", "only the version of the package that it was written for; any other stays as it is")]
    return [
        ("guards", "one call in 64 is checked; after three failures the stock kernel serves for good"),
        ("fallback", "the stock kernel, for all other calls and where it raises"),
    ]


def source_lines(source: str) -> str:
    """The whole text, with what a terminal would hide or obey spelled out."""
    return "".join(f"{spelled(line.expandtabs(TAB))}\n" for line in source.removesuffix("\n").split("\n"))


def spelled(line: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def record(one: Shown) -> dict[str, Any]:
    """As JSON; `source` is what a page ends with."""
    return {
        **asdict(one.kept.swap),
        "state": one.kept.state,
        "trusted": one.trusted,
        "changes": [asdict(change) for change in one.kept.changes],
        "speedup": asdict(one.verdict.speedup) if one.verdict and one.verdict.speedup else None,
        "outcome": one.verdict.outcome if one.verdict else None,
        "source": one.source,
    }
