"""A real dask cluster on this machine, with workers in processes of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from optimize_jobs import STAND_IN

from qrprof.planner.optimize.cluster import ClusterPool


@dataclass
class Cluster:
    """A scheduler and workers as a person would start them, with their temporary files in `folder`."""

    folder: Path
    real: bool = False
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def start(self, program: str, *options: str) -> "subprocess.Popen[bytes]":
        options = ("--scheduler-file", str(self.file), "--no-dashboard", *options)
        with (self.folder / "printed").open("ab") as printed:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{program}", *options],
                env=os.environ | {"TMPDIR": str(self.folder), "QRPROF_CACHE": str(self.folder / "cache")},
                cwd=self.folder,
                stdout=printed,
                stderr=printed,
            )
        self.processes.append(process)
        return process

    def worker(self, *options: str) -> "subprocess.Popen[bytes]":
        preload = self.folder / "stand_in.py"
        preload.write_text(f"from qrprof.planner.optimize import child\nchild.COMMAND = {STAND_IN!r}\n")
        stands = () if self.real else ("--preload", str(preload))
        return self.start("dask_worker", "--no-nanny", "--nthreads", "1", *stands, *options)

    def pool(self, workers: int = 0) -> ClusterPool:
        """Of the cluster, once it has this many more workers."""
        from distributed import Client

        for _ in range(workers):
            self.worker()
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.processes) - 1, timeout=60)
        return ClusterPool(self.address)

    @property
    def children(self) -> int:
        """Processes of jobs."""
        workers = [psutil.Process(process.pid) for process in self.processes]
        return sum(len(worker.children()) for worker in workers)


@contextmanager
def started(folder: Path, *options: str, real: bool = False) -> Iterator[Cluster]:
    cluster = Cluster(folder, real)
    cluster.start("dask_scheduler", "--port", "0", "--host", "127.0.0.1", *options)
    try:
        until(cluster.file.exists)
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.kill()
            process.wait()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
