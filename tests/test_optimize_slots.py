"""Slots: one holder at a time, also among processes, and none once the holder is gone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qrprof.planner.optimize.slots import held, slot_of
from qrprof.profiler.errors import QrprofError

HOLDER = """
import contextlib, sys
from qrprof.planner.optimize.slots import held
with held(sys.argv[1], contextlib.nullcontext):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@contextmanager
def holder(slot: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process, which holds the slot until it reads a line, or is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, slot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@contextmanager
def never() -> Iterator[None]:
    pytest.fail("it had to wait")
    yield


def released_by(process: "subprocess.Popen[str]", waits: list[str], *, killed: bool) -> Iterator[None]:
    waits.append("begun")
    if killed:
        process.kill()
    else:
        process.communicate("\n")
    yield
    waits.append("over")


@pytest.mark.parametrize("killed", [False, True])
def test_a_slot_is_waited_for_until_its_holder_lets_go_or_is_gone(killed: bool) -> None:
    waits: list[str] = []
    with holder("GPU-1") as process:
        waiting = contextmanager(lambda: released_by(process, waits, killed=killed))
        with held("GPU-1", waiting):
            assert waits == ["begun", "over"]


def test_a_free_slot_is_not_waited_for_nor_that_of_another_device() -> None:
    with holder("GPU-1"), held("GPU-2", never), held(slot_of({}), never):
        pass
    with held("GPU-1", never):
        pass


def test_a_slot_is_free_after_an_error() -> None:
    with pytest.raises(ValueError, match="measured nothing"), held("GPU-1", never):
        raise ValueError("measured nothing")
    with held("GPU-1", never):
        pass


def test_where_there_can_be_no_lock(cache: Path) -> None:
    cache.write_text("not a folder")
    with (
        pytest.raises(QrprofError, match=r"cannot lock .*GPU-1\.lock: .*; make it writable") as raised,
        held("GPU-1", never),
    ):
        pass
    assert "\n" not in str(raised.value)
