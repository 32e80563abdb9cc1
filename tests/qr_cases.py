"""What tests of QR share: seeded inputs, and the stock factors of one, to be spoilt."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qrprof.kernels.checks import Residuals, residuals, residuals_qr
from qrprof.kernels.structures import make

EPS = torch.finfo(torch.float32).eps
F64 = torch.float64
DTYPES = (torch.float32, F64)


def made(case: str, batch: int, m: int, n: int, cond: float = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return make(case, batch, m, n, cond=cond, seed=11, device="cpu", dtype=dtype)


@dataclass
class Factored:
    """A batch and its stock factors."""

    a: Tensor
    h: Tensor
    tau: Tensor
    q: Tensor
    r: Tensor

    @staticmethod
    def of(a: Tensor, mode: str = "reduced") -> "Factored":
        return Factored(a, *torch.geqrf(a), *torch.linalg.qr(a, mode=mode))

    @property
    def geqrf(self) -> Residuals:
        return residuals(self.a, self.h, self.tau)

    @property
    def qr(self) -> Residuals:
        return residuals_qr(self.a, self.q, self.r)
