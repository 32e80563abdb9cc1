"""Jobs on a real dask cluster of this machine, with workers in processes of their own, some of which are killed.

But for the last test, workers have a stand-in for the process that evaluates a job.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from optimize_clusters import Cluster, started, until
from optimize_jobs import WRONG, job

from qrprof.planner.optimize import cluster as cluster_module
from qrprof.planner.optimize.child import started_in
from qrprof.planner.optimize.cluster import ClusterPool, slots_of
from qrprof.planner.optimize.records import Evaluation
from qrprof.planner.optimize.wire import job_text
from qrprof.profiler.errors import Exit, QrprofError

ANSWER = "request.answer()"
HANG = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(0.05)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of two workers, of which the second has a GPU."""
    with started(tmp_path_factory.mktemp("cluster")) as found:
        found.worker()
        found.worker("--resources", "GPU=1")
        yield found


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[ClusterPool]:
    with cluster.pool() as found:
        yield found


def lost(found: Sequence[Evaluation]) -> list[str | None]:
    return [one.lost for one in found]


def address(found: Evaluation) -> str:
    """Of the worker."""
    return found.host.split()[1]


# --- answers


def test_jobs_run_side_by_side_on_all_workers_and_name_them(pool: ClusterPool, tmp_path: Path) -> None:
    meets = f"""
import pathlib, os, time
here = pathlib.Path({str(tmp_path)!r})
(here / str(os.getpid())).touch()
while len(list(here.iterdir())) < 2: time.sleep(0.05)
{ANSWER}
"""
    jobs = [job(meets), job(f"\n{meets}")]
    found = pool.evaluate(jobs)
    assert [one.job for one in found] == jobs
    assert lost(found) == [None, None]
    assert len({address(one) for one in found}) == 2


def test_a_job_on_a_gpu_goes_where_one_is(pool: ClusterPool) -> None:
    one = job(ANSWER)
    found = pool.evaluate([replace(one, task=replace(one.task, device="cuda"))] * 3)
    (place,) = {address(one) for one in found}
    assert pool.client.scheduler_info(n_workers=-1)["workers"][place]["resources"] == {"GPU": 1}
    assert pool.slots == 1


def test_jobs_of_a_worker_of_two_gpus_have_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job waits for two others, which run one after the other on the other GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen = tmp_path / "seen"
    seen.mkdir()
    leaves = "import os, pathlib, time\nhere = pathlib.Path({!r})\n(here / ({!r} + os.environ[{!r}])).touch()\n"
    waits = "while len(list(here.iterdir())) < 3: time.sleep(0.05)\n"
    sources = [leaves.format(str(seen), f"{n} ", "CUDA_VISIBLE_DEVICES") for n in ("first", "second", "third")]
    jobs = [job(source + (waits if source is sources[0] else "") + ANSWER) for source in sources]
    with started(tmp_path) as cluster:
        cluster.worker("--nthreads", "8", "--resources", "GPU=2")
        with cluster.pool() as pool:
            found = pool.evaluate([replace(one, task=replace(one.task, device="cuda")) for one in jobs])
            assert pool.slots == 2
    assert lost(found) == [None] * 3
    gpus = dict(path.name.split() for path in seen.iterdir())
    assert gpus["second"] == gpus["third"]
    assert {gpus["first"], gpus["second"]} == {"4", "7"}


def test_slots_are_gpus_or_hosts() -> None:
    plain: list[dict[str, Any]] = [{"host": host, "resources": {}} for host in ("a", "a", "b")]
    assert slots_of([]) == 0
    assert slots_of(plain) == 2
    assert slots_of([*plain, {"host": "c", "resources": {"GPU": 4.0}}, {"host": "d", "resources": {"GPU": 1.0}}]) == 5


def test_what_a_person_has_to_mend_is_an_error(pool: ClusterPool) -> None:
    with pytest.raises(QrprofError, match="no such device") as raised:
        pool.evaluate([job("request.refuse('no such device')")])
    assert raised.value.exit_code == Exit.NO_DEVICE


def test_another_version_on_a_worker(pool: ClusterPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "__version__", "0.0.0")
    with pytest.raises(
        QrprofError, match=r"worker tcp://.* does not have qrprof 0\.0\.0 \(.*\); install the same on all"
    ):
        pool.evaluate([job(ANSWER)])


# --- the end of a job


def test_cancelled_jobs_are_lost_also_those_that_wait_and_the_pool_can_go_on(
    cluster: Cluster, pool: ClusterPool
) -> None:
    def cancel() -> None:
        until(lambda: cluster.children == 2)
        pool.cancel()

    thread = Thread(target=cancel)
    thread.start()
    assert lost(pool.evaluate([job(HANG)] * 3)) == ["it was cancelled"] * 3
    thread.join()
    until(lambda: cluster.children == 0)
    assert lost(pool.evaluate([job(ANSWER)] * 2)) == [None, None]


def test_a_killed_optimizer_leaves_no_process_on_a_worker(cluster: Cluster) -> None:
    script = f"""
from qrprof.planner.optimize.cluster import ClusterPool
from qrprof.planner.optimize.wire import job_in
ClusterPool({cluster.address!r}).evaluate([job_in({job_text(job(HANG))!r})])
"""
    with subprocess.Popen([sys.executable, "-c", script]) as optimizer:
        until(lambda: cluster.children == 1)
        optimizer.kill()
    until(lambda: cluster.children == 0)


def test_a_closed_pool_leaves_no_process_on_a_worker(cluster: Cluster) -> None:
    with cluster.pool() as pool:
        pool.evaluate([job(ANSWER)] * 2)
        assert cluster.children > 0
    assert cluster.children == 0


# --- lost workers


def hangs_first(folder: Path, times: int) -> str:
    """Source that hangs the first `times` that it is run, in each of which it leaves the worker's process id."""
    return f"""
import os, pathlib, time
here = pathlib.Path({str(folder)!r})
parent = os.getppid()
count = len(list(here.iterdir()))
(here / str(parent)).touch()
if count < {times}:
    while os.getppid() == parent: time.sleep(0.05)
{ANSWER}
"""


def kill_workers(folder: Path, times: int) -> Thread:
    """Kill each worker as its id comes into the folder, but no more than so many."""

    def run() -> None:
        killed = set[str]()
        while len(killed) < times:
            until(lambda: {path.name for path in folder.iterdir()} - killed)
            (name,) = {path.name for path in folder.iterdir()} - killed
            psutil.Process(int(name)).kill()
            killed.add(name)

    thread = Thread(target=run)
    thread.start()
    return thread


def test_a_killed_worker_s_job_is_evaluated_by_another(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    with started(tmp_path) as cluster, cluster.pool(2) as pool:
        killing = kill_workers(seen, 1)
        (found,) = pool.evaluate([job(hangs_first(seen, 1))])
        killing.join()
        (left,) = pool.client.scheduler_info(n_workers=-1)["workers"]
    assert found.lost is None
    assert address(found) == left
    assert len(list(seen.iterdir())) == 2


def test_a_job_whose_workers_are_killed_twice_is_lost(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    with started(tmp_path) as cluster, cluster.pool(3) as pool:
        workers = set(pool.client.scheduler_info(n_workers=-1)["workers"])
        killing = kill_workers(seen, 2)
        (found,) = pool.evaluate([job(hangs_first(seen, 2))])
        killing.join()
        gone = workers - set(pool.client.scheduler_info(n_workers=-1)["workers"])
    assert len(gone) == 2
    assert found.lost is not None
    assert all(worker in found.lost for worker in gone)
    assert len(list(seen.iterdir())) == 2


@pytest.mark.slow
def test_jobs_are_lost_where_no_worker_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ALONE_S", 1.0)
    seen = tmp_path / "seen"
    seen.mkdir()
    with started(tmp_path) as cluster, cluster.pool(1) as pool:
        killing = kill_workers(seen, 1)
        assert lost(pool.evaluate([job(hangs_first(seen, 1))])) == [f"no worker is left at {cluster.address}"]
        killing.join()


def test_a_scheduler_that_is_gone(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    with started(tmp_path) as cluster, cluster.pool(1) as pool:

        def kill() -> None:
            until(lambda: list(seen.iterdir()))
            cluster.processes[0].kill()

        thread = Thread(target=kill)
        thread.start()
        (why,) = lost(pool.evaluate([job(hangs_first(seen, 1))]))
        thread.join()
        assert why is not None
        assert "the cluster let go of it" in why
        with pytest.raises(QrprofError, match=f"the dask scheduler at {pool.address} is gone"):
            pool.evaluate([job(ANSWER)])


# --- no cluster


@pytest.mark.parametrize("where", ["scheduler", "worker"])
def test_a_host_without_qrprof(tmp_path: Path, where: str) -> None:
    hidden = tmp_path / "hidden.py"
    hidden.write_text("import sys\nsys.modules['qrprof'] = sys.modules['qrprof.planner.optimize.remote'] = None\n")
    options = {where: ("--preload", str(hidden))}
    with started(tmp_path, *options.get("scheduler", ())) as cluster:
        worker = cluster.worker(*options.get("worker", ()))
        with cluster.pool() as pool, pytest.raises(QrprofError, match=r"install .* on all .*hosts"):
            pool.evaluate([job(ANSWER)])
        assert worker.poll() is None


def test_a_scheduler_without_workers(tmp_path: Path) -> None:
    with started(tmp_path) as cluster, pytest.raises(QrprofError, match=r"no workers at tcp:.*; start some: `dask"):
        ClusterPool(cluster.address)


@pytest.mark.parametrize("place", ["tcp://127.0.0.1:1", "nonsense://1", ""])
def test_no_scheduler(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_S", 1)
    with pytest.raises(QrprofError, match="no dask scheduler at ") as raised:
        ClusterPool(place)
    assert "\n" not in str(raised.value)


def test_dask_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(QrprofError, match=r"pip install 'qrprof\[cluster\]'") as raised:
        ClusterPool("tcp://127.0.0.1:1")
    assert raised.value.exit_code == Exit.USAGE


def test_dask_and_torch_are_imported_only_when_used() -> None:
    script = "import sys, qrprof.planner.optimize.cluster as c, qrprof.planner.optimize.pool; c.ClusterPool\n"
    script += "print({'distributed', 'dask', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


# --- the real process


@pytest.mark.slow
def test_a_real_job_on_a_worker_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, real=True) as cluster, cluster.pool(2) as pool:

        def kill() -> None:
            until(lambda: cluster.children == 1)
            (worker,) = [one for one in cluster.processes[1:] if psutil.Process(one.pid).children()]
            until(lambda: len(started_in(tmp_path)) >= 3 + 3)  # the cluster, a job, a keeper and a candidate
            worker.kill()

        thread = Thread(target=kill)
        thread.start()
        (found,) = pool.evaluate([job(f"import time\ntime.sleep(3)\n{WRONG}")])
        thread.join()
        assert found.outcome == "FAIL"
        assert found.lost is None
        assert found.device == "cpu"
        assert address(found) in pool.client.scheduler_info(n_workers=-1)["workers"]
        pool.close()
        until(lambda: len(started_in(tmp_path)) == 2)
