"""Block columns of a QR call: where each begins among the call's kernels, how wide it is, and its flops.

Pure functions over the order of launch. A part is "geqrf" (factor), "orgqr" (form Q) or "ormqr" (apply Q). geqrf
works from the first columns to the last, the other two from the last to the first, as LAPACK does.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from qrprof.profiler.phases import (
    AHEAD,
    COPY,
    GEQR2,
    GEQRF,
    LARFB,
    LARFT,
    ORGQR,
    ORMQR,
    Pattern,
    named,
)

QR_OPS: Final = {  # with the part that they begin with
    "aten::linalg_qr": GEQRF,
    "aten::qr": GEQRF,
    "aten::geqrf": GEQRF,
    "aten::linalg_householder_product": ORGQR,
    "aten::orgqr": ORGQR,
    "aten::ormqr": ORMQR,
}
FORMS_Q: Final = frozenset({"aten::linalg_qr", "aten::qr"})


@dataclass(frozen=True)
class Problem:
    """What a call works on: `batch` matrices m x n with k reflectors; ormqr applies them to `others` vectors."""

    batch: int
    m: int
    n: int
    k: int
    others: int = 0

    def flops(self, part: str, offset: int = 0) -> float:
        """Of a part for one matrix, when it begins at column `offset`; real arithmetic, a multiply-add being two.

        geqrf 2 m n^2 - 2/3 n^3 (m >= n), orgqr 4 m n k - 2 (m + n) k^2 + 4/3 k^3, which is the same for a reduced
        Q, ormqr 4 m k c - 2 c k^2 (LAPACK Working Note 41).
        """
        m, n, k = self.m - offset, self.n - offset, self.k - offset
        if part == GEQRF:
            long, short = max(m, n), min(m, n)
            return 2 * long * short**2 - 2 / 3 * short**3
        if part == ORGQR:
            return 4 * m * n * k - 2 * (m + n) * k**2 + 4 / 3 * k**3
        return 4 * m * k * self.others - 2 * self.others * k**2

    def block_flops(self, part: str, offset: int, nb: int) -> float:
        """Of the block column of `nb` columns from `offset` on; over all blocks they sum to the part's."""
        return self.flops(part, offset) - self.flops(part, offset + nb)

    def in_part(self, op: str, part: str) -> "Problem":
        """As a part of a call of `op` sees it: linalg_qr forms the reduced Q of its reflectors."""
        return Problem(self.batch, self.m, self.k, self.k) if part == ORGQR and op in FORMS_Q else self


def problem(op: str, shapes: str) -> Problem | None:
    """From a call's recorded shapes; None where they were not recorded or are of another form."""
    try:
        inputs = json.loads(shapes)
        *batch, m, n = inputs[0]
        if op == "aten::ormqr":
            *_, rows, columns = inputs[2]
            return Problem(math.prod(batch), m, n, inputs[1][-1], columns if rows == m else rows)
        k = min(m, n) if QR_OPS[op] == GEQRF else inputs[1][-1]
        return Problem(math.prod(batch), m, n, k)
    except (ValueError, IndexError, TypeError):
        return None


def cut(patterns: Sequence[Pattern], part: str) -> list[tuple[str, int]]:
    """(part, block column in the order of work) of each kernel of a call on one stream that begins with `part`.

    The part is "" for what stands around the library's work; the block -1 for what stands before the first one.
    """
    parts = []
    for pattern in patterns:
        part = pattern.phase if pattern.phase in (ORGQR, ORMQR) else part
        parts.append(part)
    starts = factor_starts(patterns, parts) | form_starts(patterns, parts)
    blocks: dict[str, int] = {}
    found = []
    for place, (pattern, own) in enumerate(zip(patterns, parts, strict=True)):
        blocks[own] = blocks.get(own, -1) + (place in starts)
        outside = pattern.around or (blocks[own] < 0 and pattern.phase in (COPY, AHEAD))
        found.append(("", -1) if outside else (own, blocks[own]))
    return found


def factor_starts(patterns: Sequence[Pattern], parts: Sequence[str]) -> set[int]:
    """Where block columns of geqrf begin: at a panel's first kernel, or what prepares it."""
    starts = set()
    between = True  # panels: the next geqr2 is of a new one
    for place, pattern in enumerate(patterns):
        if parts[place] != GEQRF:
            continue
        if pattern.phase.startswith(GEQR2):
            if between or pattern.whole:
                first = place
                while first and patterns[first - 1].phase == AHEAD:
                    first -= 1
                starts.add(first)
            between = "+" in pattern.phase
        elif named(pattern) or pattern.phase == COPY:
            between = True
    return starts


def form_starts(patterns: Sequence[Pattern], parts: Sequence[str]) -> set[int]:
    """Where block columns of orgqr and ormqr begin: after what ended the block before the next larft."""
    starts: set[int] = set()
    part, built, ended = GEQRF, False, -1
    for place, pattern in enumerate(patterns):
        if parts[place] != part:
            part, built, ended = parts[place], False, -1
            starts.add(place)
        if part == GEQRF:
            continue
        if pattern.phase == LARFT:
            if ended >= 0:
                starts.add(ended + 1)
            built, ended = True, -1
        elif built and pattern.phase in (COPY, LARFB, ORGQR, ORMQR):
            ended = place
    return starts


def place_blocks(part: str, named_widths: Sequence[int | None], columns: int) -> list[tuple[int, int] | None]:
    """(first column, width) of one matrix's blocks, in the order of work, from the widths that names give.

    The widths must make up `columns`: a single block without one has the rest, and the last columns may be a part
    of a block. Where they do not, nothing is known.
    """
    widths = list(named_widths) if part == GEQRF else list(named_widths)[::-1]
    sizes = [width or 0 for width in widths]
    rest = columns - sum(sizes)
    if widths.count(None) == 1 and rest > 0:
        sizes[widths.index(None)] = rest
    elif sizes and None not in widths and 0 <= -rest < sizes[-1]:
        sizes[-1] += rest
    else:
        return [None] * len(widths)
    placed = list(zip(accumulate(sizes, initial=0), sizes, strict=False))
    return [*(placed if part == GEQRF else placed[::-1])]
