"""The gate against the candidates of tests/redteam: each of its own kind here, the others in the long set."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_cases import PASSED

from qrprof import profiler
from qrprof.planner.gate.gate import run_gate
from qrprof.planner.gate.records import DETECTORS, Detector, Finding, Outcome, Verdict
from qrprof.planner.gate.replies import Workers
from qrprof.planner.gate.selftest import FOLDER, Attack, Shown, attacks, attempt, device_of, judged, opened, read, task
from qrprof.planner.gate.threads import one_thread
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.cli import run as qrprof

ATTACKS = attacks()
QUICK = {  # all that end before the timing, one or two of each kind
    "uninitialised", "mutated_element", "overlapping_outputs", "cache_by_pointer", "cache_by_sum",
    "captured_memory", "known_shapes", "timed_burst", "late_thread", "daemon", "lazy_subclass", "patched_late",
    "forged_reply", "gc_search",
    "reused_output", "uniform", "fixed_answer", "no_shift", "tail_skipped", "sampled_batch", "flush_denormal",
    "large_workspace", "wrong_stride", "imports_written_file", "writes_harness", "requires_grad", "exits",
    "fork_bomb", "no_candidate", "zero_task",
}  # fmt: skip
UNREACHED = {
    "seed-known": "what is wrong on fresh numbers alone is wrong before the holdout",
    "expected-leak": "no expected value is ever in the candidate's process",
    "impossible-time": "the gate's clock is out of a candidate's reach",
    "static": "warnings decide nothing",
    "noise": "stands for no way to cheat",
    "no-compiler": "a fault of the machine",
}


GATE = "test_the_gate_holds"


def marked(attack: Attack) -> Any:
    cuda = device_of(attack) == "cuda"
    gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
    return pytest.param(
        attack, id=attack.name, marks=[*(gpu if cuda else []), *([] if attack.name in QUICK else [pytest.mark.slow])]
    )


@pytest.fixture(scope="module")
def cpu() -> Iterator[Workers]:
    with opened("cpu") as workers:
        yield workers


@pytest.fixture(scope="module")
def cuda() -> Iterator[Workers]:
    with opened("cuda") as workers:
        yield workers


@pytest.fixture(scope="module")
def quick(request: pytest.FixtureRequest) -> Mapping[str, Future[Shown]]:
    """What became of the quick ones among the tests that are run, judged two at a time: none of them is timed."""
    wanted = {
        item.callspec.id for item in request.session.items if isinstance(item, pytest.Function) and GATE in item.name
    }
    chosen = [attack for attack in ATTACKS if attack.name in QUICK & wanted]
    with one_thread(), ThreadPoolExecutor(2) as pool:
        return {attack.name: pool.submit(attempt, attack, request.getfixturevalue("cpu")) for attack in chosen}


# --- the gate


@pytest.mark.parametrize("attack", [marked(attack) for attack in ATTACKS])
def test_the_gate_holds(attack: Attack, quick: Mapping[str, Future[Shown]], request: pytest.FixtureRequest) -> None:
    done = quick.get(attack.name)
    shown = done.result() if done else attempt(attack, request.getfixturevalue(device_of(attack)))
    assert shown.verdict is not None
    if shown.held is None and shown.verdict.outcome == "UNKNOWN":
        pytest.skip(f"too busy a machine to tell what is slower: {shown.why}")
    told = [f"{one.stage}: {one.detector}: {one.detail}" for one in shown.verdict.findings if one.outcome != "PASS"]
    assert shown.held, f"expected {attack.expect or 'to be accepted'}, found {shown.why}: {told[:5]}"


@pytest.mark.parametrize("name", ["leftover", "secrets"])
def test_what_must_come_to_nothing_does(name: str, cpu: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """These answer zeros where they find what they look for: a file of the run before, or a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "not a real one")
    attack = next(one for one in ATTACKS if one.name == name)
    for _ in range(2):
        verdict = run_gate(task(attack.task, "cpu"), attack.source, workers=cpu, until="development")
        assert verdict.outcome == "PASS", verdict.findings


# --- the set


def test_the_set_is_large_enough() -> None:
    on_cpu = [attack for attack in ATTACKS if attack.device == "cpu"]
    assert sum(attack.expect is not None for attack in on_cpu) >= 40
    assert sum(attack.name.startswith("honest") for attack in on_cpu) >= 4
    assert {attack.name for attack in ATTACKS} >= QUICK


def test_every_detector_has_a_candidate_or_a_reason_why_none() -> None:
    assert set(DETECTORS) - {attack.expect for attack in ATTACKS} == set(UNREACHED)


def test_the_quick_ones_meet_every_detector_that_needs_no_timing() -> None:
    late = {"fallback", "slower", "clock-mismatch"}  # found by timing
    long = {"hang", "memory-limit", "disk-full"}  # time, memory or disk must run out
    on_gpu = {attack.expect for attack in ATTACKS if device_of(attack) == "cuda"} - {
        attack.expect for attack in ATTACKS if attack.device == "cpu"
    }
    met = {attack.expect for attack in ATTACKS if attack.name in QUICK}
    assert {attack.expect for attack in ATTACKS if attack.expect} - met == late | long | on_gpu


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_candidate_says_what_it_does(attack: Attack) -> None:
    assert attack.about.endswith(".")
    assert "\n" not in attack.about
    assert all(1 <= row <= 65 for row in attack.rows)
    assert attack.rows or attack.expect is None


def test_an_installed_package_has_the_set() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert f"{FOLDER.name}/*.py" in project["tool"]["setuptools"]["package-data"]["qrprof"]
    assert FOLDER.parent == Path(profiler.__file__).parents[1]
    assert {path.name for path in (Path(__file__).parent / "redteam").glob("*.py")} == {
        attack.source.name for attack in ATTACKS
    }


HEADER = '"""About."""\nEXPECT = "wrong"\nTASK = "mm"\nDEVICE = "cpu"\nROWS = (1, 2)\n'


def test_a_header_is_read_without_running_it(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(HEADER + "raise SystemExit\n")
    assert read(source) == Attack("one", source, "About.", "wrong", "mm", "cpu", (1, 2))


@pytest.mark.parametrize(
    "text",
    [
        HEADER.replace("wrong", "wronk"),
        HEADER.replace("mm", "nn"),
        HEADER.replace("cpu", "tpu"),
        HEADER.replace("ROWS", "NUMBERS"),
        HEADER.replace('"wrong"', "print()"),
        "def candidate(:",
    ],
)
def test_a_file_without_such_a_header_is_refused_by_name(text: str, tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(text)
    with pytest.raises(QrprofError, match=r"one\.py"):
        read(source)


def test_a_folder_without_candidates_is_an_installation_that_is_not_whole(tmp_path: Path) -> None:
    with pytest.raises(QrprofError, match="install qrprof again"):
        attacks(tmp_path)


# --- the outcome

HOSTILE, HONEST, SLOW = (
    next(one for one in ATTACKS if one.name == name) for name in ("wrong_dtype", "honest_mm", "float64_softmax")
)


def verdict_of(outcome: Outcome, *findings: tuple[Detector, Outcome]) -> Verdict:
    made = tuple(Finding(detector, found, None, "", "timing") for detector, found in findings)
    return replace(PASSED, outcome=outcome, findings=made)


@pytest.mark.parametrize(
    ("attack", "verdict", "held"),
    [
        (HOSTILE, verdict_of("PASS"), False),
        (HOSTILE, verdict_of("FAIL", ("contract", "FAIL"), ("wrong", "FAIL")), True),
        (HOSTILE, verdict_of("FAIL", ("wrong", "FAIL")), False),  # for something else
        (HOSTILE, verdict_of("FAIL", ("wrong", "FAIL"), ("contract", "SUSPECT")), False),  # which did not decide
        (HOSTILE, verdict_of("FAIL", ("slower", "FAIL"), ("contract", "SUSPECT")), True),  # as a busy machine's speed
        (HOSTILE, verdict_of("FAIL", ("slower", "FAIL"), ("contract", "PASS")), False),
        (HONEST, verdict_of("FAIL", ("slower", "FAIL"), ("contract", "SUSPECT")), False),
        (HOSTILE, verdict_of("PASS", ("contract", "PASS")), False),
        (HOSTILE, verdict_of("UNKNOWN", ("contract", "UNKNOWN")), True),
        (HOSTILE, verdict_of("INFRA", ("crash", "INFRA")), None),
        (SLOW, verdict_of("FAIL", ("slower", "FAIL")), True),
        (SLOW, verdict_of("UNKNOWN", ("noise", "UNKNOWN")), None),  # the machine is too busy
        (SLOW, verdict_of("FAIL", ("noise", "FAIL")), False),
        (SLOW, verdict_of("PASS"), False),
        (HONEST, verdict_of("PASS", ("static", "PASS")), True),
        (HONEST, verdict_of("FAIL", ("slower", "FAIL")), True),
        (HONEST, verdict_of("UNKNOWN", ("noise", "UNKNOWN")), True),
        (HONEST, verdict_of("FAIL", ("noise", "FAIL"), ("wrong", "FAIL")), False),
        (HONEST, verdict_of("SUSPECT", ("fallback", "SUSPECT"), ("noise", "UNKNOWN")), False),
        (HONEST, verdict_of("INFRA", ("no-compiler", "INFRA")), None),
    ],
)
def test_the_gate_has_held_where_the_expected_detector_decided(
    attack: Attack, verdict: Verdict, held: bool | None
) -> None:
    assert judged(attack, verdict).held is held


# --- the command


def test_the_table_names_what_was_expected_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert qrprof(["selftest", "no_candidate", "triton_honest"]) == Exit.OK
    out, err = capsys.readouterr()
    assert re.search(r"no_candidate +cpu +build-error +FAIL: build-error +[\d.]+ held", out)
    assert "1 of 1 held" in out or torch.cuda.is_available()
    assert "no_candidate: Defines a function of another name." in err


def test_a_gate_that_was_fooled_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(next(one for one in ATTACKS if one.name == "no_candidate"), expect="hang")
    monkeypatch.setattr("qrprof.planner.gate.selftest.attacks", lambda: (other,))
    assert qrprof(["selftest", "--json"]) == Exit.FAILED
    record = json.loads(capsys.readouterr().out)
    assert record["summary"] == {"held": 0, "missed": 1, "not run": 0}
    assert record["candidates"][0]["held"] is False
    assert record["candidates"][0]["verdict"]["findings"][-1]["detector"] == "build-error"


def test_an_unknown_candidate_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert qrprof(["selftest", "no_such"]) == Exit.USAGE
    assert "no candidate 'no_such'; there are bfloat16," in capsys.readouterr().err


def test_a_candidate_for_a_gpu_is_not_run_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert qrprof(["selftest", "triton_honest", "--json"]) == Exit.OK
    record = json.loads(capsys.readouterr().out)
    assert record["summary"] == {"held": 0, "missed": 0, "not run": 1}
    assert record["candidates"][0]["found"] == "not run: torch sees no CUDA device"
