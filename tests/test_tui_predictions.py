"""`qrprof predictions`, and what `qrprof rank` remembers for it."""

import csv
import io
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qrprof.planner import ledger
from qrprof.planner.ledger import ledger_file
from qrprof.profiler.devices import Peaks, devices_folder, save

TRACE = Path(__file__).parent / "data" / "small_run" / "rank0.trace.json"
ID = "20260131-120000-train"
LATER = "20260201-120000-train"

# Of the small run's step of 1000 us 800 remain, here without a time of linalg_qr. It is pieces of 500 us (linalg_qr),
# 200 (mm), 1, 99, 50 and 150 (host work); the short ones of 1 and 50 us keep 0.3 of their time, and of the 200 us that
# go the others give (200 - 0.7 - 35) / 4 = 41.075 each. So linalg_qr takes 458.925, mm 158.925, host work 182.15.
# A bare ceiling errs by how far the step is from what it would be without the row: (500 - 341) / 500, (600 - 641) /
# 600.
TABLE = """\
id run                scenario            step, ms    predicted measured   error
 1 20260131..00-train linalg_qr..hievable    0.800 0.341..0.800    0.500 +31.8 %
 2 20260131..00-train gap:host=achievable    0.800 0.618..0.800        -       -
 3 20260131..00-train mm=achievable          0.800 0.641..0.800    0.600  -6.8 %

2 of 3 measured; median absolute error 19.3 %; 1 of 2 inside the predicted
interval
"""


@dataclass(frozen=True)
class Store:
    """A working folder with the small run, and `rank` and `predictions` called in it."""

    root: Path
    rank: Any
    predictions: Any

    def later(self, step_ns: int, **changes: Any) -> None:
        """Save a later run whose unprofiled steps took `step_ns` each."""
        folder = self.rank.folder.with_name(LATER)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        info = json.loads((self.rank.folder / "run.json").read_text()) | {"id": LATER, "unprofiled": steps(step_ns)}
        (folder / "run.json").write_text(json.dumps(info | changes))

    def kept(self) -> dict[str, list[float | None]]:
        """Predicted low, mid and high in ms, by scenario."""
        return {one["scenario"]: list(one["predicted_ms"].values()) for one in self.predictions.json()["predictions"]}


def steps(ns: int, count: int = 10) -> list[dict[str, Any]]:
    return [{"clock": "host clock", "first_step": 3, "durations_ns": [ns] * count, "kinds": ["A"] * count}]


@pytest.fixture
def store(saved: Callable[[str, list[Any]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    rank = saved("rank", json.loads(TRACE.read_text())["traceEvents"])
    return Store(tmp_path, rank, type(rank)(rank.folder, "predictions", rank.capsys))


ALL = {
    "aten::linalg_qr=achievable": [0.341075, None, 0.8],
    "gap:host=achievable": [0.61785, None, 0.8],
    "aten::mm=achievable": [0.641075, None, 0.8],
}


# --- what `rank` remembers


@pytest.mark.parametrize("options", [[], ["--json"], ["--json", "--top", "1"]])
def test_rank_remembers_what_it_shows(store: Store, options: list[str]) -> None:
    for _ in range(2):  # the same ranking is kept once
        store.rank.out(*options)
    assert store.kept() == ALL
    first = store.predictions.json()["predictions"][0]
    assert first.pop("made_at")
    assert first.pop("version")
    assert first == {
        "id": 1,
        "run": ID,
        "source": "rank",
        "scenario": "aten::linalg_qr=achievable",
        "basis": "CEILING",
        "step_ms": 0.8,
        "predicted_ms": {"low": 0.341075, "mid": None, "high": 0.8},
        "device": "Test CPU",
        "measured": None,
    }


def test_rank_remembers_only_the_rows_of_its_table(store: Store) -> None:
    store.rank.out("--top", "1")
    assert list(store.kept()) == ["aten::linalg_qr=achievable"]
    store.rank.out("--top", "2")
    assert list(store.kept()) == ["aten::linalg_qr=achievable", "gap:host=achievable"]


def test_a_row_in_noise_shows_no_gain(store: Store) -> None:
    """Half of 640 to 960 us is noise: twice that is more than mm's 159 us and host work's 182 us."""
    store.rank.change(repeats=[[640_000] * 5, [960_000] * 5])
    assert store.rank.text().count("in noise") == 2
    assert list(store.kept()) == ["aten::linalg_qr=achievable"]
    store.rank.out("--json")  # which gives it as a number
    assert store.kept() == ALL


def test_intervals_of_measured_peaks(store: Store) -> None:
    device = {"kind": "cpu", "name": "Test CPU", "uuid": "", "torch": "2.13.0", "threads": 2, "measured_at": ""}
    rates = {"flops": {"float": 100e9}, "copy_bytes_per_s": 10e9, "launch_ns": 1000.0, "repeats": 7, "spread": {}}
    save(Peaks.model_validate({"schema_number": 1} | device | rates), devices_folder())
    gain = {row["key"]: row["gain_ms"] for row in store.rank.json()["rows"]}["aten::mm"]
    expected = [0.8 - gain["high"], 0.8 - gain["mid"], 0.8 - gain["low"]]
    assert store.kept()["aten::mm=achievable"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{"unprofiled": []}, {"unprofiled": [], "step_source": "imported, ProfilerStep"}],
)
def test_without_a_measured_step_nothing_is_remembered(store: Store, changes: dict[str, Any]) -> None:
    store.rank.change(**changes)
    store.rank.out()
    store.rank.out("--json")
    assert not ledger_file(store.root).exists()


def test_withheld_shares_are_no_predictions(store: Store) -> None:
    store.rank.change(unprofiled=steps(30_000_000))
    assert store.rank.json()["withheld"]
    store.rank.out()
    assert not ledger_file(store.root).exists()


# --- a ledger that cannot be written


def ranked_with_a_note(store: Store, *options: str) -> str:
    """The note of a `rank` that prints the same as ever."""
    printed = store.rank.out(*options)
    for path in ledger_file(store.root).parent.glob("ledger.*"):
        path.unlink()
    ledger_file(store.root).mkdir()
    code, out, err = store.rank.call(*options)
    assert (code, out) == (0, printed)
    return str(err)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_rank_works_without_a_ledger(store: Store, options: list[str]) -> None:
    said = ranked_with_a_note(store, *options)
    assert said.startswith(f"qrprof: note: these predictions are not kept: cannot use {ledger_file(store.root)}: ")
    assert said.count("\n") == 1


def test_rank_works_beside_a_locked_and_a_newer_ledger(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.rank.out("--top", "1")
    monkeypatch.setattr(ledger, "BUSY_S", 0.0)
    with closing(sqlite3.connect(ledger_file(store.root), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, _, said = store.rank.call()
        assert (code, said.count("\n")) == (0, 1)
        assert "database is locked; try again" in said
        other.execute("PRAGMA user_version = 99")
        other.execute("COMMIT")
    code, _, said = store.rank.call()
    assert (code, said.count("\n")) == (0, 1)
    assert f"has schema 99, this qrprof reads {ledger.SCHEMA}: open it with the version that wrote it" in said
    code, out, said = store.predictions.call()
    assert (code, out) == (1, "")
    assert "has schema 99" in said


# Root's right to write anywhere (CAP_DAC_OVERRIDE) ends with this exec; who has no such right loses nothing.
OBEDIENT = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def in_read_only(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """A child's `python COMMAND...` in the working folder, while nothing can be written in `folder`."""
    folder.chmod(0o500)
    try:
        return subprocess.run(
            [sys.executable, "-c", OBEDIENT, *command], cwd=folder.parent, capture_output=True, text=True, check=False
        )
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("before", [False, True], ids=["no ledger", "a ledger"])
def test_rank_in_a_read_only_folder(store: Store, before: bool) -> None:
    folder = ledger_file(store.root).parent
    if in_read_only(folder, "-c", "open('.qrprof/written', 'w')").returncode == 0:
        pytest.skip("this user writes where nobody may")
    if before:
        store.rank.out("--top", "1")
    for options in ([], ["--json"]):
        child = in_read_only(folder, "-m", "qrprof", "rank", *options)
        assert (child.returncode, child.stderr.count("\n")) == (0, 1)
        assert "linalg_qr" in child.stdout
        assert child.stderr.startswith(f"qrprof: note: these predictions are not kept: cannot use {folder}/ledger.")
        assert "writable" in child.stderr


# --- the table


def measure_two(store: Store) -> None:
    store.rank.out()
    store.later(500_000)
    store.predictions.out("--measured", "1", LATER)
    store.later(600_000)
    store.predictions.out("--measured", "3", "20260201")


def test_the_table(store: Store) -> None:
    measure_two(store)
    printed = store.predictions.out()
    assert printed == TABLE
    assert max(map(len, printed.splitlines())) <= 80


def test_rows_beyond_the_top_are_one_row(store: Store) -> None:
    measure_two(store)
    lines = [" ".join(line.split()) for line in store.predictions.out("--top", "1").splitlines()]
    assert lines[1].startswith("1 20260131")
    assert lines[2] == "2 others"
    assert lines[4].startswith("2 of 3 measured;")


def test_json_and_csv_hold_the_same(store: Store) -> None:
    measure_two(store)
    record = store.predictions.json("--top", "1")
    assert record["summary"] == {
        "predictions": 3,
        "measured": 2,
        "within": 1,
        "median_error": pytest.approx((0.31785 + 0.041075 / 0.6) / 2),
    }
    found = [one["measured"] for one in record["predictions"]]
    assert found[1] is None
    assert found[0].pop("at")
    assert found[0] == {"run": LATER, "step_ms": 0.5, "noise": 0.0, "error": pytest.approx(0.31785), "within": True}
    assert (found[2]["step_ms"], found[2]["within"]) == (0.6, False)

    rows = list(csv.DictReader(io.StringIO(store.predictions.out("--csv"))))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    numbers = ("step_ns", "low_ns", "mid_ns", "high_ns", "measured_ns", "within")
    assert [rows[0][column] for column in numbers] == ["800000", "341075", "", "800000", "500000", "True"]
    assert [rows[1][column] for column in numbers] == ["800000", "617850", "", "800000", "", ""]
    assert float(rows[2]["error"]) == pytest.approx(-0.041075 / 0.6)


def test_none_yet(store: Store) -> None:
    code, out, said = store.predictions.call()
    assert (code, out) == (0, "")
    assert said == "qrprof: no predictions in .qrprof; `qrprof rank` makes some of a run\n"
    assert store.predictions.json()["predictions"] == []
    assert not ledger_file(store.root).exists()
    store.rank.out()
    assert "none of 3 measured yet: `qrprof predictions --measured ID RUN`" in store.predictions.text()


# --- what is measured


def test_a_measurement_shows_its_prediction(store: Store) -> None:
    store.rank.out()
    store.later(500_000, repeats=[[450_000] * 5, [550_000] * 5])
    text = store.predictions.text("--measured", "1", LATER)
    assert "0.500 +31.8 %" in text
    assert "gap:host" not in text
    assert "1 of 3 measured" in text
    (one,) = store.predictions.json("--measured", "1", LATER)["predictions"]
    assert one["measured"]["noise"] == pytest.approx(0.1)


def refused(store: Store, *args: str) -> str:
    code, out, said = store.predictions.call("--measured", *args)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert [one["measured"] for one in store.predictions.json()["predictions"]] == [None] * 3
    return str(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unprofiled": steps(0)}, f"run {LATER} has no unprofiled step"),
        ({"unprofiled": []}, f"run {LATER} has no unprofiled step to measure by (optimizer SOAP)"),
        (
            {"devices": [{"index": 0, "kind": "cuda", "name": "H200", "memory_bytes": 1}]},
            f"run {LATER} was on H200, prediction 1 is for Test CPU; give a run on that one",
        ),
        ({"devices": []}, f"run {LATER} was on an unknown device, prediction 1 is for Test CPU"),
    ],
)
def test_what_does_not_measure_a_prediction(store: Store, changes: dict[str, Any], said: str) -> None:
    store.rank.out()
    store.later(500_000, **changes)
    assert said in refused(store, "1", LATER)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["7", LATER], "there is no prediction 7; list them with `qrprof predictions --top 1000`"),
        (["1", "nothing"], "run 'nothing' is unknown"),
        (["1", "2026"], "run '2026' is ambiguous"),
        (["0", LATER], "0 is not in the range"),
        (["qr", LATER], "'qr' is not a valid integer"),
        (["1"], "requires 2 arguments"),
    ],
)
def test_what_is_not_known(store: Store, args: Sequence[str], said: str) -> None:
    store.rank.out()
    store.later(500_000)
    assert said in refused(store, *args)


def test_json_and_csv_are_not_given_together(store: Store) -> None:
    code, _, said = store.predictions.call("--json", "--csv")
    assert (code, "give --json or --csv, not both" in said) == (2, True)


def test_torch_stays_out(store: Store) -> None:
    store.rank.out()
    code = "from qrprof.tui.cli import run; import sys; assert run(['predictions']) == 0; print(*sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], cwd=store.root, capture_output=True, text=True, check=True)
    assert "linalg_qr" in child.stdout
    assert not {"torch", "triton", "openai", "textual"} & set(child.stdout.split())
