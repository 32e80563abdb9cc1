"""`qrprof gate`: what it hands to the gate, what it keeps and prints, and how it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Workshop, heeded
from gate_cases import FAILED, PASSED

from qrprof.planner.gate.evidence import Spent, find, listed, spent
from qrprof.planner.gate.gate import Lane
from qrprof.planner.gate.records import ArgSpec, Domain, Outcome, Task, TaskCase, Tolerance, Verdict
from qrprof.planner.gate.task_store import keep
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.slots import held, slot_of
from qrprof.tui.cli import run

HONEST = "def candidate(a, b):\n    return a @ b\n"
TASK = Task(
    "mm",
    "mm",
    "cpu",
    (TaskCase("4x4", 1.0, (ArgSpec((4, 4), "float32"), ArgSpec((4, 4), "float32"))),),
    Domain(),
    "relative",
    Tolerance(),
    "built in",
)


@dataclass
class Gate:
    """Stands for the gate: gives `verdict`, once `during` has happened, and remembers what it was called with."""

    verdict: Verdict = PASSED
    during: Callable[[], object] = lambda: None
    seen: dict[str, Any] = field(default_factory=dict)

    def __call__(self, task: Task, source: Path, parent: Path | None, *, lane: Lane, **others: Any) -> Verdict:
        self.during()
        texts = [one and one.read_text() for one in (source, parent)]
        self.seen = {"task": task, "source": source, "texts": texts, "lane": lane} | others
        others["say"]("contract")
        number = lane.tries
        return replace(self.verdict, id=f"{number}-{self.verdict.id}", task=task.id, tries=number)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A folder with a task and two candidates, on a machine where bubblewrap works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "fast.py").write_text(HONEST)
    (tmp_path / "old.py").write_text("def candidate(a, b):\n    return a.matmul(b)\n")
    keep(tmp_path, TASK)
    found = Gate()
    monkeypatch.setattr("qrprof.planner.gate.gate.run_gate", found)
    monkeypatch.setattr("qrprof.planner.gate.sandbox.available_layer", lambda: "bubblewrap")
    return found


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().err


def kept() -> list[str]:
    with opened(Path.cwd()) as connection:
        return [one.id for one in listed(connection)]


# --- outcomes


@pytest.mark.parametrize(("outcome", "code"), [("PASS", 0), ("FAIL", 1), ("SUSPECT", 1), ("UNKNOWN", 4), ("INFRA", 5)])
def test_an_outcome_is_an_exit_code_a_page_and_a_row_of_the_ledger(
    gate: Gate, capsys: pytest.CaptureFixture[str], outcome: Outcome, code: int
) -> None:
    gate.verdict = replace(FAILED if outcome == "FAIL" else PASSED, outcome=outcome)
    assert run(["gate", "fast.py", "--task", "mm"]) == code
    out, err = capsys.readouterr()
    assert out.startswith(f"{outcome}: ")
    accept = "qrprof: it can run in your program: `qrprof swaps accept mm-b2317d0e`\n"
    assert err == "qrprof: contract\n" + accept * (outcome == "PASS")
    (name,) = kept()
    assert run(["verdict", name]) == 0
    assert capsys.readouterr().out == out


def test_what_the_gate_is_given(gate: Gate, tmp_path: Path) -> None:
    assert run(["gate", "fast.py", "--task", "mm", "--parent", "old.py"]) == 0
    assert gate.seen["task"].op == "mm"
    assert gate.seen["texts"] == [(tmp_path / name).read_text() for name in ("fast.py", "old.py")]
    assert gate.seen["lane"].tries == 1
    with opened(tmp_path) as connection:
        found = find(connection, "1-")
    assert (found.file, found.parent) == ("fast.py", "old.py")
    assert {"device", "torch", "load before", "load after"} <= set(found.verdict.environment)


def test_it_waits_where_another_measures(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    other, told = held(slot_of({}), nullcontext), list[str]()

    def say(text: str) -> None:
        if not told:
            assert gate.seen == {}
            other.__exit__(None, None, None)
        told.append(text)

    other.__enter__()
    monkeypatch.setattr("qrprof.tui.commands.gate.say", say)
    assert run(["gate", "fast.py", "--task", "mm"]) == 0
    assert told[:2] == ["waiting: another qrprof measures on this device", "contract"]


def test_the_candidate_that_is_judged_is_frozen(gate: Gate, tmp_path: Path) -> None:
    gate.during = lambda: (tmp_path / "fast.py").write_text("raise SystemExit")
    assert run(["gate", "fast.py", "--task", "mm"]) == 0
    assert gate.seen["texts"] == [HONEST, None]
    assert gate.seen["source"] != tmp_path / "fast.py"
    assert not gate.seen["source"].exists()


def test_each_try_on_a_task_counts_but_those_of_a_broken_machine(gate: Gate) -> None:
    tries = []
    for outcome in ("FAIL", "INFRA", "PASS", "UNKNOWN"):
        gate.verdict = replace(PASSED, id=outcome, outcome=outcome)
        run(["gate", "fast.py", "--task", "mm"])
        tries.append(gate.seen["lane"].tries)
    assert tries == [1, 2, 2, 3]


def test_the_holdout_is_queried_three_times_for_a_task(gate: Gate, tmp_path: Path) -> None:
    queries: list[int | None] = []
    for _ in range(2):
        assert run(["gate", "fast.py", "--task", "mm"]) == 0
        queries += [gate.seen["lane"].query() for _ in range(2)]
    assert queries == [1, 2, 3, None]
    with opened(tmp_path) as connection:
        assert spent(connection, gate.seen["task"].id) == Spent(2, 3)


# --- JSON


def test_json_is_printed_or_written(gate: Gate, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["gate", "fast.py", "--task", "mm", "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    gate.verdict = FAILED
    assert run(["gate", "fast.py", "--task", "mm", "--json", "out.json"]) == 1
    assert capsys.readouterr().out.startswith("FAIL: ")
    written = json.loads((tmp_path / "out.json").read_text())
    assert [one["schema"] for one in (printed, written)] == [1, 1]
    assert [one["verdict"]["outcome"] for one in (printed, written)] == ["PASS", "FAIL"]
    assert printed["file"] == "fast.py"


def test_a_file_that_cannot_be_written_loses_nothing(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gate", "fast.py", "--task", "mm", "--json", "missing/out.json"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("PASS: ")
    assert "cannot write missing/out.json: No such file or directory; name another file" in err
    assert len(kept()) == 1


# --- refused


def test_without_containment_nothing_is_run(
    gate: Gate, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qrprof.planner.gate.sandbox.available_layer", lambda: "none")
    assert run(["gate", "fast.py", "--task", "mm"]) == 3
    message = said()
    assert message.count("\n") == 1
    assert "nothing here can contain fast.py" in message
    assert "--allow-unsandboxed" in message
    assert gate.seen == {}
    assert kept() == []
    assert run(["gate", "fast.py", "--task", "mm", "--allow-unsandboxed"]) == 0


def test_the_layer_that_works_is_the_one_that_is_used(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[str] = []
    monkeypatch.setattr("qrprof.planner.gate.worker.started", lambda *args: layers.append(args[-1]))
    run(["gate", "fast.py", "--task", "mm"])
    gate.seen["workers"](Path("fast.py"))
    assert layers == ["bubblewrap"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["missing.py", "--task", "mm"], "missing.py"),
        (["fast.py"], "--task"),
        (["fast.py", "--task", "qr"], "task 'qr' is unknown"),
        (["fast.py", "--task", "mm", "--parent", "missing.py"], "missing.py"),
        ([".", "--task", "mm"], "directory"),
    ],
)
def test_a_usage_error_is_one_line(gate: Gate, said: Callable[[], str], args: list[str], words: str) -> None:
    assert run(["gate", *args]) == 2
    message = said()
    assert message.count("\n") == 1
    assert words in message
    assert gate.seen == {}


def test_a_task_of_a_device_that_is_not_here(
    gate: Gate, said: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    keep(tmp_path, replace(TASK, id="on-a-gpu", device="cuda"))
    assert run(["gate", "fast.py", "--task", "on-a-gpu"]) == 3
    assert "sees no device 'cuda' here" in said()
    assert gate.seen == {}


# --- interrupted, killed, and a ledger that fails


def test_an_interrupt_leaves_no_verdict(gate: Gate) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    gate.during = interrupt
    assert run(["gate", "fast.py", "--task", "mm"]) == 130
    assert kept() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_files(workshop: Workshop, number: signal.Signals, code: int) -> None:
    keep(workshop.folder, TASK)
    workshop.write("endless.py", "import time\ntime.sleep(600)\n")
    (workshop.folder / "tmp").mkdir()
    command = ("-m", "qrprof", "gate", "endless.py", "--task", "mm", "--allow-unsandboxed")
    with heeded(number):
        process = workshop.start(*command, TMPDIR=str(workshop.folder / "tmp"))
    assert process.stderr
    while process.stderr.readline() != "qrprof: build\n":
        assert process.poll() is None
    process.send_signal(number)
    ended = workshop.ended(process)
    assert (ended.code, "Traceback" in ended.err) == (code, False), ended.err
    assert list((workshop.folder / "tmp").iterdir()) == []


def test_a_file_that_is_no_utf_8_is_refused_before_anything_is_run(
    gate: Gate, said: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / "fast.py").write_bytes(HONEST.encode() + b"# caf\xe9\n")
    assert run(["gate", "fast.py", "--task", "mm"]) == 2
    assert "fast.py is not UTF-8 (byte 0xe9 at 43); save it as UTF-8" in said()
    assert gate.seen == {}


def test_a_ledger_that_cannot_be_used_is_told_before_anything_is_run(
    gate: Gate, said: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / ".qrprof" / "ledger.sqlite").write_bytes(b"not a database" * 100)
    assert run(["gate", "fast.py", "--task", "mm"]) == 1
    assert "ledger.sqlite" in said()
    assert gate.seen == {}


def test_a_ledger_that_fails_at_the_end_costs_the_row_and_not_the_verdict(
    gate: Gate, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ledger = tmp_path / ".qrprof" / "ledger.sqlite"
    gate.during = lambda: ledger.write_bytes(b"not a database" * 100)
    assert run(["gate", "fast.py", "--task", "mm", "--json", "out.json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("PASS: ")
    assert "note: this verdict is not kept: cannot use" in err
    assert (tmp_path / "out.json").exists()


def test_a_gate_that_is_killed_between_stages_has_used_its_query_and_left_no_verdict(
    gate: Gate, tmp_path: Path
) -> None:
    code = """
import time
from qrprof.planner.gate import gate, sandbox
from qrprof.tui.cli import run

def run_gate(*_, lane, **__):
    print("query", lane.query(), flush=True)
    time.sleep(600)

gate.run_gate, sandbox.available_layer = run_gate, lambda: "none"
run(["gate", "fast.py", "--task", "mm", "--allow-unsandboxed"])
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "query 1\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert kept() == []
    assert run(["gate", "fast.py", "--task", "mm"]) == 0
    assert (gate.seen["lane"].tries, gate.seen["lane"].query()) == (1, 2)


def test_help_loads_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from qrprof.tui.cli import run; assert run(['gate', '--help']) == 0; "
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not set(child.stderr.split()) & {"torch", "triton", "pandas"}
    for line in ("0  PASS", "1  FAIL, or SUSPECT", "3  not run", "4  UNKNOWN", "5  INFRA"):
        assert line in child.stdout


# --- for real


@pytest.mark.slow
def test_real_candidates_are_judged_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(tmp_path, TASK)
    (tmp_path / "stock.py").write_text(HONEST)
    (tmp_path / "wrong.py").write_text("def candidate(a, b):\n    return a.add_(b)\n")
    assert run(["gate", "stock.py", "--task", "mm", "--allow-unsandboxed"]) in (1, 4)  # right, and no faster
    capsys.readouterr()
    assert run(["gate", "wrong.py", "--task", "mm", "--allow-unsandboxed"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "mutated-input: argument 0 was changed by the call" in text
    assert "aliases-input" in text
