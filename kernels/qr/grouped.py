"""QR of many single matrices: those of one shape in one batched call."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from qrprof.kernels.qr import lanes


def qr(matrices: Sequence[Tensor], mode: str) -> list[tuple[Tensor, Tensor]]:
    if wrong := [tuple(matrix.shape) for matrix in matrices if matrix.dim() != 2]:
        raise ValueError(f"qr_grouped takes single matrices, not {wrong[0]}")
    groups: dict[tuple[torch.Size, torch.dtype, torch.device], list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        groups[matrix.shape, matrix.dtype, matrix.device].append(i)
    results: dict[int, tuple[Tensor, Tensor]] = {}
    for members in groups.values():
        factors = group([matrices[i] for i in members], mode)
        results.update(zip(members, factors, strict=True))
    return [results[i] for i in range(len(matrices))]


def group(matrices: Sequence[Tensor], mode: str) -> list[tuple[Tensor, Tensor]]:
    """Of one shape, dtype and device; one by one where a batch would have no lane of its own."""
    first = matrices[0]
    shape = torch.Size((len(matrices), *first.shape))
    if len(matrices) == 1 or lanes.lane_of_shape("linalg_qr", first.device, first.dtype, shape) == "torch":
        return [lanes.qr(matrix, mode) for matrix in matrices]
    with torch.no_grad():
        Q, R = lanes.qr(torch.stack(list(matrices)), mode)
    return list(zip([Q] * len(matrices) if mode == "r" else Q, R, strict=True))
