"""`qrprof path` on saved runs."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from qrprof.tui.cli import run

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"
UNPROFILED = {"clock": "host clock", "first_step": 0, "durations_ns": [1_000_000] * 5, "kinds": ["A"] * 5}

# Two steps of 1000 us, each: 110 us of the host, of which a launch takes 5, then 500 us of a kernel, whose end the
# program waits for; a second wait takes 2 us, and the rest is a pause. The unprofiled step takes as long.
PAGE = """\
bound by               ms/step   share     stretches
device compute: kernel   0.500  50.0 % ###         1
host                     0.486  48.6 % ###         6
  python or pause        0.481  48.1 %             5
  host op              0.00500   0.5 %             1
launch                 0.00700   0.7 % .           2
  host call            0.00500   0.5 %             1
  launch delay         0.00200   0.2 %             1
sync                   0.00700   0.7 % .           2
  return from a wait   0.00500   0.5 %             1
  host call            0.00200   0.2 %             1
step                      1.00 100.0 %            11

op          bound by       ms/step   share
mm          device compute   0.500  50.0 % ###
outside ops host             0.382  38.2 % ##
4 others                     0.118  11.8 %
step                          1.00 100.0 %
"""
TIMES = """\
The longest stretches in order of time:
step at ms    us what            event    on
  10     0   117 6 shorter
  10 0.117   500 kernel          mm: gemm device 0 stream 7
  10 0.617  85.0 3 shorter
  10 0.702   298 python or pause -        thread 1
  11     0   117 6 shorter
  11 0.117   500 kernel          mm: gemm device 0 stream 7
  11 0.617   383 4 shorter
           1,000 mean step
"""


def event(kind: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    place = {"tid": args["stream"]} if "stream" in args else {"tid": 1}
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, **place, "ts": start, "dur": end - start, "args": args}


def step(number: int, begin: int) -> list[dict[str, Any]]:
    return [
        event("user_annotation", f"qrprof.step#{10 + number}", begin, begin),
        event("user_annotation", "prepare", begin + 1, begin + 100),
        event("cpu_op", "aten::mm", begin + 105, begin + 125),
        event("cuda_runtime", "cudaLaunchKernel", begin + 110, begin + 115, correlation=number + 1),
        event("kernel", "gemm", begin + 117, begin + 617, correlation=number + 1, device=0, stream=7),
        event("cuda_runtime", "cudaStreamSynchronize", begin + 200, begin + 622, correlation=100 + number),
        event("cuda_runtime", "cudaStreamSynchronize", begin + 700, begin + 702, correlation=200 + number),
    ]


@pytest.fixture
def store(saved: Any) -> Any:
    made = saved("path", [*step(0, 0), *step(1, 1000), event("user_annotation", "qrprof.step#12", 2000, 2000)])
    made.change(unprofiled=[UNPROFILED])
    return made


def test_the_page(store: Any) -> None:
    printed = store.out("--top", "2")
    assert printed.endswith(f"\n\n{PAGE}")
    lines = printed.splitlines()
    assert lines[0].startswith(f"run       {ID}: train.py")
    assert lines[1] == "coverage  trusted: 2 launches and 2 items of device work in 2 steps, all matched"
    text = " ".join(printed.split())
    assert "step 1.00 ms unprofiled, 1.00 ms recorded; the path is calibrated to 1.00 ms" in text
    assert "replay off by 0.0 % of the recorded step, 100.0 % of the device's starts explained, 0.0 % off with" in text
    assert printed.isascii()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_one_table_alone(store: Any) -> None:
    first, second = PAGE.split("\n\n")
    assert store.out("--by", "category").endswith(f"\n\n{first}\n")
    assert store.out("--by", "op", "--top", "2").endswith(f"\n\n{second}")
    assert store.out("--by", "time", "--top", "3").endswith(f"\n\n{TIMES}")


def test_json_holds_all_of_it(store: Any) -> None:
    record = store.json("--top", "1")
    assert (record["run"], record["coverage"]["verdict"], record["withheld"]) == (ID, "trusted", None)
    assert (record["step_ms"], record["recorded_ms"]) == pytest.approx((1, 1))
    assert (record["replay"]["error"], record["replay"]["explained"]) == (pytest.approx(0), 1)
    for sums in (record["categories"], record["ops"]):
        assert sum(row["ms"] for row in sums) == pytest.approx(1)
        assert sum(row["share"] for row in sums) == pytest.approx(1)
    assert record["categories"][0] == {
        "bound": "device compute",
        "what": "kernel",
        "ms": pytest.approx(0.5),
        "share": pytest.approx(0.5),
        "stretches": 1,
    }
    assert sum(row["ns"] for row in record["stretches"]) == pytest.approx(1e6)
    assert [row for row in record["stretches"] if row["what"] == "kernel"][1] == {
        "step": 11,
        "weight": 0.5,
        "start_ns": 1_117_000,
        "end_ns": 1_617_000,
        "from_ns": pytest.approx(1_117_000),
        "to_ns": pytest.approx(1_617_000),
        "ns": pytest.approx(250_000),
        "what": "kernel",
        "bound": "device compute",
        "name": "gemm",
        "op": "aten::mm",
        "phase": "forward",
        "where": "",
        "thread": None,
        "device": 0,
        "stream": 7,
    }


def test_csv(store: Any) -> None:
    def rows(*args: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(store.out("--csv", *args))))

    stretches = store.json()["stretches"]
    assert [row["what"] for row in rows()] == [stretch["what"] for stretch in stretches]
    assert list(rows()[0]) == list(stretches[0])
    assert (rows()[0]["thread"], rows()[0]["stream"]) == ("1", "")
    assert rows("--by", "time") == rows()
    assert rows("--by", "op")[0] | {"ms": "", "share": ""} == {
        "op": "aten::mm",
        "bound": "device compute",
        "ms": "",
        "share": "",
        "stretches": "1.0",
    }
    assert [row["what"] for row in rows("--by", "category")][:2] == ["kernel", "python or pause"]


def test_a_run_that_was_never_timed_is_not_calibrated(store: Any) -> None:
    store.change(unprofiled=[])
    assert "step 1.00 ms recorded, never timed without the profiler; the path of 1.00 ms is not" in store.text()


def test_a_faster_unprofiled_step_takes_time_off_the_host_alone(store: Any) -> None:
    store.change(unprofiled=[UNPROFILED | {"durations_ns": [900_000] * 5}])
    record = store.json()
    assert record["step_ms"] == pytest.approx(0.9, rel=1e-3)
    kernel, *rest = record["categories"]
    assert kernel["ms"] == pytest.approx(0.5)
    assert sum(row["ms"] for row in rest) == pytest.approx(0.4, rel=1e-3)


@pytest.mark.parametrize("args", [(), ("--csv",), ("--by", "time")])
def test_a_withheld_path_is_a_reason(store: Any, args: tuple[str, ...]) -> None:
    store.change(unprofiled=[UNPROFILED | {"durations_ns": [100_000] * 5}])
    code, out, err = store.call(*args)
    assert (code, out) == (1, "")
    assert err.startswith("qrprof: the critical path is withheld: the recorded steps replay in ")


def test_the_record_of_a_withheld_path(store: Any) -> None:
    kept = [event for event in [*step(0, 0), *step(1, 1000)] if event["cat"] != "kernel"]
    store.write([*kept, event("user_annotation", "qrprof.step#12", 2000, 2000)])
    code, out, err = store.call("--json")
    record = json.loads(out)
    assert (code, err) == (1, "")
    assert record["withheld"] == "2 launches and no device work: the device's side is not in the file"
    assert (record["step_ms"], record["categories"], record["ops"], record["stretches"]) == (None, None, None, None)


def test_usage(store: Any) -> None:
    for args, reason in (
        (("--json", "--csv"), "give --json or --csv, not both"),
        (("--by", "kernel"), "'kernel' is not one of 'category', 'op', 'time'"),
        (("--rank", "3"), "has no rank 3"),
        (("nothing",), "run 'nothing' is unknown"),
    ):
        code, out, err = store.call(*args)
        assert (code, out) == (2, "")
        assert reason in err


def test_help_ends_with_an_example(store: Any) -> None:
    assert store.out("--help").rstrip().endswith("Example: qrprof path --by time --top 20")


@pytest.mark.parametrize("name", ["loader_bound", "soap_qr", "two_streams_overlap"])
def test_recorded_traces_fit_a_narrow_terminal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(("import", str(DATA / f"own_h200_{name}.json.gz"))) == 0
    for args in ((), ("--by", "time")):
        capsys.readouterr()
        assert run(("path", *args)) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
