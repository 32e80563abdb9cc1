"""`qrprof probe`: what the included kernels take for a run's own calls, on the device at hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType

from qrprof.kernels.times import SCHEMA, Timed, Times, alike, keep
from qrprof.planner.grouping import batches
from qrprof.planner.measured import Called, calls_of
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import DeviceInfo, RunInfo
from qrprof.profiler.store import find_run
from qrprof.tui.output import Column, field, full, say, table, write, write_json
from qrprof.tui.ranking import run_line

if TYPE_CHECKING:
    import torch

COLUMNS: Final = (
    Column("op"),
    Column("input", wraps=True),
    Column("calls/step", right=True),
    Column("recorded", right=True),
    Column("torch here", right=True),
    Column("included", right=True),
    Column("faster", right=True),
)


@dataclass(frozen=True)
class Probed:
    called: Called
    timed: Timed | None
    reason: str = ""  # why there are no times


@click.command(epilog="Example: qrprof probe && qrprof rank")
@click.argument("run", required=False)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of timing, for each input."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
def command(run: str | None, seconds: float, as_json: bool, number: int) -> int:
    """Time the included kernels on the inputs of a run's calls.

    Torch's own are timed beside them. The times are kept for this device: `qrprof rank` and `qrprof whatif --set
    linalg_qr=table` then know what a swap would gain. The device has to be the run's, and should have nothing else to
    do. RUN is a run's id, the start of one, or its folder; without it, the last run.
    """
    info, trace = load_run(find_run(Path.cwd(), run), number)
    called = calls_of(divide(find_facts(trace, info), info))
    called += batches(info, called)
    found, remarks = probed(info, called, seconds) if called else ([], ())
    if as_json:
        write_json({"run": info.id, "calls": [record(one) for one in found], "remarks": remarks})
    else:
        write(page(info, found, remarks))
    return Exit.OK


def probed(run: RunInfo, called: list[Called], seconds: float) -> tuple[list[Probed], tuple[str, ...]]:
    """The times of each, which are kept as soon as they are there; and what may have disturbed them."""
    import torch

    from qrprof.kernels.time_calls import timed
    from qrprof.kernels.timing import clock_of
    from qrprof.planner.gate.environment import around, machine, remarks, state
    from qrprof.planner.optimize.slots import held, slot_of

    device = device_of(run)
    where = device_at_hand(device, run.threads)
    fixed = machine(where.type)
    with held(slot_of(fixed), waiting), torch.no_grad():
        before, clock, found = state(where.type), clock_of(where), []
        for one in called:
            say(f"timing {one.signature[0]} of {size_of(one)}")
            times = timed(one.signature, clock, where, seconds, datetime.now(UTC))
            found.append(Probed(one, None, times) if isinstance(times, str) else Probed(one, times))
            if isinstance(times, Timed):
                kept(device, run.threads, fixed, times)
        return found, remarks(around(fixed, before, state(where.type)))


def device_of(run: RunInfo) -> DeviceInfo:
    if run.device is None:
        raise QrprofError(f"run {run.id} does not say what device it was on: trace the program again", Exit.USAGE)
    return run.device


def device_at_hand(device: DeviceInfo, threads: int) -> "torch.device":
    """Raises QrprofError (exit code 3) where the run's device is not here."""
    import torch

    from qrprof.profiler.devices import cpu_name, usable

    where = usable(device.kind)
    here = torch.cuda.get_device_name() if where.type == "cuda" else cpu_name()
    if here != device.name:
        raise QrprofError(
            f"the run was on {device.name}, and this is {here}: probe on the machine that runs the program",
            Exit.NO_DEVICE,
        )
    if where.type == "cpu":
        torch.set_num_threads(threads)
    return where


@contextmanager
def waiting() -> Iterator[None]:
    say("waiting for another process that measures on this device")
    yield


def kept(device: DeviceInfo, threads: int, fixed: dict[str, str], times: Timed) -> None:
    found: dict[str, Any] = {"kind": device.kind, "name": device.name, "threads": threads, "versions": alike(fixed)}
    keep(Times(schema_number=SCHEMA, timed=[times], **found))


# --- shown


def page(run: RunInfo, found: list[Probed], remarks: tuple[str, ...]) -> list[RenderableType]:
    lines: list[RenderableType] = [field("run", run_line(run))]
    if not found:
        return [*lines, full("the run calls no op that has an included kernel: there is nothing to time")]
    lines += ["", table(COLUMNS, map(row, found)), ""]
    lines += [full(f"{size_of(one.called)}: {one.reason}") for one in found if one.reason]
    lines += [field("note", remark) for remark in remarks]
    if any(one.timed for one in found):
        lines.append(full("times are of one call; `qrprof rank` now says what swapping the kernels in would gain"))
    return lines


def row(one: Probed) -> list[str]:
    called = one.called
    each = units.time(called.ns / called.calls) if called.calls else units.MISSING
    head = [called.signature[0], size_of(called), units.calls(called.calls), each]
    if one.timed is None:
        return [*head, units.MISSING, units.MISSING, units.MISSING]
    own, stock = one.timed.own, one.timed.stock
    return [*head, units.time(stock.device), units.time(own.device), units.ratio(stock.device / own.device)]


def size_of(called: Called) -> str:
    _, shape, dtype = called.signature
    return f"{' x '.join(map(str, shape))} {dtype}"


def record(one: Probed) -> dict[str, Any]:
    op, shape, dtype = one.called.signature
    return {
        "op": op,
        "shape": shape,
        "dtype": dtype,
        "calls": one.called.calls,
        "recorded_ns": one.called.ns / one.called.calls if one.called.calls else None,
        "timed": one.timed.model_dump() if one.timed else None,
        "reason": one.reason,
    }
