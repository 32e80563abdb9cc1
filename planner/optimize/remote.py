"""A job on a worker of a dask cluster: what crosses is text, and the names of this module's functions."""

import json
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from qrprof.planner.optimize.pool import CANCELLED, LocalPool
from qrprof.planner.optimize.records import Evaluation
from qrprof.planner.optimize.wire import answer_text, job_in

if TYPE_CHECKING:
    from distributed import Worker

GPU: Final = "GPU"  # the resource of which a job on a GPU takes one, where the cluster has it
STARTS: Final = 2  # of one job: what a lost worker held is tried elsewhere, once
pools: Final[dict[bool, LocalPool]] = {}  # of this worker, by `unsandboxed`: their processes live on from job to job
making: Final = Lock()


@dataclass(frozen=True)
class Order:
    job: str
    flag: str  # name of the event that cancels it
    starts: str  # name of the queue in which each worker that starts it writes its address
    unsandboxed: bool

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


def evaluated(order: str) -> str:
    """The answer to an order, both as text."""
    return answer_text(carried_out, order)


def carried_out(text: str) -> Evaluation:
    """Raises QrprofError as LocalPool does."""
    from distributed import Event, Queue, get_client, get_worker

    worker, client, order = get_worker(), get_client(), Order(**json.loads(text))
    job, flag, starts = job_in(order.job), Event(order.flag, client), Queue(order.starts, client)
    starts.put(worker.address)
    if starts.qsize() > STARTS:
        gone = " and ".join(starts.get(batch=STARTS))
        return Evaluation(job, 0.0, gone, job.task.device, lost=f"workers {gone} were lost while they had it")
    key = worker.get_current_task()

    def stop() -> str | None:
        return CANCELLED if flag.is_set() or forgotten(worker, key) else None

    found = pool_of(worker, order.unsandboxed).evaluated(job, stop)
    starts.close()
    return replace(found, host=f"{found.host} {worker.address}")


def forgotten(worker: "Worker", key: Any) -> bool:
    """Whether nobody waits for this task any more: its client is gone."""
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"


def pool_of(worker: "Worker", unsandboxed: bool) -> LocalPool:
    """With a seat for each GPU that the worker says it has, else for each task that it runs at once."""
    seats = int(worker.state.total_resources.get(GPU, 0)) or worker.state.nthreads
    with making:
        if unsandboxed not in pools:
            pools[unsandboxed] = LocalPool(seats, unsandboxed=unsandboxed)
        return pools[unsandboxed]


def release() -> None:
    """End the processes that wait for another job: they hold memory, also the GPU's."""
    for pool in pools.values():
        pool.rest()
