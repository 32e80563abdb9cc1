"""Where the CUDA leaf kernel can be had; what it computes is tested on a GPU."""

from typing import Any

import pytest
import torch

from qrprof.kernels.qr import rows

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with a GPU, of which only its capability and whether a stream is being captured are asked."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(rows, "TRIED", {})
    return monkeypatch


def fails(error: Exception) -> Any:
    def kernel(*_: Any, **__: Any) -> Any:
        raise error

    return kernel


def test_not_without_a_gpu_that_has_clusters(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(rows, "kernel", lambda *_, **__: None)
    assert rows.usable(GPU)
    assert not rows.usable(torch.device("cpu"))
    rows.TRIED.clear()
    gpu.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    assert not rows.usable(GPU)


@pytest.mark.parametrize("error", [RuntimeError("nvrtc"), OSError("libnvrtc.so"), ImportError("_nvrtc_compile")])
def test_not_where_nothing_compiles(gpu: pytest.MonkeyPatch, error: Exception) -> None:
    gpu.setattr(rows, "kernel", fails(error))
    assert not rows.usable(GPU)


def test_nothing_is_compiled_for_a_try_under_capture(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(rows, "kernel", fails(RuntimeError("loaded under capture")))
    gpu.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert rows.usable(GPU)
    gpu.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert not rows.usable(GPU)  # the answer under capture was not kept
