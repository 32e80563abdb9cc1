"""The machine a verdict was found on: what must be alike for two verdicts to be compared, and what moves meanwhile.

Everything is text by name, as it is kept and shown. What this machine does not tell is not there.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from qrprof.profiler.devices import cpu_name, usable
from qrprof.profiler.recording.runrecord import versions

BEFORE, AFTER = " before", " after"
BUSY, OVERRUN = 0.5, 2.0  # load a core: before and after which other programs must have been running
STOLEN_S: Final = 1.0  # by other guests of the host, during one verdict
CPU_STAT: Final = Path("/sys/fs/cgroup/cpu.stat")
GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
HARMLESS: Final = frozenset({"idle", "application clocks"})  # reasons for a lower clock that hide no trouble
REASONS: Final = {  # names of NVML's bits, nvmlClocksEventReason...
    "GpuIdle": "idle",
    "ApplicationsClocksSetting": "application clocks",
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "sync boost",
    "SwThermalSlowdown": "heat (driver)",
    "HwThermalSlowdown": "heat (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
    "DisplayClockSetting": "display clocks",
}


def machine(device: str) -> dict[str, str]:
    """What stays as it is: names, versions, limits. `device`: "cpu" or "cuda".

    Raises QrprofError (exit code 3) where torch has no such device.
    """
    import torch

    where = usable(device)
    found = {"device": cpu_name()}
    if where.type == "cuda":
        gpu = torch.cuda.get_device_properties(where)
        found = {"device": gpu.name, "uuid": str(gpu.uuid), **nvml(str(gpu.uuid), STAYS), "cpu": cpu_name()}
    threads = {"threads": str(torch.get_num_threads()), "cores": str(os.cpu_count() or 1)}
    return {**found, **threads, "system": f"{platform.system()} {platform.release()}", **versions()}


def state(device: str) -> dict[str, str]:
    """What moves: load and clocks, and of a GPU its power, heat, reasons for a lower clock and other processes."""
    import torch

    where = usable(device)
    gpu = torch.cuda.get_device_properties(where) if where.type == "cuda" else None
    return {**cpu_state(), **(nvml(str(gpu.uuid), MOVES) if gpu else {})}


def cpu_state() -> dict[str, str]:
    found = {"load": f"{os.getloadavg()[0]:.2f}"}
    times, clock = psutil.cpu_times(), psutil.cpu_freq()
    if clock and clock.current:
        found["cpu clock"] = f"{clock.current:.0f} MHz"
    if hasattr(times, "steal"):
        found["stolen"] = f"{times.steal:.1f} s"
    if GOVERNOR.is_file():
        found["governor"] = GOVERNOR.read_text().strip()
    if CPU_STAT.is_file():
        counts = dict(line.split() for line in CPU_STAT.read_text().splitlines())
        if "nr_throttled" in counts:
            found["cpu quota hit"] = f"{counts['nr_throttled']} times"
    return found


def around(machine: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """One record of what stayed and what moved: "load before", "load after"."""
    return {
        **machine,
        **{name + BEFORE: text for name, text in before.items()},
        **{name + AFTER: text for name, text in after.items()},
    }


def stays(environment: Mapping[str, str]) -> dict[str, str]:
    """What must be equal for two verdicts to be compared."""
    return {name: text for name, text in environment.items() if not name.endswith((BEFORE, AFTER))}


def moved(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """(before, after) by name; "" where there is none."""
    ends = [name.removesuffix(end) for end in (BEFORE, AFTER) for name in environment if name.endswith(end)]
    return {name: (environment.get(name + BEFORE, ""), environment.get(name + AFTER, "")) for name in ends}


def remarks(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences on what may have disturbed the times."""
    found = []
    pairs = moved(environment)
    cores = number(environment.get("cores", ""))
    for text, most, when in zip(pairs.get("load", ()), (BUSY, OVERRUN), ("start", "end"), strict=False):
        load = number(text)
        if load is not None and cores and load > most * cores:
            found.append(f"load {load:.1f} on {cores:.0f} cores at the {when}: other programs ran")
    stolen = [number(text) for text in pairs.get("stolen", ("", ""))]
    if None not in stolen and (taken := (stolen[1] or 0.0) - (stolen[0] or 0.0)) > STOLEN_S:
        found.append(f"the host gave {taken:.1f} s of this machine's time to others")
    for name, what in (("cpu quota hit", "the CPU quota stopped this machine"), ("processes", "the GPU's processes")):
        before, after = pairs.get(name, ("", ""))
        if before != after:
            found.append(f"{what}: {before or 'none'} before, {after or 'none'} after")
    lower = {reason for text in pairs.get("lower clock", ()) for reason in text.split(", ")} - HARMLESS - {"", "none"}
    if lower:
        found.append(f"the GPU ran at a lower clock: {', '.join(sorted(lower))}")
    return tuple(found)


def number(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


# --- NVIDIA's management library


Query = Callable[[Any, Any], str]  # (pynvml, handle) -> text


def reasons(library: Any, handle: Any) -> str:
    bits = library.nvmlDeviceGetCurrentClocksEventReasons(handle)
    named = [text for name, text in REASONS.items() if bits & getattr(library, f"nvmlClocksEventReason{name}", 0)]
    return ", ".join(named) or "none"


STAYS: Final[Mapping[str, Query]] = {
    "driver": lambda library, _: str(library.nvmlSystemGetDriverVersion()),
    "power limit": lambda library, gpu: f"{library.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.0f} W",
    "most sm clock": lambda library, gpu: f"{library.nvmlDeviceGetMaxClockInfo(gpu, library.NVML_CLOCK_SM)} MHz",
}
MOVES: Final[Mapping[str, Query]] = {
    "sm clock": lambda library, gpu: f"{library.nvmlDeviceGetClockInfo(gpu, library.NVML_CLOCK_SM)} MHz",
    "memory clock": lambda library, gpu: f"{library.nvmlDeviceGetClockInfo(gpu, library.NVML_CLOCK_MEM)} MHz",
    "power": lambda library, gpu: f"{library.nvmlDeviceGetPowerUsage(gpu) / 1000:.0f} W",
    "temperature": lambda library, gpu: f"{library.nvmlDeviceGetTemperature(gpu, library.NVML_TEMPERATURE_GPU)} C",
    "lower clock": reasons,
    "processes": lambda library, gpu: str(len(library.nvmlDeviceGetComputeRunningProcesses(gpu))),
}


def nvml(uuid: str, queries: Mapping[str, Query]) -> dict[str, str]:
    """The answers of the driver on the GPU that torch knows by this uuid; without those that it does not give."""
    import pynvml

    found = {}
    with driver(pynvml) as there:
        handle = handle_of(pynvml, uuid) if there else None
        for name, query in queries.items() if handle else ():
            try:
                found[name] = query(pynvml, handle)
            except pynvml.NVMLError:
                continue  # not supported on this board, or not allowed here
    return found


@contextmanager
def driver(library: Any) -> Iterator[bool]:
    """Whether the library finds a driver."""
    try:
        library.nvmlInit()
    except library.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        library.nvmlShutdown()


def handle_of(library: Any, uuid: str) -> Any:
    for prefix in ("GPU-", "MIG-", ""):
        try:
            return library.nvmlDeviceGetHandleByUUID(prefix + uuid)
        except library.NVMLError:
            continue
    return None
