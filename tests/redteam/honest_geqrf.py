"""Narrow matrices, all of the batch at once."""

import torch

EXPECT = None
TASK = "geqrf"
DEVICE = "cpu"
ROWS = ()


def geqrf(A):
    """All matrices of the batch at once, one reflector after the other, in float64."""
    m, n = A.shape[-2:]
    W = A.reshape(-1, m, n).permute(1, 2, 0).double().contiguous()  # m, n, batch: the batch runs fastest
    tau = W.new_zeros(min(m, n), W.shape[-1])
    for j in range(min(m, n)):
        alpha, x = W[j, j].clone(), W[j + 1 :, j].clone()
        tail = x.square().sum(0)
        beta = torch.copysign((alpha.square() + tail).sqrt(), -alpha)
        plain = tail == 0  # nothing to reflect
        tau[j] = torch.where(plain, 0, (beta - alpha) / beta)
        v = torch.where(plain, 0, x / (alpha - beta))
        w = tau[j] * (W[j, j + 1 :] + (v.unsqueeze(1) * W[j + 1 :, j + 1 :]).sum(0))
        W[j, j + 1 :] -= w
        W[j + 1 :, j + 1 :] -= v.unsqueeze(1) * w
        W[j, j], W[j + 1 :, j] = torch.where(plain, alpha, beta), v
    H = A.new_empty(W.shape[-1], n, m).mT  # column-major, as LAPACK's
    H.copy_(W.permute(2, 0, 1))
    return H.view(*A.shape[:-2], m, n), tau.T.to(A.dtype).contiguous().view(*A.shape[:-2], min(m, n))


def candidate(A):
    return geqrf(A)
