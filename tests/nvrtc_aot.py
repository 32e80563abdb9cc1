"""The CUDA C++ leaf kernel compiled for an H100 or H200 on any machine, with the registers and spills that ptxas tells.

Needs an NVRTC library: the pip package nvidia-cuda-nvrtc, or the one that torch for CUDA brings.
python tests/nvrtc_aot.py prints the table of every setting.
"""

import ctypes
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qrprof.kernels.qr.configs import CONFIGS, Rows

SYSTEM = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True)
class Resources:
    threads: int  # of a block
    registers: int  # of a thread
    spilled: int  # bytes, stores and loads
    shared: int  # bytes of a block


def settings() -> tuple[Rows, ...]:
    """Every setting that the configurations can launch, once."""
    return tuple(dict.fromkeys(rows for config in CONFIGS.values() for rows in config.rows))


def source() -> str:
    return files("qrprof.kernels.qr").joinpath("rows.cu").read_text()


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


def resources(rows: Rows, *, profiled: bool = False) -> Resources:
    """Of one setting, or of its PROFILE variant."""
    macros = {"ROWS": rows.each, "THREADS": rows.threads, "CLUSTER": rows.cluster}
    options = [f"-D{name}={value}" for name, value in macros.items()] + ["-DPROFILE"] * profiled
    told = compiler_log(source(), options)
    return Resources(
        threads=rows.threads + (32 if rows.cluster > 1 else 0),  # MEANWHILE in rows.cu
        registers=int(re.findall(r"Used (\d+) registers", told)[0]),
        spilled=sum(map(int, re.findall(r"(\d+) bytes spill", told))),
        shared=int(re.findall(r"(\d+) bytes smem", told)[0]),
    )


def compiler_log(source: str, options: list[str]) -> str:
    """What NVRTC and ptxas say of `source`. Raises RuntimeError with it where they refuse it."""
    nvrtc, program = library(), ctypes.c_void_p()
    given = [option.encode() for option in ("--gpu-architecture=sm_90", "--ptxas-options=-v", *options)]
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"rows.cu", 0, None, None)
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
    print(f"{'rows':>5} {'batch':>10} {'threads':>7} {'registers':>9} {'spilled B':>9} {'shared B':>9}")
    for rows in settings():
        found = resources(rows)
        print(
            f"{rows.rows:5} {rows.batch:10} {found.threads:7} {found.registers:9} {found.spilled:9} {found.shared:9}",
            flush=True,
        )
