"""`qrprof panels` on saved runs."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qrprof.tui.cli import run

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"

PAGE = """\
linalg_qr 512 x 512 float, cuSOLVER
8 calls a step, 1.88 ms each, 15.0 ms a step, 190 GFLOP/s; geqrf 1.58 ms; orgqr
280 us
ggggggggggggggggggggggggggggggggggggggggggggggggggggggggttttbbbqqqqqqqc.....
g geqr2 73.7 %   t larft 5.0 %   b larfb 4.4 %   q orgqr 9.2 %   c copy 1.0 %
. gap 6.6 %

geqrf of linalg_qr 512 x 512 float, us of the mean call:
    m x n  nb geqr2 larft larfb  gap  us GFLOP/s
512 x 512  64   197  14.1  19.7 13.1 244     242
"""


class Store:
    """A working folder with one saved run, and the command run in it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.folder = root / ".qrprof" / "runs" / ID
        shutil.copytree(DATA / "small_run", self.folder)

    def recorded(self, name: str) -> None:
        """Make it the run of one of the H200 traces."""
        path = self.folder / "run.json"
        shutil.copy(DATA / f"own_h200_{name}.json.gz", self.folder / "rank0.trace.json.gz")
        changes = {"trace": "rank0.trace.json.gz", "recorded": [], "unprofiled": [], "linalg": []}
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def out(self, *args: str) -> str:
        self.capsys.readouterr()
        assert run(("panels", *args)) == 0
        printed = self.capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def json(self) -> Any:
        record = json.loads(self.out("--json"), parse_constant=pytest.fail)
        assert (record["schema"], record["run"]) == (1, ID)
        return record

    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out("--csv"))))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path, capsys)


def test_the_page_of_eight_qr(store: Store) -> None:
    store.recorded("qr_loop_8x512")
    printed = store.out()
    assert PAGE in printed
    lines = printed.splitlines()
    assert lines[0].split() == ["run", f"{ID}:", "train.py", "--lr", "1e-3"]
    assert lines[1].startswith("coverage  trusted")
    assert printed.isascii()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line[3:6] == " x "]
    assert [(row[0], row[3]) for row in rows] == [
        ("512", "64"),
        ("448", "64"),
        ("384", "64"),
        ("320", "64"),
        ("256", "256"),
        ("128", "128"),
        ("256", "128"),
        ("384", "128"),
        ("512", "128"),
    ]


def test_rows_beyond_the_top_are_one_row(store: Store) -> None:
    store.recorded("soap_qr")
    lines = store.out("--top", "2").splitlines()
    assert [line for line in lines if line.endswith(", cuSOLVER")] == [
        "linalg_qr 2048 x 2048 float, cuSOLVER",
        "linalg_qr 512 x 512 float, cuSOLVER",
    ]
    assert "1 other shape" in lines
    assert [line.split()[:2] for line in lines if "others" in line] == [["19", "others"], ["14", "others"]]
    whole = store.out("--top", "100").splitlines()
    assert not any("other" in line for line in whole)


def test_json_holds_shapes_calls_and_block_columns(store: Store) -> None:
    store.recorded("soap_qr")
    record = store.json()
    assert record["coverage"]["verdict"] == "trusted"
    assert [(shape["size"]["m"], shape["calls"]) for shape in record["shapes"]] == [(2048, 8), (512, 22), (1536, 4)]
    assert all(sum(shape["shares"].values()) == pytest.approx(1) for shape in record["shapes"])
    assert len(record["calls"]) == 34
    call = record["calls"][0]
    own = [column for column in record["block_columns"] if column["call"] == call["call"]]
    assert call["ns"] == call["end_ns"] - call["start_ns"]
    assert sum(column["geqr2_ns"] or 0 for column in own) == call["phases_ns"]["geqr2"]
    assert sum(column["gap_ns"] for column in own) == call["gap_ns"]
    assert call["ns"] == sum(call["phases_ns"].values()) + call["gap_ns"]
    assert call["gflops"] == pytest.approx(2 * 4 / 3 * 512**3 / call["ns"])
    assert own[1]["fused_ns"] is None


def test_csv_is_the_table_of_block_columns(store: Store) -> None:
    store.recorded("qr_loop_8x512")
    rows, columns = store.csv(), store.json()["block_columns"]
    assert len(rows) == len(columns) == 80
    assert list(rows[0]) == list(columns[0])
    for row, column in zip(rows, columns, strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in column.items()}
    assert {"start_ns", "end_ns", "gap_ns", "geqr2_ns", "larft_ns", "larfb_ns", "orgqr_ns", "copy_ns"} <= set(rows[0])


def test_on_a_cpu_calls_are_not_split(store: Store) -> None:
    """The run has one call of 4 x 64 x 64 in each of two steps, 500 us each as recorded."""
    lines = store.out().splitlines()
    start = lines.index("linalg_qr 4 x 64 x 64 float")
    assert " ".join(lines[start + 1 :]) == (
        "1 call a step, 500 us each, 500 us a step, 5.59 GFLOP/s; LAPACK: not split"
    )
    assert lines[1].startswith("coverage  host only")
    assert lines[2] == "timed     under the profiler: 1.00 ms a step; rankings are without it: 800 us"
    record = store.json()
    assert [column["note"] for column in record["block_columns"]] == ["LAPACK: not split"] * 2
    assert {column["geqr2_ns"] for column in record["block_columns"]} == {None}
    assert record["shapes"][0]["phases_ns"] is None
    assert record["shapes"][0]["shares"] == {}


def test_a_run_without_qr_says_so(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.recorded("mlp_eager")
    assert "panels    no QR calls in the recorded steps" in store.out().splitlines()
    record = store.json()
    assert (record["shapes"], record["calls"], record["block_columns"]) == ([], [], [])
    assert run(("panels", "--csv")) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("call,weight,op,shapes,dtype,library,part,matrix,column,batch,m,n,nb,start_ns,")
    assert printed.out.count("\n") == 1
    assert "no QR calls in the recorded steps" in printed.err


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--json", "--csv"), "give --json or --csv, not both"),
        (("--top", "0"), "--top"),
        (("--rank", "7"), "has no rank 7"),
        (("nothing",), "run 'nothing' is unknown"),
    ],
)
def test_usage(store: Store, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], reason: str) -> None:
    assert run(("panels", *args)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert reason in printed.err


def test_help_ends_with_an_example(store: Store) -> None:
    assert store.out("--help").splitlines()[-1].strip() == "Example: qrprof panels --top 5"
