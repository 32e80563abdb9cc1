"""QR calls of recorded traces taken apart: known answers from the files by the standard json module."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.blocks import Problem, problem
from qrprof.profiler.panels import PanelStep, panels
from qrprof.profiler.panelsums import by_call, by_shape
from qrprof.profiler.readers import kineto

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> tuple[list[PanelStep], list[dict[str, Any]]]:
    """The block columns of a trace, and its spans by the standard json module."""
    path = DATA / f"own_h200_{name}.json.gz"
    with gzip.open(path) as file:
        members = json.load(file)["traceEvents"]
    return panels(kineto.read(path)), [member for member in members if member["ph"] == "X"]


def kernels_by_call(spans: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Device work launched inside each `aten::linalg_qr`, by its correlation, in order of time."""
    ops = sorted((span for span in spans if span["name"] == "aten::linalg_qr"), key=lambda span: float(span["ts"]))
    launches = [span for span in spans if span["cat"] in ("cuda_runtime", "cuda_driver")]
    work = [span for span in spans if span["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    by_correlation = {span["args"]["correlation"]: span for span in work}
    found = []
    for op in ops:
        inside = [call for call in launches if op["ts"] <= call["ts"] < op["ts"] + op["dur"]]
        own = [by_correlation[number] for call in inside if (number := call["args"]["correlation"]) in by_correlation]
        found.append(sorted(own, key=lambda span: float(span["ts"])))
    return found


@pytest.mark.parametrize(("name", "calls"), [("qr_loop_8x512", 8), ("soap_qr", 34)])
def test_h200_the_time_of_the_kernels_of_linalg_qr_has_a_phase(name: str, calls: int) -> None:
    steps, spans = recorded(name)
    work = [span for call in kernels_by_call(spans) for span in call]
    total = sum(round(1000 * span["dur"]) for span in work)
    named = sum(ns or 0 for step in steps for phase, ns in (step.phases or {}).items() if phase != "unknown")
    assert len(by_call(steps)) == calls
    assert sum(step.kernels for step in steps) == len(work)
    assert sum(step.busy for step in steps) == total
    assert 0.97 * total <= named <= total
    panel = sum(round(1000 * span["dur"]) for span in work if "geqr2" in span["name"] or "Memset" in span["name"])
    assert sum((step.phases or {}).get("geqr2") or 0 for step in steps) == panel


def test_h200_block_columns_of_512_by_hand() -> None:
    """Five launches of geqr2 a call: four panels of 64 and the last 256 columns at once; Q in four times 128."""
    steps, spans = recorded("qr_loop_8x512")
    assert [sum("geqr2" in span["name"] for span in call) for call in kernels_by_call(spans)] == [5] * 8
    for number in range(8):
        own = [step for step in steps if step.call == number]
        assert [(step.part, step.column, step.m, step.n, step.nb) for step in own] == [
            ("", None, None, None, None),
            ("geqrf", 0, 512, 512, 64),
            ("geqrf", 1, 448, 448, 64),
            ("geqrf", 2, 384, 384, 64),
            ("geqrf", 3, 320, 320, 64),
            ("geqrf", 4, 256, 256, 256),
            ("orgqr", 3, 128, 128, 128),
            ("orgqr", 2, 256, 256, 128),
            ("orgqr", 1, 384, 384, 128),
            ("orgqr", 0, 512, 512, 128),
        ]
    assert sum(step.flops or 0 for step in steps) == pytest.approx(8 * 2 * 4 / 3 * 512**3)


def test_h200_panel_widths_are_those_of_the_launches() -> None:
    """cuSOLVER launches a block for each column of a panel: the grid, which names do not say, confirms each nb."""
    steps, spans = recorded("soap_qr")
    grids = [[span["args"]["grid"][0] for span in call if "geqr2" in span["name"]] for call in kernels_by_call(spans)]
    widths: dict[int, list[int | None]] = {}
    for step in steps:
        if step.part == "geqrf":
            widths.setdefault(step.call, []).append(step.nb)
    assert list(widths.values()) == grids
    assert Counter(map(len, grids)) == {5: 22, 21: 8, 17: 4}


def test_h200_gaps_of_a_call_are_the_idle_time_between_its_first_and_last_kernel() -> None:
    steps, spans = recorded("soap_qr")
    work = [span for span in spans if span["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    times = [(round(1000 * span["ts"]), round(1000 * (span["ts"] + span["dur"]))) for span in work]
    for call, own in zip(by_call(steps), kernels_by_call(spans), strict=True):
        start, end = call.start or 0, call.end or 0
        assert abs(start - round(1000 * own[0]["ts"])) <= 1
        idle, reached = 0, start
        for begin, stop in sorted(times):
            if begin < end and stop > start:
                idle, reached = idle + max(0, begin - reached), max(reached, stop)
        assert call.gap == pytest.approx(idle, abs=2 * len(own))  # floats are off by a ns
        assert call.ns == sum(ns or 0 for ns in (call.phases or {}).values()) + (call.gap or 0)


def test_h200_by_shape() -> None:
    steps, _ = recorded("soap_qr")
    shapes = by_shape(by_call(steps))
    assert [(shape.size and shape.size.m, shape.calls) for shape in shapes] == [(2048, 8), (512, 22), (1536, 4)]
    for shape in shapes:
        assert sum(shape.shares().values()) == pytest.approx(1)
        assert 0.70 < shape.shares()["geqr2"] < 0.76
        assert shape.library == "cuSOLVER"
    assert problem("aten::linalg_qr", shapes[0].shapes) == Problem(1, 2048, 2048, 2048)
