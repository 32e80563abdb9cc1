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

from qrprof.kernels.qr import blocked, larft, panel, rows, scale, small, tall, tall_kernels, update
from qrprof.kernels.qr.configs import CONFIGS, Config, Tall, Tiles

TARGET = GPUTarget("cuda", 90, 32)
DUMP = __import__("os").environ.get("DUMP")
HALVES = ("high_ptr", "low_ptr", "y_high_ptr", "y_low_ptr")
POINTERS = {"exponent_ptr": "*i32", "below_ptr": "*i32", **dict.fromkeys(HALVES, "*fp16")}


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
    """Every Triton kernel that these settings can launch, as for row-major input of rows that vectors divide."""
    copies = {"BC": blocked.COPY_COLUMNS, "BR": blocked.COPY_ROWS}
    prepare = {"BC": blocked.PREPARE_COLUMNS, "BR": blocked.PREPARE_ROWS, "a_column": 1}
    yield Kernel("prepare", scale.qrprof_copy_prepare, prepare, blocked.PREPARE_WARPS)
    yield Kernel("finish", scale.qrprof_copy_finish, {**copies, "UPPER": False}, blocked.COPY_WARPS)
    constants: dict[str, Any]
    for whole in config.small:
        constants = {"BM": whole.rows, "BN": whole.columns, "PAIRED": whole.paired, "a_column": 1}
        yield Kernel(f"small {whole.rows}x{whole.columns}", small.qrprof_geqr2_small, constants, whole.warps)
    for leaf in config.leaves:
        constants = {"BM": leaf.rows, "W": 64, "PRECISION": "tf32x3", "PAIRED": leaf.paired}
        yield Kernel(f"leaf {leaf.rows}", panel.qrprof_geqr2_larft_leaf, constants, leaf.warps)
    for table in config.blocked:
        width, of = table.width, table.gram
        constants = {"W": width, "BR": blocked.COPY_ROWS}
        yield Kernel(f"halves {width}", larft.qrprof_larft_halves, constants, blocked.COPY_WARPS)
        constants = {"W": width, "BR": blocked.Y_ROWS, "TRANSPOSE": True}
        yield Kernel(f"y {width}", larft.qrprof_larft_y, constants, blocked.Y_WARPS)
        for halved in (True, False):
            constants = {
                "W": width, "BR": of.block_rows, "STAGES": of.stages, "HALVED": halved, "PRECISION": "tf32x3"
            }  # fmt: skip
            yield Kernel(f"gram {width} {halved}", larft.qrprof_larft_gram, constants, of.warps, of.stages)
        yield Kernel(f"sum {width}", larft.qrprof_larft_sum, {"W": width}, blocked.SUM_WARPS)
        for done in (1, blocked.SIDE, rows.LEAF):
            constants = {"W": width, "FROM": done, "PRECISION": "tf32x3"}
            yield Kernel(f"join {width} of {done}", larft.qrprof_larft_join, constants, table.join)
        yield updating(f"larfb {width}", table.outer, width, update.qrprof_larfb_update, halved=True)
        yield updating(f"larfb {width} in two", table.outer, width, update.qrprof_larfb_update, halved=True, part=2)
        yield updating(f"orgqr {width}", table.outer, width, update.qrprof_orgqr_update, halved=True)
        yield updating(f"orgqr {width} of any", table.applied, width, update.qrprof_orgqr_update, halved=False)
        yield updating(f"ormqr {width}", table.applied, width, update.qrprof_ormqr_update, halved=False)
        yield updating(f"inner {width}", table.inner, rows.LEAF, update.qrprof_larfb_update, halved=False)

    for tree in config.tall:
        yield from of_tree(tree)


def of_tree(of: Tall) -> Iterator[Kernel]:
    """Those of a tall matrix of as many columns, by rows or columns, as wide as their tile."""
    n, ld = of.columns, triton.cdiv(of.columns, rows.LEAF) * rows.LEAF
    copy: dict[str, Any] = {"BR": tall.COPY_ROWS, "BC": tall.COPY_COLUMNS, "ld": ld}
    for stacked, more in ((True, {}), (False, {"a_column": 1}), (False, {"a_row": 1})):
        name = f"tall copy {n} {'stacked' if stacked else next(iter(more))}"
        yield Kernel(name, tall_kernels.qrprof_copy_tall, {**copy, **more, "STACKED": stacked}, tall.COPY_WARPS)
    product: dict[str, Any] = {"N": tall.side(n), "W": ld, "n": n, "ld": ld, "PRECISION": of.precision}
    for last in (False, True):
        constants = {**product, "BR": of.tile, "SIGNED": last, "q_row" if last else "q_column": 1}
        yield Kernel(f"tall orgqr {n}{' last' * last}", tall_kernels.qrprof_orgqr_tall, constants, of.warps)
    yield Kernel(f"tall signs {n}", tall_kernels.qrprof_orgqr_signs, product, tall.SIGN_WARPS)


def updating(name: str, of: Tiles, width: int, kernel: Any, *, halved: bool, part: int = 0) -> Kernel:
    constants = {
        "W": width, "TS": width, "BC": of.columns, "BR": of.block_rows, "STAGES": of.stages, "TRANSPOSE": True,
        "HALVED": halved, "PRECISION": of.precision, "PART": part, "c_column": 1,
    }  # fmt: skip
    return Kernel(name, kernel, constants, of.warps, of.stages)


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
    if DUMP:
        Path(f"{DUMP}/{kernel.name.replace(' ', '_')}.ttgir").write_text(compiled.asm["ttgir"])
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
