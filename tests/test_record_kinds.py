"""Steps that differ: the period is found, each kind is recorded, and its linalg calls are known and sampled."""

import re
from typing import Any

import pytest
import torch


def every(period: int, steps: int) -> str:
    return (
        f"for i in range({steps}):\n"
        f"    if i % {period} == {period} - 1: q, r = torch.linalg.qr(torch.full((6, 4), i / 7) + torch.eye(6, 4))\n"
        "    step()\n"
    )


@pytest.mark.parametrize("period", [10, 7])
def test_a_period_is_found_and_recorded_whole(workshop: Any, period: int) -> None:
    ended = workshop.train(every(period, 200))
    run = ended.run
    assert (run.period, len(run.recorded)) == (period, period)
    assert sorted(kind.frequency for kind in run.kinds) == pytest.approx([1 / period, 1 - 1 / period])
    assert sum(step.weight for step in run.recorded) == pytest.approx(1)
    qr = ended.per_step("aten::linalg_qr")
    assert [step.kind for step in run.recorded] == ["AB"[count] for count in qr]
    assert sum(qr) == 1
    for block in run.unprofiled:
        assert len(block.durations_ns) % period == 0
        assert [kind == "B" for kind in block.kinds] == [
            n % period == period - 1 for n in range(block.first_step, block.first_step + len(block.kinds))
        ]
    (call,) = run.linalg
    assert (call.op, call.shape, call.strides) == ("aten::linalg_qr", [6, 4], [4, 1])
    assert (call.dtype, call.device) == ("float32", "cpu")
    assert call.calls_per_step == pytest.approx(1 / period)
    assert call.ns_per_step > 0
    assert call.site == "train.py:10"
    (path,) = (ended.folder / "cache" / "samples").iterdir()
    for sample in torch.load(path, weights_only=True).values():
        x = float((sample - torch.eye(6, 4))[0, 1])
        assert torch.equal(sample, torch.full((6, 4), round(7 * x) / 7) + torch.eye(6, 4))
        assert round(7 * x) % period == period - 1
    assert len(torch.load(path, weights_only=True)) == call.samples > 0


def test_a_rare_refresh_is_found_and_weighted(workshop: Any) -> None:
    ended = workshop.train(every(50, 300))
    run = ended.run
    assert run.period == 50
    assert len(run.recorded) < 10
    weights = {kind: sum(step.weight for step in run.recorded if step.kind == kind) for kind in "AB"}
    assert weights == pytest.approx({"A": 0.98, "B": 0.02})
    assert sum(ended.per_step("aten::linalg_qr")) == 1
    assert run.linalg[0].calls_per_step == pytest.approx(0.02)
    assert run.notes == []


def test_steps_without_a_pattern_are_said_to_differ(workshop: Any) -> None:
    squares = "for i in range(300):\n    if i**0.5 % 1 == 0: torch.linalg.qr(torch.ones(4, 4))\n    step()\n"
    run = workshop.train(squares).run
    assert run.period is None
    assert len(run.notes) == 1
    assert re.fullmatch(
        r"steps differ: the recorded ones are 1 of 2 kinds, and no period up to 64 was found in \d+ steps", run.notes[0]
    )
