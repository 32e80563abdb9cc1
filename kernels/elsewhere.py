"""Memory that outlives a call is not taken while torch lends the calling thread another pool.

Under torch.compile's "reduce-overhead", the allocations of a thread go to a pool in which nothing may stay that the
compiled function does not return.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def elsewhere(work: Callable[[], T]) -> T:
    """What `work` returns or raises in a thread of its own: grad mode, streams and devices are that thread's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
