"""`qrprof verify` as a person calls it."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from verify_cases import QR, accepted

from qrprof.planner import predictions
from qrprof.planner.ledger import opened
from qrprof.planner.predictions import Forecast
from qrprof.planner.verify import verify as verifying
from qrprof.tui.cli import run as qrprof

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (
            "import sys, torch\nprint('no data', file=sys.stderr)\nsys.exit(5)",
            1,
            "exit code 5 without the swaps: no data",
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
    promise = Forecast(
        run_id="r", source="rank", scenario="aten::linalg_qr=achievable", basis="measured", base_ns=100, low_ns=60,
        mid_ns=70, high_ns=80, device="", version="",
    )  # fmt: skip
    with opened(folder) as connection:
        predictions.remember(connection, [promise], datetime.now(UTC))
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
    assert listed.measurement.step_ns == pytest.approx(record["swapped_ms"] * 1e6, rel=1e-6)
