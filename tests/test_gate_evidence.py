"""Verdicts in the ledger, whole or not at all; the queries of a holdout; and the machine that a verdict is of."""

import math
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.planner import ledger
from qrprof.planner.gate import environment
from qrprof.planner.gate.environment import around, machine, moved, nvml, remarks, state, stays
from qrprof.planner.gate.evidence import Spent, Spread, count_holdout, find, keep, listed, made, spent, spread
from qrprof.planner.gate.records import (
    DETECTORS,
    STAGES,
    CaseTime,
    Finding,
    Interval,
    Outcome,
    StageCost,
    Verdict,
)
from qrprof.planner.ledger import MIGRATIONS, ledger_file, opened
from qrprof.planner.predictions import listed as predictions
from qrprof.profiler.errors import QrprofError

NOW = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)
PLAIN = Verdict("one", "qr-small", "ab" * 32, "PASS", (), (), (), "bubblewrap")
FIGURES = st.floats(min_value=0, allow_nan=False)
TEXTS = st.text(max_size=20)
INTERVALS = st.builds(Interval, FIGURES, FIGURES, FIGURES)
VERDICTS = st.builds(
    Verdict,
    id=TEXTS,
    task=TEXTS,
    candidate=TEXTS,
    outcome=st.sampled_from(["PASS", "FAIL", "UNKNOWN", "INFRA", "SUSPECT"]),
    findings=st.lists(
        st.builds(
            Finding,
            st.sampled_from(DETECTORS),
            st.sampled_from(["PASS", "FAIL"]),
            st.none() | TEXTS,
            TEXTS,
            st.sampled_from(STAGES),
        ),
        max_size=3,
    ).map(tuple),
    times=st.lists(
        st.builds(
            CaseTime,
            case=TEXTS,
            stock_ns=FIGURES,
            parent_ns=st.none() | FIGURES,
            candidate_ns=FIGURES,
            speedup=INTERVALS,
            calls=st.integers(1, 99),
            pairs=st.integers(1, 99),
            samples=st.dictionaries(
                st.sampled_from(["stock", "parent", "candidate"]), st.lists(FIGURES, max_size=3).map(tuple)
            ),
            peak_bytes=st.none() | st.integers(0, 1 << 40),
        ),
        max_size=3,
    ).map(tuple),
    costs=st.lists(
        st.builds(StageCost, st.sampled_from(STAGES), FIGURES, st.integers(0, 99), st.integers(0, 99)), max_size=9
    ).map(tuple),
    layer=TEXTS,
    environment=st.dictionaries(TEXTS, TEXTS, max_size=3),
    holdout_queries=st.integers(0, 3),
    tries=st.integers(1, 999),
    skipped=st.lists(TEXTS, max_size=2).map(tuple),
    speedup=st.none() | INTERVALS,
    over_parent=st.none() | INTERVALS,
    noise=st.none() | FIGURES,
    needed=st.none() | FIGURES,
)
CHILD = """\
import sys, time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from qrprof.planner.gate.evidence import count_holdout, keep, made
from qrprof.planner.gate.records import Finding, Verdict
from qrprof.planner.ledger import opened

def say(*words):
    print(*words, flush=True)

now = datetime.now(UTC)
findings = (Finding("wrong", "FAIL", None, "x" * 100, "development"),) * 500  # a record of several pages
verdict = Verdict("", "qr-small", "ab" * 32, "FAIL", findings, (), (), "none")
"""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with opened(tmp_path) as connection:
        yield connection


def child(root: Path, body: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", CHILD + body], cwd=root, stdout=subprocess.PIPE, text=True)


def kept(connection: sqlite3.Connection, *outcomes: Outcome, task: str = "qr-small") -> None:
    for outcome in outcomes:
        name = f"{len(listed(connection)):03}"
        keep(connection, made(replace(PLAIN, id=name, task=task, outcome=outcome), "fast.py", None, NOW))


# --- verdicts


def test_every_verdict_comes_back_as_it_was(connection: sqlite3.Connection) -> None:
    numbers = count()

    @settings(max_examples=40)
    @given(VERDICTS, TEXTS, st.none() | TEXTS)
    def comes_back(verdict: Verdict, file: str, parent: str | None) -> None:
        verdict = replace(verdict, id=f"{next(numbers)} {verdict.id}")
        given = made(verdict, file, parent, NOW)
        keep(connection, given)
        found = find(connection, verdict.id)
        assert found == given
        assert found.verdict == verdict
        assert (found.made_at, found.file, found.parent) == ("2026-02-01T09:00:00+00:00", file, parent)

    comes_back()


def test_a_figure_that_is_no_number_stays_none(connection: sqlite3.Connection) -> None:
    interval = Interval(0.0, math.nan, math.inf)
    keep(connection, made(replace(PLAIN, speedup=interval, noise=math.nan), "fast.py", None, NOW))
    found = find(connection, "one").verdict
    assert found.speedup is not None
    assert (found.speedup.low, found.speedup.high) == (0.0, math.inf)
    assert math.isnan(found.speedup.mid)
    assert found.noise is not None
    assert math.isnan(found.noise)


def test_the_newest_is_listed_first(connection: sqlite3.Connection) -> None:
    keep(connection, made(PLAIN, "fast.py", None, NOW))
    timed = replace(PLAIN, id="two", outcome="FAIL", speedup=Interval(0.9, 1.0, 1.1), environment={"device": "x"})
    keep(connection, made(timed, "dir/other.py", "fast.py", NOW))
    found = listed(connection)
    assert [(one.id, one.file, one.outcome, one.speedup) for one in found] == [
        ("two", "dir/other.py", "FAIL", 1.0),
        ("one", "fast.py", "PASS", None),
    ]
    assert found[0].machine != found[1].machine


def test_one_machine_is_one_whatever_its_load(connection: sqlite3.Connection) -> None:
    for name, load in (("one", "0.1"), ("two", "7.0")):
        loaded = around({"torch": "2", "device": "x"}, {"load": load}, {"load": "9"})
        keep(connection, made(replace(PLAIN, id=name, environment=loaded), "fast.py", None, NOW))
    assert len({one.machine for one in listed(connection)}) == 1


def test_a_verdict_is_found_by_the_start_of_its_id(connection: sqlite3.Connection) -> None:
    for name in ("20260201-a", "20260201-ab", "20260202-c"):
        keep(connection, made(replace(PLAIN, id=name), "fast.py", None, NOW))
    assert find(connection, "20260202").verdict.id == "20260202-c"
    assert find(connection, "20260201-a").verdict.id == "20260201-a"
    with pytest.raises(QrprofError, match="'20260201' is the beginning of several; there are 20260201-a, 20260201-ab;"):
        find(connection, "20260201")
    with pytest.raises(QrprofError, match=r"'x' is unknown; there are 20260201-a, .*; list all with `qrprof verdict`"):
        find(connection, "x")


def test_no_verdicts_at_all(connection: sqlite3.Connection) -> None:
    assert listed(connection) == []
    with pytest.raises(QrprofError, match="'x' is unknown; there are none") as caught:
        find(connection, "x")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("record", ["{", "[]", '{"id": "one"}'])
def test_a_broken_record_is_one_sentence(connection: sqlite3.Connection, record: str) -> None:
    keep(connection, made(PLAIN, "fast.py", None, NOW))
    connection.execute("UPDATE verdicts SET record = ?", (record,))
    with pytest.raises(QrprofError, match=r"a broken verdict one \(.*\); move ledger.sqlite away") as caught:
        find(connection, "one")
    assert "\n" not in str(caught.value)
    assert [one.id for one in listed(connection)] == ["one"]


def test_a_ledger_of_the_version_before_is_brought_here_with_what_it_holds(tmp_path: Path) -> None:
    ledger_file(tmp_path).parent.mkdir()
    with closing(sqlite3.connect(ledger_file(tmp_path))) as old:
        for statement in MIGRATIONS[0]:
            old.execute(statement)
        old.execute("INSERT INTO predictions VALUES (1, 'r', '', 'rank', 'kept', 'CEILING', 10, 1, NULL, 10, 'd', 'v')")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    with opened(tmp_path) as connection:
        assert [one.prediction.scenario for one in predictions(connection)] == ["kept"]
        keep(connection, made(PLAIN, "fast.py", None, NOW))
        assert ledger.schema_of(connection) == ledger.SCHEMA > 1


# --- tries, and queries of the holdout


def test_a_lane_counts_what_was_judged_in_it(connection: sqlite3.Connection) -> None:
    assert spent(connection, "qr-small") == Spent(0, 0)
    kept(connection, "PASS", "FAIL", "SUSPECT", "UNKNOWN", "INFRA")  # the last judged nothing
    kept(connection, "FAIL", task="other")
    count_holdout(connection, "other", "ab" * 32, 3, NOW)
    assert spent(connection, "qr-small") == Spent(4, 0)
    assert spent(connection, "other") == Spent(1, 1)


def test_the_holdout_is_queried_so_often_and_no_more(connection: sqlite3.Connection) -> None:
    assert [count_holdout(connection, "qr-small", "ab" * 32, 3, NOW) for _ in range(5)] == [1, 2, 3, None, None]
    assert spent(connection, "qr-small").holdout_queries == 3


def test_processes_share_the_queries(tmp_path: Path) -> None:
    body = """
with opened(Path.cwd()) as connection:
    say(*[count_holdout(connection, "qr-small", "c", 7, now) for _ in range(5)])
"""
    children = [child(tmp_path, body) for _ in range(3)]
    answers = [word for process in children for word in process.communicate(timeout=120)[0].split()]
    assert sorted(answers) == sorted(["1", "2", "3", "4", "5", "6", "7", *["None"] * 8])


# --- killed


def test_a_gate_that_is_killed_in_the_holdout_has_used_its_query_and_has_no_verdict(tmp_path: Path) -> None:
    body = """
with opened(Path.cwd()) as connection:
    say(count_holdout(connection, "qr-small", "c", 3, now))
    time.sleep(600)
"""
    with child(tmp_path, body) as process:
        assert process.stdout
        assert process.stdout.readline() == "1\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    with opened(tmp_path) as connection:
        assert spent(connection, "qr-small") == Spent(0, 1)
        assert listed(connection) == []


@pytest.mark.parametrize("after", [1, 9])
def test_a_kill_leaves_whole_verdicts(tmp_path: Path, after: int) -> None:
    """Killed in the middle of a later write, which is there whole or not at all."""
    body = """
for n in range(1_000_000):
    with opened(Path.cwd()) as connection:
        keep(connection, made(replace(verdict, id=f"{n:09}"), "fast.py", None, now))
    say(n)
"""
    with child(tmp_path, body) as process:
        assert process.stdout
        committed = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        committed += [int(line) for line in process.stdout.read().splitlines()]
    with opened(tmp_path) as connection:
        found = listed(connection)
        assert len(found) - len(committed) in (0, 1)
        assert {f"{n:09}" for n in committed} <= {one.id for one in found}
        assert all(len(find(connection, one.id).verdict.findings) == 500 for one in found)


# --- figures


def test_percentiles() -> None:
    assert spread([]) is None
    assert spread([7.0]) == Spread(1, 7.0, 7.0, 7.0)
    assert spread([float(n) for n in range(101)]) == Spread(101, 50.0, 95.0, 99.0)


# --- the machine


def test_this_machine_says_what_it_is() -> None:
    found = machine("cpu")
    assert {"device", "threads", "cores", "system", "qrprof", "python", "torch"} <= set(found)
    assert all(found.values())
    assert float(state("cpu")["load"]) >= 0


def test_a_device_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for ask in (machine, state):
        with pytest.raises(QrprofError, match="sees no device 'cuda' here") as caught:
            ask("cuda")
        assert caught.value.exit_code == 3


NAMES = st.text(alphabet="abc ", min_size=1, max_size=5).map(str.strip)
TEXT_BY_NAME = st.dictionaries(NAMES, st.text(min_size=1, max_size=3), max_size=4)


@given(TEXT_BY_NAME, TEXT_BY_NAME, TEXT_BY_NAME)
def test_what_stays_and_what_moves_are_told_apart(
    fixed: dict[str, str], before: dict[str, str], after: dict[str, str]
) -> None:
    found = around(fixed, before, after)
    assert stays(found) == fixed
    assert moved(found) == {name: (before.get(name, ""), after.get(name, "")) for name in [*before, *after]}


QUIET = {"load": "0.30", "stolen": "1.0 s", "lower clock": "idle", "processes": "1", "cpu quota hit": "4 times"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {}, []),
        ({"load": "1.10"}, {}, ["load 1.1 on 2 cores at the start: other programs ran"]),
        ({}, {"load": "3.90"}, []),  # the gate's own
        ({}, {"load": "9.00"}, ["load 9.0 on 2 cores at the end: other programs ran"]),
        ({}, {"stolen": "4.5 s"}, ["the host gave 3.5 s of this machine's time to others"]),
        (
            {},
            {"lower clock": "heat (driver), power limit"},
            ["the GPU ran at a lower clock: heat (driver), power limit"],
        ),
        ({}, {"lower clock": "application clocks"}, []),
        ({}, {"processes": "2"}, ["the GPU's processes: 1 before, 2 after"]),
        ({}, {"cpu quota hit": "6 times"}, ["the CPU quota stopped this machine: 4 times before, 6 times after"]),
    ],
)
def test_remarks(before: dict[str, str], after: dict[str, str], said: list[str]) -> None:
    assert list(remarks(around({"cores": "2"}, QUIET | before, QUIET | after))) == said


def test_nothing_is_remarked_of_what_is_not_known() -> None:
    assert remarks({}) == ()
    assert remarks(around({}, {}, {})) == ()


class Broken(Exception):
    pass


def library(**answers: Any) -> SimpleNamespace:
    """A driver's library that knows one GPU, gives these answers, and refuses all others."""

    def refuse(*_: object) -> None:
        raise Broken

    def by_uuid(uuid: str) -> str:
        if uuid != "GPU-u":
            raise Broken
        return "the GPU"

    asked = [
        *("SystemGetDriverVersion", "DeviceGetEnforcedPowerLimit", "DeviceGetMaxClockInfo", "DeviceGetClockInfo"),
        *("DeviceGetPowerUsage", "DeviceGetTemperature", "DeviceGetCurrentClocksEventReasons"),
        "DeviceGetComputeRunningProcesses",
    ]
    return SimpleNamespace(
        NVMLError=Broken,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlClocksEventReasonGpuIdle=1,
        nvmlClocksEventReasonSwPowerCap=4,
        nvmlClocksEventReasonHwThermalSlowdown=0x40,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=by_uuid,
        **{f"nvml{name}": refuse for name in asked} | {f"nvml{name}": answer for name, answer in answers.items()},
    )


def test_a_gpu_is_asked_by_its_uuid_and_may_not_answer_all(monkeypatch: pytest.MonkeyPatch) -> None:
    there = library(
        SystemGetDriverVersion=lambda: "575.1",
        DeviceGetEnforcedPowerLimit=lambda gpu: 700_000,
        DeviceGetClockInfo=lambda gpu, kind: {1: 1980, 2: 3201}[kind],
        DeviceGetCurrentClocksEventReasons=lambda gpu: 0x44,
        DeviceGetComputeRunningProcesses=lambda gpu: ["one", "two"],
    )
    monkeypatch.setitem(sys.modules, "pynvml", there)
    assert nvml("u", environment.STAYS) == {"driver": "575.1", "power limit": "700 W"}
    assert nvml("u", environment.MOVES) == {
        "sm clock": "1980 MHz",
        "memory clock": "3201 MHz",
        "lower clock": "power limit, heat (hardware)",
        "processes": "2",
    }
    assert nvml("another", environment.MOVES) == {}
    there.nvmlDeviceGetCurrentClocksEventReasons = lambda gpu: 0
    assert nvml("u", environment.MOVES)["lower clock"] == "none"


def test_no_driver_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = library()
    there.nvmlInit = there.nvmlSystemGetDriverVersion
    monkeypatch.setitem(sys.modules, "pynvml", there)
    assert nvml("u", environment.STAYS) == {}


@pytest.mark.gpu
def test_this_gpu_says_what_it_is() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    found = around(machine("cuda"), state("cuda"), state("cuda"))
    assert {"device", "uuid", "driver", "power limit", "cuda", "cpu", "torch"} <= set(found)
    assert {"sm clock", "memory clock", "power", "temperature", "lower clock", "processes"} <= set(moved(found))
