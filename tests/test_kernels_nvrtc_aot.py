"""Every setting of the CUDA C++ leaf kernel compiles for an H200, and fits its registers and shared memory."""

import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

import nvrtc_aot
import pytest

from qrprof.kernels.qr.configs import Rows

MOST_SPILLED = 256  # bytes; the largest leaf spills 180
REGISTERS = 65536  # of a multiprocessor
GRANULE = 8  # registers are given to a thread by so many
MOST_THREADS = 1024
MOST_SHARED = 48 * 1024  # without asking for more

compiles = pytest.mark.skipif(
    nvrtc_aot.library() is None, reason="no NVRTC library (the package nvidia-cuda-nvrtc has one)"
)


def test_the_source_is_part_of_the_package() -> None:
    assert "qrprof_geqr2_larft_rows" in files("qrprof.kernels.qr").joinpath("rows.cu").read_text()
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    packed = settings["tool"]["setuptools"]["package-data"]["qrprof.kernels.qr"]
    assert any(fnmatch("rows.cu", pattern) for pattern in packed)


@compiles
@pytest.mark.parametrize("profiled", [False, True], ids=["", "profiled"])
@pytest.mark.parametrize("rows", nvrtc_aot.settings(), ids=lambda rows: f"{rows.each}-{rows.threads}-{rows.cluster}")
def test_a_setting_compiles_and_fits(rows: Rows, profiled: bool) -> None:
    found = nvrtc_aot.resources(rows, profiled=profiled)
    assert found.spilled <= MOST_SPILLED
    assert found.threads <= MOST_THREADS
    assert -(-found.registers // GRANULE) * GRANULE * found.threads <= REGISTERS
    assert found.shared <= MOST_SHARED


@compiles
def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(RuntimeError, match="whole warps"):
        nvrtc_aot.resources(Rows(rows=64, batch=1, each=1, threads=48, cluster=1))
