"""QR as a task: the built-in sets of cases, and the checks of LAPACK's contract in place of a comparison of numbers."""

from collections.abc import Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal

from torch import Tensor

from qrprof.kernels import contest, structures
from qrprof.kernels.checks import Verdict, residuals, residuals_qr, strict
from qrprof.planner.gate.aten_task import signature
from qrprof.planner.gate.records import ArgSpec, Domain, Plain, Shrink, Task, TaskCase, Tolerance
from qrprof.profiler.errors import Exit, QrprofError

Device = Literal["cpu", "cuda"]
GEQRF, QR = "geqrf", "linalg_qr"
REDUCED: Final = "reduced"
SCALES: Final = (1.0, 1e-6, 1e6)
SMALL: Final = (  # a CPU gets through them in milliseconds
    contest.Case("dense", 16, 16, 1, 0),
    contest.Case("dense", 8, 32, 2, 0),
    contest.Case("mixed", 12, 24, 2, 0),
    contest.Case("nearrank", 4, 48, 0, 0),
)


def lane(n: int) -> tuple[contest.Case, ...]:
    return tuple(case for case in contest.BENCHMARKS if case.n == n)


SIZES: Final = [n for n, _ in groupby(sorted(case.n for case in contest.BENCHMARKS))]
SETS: Final = MappingProxyType({"small": SMALL, **{f"contest-{n}": lane(n) for n in SIZES}})


def built_in(name: str, op: str, device: Device) -> Task:
    """The task of a set of cases, of equal weight; its id is filled in by whoever keeps it.

    A contest lane is of one size and may be solved for that alone; the small set claims every smaller size. Raises
    QrprofError (exit code 2) for a set or op that is not there.
    """
    if name not in SETS:
        raise QrprofError(f"no set {name!r} of QR cases; there are {', '.join(SETS)}", Exit.USAGE)
    if op not in (GEQRF, QR):
        raise QrprofError(f"no QR op {op!r}; there are {GEQRF} and {QR}", Exit.USAGE)
    cases = SETS[name]
    shrink: Shrink = "all" if name == "small" else "leading"
    return Task(
        id=f"{op}-{name}",
        op=op,
        device=device,
        development=tuple(of_contest(case, op, 1 / len(cases)) for case in cases),
        domain=domain(shrink),
        checker="qr",
        tolerance=Tolerance(),
        origin="built in",
        arguments=signature(op),
    )


def of_contest(case: contest.Case, op: str, weight: float) -> TaskCase:
    return TaskCase(
        name=case.label,
        weight=weight,
        tensors=(ArgSpec((case.batch, case.n, case.n), "float32"),),
        plain=() if op == GEQRF else (REDUCED,),
        structure=case.structure,
        cond=case.cond,
    )


def domain(shrink: Shrink) -> Domain:
    return Domain(shrink=shrink, structures=structures.CASES, scales=SCALES)


def judge(op: str, args: Sequence[Tensor | Plain], outputs: Sequence[Tensor], stock: Sequence[Tensor]) -> Verdict:
    """The strict checks of `outputs` in float64, with the stock op's on the same input beside them.

    Outputs have the shapes and dtypes of the stock op's.
    """
    a = args[0]
    assert isinstance(a, Tensor)
    if op == GEQRF:
        return strict(residuals(a, *outputs), residuals(a, *stock))
    return strict(residuals_qr(a, *outputs), residuals_qr(a, *stock, signs=False))
