"""What NVRTC built is kept: with a compiler and a driver that count, on any machine."""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _utils

from qrprof.kernels.qr.built import built


@dataclass
class Machine:
    capability: tuple[int, int] = (9, 0)
    compiled: list[tuple[str, ...]] = field(default_factory=list)

    def compile(self, text: str, kernel: str, *, nvcc_options: Sequence[str]) -> tuple[bytes, str]:
        self.compiled.append((text, kernel, *nvcc_options))
        return f"\0code of {text} for {self.capability}\0".encode(), f"_Z{kernel}"

    def load(self, code: bytes, names: Sequence[str]) -> dict[str, Any]:
        return {name: (name, code) for name in names}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(_utils, "_nvrtc_compile", found.compile)
    monkeypatch.setattr(_utils, "_cuda_load_module", found.load)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: found.capability)
    return found


@pytest.mark.usefixtures("careless")
def test_a_kernel_is_built_once_and_then_read(machine: Machine, folder: Path) -> None:
    first = built("text", "fill", ["-DN=4"])
    assert first == ("_Zfill", b"\0code of text for (9, 0)\0")
    assert built("text", "fill", ["-DN=4"]) == first
    assert machine.compiled == [("text", "fill", "-DN=4")]
    assert len(list(folder.iterdir())) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("other", [("texts", "fill", "-DN=4"), ("text", "full", "-DN=4"), ("text", "fill", "-DN=5")])
def test_another_text_kernel_or_setting_is_another(machine: Machine, other: tuple[str, str, str]) -> None:
    built("text", "fill", ["-DN=4"])
    built(*other[:2], [other[2]])
    assert machine.compiled == [("text", "fill", "-DN=4"), other]


def test_another_gpu_or_torch_has_its_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    built("text", "fill", [])
    machine.capability = (10, 0)
    assert built("text", "fill", [])[1] == b"\0code of text for (10, 0)\0"
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    built("text", "fill", [])
    monkeypatch.setattr(torch.version, "cuda", "99.9")
    built("text", "fill", [])
    assert len(machine.compiled) == 4


@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"", lambda whole: whole[:-1], lambda whole: whole[:20], lambda whole: whole[:-1] + b"x"],
    ids=["empty", "cut", "short", "changed"],
)
def test_a_damaged_file_is_built_anew(machine: Machine, folder: Path, damage: Callable[[bytes], bytes]) -> None:
    first = built("text", "fill", [])
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert built("text", "fill", []) == first == built("text", "fill", [])
    assert len(machine.compiled) == 2


@pytest.mark.parametrize("of", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o720, 0o702, None])
def test_what_others_may_have_written_is_not_loaded(machine: Machine, folder: Path, of: str, mode: int | None) -> None:
    built("text", "fill", [])
    (file,) = folder.iterdir()
    path = file if of == "file" else folder
    if mode is not None:
        path.chmod(mode)
    elif os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        pytest.skip("only root gives a file away")
    built("text", "fill", [])
    assert len(machine.compiled) == 2


def test_without_a_folder_to_write_it_is_built_each_time(machine: Machine, folder: Path) -> None:
    folder.parent.write_text("in the folder's place")
    assert built("text", "fill", []) == built("text", "fill", [])
    assert len(machine.compiled) == 2


def test_what_fails_to_build_leaves_nothing(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("Kernel compilation failed")

    monkeypatch.setattr(_utils, "_nvrtc_compile", fails)
    with pytest.raises(RuntimeError, match="compilation failed"):
        built("text", "fill", [])
    assert not folder.exists()
