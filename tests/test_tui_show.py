"""`qrprof show`: a gain by replay beside what the row's share says of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def store(saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    return saved("show", json.loads((DATA / "small_run" / "rank0.trace.json").read_text())["traceEvents"])


def record_on_h200(store: Any, name: str, unprofiled: bool) -> None:
    """Make the saved run one of a recorded H200 trace, with the steps that were timed before it or without any."""
    known = json.loads((DATA / "own_h200.json").read_text())[name]
    shutil.copy(DATA / f"{name}.json.gz", store.folder / "rank0.trace.json.gz")
    times = [round(1e6 * ms) for ms in known["unprofiled_step_ms_before"]]
    block = {"clock": "device events", "first_step": 3, "durations_ns": times, "kinds": ["A"] * len(times)}
    store.change(
        trace="rank0.trace.json.gz",
        devices=[{"index": 0, "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 150 << 30}],
        recorded=[{"index": 2 + i, "kind": "A", "weight": 1 / known["active"]} for i in range(known["active"])],
        unprofiled=[block] if unprofiled else [],
    )


def test_on_one_thread_both_say_the_same(store: Any) -> None:
    gain = "gain up to 159 us a step; the step at most 1.25x as fast"
    assert f"{gain} by share up to 159 us a step; a replay of the step says the same basis" in store.text("mm")
    row = store.json("mm")
    assert row["by_share_ms"] == pytest.approx(row["gain_ms"])


def test_the_replay_gains_less_where_other_work_runs_beside_it(store: Any) -> None:
    record_on_h200(store, "own_h200_two_streams_overlap", unprofiled=False)  # products beside a longer copy
    text = store.text("aten::mm")
    assert "gain up to 0 ns a step; the step at most 1.00x as fast by share up to 1.36 ms a step; a replay" in text
    assert "gains less, since other work fills part of that time" in text


def test_the_replay_gains_more_where_the_host_is_the_limit(store: Any) -> None:
    """The host's work delays the launches too while the device is busy, which idle time does not hold."""
    record_on_h200(store, "own_h200_mlp_eager", unprofiled=True)
    row = store.json("gap:host")
    assert row["gain_ms"]["high"] > 1.5 * row["by_share_ms"]["high"]
    assert "gains more, since the same work also holds it up in the time of other rows" in store.text("gap:host")


def test_a_row_too_small_to_replay_has_no_other_answer(store: Any) -> None:
    record_on_h200(store, "own_h200_two_streams_overlap", unprofiled=False)
    text = store.text("aten::add")
    assert "gain up to" in text
    assert "by share" not in text
