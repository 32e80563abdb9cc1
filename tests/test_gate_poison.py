"""The pattern that free memory is filled with, and how it is found again."""

import pytest
import torch

from qrprof.planner.gate.poison import BLOCKS, WORD, poison, unwritten


def filled(count: int) -> torch.Tensor:
    return torch.full((count,), WORD, dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool])
def test_memory_that_was_not_written_is_counted_in_words_whatever_it_is_taken_for(dtype: torch.dtype) -> None:
    assert unwritten(filled(6).view(torch.uint8).clone().view(dtype)) == 6


def test_what_was_written_is_not_counted() -> None:
    half = filled(8).view(torch.float32)
    half[:4] = torch.nan  # an honest NaN is another one
    assert unwritten(half) == 4
    assert unwritten(torch.zeros(3, dtype=torch.float16)) == 0
    assert unwritten(torch.empty(0)) == 0


def test_every_other_column_is_looked_at_alone() -> None:
    both = torch.stack([filled(5), torch.zeros(5, dtype=torch.int32)], dim=1)
    assert [unwritten(both[:, at]) for at in (0, 1)] == [5, 0]


def test_any_sizes_can_be_filled() -> None:
    assert poison([0, 1, 4, 1 << 20], "cpu") == 3 * BLOCKS
