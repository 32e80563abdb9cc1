"""What a device of this machine can do at best, measured once and kept in the user's cache folder."""

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

from pydantic import PositiveFloat, PositiveInt, ValidationError

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import Record, RunInfo
from qrprof.profiler.store import cache_folder, make_private, replacing

if TYPE_CHECKING:
    import torch

SCHEMA: Final = 1
REPEATS: Final = 7


class Peaks(Record):
    """Measured peaks of one device; medians of `repeats` runs, `spread` is (max - min) / median of each figure."""

    schema_number: Literal[1]
    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str  # "" on a CPU
    torch: str  # version
    threads: PositiveInt  # intra-op threads
    measured_at: str  # ISO 8601 with zone
    flops: dict[str, PositiveFloat]  # of a large matrix product by type, flop/s: "float", "tf32", "bfloat16", "double"
    copy_bytes_per_s: PositiveFloat  # read + written
    launch_ns: PositiveFloat  # host cost of one tiny op; on CUDA of enqueueing it
    repeats: PositiveInt
    spread: dict[str, float]  # by type of product, "copy" and "launch"


@dataclass(frozen=True)
class Sizes:
    """How much work a measurement does: large enough to saturate the device, small enough to take seconds."""

    products: dict[str, int]  # n of the n x n product by type
    copy_bytes: int  # of the source; four times any last-level cache
    launches: int  # tiny ops in a row; fewer than a CUDA queue holds


# Consumer GPUs run double at 1/64 of float: a smaller product keeps them within seconds.
CUDA_SIZES: Final = Sizes({"float": 8192, "tf32": 8192, "bfloat16": 8192, "double": 4096}, 4 << 30, 500)
CPU_SIZES: Final = Sizes({"float": 1024, "bfloat16": 1024, "double": 1024}, 256 << 20, 2000)
CPU_SIZES_MANY_THREADS: Final = Sizes({"float": 2048, "bfloat16": 2048, "double": 2048}, 256 << 20, 2000)

Samples = list[float]  # ns a call


def measure(device: str, sizes: Sizes | None = None) -> Peaks:
    """Measure `device` ("cpu", "cuda", "cuda:1"): seconds of work, and on CUDA up to 8 GiB of its free memory.

    Raises QrprofError (exit code 3) where torch has no such device.
    """
    import torch

    where = usable(device)
    cuda = where.type == "cuda"
    if sizes is None:
        sizes = CUDA_SIZES if cuda else CPU_SIZES if torch.get_num_threads() <= 4 else CPU_SIZES_MANY_THREADS
    products = {name: product_ns(where, name, n) for name, n in sizes.products.items()}
    size = min(sizes.copy_bytes, torch.cuda.mem_get_info(where)[0] // 4) if cuda else sizes.copy_bytes
    copies, launches = copy_ns(where, size), launch_ns(where, sizes.launches)
    return Peaks(
        schema_number=SCHEMA,
        kind="cuda" if cuda else "cpu",
        name=torch.cuda.get_device_name(where) if cuda else cpu_name(),
        uuid=str(torch.cuda.get_device_properties(where).uuid) if cuda else "",
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        flops={name: 2e9 * sizes.products[name] ** 3 / median(ns) for name, ns in products.items()},
        copy_bytes_per_s=2e9 * size / median(copies),
        launch_ns=median(launches),
        repeats=REPEATS,
        spread={name: spread(ns) for name, ns in {**products, "copy": copies, "launch": launches}.items()},
    )


def usable(device: str) -> "torch.device":
    import torch

    try:
        where = torch.device(device)
    except RuntimeError:
        where = None
    if where is not None and where.type == "cpu":
        return where
    if where is not None and where.type == "cuda" and (where.index or 0) < torch.cuda.device_count():
        return where
    raise QrprofError(
        f"torch {torch.__version__} sees no device {device!r} here; measure `cpu`, or install torch for your GPU",
        Exit.NO_DEVICE,
    )


def product_ns(where: "torch.device", name: str, n: int) -> Samples:
    import torch

    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    generator = torch.Generator(where).manual_seed(0)
    a = torch.rand(n, n, device=where, generator=generator).to(dtype)
    out = torch.empty_like(a)
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if name == "tf32" else "ieee"
    try:
        return samples(where, lambda: torch.mm(a, a, out=out))
    finally:
        matmul.fp32_precision = before


def copy_ns(where: "torch.device", size: int) -> Samples:
    import torch

    source = torch.zeros(size, dtype=torch.uint8, device=where)
    target = torch.zeros_like(source)
    return samples(where, lambda: target.copy_(source))


def launch_ns(where: "torch.device", launches: int) -> Samples:
    """Host cost of one op on one element, each sample the mean of `launches` in a row."""
    import torch

    tiny = torch.zeros(1, device=where)

    def burst() -> float:
        start = perf_counter_ns()
        for _ in range(launches):
            tiny.add_(1)
        taken = (perf_counter_ns() - start) / launches
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        return taken

    burst()
    return [burst() for _ in range(REPEATS)]


def samples(where: "torch.device", call: Callable[[], object]) -> Samples:
    """ns of `call`, `REPEATS` times after two warm-ups; device events on CUDA, the host clock on a CPU."""
    import torch

    def on_host() -> float:
        start = perf_counter_ns()
        call()
        return perf_counter_ns() - start

    def on_device() -> float:
        with torch.cuda.device(where):
            start, end = (torch.Event(where, enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
        return 1e6 * start.elapsed_time(end)

    timed = on_device if where.type == "cuda" else on_host
    return [timed() for _ in range(REPEATS + 2)][2:]


def spread(ns: Samples) -> float:
    return (max(ns) - min(ns)) / median(ns)


def cpu_name() -> str:
    """The processor's model name: of /proc/cpuinfo where there is one, else what Python's `platform` knows."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def devices_folder() -> Path:
    """Where measurements are kept: `devices` in the user's cache."""
    return cache_folder() / "devices"


def peaks_file(folder: Path, kind: str, name: str, threads: int) -> Path:
    return device_file(folder, f"{kind} {name}", kind, threads)


def device_file(folder: Path, text: str, kind: str, threads: int) -> Path:
    """One file a device model, named after `text`; what is measured of a CPU also depends on the number of threads."""
    if kind != "cuda":
        text = f"{text} {threads} threads"
    return folder / (re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") + ".json")


def save(peaks: Peaks, folder: Path) -> Path:
    """Write `peaks` to its file in `folder`, by a temporary name and a rename.

    Raises QrprofError where the folder cannot be written.
    """
    path = peaks_file(folder, peaks.kind, peaks.name, peaks.threads)
    try:
        make_private(folder)
        with replacing(path) as temporary:
            temporary.write_text(peaks.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; set QRPROF_CACHE to a writable folder") from None
    return path


def load(path: Path) -> Peaks | None:
    """Read peaks; None (not measured) where the file is missing, broken or of another schema."""
    try:
        return Peaks.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def kept_peaks(kind: str, name: str, threads: int) -> Peaks | None:
    """Peaks of a device of this machine, as `save` keeps them; `threads` are torch's, on which a CPU's depend."""
    return load(peaks_file(devices_folder(), kind, name, threads))


def peaks_for(run: RunInfo, folder: Path) -> Peaks | None:
    """Peaks of the device that `run` was on: its GPU by name, else its CPU by name and threads; None: not measured."""
    device = run.device
    if device is None:
        return None
    peaks = load(peaks_file(folder, device.kind, device.name, run.threads))
    if peaks is None or (peaks.kind, peaks.name) != (device.kind, device.name):
        return None
    return peaks if peaks.kind == "cuda" or peaks.threads == run.threads else None
