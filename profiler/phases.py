"""What the kernels of a QR factorisation do: the table of their names, and the phase of those that have no name of it.

Phases are named after LAPACK's routines: geqr2 (factor a panel), larft (build T), larfb (apply the block
reflector), orgqr (form Q), ormqr (apply Q); "copy" moves or sets data (lacpy, triu, transposes). A matrix
product takes its phase from where it stands, a memset or a norm from what follows it. Names seen: cuSOLVER (H200,
CUDA 13), the sources of MAGMA and rocSOLVER, and `qrprof_<phase>_...` of our own kernels.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

GEQR2: Final = "geqr2"
LARFT: Final = "larft"
LARFB: Final = "larfb"
ORGQR: Final = "orgqr"
ORMQR: Final = "ormqr"
COPY: Final = "copy"
UNKNOWN: Final = "unknown"
PHASES: Final = (GEQR2, LARFT, LARFB, ORGQR, ORMQR, COPY, UNKNOWN)
CONTEXT: Final = "product"  # its phase follows from where it stands
AHEAD: Final = "ahead"  # its phase is that of what follows
NAMED: Final = frozenset({GEQR2, LARFT, LARFB, ORGQR, ORMQR})

GEQRF: Final = "geqrf"  # a part of a call, beside ORGQR and ORMQR
FUSED: Final = "fused: "  # several phases in one kernel


class Pattern(NamedTuple):
    phase: str  # several, joined by "+", where one kernel holds them all
    names: str
    library: str = ""
    around: bool = False  # stands before or after the library's work, never inside a block column
    whole: bool = False  # a launch is a panel, however many follow each other


# The first match holds.
TABLE: Final = (
    Pattern(COPY, r"at::native::|^Memcpy", around=True),  # PyTorch's own: into place, and R out of it
    Pattern(COPY, r"copy_info_kernel", "cuSOLVER", around=True),  # the status of one matrix
    Pattern(AHEAD, r"^Memset|dot_kernel|nrm2"),
    Pattern(COPY, r"lacpy|transpose|triu|tril|copy_kernel"),
    Pattern(GEQR2, r"geqr2_[sg]mem", "cuSOLVER", whole=True),  # geqr2_smem, geqr2_smem_domino_fast, geqr2_gmem_domino
    Pattern(LARFT, r"larft_(T|vtv)_\d+", "cuSOLVER"),
    Pattern(LARFB, r"larfb_(set|restore)_v1", "cuSOLVER"),
    Pattern(ORGQR, r"orgqr_step\d", "cuSOLVER"),
    Pattern(ORMQR, r"ormtr_ge", "cuSOLVER"),
    Pattern(GEQR2, r"geqr2_\w*kernel_batched|larfgx?_gpu_kernel|larfx_kernel", "MAGMA"),
    Pattern(LARFT, r"larft_\w*kernel", "MAGMA"),
    Pattern(GEQR2, r"larfg_kernel_small|set_taubeta|geqr2_kernel_small", "rocSOLVER"),
    Pattern(LARFT, r"\bset_triangular\b|\bset_tau\b", "rocSOLVER"),
    Pattern(LARFB, r"\b(copy|add)matA1\b", "rocSOLVER"),
    Pattern(ORGQR, r"\b(org2r_)?init_ident|\b(subtract_tau|restau)\b", "rocSOLVER"),
    Pattern("geqr2+larft+larfb", r"(?<![a-z])[sdcz]?geqrf(?![a-z])"),  # one kernel for the whole matrix
    Pattern(GEQR2, r"(?<![a-z])[sdcz]?(geqr2|larfg)(?![a-z])"),
    Pattern(LARFT, r"(?<![a-z])[sdcz]?larft(?![a-z])"),
    Pattern(LARFB, r"(?<![a-z])[sdcz]?larfb(?![a-z])"),
    Pattern(ORGQR, r"(?<![a-z])[sdcz]?(orgqr|org2r|ungqr|ung2r)(?![a-z])"),
    Pattern(ORMQR, r"(?<![a-z])[sdcz]?(ormqr|orm2r|unmqr|unm2r)(?![a-z])"),
    Pattern(CONTEXT, r"gemm|gemv|gemc|(?<![a-z])[sdcz]?ger(?![a-z])|trmm|trmv|trsm|syrk|herk|splitK|xmma|cutlass"),
    Pattern(CONTEXT, r"Cijk_|larf(?![a-z])|larf_|laset|batch_eye|(set|restore)_diag|scal_kernel"),
)
ANY: Final = f"(?:{'|'.join(PHASES[:-1])})"
OWN: Final = re.compile(rf"qrprof_({ANY}(?:_{ANY})*)(?![a-z0-9])")
WIDTHS: Final = (
    (re.compile(r"larft_T_(\d+)_batch"), 2),  # T of two halves, which two products join
    (re.compile(r"larft_T_(\d+)\b"), 1),
    (re.compile(r"geqr2_fused_\w*kernel_batched<\d+, (\d+)>"), 1),
)
ONE_COLUMN: Final = re.compile(r"larfg_kernel_small|set_taubeta")  # launched once a column of a panel
UNKNOWN_PATTERN: Final = Pattern(UNKNOWN, "")


@lru_cache(maxsize=4096)
def pattern_of(kernel: str) -> Pattern:
    """The row of the table for a kernel's (or copy's, or memset's) name; phase UNKNOWN where it is in none."""
    if own := OWN.search(kernel):
        return Pattern("+".join(own[1].split("_")), "", "qrprof")
    return next((row for row in TABLE if re.search(row.names, kernel)), UNKNOWN_PATTERN)


def named(pattern: Pattern) -> bool:
    """Whether the name itself says what part of a QR the kernel is."""
    return not NAMED.isdisjoint(pattern.phase.split("+"))


def panel_width(kernels: Sequence[str]) -> int | None:
    """The columns of a block column, where the names of its kernels say it."""
    for kernel in kernels:
        for expression, times in WIDTHS:
            if found := expression.search(kernel):
                return times * int(found[1])
    return sum(ONE_COLUMN.search(kernel) is not None for kernel in kernels) or None


def phases_of(patterns: Sequence[Pattern], parts: Sequence[str]) -> list[str]:
    """The phase of each kernel of one call on one stream, in the order of launch; `parts` says which part each is in.

    In geqrf a product before a larft is V^T V, larft's; after larft and larfb it is larfb's; else geqr2's. In orgqr
    and ormqr products are the part's own. Where no kernel with a name says what is done, they are unknown.
    """
    any_named = any(map(named, patterns))
    coming = coming_phases(patterns)
    last = ""
    found = []
    for pattern, part, after in zip(patterns, parts, coming, strict=True):
        phase = FUSED + pattern.phase if "+" in pattern.phase else pattern.phase
        if named(pattern):
            last = pattern.phase.rpartition("+")[2]
        elif phase == AHEAD:
            phase = after or COPY
        elif phase == CONTEXT and part != GEQRF:
            phase = part if any_named else UNKNOWN
        elif phase == CONTEXT:
            in_panel = GEQR2 if GEQR2 in (last, after) else UNKNOWN
            phase = LARFT if after == LARFT else LARFB if last in (LARFT, LARFB) else in_panel
        found.append(phase)
    return found


def coming_phases(patterns: Sequence[Pattern]) -> list[str]:
    """For each kernel the phase that the next one with a name begins with; "" after the last of them."""
    found, coming = [], ""
    for pattern in reversed(patterns):
        found.append(coming)
        if named(pattern):
            coming = pattern.phase.partition("+")[0]
    return found[::-1]
