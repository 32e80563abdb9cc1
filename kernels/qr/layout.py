"""Column-major matrices, as LAPACK and torch return them."""

from collections.abc import Sequence

from torch import Tensor


def column_major(like: Tensor, batch: int, m: int, n: int) -> Tensor:
    """An empty (batch, m, n) of the dtype and device of `like`, with torch's strides."""
    column = max(m, 1)
    return like.new_empty_strided((batch, m, n), (column * max(n, 1), 1, column))


def batched(flat: Tensor, batch: Sequence[int]) -> Tensor:
    """Column-major (b, m, n) as (*batch, m, n), with torch's strides also where a side is 1."""
    return flat.mT.contiguous().flatten().view(*batch, flat.shape[2], flat.shape[1]).mT
