"""Jobs on the hosts of a dask cluster. Jobs and answers cross as JSON text; dask is imported only when used.

A worker evaluates a job as this machine would: in a child process, which ends with it. What a lost worker held dask
runs elsewhere; the second loss is the last. Dask cannot stop a task that runs: it polls a flag of the cluster.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, wait
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from qrprof import __version__
from qrprof.planner.optimize.pool import CANCELLED
from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.planner.optimize.remote import GPU, Order, evaluated, release
from qrprof.planner.optimize.wire import evaluation_in, job_text
from qrprof.profiler.errors import Exit, QrprofError

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S: Final = 10
LOOK_S: Final = 0.2  # between two looks at the jobs
END_S: Final = 5.0  # until cancelled jobs have ended
ALONE_S: Final = 30.0  # without a worker, after which jobs are lost
VERSION: Final = "__import__('qrprof').__version__"
FOREIGN: Final = (ImportError, AttributeError, RuntimeError)  # a scheduler that cannot read what it is sent


class ClusterPool:
    """An Evaluator (records.py) on the cluster whose scheduler has this address, to be closed.

    `unsandboxed`: candidates also run where nothing can contain them. Raises QrprofError where dask.distributed is not
    installed (exit code 2), nobody answers there, or it has no workers.
    """

    def __init__(self, address: str, *, unsandboxed: bool = False) -> None:
        self.address = address
        self.unsandboxed = unsandboxed
        self.cancelled = Event()
        self.known = set[str]()  # workers that have this qrprof
        self.client = connected(address)
        self.slots = slots_of(list(self.workers().values()))
        if not self.slots:
            self.client.close()
            raise QrprofError(f"no workers at {address}; start some: `dask worker {address} --resources GPU=1`")

    def evaluate(self, jobs: Sequence[Job]) -> list[Evaluation]:
        """All jobs, in their order. Raises QrprofError for what a person has to mend, as LocalPool does."""
        from distributed import Event as Flag

        if not self.connected:
            raise QrprofError(f"the dask scheduler at {self.address} is gone; start it again")
        self.check()
        self.cancelled.clear()
        flag, start = Flag(f"qrprof-{uuid4().hex}", self.client), time.monotonic()
        executor = self.client.get_executor(pure=False)
        try:
            futures = [self.submitted(executor, job, flag.name, number) for number, job in enumerate(jobs)]
            why = self.waited_for(futures)
            if why:
                flag.set()
                wait(futures, END_S)
        except BaseException:
            flag.set()
            raise
        finally:
            executor.shutdown(wait=False)
        seconds = time.monotonic() - start
        return [self.taken(job, future, why, seconds) for job, future in zip(jobs, futures, strict=True)]

    def submitted(self, executor: Any, job: Job, flag: str, number: int) -> "Future[str]":
        order = Order(job_text(job), flag, f"{flag}-{number}", self.unsandboxed)
        gpus = job.task.device == "cuda" and any(GPU in worker["resources"] for worker in self.workers().values())
        future: Future[str] = executor.submit(evaluated, order.text, resources={GPU: 1} if gpus else None)
        return future

    def waited_for(self, futures: Sequence["Future[str]"]) -> str | None:
        """None: all have ended; else why there is no use in waiting for the others."""
        seen = time.monotonic()
        while wait(futures, LOOK_S).not_done:
            if self.cancelled.is_set():
                return CANCELLED
            if self.workers():
                seen = time.monotonic()
            elif time.monotonic() - seen > ALONE_S:
                return f"no worker is left at {self.address}"
        return None

    def taken(self, job: Job, future: "Future[str]", why: str | None, seconds: float) -> Evaluation:
        error = future.exception() if future.done() and not future.cancelled() else CancelledError()
        if error is None:
            return evaluation_in(future.result())
        if isinstance(error, FOREIGN):
            raise QrprofError(f"cannot evaluate at {self.address} ({error}); install this qrprof on all of its hosts")
        lost = why or f"the cluster let go of it ({error!r})"
        return Evaluation(job, seconds, self.address, job.task.device, lost=lost)

    def check(self) -> None:
        """A worker ends that is sent what it cannot read. Raises QrprofError where one has no qrprof, or another."""
        new = [address for address in self.workers() if address not in self.known]
        versions = self.client.run(eval, VERSION, workers=new, on_error="return") if new else {}
        for address, version in versions.items():
            if version != __version__:
                raise QrprofError(
                    f"worker {address} does not have qrprof {__version__} ({version}); install the same on all hosts"
                )
        self.known.update(new)

    def workers(self) -> dict[str, dict[str, Any]]:
        """By address."""
        try:
            return dict(self.client.scheduler_info(n_workers=-1)["workers"])
        except OSError:  # the scheduler is gone: its jobs will be, too
            return {}

    def cancel(self) -> None:
        """End what runs within a second or so; it comes back as `lost`, and so does what waits."""
        self.cancelled.set()

    def close(self) -> None:
        """The workers keep no process for this any more."""
        if self.connected:
            self.client.run(release, workers=[one for one in self.workers() if one in self.known], on_error="ignore")
        self.client.close()

    @property
    def connected(self) -> bool:
        return bool(self.client.status == "running")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connected(address: str) -> "Client":
    try:
        from distributed import Client
    except ImportError:
        raise QrprofError("a cluster needs dask.distributed; `pip install 'qrprof[cluster]'`", Exit.USAGE) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost worker is an answer here, not a traceback
    try:
        return Client(address, timeout=CONNECT_S, set_as_default=False, name="qrprof")
    except (OSError, ValueError) as error:
        raise QrprofError(f"no dask scheduler at {address} ({error}); start one with `dask scheduler`") from None


def slots_of(workers: Sequence[dict[str, Any]]) -> int:
    """One for each GPU; where no worker says that it has any, one for each host."""
    gpus = sum(int(worker["resources"].get(GPU, 0)) for worker in workers)
    return gpus or len({worker["host"] for worker in workers})
