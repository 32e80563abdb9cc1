"""One job after the other, in a process that lives on, and is started anew after a crash."""

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from qrprof.planner.optimize.child import Child, Crashed, Stop, Stopped
from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.planner.optimize.wire import evaluation_in, job_text
from qrprof.profiler.errors import QrprofError

LIMIT_S: Final = 1800.0  # of one job, once it has its slot
TRIES: Final = 2  # of a job whose process crashes


@dataclass
class Seat:
    unsandboxed: bool  # candidates also run where nothing can contain them
    waiting: Callable[[str], None] = lambda device: None  # called where somebody else holds the slot of a device
    changes: Mapping[str, str] = field(default_factory=dict)  # of the process's environment
    limit_s: float = LIMIT_S
    child: Child | None = None

    def evaluate(self, job: Job, stop: Stop) -> Evaluation:
        """What took too long, was stopped, or crashed twice comes back as `lost`.

        Raises QrprofError for what a person has to mend: the task's device is not here, nothing can contain a
        candidate, no process can be started.
        """
        start = time.monotonic()
        for _ in range(TRIES):
            try:
                return self.evaluated(job, stop)
            except Crashed as crashed:
                why = str(crashed)
            except Stopped as stopped:
                why = str(stopped)
                break
        return Evaluation(job, time.monotonic() - start, platform.node(), job.task.device, lost=why)

    def evaluated(self, job: Job, stop: Stop) -> Evaluation:
        if why := stop():
            raise Stopped(why)
        try:
            child = self.child_for(job.task.device)
            return evaluation_in(child.evaluate(job_text(job), stop, self.limit_s, self.waiting))
        except BaseException:
            self.end()
            raise

    def child_for(self, device: str) -> Child:
        if self.child is not None and (self.child.device != device or self.child.process.poll() is not None):
            self.end()
        if self.child is None:
            try:
                self.child = Child(device, self.unsandboxed, self.changes)
            except OSError as error:
                raise QrprofError(f"cannot start a process for jobs: {error.strerror}; make room") from None
        return self.child

    def end(self) -> None:
        """Nothing of it runs any more."""
        if self.child is not None:
            self.child.end()
            self.child = None
