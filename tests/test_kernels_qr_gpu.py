"""The Triton lanes as torch's ops, under Triton's interpreter: batches of any rank, modes, strides."""

from typing import Any

import pytest

pytest.importorskip("triton")

PROGRAM = """\
import contextlib
import torch
torch.cuda.device = lambda device: contextlib.nullcontext()  # the interpreter takes tensors on the CPU
from dataclasses import replace
from qrprof.kernels.qr import blocked, gpu
from qrprof.kernels.qr.configs import DEFAULT

def alone(settings):  # the interpreter is slow at reductions of pairs
    return tuple(replace(one, paired=False) for one in settings)

config = replace(DEFAULT, small=alone(DEFAULT.small), leaves=alone(DEFAULT.leaves))
blocked.config_of = lambda device: config

def same(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert (a.shape, a.stride()) == (b.shape, b.stride()), (a.shape, a.stride(), b.stride())
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

for shape in [(6, 4), (4, 6), (2, 3, 5, 4), (1, 1), (66, 65)]:
    A = torch.randn(shape)
    for mode in ('reduced', 'complete', 'r') if shape[-1] < 65 else ('reduced',):
        same(gpu.qr(A, mode), torch.linalg.qr(A, mode))
    H, tau = torch.geqrf(A)
    same(gpu.geqrf(A), (H, tau))
    if shape[-2] >= shape[-1]:
        same([gpu.orgqr(H, tau)], [torch.linalg.householder_product(H, tau)])
        same([gpu.orgqr(H.contiguous(), tau)], [torch.linalg.householder_product(H, tau)])
        C = torch.randn(*shape[:-1], 3)
        for transpose in (False, True):
            same([gpu.ormqr(H, tau, C, True, transpose)], [torch.ormqr(H, tau, C, True, transpose)])
            same([gpu.ormqr(H, tau, C.mT, False, transpose)], [torch.ormqr(H, tau, C.mT, False, transpose)])
H, tau = torch.geqrf(torch.randn(2, 6, 4))
same([gpu.orgqr(H, tau[:, :2])], [torch.linalg.householder_product(H, tau[:, :2])])
print('done')
"""


def test_as_torchs_ops(workshop: Any) -> None:
    workshop.write("ops.py", PROGRAM)
    ended = workshop.python("ops.py", TRITON_INTERPRET="1")
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
