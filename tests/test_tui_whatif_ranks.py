"""`qrprof whatif --all-ranks` on saved runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.trace import Trace, write_cache
from qrprof.tui.cli import run

ID = "20260131-120000-train"
WALL = 1_700_000_000 * 10**9  # ns: November 2023

# Two ranks of two steps: mm, 200 us on rank 0 and 400 us on rank 1, then a transfer of 100 us and add, of 50 us. With
# mm in half its time rank 1 comes as rank 0 does; add in twice its time takes 50 us more, and 1 us before it.
RANKS_PAGE = """\
what set to ranks device, ms host, ms
mm   2x     1          0.400  0.00800
add  100us  all       0.0500  0.00400

A mean step of each rank, and its waiting in collectives, ms:
rank  step   new  gain faster waits     new
0    0.555 0.406 0.149  1.37x 0.200       0
1    0.555 0.406 0.149  1.37x     0 0.00150

what if   556 us -> 406 us, 1.37x, 149 us a step gained (the last rank is done)
between   406 us and 406 us, by the replay's own errors and the noise
slowest   rank 0, 556 us -> rank 0, 406 us
"""


@pytest.fixture
def pair(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Save a run of these ranks, and call `qrprof whatif --all-ranks` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / ".qrprof" / "runs" / ID
    folder.mkdir(parents=True)

    def rows(mm: int) -> list[dict[str, Any]]:
        found, done = [], 6000
        for number in range(2):
            host = 40_000 * number
            found += [build.mark(number, host), build.op("aten::mm", host + 1000, host + 9000)]
            found += [build.op("aten::add", host + 20_000, host + 24_000)]
            for turn, (kernel, ns) in enumerate((("mm", mm), ("ncclKernel_AllReduce", 500_000 - mm), ("add", 50_000))):
                call = 10 * number + turn + 1
                launched = host + 4000 + 9000 * turn
                found += [build.launch(call, launched - 2000, launched), build.kernel(kernel, done, done + ns, call)]
                done += ns + 1000
        return [*found, build.mark(2, 80_000)]

    for rank, mm in enumerate((200_000, 400_000)):
        changes = {"id": ID, "rank": rank, "world_size": 2, "trace": f"rank{rank}.trace.json.gz"}
        info = build.run([555_500] * 5).model_copy(update=changes)
        (folder / ("run.json" if rank == 0 else "run.rank1.json")).write_text(info.model_dump_json())
        write_cache(replace(Trace.from_rows(rows(mm)), base_ns=WALL), folder / f"rank{rank}.events.parquet")

    def call(*args: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(["whatif", "--all-ranks", *args]) == code
        printed = capsys.readouterr()
        assert not (printed.out and code)
        return printed.err if code else printed.out

    return call


def test_all_ranks(pair: Any) -> None:
    printed = pair("--set", "mm@1=2x", "--set", "add=100us")
    assert printed.endswith(RANKS_PAGE)
    text = " ".join(printed.split())
    assert text.startswith(f"run {ID}: train.py (2 ranks) coverage 2 trusted;")
    assert "clocks as recorded; 0 of 2 barrier-like collectives contradict them" in text
    assert (
        "off by 0.0 % of a rank's recorded step at most, 100.0 % of a rank's device starts explained at least" in text
    )
    assert "2 collectives end within 0 ns (median) of when the last member's coming lets them" in text
    assert max(map(len, printed.splitlines())) <= 80
    assert printed.isascii()


def test_all_ranks_wait_for_the_slowest(pair: Any) -> None:
    assert "556 us -> 556 us, 1.00x, 0 ns a step gained (the last rank is done)" in pair("--set", "mm@0=0")
    assert "556 us -> 456 us, 1.22x, 100 us a step gained" in pair("--set", "comm=0")


def test_json_of_all_ranks(pair: Any) -> None:
    record = json.loads(pair("--json", "--set", "mm=2x"), parse_constant=pytest.fail)
    assert (record["schema"], record["run"], record["together"], record["collectives"]) == (1, ID, True, 2)
    assert (record["base_ms"], record["step_ms"]) == pytest.approx((0.5555, 0.354), abs=1e-3)
    assert record["low_ms"] <= record["step_ms"] <= record["high_ms"]
    assert (record["basis"], record["slowest"], record["left_out"]) == ("ASSUMED", {"base": 0, "new": 0}, 0)
    assert record["clock"] == {"name": "recorded", "checked": 2, "contradicted": 0, "off_ns": 0}
    first, second = record["ranks"]
    assert (first["rank"], first["base_wait_ms"], second["base_wait_ms"]) == (0, pytest.approx(0.2), 0)
    assert first["wait_ms"] == pytest.approx(0.1)
    assert [(change["key"], change["factor"]) for change in first["changes"]] == [("aten::mm", 0.5)]
    assert (first["replay"]["error"], first["replay"]["withheld"]) == (0, None)
    assert first["coverage"]["verdict"] == "trusted"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--set", "mm@7=2x"], f"mm@7: run {ID} has no rank 7; its ranks: 0, 1"),
        (["--set", "tea=2x"], f"rank 0: no op or kernel 'tea' in the steps of run {ID}"),
        (["--set", "tea@1=2x"], f"rank 1: no op or kernel 'tea' in the steps of run {ID}"),
        (["--set", "mm=2x", "--set", "mm@1=4x"], "rank 1: 'mm' is set twice"),
        (["--set", "mm@1=quick"], "'quick' says no time"),
        (["--set", "mm=2x", "--rank", "0"], "--all-ranks takes --set KEY=SPEC or KEY@RANK=SPEC, and neither"),
        (["--sweep", "mm"], "--all-ranks takes --set KEY=SPEC or KEY@RANK=SPEC, and neither"),
    ],
)
def test_bad_usage_of_all_ranks(pair: Any, args: list[str], said: str) -> None:
    err = pair(*args, code=2)
    assert said in err
    assert err.count("\n") == 1


def test_a_rank_that_is_missing_withholds_all(pair: Any, tmp_path: Path) -> None:
    for record in (tmp_path / ".qrprof" / "runs" / ID).glob("run*.json"):
        record.write_text(record.read_text().replace('"world_size":2', '"world_size":4'))
    err = pair("--set", "mm=2x", code=1)
    assert f"what-ifs of all ranks of run {ID} are withheld: 2 of 4 ranks are there" in err
