"""`qrprof kernels warm`: which shapes, what is said of each, and what it needs."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from qrprof.kernels import warm as warming
from qrprof.kernels.qr import cpu
from qrprof.tui.cli import run

Seen = list[tuple[str, tuple[int, ...], str]]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """A GPU as the command sees it, where geqrf takes 2.5 s, qr 1.2 s, single matrices are torch's; what was called."""
    seen: Seen = []

    def warm(op: str, shape: tuple[int, int, int], device: torch.device) -> int | None:
        seen.append((op, shape, str(device)))
        if shape[0] > 1000:
            raise torch.OutOfMemoryError("all gone")
        if shape[0] == 1 or (op, shape[1]) == ("linalg_qr", 7):
            return None
        return 2_500_000_000 if op == "geqrf" else 1_200_000_000

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(warming, "warm", warm)
    return seen


def linalg(op: str, shape: list[int], dtype: str = "float32", device: str = "cuda") -> dict[str, Any]:
    return {
        "op": f"aten::{op}", "shape": shape, "dtype": dtype, "strides": [], "device": device, "site": "train.py:1",
        "calls_per_step": 1.0, "ns_per_step": None,
    }  # fmt: skip


def test_the_command_is_imported_without_torch(tmp_path: Path) -> None:
    code = "import sys, qrprof.tui.commands.kernels; print(*{name.split('.')[0] for name in sys.modules})"
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not set(child.stdout.split()) & {"torch", "triton", "numpy"}


def test_every_shape_has_a_line_as_soon_as_it_is_done(gpu: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "warm", "640x512", "1x64", "8x7x300", "640x512x512"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "device         NVIDIA H200",
        "640x512x512    geqrf 2.50 s, qr 1.20 s",
        "1x64x64        nothing to compile: torch itself serves it",
        "8x7x300        geqrf 2.50 s, qr by torch",
    ]
    assert gpu[:2] == [("geqrf", (640, 512, 512), "cuda:0"), ("linalg_qr", (640, 512, 512), "cuda:0")]
    assert len(gpu) == 6  # each shape once


def test_what_was_done_stays_said_where_the_memory_ends(gpu: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "warm", "8x8", "2000x5000", "9x9"]) == 1
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["device", "8x8x8"]
    assert printed.err == "qrprof: 2000x5000x5000 does not fit into the memory of the GPU; give a smaller batch\n"


def test_the_shapes_of_a_run(gpu: Seen, saved: Callable[..., Any]) -> None:
    there = saved("kernels", [])
    there.change(
        linalg=[
            linalg("linalg_qr", [2, 3, 100, 60]),
            linalg("geqrf", [40, 40]),
            linalg("geqrf", [6, 100, 60]),  # with other strides, or from elsewhere
            linalg("geqrf", [9, 9, 9], dtype="float64"),
            linalg("geqrf", [8, 8, 8], device="cpu"),
            linalg("_linalg_eigh", [7, 7, 7]),
        ]
    )
    out = there.out("warm", "5x4", "--from", there.folder.name)
    assert [line.split()[0] for line in out.splitlines()] == ["device", "5x4x4", "6x100x60", "1x40x40"]


def test_a_run_without_such_calls(gpu: Seen, saved: Callable[..., Any]) -> None:
    there = saved("kernels", [])
    code, out, err = there.call("warm", "--from", there.folder.name)
    assert (code, out) == (1, "")
    assert "called neither geqrf nor linalg_qr on a GPU in float32; give shapes" in err


@pytest.mark.parametrize("shape", ["640", "640x", "x5", "0x5x5", "3x4x5x6", "3X4", "-1x4", "٣x4", ""])
def test_no_shape(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "warm", "--", "4x4", shape]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"qrprof: no shape {shape!r}; write BATCHxMxN or BATCHxN, as 640x512x512\n"


def test_nothing_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "warm"]) == 2
    assert "give shapes, as 640x512, or --from RUN" in capsys.readouterr().err


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(["kernels", "warm", "640x512"]) == 3
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "qrprof: compiling the kernels needs a CUDA device, and torch sees none\n",
    )


# --- the calls


@pytest.mark.parametrize("op", warming.CALLS)
def test_a_call_is_timed_where_a_lane_serves_it(op: str) -> None:
    if not cpu.available():
        pytest.skip("this torch has no lane on a CPU")
    taken = warming.warm(op, (400, 40, 40), torch.device("cpu"))
    assert taken is not None
    assert taken > 0
    assert warming.warm(op, (2, 3, 3), torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "warm", "20x32", "1x5000"]) == 0
    device, small, large = capsys.readouterr().out.splitlines()
    assert device.split(maxsplit=1) == ["device", torch.cuda.get_device_name()]
    assert re.fullmatch(r"20x32x32 +geqrf [\d.]+ \w+, qr [\d.]+ \w+", small)
    assert large.split(maxsplit=1)[1] == "nothing to compile: torch itself serves it"
