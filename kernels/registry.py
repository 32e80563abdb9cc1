"""The kernels of this library, one record each: what they compute, where they serve, what is tuned, what they cost."""

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from qrprof.kernels.qr.dispatch import lane


@dataclass(frozen=True)
class KernelSpec:
    """Functions are named "module:function", so that reading the records needs neither torch nor triton.

    `flops` and `bytes` take (batch, m, n, bytes of an element): a multiply-add is two flops, each input and output is
    moved once.
    """

    op: str  # as in the dispatcher, without "aten::"
    implementation: str
    reference: str
    tunables: str  # "module:name" of the launch settings
    flops: Callable[[int, int, int, int], float]
    bytes: Callable[[int, int, int, int], float]

    def serves(self, device: str, dtype: str, batch: int, m: int, n: int) -> bool:
        """Whether a lane of ours takes the call; else it is torch's own."""
        return lane(self.op, device, dtype, batch, m, n) != "torch"

    def load(self) -> Any:
        return _named(self.implementation)

    def load_reference(self) -> Any:
        return _named(self.reference)

    def load_tunables(self) -> Any:
        return _named(self.tunables)


def served(op: str, device: str, dtype: str, shape: Sequence[int]) -> bool:
    """Whether an included kernel serves calls of an op ("aten::linalg_qr" or "linalg_qr") on inputs [..., m, n]."""
    kernel = spec(op)
    if kernel is None or len(shape) < 2:
        return False
    *batch, m, n = shape
    return kernel.serves(device, dtype, math.prod(batch), m, n)


def factor_flops(batch: int, m: int, n: int, element: int) -> float:
    """xGEQRF (LAPACK Working Note 41, appendix C); forming min(m, n) columns of Q takes as many."""
    long, short = max(m, n), min(m, n)
    return batch * (2.0 * long * short**2 - 2.0 / 3.0 * short**3)


def qr_flops(batch: int, m: int, n: int, element: int) -> float:
    return 2.0 * factor_flops(batch, m, n, element)


def square_flops(batch: int, m: int, n: int, element: int) -> float:
    """xORMQR of n reflectors of length m on a matrix of m columns."""
    return batch * (4.0 * m * m * n - 2.0 * m * n**2)


def matrix_and_tau(batch: int, m: int, n: int, element: int) -> float:
    return element * batch * (2.0 * m * n + min(m, n))


def qr_bytes(batch: int, m: int, n: int, element: int) -> float:
    short = min(m, n)
    return element * batch * (1.0 * m * n + m * short + short * n)


def square_bytes(batch: int, m: int, n: int, element: int) -> float:
    return element * batch * (1.0 * m * n + n + 2.0 * m * m)


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


_QR: Final = "qrprof.kernels.qr"
_REFERENCE: Final = "qrprof.kernels.reference"
_CONFIGS: Final = f"{_QR}.configs:CONFIGS"
KERNELS: Final = (
    KernelSpec("geqrf", f"{_QR}:geqrf", f"{_REFERENCE}:geqrf", _CONFIGS, factor_flops, matrix_and_tau),
    KernelSpec(
        "linalg_householder_product", f"{_QR}:orgqr", f"{_REFERENCE}:orgqr", _CONFIGS, factor_flops, matrix_and_tau
    ),
    KernelSpec("ormqr", f"{_QR}:ormqr", f"{_REFERENCE}:ormqr", _CONFIGS, square_flops, square_bytes),
    KernelSpec("linalg_qr", f"{_QR}:qr", f"{_REFERENCE}:qr", _CONFIGS, qr_flops, qr_bytes),
)


def spec(op: str) -> KernelSpec | None:
    """The kernel for "linalg_qr" or "aten::linalg_qr"; None where the library has none."""
    name = op.removeprefix("aten::")
    return next((kernel for kernel in KERNELS if kernel.op == name), None)
