"""`qrprof history` and `qrprof hint`, on a ledger that an optimization has written."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gate_tasks import MM

from qrprof.planner.gate.records import Interval
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.journal import Journal, Judged, Waiting, hash_of
from qrprof.planner.optimize.records import Candidate, Event, Proposal, Start, Usage
from qrprof.tui.cli import run

Call = Callable[..., tuple[int, str, str]]
AT = "2026-02-01T09:00:00+00:00"
START = Start("20260201-090000-mm", MM, "def candidate(a, b): ...", "search", target="aten::mm", run_id="a-run")
TRIED = (
    Candidate(1, "", Proposal("one", None, "WARPS 4 -> 8"), "gate", "PASS", Interval(1.1, 1.2, 1.3), ""),
    Candidate(2, "", Proposal("two", "one", "WIDTH 32 -> 64"), "preview", "FAIL", None, "wrong by 7 units"),
    Candidate(3, "", Proposal("three", "one", "both"), "gate", "PASS", Interval(1.9, 2.0, 2.1), ""),
)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def of(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(args)
        return code, *capsys.readouterr()

    return of


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A ledger with one optimization that has ended."""
    found = Journal(partial(opened, tmp_path), lambda: datetime(2026, 2, 1, 9, tzinfo=UTC))
    start = found.begin(START)
    hashes: dict[str | None, str | None] = {None: None}
    for one in TRIED:
        parent = hashes[one.proposal.parent]
        kept = replace(one, sha256=hash_of(one.proposal.source), proposal=replace(one.proposal, parent=parent))
        hashes[one.proposal.source] = kept.sha256
        found.await_all(start, [Waiting(kept, kept.rung, 3)], [])
        found.judge(start, Judged(kept, kept.rung, 3, kept.outcome, None), [])
    found.add_events(start.id, [event("hint", text="mostly zeros"), event("ended", end="noise", text="little is left")])
    found.keep_spent(
        start.id,
        {
            "evaluator": Usage(seconds=61.0, evaluations=3),
            "proposer": Usage(dollars=0.25, tokens_in=1000, tokens_out=5, requests=2),
        },
    )
    return found


def event(kind: Any, **record: object) -> Event:
    return Event(kind, record, AT)


def words(text: str) -> str:
    return " ".join(text.split())


def test_all_are_listed_and_one_is_shown_with_its_lineage(journal: Journal, call: Call) -> None:
    code, out, err = call("history")
    assert (code, err) == (0, "")
    assert words(out).endswith(f"{START.id} test 3 little is left")
    code, out, err = call("history", "20260201")
    assert (code, err) == (0, "")
    assert "#3, 2.00x (1.90x to 2.10x) the starting file's speed" in words(out)
    assert "spent evaluator: 61.0 s, 3 evaluations spent proposer: 2 requests, 1,005 tokens, $0.25 best" in words(out)
    assert "2 1 preview FAIL - - WIDTH 32 -> 64 wrong by 7 units" in words(out)
    assert out.endswith("start\n  #1 PASS 1.20x WARPS 4 -> 8\n    #2 FAIL WIDTH 32 -> 64\n    #3 PASS 2.00x both\n")
    assert out.isascii()


def test_the_record_has_everything_but_the_files_texts(journal: Journal, call: Call) -> None:
    code, out, _ = call("history", START.id, "--json")
    assert code == 0
    told: Mapping[str, Any] = json.loads(out)
    assert told["schema"] == 1
    assert [one["number"] for one in told["candidates"]] == [1, 2, 3]
    assert told["candidates"][1]["proposal"]["parent"] == told["candidates"][0]["sha256"]
    assert told["spent"]["evaluator"]["evaluations"] == 3
    assert [one["kind"] for one in told["events"]] == ["hint", "ended"]
    assert "def candidate" not in out
    assert json.loads(call("history", "--json")[1])["optimizations"][0]["ended"]["end"] == "noise"


def test_a_hint_is_kept_on_one_line_for_the_optimization(journal: Journal, call: Call) -> None:
    assert call("hint", "20260201", "try\nsmaller tiles") == (0, "", f"qrprof: kept for {START.id}\n")
    assert journal.hints(START.id) == ["try smaller tiles"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("hint", "20260201", " "), "TEXT is empty"),
        (("hint", "nosuch", "x"), "'nosuch' is unknown; there are 20260201-090000-mm"),
        (("history", "nosuch"), "'nosuch' is unknown"),
    ],
)
def test_what_is_wrong_is_one_line(journal: Journal, call: Call, args: tuple[str, ...], said: str) -> None:
    code, out, err = call(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_run_is_listed_with_its_optimizations(journal: Journal, call: Call, tmp_path: Path) -> None:
    data = Path(__file__).parent / "data" / "small_run"
    shutil.copytree(data, tmp_path / ".qrprof" / "runs" / "a-run")
    assert words(call("runs")[1]).endswith(" 800 us 2 1")
    assert json.loads(call("runs", "--json")[1])["runs"][0]["optimizations"] == [START.id]


def test_without_a_ledger_nothing_is_made(call: Call, tmp_path: Path) -> None:
    assert call("history")[0] == 0
    assert call("history", "x")[0] == 2
    assert call("hint", "x", "y")[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_an_optimization_is_shown_without_torch(journal: Journal, tmp_path: Path) -> None:
    code = (
        "import sys; from qrprof.tui.cli import run; "
        f"codes = [run(['history']), run(['history', '{START.id}']), run(['hint', '{START.id}', 'x'])]; "
        "codes.append(run(['optimize', '--help'])); "
        "sys.exit(any(codes) or bool({'torch', 'triton', 'openai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 0
