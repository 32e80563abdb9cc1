"""Ranks of torch.distributed swap together or not at all: replicas rely on equal bits.

They compare what they would run through the store of the process group, when it starts or, if it runs already, when
swaps are installed. All ranks do either; a rank that does not is missed for WAIT, and then all run stock. So they do
where a group has no store that answers.
"""

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

WAIT = timedelta(seconds=60)
NAME = "init_process_group"
AGREED = "agreed"
DIFFER = "swaps, versions or devices of the ranks differ"
NO_STORE = "no store answers in this process group, so that the ranks cannot compare their swaps"

# The process group in which the ranks agreed; another one has not agreed. It must not outlive what the program does
# with it: its threads would still run when the process ends.
_agreed_in: weakref.ref[Any] | None = None
_rounds = 0


def several() -> bool:
    """Whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def agreed() -> bool:
    """Whether this process may swap: it is alone, or its ranks agreed."""
    return not several() or (_agreed_in is not None and _agreed_in() is dist.group.WORLD)


def objection(own: str) -> str:
    """Why the ranks must not swap: "" if all are about to run the same thing. Each calls it as often as the others."""
    global _agreed_in, _rounds
    _rounds += 1
    try:
        decision = decided(dist.distributed_c10d._get_default_store(), f"qrprof/swaps/{_rounds}", own)
    except Exception:  # noqa: BLE001 - stores raise what they like; the others miss a rank that cannot reach its own
        decision = NO_STORE
    _agreed_in = weakref.ref(dist.group.WORLD) if decision == AGREED else None
    return "" if decision == AGREED else decision


def decided(store: Any, name: str, own: str) -> str:
    """AGREED, or why not. The first rank that knows decides for all: a late one cannot decide otherwise."""
    keys = [f"{name}/{rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], own)
    try:
        store.wait(keys, WAIT)
        vote = AGREED if all(store.get(key) == own.encode() for key in keys) else DIFFER
    except RuntimeError:
        vote = f"a rank did not come within {WAIT.total_seconds():g} s to compare its swaps"
    return str(store.compare_set(f"{name}/decision", "", vote).decode())


def when_group_starts(then: Callable[[], Any]) -> Callable[[], None]:
    """Call `then` at the end of every `init_process_group`, a device mesh's too; returns what undoes that."""
    if not dist.is_available():
        return lambda: None
    stock = dist.init_process_group
    places: list[Any] = [one for one in (dist, dist.device_mesh) if getattr(one, NAME, None) is stock]

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        stock(*args, **kwargs)
        then()

    for place in places:
        setattr(place, NAME, init_process_group)

    def undo() -> None:
        for place in places:
            if getattr(place, NAME) is init_process_group:
                setattr(place, NAME, stock)

    return undo
