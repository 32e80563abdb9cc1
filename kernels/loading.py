"""Accepted swaps from a swaps.json: what this user accepted here, whose source is unchanged, and which fits here.

Everything else is refused with a sentence, and stays stock: a program runs whatever the file holds.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from qrprof.kernels.candidate import Unusable, swap_of
from qrprof.kernels.guard import Swap, device_of
from qrprof.kernels.qr.swaps import SWAPS
from qrprof.kernels.sources import own_sha256
from qrprof.kernels.swapfile import Entry, candidate_file, project_of, read, same_torch
from qrprof.kernels.swappable import KEYS
from qrprof.kernels.trust import trusted
from qrprof.profiler.devices import cpu_name
from qrprof.profiler.errors import QrprofError

INCLUDED: Final = {"qr": SWAPS}


@dataclass(frozen=True)
class Loaded:
    swaps: tuple[Swap, ...] = ()
    adapters: tuple[Entry, ...] = ()
    refused: tuple[str, ...] = ()  # a sentence each


class Refused(Exception):
    """Why an entry stays stock, as a sentence's end."""


def load(path: Path) -> Loaded:
    """What the file at `path` lists and this user accepted on this machine. Raises nothing."""
    try:
        entries = read(path)
    except QrprofError as error:
        return Loaded(refused=(f"{error}; the program runs on stock kernels",))
    accepted = trusted(project_of(path))
    swaps: dict[str, tuple[Swap, ...]] = {}
    adapters, refused = [], []
    # A candidate was judged on this program's calls: it comes before what serves the same op in general.
    for entry in sorted(entries, key=lambda entry: entry.kind != "candidate"):
        try:
            source = checked(entry, path, accepted)
            if entry.kind == "adapter":
                adapters.append(entry)
            else:
                swaps[entry.name] = tuple(free(of_entry(entry, path, source), swaps))
        except (Refused, Unusable) as reason:
            refused.append(f"swap {entry.name} is off: {reason}")
    return Loaded(tuple(swap for several in swaps.values() for swap in several), tuple(adapters), tuple(refused))


def checked(entry: Entry, path: Path, accepted: frozenset[str]) -> bytes:
    """The source of a candidate, the very bytes that were accepted; b"" of what is part of this library.

    Raises Refused.
    """
    if entry.digest not in accepted:
        raise Refused(f"you have not accepted it on this machine for this folder; see `qrprof swaps show {entry.name}`")
    if entry.torch and not same_torch(entry.torch, torch.__version__):
        raise Refused(f"it was judged with torch {entry.torch}, this is {torch.__version__}; judge it again")
    if entry.device == "cpu" and entry.machine not in ("", cpu_name()):
        raise Refused(f"it was judged on {entry.machine}, this is {cpu_name()}; judge it again")
    if entry.kind != "candidate":
        if own_sha256(entry.kind, entry.name) != entry.sha256:
            raise Refused("qrprof's own source has changed since it was accepted; accept it again")
        return b""
    file = candidate_file(path, entry.sha256)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from None
    if hashlib.sha256(source).hexdigest() != entry.sha256:
        raise Refused(f"{file} has changed since it was accepted; accept it again")
    return source


def of_entry(entry: Entry, path: Path, source: bytes) -> Iterator[Swap]:
    """Raises Refused and Unusable."""
    if entry.kind == "candidate":
        yield placed(swap_of(entry, source, candidate_file(path, entry.sha256)), entry)
    elif entry.name in INCLUDED:
        yield from (placed(swap, entry) for swap in INCLUDED[entry.name])
    else:
        raise Refused(f"qrprof has no kernels of that name; it has {', '.join(INCLUDED)}")


def placed(swap: Swap, entry: Entry) -> Swap:
    """On the device that the entry was judged on, and on no other GPU than that one."""
    made = replace(swap, name=entry.name, keys=(entry.device.upper(),) if entry.device else KEYS)
    bound = entry.device == "cuda" and entry.machine
    return replace(made, decline=on_its_gpu(made, entry.machine)) if bound else made


def on_its_gpu(swap: Swap, machine: str) -> Any:
    """`decline`, for calls on another GPU too: which one it is is known when it is called, and CUDA is in use."""
    names: dict[torch.device, str] = {}

    def decline(*args: Any, **kwargs: Any) -> str:
        device = device_of(args)
        if device not in names:
            names[device] = torch.cuda.get_device_name(device)
            if names[device] != machine:
                said = f"swap {swap.name} is off: it was judged on {machine}, this is {names[device]}; judge it again"
                print(f"qrprof: {said}", file=sys.stderr)
        return swap.decline(*args, **kwargs) if names[device] == machine else "another GPU"

    return decline


def free(made: Iterator[Swap], taken: dict[str, tuple[Swap, ...]]) -> Iterator[Swap]:
    """Without the places that are taken."""
    for swap in made:
        keys = [key for key in swap.keys if not any(swap.op == one.op and key in one.keys for one in others(taken))]
        if keys:
            yield replace(swap, keys=tuple(keys))


def others(taken: dict[str, tuple[Swap, ...]]) -> Iterator[Swap]:
    yield from (swap for several in taken.values() for swap in several)
