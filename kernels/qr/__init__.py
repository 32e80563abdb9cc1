"""QR as LAPACK and torch define it, on the fastest lane for device, dtype and shape (`dispatch`).

Matrices are the last two dimensions; batches have any rank, inputs any strides, and m < n, 1 x 1 and empty are served.
Results have torch's values up to rounding, LAPACK's signs and torch's strides (H, Q and R column-major). None of these
functions is differentiable; `qrprof.kernels.install` puts them below torch's autograd. Whatever is wrong with an
argument raises what torch raises.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the dispatch table beside this file is read without torch
    from torch import Tensor

Mode = Literal["reduced", "complete", "r"]


def geqrf(A: "Tensor") -> "tuple[Tensor, Tensor]":
    """(H, tau) of A [..., m, n] (LAPACK xGEQRF): R in H's upper triangle, reflectors below it, tau [..., min(m, n)]."""
    from qrprof.kernels.qr import lanes

    return lanes.geqrf(A)


def orgqr(H: "Tensor", tau: "Tensor") -> "Tensor":
    """The first n columns of Q, [..., m, n] (LAPACK xORGQR), of the reflectors in H and tau [..., k], k <= n."""
    from qrprof.kernels.qr import lanes

    return lanes.orgqr(H, tau)


def ormqr(H: "Tensor", tau: "Tensor", C: "Tensor", *, left: bool = True, transpose: bool = False) -> "Tensor":
    """Q C, or Q^T C with `transpose`, or C Q, C Q^T without `left` (LAPACK xORMQR); Q is m x m, not formed."""
    from qrprof.kernels.qr import lanes

    return lanes.ormqr(H, tau, C, left=left, transpose=transpose)


def qr(A: "Tensor", mode: Mode = "reduced") -> "tuple[Tensor, Tensor]":
    """(Q, R) of A [..., m, n]: min(m, n) columns of Q, m for "complete"; Q is empty for "r", as in torch.linalg.qr."""
    from qrprof.kernels.qr import lanes

    return lanes.qr(A, mode)


def qr_grouped(matrices: "Sequence[Tensor]", mode: Mode = "reduced") -> "list[tuple[Tensor, Tensor]]":
    """`qr` of each matrix [m, n], in order; those of one shape, dtype and device are factored in one batched call.

    The results of such a group are views of one tensor. Raises ValueError for anything but single matrices.
    """
    from qrprof.kernels.qr import grouped

    return grouped.qr(matrices, mode)
