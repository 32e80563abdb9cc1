"""What the QR benchmark runs on: the contest's cases, a sweep over shapes, or a file of cases."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError, model_validator
from torch import Tensor

from qrprof.kernels import contest, structures
from qrprof.profiler.blocks import Problem
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.phases import GEQRF
from qrprof.profiler.runinfo import Record

SWEEP_BATCHES: Final = (1, 8, 40, 160, 640)
SWEEP_SIZES: Final = (64, 128, 256, 512)
SWEEP_OTHERS: Final = ((640, 256, 32), (64, 1024, 128), (8, 4096, 64), (1, 4096, 256), (64, 128, 512), (8, 256, 2048))
CPU_FLOPS: Final = 4e9  # of a case that a CPU runs in about a second


class Case(Record):
    """`batch` matrices m x n of a structure of `structures`, with its `cond`; m is n where it is left out."""

    batch: PositiveInt
    m: PositiveInt
    n: PositiveInt
    case: str = "dense"
    cond: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    seed: NonNegativeInt = 0

    @model_validator(mode="before")
    @classmethod
    def square(cls, given: object) -> object:
        return {"m": given.get("n"), **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def known(self) -> "Case":
        if self.case not in structures.CASES:
            raise ValueError(f"no structure {self.case!r}: one of {', '.join(structures.CASES)}")
        return self

    @property
    def label(self) -> str:
        size = f"{self.n}" if self.m == self.n else f"{self.m}x{self.n}"
        return f"{self.batch}x{size} {self.case}"

    @property
    def flops(self) -> float:
        """Of geqrf on all matrices: 4/3 n^3 each where they are square (LAPACK Working Note 41)."""
        return self.batch * Problem(self.batch, self.m, self.n, min(self.m, self.n)).flops(GEQRF)

    @property
    def bytes(self) -> int:
        """Of the matrices, in float32."""
        return 4 * self.batch * self.m * self.n

    def make(self, device: torch.device, fresh: int = 0) -> Tensor:
        """(batch, m, n) float32; `fresh` is added to the seed."""
        return structures.make(
            self.case, self.batch, self.m, self.n, cond=self.cond, seed=self.seed + fresh, device=device
        )


def of_contest(cases: Sequence[contest.Case]) -> tuple[Case, ...]:
    return tuple(
        Case(batch=one.batch, m=one.n, n=one.n, case=one.structure, cond=one.cond, seed=one.seed) for one in cases
    )


def of_sweep() -> tuple[Case, ...]:
    square = [(batch, n, n) for n in SWEEP_SIZES for batch in SWEEP_BATCHES]
    return tuple(
        Case(batch=batch, m=m, n=n, seed=number) for number, (batch, m, n) in enumerate([*square, *SWEEP_OTHERS])
    )


CONTEST: Final = "contest"
SETS: Final = {
    CONTEST: of_contest(contest.BENCHMARKS),
    "tests": of_contest(contest.TESTS),
    "sweep": of_sweep(),
}


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a JSON file: a list of {batch, n, m, case, cond, seed}, of which batch and n must be there.

    Raises QrprofError (exit code 2) where it cannot be read or holds something else.
    """
    try:
        found = TypeAdapter(tuple[Case, ...]).validate_python(json.loads(path.read_bytes()))
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}", Exit.USAGE) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ", ".join(str(part) for part in first["loc"])
        raise QrprofError(f"{path}: {where}: {first['msg']}", Exit.USAGE) from None
    except ValueError as error:
        raise QrprofError(f"{path} is no JSON: {error}", Exit.USAGE) from None
    if not found:
        raise QrprofError(f"{path} holds no case", Exit.USAGE)
    return found


def small(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Those that a CPU gets through in reasonable time."""
    return tuple(case for case in cases if case.flops <= CPU_FLOPS)
