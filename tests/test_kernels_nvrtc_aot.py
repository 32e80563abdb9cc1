"""Every setting of the CUDA C++ kernels compiles for an H200, and fits its registers and shared memory."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import nvrtc_aot
import pytest

from qrprof.kernels.qr.configs import Rows
from qrprof.kernels.qr.source import source

ROOT = Path(__file__).parents[1]
KERNELS = nvrtc_aot.kernels()
SOON = [name for name in KERNELS if not name.startswith("whole")]  # the others are left to the slow tests
REGISTERS = 65536  # of a multiprocessor
GRANULE = 8  # registers are given to a thread by so many
MOST_THREADS = 1024
MOST_SHARED = 48 * 1024  # without asking for more
MOST_ASKED = 227 * 1024

compiles = pytest.mark.skipif(
    nvrtc_aot.library() is None, reason="no NVRTC library (the package nvidia-cuda-nvrtc has one)"
)


def test_the_sources_are_part_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = settings["tool"]["setuptools"]["package-data"]["qrprof.kernels.qr"]
    sources = [path.name for path in (ROOT / "kernels" / "qr").iterdir() if path.suffix in (".cu", ".cuh")]
    assert {"rows.cu", "tiny.cu", "reflect.cuh"} <= set(sources)
    assert all(any(fnmatch(name, pattern) for pattern in packed) for name in sources)


def test_a_source_is_one_text_with_the_files_that_it_includes() -> None:
    text = source("tiny.cu")
    assert "#include" not in text
    assert text.index("Reflector reflector_of") < text.index("qrprof_geqr2_tiny")


@compiles
@pytest.mark.parametrize("name", [n if n in SOON else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS])
def test_a_setting_compiles_and_fits(name: str) -> None:
    kernel = KERNELS[name]
    found = nvrtc_aot.resources(kernel)
    assert found.spilled == 0
    assert kernel.threads <= MOST_THREADS
    assert -(-found.registers // GRANULE) * GRANULE * kernel.threads <= REGISTERS
    assert found.shared <= (MOST_ASKED if kernel.shared else MOST_SHARED)


@compiles
def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(RuntimeError, match="two warps at least"):
        nvrtc_aot.resources(nvrtc_aot.of_rows(Rows(rows=64, batch=1, each=1, threads=32, cluster=1)))
