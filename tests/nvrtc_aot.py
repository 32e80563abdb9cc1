"""The CUDA C++ kernels compiled for an H100 or H200 on any machine, with the registers and spills that ptxas tells.

Needs an NVRTC library: the pip package nvidia-cuda-nvrtc, or the one that torch for CUDA brings.
python tests/nvrtc_aot.py prints the table of every setting.
"""

import ctypes
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qrprof.kernels.qr import tiny, whole
from qrprof.kernels.qr.configs import CONFIGS, Rows, Whole
from qrprof.kernels.qr.cuda import options
from qrprof.kernels.qr.rows import macros_of
from qrprof.kernels.qr.source import source

SYSTEM = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True)
class Kernel:
    name: str
    file: str
    options: tuple[str, ...]
    threads: int  # of a block
    shared: int = 0  # bytes of a block that a launch asks for


@dataclass(frozen=True)
class Resources:
    registers: int  # of a thread
    spilled: int  # bytes, stores and loads
    shared: int  # bytes of a block


def kernels() -> dict[str, Kernel]:
    """All that the configurations can launch, once, and the leaf's PROFILE variants."""
    leaves = dict.fromkeys(rows for config in CONFIGS.values() for rows in config.rows)
    found = [Kernel("tiny", "tiny.cu", (), tiny.SIDE)]
    found += [of_rows(rows, profiled=profiled) for rows in leaves for profiled in (False, True)]
    wholes = dict.fromkeys(one for config in CONFIGS.values() for one in config.whole)
    found += [of_whole(one, form=form) for one in wholes for form in (False, True)]
    return {kernel.name: kernel for kernel in found}


def of_rows(rows: Rows, *, profiled: bool = False) -> Kernel:
    name = f"rows {rows.each}-{rows.threads}-{rows.cluster}" + " profiled" * profiled
    return Kernel(name, "rows.cu", tuple(options(macros_of(rows), *["PROFILE"] * profiled)), rows.threads)


def of_whole(one: Whole, *, form: bool) -> Kernel:
    name = f"whole {one.warps}-{one.slots}-{one.cluster}" + " forms Q" * form
    given = tuple(options(whole.macros_of(one, form=form)))
    return Kernel(name, "whole.cu", given, 32 * one.warps, whole.shared_bytes(one))


@functools.cache
def library() -> Any:
    """NVRTC, or None where there is none."""
    for name in (*packaged(), *SYSTEM):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def packaged() -> Iterator[str]:
    nvidia = find_spec("nvidia")  # its packages share one folder
    for folder in (nvidia and nvidia.submodule_search_locations) or ():
        yield from map(str, sorted(Path(folder).glob("**/libnvrtc.so.*"), reverse=True))


def resources(kernel: Kernel) -> Resources:
    told = compiler_log(source(kernel.file), kernel.options)
    return Resources(
        registers=int(re.findall(r"Used (\d+) registers", told)[0]),
        spilled=sum(map(int, re.findall(r"(\d+) bytes spill", told))),
        shared=kernel.shared + sum(map(int, re.findall(r"(\d+) bytes smem", told))),
    )


def compiler_log(text: str, options: Sequence[str]) -> str:
    """What NVRTC and ptxas say of `text`. Raises RuntimeError with it where they refuse it."""
    nvrtc, program = library(), ctypes.c_void_p()
    given = [option.encode() for option in ("--gpu-architecture=sm_90", "--ptxas-options=-v", *options)]
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    if created:
        raise RuntimeError(f"NVRTC error {created}")
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(log.value.decode())
    return log.value.decode()


if __name__ == "__main__":
    print(f"{'kernel':24} {'threads':>7} {'registers':>9} {'spilled B':>9} {'shared B':>9}")
    for name, kernel in kernels().items():
        found = resources(kernel)
        print(f"{name:24} {kernel.threads:7} {found.registers:9} {found.spilled:9} {found.shared:9}", flush=True)
