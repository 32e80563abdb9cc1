"""`qrprof ranks` on saved runs."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.trace import Trace, write_cache
from qrprof.tui.cli import run

ID = "20260131-120000-train"
WALL = 1_700_000_000 * 10**9  # ns
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

# Eight steps of 1000 us, in each mm from 50 to 250 us and a collective up to 600, to which rank 1 comes 400 us late.
TIMES = """\
rank step unprof.  busy compute comm. exposed  idle waits causes
0    1.00    1.20 0.550   0.200 0.500   0.350 0.450 0.400      0
1    1.00    1.20 0.300   0.200 0.100   0.100 0.700     0  0.400
"""
COLLECTIVES = """\
collective                           calls latency  skew waiting came last
ncclDevKernel_All..e_Sum_f32_RING_LL     1   0.100 0.400   0.400 rank 1 (8 of 8)
"""


class Store:
    """A working folder with one saved run, and the command run in it."""

    def __init__(self, build: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.build, self.folder, self.capsys = build, root / ".qrprof" / "runs" / ID, capsys

    def save(self, rank: int, rows: Sequence[dict[str, Any]], base: int = WALL, world_size: int = 2) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        changes = {"id": ID, "rank": rank, "world_size": world_size, "trace": f"rank{rank}.trace.json.gz"}
        info = self.build.run([1_200_000] * 5).model_copy(update=changes)
        (self.folder / ("run.json" if rank == 0 else f"run.rank{rank}.json")).write_text(info.model_dump_json())
        trace = replace(Trace.from_rows(rows), base_ns=base)
        write_cache(trace, self.folder / f"rank{rank}.events.parquet")

    def steps(self, arrives: int, steps: int = 8) -> list[dict[str, Any]]:
        """Steps in which a rank comes to the collective at `arrives` us."""
        build, rows = self.build, []
        for number in range(steps):
            zero = number * 1_000_000
            rows += [build.mark(number, zero), build.launch(2 * number + 1, zero + 10, zero + 20)]
            rows += [build.kernel("mm", zero + 50_000, zero + 250_000, 2 * number + 1)]
            rows += [build.launch(2 * number + 2, zero + 30, zero + 40)]
            rows += [build.kernel(ALL_REDUCE, zero + 1000 * arrives, zero + 600_000, 2 * number + 2, stream=20)]
        return [*rows, build.mark(steps, steps * 1_000_000)]

    def out(self, *args: str, code: int = 0) -> str:
        self.capsys.readouterr()
        assert run(["ranks", *args]) == code
        printed = self.capsys.readouterr()
        return printed.err if code else printed.out

    def text(self, *args: str) -> str:
        return " ".join(self.out(*args).split())

    def json(self) -> Any:
        record = json.loads(self.out("--json"), parse_constant=pytest.fail)  # no NaN, no Infinity
        assert record["schema"] == 1
        return record


@pytest.fixture
def store(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    store = Store(build, tmp_path, capsys)
    store.save(0, store.steps(100))
    store.save(1, store.steps(500))
    return store


def test_the_page_of_two_ranks(store: Store) -> None:
    printed = store.out()
    assert TIMES in printed
    assert COLLECTIVES in printed
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80
    text = " ".join(printed.split())
    assert f"run {ID}: train.py (2 ranks)" in text
    assert "coverage 2 trusted; rank 0: trusted: 16 launches and 16 items of device work in 8 steps" in text
    assert "clocks as recorded; 0 of 8 barrier-like collectives contradict them;" in text
    assert "their ends on two ranks differ by 0 ns (median)" in text
    assert (
        "straggler rank 1 causes 100.0 % of the waiting (400 us of 400 us a step, all ranks together); it came last to "
        "8 of 8 collectives and caused the most in 8 of 8 steps (by chance: 0.8 %)"
    ) in text
    assert "note" not in text


def test_ranks_that_are_not_there(store: Store) -> None:
    store.save(0, store.steps(100), world_size=4)
    assert f"{ID}: train.py (2 of 4 ranks)" in store.text()


def test_clocks_lined_up_by_collectives(store: Store) -> None:
    store.save(1, store.steps(500), base=WALL + 10**9)
    text = store.text()
    assert "clocks lined up by the ends of 8 barrier-like collectives, not as recorded" in text
    assert "straggler rank 1" in text


def test_a_run_of_one_rank(store: Store) -> None:
    (store.folder / "run.rank1.json").unlink()
    store.save(0, store.steps(100), world_size=1)
    text = store.text()
    assert f"{ID}: train.py (1 rank)" in text
    assert "straggler only one rank is there: nobody to compare it with" in text
    assert "clocks" not in text
    assert "Collectives" not in text
    assert "note" not in text


def test_the_worst_coverage_is_shown(store: Store) -> None:
    """Rank 1 lost its device's side: of it nothing is known but the step."""
    store.save(1, [row for row in store.steps(500) if row["kind"] not in ("kernel",)])
    text = store.text()
    assert "coverage 1 abstain, 1 trusted; rank 1: abstain: 16 launches and no device work" in text
    assert "1 1.00 1.20 - - - - - - -" in text
    assert "straggler no collective was found on two ranks" in text
    assert "note 8 communications in the steps were left out" in text


def test_json(store: Store) -> None:
    record = store.json()
    assert (record["run"], record["world_size"], record["left_out"]) == (ID, 2, 0)
    assert record["coverage"]["1"]["verdict"] == "trusted"
    assert record["clock"] == {"name": "recorded", "checked": 8, "contradicted": 0, "off_ns": 0}
    first, second = record["ranks"]
    assert (first["rank"], first["device"], first["step_ms"], first["unprofiled_ms"]) == (0, 0, 1.0, 1.2)
    assert first["exposed_ms"] == pytest.approx(0.35)
    assert first["wait_ms"] == record["wait_ms"] == pytest.approx(0.4)
    assert record["straggler"] == second
    assert record["why"].startswith("rank 1 causes")
    assert [one["step"] for one in record["collectives"]] == list(range(8))
    assert {one["skew_ns"] for one in record["collectives"]} == {400_000}
    assert record["collectives"][0]["start_ns"] == WALL + 100_000


def test_what_is_not_known_is_null(build: Any, store: Store) -> None:
    for rank in (0, 1):
        store.save(rank, [build.mark(0, 0), build.op("aten::mm", 100, 400), build.mark(1, 1000)])
    record = store.json()
    assert record["ranks"][0]["device"] is None
    assert record["ranks"][0]["busy_ms"] is None
    assert record["ranks"][0]["wait_ms"] is None
    assert (record["straggler"], record["wait_ms"], record["collectives"]) == (None, None, [])


def test_csv_has_a_row_a_rank_in_ns(store: Store) -> None:
    rows = list(csv.DictReader(io.StringIO(store.out("--csv"))))
    assert [row["rank"] for row in rows] == ["0", "1"]
    assert float(rows[1]["caused_ns"]) == pytest.approx(400_000)
    assert float(rows[0]["idle_ns"]) == pytest.approx(450_000)


def test_usage(store: Store) -> None:
    assert "run 'nothing' is unknown" in store.out("nothing", code=2)
    assert "give --json or --csv, not both" in store.out("--json", "--csv", code=2)
    assert "Example: qrprof ranks" in store.out("--help").splitlines()[-1]
