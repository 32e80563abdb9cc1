"""What-ifs of recorded traces, where it is known what the step took after such a change."""

import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import pytest

from qrprof.planner.whatif import (
    WhatIf,
    find_changes,
    look_ups,
    parse_setting,
    subject_of,
    sweep,
    what_if,
)
from qrprof.planner.whatif_keys import find_part
from qrprof.planner.whatif_parts import Subject
from qrprof.profiler import units
from qrprof.profiler.read import ranked, read, read_all

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[1] / ".." / "shared" / "traces"))


def ask(subject: Subject, *settings: str) -> WhatIf:
    look_up = look_ups(subject, None)
    return what_if(subject, find_changes(subject, [parse_setting(text) for text in settings], look_up))


def h200(build: Any, name: str) -> Subject:
    return subject_of(build.run([round(1e6 * ms) for ms in before(name)]), read(DATA / f"own_h200_{name}.json.gz"))


def before(name: str) -> list[float]:
    found: list[float] = json.loads((DATA / "own_h200.json").read_text())[f"own_h200_{name}"][
        "unprofiled_step_ms_before"
    ]
    return found


def test_h200_without_launches_small_layers_take_as_long_as_their_graph(build: Any) -> None:
    """Measured 1.00 ms launched one by one and 0.34 ms as a graph; predicted is 0.31."""
    found = ask(h200(build, "mlp_eager"), "launch=0")
    assert found.base_ns == pytest.approx(1e6 * statistics.mean(before("mlp_eager")), rel=1e-3)
    assert found.step_ns == pytest.approx(1e6 * statistics.mean(before("mlp_cudagraph")), rel=0.25)


def test_h200_without_the_loader_a_step_is_like_one_without_it(build: Any) -> None:
    """Measured 28.8 ms with a slow loader and 8.8 without; predicted is 11.4: within a tenth of the measured 28.8."""
    found = ask(h200(build, "loader_bound"), "gap:data=0")
    assert found.base_ns == pytest.approx(1e6 * statistics.mean(before("loader_bound")), rel=1e-3)
    assert abs(found.step_ns - 1e6 * statistics.mean(before("adamw_fused"))) < 0.1 * found.base_ns


@pytest.mark.parametrize("key", ["mm", "cutlass_80_simt_sgemm"])
def test_h200_products_beside_a_copy_gain_nothing(build: Any, key: str) -> None:
    """A copy of 256 MiB takes 4.9 of 5.1 ms on another stream."""
    subject = h200(build, "two_streams_overlap")
    found = ask(subject, f"{key}=10x")
    assert found.changes[0].part.device_ns > 0.5 * found.base_ns
    assert 0 <= found.gain_ns < 0.05 * found.base_ns
    assert sweep(subject, key).flat_from == 1
    assert ask(subject, "copy=1.25x").gain_ns > 0.15 * found.base_ns


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_nsys_a_slower_host_is_what_the_pair_differs_in(build: Any, rank: int, turned: bool) -> None:
    """Two recordings of 300 ms of one program: the same kernels an attention call, of 34 calls and of 30.

    What changed is the host, whose ops take 1.2 to 1.4 times as long a call, what it does outside them (1.2 times), and
    the exchange between the GPUs (0.7 times on one rank, 3.3 times on the other). Measured by the calls in 300 ms, 8.82
    and 9.98 ms each, that makes a call 1.13 times as long. Replays of the first recording with the second's times of
    these three predict 1.09 (rank 0) and 1.13 (rank 1); turned around, 0.93 and 0.89 where 0.88 was measured.
    """
    names = ["nsys_h100x2_mfu_before.sqlite", "nsys_h100x2_mfu_after.sqlite"]
    if not all((PUBLIC / name).is_file() for name in names):
        pytest.skip(f"no {names[0]} in {PUBLIC} (QRPROF_TRACES)")
    run = build.run().model_copy(update={"step_source": "imported, whole trace"})
    traces = [[source.trace for _, source in ranked(read_all([PUBLIC / name]))][rank] for name in names]
    old, new = (subject_of(run, trace) for trace in (reversed(traces) if turned else traces))
    calls = [find_part(subject, "flash_fwd_kernel").calls or 0.0 for subject in (old, new)]
    settings = [
        f"{key}={units.time(find_part(new, key).ns * calls[0] / calls[1])}" for key in ("gap:launch", "gap:host")
    ]
    exchange = find_part(new, "ncclDevKernel_SendRecv")
    settings.append(f"ncclDevKernel_SendRecv={units.time(exchange.ns / (exchange.calls or math.nan))}")
    found = ask(old, *settings)
    measured = (new.model.base_ns / calls[1]) / (old.model.base_ns / calls[0])
    assert (found.step_ns > found.base_ns) == (measured > 1)
    assert found.step_ns / found.base_ns == pytest.approx(measured, abs=0.05)
