"""Ranks of torch.distributed swap together or not at all: replicas rely on equal bits.

They compare what they would run through the store of the process group, when it starts or, if it runs already, when
swaps are installed. All ranks do either; a rank that does not is missed for WAIT, and then all run stock.
"""

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

WAIT = timedelta(seconds=60)
NAME = "init_process_group"

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


def agree(own: str) -> bool:
    """Whether all ranks are about to run the same thing; each calls it with its own, as often as the others.

    The first rank that knows decides for all, so that a rank that is late cannot decide otherwise.
    """
    global _agreed_in, _rounds
    if not several():
        return True
    _rounds += 1
    store = dist.distributed_c10d._get_default_store()
    name = f"qrprof/swaps/{_rounds}"
    keys = [f"{name}/{rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], own)
    try:
        store.wait(keys, WAIT)
        vote = "on" if all(store.get(key) == own.encode() for key in keys) else "off"
    except RuntimeError:  # a rank did not come
        vote = "off"
    decided = store.compare_set(f"{name}/decision", "", vote) == b"on"
    _agreed_in = weakref.ref(dist.group.WORLD) if decided else None
    return decided


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
