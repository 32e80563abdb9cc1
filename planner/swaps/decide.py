"""What a person decides on swaps: accept, reject, undo; and what goes stale by itself.

The ledger is the truth, swaps.json is made of it, and a program loads only what the user's own file of trust knows.
Each decision is made in such an order that a process killed anywhere in it leaves the program stock, or the swap
accepted whole: trust comes before the state when it is given, and goes before it when it is taken.
"""

import hashlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from qrprof.kernels import adapters, trust
from qrprof.kernels.sources import own_sha256
from qrprof.kernels.swapfile import Entry, candidate_file, project_of, same_torch
from qrprof.planner.gate.records import Verdict
from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.swaps import store
from qrprof.planner.swaps.publish import current, deciding, publish, swaps_file, write_candidate
from qrprof.planner.swaps.records import Change, KeptSwap, State
from qrprof.profiler.devices import cpu_name
from qrprof.profiler.errors import Exit, QrprofError


@dataclass(frozen=True)
class Here:
    """What a verdict must have been found with to count."""

    torch: str  # version
    machine: Callable[[str], str]  # name of a device ("cpu", "cuda"); "": it is not here


@dataclass(frozen=True)
class Deciding:
    """Who decides, when, and where."""

    root: Path
    who: str
    now: datetime

    def change(self, state: State, why: str, verdict: str = "", override: str = "") -> Change:
        return store.changed(state, self.who, why, self.now, verdict, override)

    @property
    def project(self) -> Path:
        return project_of(swaps_file(self.root))


def here() -> Here:
    """Asks torch for a GPU's name only where there is one to ask for."""
    return Here(importlib.metadata.version("torch"), machine)


def machine(device: str) -> str:
    if device != "cuda":
        return cpu_name() if device == "cpu" else ""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


# --- what speaks against it


def objection(kept: KeptSwap, verdict: Verdict | None, there: Here) -> str:
    """Why the evidence is not enough to accept it, as a sentence's end; "": it is."""
    entry = kept.entry
    if entry is None:
        return ""
    if entry.kind == "adapter":
        return unfit(entry.name) or "the gate judges ops, and an adapter is none"
    if verdict is None:
        return "there is no verdict of the gate on it"
    if entry.kind == "candidate" and verdict.candidate != entry.sha256:
        return f"its verdict {verdict.id} is on another file"
    if verdict.outcome != "PASS":
        return f"its verdict {verdict.id} is {verdict.outcome}"
    if verdict.speedup is None or verdict.needed is None or verdict.speedup.low <= verdict.needed:
        return f"its verdict {verdict.id} shows no gain outside the noise"
    return elsewhere(entry, there)


def placed(kept: KeptSwap, there: Here) -> KeptSwap:
    """For this torch and this machine alone, which no verdict speaks of."""
    if kept.entry is None:
        return kept
    entry = replace(kept.entry, torch=there.torch, machine=there.machine(kept.entry.device) or kept.entry.machine)
    return replace(kept, swap=replace(kept.swap, entry=entry))


def elsewhere(entry: Entry, there: Here) -> str:
    """Why a verdict that was found where `entry` says does not count here; "": it does."""
    if entry.torch and not same_torch(entry.torch, there.torch):
        return f"it was judged with torch {entry.torch}, here is {there.torch}"
    name = there.machine(entry.device) if entry.machine else ""
    return f"it was judged on {entry.machine}, here is {name}" if name and name != entry.machine else ""


def outdated(entry: Entry, root: Path, there: Here) -> str:
    """Why an accepted swap is no longer what was accepted, as a sentence; "": it is."""
    if entry.kind != "candidate":
        if own_sha256(entry.kind, entry.name) != entry.sha256:
            return "qrprof's own source has changed since"
        return (unfit(entry.name) if entry.kind == "adapter" else "") or elsewhere(entry, there)
    file = candidate_file(swaps_file(root), entry.sha256)
    try:
        same = hashlib.sha256(file.read_bytes()).hexdigest() == entry.sha256
    except OSError:
        return f"{file.name} can no longer be read"
    return elsewhere(entry, there) if same else f"{file.name} has changed since"


def unfit(name: str) -> str:
    """Why an adapter does not serve the package that is installed here; "": it does."""
    adapter = next((one for one in adapters.ADAPTERS if one.name == name), None)
    return adapters.unfit(adapter) if adapter else f"there is no adapter {name}"


# --- decisions


def accept(by: Deciding, kept: KeptSwap, source: str | None, why: str, override: str = "") -> None:
    """Let programs of this folder load the swap, just as it was shown; what served the same op before is retired.

    Raises QrprofError where it has changed since it was read, and where anything cannot be written.
    """
    entry = whole(kept, source)
    with deciding(by.root), opened(by.root) as connection:
        store.require_unchanged(connection, kept)
        before = served_before(store.listed(connection), kept)
        if source is not None:
            write_candidate(by.root, entry.sha256, source)
        trust.trust(by.project, entry, by.now)
        retired = by.change("retired", f"{kept.name} has taken its place")
        accepted = by.change("accepted", why, entry.verdict, override)
        store.change(connection, [*((one, retired) for one in before), (kept, accepted)])
        publish(by.root)
        for one in before:
            if one.entry:
                trust.distrust(by.project, one.entry)


def whole(kept: KeptSwap, source: str | None) -> Entry:
    """Its entry. Raises QrprofError (exit code 3) where that is not of this source, name and op.

    Nobody but who wrote a ledger by hand has such a one.
    """
    swap, entry = kept.swap, kept.entry
    sha256 = hashlib.sha256(source.encode()).hexdigest() if source is not None else swap.sha256
    shown = (swap.name, swap.kind, swap.op, sha256, source is not None)
    if entry is None or (entry.name, entry.kind, entry.op, entry.sha256, entry.kind == "candidate") != shown:
        raise QrprofError(f"the ledger contradicts itself on swap {swap.name}; judge it anew", Exit.REFUSED)
    return entry


def served_before(swaps: Sequence[KeptSwap], kept: KeptSwap) -> list[KeptSwap]:
    """Other accepted candidates for the same op and device. (Before included kernels a candidate comes anyway.)"""

    def place(one: KeptSwap) -> tuple[str, str]:
        return (one.entry.op, one.entry.device) if one.entry else ("", "")

    others = [one for one in swaps if one.state == "accepted" and one.name != kept.name]
    return [one for one in others if one.swap.op and place(one) == place(kept)]


def leave(by: Deciding, kept: KeptSwap, state: State, why: str) -> None:
    """Give a swap another state than accepted, and take it out of the programs of this folder."""
    with deciding(by.root), opened(by.root) as connection:
        store.require_unchanged(connection, kept)
        if kept.entry:
            trust.distrust(by.project, kept.entry)
        store.change(connection, [(kept, by.change(state, why))])
        publish(by.root)


def refresh(by: Deciding, there: Here) -> list[str]:
    """Make what is no longer what was accepted stale, and bring swaps.json in line with the ledger.

    Returns a sentence for each that has become stale. Raises QrprofError where something cannot be written.
    """
    found = []
    for kept in looked_up(by.root, store.listed):
        why = outdated(kept.entry, by.root, there) if kept.state == "accepted" and kept.entry else ""
        if why:
            leave(by, kept, "stale", why)
            found.append(f"{kept.name} is stale, and stock runs: {why}")
    if not current(by.root):
        with deciding(by.root):
            publish(by.root)
    return found
