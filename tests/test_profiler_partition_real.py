"""The partition of recorded traces: known answers."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.nesting import nest
from qrprof.profiler.partition import Partition, partition
from qrprof.profiler.readers import kineto
from qrprof.profiler.steps import Windows
from qrprof.profiler.sweep import sweep
from qrprof.profiler.work import join

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))


def recorded_on_h200(build: Any, name: str) -> Partition:
    times = json.loads((DATA / "own_h200.json").read_text())[name]
    unprofiled = times["unprofiled_step_ms_before"] + times["unprofiled_step_ms_after"]
    run = build.run([round(1e6 * ms) for ms in unprofiled])
    return partition(kineto.read(DATA / f"{name}.json.gz"), run)


def shares(parts: Partition, column: str = "ns") -> dict[str, float]:
    sums = parts.rows.groupby("key")[column].sum() / parts.rows[column].sum()
    return {str(key): share for key, share in sums.items()}


def test_h200_soap_is_qr(build: Any) -> None:
    """Its steps were timed with a sync after each, which costs 3 % that the recorded step does not have."""
    parts = recorded_on_h200(build, "own_h200_soap_qr")
    assert shares(parts, "recorded_ns")["aten::linalg_qr"] > 0.85
    assert "outside 0.3 to 1.1" in (parts.withheld or "")
    assert set(parts.rows.loc[parts.rows["key"] == "aten::linalg_qr", "phase"]) == {"optimizer"}
    assert "geqr2_smem_domino_fast" in " ".join(parts.rows["kernel"])
    assert build.calls(parts)["aten::linalg_qr"] == 34  # 22 of 512, 8 of 2048 and 4 of 1536 square


def test_h200_qr_loop_is_eight_qr_and_the_pauses_between_their_kernels(build: Any) -> None:
    parts = recorded_on_h200(build, "own_h200_qr_loop_8x512")
    assert parts.factor == pytest.approx(1.0, abs=0.02)
    assert set(shares(parts)) == {"aten::linalg_qr", "gap:launch"}
    assert build.calls(parts) == {"aten::linalg_qr": 8}
    # 1246 items of work, 382 of them launched before the trace begins
    assert parts.rows["launches"].sum() == 864


def test_h200_loader_bound_is_data_loading(build: Any) -> None:
    parts = recorded_on_h200(build, "own_h200_loader_bound")
    assert parts.rows.iloc[0]["key"] == "gap:data"
    # Without the loader the step took 17.5 ms less: it runs python, which the profiler does not slow.
    assert parts.rows.groupby("key")["ns"].sum()["gap:data"] == pytest.approx(17.5e6, rel=0.01)
    assert build.calls(parts)["gap:data"] == 1
    assert parts.rows["ns"].sum() == pytest.approx(parts.step_ns)


def test_h200_small_layers_are_bound_by_their_launches(build: Any) -> None:
    parts = recorded_on_h200(build, "own_h200_mlp_eager")
    assert parts.busy_ns == pytest.approx(275_000, rel=0.01)
    assert shares(parts)["gap:launch"] > 0.6
    assert build.calls(parts)["aten::addmm"] == pytest.approx(40)
    graph = recorded_on_h200(build, "own_h200_mlp_cudagraph")
    assert graph.rows.groupby("kind")["launches"].sum()["op"] == pytest.approx(80)
    assert build.calls(graph) == {"cudaGraphLaunch": pytest.approx(1)}
    assert graph.rows.groupby("key")["recorded_ns"].sum()["cudaGraphLaunch"] == pytest.approx(graph.busy_ns)


def test_h200_two_streams_overlap(build: Any) -> None:
    parts = recorded_on_h200(build, "own_h200_two_streams_overlap")
    assert set(parts.rows.loc[parts.rows["overlap"], "key"]) == {"aten::copy_", "aten::mm"}
    # A 256 MiB copy that takes the whole step beside eight products in half of it.
    assert build.recorded(parts, "key")["aten::copy_"] > 2 * build.recorded(parts, "key")["aten::mm"]
    assert parts.recorded_ns == pytest.approx(5.1e6, rel=0.06)  # not the 0.8 ms of the host's step


def test_h200_backward_runs_on_another_thread(build: Any) -> None:
    parts = recorded_on_h200(build, "own_h200_adamw_fused")
    phases = parts.rows.groupby("phase")["ns"].sum()
    assert set(phases.index) == {"forward", "backward", "optimizer"}
    assert phases["backward"] > phases["optimizer"] > 0
    assert parts.factor is not None


def golden() -> list[Any]:
    if not (PUBLIC / "GOLDEN.tsv").is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no public traces in {PUBLIC} (QRPROF_TRACES)"))]
    lines = pd.read_csv(PUBLIC / "GOLDEN.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    kept = lines[lines["trace"].str.endswith("json.gz") & (lines["gpu_events"] > 0)]
    return [pytest.param(line, id=line["trace"]) for _, line in kept.iterrows()]


@pytest.mark.parametrize("line", golden())
def test_public_traces_have_the_known_busy_time(build: Any, line: Any) -> None:
    try:
        trace = kineto.read(PUBLIC / line["trace"])
    except QrprofError as error:
        pytest.skip(str(error))
    work = join(trace, nest(trace.events))
    whole = Windows(trace.events["start"].min().reshape(1), trace.events["end"].max().reshape(1), np.ones(1))
    assert sweep(work, whole).ns.sum() == pytest.approx(line["gpu_busy_union_ns"], abs=1)
    assert (work.launch < 0).sum() == line["gpu_events_without_launch(all devices)"]
    parts = partition(trace, build.run())
    assert parts.rows["recorded_ns"].sum() == pytest.approx(parts.recorded_ns)
    assert parts.on_device
