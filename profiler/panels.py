"""QR calls, taken apart: the phases of each block column, from kernel names and the order of launch.

A call is an outermost QR op (`blocks.QR_OPS`) that starts in a recorded step. Its kernels are those launched inside
it; `phases` names them and `blocks` cuts them. The gap before a kernel is the time since the start of the call in
which its device did nothing at all; gaps and kernels of a call on one stream make up its time from the first
kernel's start to the last one's end.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from qrprof.profiler.blocks import FORMS_Q, QR_OPS, Problem, cut, place_blocks, problem
from qrprof.profiler.events import OP
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.nesting import Ints, Nesting, outermost, pick
from qrprof.profiler.phases import (
    FUSED,
    GEQRF,
    ORGQR,
    PHASES,
    UNKNOWN,
    Pattern,
    named,
    panel_width,
    pattern_of,
    phases_of,
)
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import weight_at
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import Work, lost_launches

LOOPS: Final = frozenset({"cuSOLVER", "rocSOLVER"})  # called once a matrix; the others take the whole batch
NOT_SPLIT: Final = "LAPACK: not split"
NOT_WHOLE: Final = "some of its device work is not in the file"
NOT_RECORDED: Final = "its device work is not in the file"


@dataclass(frozen=True)
class PanelStep:
    """One block column of a QR call; or what stands around them in it; or a whole call that cannot be split.

    Times are ns. `phases` gives the kernels' time by phase, and sums to `busy`. A kernel of several phases stands under
    "fused: geqr2+larft+larfb", and those that have no kernel of their own are None. `phases` is None as a whole for
    a call that ran no kernels.
    """

    call: int  # number of the call in the trace, from 0
    weight: float  # of the call in the mean step
    op: str
    shapes: str  # of the op's inputs, as in the trace
    dtype: str  # of the matrix
    library: str  # "cuSOLVER", "MAGMA", "rocSOLVER", "qrprof"; "": unknown
    part: str  # "geqrf", "orgqr", "ormqr"; "": around them, or the whole call
    matrix: int | None  # number in the batch; None: all of them at once
    column: int | None  # number of the block column from the left; None: not one, or not known which
    batch: int | None  # matrices of the call; None: its shapes were not recorded
    m: int | None  # rows of the block column
    n: int | None  # columns from its first one to the last
    nb: int | None  # its own columns; None: the kernels' names do not say
    start: int | None  # on the device, on the host where there is none; None: not in the file
    end: int | None
    phases: Mapping[str, int | None] | None
    gap: int | None  # device idle before its kernels; None: no kernels, or not all of them are in the file
    kernels: int
    flops: float | None  # of all matrices that it works on
    lost: int  # launches of the call whose device work is not in the file
    note: str  # why it is not split, or not whole; "": it is

    @property
    def busy(self) -> int:
        """Time of its kernels, ns."""
        return sum(ns for ns in (self.phases or {}).values() if ns)

    @property
    def gflops(self) -> float | None:
        """Achieved GFLOP/s over kernels and gaps; None where it is not known what was computed, or not all is there."""
        ns = self.busy + (self.gap or 0) if self.phases is not None else (self.end or 0) - (self.start or 0)
        return self.flops / ns if self.flops and ns and not self.lost else None


@dataclass(frozen=True)
class _Call:
    """A QR op of the steps, and its device work by start."""

    number: int
    row: int
    work: Ints
    gaps: Ints  # by item of `work`
    lost: int


def panels(trace: Trace, run: RunInfo | None = None) -> list[PanelStep]:
    """The block columns of all QR calls of the recorded steps, in the order of the calls and of their work.

    Without `run` all steps weigh the same. Raises QrprofError where the trace is empty.
    """
    return find_panels(find_facts(trace, run))


def find_panels(facts: Facts) -> list[PanelStep]:
    host, work = facts.host, facts.work
    weight = weight_at(facts.steps.host, host.start)
    is_qr = (host.rows["kind"] == OP).to_numpy() & host.rows["name"].isin(list(QR_OPS)).to_numpy()
    found: list[PanelStep] = []
    for call in _calls(host, work, outermost(host, is_qr)):
        if weight[call.row] > 0:
            found += _split(host, work, call, float(weight[call.row]))
    return found


def _calls(host: Nesting, work: Work, holder: Ints) -> list[_Call]:
    """All QR ops of the trace by start. `holder` is the QR op around each host row."""
    rows = np.flatnonzero(holder == np.arange(len(holder)))
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    owner = pick(holder, work.launch, -1)
    items = np.lexsort((work.start, work.device, owner))
    items = items[np.searchsorted(owner[items], 0) :]
    first = np.searchsorted(owner[items], rows, side="left")
    last = np.searchsorted(owner[items], rows, side="right")
    lost = np.bincount(holder[lost_launches(host, work)] + 1, minlength=len(holder) + 1)[1:]
    idle = _idle_before(work)
    found = []
    for number, row in enumerate(rows.tolist()):
        own = items[first[number] : last[number]]
        gaps = np.where(np.diff(work.device[own]) == 0, np.diff(idle[own]), 0)
        found.append(_Call(number, row, own, np.append(0, gaps)[: len(own)], int(lost[row])))
    return found


def _idle_before(work: Work) -> Ints:
    """By item of work the time from its device's first item to its start in which the device did nothing, ns."""
    idle = np.zeros(len(work.start), dtype=np.int64)
    for device in np.unique(work.device):
        own = np.flatnonzero(work.device == device)
        own = own[np.argsort(work.start[own], kind="stable")]
        reached = np.maximum.accumulate(work.end[own])
        idle[own[1:]] = np.cumsum(np.maximum(work.start[own[1:]] - reached[:-1], 0))
    return idle


# --- one call


@dataclass
class _Block:
    """Kernels of a block column; or of what stands around them; with what is found out about them."""

    part: str
    number: int  # on its stream, in the order of work; -1: no block column
    items: list[int]  # places in the call's work
    phases: list[str]
    matrix: int | None = None
    column: int | None = None
    place: tuple[int, int] | None = None  # first column, width


def _split(host: Nesting, work: Work, call: _Call, weight: float) -> list[PanelStep]:
    op, shapes, dtypes = (str(text) for text in host.rows.loc[call.row, ["name", "shapes", "dtypes"]])
    size = problem(op, shapes)
    patterns = [pattern_of(name) for name in work.name[call.work]]
    blocks = _blocks(work, call, patterns, QR_OPS[op])
    library = next((pattern.library for pattern in patterns if pattern.library), "")
    if size and not call.lost:
        for part in {block.part for block in blocks} - {""}:
            own = [block for block in blocks if block.part == part and block.number >= 0]
            _place(own, size, patterns, work.name[call.work].tolist())
    known: dict[str, Any] = {
        "call": call.number,
        "weight": weight,
        "op": op,
        "shapes": shapes,
        "dtype": dtypes.partition(",")[0],
        "library": library,
        "batch": size.batch if size else None,
        "lost": call.lost,
        "note": _note(call, patterns),
    }
    if not blocks:
        return [_whole(host, call, size, known)]
    return [_step(work, call, block, size, known) for block in blocks]


def _note(call: _Call, patterns: Sequence[Pattern]) -> str:
    if call.lost:
        return NOT_WHOLE if patterns else NOT_RECORDED
    if not patterns:
        return NOT_SPLIT
    return "" if any(map(named, patterns)) else UNKNOWN


def _blocks(work: Work, call: _Call, patterns: Sequence[Pattern], part: str) -> list[_Block]:
    """The call's blocks in the order of work, stream by stream."""
    streams: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, item in enumerate(call.work.tolist()):
        streams[int(work.device[item]), int(work.stream[item])].append(place)
    found: dict[tuple[str, int, int], _Block] = {}
    for stream, places in enumerate(streams.values()):
        own = [patterns[place] for place in places]
        cuts = cut(own, part)
        phases = phases_of(own, [of for of, _ in cuts])
        for place, (of, number), phase in zip(places, cuts, phases, strict=True):
            block = found.setdefault((of, stream if of else 0, number), _Block(of, number, [], []))
            block.items.append(place)
            block.phases.append(phase)
    return list(found.values())


def _place(blocks: Sequence[_Block], size: Problem, patterns: Sequence[Pattern], names: Sequence[str]) -> None:
    """Find matrix, column and width of a part's blocks; all stay unknown where they are not alike for all matrices."""
    looped = any(patterns[place].library in LOOPS for block in blocks for place in block.items)
    matrices = size.batch if looped else 1
    if not blocks or not matrices or len(blocks) % matrices:
        return
    each = len(blocks) // matrices
    for matrix in range(matrices):
        own = blocks[matrix * each : (matrix + 1) * each]
        part = own[0].part
        widths = [panel_width([names[place] for place in block.items]) for block in own]
        for number, (block, place) in enumerate(zip(own, place_blocks(part, widths, size.k), strict=True)):
            block.matrix = matrix if matrices > 1 else None
            block.column = number if part == GEQRF else each - 1 - number
            block.place = place


def _step(work: Work, call: _Call, block: _Block, size: Problem | None, known: Mapping[str, Any]) -> PanelStep:
    items = call.work[block.items]
    offset, nb = block.place or (None, None)
    flops = None
    if size and offset is not None and nb is not None:
        matrices = size.batch if block.matrix is None else 1
        forms = any(phase.startswith(FUSED) and phase.endswith(f"+{ORGQR}") for phase in block.phases)
        formed = size.in_part(known["op"], ORGQR).flops(ORGQR) if forms else 0.0
        size = size.in_part(known["op"], block.part)
        flops = (size.block_flops(block.part, offset, nb) + formed) * matrices
    phases = _sums(block.phases, (work.end[items] - work.start[items]).tolist())
    fused = ", ".join(phase for phase in phases if phase.startswith(FUSED))
    return PanelStep(
        part=block.part,
        matrix=block.matrix,
        column=block.column,
        m=size.m - offset if size and offset is not None else None,
        n=size.n - offset if size and offset is not None else None,
        nb=nb,
        start=int(work.start[items].min()),
        end=int(work.end[items].max()),
        phases=phases,
        gap=None if call.lost else int(call.gaps[block.items].sum()),
        kernels=len(items),
        flops=flops,
        **{**known, "note": known["note"] or fused},
    )


def _sums(phases: Sequence[str], times: Sequence[int]) -> dict[str, int | None]:
    """ns by phase, in the order of PHASES; phases that only a fused kernel holds are None."""
    sums: dict[str, int] = defaultdict(int)
    for phase, ns in zip(phases, times, strict=True):
        sums[phase] += ns
    fused = [phase for phase in sums if phase.startswith(FUSED)]
    hidden = {phase for name in fused for phase in name.removeprefix(FUSED).split("+")}
    shown = [phase for phase in PHASES if phase in hidden or phase in sums]
    return {phase: sums.get(phase) for phase in [*shown, *fused]}


def _whole(host: Nesting, call: _Call, size: Problem | None, known: Mapping[str, Any]) -> PanelStep:
    """The row of a call that ran no kernels: on the host, or its kernels are not in the file."""
    on_host = known["note"] == NOT_SPLIT
    op = known["op"]
    parts = (QR_OPS[op], ORGQR) if op in FORMS_Q else (QR_OPS[op],)
    return PanelStep(
        part="",
        matrix=None,
        column=None,
        m=size.m if size else None,
        n=size.n if size else None,
        nb=None,
        start=int(host.start[call.row]) if on_host else None,
        end=int(host.end[call.row]) if on_host else None,
        phases=None,
        gap=None,
        kernels=0,
        flops=size.batch * sum(size.in_part(op, part).flops(part) for part in parts) if size else None,
        **known,
    )
