"""`qrprof report` on saved runs."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gate_cases import PASSED
from gate_tasks import MM
from report_pages import report
from tui_optimizations import add_course
from tui_runs import SMALL, add_example, add_small, change, event, mark, run_folder
from tui_traces import add_recorded

from qrprof.planner.gate import evidence, task_store
from qrprof.planner.ledger import opened
from qrprof.planner.swaps import store
from qrprof.planner.swaps.records import Proposal
from qrprof.tui.cli import run
from qrprof.tui.report import grid

ID = "20260131-120000-train"
SECTIONS = ["summary", "ranking", "whatif", "path", "timeline", "gaps", "launches", "panels", "about"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def small(root: Path) -> Path:
    """The folder of the one run: two steps on a CPU, 800 us each; linalg_qr 400 us, mm 175, the host's work 225."""
    shutil.copytree(SMALL, run_folder(root, ID))
    return run_folder(root, ID)


def ranked(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    capsys.readouterr()
    assert run(["rank", "--json", *args]) == 0
    return json.loads(capsys.readouterr().out)


# --- the data


def test_the_data_is_what_rank_prints_as_json(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report().data["rank"] == ranked(capsys)


def test_of_a_device_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_recorded(root, "two_streams_overlap")
    assert report().data["rank"] == ranked(capsys)


def test_the_grid_of_what_ifs(small: Path) -> None:
    found = report().data["whatif"]
    assert found["command"] == f"qrprof whatif {ID}"
    assert found["levels"] == [1.0, 0.8, 0.5, 0.25, 0.0]
    assert [row["key"] for row in found["rows"]] == ["linalg_qr", "gap:host", "mm"]
    # On one thread each row gains what it takes, alone and together: 400, 225 and 175 us of 800.
    times = [0.4, 0.22465, 0.175175]
    gone = [1 - level for level in found["levels"]]
    for alone, ns in zip(found["alone"], times, strict=True):
        assert alone == pytest.approx([0.8 - ns * part for part in gone], abs=2e-3)
    both = [[0.8 - times[0] * one - times[1] * other for other in gone] for one in gone]
    assert [value for row in found["pairs"]["0,1"] for value in row] == pytest.approx(
        [value for row in both for value in row], abs=2e-3
    )
    assert found["several_off"] == pytest.approx(0, abs=1e-9)


def test_fewer_rows_are_asked_for_where_a_replay_takes_long(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_recorded(root, "loader_bound")
    assert len(report().data["whatif"]["rows"]) > grid.FEWER
    monkeypatch.setattr(grid, "MANY", 100)
    assert len(report().data["whatif"]["rows"]) == grid.FEWER


def test_the_timeline_is_that_of_the_trace(small: Path) -> None:
    trace = report().data["timeline"]
    assert (trace["quantum"], trace["left_out"]) == (0, [])
    assert [step["number"] for step in trace["steps"]] == [10, 11]
    lanes = {lane["label"]: lane for lane in trace["lanes"]}
    assert next(iter(lanes)) == "critical path"
    (thread,) = (lane for label, lane in lanes.items() if label.startswith("thread"))
    spans = sorted(zip((trace["names"][code] for code in thread["name"]), thread["ns"], strict=True))
    assert spans == [("linalg_qr", 500_000), ("linalg_qr", 500_000), ("mm", 200_000), ("mm", 200_000)]
    assert {trace["names"][code]: hue for code, hue in zip(thread["name"], thread["hue"], strict=True)} == {
        "linalg_qr": 1,
        "mm": 3,
    }


# --- sections


def test_what_the_page_says_of_a_run(small: Path) -> None:
    page = report()
    assert [attributes["id"] for tag, attributes in page.found if tag == "section"] == SECTIONS
    assert page.text("ranking").startswith("Ranking Where the step goes")
    said = page.text("ranking")
    assert "1 linalg_qr 0.400 50.0 % 1 2.00x up to 0.400 ceiling Share a batch's matrices over threads" in said
    assert "total 0.800 100.0 %" in said
    assert "linalg_qr 4 x 64 x 64 float32 1 0.400 train.py:12" in said
    assert "800 us, the mean of n = 10 unprofiled steps" in page.text("summary")
    assert "step 0.800 100.0 %" in page.text("path")
    assert page.text("gaps").endswith("withheld no device work in the steps")
    assert page.text("launches").endswith("withheld no launches of device work in the steps")
    assert "torch 2.13.0" in page.text("about")


def test_what_it_says_of_a_device(root: Path) -> None:
    add_example(root)
    page = report()
    assert "launch-bound op 2,842 24.1 61.2 %" in page.text("gaps")
    assert "5,899 others; a gap counts as a whole" in page.text("gaps")
    assert "3,346 launches of 3,346 items of device work" in page.text("launches")
    assert "linalg_qr 308 x 64 x 64 float, cuSOLVER geqr2 2.6 % larft 7.0 %" in page.text("panels")
    assert "geqrf of linalg_qr 308 x 64 x 64 float, us of the mean call" in page.text("panels")
    assert "39.4 ms mean step, unprofiled trusted coverage 15.4 %" in page.text("")


def test_a_run_without_qr_has_no_panels_and_says_so(root: Path) -> None:
    add_recorded(root, "mlp_eager")
    assert report().text("panels") == "QR panels panels no QR calls in the recorded steps"


def test_withheld_shares_are_withheld_on_the_page(small: Path) -> None:
    block = {"clock": "host clock", "first_step": 0, "durations_ns": [1000] * 5, "kinds": ["A"] * 5}
    change(small, lambda record: record.update(unprofiled=[block]))
    page = report()
    assert "times are as recorded and no shares" in page.text("summary")
    assert "withheld the recorded steps replay in" in page.text("whatif")
    assert "withheld the recorded steps replay in" in page.text("path")
    assert page.data["whatif"]["withheld"].startswith("the recorded steps replay in")
    assert "lanes" in page.data["timeline"]
    assert not re.search(r"linalg_qr [0-9.]+ [0-9.]+ %", page.text("ranking"))


def test_coverage_that_abstains_withholds_idle_time(root: Path) -> None:
    events = [mark(10, 0), mark(11, 1000)]
    for place in range(20):
        launch = event("cuda_runtime", "cudaLaunchKernel", 10 + 20 * place, 5)
        events.append(launch | {"args": {"correlation": place + 1}})
    for place in range(5):
        kernel = event("kernel", "gemm", 20 + 20 * place, 10)
        events.append(kernel | {"args": {"correlation": place + 1, "device": 0, "stream": 7}})
    add_small(root, events)
    page = report()
    assert "abstain coverage" in page.text("")
    assert re.search(r"coverage abstain: 15 of 20 launches", page.text("summary"))
    assert "withheld 15 of 20 launches" in page.text("gaps")
    assert "withheld 15 of 20 launches" in page.text("whatif")


def test_ranks_side_by_side(small: Path) -> None:
    record = json.loads((small / "run.json").read_text()) | {"world_size": 2}
    (small / "run.json").write_text(json.dumps(record))
    (small / "run.rank1.json").write_text(json.dumps(record | {"rank": 1, "trace": "rank1.trace.json"}))
    shutil.copy(small / "rank0.trace.json", small / "rank1.trace.json")
    said = report().text("ranks")
    assert said.startswith("Ranks All other sections are of rank 0.")
    assert "ranks all 2 coverage 2 trusted" in said
    assert "A mean recorded step, ms rank step unprof." in said
    assert "All other sections are of rank 1." in report("--rank", "1").text("ranks")


def test_a_rank_that_cannot_be_read_is_named(small: Path) -> None:
    record = json.loads((small / "run.json").read_text()) | {"world_size": 2}
    (small / "run.rank1.json").write_text(json.dumps(record | {"rank": 1, "trace": "rank1.trace.json"}))
    (small / "rank1.trace.json").write_text("no JSON")
    assert "rank1.trace.json" in report().text("ranks")


# --- the ledger


def test_predictions_stand_beside_measurements(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "predictions" not in report().sections
    ranked(capsys)
    shutil.copytree(small, run_folder(Path.cwd(), "20260201-120000-train"))
    change(run_folder(Path.cwd(), "20260201-120000-train"), lambda record: record.update(id="20260201-120000-train"))
    assert run(["predictions", "--measured", "1", "20260201"]) == 0
    said = report(ID).text("predictions")
    assert "linalg_qr=achievable 0.800 0.400..0.800 0.800 +0.0 %" in said
    assert "1 of 3 measured" in said
    assert "predictions" not in report("20260201").sections


def test_swaps_of_the_run_with_their_verdicts(small: Path) -> None:
    with opened(Path.cwd()) as connection:
        evidence.keep(connection, evidence.made(PASSED, "kernels/fast.py", None, datetime(2026, 2, 1, 9, tzinfo=UTC)))
        swap = Proposal("qr", "included", "", "ab" * 32, run_id=ID)
        told = store.changed("proposed", "alice", "the run has calls for it", datetime(2026, 2, 1, 10, tzinfo=UTC))
        store.propose(connection, swap, None, told)
    said = report().text("suggestions")
    assert "qr included proposed 2026-02-01T10:00:00+00:00 the run has calls for it" in said
    change(small, lambda record: record.update(id="another"))
    assert "suggestions" not in report().sections


def test_verdicts_on_tasks_of_the_run_come_with_their_evidence(small: Path) -> None:
    task = task_store.keep(Path.cwd(), replace(MM, origin=ID))
    verdict = replace(PASSED, task=task.id)
    with opened(Path.cwd()) as connection:
        evidence.keep(connection, evidence.made(verdict, "kernels/fast.py", None, datetime(2026, 2, 1, 9, tzinfo=UTC)))
    said = report().text("suggestions")
    assert "PASS: 1.30x (1.25x to 1.36x) the speed of stock why nothing was found in 360 of 360 checks" in said
    assert "8x64x64 dense 3.00 2.00 1.50x 1.45x..1.56x" in said
    assert f"{PASSED.id} {task.id} PASS 1.30x A kernels/fast.py" in said


def test_optimizations_of_the_run(small: Path) -> None:
    change(small, lambda record: record.update(id="example"))
    course = add_course(Path.cwd())
    said = report().text("suggestions")
    assert f"Optimization {course.name} task test target aten::linalg_qr of example proposer search" in said
    assert "best #3, 2.00x (1.90x to 2.10x) the starting file's speed" in said


def test_a_broken_ledger_is_said_and_the_rest_is_there(small: Path) -> None:
    (Path.cwd() / ".qrprof" / "ledger.sqlite").write_bytes(b"no database at all, but long enough to be looked into")
    page = report()
    assert "not read cannot use" in page.text("suggestions")
    assert "linalg_qr" in page.text("ranking")
