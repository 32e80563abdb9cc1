"""Sums over QR calls alike."""

from typing import Any

import pytest

from qrprof.profiler.panels import panels
from qrprof.profiler.panelsums import block_columns, by_call, by_shape
from qrprof.profiler.trace import Trace

PANEL = "void geqr2_domino<float>(int)"


def qr(build: Any, at: int, ns: int, correlation: int) -> list[dict[str, Any]]:
    return [
        build.op("aten::linalg_qr", at, at + 80, shapes="[[64,64],[]]", dtypes="float,"),
        build.launch(correlation, at + 5, at + 6),
        build.kernel(PANEL, at + 10, at + 10 + ns, correlation),
    ]


def test_block_columns_weigh_as_their_steps_do(build: Any) -> None:
    marks = [build.mark(0, 0), build.mark(1, 100), build.mark(2, 200)]
    trace = Trace.from_rows([*marks, *qr(build, 10, 10, 1), *qr(build, 110, 50, 2)])
    steps = panels(trace, build.run(weights={0: 0.9, 1: 0.1}))
    (shape,) = by_shape(by_call(steps))
    (column,) = block_columns(steps, shape)
    assert column.ns == pytest.approx(14)
    assert shape.ns == pytest.approx(14)
