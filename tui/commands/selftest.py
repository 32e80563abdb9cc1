"""`qrprof selftest`: the gate against candidates made to fool it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.output import Cell, Column, field, name, say, table, write, write_json

if TYPE_CHECKING:  # torch is imported once the command runs
    from rich.console import RenderableType

    from qrprof.planner.gate.sandbox import Layer
    from qrprof.planner.gate.selftest import Attack, Shown

COLUMNS: Final = (
    Column("candidate", wraps=True),
    Column("on"),
    Column("expected"),
    Column("found", wraps=True),
    Column("s", right=True),
    Column("gate"),
)
NO_GPU: Final = "not run: torch sees no CUDA device"
STATES: Final = {True: "held", False: "MISSED", None: "-"}


@click.command(epilog="Example: qrprof selftest cache_by_pointer honest_softmax")
@click.argument("names", metavar="[CANDIDATE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(names: Sequence[str], as_json: bool) -> int:
    """Attack the gate with candidates made to fool it.

    Each hostile or mistaken candidate must be rejected by the detector that it is expected to meet, and each honest one
    accepted: at most its speed may speak against it. All that fit this machine are run, which takes minutes, or those
    that are named. The exit code is 1 where the gate was fooled.
    """
    from qrprof.planner.gate.sandbox import available_layer
    from qrprof.planner.gate.selftest import attacks

    layer = available_layer()
    shown = list(results(chosen(attacks(), names), layer))
    if as_json:
        write_json({"layer": layer, "candidates": [record(one) for one in shown], "summary": counts(shown)})
    else:
        write(page(shown, layer))
    return Exit.FAILED if any(one.held is False for one in shown) else Exit.OK


def chosen(known: "Sequence[Attack]", names: Sequence[str]) -> "list[Attack]":
    """Raises QrprofError (exit code 2) for a name that no candidate has."""
    if unknown := sorted(set(names) - {attack.name for attack in known}):
        there = ", ".join(attack.name for attack in known)
        raise QrprofError(f"no candidate {unknown[0]!r}; there are {there}", Exit.USAGE)
    return [attack for attack in known if not names or attack.name in names]


def results(wanted: "Iterable[Attack]", layer: "Layer") -> "Iterator[Shown]":
    """Those of the CPU first."""
    import torch

    from qrprof.planner.gate.selftest import DEVICES, Shown, attempt, device_of, opened

    for device in DEVICES:
        here = [attack for attack in wanted if device_of(attack) == device]
        if device == "cuda" and not torch.cuda.is_available():
            yield from (Shown(attack, None, NO_GPU) for attack in here)
        elif here:
            with opened(device, layer) as workers:
                for attack in here:
                    say(f"{attack.name}: {attack.about}")
                    yield attempt(attack, workers)


def page(shown: "Sequence[Shown]", layer: str) -> "list[RenderableType]":
    found = counts(shown)
    line = f"{found['held']} of {found['held'] + found['missed']} held"
    return [
        field("layer", layer if layer != "none" else "none: nothing here contains a candidate"),
        "",
        table(COLUMNS, [row(one) for one in shown]),
        "",
        field("gate", line + (f"; {found['not run']} not run or not judged" if found["not run"] else "")),
    ]


def row(one: "Shown") -> list[Cell]:
    attack, verdict = one.attack, one.verdict
    seconds = f"{sum(cost.seconds for cost in verdict.costs):.1f}" if verdict else ""
    return [name(attack.name), attack.device, attack.expect or "accepted", one.why, seconds, STATES[one.held]]


def counts(shown: "Sequence[Shown]") -> dict[str, int]:
    found = Counter(one.held for one in shown)
    return {"held": found[True], "missed": found[False], "not run": found[None]}


def record(one: "Shown") -> dict[str, Any]:
    attack = one.attack
    return {
        **{key: getattr(attack, key) for key in ("name", "about", "device", "task", "expect", "rows")},
        "held": one.held,
        "found": one.why,
        "verdict": asdict(one.verdict) if one.verdict else None,
    }
