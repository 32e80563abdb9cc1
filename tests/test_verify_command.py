"""`qrprof verify` as a person calls it."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from verify_cases import QR, accepted

from qrprof.kernels.running.watched import Machine, Served, Swaps
from qrprof.kernels.swapfile import Entry
from qrprof.planner import predictions
from qrprof.planner.gate.records import Interval
from qrprof.planner.ledger import opened
from qrprof.planner.predictions import Forecast
from qrprof.planner.swaps import store
from qrprof.planner.swaps.records import Proposal
from qrprof.planner.verify import verify as verifying
from qrprof.planner.verify.records import (
    Amplified,
    Compared,
    Equivalence,
    Expected,
    Finding,
    Gain,
    Memory,
    Outcome,
    Slower,
    Verification,
)
from qrprof.tui.cli import run as qrprof
from qrprof.tui.commands.verify import keep, page, promise_of, record
from qrprof.tui.output import write

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with a configuration and a cache of its own."""
    for name in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"QRPROF_{name}", str(tmp_path / "own" / name.lower()))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_without_an_accepted_swap_there_is_nothing_to_verify(capsys: pytest.CaptureFixture[str]) -> None:
    assert qrprof(["verify", "train.py"]) == 2
    assert "you have accepted no swap in .qrprof on this machine; see `qrprof swaps list`" in said(capsys)


def test_swaps_that_somebody_else_accepted_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(folder, included=True)
    monkeypatch.setenv("QRPROF_CONFIG", str(folder / "another user"))
    assert qrprof(["verify", "train.py"]) == 2
    assert "you have accepted no swap" in said(capsys)


def test_an_unknown_prediction_a_missing_script_and_several_ranks_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(folder, included=True)
    assert qrprof(["verify", "--prediction", "9", "train.py"]) == 2
    assert "there is no prediction 9" in said(capsys)
    assert qrprof(["verify", "missing.py"]) == 2
    assert "cannot read missing.py" in said(capsys)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert qrprof(["verify", "train.py"]) == 2
    assert "without a launcher" in said(capsys)


def test_with_swaps_switched_off_there_is_nothing_to_verify(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(folder, included=True)
    (folder / "train.py").write_text("")
    monkeypatch.setenv("QRPROF_SWAPS", "off")
    assert qrprof(["verify", "train.py"]) == 2
    assert "QRPROF_SWAPS=off" in said(capsys)


PROMISE = Forecast(
    run_id="r", source="rank", scenario="aten::linalg_qr=achievable", basis="measured", base_ns=100, low_ns=60,
    mid_ns=70, high_ns=80, device="", version="",
)  # fmt: skip
QR_ENTRY = Entry("qr", "included", "", "0" * 64, "", "cpu", "", "", ())
MADE = Verification(
    outcome="keep",
    findings=(),
    swaps=Swaps((Served(QR, "CPU", 14, {"mode": 2}, 1, 0, 0),)),
    equivalence=Equivalence((), 4, 4, 41, 0.0, Amplified(5, 7e-8, 1e-7, 0, decides=False)),
    gain=Gain(10e6, 8e6, Interval(1.2, 1.25, 1.3), 0.01, 2, 8),
    memory=Memory(1 << 30, 1 << 30, 0.0, 0.0),
    compared=Compared((Slower("aten::mm", "64x64", 2e6),), ("geqr2",), None),
    expected=Expected(1, 100, Interval(1.2, 1.3, 1.4)),
    held=True,
    machine=Machine("a CPU", "", 1 << 34, {"torch": "2.13.0"}),
    notes=("a remark",),
    seconds=60.0,
)


def shown(found: Verification, capsys: pytest.CaptureFixture[str]) -> str:
    write(page(found, [QR_ENTRY]))
    return " ".join(capsys.readouterr().out.split())


def test_the_page_of_a_swap_to_keep_says_what_was_measured_and_promised(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(MADE, capsys)
    assert text.startswith("keep: a step is 1.20x to 1.30x as fast with the swaps")
    assert "10.0 ms stock, 8.00 ms with the swaps: 1.25x" in text
    assert "linalg_qr on CPU: 14 calls, stock 2" in text
    assert "the same in 4 steps that begin alike, 4 after them, 41 parameters" in text
    assert "1.20x to 1.40x by prediction 1: held" in text
    assert "1 row takes longer with the swaps: aten::mm by 2.00 ms" in text
    assert "note a remark" in text
    assert "undo" not in text


@pytest.mark.parametrize("outcome", ["harmful", "no difference"])
def test_what_does_not_pay_is_to_be_taken_back(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    found = replace(MADE, outcome=outcome, findings=(Finding("leak", "memory grows"),))
    text = shown(found, capsys)
    assert text.startswith(outcome)
    assert "because memory grows" in text
    assert "take back what does not pay: `qrprof swaps undo qr`" in text


def test_the_record_holds_what_was_predicted_and_measured() -> None:
    made = record(MADE, [QR_ENTRY])
    assert made["predicted_x"] == {"low": 1.2, "mid": 1.3, "high": 1.4}
    assert made["measured_x"] == {"low": 1.2, "mid": 1.25, "high": 1.3}
    assert (made["stock_ms"], made["swapped_ms"], made["names"]) == (10.0, 8.0, ["qr"])
    assert made["device"] == "a CPU"
    untimed = record(replace(MADE, gain=None, expected=None, memory=None, compared=None), [QR_ENTRY])
    assert (untimed["predicted_x"], untimed["measured_x"], untimed["stock_ms"]) == (None, None, None)


def test_a_measurement_is_of_the_step_that_was_predicted_from(folder: Path) -> None:
    """100 ns then, and 1.25 times as fast now, whatever the step takes today."""
    with opened(folder) as connection:
        predictions.remember(connection, [PROMISE], datetime.now(UTC))
    keep(folder, MADE)
    with opened(folder) as connection:
        (listed,) = predictions.listed(connection)
    assert listed.measurement is not None
    assert (listed.measurement.step_ns, listed.measurement.noise) == (80, 0.01)
    assert listed.within is True


def test_the_promise_is_the_prediction_that_the_only_swap_was_accepted_for(folder: Path) -> None:
    assert promise_of(folder, None, [QR_ENTRY]) is None
    found = Proposal("qr", "included", "", QR_ENTRY.sha256, prediction=1, entry=QR_ENTRY)
    with opened(folder) as connection:
        predictions.remember(connection, [PROMISE], datetime.now(UTC))
        store.propose(connection, found, None, store.changed("accepted", "a person", "", datetime.now(UTC)))
    promise = promise_of(folder, None, [QR_ENTRY])
    assert promise is not None
    assert (promise.id, promise.low_ns) == (1, 60)
    assert promise_of(folder, None, [QR_ENTRY, replace(QR_ENTRY, name="other")]) is None


def test_the_promise_of_an_adapter_holds_the_gain_of_swaps_of_its_op(folder: Path) -> None:
    soap = Entry("soap", "adapter", "", "1" * 64, "", "cuda", "", "", ())
    found = Proposal("soap", "adapter", "", soap.sha256, prediction=1, entry=soap)
    with opened(folder) as connection:
        predictions.remember(connection, [PROMISE], datetime.now(UTC))
        store.propose(connection, found, None, store.changed("accepted", "a person", "", datetime.now(UTC)))
    promise = promise_of(folder, None, [QR_ENTRY, soap])
    assert promise is not None
    assert promise.id == 1
    other = replace(QR_ENTRY, name="other", kind="candidate", op="softmax")
    assert promise_of(folder, None, [QR_ENTRY, soap, other]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (
            "import sys, torch\nprint('no data', file=sys.stderr)\nsys.exit(5)",
            1,
            "train.py ends with exit code 5: no data",
        ),
        ("import torch", 2, "ended before an optimizer's step"),
        ("pass", 2, "ended without importing torch"),
    ],
)
def test_a_program_that_cannot_be_verified_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str], body: str, code: int, sentence: str
) -> None:
    accepted(folder, included=True)
    (folder / "train.py").write_text(body)
    assert qrprof(["verify", "train.py"]) == code
    assert sentence in said(capsys)


@pytest.mark.slow
def test_the_included_qr_under_block_soap_trains_the_same_and_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(folder, included=True)
    for name in ("block_soap.py", "charlm.py"):
        shutil.copy(EXAMPLES / name, folder)
    with opened(folder) as connection:
        predictions.remember(connection, [PROMISE], datetime.now(UTC))
    monkeypatch.setattr(verifying, "SPREAD", 2)
    options = ["--steps", "4", "--rounds", "1", "--prediction", "1", "--json", "-"]
    code = qrprof(["verify", *options, "block_soap.py", "--device", "cpu"])
    record = json.loads(capsys.readouterr().out)
    assert code == {"keep": 0, "no difference": 0, "harmful": 1, "cannot tell": 4}[record["outcome"]]
    assert {one["kind"] for one in record["findings"]} <= {"noise", "slower", "leak"}  # a busy machine's
    assert record["names"] == ["qr"]
    assert record["equivalence"]["findings"] == []
    assert (record["equivalence"]["forced"], record["equivalence"]["free"]) == (2, 2)
    assert record["swaps"]["served"][0]["op"] == QR
    assert record["swaps"]["served"][0]["hits"] > 0
    assert record["predicted_x"]["low"] == pytest.approx(1.25)
    assert record["predicted_x"]["high"] == pytest.approx(100 / 60)
    assert record["stock_ms"] > 0
    assert record["compared"]["withheld"] is None
    with opened(folder) as connection:
        (listed,) = predictions.listed(connection)
    assert listed.measurement is not None
    assert listed.measurement.step_ns == round(100 / record["measured_x"]["mid"])
