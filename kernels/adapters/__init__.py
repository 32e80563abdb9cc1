"""Known optimizers that call a kernel one parameter at a time, and what groups their calls while the program runs.

An adapter replaces methods of a package's class in memory; the package's files stay as they are. It knows the source
that it was written for, and leaves any other as it is. Without torch.
"""

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qrprof.kernels.adapters.groups import groups
from qrprof.kernels.modes import Mode
from qrprof.profiler.errors import Exit, QrprofError

if TYPE_CHECKING:
    from qrprof.kernels.guard import Guard, Swap
    from qrprof.profiler.runinfo import RunInfo  # a program that runs with an adapter is to import no pydantic for it

STANDARD: Final = Mode()
Placing = Callable[["Swap"], "Swap"]  # what it gives serves only where it may


@dataclass(frozen=True)
class Adapter:
    """`module` is of this library, and has `attach(adapter, mode, placing)`, which returns what is Attached."""

    name: str  # "soap"
    about: str
    package: str  # that is installed
    target: str  # the module of the package that has the class
    optimizer: str  # the class, as the source of a run's steps names it
    op: str  # "aten::linalg_qr", called once for each matrix
    known: Mapping[str, str]  # version of the package -> sha256 of the target's file
    module: str


@dataclass(frozen=True)
class Attached:
    """An adapter at work. Called, it takes it off: the package's own methods again."""

    guards: tuple["Guard", ...]  # what its batched calls go through: for reports
    undo: Callable[[], None]

    def __call__(self) -> None:
        self.undo()


ADAPTERS: Final = (
    Adapter(
        name="soap",
        about="SOAP of pytorch_optimizer: the QR of all matrices of one shape in one batched call a step",
        package="pytorch_optimizer",
        target="pytorch_optimizer.optimizer.soap",
        optimizer="SOAP",
        op="aten::linalg_qr",
        known={
            "3.10.0": "3497f1ff994408c46769926215cce2b8d4aa636247971d9da1ccae6705871e78",
            "4.0.0": "c8c42a844d5421cdf656a9206541c229499940381cba73c2c0451165f51ce16d",
            "4.1.0": "8829937c3fab44d8aeefb2fb513f825c4747bd916c07db59965b26f7e69fad70",
        },
        module="qrprof.kernels.adapters.soap",
    ),
)


def find(name: str) -> Adapter:
    """Raises QrprofError where there is none."""
    for adapter in ADAPTERS:
        if adapter.name == name:
            return adapter
    names = ", ".join(adapter.name for adapter in ADAPTERS)
    raise QrprofError(f"there is no adapter {name!r}; there is: {names}", Exit.USAGE)


def fitting(run: "RunInfo") -> tuple[Adapter, ...]:
    """Those whose optimizer made the run's steps, with calls that a batch would serve faster."""
    return tuple(adapter for adapter in ADAPTERS if groups(adapter, run))


def unfit(adapter: Adapter) -> str:
    """Why the adapter does not serve the package that is installed here, as a sentence's end; "": it does."""
    try:
        installed = distribution(adapter.package)
        file = source_file(adapter)
    except PackageNotFoundError:
        return f"{adapter.package} is not installed"
    expected = adapter.known.get(installed.version)
    if expected is None:
        return (
            f"{adapter.package} {installed.version} is installed, it knows {', '.join(adapter.known) or 'no version'}"
        )
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != expected:
        return f"{file} is not that of {adapter.package} {installed.version}"
    return ""


def source_file(adapter: Adapter) -> Path:
    """The target's file. Raises PackageNotFoundError."""
    return Path(str(distribution(adapter.package).locate_file(adapter.target.replace(".", "/") + ".py")))


def install(name: str, mode: Mode = STANDARD, placing: Placing = lambda swap: swap) -> Attached:
    """Attach the adapter once the program has imported what it adapts.

    `mode` says how batched calls are served, `placing` where.

    Best called before the optimizer is made: a learning rate scheduler keeps the step that it finds. Raises QrprofError
    where the installed package is not one that the adapter knows: the program then runs as it is.
    """
    adapter = find(name)
    if why := unfit(adapter):
        raise QrprofError(f"adapter {name} is off: {why}", Exit.REFUSED)
    attach: Callable[[Adapter, Mode, Placing], Attached] = importlib.import_module(adapter.module).attach
    return attach(adapter, mode, placing)
