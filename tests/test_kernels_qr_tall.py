"""Tall matrices without a GPU: the kernels in Triton's interpreter, in a process of their own, and what serves what."""

import in_interpreter
import pytest
import torch

pytest.importorskip("triton")

from qrprof.kernels.qr import dispatch, lanes, swaps, tall
from qrprof.kernels.qr.configs import CONFIGS, Tall

TREES = [of for config in CONFIGS.values() for of in config.tall]


@pytest.mark.parametrize("part", ["torchs", "not torchs"])
def test_in_the_interpreter(part: str) -> None:
    in_interpreter.passes("tall_interpreted.py", part)


@pytest.mark.parametrize("of", TREES, ids=lambda of: str(of.columns))
def test_every_level_of_a_tree_is_smaller_than_the_one_below(of: Tall) -> None:
    assert of.rows >= 2 * of.columns
    assert of.top >= of.rows
    assert of.top < tall.LEAST_ROWS


def test_the_rule_is_what_the_kernels_serve() -> None:
    (rule,) = (rule for rule in dispatch.RULES if rule.lane == "cuda-tall")
    assert rule.rows == (tall.LEAST_ROWS, tall.MOST_ROWS)
    assert rule.columns == (1, tall.MOST_COLUMNS)
    assert rule.ops == ("linalg_qr",)
    assert tall.serves(rule.rows[0], 1)
    assert not tall.serves(rule.rows[0] - 1, 1)
    assert not tall.serves(rule.rows[0], 65)
    for config in CONFIGS.values():
        assert config.tall[-1].columns == tall.MOST_COLUMNS


@pytest.mark.parametrize(("mode", "lane"), [("reduced", "cuda-tall"), ("r", "cuda-tall"), ("complete", "torch")])
def test_all_of_q_is_torchs(monkeypatch: pytest.MonkeyPatch, mode: str, lane: str) -> None:
    monkeypatch.setattr(lanes, "lane_of", lambda op, matrices: "cuda-tall")
    a = torch.empty(2, 2)
    assert lanes.lane_of_qr(a, mode) == lane
    assert swaps.decline_qr(a, mode) == ("mode" if lane == "torch" else "")
