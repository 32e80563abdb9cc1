"""`qrprof verdict`: the report, the list, the record."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from gate_cases import FAILED, PASSED

from qrprof.planner.gate.evidence import keep, made
from qrprof.planner.gate.records import Finding, Verdict
from qrprof.planner.ledger import opened
from qrprof.tui.cli import run

Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Keep verdicts in a folder of their own, and print `qrprof verdict ARGS` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def printed(*args: str, of: tuple[Verdict, ...] = (), parent: str | None = "old.py") -> str:
        with opened(tmp_path) as connection:
            for verdict in of:
                keep(connection, made(verdict, "kernels/fast.py", parent, datetime(2026, 2, 1, 9, tzinfo=UTC)))
        capsys.readouterr()
        assert run(["verdict", *args]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.isascii()
        assert "--json" in args or all(len(line) <= 80 for line in out.splitlines())
        return out

    return printed


def words(text: str) -> str:
    return " ".join(text.split())


# --- the report


def test_the_report_of_a_pass(show: Show) -> None:
    out = show(PASSED.id, of=(PASSED,))
    lines = out.splitlines()
    assert lines[0] == "PASS: 1.30x (1.25x to 1.36x) the speed of stock"
    text = words(out)
    for said in (
        "why nothing was found in 360 of 360 checks in 9 stages",
        "and at least 1.250x is more than the 1.031x that 4 tries and 1.3 % of noise ask for",
        "verdict 20260201-090000-abababab, 2026-02-01T09:00:00+00:00, qrprof",
        "candidate kernels/fast.py (sha256 abababababab)",
        "parent old.py",
        "task qr-small",
        "sandbox bubblewrap",
        "lane try 4; queries of the holdout used: 1",
        "to parent 1.20x (1.10x to 1.30x) the speed of the parent candidate",
        "worst 2x512x512 clustered: 1.10x (1.05x to 1.16x)",
        "memory 3.00 MiB at most for a call",
        "noise 1.3 %, stock against stock",
        "static line 1 imports ctypes, which calls native code by address",
        "device A CPU",
        "with threads 2, cores 2, torch 2.13.0",
    ):
        assert said in text
    assert "not run" not in text
    assert "Findings" not in text
    cells = [line.split() for line in lines]
    assert ["8x64x64", "dense", "3.00", "2.40", "2.00", "1.50x", "1.45x..1.56x", "12", "8"] in cells
    assert ["8x64x64", "dense", "stock", "20", "3.00", "3.15", "5.43"] in cells
    assert ["8x64x64", "dense", "candidate", "20", "2.00", "2.10", "3.62"] in cells
    assert ["timing", "7.5", "70", "of", "70"] in cells
    assert ["total", "40.5", "360", "of", "360"] in cells
    assert ["load", "0.10", "1.90"] in cells


def test_without_a_parent_there_is_no_column_of_it(show: Show) -> None:
    times = tuple(replace(time, parent_ns=None, samples={}) for time in PASSED.times)
    out = show(PASSED.id, of=(replace(PASSED, times=times, over_parent=None),), parent=None)
    header = next(line for line in out.splitlines() if line.startswith("case"))
    assert header.split() == ["case", "stock", "candidate", "speedup", "low..high", "pairs", "calls"]
    assert "parent none" in words(out)
    assert "p95" not in out


def test_the_report_of_a_failure_says_what_decided_and_what_was_not_run(show: Show) -> None:
    out = show(FAILED.id, of=(FAILED,))
    assert out.startswith("FAIL: not timed\n")
    text = words(out)
    first = "contract stage, 8x64x64 dense: mutated-input: argument 0 was changed: 12 of 32,768 elements"
    assert f"why {first} (and 1 more below)" in text
    assert f"Findings: FAIL {first} FAIL contract stage: contract: tau has 63 columns, not 64" in text
    assert "not run development, adversarial, replay, timing, holdout" in text
    assert "Times of a call" not in text
    assert "Worth a look" not in text


def test_one_finding_is_said_once(show: Show) -> None:
    text = words(show(FAILED.id, of=(replace(FAILED, findings=FAILED.findings[:1]),)))
    assert text.count("argument 0 was changed") == 1
    assert "below" not in text


def test_the_same_finding_is_said_once_with_its_number(show: Show) -> None:
    changed, columns = FAILED.findings
    text = words(show(FAILED.id, of=(replace(FAILED, findings=(changed, columns, changed, changed)),)))
    assert "12 of 32,768 elements (3 times) (and 1 more below)" in text
    assert text.count("argument 0 was changed") == 2  # as the reason, and in the list


def test_the_finding_of_the_outcome_decides_not_the_first(show: Show) -> None:
    findings = (Finding("noise", "UNKNOWN", None, "drowned", "timing"), FAILED.findings[1])
    text = words(show(FAILED.id, of=(replace(FAILED, findings=findings),)))
    assert "why contract stage: contract: tau has 63 columns, not 64 (and 1 more below)" in text


@pytest.mark.parametrize("outcome", ["UNKNOWN", "INFRA", "SUSPECT", "FAIL"])
def test_without_a_finding_nothing_but_a_pass_passes(show: Show, outcome: Any) -> None:
    verdict = replace(PASSED, outcome=outcome, findings=(), skipped=("timing: 3 of 8 cases",))
    text = words(show(PASSED.id, of=(verdict,)))
    assert text.startswith(f"{outcome}: 1.30x")
    assert "why the evidence is not complete: 360 of 360 checks in 9 stages" in text
    assert "skipped timing: 3 of 8 cases" in text


def test_a_pass_that_was_not_timed_claims_no_speed(show: Show) -> None:
    untimed = replace(PASSED, times=(), costs=PASSED.costs[:7], speedup=None, over_parent=None, noise=None, needed=None)
    text = words(show(PASSED.id, of=(untimed,)))
    assert text.startswith("PASS: not timed why nothing was found in 210 of 210 checks in 7 stages verdict")
    assert "not run timing, holdout" in text


def test_what_disturbed_the_times_is_remarked(show: Show) -> None:
    environment = dict(PASSED.environment) | {"load before": "1.70"}
    text = words(show(PASSED.id, of=(replace(PASSED, environment=environment),)))
    assert "note load 1.7 on 2 cores at the start: other programs ran" in text


def test_text_of_a_candidate_is_not_obeyed(show: Show) -> None:
    finding = Finding("crash", "FAIL", "[bold]case\x1b[2J", "said \x1b[31m\n\u202eFAIL \ud800[/bold]", "build")
    text = words(show(FAILED.id, of=(replace(FAILED, findings=(finding,)),)))
    assert "build stage, [bold]case[2J: crash: said [31m FAIL [/bold]" in text


def test_a_file_that_is_no_longer_what_was_judged_is_told(show: Show, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "fast.py").write_text("pass\n")
    same = replace(PASSED, candidate=sha256(b"pass\n").hexdigest())
    assert "the file has changed since" not in show(PASSED.id, of=(same,))
    (tmp_path / "kernels" / "fast.py").write_text("raise\n")
    assert "the file has changed since)" in words(show(PASSED.id))


# --- the list


def test_the_list_has_the_newest_first_and_tells_machines_apart(show: Show) -> None:
    elsewhere = replace(PASSED, id="20260201-090200-x", environment={"device": "another"}, task="long-" * 30)
    out = show(of=(PASSED, FAILED, replace(FAILED, id="20260201-090150-e"), elsewhere))
    cells = [line.split() for line in out.splitlines() if line.startswith("2026")]
    assert [line[0] for line in cells] == [elsewhere.id, "20260201-090150-e", FAILED.id, PASSED.id]
    assert cells[3] == [PASSED.id, "qr-small", "PASS", "1.30x", "B", "kernels/fast.py"]
    assert cells[2] == [FAILED.id, "qr-small", "FAIL", "-", "B", "kernels/fast.py"]
    assert "A" in cells[0]


def test_no_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["verdict"]) == 0
    assert run(["verdict", "x"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "qrprof: no verdicts in .qrprof; `qrprof gate FILE --task TASK` makes one",
        "qrprof: no verdicts in .qrprof; make one with `qrprof gate FILE --task TASK`",
    ]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_verdict(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    show(of=(PASSED, FAILED))
    assert run(["verdict", "2027"]) == 2
    assert capsys.readouterr().err == (
        f"qrprof: verdict '2027' is unknown; there are {PASSED.id}, {FAILED.id}; list all with `qrprof verdict`\n"
    )


# --- the records


def test_the_record_holds_all_of_the_verdict(show: Show) -> None:
    record = json.loads(show("20260201-0900", "--json", of=(PASSED,)))
    assert (record["schema"], record["file"], record["parent"]) == (1, "kernels/fast.py", "old.py")
    verdict = record["verdict"]
    assert (verdict["outcome"], verdict["candidate"], verdict["layer"]) == ("PASS", "ab" * 32, "bubblewrap")
    assert verdict["speedup"] == {"low": 1.25, "mid": 1.3, "high": 1.36}
    assert len(verdict["times"][0]["samples"]["stock"]) == 20
    assert record["spread"]["8x64x64 dense"]["stock"] == {
        "n": 20,
        "p50_ns": 3e6,
        "p95_ns": pytest.approx(3.15e6),
        "p99_ns": pytest.approx(5.43e6),
    }
    assert record["why"].startswith("nothing was found")
    assert record["remarks"] == []


def test_the_record_of_the_list(show: Show) -> None:
    found = json.loads(show("--json", of=(PASSED, FAILED)))["verdicts"]
    assert [(one["id"], one["outcome"], one["speedup"]) for one in found] == [
        (FAILED.id, "FAIL", None),
        (PASSED.id, "PASS", 1.3),
    ]


def test_a_verdict_opens_without_torch(show: Show, tmp_path: Path) -> None:
    show(of=(PASSED,))
    code = (
        "import sys; from qrprof.tui.cli import run\n"
        f"assert run(['verdict', '{PASSED.id}']) == run(['verdict']) == 0\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "pydantic" in child.stderr.split()
    assert not set(child.stderr.split()) & {"torch", "triton", "openai", "textual"}
