"""`qrprof kernels`: care of the included kernels; `warm` compiles them ahead."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import RUN_FILE, find_run
from qrprof.tui.output import field, write

if TYPE_CHECKING:  # torch is imported once the command runs
    from qrprof.kernels.warm import Shape

SHAPE: Final = re.compile(r"([1-9]\d*)x([1-9]\d*)(?:x([1-9]\d*))?")
OPS: Final = {"geqrf": "geqrf", "linalg_qr": "qr"}
WIDTH: Final = 14  # of a shape


@click.group(epilog="Example: qrprof kernels warm 640x512")
def command() -> None:
    """Compile the included kernels ahead."""


@command.command(epilog="Example: qrprof kernels warm 640x512 60x2048x64")
@click.argument("shapes", metavar="SHAPES...", nargs=-1)
@click.option("--from", "run", metavar="RUN", help="And the shapes that this run called geqrf and linalg_qr with.")
def warm(shapes: tuple[str, ...], run: str | None) -> int:
    """Compile what geqrf and qr of these shapes need on the GPU at hand, and tell how long each took.

    A shape is BATCHxMxN, or BATCHxN where the matrices are square; they are float32. RUN is a run's id, the start of
    one, or its folder. What is compiled is kept on disk, for all processes of the same user.
    """
    if not shapes and run is None:
        raise click.UsageError("give shapes, as 640x512, or --from RUN")
    wanted = dict.fromkeys([*map(parsed, shapes), *(of_run(run) if run is not None else ())])
    warm_all(list(wanted))
    return Exit.OK


def parsed(text: str) -> "Shape":
    """Raises QrprofError (exit code 2) for what is no shape."""
    found = SHAPE.fullmatch(text)
    if found is None:
        raise QrprofError(f"no shape {text!r}; write BATCHxMxN or BATCHxN, as 640x512x512", Exit.USAGE)
    batch, m, n = found.groups()
    return int(batch), int(m), int(n or m)


def of_run(run: str) -> "list[Shape]":
    """Of its float32 calls on a GPU. Raises QrprofError where there are none."""
    from qrprof.profiler.runinfo import read_run_info

    info = read_run_info(find_run(Path.cwd(), run) / RUN_FILE)
    found: list[Shape] = [
        (math.prod(call.shape[:-2]), call.shape[-2], call.shape[-1])
        for call in info.linalg
        if call.op.removeprefix("aten::") in OPS and (call.device, call.dtype) == ("cuda", "float32")
    ]
    if not found:
        raise QrprofError(f"run {info.id} called neither geqrf nor linalg_qr on a GPU in float32; give shapes")
    return found


def warm_all(shapes: "Sequence[Shape]") -> None:
    """Raises QrprofError without a GPU (exit code 3), or where a shape does not fit into its memory."""
    import torch

    from qrprof.kernels.warm import warm as warm_op

    if not torch.cuda.is_available():
        raise QrprofError("compiling the kernels needs a CUDA device, and torch sees none", Exit.NO_DEVICE)
    device = torch.device("cuda", torch.cuda.current_device())
    write([field("device", torch.cuda.get_device_name(device), WIDTH)])
    for shape in shapes:
        label = "x".join(map(str, shape))
        try:
            taken = {name: warm_op(op, shape, device) for op, name in OPS.items()}
        except torch.OutOfMemoryError:
            raise QrprofError(f"{label} does not fit into the memory of the GPU; give a smaller batch") from None
        write([field(label, told(taken), WIDTH)])


def told(taken: dict[str, int | None]) -> str:
    if all(ns is None for ns in taken.values()):
        return "nothing to compile: torch itself serves it"
    return ", ".join(f"{name} {'by torch' if ns is None else units.time(ns)}" for name, ns in taken.items())
