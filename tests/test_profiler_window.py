"""Whether a profile that stops takes CUPTI down with it."""

import os

import pytest
import torch

from qrprof.profiler.recording.window import TEARDOWN, tearing_down


@pytest.mark.parametrize(("cuda", "expected"), [("13.0", "1"), ("12.6", "1"), ("12.4", None), (None, None)])
def test_cupti_is_torn_down_where_that_is_safe(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, expected: str | None
) -> None:
    monkeypatch.delenv(TEARDOWN, raising=False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with tearing_down():
        assert os.environ.get(TEARDOWN) == expected
    assert TEARDOWN not in os.environ


def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEARDOWN, "0")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with tearing_down():
        assert os.environ[TEARDOWN] == "0"
    assert os.environ[TEARDOWN] == "0"
