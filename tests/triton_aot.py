"""The Triton kernels compiled for an H100 or H200 on any machine, with the registers and spills that ptxas tells.

python tests/triton_aot.py prints the table of every setting.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from qrprof.kernels.qr import blocked, panel, scale, small, update
from qrprof.kernels.qr.configs import CONFIGS, Config

TARGET = GPUTarget("cuda", 90, 32)
POINTERS = {"exponent_ptr": "*i32"}


@dataclass(frozen=True)
class Kernel:
    name: str
    function: Any
    constants: dict[str, Any]
    warps: int
    stages: int = 1


@dataclass(frozen=True)
class Resources:
    registers: int
    spilled: int  # bytes, stores and loads
    shared: int  # bytes


def of_config(config: Config) -> Iterator[Kernel]:
    """Every kernel that these settings can launch, as for row-major input of rows that vectors divide."""
    copies = {"BC": blocked.COPY_COLUMNS, "BR": blocked.COPY_ROWS}
    yield Kernel("prepare", scale.qrprof_copy_prepare, {**copies, "a_column": 1}, blocked.COPY_WARPS)
    yield Kernel("finish", scale.qrprof_copy_finish, copies, blocked.COPY_WARPS)
    constants: dict[str, Any]
    for whole in config.small:
        constants = {"BM": whole.rows, "BN": whole.columns, "PAIRED": whole.paired, "a_column": 1}
        yield Kernel(f"small {whole.rows}x{whole.columns}", small.qrprof_geqr2_small, constants, whole.warps)
    for table in config.blocked:
        width, of = table.width, table.update
        for one in table.panels:
            constants = {
                "BM": one.rows, "W": width, "NB": one.leaf, "NP": max(one.leaf, blocked.DOT), "BR": one.block_rows,
                "STAGES": one.stages, "PRECISION": one.precision, "PAIRED": one.paired,
            }  # fmt: skip
            yield Kernel(f"panel {one.rows}x{width}", panel.qrprof_geqr2_larft_larfb_panel, constants, one.warps)
            constants = {k: constants[k] for k in ("W", "BR", "STAGES", "PRECISION")} | {"NB": blocked.DOT}
            yield Kernel(
                f"larft {width} by {one.warps}", panel.qrprof_larft, constants | {"NP": blocked.DOT}, one.warps
            )
        constants = {"W": width, "BR": of.block_rows, "PRECISION": of.precision}
        yield Kernel(f"y {width}", update.qrprof_larft_y, constants | {"TRANSPOSE": True}, of.warps)
        constants = constants | {"BC": of.columns, "STAGES": of.stages}
        yield Kernel(f"larfb {width}", update.qrprof_larfb_update, constants | {"c_row": 1}, of.warps, of.stages)
        yield Kernel(f"ormqr {width}", update.qrprof_ormqr_update, constants | {"c_column": 1}, of.warps, of.stages)


def kernels() -> dict[str, Kernel]:
    return {kernel.name: kernel for config in set(CONFIGS.values()) for kernel in of_config(config)}


def resources(kernel: Kernel) -> Resources:
    names = kernel.function.arg_names
    assert kernel.constants.keys() <= set(names)
    signature, aligned = {}, {}
    free = {parameter.name for parameter in kernel.function.params if parameter.do_not_specialize}
    for place, name in enumerate(names):
        if name in kernel.constants:
            signature[name] = "constexpr"
            continue
        signature[name] = POINTERS.get(name, "*fp32") if name.endswith("_ptr") else "i32"
        if name not in free:
            aligned[(place,)] = [["tt.divisibility", 16]]
    constants = {(names.index(name),): value for name, value in kernel.constants.items()}
    source = ASTSource(kernel.function, signature, constants, aligned)
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages}
    compiled = triton.compile(source, target=TARGET, options=options)
    told = ptxas(compiled.asm["ptx"])
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", told)))
    return Resources(int(re.findall(r"Used (\d+) registers", told)[0]), spilled, compiled.metadata.shared)


def ptxas(ptx: str) -> str:
    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [str(program), "-v", "-arch=sm_90a", str(source), "-o", f"{folder}/kernel.cubin"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stderr


if __name__ == "__main__":
    print(f"{'kernel':24} {'warps':>5} {'registers':>9} {'spilled B':>9} {'shared B':>9}")
    for name, kernel in kernels().items():
        found = resources(kernel)
        print(f"{name:24} {kernel.warps:5} {found.registers:9} {found.spilled:9} {found.shared:9}", flush=True)
