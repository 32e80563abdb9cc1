"""`qrprof swaps`: what is shown before a person agrees, exit codes, and what an exported file can do."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_cases import FAILED
from swap_cases import SOURCE, TASK, accepted, by, loaded, now, verdict_on, verified, workplace

from qrprof.kernels import trust
from qrprof.kernels.swapfile import candidate_file
from qrprof.planner.gate import task_store
from qrprof.planner.gate.records import Verdict
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.tui import swapping
from qrprof.tui.cli import run
from qrprof.tui.ranking import load_ranking

NAME = "_softmax-67c3fc4f"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = workplace(tmp_path, monkeypatch)
    monkeypatch.chdir(found)
    monkeypatch.setenv("COLUMNS", "100")
    return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for the gate, which passes what it is given; the sources that it was."""
    seen: list[str] = []

    def passes(task: Any, source: Path, parent: Path | None, **others: Any) -> Verdict:
        seen.append(source.read_bytes().decode())
        return verdict_on(task, seen[-1], id=f"judged-{len(seen)}")

    monkeypatch.setattr("qrprof.planner.gate.gate.run_gate", passes)
    monkeypatch.setattr("qrprof.planner.gate.sandbox.available_layer", lambda: "bubblewrap")
    return seen


# --- list and show


def test_an_empty_folder_has_no_swaps_and_gets_no_files(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swaps", "list"]) == 0
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert list(root.iterdir()) == []


def test_the_list_says_what_runs_and_for_whom(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = accepted(root)
    assert run(["swaps", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == [kept.name, "candidate", "accepted", "1.30x"]
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "someone else's"))
    assert run(["swaps", "list"]) == 0
    assert "accepted, not by you" in capsys.readouterr().out
    assert run(["swaps", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["swaps"]
    assert (found["state"], found["trusted"], found["speedup"]["mid"]) == ("accepted", False, 1.3)


def test_show_has_the_evidence_the_life_and_the_whole_source(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified(root)
    assert run(["swaps", "show", "_soft"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(f"\n\n{SOURCE}")
    for words in (
        "1.30x (1.25x to 1.36x)",
        "error against float64",
        "2x512x512",
        "3.00 MiB",
        "float32[1..8,16], -1, False",
        "bubblewrap",
        "ada",
        "stock",
    ):
        assert words in out


def test_a_source_cannot_hide_from_who_reads_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified(root, "def candidate(*args):\t# \u202eevil\x1b[8m\n\treturn args[0]\n")
    assert run(["swaps", "show", "_softmax"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["def candidate(*args):   # \\u202eevil\\x1b[8m", "    return args[0]"]


@pytest.mark.parametrize(
    "words", [["show", "nothing"], ["accept", "nothing"], ["undo", "_softmax"], ["export", "x.json"]]
)
def test_what_is_not_there_is_a_usage_error(root: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    if words[0] == "undo":
        verified(root)
    assert run(["swaps", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_source_that_was_tampered_with_is_neither_shown_nor_accepted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = verified(root)
    with opened(root) as connection:
        connection.execute("UPDATE sources SET text = 'def candidate(*args): evil()'")
    assert run(["swaps", "list"]) == 0
    assert "does not hold the source" in capsys.readouterr().err
    assert run(["swaps", "accept", kept.name, "--yes"]) == 3
    assert "evil" not in capsys.readouterr().out
    assert trust.trusted(root.resolve()) == frozenset()


# --- accept


def test_of_an_imported_trace_no_command_is_known(root: Path) -> None:
    assert run(["import", str(Path(__file__).parent / "data" / "own_h200_mlp_eager.json.gz")]) == 0
    assert swapping.left(by(root), load_ranking(None))[0] == "measure it: qrprof verify SCRIPT"


def test_accept_shows_the_source_and_says_what_it_may_do(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = verified(root)
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert SOURCE in out
    assert "runs inside your programs, with all of their rights" in err
    assert "qrprof verify" in err
    assert loaded(root) == [kept.name]
    assert run(["swaps", "accept", "_softmax"]) == 0
    assert "is accepted already" in capsys.readouterr().err


def test_nobody_is_asked_without_a_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified(root)
    assert run(["swaps", "accept", "_softmax"]) == 3
    assert "give --yes, or ask on a terminal" in capsys.readouterr().err
    assert (swaps_file(root).exists(), trust.trusted(root.resolve())) == (False, frozenset())


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 3), ("\n", 3)])
def test_a_person_is_asked_on_a_terminal(root: Path, answer: str, code: int) -> None:
    kept = verified(root)
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    words = [sys.executable, "-m", "qrprof", "swaps", "accept", "_softmax"]
    child = subprocess.run(words, check=False, stdin=theirs, capture_output=True, text=True)
    os.close(ours)
    os.close(theirs)
    assert child.returncode == code, child.stderr
    assert f"accept {kept.name}?" in child.stderr
    assert now(root, kept.name).state == ("accepted" if code == 0 else "verified")


def test_evidence_that_is_not_enough_is_refused_and_can_be_overridden(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = verified(root, outcome="FAIL", id="bad", findings=FAILED.findings)
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 3
    err = capsys.readouterr().err
    assert "the gate: FAIL: contract stage, 8x64x64 dense: mutated-input: argument 0 was changed" in err
    assert f"{kept.name} is not accepted: its verdict bad is FAIL" in err
    assert now(root, kept.name).state == "verified"
    assert run(["swaps", "accept", "_softmax", "--yes", "--override", "I know better"]) == 0
    assert loaded(root) == [kept.name]
    last = now(root, kept.name).changes[-1]
    assert (last.state, last.override) == ("accepted", "I know better")
    assert run(["swaps", "show", "_softmax"]) == 0
    assert "I know better" in capsys.readouterr().out


def test_an_override_that_is_not_needed_is_none(root: Path) -> None:
    kept = verified(root)
    assert run(["swaps", "accept", "_softmax", "--yes", "--override", "why not"]) == 0
    assert now(root, kept.name).changes[-1].override == ""


def test_a_verdict_of_another_torch_is_judged_again(root: Path, gate: list[str]) -> None:
    where = {"device": "A CPU", "torch": "1.0"}
    kept = verified(root, environment=where)
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 0
    assert gate == [SOURCE]
    life = now(root, kept.name).changes
    assert [one.state for one in life] == ["verified", "verified", "accepted"]
    assert life[-1].verdict == "judged-1"
    assert loaded(root) == [kept.name]


def test_what_someone_else_accepted_against_the_evidence_is_judged_and_accepted_anew(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: list[str]
) -> None:
    kept = verified(root)
    with opened(root) as connection:  # it came without a verdict
        found = replace(kept.swap, entry=replace(kept.swap.entry, verdict="")) if kept.swap.entry else kept.swap
        store.change(connection, [(replace(kept, swap=found), by(root).change("proposed", "imported"))])
    assert run(["swaps", "accept", "_softmax", "--yes", "--override", "I know better"]) == 0
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "mine"))
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 0
    assert gate == [SOURCE]
    last = now(root, kept.name)
    assert (last.state, last.changes[-1].verdict, last.swap.verdict) == ("accepted", "judged-1", "judged-1")
    assert last.changes[-1].override == ""
    assert loaded(root) == [kept.name]


def test_a_changed_file_is_told_once_and_accepted_anew(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = accepted(root)
    file = candidate_file(swaps_file(root), kept.swap.sha256)
    file.write_text("import os\n")
    assert run(["swaps", "list"]) == 0
    out, err = capsys.readouterr()
    assert err == f"qrprof: {kept.name} is stale, and stock runs: {file.name} has changed since\n"
    assert "stale" in out
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 0
    assert (file.read_text(), loaded(root)) == (SOURCE, [kept.name])


def test_json_of_an_accept_is_the_swap_as_it_is_then(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified(root)
    assert run(["swaps", "accept", "_softmax", "--json"]) == 2
    capsys.readouterr()
    assert run(["swaps", "accept", "_softmax", "--json", "--yes"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["state"], found["trusted"], found["source"]) == (1, "accepted", True, SOURCE)


def test_undo_and_reject_keep_their_reason(root: Path) -> None:
    kept = accepted(root)
    assert run(["swaps", "undo", "_softmax", "--because", "slower in the program"]) == 0
    assert run(["swaps", "reject", "_softmax", "--because", "seen enough"]) == 0
    life = now(root, kept.name).changes
    assert [(one.state, one.why) for one in life[2:]] == [
        ("undone", "slower in the program"),
        ("rejected", "seen enough"),
    ]
    assert loaded(root) == []


def test_a_pass_of_the_gate_is_a_swap_that_can_be_accepted(
    root: Path, gate: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    task = task_store.keep(root, TASK)
    (root / "fast.py").write_bytes(SOURCE.replace("\n", "\r\n").encode())
    assert run(["gate", "fast.py", "--task", task.id]) == 0
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "swaps accept" in one]
    assert run(["swaps", "accept", line.split()[-1].strip("`"), "--yes"]) == 0
    (name,) = loaded(root)
    file = candidate_file(swaps_file(root), now(root, name).swap.sha256)
    assert file.read_bytes() == (root / "fast.py").read_bytes()


# --- export and import


def exchanged(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An exported swap, and the folder of someone else."""
    verified(root)
    file = tmp_path / "swaps-of-a-colleague.json"
    assert run(["swaps", "export", str(file)]) == 0
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "their config"))
    return file, there


def test_what_is_imported_is_proposed_and_judged_before_it_runs(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, there = exchanged(root, tmp_path, monkeypatch)
    assert run(["swaps", "import", str(file)]) == 0
    capsys.readouterr()
    assert run(["swaps", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["swaps"]
    assert (found["state"], found["entry"]["verdict"], found["outcome"]) == ("proposed", "", None)
    assert "its verdict there: PASS, 1.30x" in found["changes"][0]["why"]
    assert loaded(there) == []
    assert run(["swaps", "accept", found["name"], "--yes"]) == 0
    assert gate == [SOURCE]
    assert loaded(there) == [found["name"]]


def test_an_import_changes_no_decision(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _ = exchanged(root, tmp_path, monkeypatch)
    monkeypatch.chdir(root)
    assert run(["swaps", "accept", "_softmax", "--yes"]) == 0
    (name,) = loaded(root)
    kept = now(root, name)
    assert run(["swaps", "import", str(file)]) == 0
    assert now(root, name) == kept


SPOILT: list[tuple[str, Any]] = [
    ("source", "def candidate(*args): evil()"),
    ("sha256", "ab" * 32),
    ("kind", "included"),
    ("kind", "patch"),
    ("kind", 3),
    ("task", None),
    ("source", None),
]


@pytest.mark.parametrize(("field", "value"), SPOILT)
def test_a_spoilt_export_proposes_nothing(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    field: str,
    value: Any,
) -> None:
    file, there = exchanged(root, tmp_path, monkeypatch)
    record = json.loads(file.read_text())
    record["swaps"][0][field] = value
    file.write_text(json.dumps(record))
    capsys.readouterr()
    assert run(["swaps", "import", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["swaps", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["swaps"] == []
    assert not (there / ".qrprof" / "tasks").exists()


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "..", "a/b", ""])
@pytest.mark.parametrize("field", ["id", "op"])
def test_a_task_cannot_name_a_place_outside(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, name: str
) -> None:
    file, there = exchanged(root, tmp_path, monkeypatch)
    record = json.loads(file.read_text())
    record["swaps"][0]["task"][field] = name
    file.write_text(json.dumps(record))
    assert run(["swaps", "import", str(file)]) == 1
    assert not (there / ".qrprof" / "tasks").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 9, "swaps": []}', "[" * 99999, "\xff"])
def test_what_is_no_export_is_said_in_a_line(root: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (root / "x.json").write_bytes(text.encode("latin-1"))
    assert run(["swaps", "import", "x.json"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_no_torch_is_imported_to_list_show_and_undo(root: Path) -> None:
    accepted(root)
    code = "import sys; from qrprof.tui.cli import run\n"
    code += "for words in ('list',), ('show', '_soft'), ('undo', '_soft'): assert run(['swaps', *words]) == 0\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
