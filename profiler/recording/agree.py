"""One decision for all ranks: rank 0 decides, the others follow, through torch.distributed's store.

Ranks that recorded different steps, or of which one left before the others, would break the
program's collectives. Decisions are made at step boundaries that every rank knows beforehand, so one
exchange at such a boundary is enough and nothing is polled.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

WAIT = timedelta(seconds=60)

Agree = Callable[[int, dict[str, Any]], dict[str, Any]]


def agree_across_ranks(number: int, own: dict[str, Any]) -> dict[str, Any]:
    """The decision with this number as rank 0 made it; `own` where there are no other ranks.

    Raises RuntimeError where rank 0 has not decided within a minute.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return own
    store = dist.distributed_c10d._get_default_store()
    key = f"qrprof/decision/{number}"
    if dist.get_rank() == 0:
        store.set(key, json.dumps(own))
        return own
    store.wait([key], WAIT)
    decision: dict[str, Any] = json.loads(store.get(key))
    return decision
