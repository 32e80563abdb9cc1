"""What an adapter would group in a run, and what the step would gain by it: known answers.

The step: 0..20 us forward (one kernel), then four QR of 10 us each on the device, which the host waits for at its end.
"""

from typing import Any

import pytest

from qrprof.kernels.adapters import fitting
from qrprof.kernels.adapters.groups import Group, groups
from qrprof.planner.estimate import Basis
from qrprof.planner.grouping import batches, find_groupings
from qrprof.planner.measured import PerCall, calls_of
from qrprof.planner.replay.model import model_of
from qrprof.planner.roofline import Levels
from qrprof.planner.targets import rank
from qrprof.profiler.facts import find_facts
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import LinalgCall, RunInfo, StepKind
from qrprof.profiler.trace import Trace

US = 1000
SOAP = "site-pkgs/pytorch_optimizer/optimizer/soap.py:210"
BATCH = ("linalg_qr", (4, 64, 64), "float32")


def run_of(build: Any, *calls: LinalgCall, source: str = "optimizer SOAP", refreshes: float = 1.0) -> RunInfo:
    kinds = [StepKind(name="A", label="4 linalg_qr", frequency=refreshes)]
    kinds += [StepKind(name="B", label="no linalg calls", frequency=1 - refreshes)] * (refreshes < 1)
    run: RunInfo = build.run([60 * US] * 4, linalg=calls)
    return run.model_copy(update={"step_source": source, "kinds": kinds})


def qr(build: Any, calls: float, *shape: int, site: str = SOAP) -> LinalgCall:
    call: LinalgCall = build.linalg("aten::linalg_qr", shape or (64, 64), site)
    return call.model_copy(update={"calls_per_step": calls})


def test_calls_of_one_shape_are_a_group(build: Any) -> None:
    run = run_of(build, qr(build, 2.0), qr(build, 1.0, 8, 8), qr(build, 0.4), refreshes=0.2)
    (adapter,) = fitting(run)
    assert adapter.name == "soap"
    assert groups(adapter, run) == (
        Group("linalg_qr", 12, (64, 64), "float32", "cuda", 0.2),
        Group("linalg_qr", 5, (8, 8), "float32", "cuda", 0.2),
    )


@pytest.mark.parametrize(
    ("calls", "options"),
    [
        ([(62.0, 64, 64)], {"source": "optimizer AdamW"}),
        ([(1.0, 64, 64), (1.0, 32, 32)], {}),  # no two of a shape
        ([(62.0, 8, 64, 64)], {}),  # batches already
        ([(62.0, 8192, 8192)], {}),  # the library has nothing for them
        ([], {}),
    ],
)
def test_what_has_nothing_to_group_does_not_fit(build: Any, calls: list[Any], options: Any) -> None:
    assert fitting(run_of(build, *(qr(build, *call) for call in calls), **options)) == ()


def test_a_soap_of_the_users_own_does_not_fit(build: Any) -> None:
    assert fitting(run_of(build, qr(build, 62.0, site="soap.py:210"))) == ()


def trace(build: Any, host_us: int = 2) -> Trace:
    """Of QR calls that take the host so long."""
    rows = []
    for number, at in enumerate((0, 60 * US)):
        rows += [
            build.mark(number, at),
            build.op("aten::mm", at + 1 * US, at + 4 * US),
            build.launch(10 * number + 1, at + 2 * US, at + 3 * US),
            build.kernel("gemm", at + 3 * US, at + 20 * US, 10 * number + 1),
        ]
        for n in range(4):
            host, device, correlation = at + (5 + host_us * n) * US, at + (20 + 10 * n) * US, 10 * number + 2 + n
            rows += [
                build.op("aten::linalg_qr", host, host + host_us * US, shapes="[[64,64],[]]", dtypes="float,"),
                build.launch(correlation, host + 500, host + 1500),
                build.kernel("geqrf", device, device + 10 * US, correlation),
            ]
        rows.append(build.call("cudaDeviceSynchronize", at + (6 + 4 * host_us) * US, at + 60 * US))
    return Trace.from_rows([*rows, build.mark(2, 120 * US)])


def test_the_step_with_one_call_for_each_shape(build: Any) -> None:
    run = run_of(build, qr(build, 4.0))
    facts = find_facts(trace(build), run)
    model = model_of(facts, run)
    assert model.withheld is None
    (fix,) = find_groupings(model, run, {BATCH: PerCall(Levels(8.0 * US, 10.0 * US, 20.0 * US), 10.0 * US)})
    # Of 40 us of QR on the device, 10 are left.
    assert fix.ns == pytest.approx(40 * US, rel=0.01)
    assert fix.gain_ns.mid == pytest.approx(30 * US, rel=0.05)
    assert (fix.gain_ns.low, fix.gain_ns.high) == pytest.approx((20 * US, 32 * US), rel=0.05)
    assert fix.gain_ns.basis is Basis.MEASURED
    assert "4 calls of linalg_qr a step, one matrix each, in 40.0 us" in fix.why
    assert "one call for each shape takes 10.0 us" in fix.why
    assert find_groupings(model, run, {}) == []

    targets = rank(
        divide(facts, run), run, None, None, model, {BATCH: PerCall(Levels(8.0 * US, 10.0 * US, 20.0 * US), 10.0 * US)}
    )
    assert targets[0].key == "fix:soap"


def test_the_interval_holds_that_the_host_s_part_hides(build: Any) -> None:
    """A batch that takes the host 28 us of the step's 60, and the device 10."""
    run = run_of(build, qr(build, 4.0))
    facts = find_facts(trace(build, host_us=8), run)
    (fix,) = find_groupings(model_of(facts, run), run, {BATCH: PerCall(Levels(*[10.0 * US] * 3), 28.0 * US)})
    assert fix.gain_ns.low == fix.gain_ns.mid
    assert fix.gain_ns.low < 25 * US
    assert fix.gain_ns.high == pytest.approx(30 * US, rel=0.05)


def test_on_a_cpu_the_batch_takes_what_it_was_timed_to_take(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::mm", 0, 20 * US)]
    rows += [
        build.op("aten::linalg_qr", at * US, (at + 10) * US, shapes="[[64,64],[]]", dtypes="float,")
        for at in (20, 30, 40, 50)
    ]
    run = run_of(build, qr(build, 4.0))
    model = model_of(find_facts(Trace.from_rows([*rows, build.mark(1, 60 * US)]), run), run)
    (fix,) = find_groupings(model, run, {BATCH: PerCall(Levels(8.0 * US, 10.0 * US, 20.0 * US), 10.0 * US)})
    assert (fix.gain_ns.low, fix.gain_ns.mid, fix.gain_ns.high) == pytest.approx((20 * US, 30 * US, 32 * US), rel=0.01)
    assert fix.ceiling_ns == pytest.approx(40 * US, rel=0.01)


def test_batches_are_timed_beside_the_calls_that_they_replace(build: Any) -> None:
    run = run_of(build, qr(build, 4.0))
    called = calls_of(divide(find_facts(trace(build), run), run))
    (batch,) = batches(run, called)
    assert (batch.signature, batch.calls) == (BATCH, 1.0)
    assert batch.ns == pytest.approx(40 * US, rel=0.01)
