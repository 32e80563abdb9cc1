"""The parts of a trailing update: the same whether one of them can run beside the next leaves or not."""

import pytest
import torch

pytest.importorskip("triton")

from qrprof.kernels.qr.ahead import Ahead

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "columns", "expected"),
    [
        (True, (64, 128, 256), [(64, 128), (128, 256)]),
        (True, (64, 128, 128), [(64, 128)]),
        (False, (64, 128, 256), [(64, 256)]),
    ],
)
def test_the_parts_go_by_what_is_wanted(
    wanted: bool, columns: tuple[int, int, int], expected: list[tuple[int, int]]
) -> None:
    ahead = Ahead(CPU, wanted=wanted)
    parts: list[tuple[int, int]] = []
    ahead.update(lambda first, last: parts.append((first, last)), columns, None)
    ahead.join()
    assert sorted(parts) == expected
