"""`qrprof gaps` on saved runs."""

import csv
import io
from typing import Any

import pytest

ID = "20260131-120000-train"

# Two steps of 1000 us: a kernel from 120 to 620, launched at 110; from 640 to 950 the program waits. Unprofiled a step
# takes 800 us, of which the kernel keeps 500: the 500 us of idle time shrink to 300. Before the kernel that is pieces
# of 1, 98, 6, 5, 5 and 5 us, after it of 20, 310 and 50. A cost of 67.8 us takes 67.8 off the two long ones each, and
# 0.7 of the others: 0.3 of 22 and 30.2 of 98 remain of the first 120, 0.3 of 70 and 242.2 of 310 of the last 380.
TABLE = """\
cause           gaps ms/step  share
synchronisation    1   0.263 32.9 % ##
host work          1  0.0368  4.6 % .
all gaps           2   0.300 37.5 % ##

The longest gaps, as recorded:
 us  share step cause           blamed on             next work
380 32.9 %   10 synchronisation cudaStreamSynchronize gemm
380 32.9 %   11 synchronisation cudaStreamSynchronize -
120  4.6 %   10 host work       prepare               gemm
120                             1 others
"""


def event(kind: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    place = {"tid": args["stream"]} if "stream" in args else {"tid": 1}
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, **place, "ts": start, "dur": end - start, "args": args}


def step(number: int, begin: int) -> list[dict[str, Any]]:
    return [
        event("user_annotation", f"qrprof.step#{10 + number}", begin, begin),
        event("user_annotation", "prepare", begin + 1, begin + 99),
        event("cpu_op", "aten::mm", begin + 105, begin + 130),
        event("cuda_runtime", "cudaLaunchKernel", begin + 110, begin + 115, correlation=number + 1),
        event("kernel", "gemm", begin + 120, begin + 620, correlation=number + 1, device=0, stream=7),
        event("cuda_runtime", "cudaStreamSynchronize", begin + 640, begin + 950, correlation=100 + number),
    ]


@pytest.fixture
def store(saved: Any) -> Any:
    return saved("gaps", [*step(0, 0), *step(1, 1000), event("user_annotation", "qrprof.step#12", 2000, 2000)])


def test_the_page(store: Any) -> None:
    printed = store.out("--top", "3")
    assert TABLE in printed
    lines = printed.splitlines()
    assert lines[0].startswith(f"run       {ID}: train.py")
    assert lines[1] == "coverage  trusted: 2 launches and 2 items of device work in 2 steps, all matched"
    text = " ".join(printed.split())
    assert "device busy 50.0 % of the mean recorded step of 1.00 ms; 50.0 % in gaps, 0.0 %" in text
    assert "800 us unprofiled; times and shares are calibrated with the factor 0.60" in text
    assert printed.isascii()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_json_holds_all_gaps(store: Any) -> None:
    record = store.json("--top", "1")
    assert (record["run"], record["coverage"]["verdict"], record["withheld"]) == (ID, "trusted", None)
    assert (record["step_ms"], record["recorded_ms"], record["factor"]) == pytest.approx((0.8, 1.0, 0.6))
    assert record["devices"] == [{"device": 0, "busy_ms": 0.5, "gaps_ms": 0.5, "pauses_ms": 0.0}]
    assert [(row["cause"], row["gaps"], row["device"]) for row in record["causes"]] == [("sync", 1, 0), ("host", 1, 0)]
    assert [row["ms"] for row in record["causes"]] == pytest.approx([0.2632, 0.0368])
    assert [row["share"] for row in record["causes"]] == pytest.approx([0.329, 0.046])
    assert [gap["duration_ns"] for gap in record["gaps"]] == [120_000, 380_000] * 2
    assert record["gaps"][1] == {
        "device": 0,
        "step": 10,
        "start_ns": 620_000,
        "duration_ns": 380_000,
        "weight": 0.5,
        "share": pytest.approx(0.329),
        "cause": "sync",
        "op": "cudaStreamSynchronize",
        "event": "cudaStreamSynchronize",
        "thread": 1,
        "where": "",
        "phase": "forward",
        "before": "gemm",
        "after": "gemm",
    }


def test_csv_holds_the_same_gaps(store: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(store.out("--csv", "--top", "1"))))
    gaps = store.json()["gaps"]
    assert [int(row["duration_ns"]) for row in rows] == [gap["duration_ns"] for gap in gaps]
    assert list(rows[0]) == list(gaps[0])
    assert [(row["cause"], row["op"], row["thread"]) for row in rows] == [
        (gap["cause"], gap["op"], str(gap["thread"])) for gap in gaps
    ]


def test_without_unprofiled_steps_shares_are_of_the_recorded_step(store: Any) -> None:
    store.change(unprofiled=[])
    record = store.json()
    assert (record["step_ms"], record["factor"]) == (None, None)
    assert [row["share"] for row in record["causes"]] == pytest.approx([0.38, 0.12])
    assert "not timed without the profiler: times and shares are of the recorded step" in store.text()


def test_withheld_shares_are_dashes_and_null(store: Any) -> None:
    block = {"clock": "host clock", "first_step": 0, "durations_ns": [400_000] * 5, "kinds": ["A"] * 5}
    store.change(unprofiled=[block])
    record = store.json()
    assert record["withheld"]
    assert [row["share"] for row in record["causes"]] == [None, None]
    assert [row["ms"] for row in record["causes"]] == pytest.approx([0.38, 0.12])
    assert {gap["share"] for gap in record["gaps"]} == {None}
    text = store.text()
    assert "times are as recorded and no shares" in text
    assert "synchronisation 1 0.380 - host work 1 0.120 - all gaps 2 0.500 -" in text


def test_a_trace_without_its_device_side_has_no_gaps_but_a_reason(store: Any) -> None:
    kept = [e for e in [*step(0, 0), *step(1, 1000)] if e["cat"] != "kernel"]
    store.write([*kept, event("user_annotation", "qrprof.step#12", 2000, 2000)])
    reason = "2 launches and no device work: the device's side is not in the file"
    record = store.json()
    assert (record["gaps"], record["causes"], record["devices"]) == (None, [], [])
    assert (record["withheld"], record["coverage"]["verdict"]) == (reason, "abstain")
    assert f"coverage abstain: {reason} withheld {reason}" in store.text()
    code, out, err = store.call("--csv")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err == f"qrprof: gaps are withheld: {reason}\n"


def test_a_run_on_the_host_has_no_gaps(store: Any) -> None:
    store.write([event("cpu_op", "aten::mm", 0, 100)])
    assert store.json()["gaps"] is None
    assert "coverage host only: no launches and no device work; 1 step withheld no device work" in store.text()


def test_a_run_whose_device_is_never_idle(store: Any) -> None:
    launch = event("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1)
    store.write([launch, event("cpu_op", "aten::mm", 0, 9), event("kernel", "k", 0, 900, correlation=1, stream=7)])
    store.change(unprofiled=[])
    assert store.json()["gaps"] == []
    assert "all gaps 0 0 0.0 %" in store.text()


def test_devices_are_listed_apart(store: Any) -> None:
    launches = [event("cuda_runtime", "cudaLaunchKernel", n, n + 1, correlation=n) for n in (1, 2)]
    kernels = [event("kernel", "k", 500 * n, 500 * n + 500, correlation=n + 1, device=n, stream=7) for n in (0, 1)]
    store.write([event("cpu_op", "aten::mm", 0, 1000), *launches, *kernels])
    store.change(unprofiled=[])
    text = store.text()
    assert "device 0 busy 50.0 %" in text
    assert "device 1 busy 50.0 %" in text
    assert "launch-bound op (device 0) 1 0.500 50.0 %" in text
    assert "launch-bound op (device 1) 1 0.500 50.0 %" in text
    assert "all gaps" not in text


def test_json_and_csv_exclude_each_other(store: Any) -> None:
    code, out, err = store.call("--json", "--csv")
    assert (code, out) == (2, "")
    assert "give --json or --csv, not both" in err


def test_help_ends_with_an_example(store: Any) -> None:
    assert store.out("--help").rstrip().endswith("Example: qrprof gaps --top 5")
