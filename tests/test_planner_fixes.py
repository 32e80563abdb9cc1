"""Fixes that are no faster kernel: a fused optimizer and exposed communication, with the step that a replay gives them.

The unfused step: 0..20 us forward (one kernel), then an Optimizer.step that gathers its parameters for 10 us and runs
ten ops of 8 us, with 2 us of python after each; each op launches a kernel of 1 us for 1000 parameters.
"""

from typing import Any

import pytest

from qrprof.planner.estimate import Basis
from qrprof.planner.fixes import Fix, find_fixes, updated
from qrprof.planner.replay.model import model_of
from qrprof.planner.targets import rank
from qrprof.profiler.devices import Peaks
from qrprof.profiler.facts import find_facts
from qrprof.profiler.partition import divide
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

US = 1000
SHAPES = "[[10,100],[10,100],[10,100]]"
PEAKS = Peaks(
    schema_number=1,
    kind="cuda",
    name="GPU",
    uuid="",
    torch="2.11",
    threads=1,
    measured_at="2026-01-01T00:00:00+00:00",
    flops={"float": 1e13},
    copy_bytes_per_s=1e12,
    launch_ns=5000.0,
    repeats=3,
    spread={},
)


def step_rows(build: Any, number: int, at: int, op: str = "aten::addcdiv_") -> list[dict[str, Any]]:
    rows = [
        build.mark(number, at),
        build.op("aten::mm", at + 2 * US, at + 20 * US),
        build.launch(100 * number + 1, at + 5 * US, at + 10 * US),
        build.kernel("gemm", at + 12 * US, at + 20 * US, 100 * number + 1),
        build.note("Optimizer.step#AdamW.step", at + 20 * US, at + 130 * US),
    ]
    for n in range(10):
        begin = at + 30 * US + n * 10 * US
        correlation = 100 * number + 2 + n
        rows += [
            build.op(op if n == 9 else "aten::mul_", begin, begin + 8 * US, shapes=SHAPES),
            build.launch(correlation, begin + 2 * US, begin + 6 * US),
            build.kernel("elementwise", begin + 8 * US, begin + 9 * US, correlation),
        ]
    return rows


def trace(build: Any, *more: dict[str, Any], op: str = "aten::addcdiv_") -> Trace:
    rows = step_rows(build, 0, 0, op) + step_rows(build, 1, 130 * US, op) + [build.mark(2, 260 * US)]
    return Trace.from_rows([*rows, *more])


def fixes(found: Trace, run: RunInfo, peaks: Peaks | None = None) -> dict[str, Fix]:
    model = model_of(find_facts(found, run), run)
    assert model.withheld is None
    return {fix.key: fix for fix in find_fixes(model, run, peaks)}


def test_a_fused_optimizer_keeps_what_its_step_gathers(build: Any) -> None:
    fix = fixes(trace(build), build.run())["fix:fused-optimizer"]
    # Of a step of 130 us the ops and the python between them go: 100 us. Gathering the parameters, 10 us, may stay.
    # Without peaks nothing is known of what the kernel takes.
    assert fix.gain_ns.mid is None
    assert fix.gain_ns.low == pytest.approx(80 * US, abs=1)  # the python after each op stays too
    assert fix.gain_ns.high == pytest.approx(110 * US, abs=1)
    assert fix.ceiling_ns == pytest.approx(110 * US, abs=1)
    assert (fix.ns, fix.gain_ns.basis) == (10 * US, Basis.CEILING)
    assert "launches 10 kernels that take 10.0 us together" in fix.why


def test_its_kernel_moves_each_parameter_once(build: Any) -> None:
    found = trace(build)
    assert updated(find_facts(found, build.run())) == 1000
    # 1000 parameters of 28 bytes at 1 TB/s take 28 ns, of the 10 us that the ten kernels take.
    fix = fixes(found, build.run(), PEAKS)["fix:fused-optimizer"]
    assert fix.gain_ns.basis is Basis.ROOFLINE
    assert fix.gain_ns.mid == pytest.approx(100 * US, abs=20)


def heavy(build: Any, op: str, shapes: str, launches: int = 10) -> Trace:
    """A step of 1 ms whose optimizer launches kernels that fill it, 0.09 ms each."""
    rows = [build.mark(0, 0), build.note("Optimizer.step#AdamW.step", 0, 100 * US)]
    for n in range(launches):
        rows += [
            build.op(op, (5 + 5 * n) * US, (9 + 5 * n) * US, shapes=shapes),
            build.launch(1 + n, (6 + 5 * n) * US, (7 + 5 * n) * US),
            build.kernel("update", (10 + 90 * n) * US, (100 + 90 * n) * US, 1 + n),
        ]
    rows += [build.call("cudaDeviceSynchronize", 100 * US, 1000 * US), build.mark(1, 1000 * US)]
    return Trace.from_rows(rows)


def test_of_lists_no_shapes_are_known_and_their_kernels_may_all_stay(build: Any) -> None:
    fix = fixes(heavy(build, "aten::_foreach_addcdiv_", "[[],[],[]]"), build.run(), PEAKS)["fix:fused-optimizer"]
    assert (fix.gain_ns.mid, fix.gain_ns.basis) == (None, Basis.CEILING)
    assert fix.gain_ns.low < 110 * US
    assert fix.gain_ns.high > 800 * US


def test_what_is_fused_already_may_launch_often(build: Any) -> None:
    assert fixes(heavy(build, "aten::_fused_adamw_", "[[]]"), build.run(), PEAKS) == {}


@pytest.mark.parametrize("source", ["optimizer SOAP", "range train", "whole run"])
def test_an_optimizer_that_cannot_be_fused_gets_no_such_fix(build: Any, source: str) -> None:
    run = build.run().model_copy(update={"step_source": source})
    assert "fix:fused-optimizer" not in fixes(trace(build), run)


def test_one_launch_a_step_is_fused_already(build: Any) -> None:
    rows = [
        build.mark(0, 0),
        build.note("Optimizer.step#AdamW.step", 10 * US, 40 * US),
        build.op("aten::_fused_adamw_", 15 * US, 30 * US),
        build.launch(1, 18 * US, 22 * US),
        build.kernel("fused", 24 * US, 50 * US, 1),
        build.mark(1, 60 * US),
    ]
    assert fixes(Trace.from_rows(rows), build.run()) == {}


def test_only_exposed_communication_holds_the_step_up(build: Any) -> None:
    def of(second: int) -> Fix:
        """An all-reduce of 60 us beside a product of 100 us, and one of `second` us after both, on its own stream."""
        rows = [
            build.mark(0, 0),
            build.op("aten::mm", 1 * US, 9 * US),
            build.launch(1, 2 * US, 3 * US),
            build.kernel("gemm", 5 * US, 105 * US, 1),
            build.launch(2, 4 * US, 5 * US),
            build.kernel("ncclDevKernel_AllReduce", 7 * US, 67 * US, 2, stream=20),
            build.launch(3, 6 * US, 7 * US),
            build.kernel("ncclDevKernel_AllReduce", 68 * US, (68 + second) * US, 3, stream=20),
            build.mark(1, 10 * US),
        ]
        return fixes(Trace.from_rows(rows), build.run())["fix:exposed-communication"]

    assert of(30).gain_ns.high == 0  # it ends at 98 us, before the product does
    assert of(80).gain_ns.high == pytest.approx(43 * US, abs=1)  # 148 us instead of 105
    assert of(80).ns == 140 * US


def test_fixes_stand_in_the_ranking_without_a_share(build: Any) -> None:
    run = build.run([130 * US] * 8)
    facts = find_facts(trace(build), run)
    targets = rank(divide(facts, run), run, None, None, model_of(facts, run))
    fix = next(target for target in targets if target.kind == "fix")
    assert (fix.key, fix.share, fix.by_share_ns) == ("fix:fused-optimizer", None, None)
    assert fix.ceiling_x == pytest.approx(130 / 20, rel=0.01)
    assert sum(target.share or 0 for target in targets) == pytest.approx(1)
