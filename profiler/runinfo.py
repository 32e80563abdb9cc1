"""What the recorder knows of a run beside the trace: `run.json`, one file a rank.

The recording child writes it as plain JSON (it must not import pydantic into the user's program);
everyone else reads it through `RunInfo`.
"""

from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict, ValidationError

from qrprof.profiler.errors import QrprofError

SCHEMA = 1
IMPORTED = "imported"  # how the step source of an imported run begins


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DeviceInfo(Record):
    index: int
    kind: str  # "cuda", "cpu"
    name: str
    memory_bytes: int
    uuid: str = ""


class Block(Record):
    """A stretch of steps that ran without the profiler, each timed from its boundary to the next."""

    clock: str  # "device events" or "host clock"
    first_step: int
    durations_ns: list[int]
    kinds: list[str]  # the kind of each step


class RecordedStep(Record):
    index: int
    kind: str
    weight: float  # share of this kind among all steps, over its recorded copies; sums to 1


class StepKind(Record):
    name: str  # "A", "B", ...
    label: str  # what its steps do: "16 linalg_qr", "no linalg calls"
    frequency: float  # share of the unprofiled steps


class LinalgCall(Record):
    """One linalg op at one call site with one input layout, as the unprofiled steps called it."""

    op: str  # "aten::linalg_qr"
    shape: list[int]
    dtype: str
    strides: list[int]
    device: str  # "cpu", "cuda"
    site: str  # "file.py:12" of the nearest frame outside torch; "": unknown
    calls_per_step: float
    ns_per_step: float | None  # host clock, unprofiled; None on a device (calls are asynchronous)
    samples: int = 0  # matrices kept


class RunInfo(Record):
    schema_number: int
    id: str
    created: str  # ISO 8601 with zone
    command: list[str]
    cwd: str
    step_source: str  # "optimizer SOAP", "range train", "whole run"
    rank: int
    world_size: int
    versions: dict[str, str]
    devices: list[DeviceInfo]
    threads: int  # intra-op threads of the program
    period: int | None  # steps until the pattern of kinds repeats; None: no period found
    kinds: list[StepKind]
    unprofiled: list[Block]
    recorded: list[RecordedStep]
    linalg: list[LinalgCall]
    gauge_ns: float | None = None  # what the calls in each GAUGE of the trace take without the profiler, together
    repeats: list[list[int]]  # --repeat: unprofiled step durations (ns) of each further run
    notes: list[str]  # what a reader of the figures must know
    trace: str  # file name beside this one
    exit_code: int | None  # of the script; None while it runs on

    @property
    def device(self) -> DeviceInfo | None:
        """The one that it ran on: its GPU, else its CPU; None where the run does not say."""
        return next((one for one in self.devices if one.kind != "cpu"), next(iter(self.devices), None))

    def unprofiled_ns(self) -> list[int]:
        """Durations of all unprofiled steps, ns."""
        return [ns for block in self.unprofiled for ns in block.durations_ns]

    @property
    def imported(self) -> bool:
        """Whether others recorded it: its command is not known."""
        return self.step_source.startswith(IMPORTED)

    def steps_with(self, op: str) -> float:
        """The share of steps that call a linalg op ("aten::linalg_qr"), by what their kinds are called; 1: not told."""
        name = op.removeprefix("aten::")
        return sum(kind.frequency for kind in self.kinds if name in kind.label) or 1.0

    def step_ns(self) -> float | None:
        """Mean unprofiled wall time of a step, ns; None where no step ran unprofiled.

        The mean over the kinds of steps, each as often as it occurs: a block may hold part of a cycle.
        """
        by_kind: dict[str, list[int]] = {}
        for block in self.unprofiled:
            for kind, ns in zip(block.kinds, block.durations_ns, strict=True):
                by_kind.setdefault(kind, []).append(ns)
        frequency = {kind.name: kind.frequency for kind in self.kinds}
        weights = {kind: frequency.get(kind, 0.0) for kind in by_kind}
        if not any(weights.values()):
            weights = {kind: len(found) for kind, found in by_kind.items()}
        total = sum(weights.values())
        if not total:
            return None
        return sum(weight * fmean(by_kind[kind]) for kind, weight in weights.items()) / total


def read_run_info(path: Path) -> RunInfo:
    """Read `run.json`. Raises QrprofError where it is missing, broken or of an unknown schema."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}; list runs with `qrprof runs`") from None
    try:
        return RunInfo.model_validate_json(text)
    except ValidationError as error:
        number = schema_number(text)
        if number not in (None, SCHEMA):
            raise QrprofError(
                f"{path} has schema {number}, this qrprof reads {SCHEMA}: open it with the version that wrote it"
            ) from None
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise QrprofError(f"{path} is not a run record ({where}: {first['msg']}); trace again") from None


def schema_number(text: str) -> int | None:
    import json

    try:
        record = json.loads(text)
    except ValueError:
        return None
    number = record.get("schema_number") if isinstance(record, dict) else None
    return number if isinstance(number, int) else None
