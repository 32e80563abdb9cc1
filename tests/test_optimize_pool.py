"""Jobs on this machine: their order, what is tried again and what is lost, and that nothing is left running.

Most of it is seen with a stand-in for the process that evaluates: the gate has tests of its own.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import psutil
import pytest
from conftest import heeded
from optimize_jobs import STAND_IN, job

from qrprof.planner.optimize import child
from qrprof.planner.optimize import pool as pool_module
from qrprof.planner.optimize.child import WAITING, started_in
from qrprof.planner.optimize.pool import LocalPool, gpus
from qrprof.planner.optimize.records import Evaluation
from qrprof.profiler.errors import Exit, QrprofError

ANSWER = "request.answer()"
CRASH = "import os; print('about to end'); os.abort()"
HANG = "import time; time.sleep(100)"
PARTS = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "COMMAND", STAND_IN)


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    with LocalPool() as made:
        yield made


def evaluate(pool: LocalPool, *sources: str) -> list[Evaluation]:
    return pool.evaluate([job(source) for source in sources])


def only(pool: LocalPool, source: str) -> Evaluation:
    (found,) = evaluate(pool, source)
    return found


def counted(folder: Path) -> str:
    """Source that leaves a file in `folder` each time it is run, and knows `count`, how often that was before."""
    return f"""
import os, pathlib
seen = pathlib.Path({str(folder)!r})
count = len(list(seen.glob("run-*")))
(seen / f"run-{{count}}").touch()
"""


# --- answers


def test_evaluations_come_in_the_order_of_the_jobs() -> None:
    jobs = [job(f"import time; time.sleep({pause}); {ANSWER}") for pause in (0.6, 0.3, 0.0)]
    with LocalPool(3) as pool:
        found = pool.evaluate(jobs)
    assert [one.job for one in found] == jobs
    assert len({one.host for one in found}) == 3
    assert [one.lost for one in found] == [None] * 3


def test_one_process_evaluates_one_job_after_the_other(pool: LocalPool) -> None:
    hosts = {one.host for _ in range(2) for one in evaluate(pool, ANSWER, ANSWER)}
    assert len(hosts) == 1


def test_what_a_person_has_to_mend_is_an_error(pool: LocalPool) -> None:
    with pytest.raises(QrprofError, match="no such device") as raised:
        evaluate(pool, "request.refuse('no such device')")
    assert raised.value.exit_code == Exit.NO_DEVICE
    assert only(pool, ANSWER).lost is None


def test_an_error_of_one_job_ends_the_others() -> None:
    with LocalPool(2) as pool, pytest.raises(QrprofError, match="no such device"):
        evaluate(pool, "request.refuse('no such device')", HANG)


# --- crashes


def test_a_job_whose_process_crashes_is_tried_once_more(pool: LocalPool, tmp_path: Path) -> None:
    found = only(pool, f"{counted(tmp_path)}\nif count == 0: os.abort()\n{ANSWER}")
    assert found.lost is None
    assert len(list(tmp_path.iterdir())) == 2


def test_a_job_whose_process_crashes_twice_is_lost_and_the_next_is_not(pool: LocalPool, tmp_path: Path) -> None:
    lost, kept = evaluate(pool, f"{counted(tmp_path)}\n{CRASH}", ANSWER)
    assert lost.lost == "its process ended with exit code -6; the last it printed: about to end"
    assert lost.outcome == "INFRA"
    assert len(list(tmp_path.iterdir())) == 2
    assert kept.lost is None


def test_a_process_that_ended_between_two_jobs_costs_none(pool: LocalPool, tmp_path: Path) -> None:
    first = only(pool, ANSWER)
    psutil.Process(int(first.host)).kill()
    again = only(pool, f"{counted(tmp_path)}\n{ANSWER}")
    assert again.lost is None
    assert again.host != first.host
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_that_cannot_be_started_leaves_no_file(
    pool: LocalPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "COMMAND", (str(tmp_path / "nothing"),))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(QrprofError, match="cannot start a process for jobs"):
        evaluate(pool, ANSWER)
    assert list(tmp_path.iterdir()) == []


# --- the end


def test_a_job_that_takes_too_long_is_lost_and_not_tried_again(tmp_path: Path) -> None:
    with LocalPool(limit_s=1.0) as pool:
        found = only(pool, f"{counted(tmp_path)}\n{HANG}")
        assert found.lost == "it took longer than 1 s"
        assert len(list(tmp_path.iterdir())) == 1
        assert only(pool, ANSWER).lost is None


def test_the_time_of_a_job_begins_when_it_has_its_slot() -> None:
    waits = f"(request.folder / {WAITING!r}).write_text('a device')\nimport time; time.sleep(2)\n"
    with LocalPool(limit_s=1.0) as pool:
        assert only(pool, f"{waits}(request.folder / {WAITING!r}).unlink()\n{ANSWER}").lost is None


def test_cancelled_jobs_are_lost_also_those_that_wait_and_the_pool_can_go_on() -> None:
    with LocalPool(2) as pool:
        Timer(0.5, pool.cancel).start()
        assert [one.lost for one in evaluate(pool, HANG, HANG, HANG)] == ["it was cancelled"] * 3
        assert only(pool, ANSWER).lost is None


def test_an_interrupted_pool_ends_its_jobs(pool: LocalPool) -> None:
    with heeded(signal.SIGINT, signal.default_int_handler):
        Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            evaluate(pool, HANG, HANG)
    assert pool.seats[0].child is None
    assert only(pool, ANSWER).lost is None


def test_nothing_is_left_of_a_process_not_even_what_left_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "END_S", 0.1)
    with LocalPool() as pool:
        only(pool, f"{PARTS}\n{ANSWER}")
        assert pool.seats[0].child is not None
        folder = pool.seats[0].child.folder
        assert len(started_in(folder)) == 2
    assert started_in(folder) == []
    assert not folder.exists()


def test_a_pool_at_rest_has_no_process_and_starts_one_for_the_next_job(pool: LocalPool) -> None:
    first = only(pool, ANSWER)
    pool.rest()
    assert not psutil.pid_exists(int(first.host))
    assert only(pool, ANSWER).host != first.host


# --- devices


@pytest.mark.parametrize(
    ("slots", "visible", "expected"),
    [
        (1, None, [None]),
        (1, "2", [None]),
        (2, "4,5,6", ["4", "5"]),
        (3, "GPU-a,GPU-b", ["GPU-a", "GPU-b", "GPU-a"]),
        (2, None, ["0", "1"]),
        (3, None, ["0", "1", "0"]),
        (2, "", [None, None]),
    ],
)
def test_slots_share_the_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, slots: int, visible: str | None, expected: list[str | None]
) -> None:
    monkeypatch.setattr(pool_module, "gpu_count", lambda: 2)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [changes.get("CUDA_VISIBLE_DEVICES") for changes in gpus(slots, environ)] == expected


def test_where_there_is_no_gpu_slots_see_what_the_program_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "gpu_count", lambda: 0)
    assert gpus(2, {}) == [{}, {}]


def test_that_another_program_has_the_device_is_said_once() -> None:
    said: list[str] = []
    waits = f"""
place = request.folder / {WAITING!r}
place.write_text('an H200')
import time
time.sleep(0.5)
place.unlink()
{ANSWER}
"""
    with LocalPool(say=said.append) as pool:
        evaluate(pool, waits, waits)
    assert said == ["another optimizer measures on an H200: this one waits its turn"]
