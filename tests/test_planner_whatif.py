"""What-ifs: what keys name, and what scenarios predict of a run with known answers."""

import math
from typing import Any

import pytest

from qrprof.planner.amdahl import combined_x, speedup_x
from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.whatif import (
    ROOFLINE,
    SWEPT,
    TABLE,
    Left,
    WhatIf,
    find_changes,
    look_ups,
    parse_setting,
    parse_spec,
    roofline,
    subject_of,
    sweep,
    what_if,
)
from qrprof.planner.whatif_keys import find_part
from qrprof.planner.whatif_parts import Subject
from qrprof.profiler.devices import Peaks
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.noise import Noise
from qrprof.profiler.trace import Trace

US = 1000


def ask(subject: Subject, *settings: str) -> WhatIf:
    look_up = look_ups(subject, None)
    return what_if(subject, find_changes(subject, [parse_setting(text) for text in settings], look_up))


# --- a small run with known answers


@pytest.fixture
def small(build: Any) -> Subject:
    """Two steps of 942 and 920 us on one device, which its work keeps busy for 920.

    `linear` calls `mm`, whose gemm<1> takes 500 us; another mm's gemm<2> takes 200, add's kernel 200, a copy 20. The
    host runs ahead: it needs 60 us a step.
    """

    def step(number: int) -> list[dict[str, Any]]:
        host, device, first = 60 * US * number, 920 * US * number + 22 * US, 10 * number + 1
        mm, small_mm = "[[64,128],[128,32]]", "[[8,8],[8,8]]"
        return [
            build.mark(number, host),
            build.op("aten::linear", host, host + 20 * US),
            build.op("aten::mm", host, host + 20 * US, shapes=mm),
            build.launch(first, host + 10 * US, host + 20 * US),
            build.kernel("void gemm<1>(int)", device, device + 500 * US, first),
            build.op("aten::mm", host + 20 * US, host + 40 * US, shapes=small_mm),
            build.launch(first + 1, host + 30 * US, host + 40 * US),
            build.kernel("void gemm<2>(int)", device + 500 * US, device + 700 * US, first + 1),
            build.op("aten::add", host + 40 * US, host + 50 * US),
            build.launch(first + 2, host + 45 * US, host + 50 * US),
            build.kernel("add_kernel", device + 700 * US, device + 900 * US, first + 2),
            build.op("aten::view", host + 50 * US, host + 55 * US),
            build.call("cudaMemcpyAsync", host + 55 * US, host + 60 * US, first + 3),
            build.copy("Memcpy DtoD", device + 900 * US, device + 920 * US, first + 3),
        ]

    return subject_of(build.run(), Trace.from_rows([*step(0), *step(1), build.mark(2, 120 * US)]))


@pytest.mark.parametrize(
    ("setting", "left_us"),
    [
        ("gemm<1>=2x", 250),
        ("void gemm<1>(int)=0.5x", 1000),
        ("gemm<1>=100us", 100),
        ("gemm=2x", 350),  # by its own name: both that it was instantiated with
        ("add_kernel=0", 0),
        ("add=150us", 150),
        ("aten::mm=0.5x", 1400),
        ("mm=100us", 200),  # a call, of which there are two
        ("mm[64x128]=4x", 125),
        ("mm[64x128,128x32]=500us", 500),
        ("mm[ 8x8 ]=0", 0),
        ("linear=4x", 125),  # with what it calls
        ("copy=0", 0),
        ("comm=0", 0),
    ],
)
def test_device_work_of_a_busy_device_is_taken_off_the_step(small: Subject, setting: str, left_us: float) -> None:
    found = ask(small, setting)
    (change,) = found.changes
    assert change.factor * change.part.device_ns == pytest.approx(left_us * US, abs=1e-6)
    assert found.gain_ns == pytest.approx(change.part.device_ns - left_us * US, abs=30 * US)  # and what it launches


def test_what_parts_cover(small: Subject) -> None:
    parts = {key: find_part(small, key) for key in ("mm", "linear", "mm[8x8]", "gemm", "launch", "copy", "gap:host")}
    assert {key: part.calls for key, part in parts.items()} == {
        "mm": pytest.approx(2),
        "linear": pytest.approx(1),
        "mm[8x8]": pytest.approx(1),
        "gemm": pytest.approx(2),
        "launch": pytest.approx(4),
        "copy": pytest.approx(1),
        "gap:host": None,
    }
    assert parts["mm"].device_ns == pytest.approx(700 * US)
    assert parts["linear"].device_ns == pytest.approx(500 * US)
    assert parts["linear"].host_ns == pytest.approx(20 * US)
    assert parts["gemm"].host_ns == 0
    assert parts["launch"].device_ns == 0
    assert (parts["mm"].key, parts["mm"].label) == ("aten::mm", "mm")
    assert parts["mm[8x8]"].key == "aten::mm[8x8]"


def test_changes_combine(small: Subject) -> None:
    alone = [ask(small, text).gain_ns for text in ("gemm<1>=2x", "add_kernel=2x")]
    assert ask(small, "gemm<1>=2x", "add_kernel=2x").gain_ns == pytest.approx(sum(alone))
    twice = ask(small, "gemm=2x", "gemm<1>=2x")  # what overlaps multiplies
    assert twice.gain_ns == pytest.approx((700 - 125 - 100) * US, abs=5 * US)
    assert twice.scenario == "gemm=2x void gemm<1>(int)=2x"
    nothing = ask(small)
    assert (nothing.gain_ns, nothing.speedup, nothing.amdahl_x) == (0, 1, 1)


def test_amdahl_counts_each_row_once(small: Subject) -> None:
    step = small.model.base_ns
    for setting, part, left in (
        ("mm=2x", 700, 350),
        ("linear=0", 500, 0),
        ("gemm=2x", 700, 350),
        ("copy=2x", 20, 10),
    ):
        assert ask(small, setting).amdahl_x == pytest.approx(speedup_x(step, part * US, left * US)), setting
    both = ask(small, "mm=2x", "gemm<1>=2x", "add=0")
    assert both.amdahl_x == pytest.approx(combined_x(step, [500 * US, 200 * US, 200 * US], [125 * US, 100 * US, 0]))


def test_parts_may_be_the_whole_step() -> None:
    assert combined_x(0.3, [0.1, 0.2], [0.0, 0.0]) == math.inf  # 0.1 + 0.2 > 0.3
    with pytest.raises(ValueError, match="no step"):
        combined_x(1.0, [0.6, 0.6], [0.0, 0.0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["mm=2x", "aten::mm=4x"], "'mm' is set twice: give one time for it"),
        (["launch=2x", "launch=0"], "'launch' is set twice"),
        (["lineer=2x"], "no op or kernel 'lineer' in the steps of run .*; nearest: linear; see `qrprof rank"),
        (["add_kernal=2x"], "nearest: add_kernel"),
        (["e=2x"], "'e' is in the names of 4 kernels: write gemm or Memcpy or add_kernel"),
        (["gap:sync=200us"], "'gap:sync' waits for as long as the device takes: give 4x or 0"),
        (["gap:coffee=0"], "no cause of idle time 'gap:coffee'; there are gap:data, gap:sync, gap:copy, gap:alloc"),
        (["mm[7x7]=2x"], r"no call of mm begins with inputs of '7x7'; nearest: mm\[8x8,8x8\], mm\[64x128,128x32\]"),
        (["add[7]=2x"], "holds no shapes of add: name it alone"),
        (["mm=table"], "no included kernel was timed for all calls of mm on this device .*; or give 4x or a time"),
        (["mm=roofline"], "no roofline for mm: its work, or this device's peaks"),
        (["add=roofline"], "no roofline for add: the trace holds no shapes of it"),
        (["linear=roofline"], "no roofline for linear, which has no row of its own"),
        (["launch=roofline"], "'roofline' is for ops, and 'launch' is none"),
        (["gemm=table"], "'table' is for ops, and 'gemm' is none"),
        (["comm=10us"], "'comm' takes no time in the steps: give 4x or 0"),
        (["mm=0x"], "mm=0x is over a million times as slow"),
        (["mm=999999 s"], "over a million times as slow"),
    ],
)
def test_bad_scenarios(small: Subject, settings: list[str], said: str) -> None:
    with pytest.raises(QrprofError, match=said) as found:
        ask(small, *settings)
    assert found.value.exit_code is Exit.USAGE
    assert "\n" not in str(found.value)


def test_names_of_several_ops_must_be_written_in_full(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 10), build.op("mine::mm", 10, 30), build.op("launch", 30, 40)]
    subject = subject_of(build.run(), Trace.from_rows(rows))
    assert find_part(subject, "mine::mm").host_ns == 20
    with pytest.raises(QrprofError, match=r"'mm' is in the names of 2 ops: write (aten|mine)::mm or (aten|mine)::mm"):
        find_part(subject, "mm")


def test_a_table_is_asked_where_there_is_one(small: Subject) -> None:
    asked = []

    def table(part: Any) -> Left:
        asked.append((part.op, part.shapes, part.calls))
        return Left(Estimate(0, 125 * US, 200 * US, Basis.TABLE), 5 * US)

    (change,) = find_changes(small, [("mm[64x128]", parse_spec(TABLE))], {TABLE: table})
    assert asked == [("aten::mm", ("[[64,128],[128,32]]",), pytest.approx(1))]
    assert change.factor == pytest.approx(0.25)
    assert change.on_host == pytest.approx(0.25)  # of 20 us
    assert change.basis is Basis.TABLE


def test_an_estimate_of_an_op_leaves_what_the_op_calls(build: Any) -> None:
    rows = [build.mark(0, 0), build.op("aten::linear", 10 * US, 1020 * US), build.op("aten::addmm", 20 * US, 1015 * US)]
    subject = subject_of(build.run(), Trace.from_rows([*rows, build.mark(1, 1100 * US)]))
    look = {ROOFLINE: lambda part: Left(Estimate(0, 1 * US, 15 * US, Basis.ROOFLINE))}
    (wrapper,) = find_changes(subject, [("linear", parse_spec(ROOFLINE))], look)
    assert wrapper.factor == pytest.approx((995 + 1) / 1010)
    (inside,) = find_changes(subject, [("addmm", parse_spec(ROOFLINE))], look)
    assert inside.factor == pytest.approx(1 / 995)


def test_roofline_is_the_middle_estimate_of_the_ranking(small: Subject) -> None:
    peaks = Peaks(
        schema_number=1,
        kind="cuda",
        name="Test GPU",
        uuid="",
        torch="2.13.0",
        threads=1,
        measured_at="2026-01-31T12:00:00+00:00",
        flops={"float": 1e12},
        copy_bytes_per_s=1e12,
        launch_ns=1000.0,
        repeats=7,
        spread={},
    )
    rows = small.partition.rows
    types = small.partition.calls.assign(dtypes="float,float")
    typed = Subject(
        small.run,
        small.model,
        type(small.partition)(**{**vars(small.partition), "rows": rows.assign(dtypes="float,float"), "calls": types}),
    )
    spec = [("mm", parse_spec(ROOFLINE))]
    (change,) = find_changes(typed, spec, {ROOFLINE: roofline(typed.partition, peaks)})
    assert change.basis is Basis.ROOFLINE
    assert 0 < change.factor * 700 * US < 10 * US  # two launches' floors of 2 us
    cpu = peaks.model_copy(update={"kind": "cpu"})
    with pytest.raises(QrprofError, match="no roofline for mm"):
        find_changes(typed, spec, {ROOFLINE: roofline(typed.partition, cpu)})


def test_without_a_device_launching_has_no_meaning(build: Any) -> None:
    rows = [build.op("aten::mm", 0, 600), build.op("aten::add", 700, 1000)]
    subject = subject_of(build.run(), Trace.from_rows(rows))
    assert ask(subject, "mm=2x").step_ns == 700
    assert ask(subject, "mm=300ns").amdahl_x == pytest.approx(1000 / 700)
    assert ask(subject, "gap:host=0").step_ns == 900
    for word in ("launch", "sync", "copy", "comm", "gap:launch", "gap:alloc"):
        with pytest.raises(QrprofError, match=f"'{word}' has no meaning in run .* used no device: name an op"):
            find_part(subject, word)


def test_the_interval_holds_the_replays_errors_and_the_noise(small: Subject) -> None:
    found = ask(small, "mm=2x")
    near = found.estimate(Noise("within-run", 0.1))
    off = 0.1 + abs(found.replay_error) + abs(found.next_step_error or 0)
    assert (near.low, near.high) == pytest.approx((found.step_ns * (1 - off), found.step_ns * (1 + off)))
    assert (near.mid, near.basis) == (found.step_ns, Basis.ASSUMED)
    assert ask(small, "mm=0").estimate(None).basis is Basis.CEILING
    assert ask(small, "mm=0", "add=2x").estimate(None).basis is Basis.ASSUMED  # the weaker of the two


# --- sweeps


def test_a_sweep_falls_to_where_the_part_is_gone(small: Subject) -> None:
    found = sweep(small, "gemm<1>")
    assert [point.x for point in found.points] == list(SWEPT)
    times = [point.step_ns for point in found.points]
    assert times == sorted(times, reverse=True)
    assert times[0] == small.model.base_ns
    assert times[-1] == ask(small, "gemm<1>=0").step_ns
    assert found.slope_ns == pytest.approx(5 * US)  # a hundredth of its 500 us
    assert found.flat_from is None
    assert found.points[-1].speedup == small.model.base_ns / times[-1]


def test_a_sweep_of_what_is_off_the_critical_path_is_flat(small: Subject) -> None:
    found = sweep(small, "view")
    assert (found.flat_from, found.slope_ns) == (1, 0)
    others = ask(small, "add_kernel=2x")
    assert sweep(small, "view", others.changes).points[0].step_ns == others.step_ns
    with pytest.raises(QrprofError, match="'add_kernel' is set and swept"):
        sweep(small, "add_kernel", others.changes)


def test_a_trace_that_replays_badly_is_withheld(build: Any) -> None:
    """Launches without device work: what looks idle may be work that is not in the file."""
    rows = [build.op("aten::mm", 0, 1000), build.launch(1, 10, 20), build.launch(2, 20, 30)]
    with pytest.raises(QrprofError, match=r"what-ifs of run .* are withheld: 2 launches and no device work") as found:
        subject_of(build.run(), Trace.from_rows(rows))
    assert found.value.exit_code is Exit.FAILED
