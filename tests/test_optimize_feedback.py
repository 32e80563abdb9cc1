"""What a proposer is told of a profile, against recorded traces and records with known figures."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Build
from gate_cases import PASSED, case_time
from gate_tasks import MM, case, task

from qrprof.planner.gate.records import Interval
from qrprof.planner.optimize.feedback import (
    idling,
    launching,
    of_best,
    of_run,
    of_task,
    of_verdict,
    panel,
    panel_shapes,
)
from qrprof.planner.optimize.records import Candidate, Known, Proposal
from qrprof.profiler.devices import Peaks
from qrprof.profiler.facts import Facts, find_facts
from qrprof.profiler.read import read

DATA = Path(__file__).parent / "data"
PEAKS = Peaks(
    schema_number=1,
    kind="cpu",
    name="a CPU",
    uuid="",
    torch="2.13.0",
    threads=1,
    measured_at="2026-01-01T00:00:00+00:00",
    flops={"float": 1e11},
    copy_bytes_per_s=1e10,
    launch_ns=1000.0,
    repeats=7,
    spread={},
)


@pytest.fixture(scope="module")
def facts() -> Facts:
    return find_facts(read(DATA / "own_h200_qr_loop_8x512.json.gz"))


def test_a_qr_call_is_told_by_its_phases_the_most_expensive_first(facts: Facts) -> None:
    (shape,) = panel_shapes(facts, "aten::linalg_qr")
    text = panel(shape)
    assert text.startswith("QR of 1 x 512 x 512 by cuSOLVER: 1.88 ms a call; geqr2 73.7 %, orgqr 9.2 %, gaps 6.6 %")
    assert panel_shapes(facts, "aten::mm") == []


def test_launches_and_their_length_are_told(facts: Facts) -> None:
    assert list(launching(facts, None, "aten::linalg_qr")) == [
        "it launches 864 kernels a step, 16.2 us each on average, 752 of them under 10 us"
    ]
    assert list(launching(facts, None, "aten::nothing")) == []


def test_idle_time_is_told_with_its_cause() -> None:
    found = find_facts(read(DATA / "own_h200_adamw_fused.json.gz"))
    assert list(idling(found, None, "aten::mm")) == ["the device idles 1.26 ms a step inside it (launch-bound op)"]


def test_an_ops_cost_is_told_of_the_run(build: type[Build], facts: Facts) -> None:
    qr = replace(task("linalg_qr", case((512, 512), plain=("reduced",))), device="cuda", step_ns=16e6)
    told = of_run(facts, build.run([20_000_000]), qr)
    assert told[0] == "aten::linalg_qr takes 16.0 ms of a mean step of 20.0 ms, 80.0 %"
    assert any(text.startswith("it launches ") for text in told)
    assert told[-1].startswith("QR of 1 x 512 x 512 by cuSOLVER")
    assert of_run(facts, build.run(), replace(qr, op="mm.out")) == ()


def test_a_case_is_told_with_what_the_devices_peaks_allow() -> None:
    assert of_task(replace(MM, development=(replace(MM.development[0], name="mm"),)), PEAKS) == (
        "mm: 100.0 % of the time; 0.0184 Mflop, 7.88 KiB moved; a good kernel takes 1.08 us, none less than 200 ns",
    )
    assert of_task(MM, None) == ()


def test_a_verdict_is_told_by_case_and_by_its_worst() -> None:
    times = (case_time("fast", 30.0), case_time(MM.development[0].name, 1.5))
    told = of_verdict(replace(PASSED, times=times), MM, PEAKS)
    assert told == (
        f"{times[1].case}: the file judged last 2.00 ms, the stock op 3.00 ms; 0.1 % of what a good kernel reaches",
        f"it gained least on {times[1].case}: 1.50x the stock op's speed",
    )
    assert of_verdict(replace(PASSED, times=()), MM, PEAKS) == ()
    assert len(of_verdict(replace(PASSED, times=times), MM, None)) == 2


def test_the_best_so_far_is_told_by_the_case_on_which_it_gains_least() -> None:
    cases = {"8x8": Interval(1.9, 2.0, 2.1), "64x64": Interval(0.9, 1.1, 1.2)}
    best = Candidate(7, "", Proposal("", None, ""), "preview", "PASS", Interval(1.4, 1.5, 1.6), "", cases=cases)
    assert of_best(Known(MM, "", beam=((best,),))) == (
        "try 7 gains least on 64x64: 1.10x the speed of what it has to beat",
    )
    assert of_best(Known(MM, "")) == ()
    assert of_best(Known(MM, "", beam=((replace(best, cases={}),),))) == ()
