"""Whether a QR factorisation has LAPACK's signs, told from the factors alone.

Comparing the diagonals of two R does not tell: where an entry is rounding noise its sign is chance, and so are all the
signs after it. But Q determines its reflectors, and LAPACK's choice, beta with the sign that alpha has not, makes
1 <= tau <= 2 of every reflector that is not the identity.
"""

import torch
from torch import Tensor
from torch.nn.functional import threshold

BLOCK = 32
FEW = 4  # matrices that a library's LU, one after the other, is sooner through with than a loop over their columns
TOLERANCE = 0.01  # of a pivot: far above the rounding of a Q that is orthogonal, far below what a wrong sign does


def has_lapack_signs(q: Tensor) -> Tensor:
    """For Q's first k columns (batch, m, k) in float64: (batch,) of bool.

    The LU decomposition of I - Q's top k rows without pivoting is V_1 (T V_1^T), so its pivots are tau (Ballard et al.,
    Reconstructing Householder vectors from TSQR, 2014). A pivot of 0 is the identity, which row m - 1 always has.
    """
    k = q.shape[-1]
    if k == 0:
        return torch.ones(len(q), dtype=torch.bool, device=q.device)
    tau = pivots(torch.eye(k, dtype=q.dtype, device=q.device) - q[:, :k])
    identity = tau.abs() <= TOLERANCE
    good = identity | ((tau - 1.5).abs() <= 0.5 + TOLERANCE)
    if k == q.shape[-2]:
        good[:, -1] = identity[:, -1]
    return good.all(-1)


def pivots(s: Tensor) -> Tensor:
    """The pivots (batch, k) of LU without pivoting, where one of TOLERANCE or less eliminates nothing; uses `s` up.

    LAPACK's reflectors have no number above their 1, so partial pivoting moves no row where signs are LAPACK's and no
    reflector is the identity. Column by column a GPU is asked for three kernels each, which for a large matrix takes
    far longer than all else that is measured of it.
    """
    k = s.shape[-1]
    if 0 < len(s) <= FEW:
        # One by one: MKL's LU of a batch sometimes never returns once torch's number of threads was changed.
        factored = [torch.linalg.lu_factor_ex(one) for one in s]
        found = torch.stack([lu.diagonal() for lu, _, _ in factored])
        rows = torch.stack([moved for _, moved, _ in factored])
        unmoved = rows == torch.arange(1, k + 1, device=s.device)
        if bool(unmoved.all() & (found[:, :-1] > TOLERANCE).all()):
            return found
    for start in range(0, k, BLOCK):
        end = min(start + BLOCK, k)
        for j in range(start, end):
            below = s[:, j + 1 :, j, None]
            below /= threshold(s[:, j, j, None, None], TOLERANCE, torch.inf)
            s[:, j + 1 :, j + 1 : end].addcmul_(below, s[:, j, None, j + 1 : end], value=-1)
        lower, rest = s[:, start:end, start:end], s[:, start:end, end:]
        rest.copy_(torch.linalg.solve_triangular(lower, rest, upper=False, unitriangular=True))
        s[:, end:, end:] -= s[:, end:, start:end] @ rest
    return s.diagonal(dim1=-2, dim2=-1)


def keeps_triangles(a: Tensor, r: Tensor) -> Tensor:
    """(batch,) of bool: columns before which all is zero below the diagonal keep their diagonal's sign.

    LAPACK's reflectors are the identity there, where a tau of 2 would be as orthogonal.
    """
    k = min(a.shape[-2:])
    clean = (a[..., :k].tril(-1) == 0).all(-2)
    untouched = clean.cumprod(-1).bool()
    before, after = (x.diagonal(dim1=-2, dim2=-1)[:, :k].sign() for x in (a, r))
    return (~untouched | (before == after)).all(-1)
