"""`qrprof diff` on saved runs."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.trace import Trace, write_cache
from qrprof.tui.cli import run

A, B, C = "20260131-120000-train", "20260201-120000-train", "20260202-120000-other"

# Steps of 1000 us and of 850 us: mm is twice as fast, relu has come.
TABLE = """\
what             phase   calls A, ms B, ms  B - A speedup change
mm [[64,64]]     forward     1 0.500 0.250 -0.250   2.00x faster
relu             forward   0/1     0 0.100  0.100       - new
2 without change               0.500 0.500      0
total                           1.00 0.850 -0.150
"""

# Of the rows, mm has half the batch.
ORDERED = """\
what                     phase   calls A, ms B, ms  B - A speedup change
mm [[8,16],[16,32],[32]] forward     1 0.300 0.200 -0.100   1.50x faster
-> [[4,16],[16,32],[32]]                                          by order
relu                     forward   1/0 0.100     0 -0.100       - gone
2 without change                        1.00  1.00      0
total                                   1.40  1.20 -0.200
"""


class Store:
    """A working folder with saved runs, and the command run in it."""

    def __init__(self, build: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.build, self.runs, self.capsys = build, root / ".qrprof" / "runs", capsys

    def save(self, name: str, ops: Sequence[tuple[str, int]], unprofiled: Sequence[int] = (), **changes: Any) -> None:
        """A run on a CPU: a step of these ops (us) one after the other and 200 us of host work."""
        build, now = self.build, 0
        rows = [build.mark(0, 0)]
        for op, us in ops:
            key, _, shapes = op.partition(" ")
            rows.append(build.op(key, now, now + 1000 * us, shapes=shapes))
            now += 1000 * us
        now += 200_000
        folder = self.runs / name
        folder.mkdir(parents=True)
        info = build.run(unprofiled or [now] * 5, weights={0: 1.0}).model_copy(update={"id": name} | changes)
        (folder / "run.json").write_text(info.model_dump_json())
        write_cache(Trace.from_rows([*rows, build.mark(1, now)]), folder / "rank0.events.parquet")

    def diff(self, *args: str, code: int = 0) -> tuple[str, str]:
        """What the command prints, and what it says on stderr."""
        self.capsys.readouterr()
        assert run(["diff", *args]) == code
        printed = self.capsys.readouterr()
        return printed.out, printed.err

    def text(self, *args: str) -> str:
        return " ".join(self.diff(*args)[0].split())

    def json(self, *args: str) -> Any:
        record = json.loads(self.diff(*args, "--json")[0], parse_constant=pytest.fail)  # no NaN, no Infinity
        assert record["schema"] == 1
        return record

    def csv(self, *args: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.diff(*args, "--csv")[0])))


@pytest.fixture
def store(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    store = Store(build, tmp_path, capsys)
    store.save(A, [("mm [[64,64]]", 500), ("add", 300)])
    store.save(B, [("mm [[64,64]]", 250), ("add", 300), ("relu", 100)])
    store.save(C, [("conv", 700)])
    return store


# --- the page


def test_the_page_of_two_runs(store: Store) -> None:
    printed, said = store.diff("20260131", "20260201")
    assert said == ""
    assert TABLE in printed
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80
    text = " ".join(printed.split())
    assert f"run A {A}: train.py" in text
    assert "coverage A host only" in text
    assert "step A 1.00 ms, B 850 us: B is 150 us faster, 15.0 % of A; speedup 1.18x" in text
    assert "noise 0 ns (within-run): a smaller difference is no change" in text
    assert "alike 93.1 % of the time in ops is in ops and shapes that both call equally often" in text
    assert "note" not in text


def test_a_run_and_itself(store: Store) -> None:
    text = store.text(A, A)
    assert "step A 1.00 ms, B 1.00 ms: no change" in text
    assert "3 without change" in text


def test_rows_beyond_the_first_are_summed(store: Store) -> None:
    assert "mm [[64,64]] forward 1 0.500 0.250 -0.250 2.00x faster 1 others 0 0.100 0.100" in store.text(
        A, B, "--top", "1"
    )


def test_runs_that_are_not_comparable(store: Store) -> None:
    text = store.text(A, C)
    assert "step A 1.00 ms, B 900 us" in text
    assert "alike not compared: only 0.0 % of their time in ops" in text
    assert "total" not in text


def test_rows_matched_by_order(store: Store) -> None:
    """Shapes stay apart and whole, where there is room for them."""
    store.save("whole", [("add", 800), ("mm [[8,16],[16,32],[32],[]]", 300), ("relu", 100)])
    store.save("half", [("add", 800), ("mm [[4,16],[16,32],[32],[]]", 200)])
    printed = store.diff("whole", "half")[0]
    assert ORDERED in printed
    assert max(map(len, printed.splitlines())) <= 80
    for rows in (store.json("whole", "half")["rows"], store.csv("whole", "half")):
        assert (rows[0]["matched"], rows[1]["matched"] or "") == ("order", "")
        assert rows[0]["shapes"] == "[[8,16],[16,32],[32],[]] -> [[4,16],[16,32],[32],[]]"
    assert "note 1 of 4 rows are matched by order: A and B call the op with different shapes" in " ".join(
        printed.split()
    )


def test_many_shapes_matched_by_order_take_a_line_each(store: Store) -> None:
    for name, size in (("before", 64), ("after", 32)):
        shapes = ",".join([f"[{size},{size}]"] * 40)
        store.save(name, [("add", 800), (f"cat [{shapes}]", size)])
    printed = store.diff("before", "after")[0]
    lines = [line for line in printed.splitlines() if line.startswith(("cat [[", "-> [["))]
    assert [line.split()[-1] for line in lines] == ["faster", "order"]
    assert max(map(len, printed.splitlines())) <= 80


def test_notes_say_what_else_differs(store: Store) -> None:
    store.save(
        "other", [("mm [[64,64]]", 500), ("add", 300)], [100] * 5, versions={"torch": "2.11.0"}, world_size=2, threads=4
    )
    text = store.text(A, "other")
    assert "note rows are as recorded, with the profiler's own cost: B: to turn a recorded step" in text
    assert "note torch differs: unknown in A, 2.11.0 in B" in text
    assert "note the number of ranks differs: 1 in A, 2 in B" in text
    assert "note the number of threads differs: 1 in A, 4 in B" in text
    assert "noise not measured" not in text


# --- records


def test_json(store: Store) -> None:
    record = store.json(A, B)
    assert (record["a"]["run"], record["b"]["run"]) == (A, B)
    assert record["a"]["coverage"]["verdict"] == "trusted"
    assert record["steps_ms"] == [1.0, 0.85]
    assert record["rows_ms"] == pytest.approx([1.0, 0.85])
    assert record["noise"] == {"name": "within-run", "ms": 0}
    assert record["withheld"] is None
    first = record["rows"][0]
    assert (first["key"], first["calls"], first["change"], first["speedup"]) == ("mm", [1, 1], "faster", 2)
    assert first["ms"] == pytest.approx([0.5, 0.25])
    assert sum(row["delta_ms"] for row in record["rows"]) == pytest.approx(-0.15)
    assert record["rows"][1]["speedup"] is None
    assert [row["matched"] for row in record["rows"]] == ["shape", None, "shape", "shape"]
    assert store.json(A, C)["rows"] == []
    store.save("half", [("mm [[32,64]]", 250), ("add", 300)])
    assert (store.json(A, "half")["comparability"], store.json(A, "half")["rows"]) == (pytest.approx(600 / 1350), [])


def test_csv_has_all_rows_in_ns(store: Store) -> None:
    rows = store.csv(A, B)
    assert [row["key"] for row in rows] == ["mm", "relu", "add", "gap:host"]
    assert float(rows[0]["delta_ns"]) == pytest.approx(-250_000)
    assert rows[1]["speedup"] == ""
    assert [row["matched"] for row in rows] == ["shape", "", "shape", "shape"]


# --- the gate


@pytest.mark.parametrize("limit", ["5%", "0.05", " 5 %", "0%", "200%"])
def test_a_faster_run_passes(store: Store, limit: str) -> None:
    said = store.diff(A, B, "--fail-over", limit)[1]
    assert said.startswith("qrprof: passed: A 1.00 ms, B 850 us: B is 150 us faster, 15.0 % of A")


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("0.17", 1), ("18%", 0)])
def test_a_run_slower_by_more_fails(store: Store, limit: str, code: int) -> None:
    """From 850 to 1000: 17.6 %."""
    said = store.diff(B, A, "--fail-over", limit, code=code)[1]
    assert said.startswith(f"qrprof: {'failed' if code else 'passed'}: A 850 us, B 1.00 ms: B is 150 us slower, 17.6 %")


def test_what_cannot_be_compared_does_not_pass(store: Store) -> None:
    assert store.diff(A, C)[1] == ""
    printed, said = store.diff(A, C, "--fail-over", "50%", "--json", code=1)
    assert json.loads(printed)["withheld"]
    assert said.startswith("qrprof: failed: the runs cannot be compared: only 0.0 %")


def test_unknown_noise_is_said(store: Store) -> None:
    store.save("once", [("mm [[64,64]]", 500), ("add", 300)], [1_000_000])
    assert "noise not measured" in store.text(A, "once")
    assert "limit 5.0 %, the noise is unknown" in store.diff(A, "once", "--fail-over", "5%")[1]


@pytest.mark.parametrize("limit", ["5", "-5%", "nan", "inf%", "five", "", "%"])
def test_a_limit_is_a_share(store: Store, limit: str) -> None:
    said = store.diff(A, B, "--fail-over", limit, code=2)[1]
    assert "is no share of a step: give 5% or 0.05" in said


# --- usage


def test_usage(store: Store) -> None:
    assert "Missing argument 'B'" in store.diff(A, code=2)[1]
    assert "run 'nothing' is unknown" in store.diff(A, "nothing", code=2)[1]
    assert "give --json or --csv, not both" in store.diff(A, B, "--json", "--csv", code=2)[1]


def test_help_ends_with_an_example(store: Store) -> None:
    assert "Example: qrprof diff" in store.diff("--help")[0].splitlines()[-1]
