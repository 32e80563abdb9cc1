"""The stock kernels, reached through their out= overloads.

An override is never installed on those: a call of them reaches the stock kernel, and releases the GIL meanwhile, which
`call_boxed` of a kernel taken by `torch.library.get_kernel` does not. Results are written to `out` where it is given.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

aten = torch.ops.aten


def qr(A: Tensor, mode: str = "reduced", out: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """(Q, R) of A [..., m, n] as `torch.linalg.qr` returns them; raises what it raises."""
    Q, R = out or (A.new_empty(0), A.new_empty(0))
    with torch.no_grad():
        aten.linalg_qr.out(A, mode, Q=Q, R=R)
    return Q, R


def geqrf(A: Tensor, out: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """(H, tau) of A [..., m, n] as `torch.geqrf` returns them; raises what it raises."""
    H, tau = out or (A.new_empty(0), A.new_empty(0))
    with torch.no_grad():
        aten.geqrf.a(A, a=H, tau=tau)
    return H, tau


def orgqr(H: Tensor, tau: Tensor, out: Sequence[Tensor] = ()) -> tuple[Tensor]:
    """Q [..., m, n] of H [..., m, n] and tau [..., k] as `torch.linalg.householder_product` returns it."""
    (Q,) = out or (H.new_empty(0),)
    with torch.no_grad():
        aten.linalg_householder_product.out(H, tau, out=Q)
    return (Q,)


def ormqr(H: Tensor, tau: Tensor, C: Tensor, left: bool, transpose: bool, out: Sequence[Tensor] = ()) -> tuple[Tensor]:
    """Q C, Q^T C, C Q or C Q^T as `torch.ormqr` returns it."""
    (product,) = out or (C.new_empty(0),)
    with torch.no_grad():
        aten.ormqr.out(H, tau, C, left, transpose, out=product)
    return (product,)
