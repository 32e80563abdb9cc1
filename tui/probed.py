"""What `qrprof panels --probe` prints: the QR shapes of a run, rerun by the included kernels on the GPU at hand.

torch is imported when the GPU is looked for, the kernels once there is one.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType

from qrprof.profiler import units
from qrprof.profiler.blocks import QR_OPS
from qrprof.profiler.coverage import Coverage, describe
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.linalg import row_signature
from qrprof.profiler.panelsums import PanelShape
from qrprof.profiler.phases import GEQRF, PHASES
from qrprof.profiler.runinfo import RunInfo
from qrprof.tui.commands.panels import label
from qrprof.tui.output import Column, field, full, table, title, write, write_json
from qrprof.tui.ranking import MS, run_line

if TYPE_CHECKING:
    from qrprof.kernels.probe import Probe

COLUMNS: Final = (Column("phase"), Column("ms", right=True), Column("share", right=True))


@dataclass(frozen=True)
class Gpu:
    """The GPU at hand; `probe` takes op ("geqrf", "linalg_qr"), batch, m, n, and raises ValueError with the reason."""

    name: str
    probe: "Callable[[str, int, int, int], Probe]"


@dataclass(frozen=True)
class Probed:
    """A shape of the run, and its geqrf by the included kernels; or the reason why there is none."""

    shape: PanelShape
    probe: "Probe | None"
    reason: str = ""


def gpu_at_hand() -> Gpu:
    """Raises QrprofError (exit code 3) where torch sees no CUDA device, or none that the kernels can run on."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler would print among the shapes
    import torch

    if not torch.cuda.is_available():
        raise QrprofError("--probe runs the kernels on a CUDA device, and torch sees none", Exit.NO_DEVICE)
    from qrprof.kernels.qr import lanes

    device = torch.device("cuda", torch.cuda.current_device())
    name = torch.cuda.get_device_name(device)
    if not lanes.usable("cuda-blocked", device):
        needed = "Triton, a torch that compiles CUDA C++, and a GPU of compute capability 9.0 or later"
        raise QrprofError(f"--probe cannot run the kernels on {name}: they need {needed}", Exit.NO_DEVICE)
    from qrprof.kernels.probe import probe, why_not

    def checked(op: str, batch: int, m: int, n: int) -> "Probe":
        if reason := why_not(op, batch, m, n, device):
            raise ValueError(reason)
        try:
            return probe(batch, m, n, device)
        except torch.OutOfMemoryError:
            raise ValueError("it does not fit into the memory of the GPU") from None

    return Gpu(name, checked)


def factored(shapes: Sequence[PanelShape]) -> list[PanelShape]:
    """Those of calls that factor, in their order."""
    return [shape for shape in shapes if QR_OPS[shape.op] == GEQRF]


def rerun(shape: PanelShape, gpu: Gpu) -> Probed:
    if shape.size is None:
        return Probed(shape, None, "its shape is not in the trace")
    op, _, dtype = row_signature(shape.op, shape.shapes, shape.dtype) or ("", (), "")
    if dtype != "float32":
        given = f"not {dtype}" if dtype else "and the trace does not say what these are"
        return Probed(shape, None, f"the kernels take float32, {given}")
    try:
        probe = gpu.probe(op, shape.size.batch, shape.size.m, shape.size.n)
    except ValueError as error:
        return Probed(shape, None, str(error))
    if not probe.phases:
        return Probed(shape, None, "torch.profiler records no kernels here; see `qrprof doctor`")
    return Probed(shape, probe)


def show(run: RunInfo, coverage: Coverage, shapes: Sequence[PanelShape], top: int, gpu: Gpu, *, as_json: bool) -> None:
    """Print the first `top` shapes: as JSON once all are there, else each as soon as it is done."""
    shapes = factored(shapes)
    if as_json:
        write_json(record(run, coverage, [rerun(shape, gpu) for shape in shapes[:top]], gpu))
        return
    write(head(run, coverage, gpu))
    if not shapes:
        write([field("panels", "no calls of geqrf or linalg_qr in the recorded steps")])
    for shape in shapes[:top]:
        write(["", *blocks_of(rerun(shape, gpu))])
    if len(shapes) > top:
        write(["", units.counted(len(shapes) - top, "other shape")])


def head(run: RunInfo, coverage: Coverage, gpu: Gpu) -> list[RenderableType]:
    return [
        field("run", run_line(run)),
        field("coverage", describe(coverage)),
        field("recorded", f"on {', '.join(recorded_on(run)) or 'an unknown device'}"),
        field("probed", f"geqrf by the included kernels on {gpu.name}"),
    ]


def recorded_on(run: RunInfo) -> list[str]:
    """The run's GPUs, or its CPU where it saw none."""
    gpus = [device.name for device in run.devices if device.kind != "cpu"]
    return list(dict.fromkeys(gpus or [device.name for device in run.devices]))


def blocks_of(found: Probed) -> list[RenderableType]:
    shape, probe = found.shape, found.probe
    blocks: list[RenderableType] = [title(label(shape)), full(recorded_line(shape))]
    if probe is None:
        return [*blocks, full(f"not probed: {found.reason}")]
    rows = [[name, ms(ns), units.share(ns / probe.profiled_ns)] for name, ns in in_order(probe).items()]
    total = ["sum", ms(probe.profiled_ns), units.share(1.0)]
    times = f"one after the other {units.ratio(ratio(probe))} the {units.time(probe.plain_ns)} of the plain kernels"
    return [*blocks, table(COLUMNS, rows, total), full(f"{probe.launches} launches, {times}")]


def recorded_line(shape: PanelShape) -> str:
    calls = f"{units.counted(shape.calls, 'call')} a step"
    library = f" by {shape.library}" if shape.library else ""
    timed = "not timed" if shape.ns is None else f"{units.time(shape.ns)} each{library}"
    part = f", geqrf {units.time(shape.parts[GEQRF])} of it" if GEQRF in shape.parts else ""
    note = f"; {shape.note}" if shape.note else ""
    return f"recorded: {calls}, {timed}{part}{note}"


def in_order(probe: "Probe") -> dict[str, float]:
    """Its ns by phase, in the order of PHASES."""
    return {phase: probe.phases[phase] for phase in PHASES if phase in probe.phases}


def ratio(probe: "Probe") -> float:
    return probe.profiled_ns / probe.plain_ns


def ms(ns: float) -> str:
    return units.digits(ns / MS)


# --- records


def record(run: RunInfo, coverage: Coverage, found: Sequence[Probed], gpu: Gpu) -> dict[str, Any]:
    """`recorded` is of the run, the mean call's; `probe` is geqrf alone, null with a `reason`. Times are ns."""
    return {
        "run": run.id,
        "coverage": asdict(coverage),
        "recorded_on": recorded_on(run),
        "probed_on": gpu.name,
        "shapes": [shape_record(one) for one in found],
    }


def shape_record(found: Probed) -> dict[str, Any]:
    shape, probe = found.shape, found.probe
    return {
        "op": shape.op,
        "shapes": shape.shapes,
        "dtype": shape.dtype,
        "size": None if shape.size is None else {name: getattr(shape.size, name) for name in ("batch", "m", "n")},
        "calls": shape.calls,
        "recorded": {"library": shape.library, "ns": shape.ns, "geqrf_ns": shape.parts.get(GEQRF), "note": shape.note},
        "probe": None if probe is None else probe_record(probe),
        "reason": found.reason,
    }


def probe_record(probe: "Probe") -> dict[str, Any]:
    phases = in_order(probe)
    return {
        "phases_ns": phases,
        "shares": {phase: ns / probe.profiled_ns for phase, ns in phases.items()},
        "launches": probe.launches,
        "sum_ns": probe.profiled_ns,
        "plain_ns": probe.plain_ns,
        "ratio": ratio(probe),
    }
