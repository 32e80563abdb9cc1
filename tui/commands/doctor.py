"""`qrprof doctor`: what works on this machine."""

import importlib
import os
import platform
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import click

from qrprof.profiler import units
from qrprof.profiler.devices import Peaks, cpu_name, devices_folder, kept_peaks, measure, save
from qrprof.profiler.errors import Exit
from qrprof.profiler.store import FOLDER
from qrprof.tui.output import Cell, Column, fancy, full, say, table, write, write_json


class State(StrEnum):
    OK = "ok"
    WARN = "warn"  # something that helps is missing, or not as good as it could be
    FAIL = "fail"  # something needed is broken


GLYPHS: Final = {State.OK: ("✓", "+"), State.WARN: ("!", "!"), State.FAIL: ("✗", "x")}  # drawn, and in plain text
STEADY: Final = 0.25  # quiet devices' times move by up to 5 %, those beside other programs by 30 to 150 %
COLUMNS: Final = (Column(""), Column("state"), Column("what"), Column("found", wraps=True))


@dataclass(frozen=True)
class Check:
    state: State
    what: str
    found: str


@dataclass(frozen=True)
class Device:
    """A device that torch sees; of several of one model the first stands for all."""

    where: str  # as torch spells it
    kind: str  # "cpu" or "cuda"
    name: str
    threads: int

    def peaks(self) -> Peaks | None:
        return kept_peaks(self.kind, self.name, self.threads)


@click.command(epilog="Example: qrprof doctor --measure")
@click.option("--measure", "measuring", is_flag=True, help="Measure the devices' peaks and keep them: takes seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(measuring: bool, as_json: bool) -> int:
    """Check what works on this machine.

    Measured peaks are what the estimates of `qrprof rank` rest on. The exit code is 1 where something needed is broken.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler would print among the checks
    torch, found = try_import("torch", State.FAIL)
    checks = [Check(State.OK, "python", platform.python_version()), found, try_import("triton", State.WARN)[1]]
    checks.append(check_store(Path.cwd()))
    devices = devices_of(torch) if torch else []
    for device in devices if measuring else []:
        say(f"measuring {device.name}")
        save(measure(device.where), devices_folder())
    if torch:
        checks += [*check_devices(torch), check_profiler(torch), *(check_peaks(device) for device in devices)]
    failed = any(check.state is State.FAIL for check in checks)
    if as_json:
        peaks = [known.model_dump() for device in devices if (known := device.peaks())]
        write_json({"ok": not failed, "checks": [asdict(check) for check in checks], "peaks": peaks})
    else:
        write([table(COLUMNS, [row(check) for check in checks])])
    return Exit.FAILED if failed else Exit.OK


def row(check: Check) -> list[Cell]:
    drawn, plain = GLYPHS[check.state]
    return [drawn if fancy() else plain, check.state, check.what, full(check.found)]


def try_import(package: str, otherwise: State) -> tuple[Any, Check]:
    """The package, or None, and what to say of it."""
    try:
        module = importlib.import_module(package)
    except (ImportError, OSError) as error:
        return None, Check(otherwise, package, f"cannot be imported ({error}); install it with `pip install {package}`")
    return module, Check(State.OK, package, str(module.__version__))


def check_store(root: Path) -> Check:
    folder = root / FOLDER if (root / FOLDER).exists() else root
    if os.access(folder, os.W_OK | os.X_OK):
        return Check(State.OK, "store", f"{root / FOLDER} can be written")
    return Check(State.FAIL, "store", f"{folder} cannot be written; go to another folder, or trace with --out")


def devices_of(torch: Any) -> list[Device]:
    threads = torch.get_num_threads()
    gpus: dict[str, str] = {}
    for index in range(torch.cuda.device_count()):
        gpus.setdefault(torch.cuda.get_device_name(index), f"cuda:{index}")
    cuda = [Device(where, "cuda", name, threads) for name, where in gpus.items()]
    return [Device("cpu", "cpu", cpu_name(), threads), *cuda]


def check_devices(torch: Any) -> list[Check]:
    """A missing GPU is a fact, not a fault; one that torch cannot use is worth a word."""
    threads = torch.get_num_threads()
    checks = [Check(State.OK, "cpu", f"{cpu_name()}, {units.counted(threads, 'thread')}")]
    driver, gpus = nvidia_driver()
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        checks.append(
            Check(State.OK, f"cuda:{index}", f"{found.name}, {units.size(found.total_memory)}, driver {driver}")
        )
    if len(checks) == 1 and gpus:
        cannot = f"driver {driver} knows {gpus}, but torch {torch.__version__} cannot use any"
        checks.append(Check(State.WARN, "cuda", f"{cannot}; install a build of torch for this driver"))
    elif len(checks) == 1:
        checks.append(Check(State.OK, "cuda", "no GPU; programs on the CPU are ranked all the same"))
    return checks


def nvidia_driver() -> tuple[str, int]:
    """(version, number of GPUs) of NVIDIA's driver; (unknown, 0) where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion()), int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return units.MISSING, 0


def check_profiler(torch: Any) -> Check:
    """Record one product, as a trace would, and look for its op, and its kernel where there is a GPU."""
    cuda = torch.cuda.is_available()
    activity = torch.profiler.ProfilerActivity
    matrix = torch.ones(64, 64, device="cuda" if cuda else "cpu")
    try:
        with torch.profiler.profile(activities=[activity.CPU] + [activity.CUDA] * cuda, acc_events=True) as recorded:
            matrix @ matrix
            if cuda:
                torch.cuda.synchronize()
        kinds = {event.device_type.name for event in recorded.events()}
    except RuntimeError as error:
        return Check(State.FAIL, "profiler", f"torch.profiler does not work here: {error}")
    if "CPU" not in kinds:
        return Check(State.FAIL, "profiler", "torch.profiler records no ops here; install another build of torch")
    if cuda and "CUDA" not in kinds:
        why = "does another profiler run, or is CUPTI only for administrators?"
        return Check(State.FAIL, "profiler", f"torch.profiler records ops but no kernels here; {why}")
    return Check(State.OK, "profiler", f"torch.profiler records {'ops and kernels' if cuda else 'ops'}")


def check_peaks(device: Device) -> Check:
    peaks = device.peaks()
    if peaks is None:
        return Check(State.WARN, "peaks", f"of {device.name}: not measured; run `qrprof doctor --measure`")
    rates = ", ".join(f"{name} {units.rate(rate)}" for name, rate in peaks.flops.items())
    copy, launch = f"copy {units.size(peaks.copy_bytes_per_s)}/s", f"launch {units.time(peaks.launch_ns)}"
    found = f"of {peaks.name}, measured {peaks.measured_at[:10]}: {rates}, {copy}, {launch}"
    if (moved := max(peaks.spread.values(), default=0.0)) <= STEADY:
        return Check(State.OK, "peaks", found)
    busy = f"the times moved by {units.share(moved)}: something else had the device, which can do more than that"
    return Check(State.WARN, "peaks", f"{found}; {busy}; run `qrprof doctor --measure` again when it is quiet")
