"""What calls of ops take with the included kernels: timed on a device, kept in the user's cache, read without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import PositiveFloat, ValidationError

from qrprof.profiler.devices import device_file, devices_folder
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.linalg import Signature
from qrprof.profiler.runinfo import Record, RunInfo
from qrprof.profiler.store import make_private, replacing

SCHEMA: Final = 1
ALIKE: Final = ("torch", "triton", "qrprof")  # packages whose versions must be those of the run


class Call(Record):
    """ns of one call: `call` on an idle device, `device` with the launches out of the way (`kernels/timing`), `host`
    until the caller may go on.
    """

    host: PositiveFloat
    call: PositiveFloat
    call_p95: PositiveFloat
    device: PositiveFloat
    device_p05: PositiveFloat
    device_p95: PositiveFloat


class Timed(Record):
    """An op ("linalg_qr") on one input, by the included kernels and by torch, in one run."""

    op: str
    shape: list[int]  # of the first input
    dtype: str  # "float32"
    lane: str
    own: Call
    stock: Call
    at: str  # ISO 8601, UTC

    @property
    def signature(self) -> Signature:
        return self.op, tuple(self.shape), self.dtype


class Times(Record):
    """All that was timed on a device with these versions."""

    schema_number: Literal[1]
    kind: Literal["cpu", "cuda"]
    name: str
    threads: int  # intra-op threads, on which a CPU's times depend
    versions: dict[str, str]  # of ALIKE
    timed: list[Timed]


def times_file(kind: str, name: str, threads: int) -> Path:
    return device_file(devices_folder(), f"times {kind} {name}", kind, threads)


def alike(versions: dict[str, str]) -> dict[str, str]:
    return {package: versions[package] for package in ALIKE if package in versions}


def load(path: Path) -> Times | None:
    """None where nothing was timed yet, or the file is broken or of another schema."""
    try:
        return Times.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def keep(found: Times) -> Path:
    """Add to what is kept; a signature timed again replaces the older times, other versions all of them.

    Raises QrprofError where the file cannot be written.
    """
    path = times_file(found.kind, found.name, found.threads)
    before = load(path)
    kept = before.timed if before is not None and before.versions == found.versions else []
    new = {one.signature for one in found.timed}
    whole = found.model_copy(update={"timed": [*(one for one in kept if one.signature not in new), *found.timed]})
    try:
        make_private(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; set QRPROF_CACHE to a writable folder") from None
    return path


def times_for(run: RunInfo) -> Sequence[Timed]:
    """What was timed on the device that `run` was on, with the versions that it ran with."""
    device = run.device
    if device is None:
        return ()
    found = load(times_file(device.kind, device.name, run.threads))
    if found is None or (found.kind, found.name) != (device.kind, device.name):
        return ()
    same = all(run.versions.get(package) == version for package, version in found.versions.items())
    return found.timed if same else ()
