"""Candidates evaluated on the workers of a dask cluster: by one, by two, and while one of the two is killed.

python benchmarks/pool.py --json benchmarks/results/cpu-pool.json

Each worker is a process with a GPU of its own where there are two, else both share the CPU, on which they measure one
after the other. Needs qrprof[cluster].
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import psutil
import torch

from qrprof.planner.gate.records import ArgSpec, Domain, Task, TaskCase, Tolerance
from qrprof.planner.optimize.cluster import ClusterPool
from qrprof.planner.optimize.records import Evaluation, Job

CANDIDATE = "def candidate(a, b):\n    return a @ b  # {}\n"
JOBS = 4
INTO_S = 2.0  # a job, when its worker is killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    gpus = torch.cuda.device_count() >= 2
    jobs = [Job(task("cuda" if gpus else "cpu"), CANDIDATE.format(n), None, "preview", n + 1) for n in range(JOBS)]
    load = os.getloadavg()[0]
    with cluster() as (file, processes):
        first = worker(file, processes, gpu=0 if gpus else None)
        one = evaluated("one worker", file, 1, jobs)
        worker(file, processes, gpu=1 if gpus else None)
        both = evaluated("two workers", file, 2, jobs)
        killing = Thread(target=kill_at_work, args=[first])
        killing.start()
        rest = evaluated("one of two is killed", file, 2, jobs)
        killing.join()
    record = {
        "schema": 1,
        "device": torch.cuda.get_device_name() if gpus else f"CPU, {os.cpu_count()} cores",
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "date": datetime.now(UTC).date().isoformat(),
        "load_at_start": load,
        "jobs": JOBS,
        "cases": [one, both, rest],
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n")


def task(device: Any) -> Task:
    case = TaskCase("512", 1.0, (ArgSpec((512, 512), "float32"), ArgSpec((512, 512), "float32")))
    return Task("mm", "mm", device, (case,), Domain(), "relative", Tolerance(), "built in")


@contextmanager
def cluster() -> Iterator[tuple[Path, list["subprocess.Popen[bytes]"]]]:
    """A scheduler: the file that names it, and the processes that end with it."""
    with TemporaryDirectory() as folder:
        file, processes = Path(folder, "scheduler.json"), list["subprocess.Popen[bytes]"]()
        processes.append(started("dask_scheduler", file, "--port", "0", "--host", "127.0.0.1"))
        try:
            while not file.exists():
                time.sleep(0.1)
            yield file, processes
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()


def worker(file: Path, processes: list["subprocess.Popen[bytes]"], gpu: int | None) -> "subprocess.Popen[bytes]":
    options = ("--no-nanny", "--nthreads", "1", *(() if gpu is None else ("--resources", "GPU=1")))
    processes.append(
        started("dask_worker", file, *options, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}))
    )
    return processes[-1]


def started(program: str, file: Path, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(file), "--no-dashboard"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [*command, *options], env=os.environ | environment, cwd=file.parent, stdout=quiet, stderr=quiet
    )


def evaluated(case: str, file: Path, workers: int, jobs: Sequence[Job]) -> dict[str, Any]:
    from distributed import Client

    address = json.loads(file.read_text())["address"]
    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=120)
    with ClusterPool(address, unsandboxed=True) as pool:
        begin = time.monotonic()
        found = pool.evaluate(jobs)
        seconds = time.monotonic() - begin
    print(f"{case}: {len(jobs)} jobs in {seconds:.1f} s")
    for one in found:
        print(
            f"  {one.outcome} in {one.seconds:.1f} s on {one.device} of {one.host}"
            + (f": {one.lost}" if one.lost else "")
        )
    return {"case": case, "seconds": seconds, "evaluations": [kept(one) for one in found]}


def kept(found: Evaluation) -> dict[str, Any]:
    worker = found.host.split()[-1]
    return {
        "outcome": found.outcome,
        "seconds": found.seconds,
        "device": found.device,
        "worker": worker,
        "lost": found.lost,
    }


def kill_at_work(process: "subprocess.Popen[bytes]") -> None:
    known = psutil.Process(process.pid)
    while not known.children():
        time.sleep(0.1)
    time.sleep(INTO_S)
    process.kill()


if __name__ == "__main__":
    main()
