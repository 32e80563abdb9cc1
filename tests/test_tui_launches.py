"""`qrprof launches` on saved runs."""

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"

# Of two steps of 1000 us each launches `gemm` at 110 and `relu` at 130, which waits in the queue until 620.
TABLES = """\
By op, of the mean recorded step:
op   launches  API ms empty wait us full wait us depth <10 us
relu        1 0.00800     0       -    1     492     0      1
mm          1 0.00500     1    10.0    0       -     0      0

By what is launched:
what        launches  API ms empty wait us full wait us depth <10 us
elementwise        1 0.00800     0       -    1     492     0      1
gemm               1 0.00500     1    10.0    0       -     0      0
"""


def event(kind: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def step(number: int, begin: int) -> list[dict[str, Any]]:
    first, second = 2 * number + 1, 2 * number + 2
    return [
        event("user_annotation", f"qrprof.step#{10 + number}", begin, begin),
        event("cpu_op", "aten::mm", begin + 50, begin + 115),
        event("cuda_runtime", "cudaLaunchKernel", begin + 110, begin + 115, correlation=first),
        event("cpu_op", "aten::relu", begin + 125, begin + 140),
        event("cuda_runtime", "cudaLaunchKernel", begin + 130, begin + 138, correlation=second),
        event("kernel", "gemm", begin + 120, begin + 620, correlation=first, device=0, stream=7),
        event("kernel", "elementwise", begin + 622, begin + 626, correlation=second, device=0, stream=7),
    ]


@pytest.fixture
def store(saved: Any) -> Any:
    return saved("launches", [*step(0, 0), *step(1, 1000), event("user_annotation", "qrprof.step#12", 2000, 2000)])


def test_the_page(store: Any) -> None:
    printed = store.out()
    lines = printed.splitlines()
    assert lines[0].startswith(f"run       {ID}: train.py")
    assert lines[1] == "coverage  trusted: 4 launches and 4 items of device work in 2 steps, all matched"
    text = " ".join(printed.split())
    assert "launches 2 launches of 2 items of device work in the mean recorded step of 1.00 ms, 13.0 us in" in text
    assert "50.0 % found their queue empty" in text
    assert "short 1 kernel under 10.0 us, 4.00 us in all" in text
    assert TABLES in printed
    assert printed.isascii()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_the_saving_is_an_interval_with_an_upper_bound(store: Any) -> None:
    """60 us of op, 5 of call and 5 on the way, before the first launch of each step.

    The 496 us of idle time become 296. The 200 that go are 0.7 of all pieces (these, 50 us before the op, 2 in the
    queue) but for the last one of 374, which has 114.6 to give.
    """
    low, high = 0.3 * 0.065 - 0.003, 0.3 * 0.070
    assert store.json()["graph_saving_ms"] == {"low": pytest.approx(low), "upper_bound": pytest.approx(high)}
    text = store.text()
    assert f"a CUDA graph would save at most {1000 * high:.1f} us (upper bound; {1000 * low:.1f} us to" in text
    assert "of the mean unprofiled step of 800 us, if all launches can be captured" in text
    store.change(unprofiled=[])
    assert "(upper bound; 62.0 us to 70.0 us) of the mean recorded step of 1.00 ms" in store.text()


def test_json_sums_by_op_and_by_work(store: Any) -> None:
    record = store.json("--top", "1")
    assert (record["run"], record["coverage"]["verdict"], record["withheld"]) == (ID, "trusted", None)
    assert (record["step_ms"], record["recorded_ms"]) == pytest.approx((0.8, 1.0))
    assert [row["op"] for row in record["ops"]] == ["aten::relu", "aten::mm"]
    assert [row["what"] for row in record["work"]] == ["elementwise", "gemm"]
    expected = {
        "launches": 1,
        "items": 1,
        "full": 1,
        "empty": 0,
        "depth": 0,
        "short": 1,
        "api_ms": 0.008,
        "work_ms": 0.004,
        "full_ms": 0.492,
        "empty_ms": 0,
        "short_ms": 0.004,
    }
    assert {key: value for key, value in record["ops"][0].items() if key != "op"} == pytest.approx(expected)
    total = record["total"]
    assert (total["launches"], total["api_ms"], total["empty_ms"]) == pytest.approx((2, 0.013, 0.01))


def test_csv_holds_every_launch(store: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(store.out("--csv", "--top", "1"))))
    assert [(row["step"], row["op"], row["start_ns"], row["delay_ns"], row["queue_full"]) for row in rows] == [
        ("10", "aten::mm", "110000", "10000", "False"),
        ("10", "aten::relu", "130000", "492000", "True"),
        ("11", "aten::mm", "1110000", "10000", "False"),
        ("11", "aten::relu", "1130000", "492000", "True"),
    ]


def test_rows_beyond_the_top_are_one_row(store: Any) -> None:
    assert store.text("--top", "1").count("1 others 1 0.00500") == 2


def test_a_saving_is_withheld_with_its_reason(store: Any) -> None:
    block = {"clock": "host clock", "first_step": 0, "durations_ns": [400_000] * 5, "kinds": ["A"] * 5}
    store.change(unprofiled=[block])
    record = store.json()
    assert record["graph_saving_ms"] is None
    assert "more than the whole unprofiled step" in record["withheld"]
    assert len(record["ops"]) == 2
    assert f"what a CUDA graph would save is withheld: {record['withheld']}" in store.text()


def test_a_trace_without_its_device_side_has_no_launches_but_a_reason(store: Any) -> None:
    kept = [e for e in [*step(0, 0), *step(1, 1000)] if e["cat"] != "kernel"]
    store.write([*kept, event("user_annotation", "qrprof.step#12", 2000, 2000)])
    reason = "4 launches and no device work: the device's side is not in the file"
    record = store.json()
    assert (record["total"], record["ops"], record["graph_saving_ms"]) == (None, [], None)
    assert record["withheld"] == reason
    assert f"coverage abstain: {reason} withheld {reason}" in store.text()
    code, out, err = store.call("--csv")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err == f"qrprof: there are no launches: {reason}\n"


def test_json_and_csv_exclude_each_other(store: Any) -> None:
    code, out, err = store.call("--json", "--csv")
    assert (code, out) == (2, "")
    assert "give --json or --csv, not both" in err


def test_help_ends_with_an_example(store: Any) -> None:
    assert store.out("--help").rstrip().endswith("Example: qrprof launches --top 5")


@pytest.mark.parametrize("name", ["own_h200_mlp_eager", "own_h200_mlp_cudagraph", "own_h200_two_streams_overlap"])
def test_h200_traces(store: Any, name: str) -> None:
    (store.folder / "rank0.trace.json").unlink()
    shutil.copy(DATA / f"{name}.json.gz", store.folder / "rank0.trace.json.gz")
    store.change(trace="rank0.trace.json.gz", recorded=[], unprofiled=[])
    record = store.json()
    assert sum(row["launches"] for row in record["work"]) == pytest.approx(record["total"]["launches"])
    assert record["graph_saving_ms"]["low"] <= record["graph_saving_ms"]["upper_bound"] < record["recorded_ms"]
    printed = store.out()
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80
