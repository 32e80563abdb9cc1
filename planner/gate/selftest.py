"""The gate against candidates made to fool it: each must be rejected for what it does, and the honest ones must not be.

A candidate of this set is a file like any other, with a header: `EXPECT` (the detector that must decide, or None),
`TASK` (of TASKS), `DEVICE` and `ROWS` (of the table in docs/gate.md that it stands for).
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

import qrprof
from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.gate import run_gate
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.pool import Pool
from qrprof.planner.gate.records import (
    DETECTORS,
    ArgSpec,
    Checker,
    Detector,
    Domain,
    Plain,
    Task,
    TaskCase,
    Tolerance,
    Verdict,
)
from qrprof.planner.gate.replies import Workers
from qrprof.planner.gate.sandbox import Layer
from qrprof.planner.gate.worker import started
from qrprof.profiler.errors import QrprofError

Language = Literal["cpu", "triton", "cuda"]  # "triton" is CUDA by way of Triton
Device = Literal["cpu", "cuda"]
DEVICES: Final[tuple[Device, ...]] = get_args(Device)
FOLDER: Final = Path(qrprof.__file__).parent / "redteam"
SPEED: Final = frozenset({"slower", "noise"})  # what may speak against an honest candidate


@dataclass(frozen=True)
class Attack:
    """A candidate of the set. `expect` is None for an honest one, and for a hostile one whose tries must come to
    nothing: it answers zeros if they do not.
    """

    name: str
    source: Path
    about: str
    expect: Detector | None
    task: str
    device: Language
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Shown:
    """What became of an attack, in a few words. `held` is None where that cannot be said: it was not run, the machine
    failed, or was too busy to tell what is slower.
    """

    attack: Attack
    held: bool | None
    why: str
    verdict: Verdict | None = None


# --- the set


def attacks(folder: Path = FOLDER) -> tuple[Attack, ...]:
    """The candidates of `folder`, by name. Raises QrprofError where there are none, or one has no such header."""
    found = tuple(read(source) for source in sorted(folder.glob("*.py")))
    if not found:
        raise QrprofError(f"no candidates in {folder}: the installation is not whole; install qrprof again")
    return found


def read(source: Path) -> Attack:
    """The header of one candidate; nothing is imported. Raises QrprofError where it is not one."""
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        values = dict(constant(node) for node in tree.body if isinstance(node, ast.Assign))
        expect, task, device, rows = (values[key] for key in ("EXPECT", "TASK", "DEVICE", "ROWS"))
    except (SyntaxError, KeyError, OSError) as error:
        raise QrprofError(f"{source} is no candidate of the self-test: {error}") from None
    if expect not in (None, *DETECTORS) or task not in TASKS or device not in get_args(Language):
        raise QrprofError(f"{source} names what is not known: {expect!r}, {task!r}, {device!r}")
    return Attack(source.stem, source, ast.get_docstring(tree) or "", expect, task, device, rows)


def constant(node: ast.Assign) -> tuple[str, Any]:
    """The name and the value of `NAME = literal`; of any other assignment, nothing of use."""
    try:
        return ast.unparse(node.targets[0]), ast.literal_eval(node.value)
    except ValueError:
        return "", None


# --- the tasks


def task(name: str, device: Device) -> Task:
    return TASKS[name](device)


def relative(op: str, cases: Sequence[TaskCase], scales: tuple[float, ...] = (1.0, 0.01)) -> Callable[[Any], Task]:
    domain = Domain("leading", 1, True, ("wide", "offset", "one_bad"), scales)
    return lambda device: made(op, device, cases, domain, "relative")


def factors(cases: Sequence[TaskCase]) -> Callable[[Any], Task]:
    domain = Domain("leading", 2, True, ("mixed", "upper", "rankdef", "clustered", "tiny_column", "single_bad", "huge"))
    return lambda device: made("geqrf", device, cases, domain, "qr")


def made(op: str, device: Device, cases: Sequence[TaskCase], domain: Domain, checker: Checker) -> Task:
    return Task(f"selftest-{op}-{device}", op, device, tuple(cases), domain, checker, Tolerance(), "built in")


def case(*shapes: tuple[int, ...], weight: float = 1.0, plain: tuple[Plain, ...] = (), **fields: Any) -> TaskCase:
    name = " ".join("x".join(map(str, shape)) for shape in shapes)
    return TaskCase(name, weight, tuple(ArgSpec(shape, "float32") for shape in shapes), plain, **fields)


# Of shapes at which honest code can beat the stock kernels of a CPU: rows and matrices of few columns. Five numbers
# fill no vector of any CPU; where a vector holds eight, stock is the faster one for eight. The long ones are for what
# has to be timed.
TASKS: Mapping[str, Callable[[Device], Task]] = MappingProxyType(
    {
        "softmax": relative(
            "_softmax",
            [case((1024, 5), weight=0.3, plain=(1, False)), case((4096, 4), weight=0.7, plain=(1, False))],
        ),
        "long_softmax": relative("_softmax", [case((16384, 5), plain=(1, False))]),
        "layer_norm": relative("native_layer_norm", [case((4096, 4), (4,), (4,), plain=((4,), 1e-5), layout="tpttp")]),
        "long_layer_norm": relative(
            "native_layer_norm", [case((16384, 4), (4,), (4,), plain=((4,), 1e-5), layout="tpttp")]
        ),
        "mm": relative("mm", [case((64, 64), (64, 64))]),
        "long_mm": relative("mm", [case((256, 256), (256, 256))]),
        "zero_mm": relative("mm", [case((64, 64), (64, 64), scale=0.0)]),
        "geqrf": factors([case((8192, 8, 2), structure="dense")]),
        "square": factors([case((64, 12, 12), structure="dense")]),
    }
)


# --- the outcome


def deciding(verdict: Verdict) -> frozenset[Detector]:
    """The detectors whose findings are behind the outcome; where that is speed alone, also what else was found.

    Speed is a busy machine's as well: there a cheat may be called slower before it is called one.
    """
    names = frozenset(finding.detector for finding in verdict.findings if finding.outcome == verdict.outcome)
    suspected = frozenset(finding.detector for finding in verdict.findings if finding.outcome == "SUSPECT")
    return names | suspected if names <= SPEED else names


def judged(attack: Attack, verdict: Verdict) -> Shown:
    """Held: rejected, the expected detector being among those that decided; or, where none is expected, accepted: at
    most its speed speaks against it.
    """
    names = deciding(verdict)
    passed = verdict.outcome == "PASS"
    told = "PASS" if passed else f"{verdict.outcome}: {', '.join(sorted(names))}"
    untold = verdict.outcome == "UNKNOWN" and attack.expect in SPEED and names <= SPEED
    if (verdict.outcome == "INFRA" or untold) and attack.expect not in names:
        return Shown(attack, None, told, verdict)
    held = passed or names <= SPEED if attack.expect is None else not passed and attack.expect in names
    return Shown(attack, held, told, verdict)


# --- the runs

# Small ones, for nothing here needs more; a process whose memory is not limited in time takes the machine's.
LIMITS: Final = Limits(wall_s=20.0, build_s=20.0, memory_bytes=2 << 30, tasks=64)
BUILDS_S: Final = 120.0  # a compiler may run


@contextmanager
def opened(device: Device, layer: Layer | None = None) -> Iterator[Workers]:
    """Workers for the set on a device, those of the stock ops shared."""
    limits = replace(LIMITS, build_s=BUILDS_S) if device == "cuda" else LIMITS
    with ExitStack() as stack:
        yield Pool(lambda source: started(source, device, limits, layer), stocks(), stack)


def stocks() -> frozenset[str]:
    return frozenset(stock_source(task(name, "cpu").op) for name in TASKS)


def attempt(attack: Attack, workers: Workers) -> Shown:
    """Judge one candidate of the set. Raises QrprofError where no process can be started."""
    return judged(attack, run_gate(task(attack.task, device_of(attack)), attack.source, workers=workers))


def device_of(attack: Attack) -> Device:
    return "cpu" if attack.device == "cpu" else "cuda"
