"""`qrprof rank` and `qrprof show` on saved runs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qrprof.planner.replay.model import model_of
from qrprof.planner.targets import Target
from qrprof.profiler.devices import Peaks, devices_folder, save
from qrprof.tui.cli import run
from qrprof.tui.commands.rank import choose

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"
H200 = sorted(json.loads((DATA / "own_h200.json").read_text()))

# Two recorded steps of 1000 us, 500 of them in linalg_qr, 200 in mm, 300 in neither. Unprofiled a step takes 800 us,
# linalg_qr 400 of them: the other 500 us shrink to 400. They are pieces of 200 us (mm), 1, 99, 50 and 150 us (the mark,
# then before and after the ops). The mark's keeps 0.3 us, the others lose 24.825 each: 175.175 of mm remain, and 0.3,
# 74.175, 25.175 and 125.175 of the host's work.
TABLE = """\
# what            ms/step   share     calls ceiling    gain, ms basis
1 linalg_qr         0.400  50.0 % ###     1   2.00x up to 0.400 ceiling
2 host work (gap)   0.225  28.1 % ##      -   1.39x up to 0.225 ceiling
3 mm                0.175  21.9 % #       1   1.28x up to 0.175 ceiling
  total             0.800 100.0 %
"""


class Store:
    """A working folder with one saved run, and the commands run in it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        self.folder = root / ".qrprof" / "runs" / ID
        shutil.copytree(DATA / "small_run", self.folder)

    def change(self, **fields: Any) -> None:
        """Set fields of the run's record."""
        path = self.folder / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    def out(self, *args: str) -> str:
        """What a command prints; it must succeed and say nothing on stderr."""
        self.capsys.readouterr()
        assert run(args) == 0
        printed = self.capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def json(self, *args: str) -> Any:
        record = json.loads(self.out(*args, "--json"), parse_constant=pytest.fail)  # no NaN, no Infinity
        assert record["schema"] == 1
        return record

    def refusal(self, *args: str) -> str:
        """What a command says when it ends with exit code 2."""
        assert run(args) == 2
        printed = self.capsys.readouterr()
        assert printed.out == ""
        return printed.err

    def text(self, *args: str) -> str:
        """What a command prints, as one line."""
        return " ".join(self.out(*args).split())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path, capsys)


def block(first: int, ns: list[int]) -> dict[str, Any]:
    return {"clock": "host clock", "first_step": first, "durations_ns": ns, "kinds": ["A"] * len(ns)}


def measure_cpu() -> None:
    """Keep made-up peaks of the saved run's CPU: 100 GFLOP/s, 10 GB/s, 1 us a launch."""
    peaks = Peaks(
        schema_number=1,
        kind="cpu",
        name="Test CPU",
        uuid="",
        torch="2.13.0",
        threads=2,
        measured_at="2026-01-31T12:00:00+00:00",
        flops={"float": 100e9},
        copy_bytes_per_s=10e9,
        launch_ns=1000.0,
        repeats=7,
        spread={},
    )
    save(peaks, devices_folder())


# --- the page


def test_the_page_of_a_small_run(store: Store) -> None:
    printed = store.out("rank")
    assert TABLE in printed
    text = " ".join(printed.split())
    assert f"run {ID}: train.py --lr 1e-3" in text
    assert "device Test CPU, 2 threads, torch 2.13.0" in text
    assert "step 800 us, the mean of n = 10 unprofiled steps (median 800 us, p05 800 us, p95 800 us;" in text
    assert "recorded 2 steps, mean 1.00 ms, 1.25 times the unprofiled one; calibrated with the factor 0.80" in text
    assert "replay off by 0.0 % of the recorded step noise 0.0 % of a step, 0 ns (within-run)" in text
    assert "coverage host only" in text
    assert "linalg_qr 4 x 64 x 64 float32 1 0.400 train.py:12" in text
    assert "note no peaks measured for this device: run `qrprof doctor --measure`" in text
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80
    assert all(line == line.rstrip() for line in printed.splitlines())


def test_do_first_is_the_advice_of_the_top_rows(store: Store) -> None:
    advice = {row["key"]: row["advice"] for row in store.json("rank")["rows"]}
    text = store.text("rank")
    assert f"Do first: 1. linalg_qr: {advice['aten::linalg_qr']} 2. host work (gap): {advice['gap:host']}" in text


def test_rows_beyond_the_top_are_one_row(store: Store) -> None:
    lines = store.out("rank", "--top", "1").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("# what"))
    rows = [" ".join(line.split()) for line in lines[start + 1 : start + 4]]
    assert rows == [
        "1 linalg_qr 0.400 50.0 % ### 1 2.00x up to 0.400 ceiling",
        "2 others 0.400 50.0 %",
        "total 0.800 100.0 %",
    ]


def test_a_large_row_is_shown_though_others_have_more_to_gain() -> None:
    def target(key: str, share: float | None) -> Target:
        kind = "fix" if share is None else "op"
        return Target(key, kind, 1.0, share or 0.0, share, 1.0, None, None, None, False, None, "", "")

    ranked = [target("qr", 0.3), target("copy", 0.01), target("mm", 0.6), target("add", 0.01)]
    shown, others = choose(ranked, 2)
    assert [t.key for t in shown] == ["qr", "mm"]
    assert [t.key for t in others] == ["copy", "add"]
    assert [t.key for t in choose(ranked, 3)[0]] == ["qr", "copy", "mm"]
    assert [t.key for t in choose([target("fix:soap", None), *ranked], 2)[0]] == ["fix:soap", "qr"]


def test_json_is_the_same_ranking(store: Store) -> None:
    record = store.json("rank", "--top", "1")
    assert record["run"] == ID
    assert record["step_ms"] == pytest.approx(0.8)
    assert record["factor"] == pytest.approx(0.8)
    assert record["overhead_x"] == pytest.approx(1.25)
    assert record["noise"] == {"name": "within-run", "ms": 0.0}
    assert record["withheld"] is None
    assert (record["coverage"]["verdict"], record["coverage"]["steps"]) == ("trusted", 2)
    assert [row["key"] for row in record["rows"]] == ["aten::linalg_qr", "gap:host", "aten::mm"]
    assert [row["kind"] for row in record["rows"]] == ["op", "gap", "op"]
    assert [row["ms"] for row in record["rows"]] == pytest.approx([0.4, 0.224825, 0.175175])
    assert [row["share"] for row in record["rows"]] == pytest.approx([0.5, 0.28103125, 0.21896875])
    assert [row["calls"] for row in record["rows"]] == [1.0, None, 1.0]
    first = record["rows"][0]
    for gain in (first["gain_ms"], first["by_share_ms"]):
        assert gain == {"low": 0.0, "mid": None, "high": pytest.approx(0.4)}
    assert (first["basis"], first["ceiling_x"]) == ("CEILING", pytest.approx(2.0))
    assert first["parts"] == [
        {
            "op": "aten::linalg_qr",
            "shapes": "[[4,64,64],[]]",
            "dtypes": "float,",
            "phase": "forward",
            "where": "train.py:12",
            "kernel": "",
            "ms": pytest.approx(0.4),
            "calls": 1.0,
            "launches": 0.0,
        }
    ]
    assert record["linalg"][0]["ms_per_step"] == pytest.approx(0.4)
    assert record["replay"] == {
        "base_ms": pytest.approx(0.8),
        "error": pytest.approx(0),
        "explained": None,
        "next_step_error": None,
        "withheld": None,
    }


def test_measured_peaks_give_intervals(store: Store) -> None:
    measure_cpu()
    record = store.json("rank")
    product = next(row for row in record["rows"] if row["key"] == "aten::mm")
    # 2 x 64^3 flops at 100 GFLOP/s are 5.2 us, at most 0.95 of that rate: 5.5 us of the 175 must remain.
    assert product["basis"] == "ROOFLINE"
    assert 0.1 < product["gain_ms"]["low"] <= product["gain_ms"]["mid"] <= product["gain_ms"]["high"] < 0.17
    assert not [note for note in record["notes"] if "peaks" in note]
    low, high = product["gain_ms"]["low"], product["gain_ms"]["high"]
    assert f"{low:.3f}..{high:.3f} roofline" in store.text("rank")


def test_a_gain_in_the_noise_is_not_worth_doing(store: Store) -> None:
    uneven = [400_000, 600_000, 800_000, 1_000_000, 1_200_000]
    store.change(unprofiled=[block(3, uneven), block(14, uneven)])
    record = store.json("rank")
    assert record["noise"]["name"] == "within-run"
    assert record["noise"]["ms"] > 0.1
    small = record["rows"][-1]
    assert small["key"] == "aten::mm"
    assert "within-run" in small["dont_bother"]
    text = store.text("rank")
    assert "mm 0.175 21.9 % # 1 1.28x in noise ceiling" in text
    assert "mm: " not in text.partition("Do first:")[2]
    assert "in noise at most 175 us" in store.text("show", "mm")


def test_repeats_give_the_noise_from_run_to_run(store: Store) -> None:
    store.change(repeats=[[840_000] * 5, [760_000] * 5])
    # Medians 760, 800, 840 us: half their range is 40 us, 5 % of the middle one.
    assert store.json("rank")["noise"] == {"name": "run-to-run", "ms": pytest.approx(0.04)}
    assert "noise 5.0 % of a step, 40.0 us (run-to-run)" in store.text("rank")


@pytest.mark.parametrize(("after", "said"), [(900_000, "12.5 % longer"), (700_000, "12.5 % shorter"), (830_000, "")])
def test_a_drift_is_noted_above_5_percent(store: Store, after: int, said: str) -> None:
    store.change(unprofiled=[block(3, [800_000] * 5), block(14, [after] * 5)])
    notes = [note for note in store.json("rank")["notes"] if "unprofiled steps after the recording" in note]
    assert [said in note for note in notes] == [True] * bool(said)


def test_a_single_long_step_is_noise_and_no_drift(store: Store) -> None:
    store.change(unprofiled=[block(3, [800_000] * 5), block(14, [800_000] * 4 + [1_600_000])])
    record = store.json("rank")
    assert not [note for note in record["notes"] if "unprofiled steps after the recording" in note]
    assert record["step_ms"] == pytest.approx(0.88)
    assert record["noise"]["ms"] >= 0.08  # what the step owes to it


def test_notes_of_the_run_are_printed(store: Store) -> None:
    store.change(notes=["steps differ: the recorded ones are 1 of 3 kinds"])
    assert "steps differ: the recorded ones are 1 of 3 kinds" in store.json("rank")["notes"]
    assert "note steps differ: the recorded ones are 1 of 3 kinds" in store.text("rank")


def test_what_is_withheld_is_shown_as_recorded_with_the_reason(store: Store) -> None:
    # 3 ms unprofiled, 0.4 of them linalg_qr, would mean to scale the other 500 us by 5.2.
    store.change(unprofiled=[block(3, [3_000_000] * 5)])
    record = store.json("rank")
    assert record["withheld"]
    assert {row["key"]: row["ms"] for row in record["rows"]} == pytest.approx(
        {"aten::linalg_qr": 0.5, "gap:host": 0.3, "aten::mm": 0.2}
    )
    for row in record["rows"]:
        assert (row["share"], row["ceiling_x"], row["gain_ms"], row["basis"]) == (None, None, None, None)
    text = store.text("rank")
    assert "withheld times are as recorded and no shares" in text
    assert "1 linalg_qr 0.500 - 1 - - -" in text
    assert "total 1.00 -" in text
    assert "Do first" not in text


def test_a_run_without_unprofiled_steps_has_shares_of_the_recorded_time(store: Store) -> None:
    store.change(unprofiled=[], linalg=[])
    record = store.json("rank")
    assert (record["step_ms"], record["overhead_x"], record["noise"]) == (None, None, None)
    assert [row["share"] for row in record["rows"]] == pytest.approx([0.5, 0.3, 0.2])
    assert any("shares are of the recorded time" in note for note in record["notes"])
    text = store.text("rank")
    assert "step not measured without the profiler (optimizer SOAP)" in text
    assert "noise not measured" in text


def test_a_run_that_is_one_op_has_no_ceiling(store: Store) -> None:
    """The whole step in one row: T / (T - t) is infinite, which JSON has no word for."""
    start = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    events = [
        {**start, "cat": "user_annotation", "name": "qrprof.step#10", "ts": 0, "dur": 0},
        {**start, "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1000},
        {**start, "cat": "user_annotation", "name": "qrprof.step#11", "ts": 1000, "dur": 0},
    ]
    (store.folder / "rank0.trace.json").write_text(json.dumps({"traceEvents": events}))
    store.change(linalg=[], recorded=[{"index": 10, "kind": "A", "weight": 1.0}])
    (row,) = store.json("rank")["rows"]
    assert (row["key"], row["share"], row["ceiling_x"]) == ("aten::mm", 1.0, None)
    assert "mm 0.800 100.0 % ###### 1 inf up to 0.800" in store.text("rank")


def test_another_rank_of_a_run(store: Store) -> None:
    other = json.loads((store.folder / "run.json").read_text()) | {"rank": 1, "world_size": 2, "linalg": []}
    (store.folder / "run.rank1.json").write_text(json.dumps(other))
    store.change(world_size=2)
    assert "(rank 0 of 2)" in store.text("rank")
    assert "(rank 1 of 2)" in store.text("rank", "--rank", "1")
    assert store.json("rank", "--rank", "1")["linalg"] == []
    assert "no rank 5" in store.refusal("rank", "--rank", "5")


def test_runs_are_found_by_id_start_and_folder(store: Store) -> None:
    for name in (ID, "2026", str(store.folder)):
        assert store.json("rank", name)["run"] == ID
    assert "run 'nope' is unknown" in store.refusal("rank", "nope")


# --- show


def test_show_prints_one_row_in_full(store: Store) -> None:
    measure_cpu()
    text = store.text("show", "aten::linalg_qr")
    assert text.startswith(
        "aten::linalg_qr coverage host only: no launches and no device work; 2 steps time 400 us of a"
    )
    assert "mean step, 1 call, 50.0 %" in text
    assert "basis flops and bytes of the shapes over this device's measured peaks" in text
    # Four QRs of 64 x 64: 4 (2 - 2/3) 64^3 flops are 1.40 MFLOP with R alone, 2.80 with Q, in 400 us.
    assert "2.80 MFLOP a step at 6.99 GFLOP/s, peak 100 GFLOP/s (float)" in text
    assert "0.400 1 forward [[4,64,64], []] float train.py:12" in text
    assert "linalg_qr 4 x 64 x 64 float32 1 0.400 train.py:12" in text
    row = next(row for row in store.json("rank")["rows"] if row["key"] == "aten::linalg_qr")
    shown = store.json("show", "linalg_qr")
    assert row.items() <= shown.items()
    assert shown["roofline"]["flops_per_s"] == pytest.approx(shown["roofline"]["flops"] / 400e-6)
    assert [call["site"] for call in shown["linalg"]] == ["train.py:12"]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("aten::linalg_qr", "aten::linalg_qr"),
        ("linalg_qr", "aten::linalg_qr"),
        ("_qr", "aten::linalg_qr"),
        ("mm", "aten::mm"),
        ("host", "gap:host"),
        ("gap", "gap:host"),
    ],
)
def test_show_finds_a_name_or_a_part_that_only_one_has(store: Store, key: str, found: str) -> None:
    assert store.json("show", key)["key"] == found


def test_a_whole_name_comes_before_a_part_of_others(store: Store) -> None:
    trace = store.folder / "rank0.trace.json"
    trace.write_text(trace.read_text().replace("aten::linalg_qr", "aten::addmm"))
    store.change(linalg=[])
    assert store.json("show", "mm")["key"] == "aten::mm"
    assert store.json("show", "addmm")["key"] == "aten::addmm"


def test_show_gives_the_nearest_names(store: Store) -> None:
    unknown = store.refusal("show", "linalg_qt")
    assert "no row 'linalg_qt'" in unknown
    assert "nearest: linalg_qr" in unknown
    several = store.refusal("show", "aten::")
    assert "2 rows" in several
    assert "linalg_qr, mm" in several


def test_a_withheld_replay_leaves_ceilings_and_a_note(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_cpu()
    monkeypatch.setattr("qrprof.tui.ranking.model_of", lambda *args: replace(model_of(*args), withheld="a reason"))
    record = store.json("rank")
    assert record["replay"]["withheld"] == "a reason"
    assert {row["basis"] for row in record["rows"]} == {"CEILING"}
    assert "gains are bare ceilings, since the step cannot be replayed: a reason" in record["notes"]
    text = store.text("rank")
    assert "replay withheld: a reason" in text
    assert "note gains are bare ceilings, since the step cannot be replayed: a reason" in text
    assert "by share" not in store.text("show", "mm")


# --- real traces


@pytest.mark.parametrize("name", H200)
def test_h200_traces_are_ranked(store: Store, name: str) -> None:
    known = json.loads((DATA / "own_h200.json").read_text())[name]
    (store.folder / "rank0.trace.json").unlink()
    shutil.copy(DATA / f"{name}.json.gz", store.folder / "rank0.trace.json.gz")
    blocks = [known["unprofiled_step_ms_before"], known["unprofiled_step_ms_after"]]
    gpu = {"index": 0, "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 150 << 30}
    store.change(
        trace="rank0.trace.json.gz",
        devices=[gpu],
        linalg=[],
        recorded=[{"index": 2 + i, "kind": "A", "weight": 1 / known["active"]} for i in range(known["active"])],
        unprofiled=[block(10 * i, [round(1e6 * ms) for ms in times]) for i, times in enumerate(blocks)],
    )
    record = store.json("rank")
    assert record["step_ms"] == pytest.approx(sum(map(sum, blocks)) / 10)
    assert (record["coverage"]["verdict"], record["coverage"]["steps"]) == ("trusted", known["active"])
    if record["withheld"] is None:
        assert sum(row["share"] for row in record["rows"]) == pytest.approx(1)
        assert sum(row["ms"] for row in record["rows"]) == pytest.approx(record["step_ms"])
    for row in record["rows"]:
        assert sum(part["ms"] for part in row["parts"]) == pytest.approx(row["ms"])
    printed = store.out("rank") + store.out("show", record["rows"][0]["key"])
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80
    assert "NVIDIA H200, torch 2.13.0" in printed
