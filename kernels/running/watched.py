"""What a process of a verification says of its steps, as plain records: the child writes them, the planner reads them.

A step ends with an optimizer's step. Norms are Euclidean, in float64; a norm of numbers that are not finite is not.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qrprof.profiler.store import replacing


@dataclass(frozen=True)
class Apart:
    """How far one parameter is from the stock run's after a step that began where that one's did, as norms."""

    gradient: float
    update: float
    state: (
        float  # of the optimizer: the largest of its tensors' distances, each as a fraction of the stock run's tensor
    )


@dataclass(frozen=True)
class Parameter:
    """One parameter in one step."""

    dtype: str | None  # of its gradient; None: it has none
    gradient: float  # norm; 0 where there is none
    update: float  # norm of what the step added
    weight: float  # norm of the parameter
    apart: Apart | None  # None: the step did not begin where the stock run's did


@dataclass(frozen=True)
class Step:
    optimizer: int  # which one's step it is, by the order of their first steps
    loss: float | None  # sum of the numbers that backward() was called on; None: there were none
    ns: int  # from the end of the step before, and of our own work there
    random: str  # hash of the state of all random generators after the step
    hits: Mapping[str, int]  # calls that each swap has served so far, by name
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Served:
    """A swapped op on one dispatch key."""

    op: str
    key: str
    hits: int
    fallbacks: Mapping[str, int]  # reason -> calls
    checked: int
    failed: int
    errors: int
    name: str = ""  # of the swap, or of the adapter


@dataclass(frozen=True)
class Swaps:
    """What became of the swaps of a process."""

    served: tuple[Served, ...] = ()
    adapters: tuple[str, ...] = ()  # installed
    refused: tuple[str, ...] = ()  # a sentence each

    @property
    def hits(self) -> int:
        return sum(one.hits for one in self.served)

    @property
    def by_name(self) -> dict[str, int]:
        """Calls that each swap has served: one may stand at several ops."""
        found: dict[str, int] = {}
        for one in self.served:
            found[one.name] = found.get(one.name, 0) + one.hits
        return found


@dataclass(frozen=True)
class Machine:
    """What a program trains on."""

    device: str  # name of the GPU, else of the CPU
    gpu: str  # uuid; "": a CPU
    memory: int  # bytes that it has
    versions: Mapping[str, str]  # of torch and what it stands on


@dataclass(frozen=True)
class Trained:
    """A run that was watched for what it computes."""

    names: tuple[tuple[str, ...], ...]  # of the parameters of each optimizer
    steps: tuple[Step, ...]
    swaps: Swaps
    peak: int  # most bytes of memory held
    machine: Machine


@dataclass(frozen=True)
class Timed:
    """A run that was watched for how long its steps take; times in ns, memory in bytes."""

    clock: str
    steps_ns: tuple[int, ...]
    memory: tuple[int, ...]  # held at the end of each timed step
    served: tuple[int, ...]  # calls that swaps served within each timed step
    peak: int
    swaps: Swaps


def write(path: Path, record: Trained | Timed) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_trained(path: Path) -> Trained:
    record = json.loads(path.read_text(encoding="utf-8"))
    names, steps = tuple(map(tuple, record["names"])), tuple(map(step_of, record["steps"]))
    return Trained(names, steps, swaps_of(record), record["peak"], Machine(**record["machine"]))


def read_timed(path: Path) -> Timed:
    record = json.loads(path.read_text(encoding="utf-8"))
    steps, memory, served = (tuple(record[name]) for name in ("steps_ns", "memory", "served"))
    return Timed(record["clock"], steps, memory, served, record["peak"], swaps_of(record))


def step_of(record: dict[str, Any]) -> Step:
    return Step(**{**record, "parameters": tuple(map(parameter_of, record["parameters"]))})


def parameter_of(record: dict[str, Any]) -> Parameter:
    return Parameter(**{**record, "apart": Apart(**record["apart"]) if record["apart"] else None})


def swaps_of(record: dict[str, Any]) -> Swaps:
    found = record["swaps"]
    served = tuple(Served(**one) for one in found["served"])
    return Swaps(served, tuple(found["adapters"]), tuple(found["refused"]))
