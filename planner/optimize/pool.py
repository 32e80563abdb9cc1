"""Jobs on this machine, as many at once as there are slots."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Final, Self

from qrprof.planner.gate.environment import driver
from qrprof.planner.optimize.child import Stop
from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.planner.optimize.seat import LIMIT_S, Seat

CANCELLED: Final = "it was cancelled"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


class LocalPool:
    """An Evaluator (records.py), to be closed: its processes live on from job to job.

    Several slots share the visible GPUs evenly. On one device they start and compile side by side and measure one at a
    time; on a CPU they wait with everything. `unsandboxed`: candidates also run where nothing can contain them. `say`
    is told once that another program holds a device.
    """

    def __init__(
        self,
        slots: int = 1,
        *,
        unsandboxed: bool = False,
        say: Callable[[str], None] = lambda text: None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.slots = slots
        self.cancelled = Event()
        self.say = once(say)
        self.seats = [Seat(unsandboxed, self.waiting, gpu, limit_s) for gpu in gpus(slots, os.environ)]
        self.free = SimpleQueue[Seat]()
        for seat in self.seats:
            self.free.put(seat)

    def evaluate(self, jobs: Sequence[Job]) -> list[Evaluation]:
        """All jobs, in their order. Raises QrprofError as Seat.evaluate does."""
        self.cancelled.clear()
        one = partial(self.evaluated, stop=lambda: CANCELLED if self.cancelled.is_set() else None)
        with ThreadPoolExecutor(self.slots) as threads:
            try:
                return list(threads.map(one, jobs))
            except BaseException:
                self.cancel()
                raise

    def evaluated(self, job: Job, stop: Stop) -> Evaluation:
        """One job, on the next free seat."""
        seat = self.free.get()
        try:
            return seat.evaluate(job, stop)
        finally:
            self.free.put(seat)

    def waiting(self, device: str) -> None:
        if self.free.qsize() == self.slots - 1:  # else it may be waiting for another of this pool
            self.say(f"another optimizer measures on {device}: this one waits its turn")

    def cancel(self) -> None:
        """End what runs within a second; it comes back as `lost`, and so does what waits."""
        self.cancelled.set()

    def rest(self) -> None:
        """The processes that have no job end; others are started with the next one."""
        for _ in self.seats:
            with suppress(Empty):
                seat = self.free.get_nowait()
                seat.end()
                self.free.put(seat)

    def close(self) -> None:
        """Nothing of it runs any more when this returns."""
        for seat in self.seats:
            seat.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def gpus(slots: int, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The changes of the environment by which each slot sees one GPU; slots in excess share them, in turn."""
    if slots == 1:
        return [{}]
    named = environ.get(VISIBLE)
    names = [str(gpu) for gpu in range(gpu_count())] if named is None else [one for one in named.split(",") if one]
    return [{VISIBLE: names[slot % len(names)]} if names else {} for slot in range(slots)]


def gpu_count() -> int:
    """Of the machine, asked without torch."""
    import pynvml

    with driver(pynvml) as there:
        return int(pynvml.nvmlDeviceGetCount()) if there else 0


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    told, lock = set[str](), Lock()

    def first(text: str) -> None:
        with lock:
            new = text not in told
            told.add(text)
        if new:
            tell(text)

    return first
