"""Lessons of the optimizer: which are found again for a task, and what candidates teach."""

from dataclasses import replace
from typing import Literal

import pytest
from gate_tasks import SOFTMAX, case, task
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.records import Interval, Outcome, Task
from qrprof.planner.optimize.lessons import MOST_CHARS, Lesson, learned, recall, shipped
from qrprof.planner.optimize.records import Candidate, Proposal

Device = Literal["cpu", "cuda"]
H200 = "NVIDIA H200"


def qr(n: int, device: Device = "cuda") -> Task:
    return replace(task("geqrf", case((640, n, n))), device=device)


def tried(
    changed: str, over: tuple[float, float, float] | None, outcome: Outcome = "PASS", parent: str | None = None
) -> Candidate:
    proposal = Proposal("", parent, changed)
    return Candidate(1, changed, proposal, "gate", outcome, Interval(*over) if over else None, "wrong by 3 units")


def test_the_shipped_lessons_are_of_qr_and_each_tells_an_effect() -> None:
    found = shipped()
    assert len(found) >= 20
    assert len({lesson.text for lesson in found}) == len(found)
    for lesson in found:
        assert lesson.scenario
        assert lesson.action
        assert lesson.effect
        assert set(lesson.ops) <= {"geqrf", "linalg_qr"}
        assert lesson.source == "shipped"
    assert sum(any(char.isdigit() for char in lesson.effect) for lesson in found) >= 20


def test_a_lane_a_device_and_words_decide_what_is_recalled() -> None:
    large, small = recall(shipped(), qr(4096), H200), recall(shipped(), qr(32), H200)
    assert any("trailing update" in text for text in large)
    assert not any("one program a matrix leaves the GPU empty" in text for text in small)
    launches = recall(shipped(), qr(512), H200, "launch gaps between small kernels")
    assert launches[0].startswith("launch gaps")
    on_cpu = recall(shipped(), qr(64, "cpu"), "cpu")
    assert len(on_cpu) == 1
    assert on_cpu[0].startswith("many small matrices on a CPU")


def test_what_was_measured_on_this_gpu_comes_first() -> None:
    there = Lesson("a panel", "wider", "2x", on="B200")
    here = Lesson("another panel", "narrower", "3x", on="H200")
    assert recall([there, here], qr(64), H200)[0] == here.text
    assert recall([there, here], qr(64), "NVIDIA B200")[0] == there.text


def test_an_op_without_lessons_gets_those_of_any_op_alone() -> None:
    for text in recall(shipped(), replace(SOFTMAX, device="cuda"), H200):
        assert text in {lesson.text for lesson in shipped() if not lesson.ops}
    assert recall(shipped(), SOFTMAX, "cpu") == ()


@given(st.text(max_size=80), st.integers(0, 2000))
def test_no_words_break_the_search_and_the_limit_is_kept(words: str, most: int) -> None:
    found = recall(shipped(), qr(512), H200, words, most)
    assert sum(map(len, found)) <= most


def test_all_shipped_lessons_of_a_task_fit_in_a_prompt_only_in_part() -> None:
    assert 0 < sum(map(len, recall(shipped(), qr(1024), H200))) <= MOST_CHARS


# --- learned


def test_candidates_teach_what_their_change_did_to_their_parent() -> None:
    found = learned(
        "opt-1",
        qr(512),
        H200,
        [
            tried("16 columns", (1.9, 2.0, 2.1)),
            tried("8 warps", (2.9, 3.0, 3.1), parent="16 columns"),
            tried("one pass", None, "FAIL", parent="8 warps"),
            tried("renamed", (0.99, 1.0, 1.01)),
            tried("unlucky", (3.0, 3.0, 3.0), "INFRA"),
        ],
    )
    assert [lesson.effect for lesson in found] == [
        "2.00x its speed (1.90x to 2.10x)",
        "1.50x its speed (1.38x to 1.63x)",
        "failed: wrong by 3 units",
    ]
    assert {lesson.source for lesson in found} == {"opt-1"}
    assert {(lesson.ops, lesson.n, lesson.on) for lesson in found} == {(("geqrf",), (512, 512), H200)}


def test_a_change_that_did_not_help_is_a_lesson_too_and_the_later_try_counts() -> None:
    found = learned("a", SOFTMAX, "cpu", [tried("x", (1.5, 1.6, 1.7)), tried("x", (0.4, 0.5, 0.6))])
    assert [lesson.effect for lesson in found] == ["0.50x its speed (0.40x to 0.60x)"]


def test_a_speed_on_a_lane_is_no_lesson_beside_one_on_all_cases() -> None:
    on_a_lane = replace(tried("8 warps", (2.9, 3.0, 3.1), parent="16 columns"), lane="512")
    found = learned("a", SOFTMAX, "cpu", [tried("16 columns", (1.9, 2.0, 2.1)), on_a_lane])
    assert [lesson.action for lesson in found] == ["16 columns"]


@pytest.mark.parametrize(("n", "device", "known"), [(512, "cuda", True), (32, "cuda", False), (512, "cpu", False)])
def test_what_was_learned_is_recalled_for_its_own_op_lane_and_device(n: int, device: Device, known: bool) -> None:
    found = learned("opt-1", qr(512), H200, [tried("16 columns", (1.9, 2.0, 2.1))])
    assert any("16 columns" in text for text in recall(found, qr(n, device), H200)) is known
