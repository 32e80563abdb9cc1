"""Lanes: cases by size, and several files in one that answers each size with the one that was best there."""

import inspect
import linecache
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from gate_tasks import case, task
from hypothesis import given
from hypothesis import strategies as st
from optimize_scripted import file

from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.records import Domain, Interval
from qrprof.planner.gate.worker import started
from qrprof.planner.optimize.compose import Part, compose, is_composed, literal
from qrprof.planner.optimize.lanes import first_size, holds, part, place, speed, split
from qrprof.planner.optimize.records import Candidate, Proposal

QR = task("geqrf", *(case((8, n, n)) for n in (512, 32, 448, 1024)))
LEAN = "import torch\n\n\ndef candidate(a):\n    return torch.geqrf(a)\n"


def candidate(over: float, **cases: float) -> Candidate:
    intervals = {name: Interval(mid, mid, mid) for name, mid in cases.items()}
    proposal = Proposal(file(over), None, "")
    return Candidate(1, "", proposal, "preview", "PASS", Interval(over, over, over), "", cases=intervals)


# --- lanes


def test_cases_of_like_sizes_are_a_lane_the_smallest_first() -> None:
    found = split(QR)
    assert [lane.name for lane in found] == ["32x32", "448x448", "512x512", "1024x1024"]
    near = split(task("geqrf", *(case((8, n, n)) for n in (32, 300, 500))))
    assert [(lane.name, len(lane.cases)) for lane in near] == [("32x32", 1), ("300x300..500x500", 2)]
    assert near[1].boxes == (("float32", (300, 300), (500, 500)),)


def test_a_task_of_one_size_is_one_lane_without_a_name() -> None:
    (lane,) = split(task("geqrf", case((640, 512, 512)), case((64, 512, 512))))
    assert (lane.name, lane.boxes) == ("", (("float32", (512, 512), (512, 512)),))


def test_a_batch_that_may_be_smaller_chooses_no_lane_and_one_that_may_not_does() -> None:
    cases = (case((8, 64)), case((4096, 64)))
    assert len(split(task("_softmax", *cases))) == 1
    assert [lane.name for lane in split(task("_softmax", *cases, domain=Domain(shrink="none")))] == ["8x64", "4096x64"]


def test_lanes_of_two_dtypes_have_names_of_their_own() -> None:
    found = split(task("gelu", case((4, 32)), case((4, 32), dtype="bfloat16")))
    assert [lane.name for lane in found] == ["32 bfloat16", "32 float32"]


def test_no_lane_answers_for_the_cases_of_another() -> None:
    mixed = task("mm", case((4, 8, 1024)), case((4, 1024, 8)), case((4, 60, 60)))
    flat, square = split(mixed)[1], split(mixed)[0]
    assert [lane.name for lane in (square, flat)] == ["60x60", "8x1024..1024x8"]
    assert flat.boxes == (("float32", (8, 1024), (8, 1024)), ("float32", (1024, 8), (1024, 8)))


SHAPES = st.lists(st.integers(1, 300), min_size=1, max_size=3).map(tuple)


@given(shapes=st.lists(SHAPES, min_size=1, max_size=8, unique=True), shrink=st.sampled_from(["none", "leading", "all"]))
def test_every_case_is_in_one_lane_and_only_that_ones_boxes_hold_it(shapes: list[tuple[int, ...]], shrink: str) -> None:
    cases = [replace(case(shape), name=str(shape), weight=1 / len(shapes)) for shape in shapes]
    whole = task("gelu", *cases, domain=Domain(shrink=shrink))  # type: ignore[arg-type]
    lanes = split(whole)
    assert sorted(one.name for lane in lanes for one in lane.cases) == sorted(one.name for one in cases)
    assert len({lane.name for lane in lanes}) == len(lanes)
    for one in cases:
        sizes = one.tensors[0].shape[1 if len(one.tensors[0].shape) > 1 and shrink != "none" else 0 :]
        holders = [lane for lane in lanes if any(holds(box, "float32", sizes) for box in lane.boxes)]
        assert len(holders) == 1
        assert one in holders[0].cases


def test_a_lane_is_a_task_of_its_own_under_the_same_id() -> None:
    small = part(QR, "32x32")
    assert [one.name for one in small.development] == ["8x32x32"]
    assert sum(one.weight for one in small.development) == 1
    assert (small.id, part(QR, "").id) == (QR.id, QR.id)
    assert len(part(QR, "").development) == 4


def test_the_speed_on_a_lane_is_that_of_the_weighted_sums() -> None:
    (lane,) = split(task("mm", replace(case((8, 8)), weight=0.75), replace(case((8, 9)), weight=0.25)))
    assert speed(candidate(2.0, **{"8x8": 3.0, "8x9": 1.0}), lane) == pytest.approx(1 / (0.75 / 3 + 0.25))
    assert speed(candidate(2.0), lane) == 2.0


# --- one file of several


def loaded(path: Path, source: str) -> ModuleType:
    """As the gate's child imports a candidate."""
    path.write_text(source)
    linecache.checkcache(str(path))
    module = ModuleType("candidate")
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102
    return module


def one_of(name: str) -> str:
    """A file whose names are those of every other, and whose candidate says which file it is of."""
    return f"""\
'''It's {name}.'''

WIDTH = "{name}"


def which():
    return WIDTH


def candidate(*args):
    return which()
"""


@pytest.fixture
def three(tmp_path: Path) -> ModuleType:
    small, _, large, _ = split(QR)
    parts = [Part(one_of("small"), small.boxes), Part(one_of("large"), large.boxes)]
    return loaded(tmp_path / "candidate.py", compose(parts, one_of("others"), 0, 1))


@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [
        ((8, 32, 32), "float32", "small"),
        ((1, 32, 32), "float32", "small"),
        ((8, 512, 512), "float32", "large"),
        ((8, 448, 448), "float32", "others"),
        ((8, 33, 33), "float32", "others"),
        ((8, 32, 32), "float64", "others"),
        ((32, 32), "float32", "others"),
        ((2, 8, 32, 32), "float32", "others"),
    ],
)
def test_each_size_is_answered_by_its_own_file_and_all_others_by_the_last(
    three: ModuleType, shape: tuple[int, ...], dtype: str, name: str
) -> None:
    assert three.candidate(torch.empty(shape, dtype=getattr(torch, dtype))) == name


def test_the_argument_that_chooses_need_not_be_the_first(tmp_path: Path) -> None:
    norm = task("op", replace(case((4, 32), plain=(1,)), layout="pt"), case((4, 512)))
    assert place(norm) == 1
    parts = [Part(one_of("small"), split(norm)[0].boxes)]
    module = loaded(tmp_path / "candidate.py", compose(parts, one_of("others"), place(norm), 1))
    assert module.candidate(1, torch.empty(4, 32)) == "small"
    assert module.candidate(1, torch.empty(4, 512)) == "others"


def test_an_input_of_one_size_has_no_batch(tmp_path: Path) -> None:
    mixed = task("gelu", case((8, 512)), case((32,)))
    small, large = split(mixed)
    parts = [Part(one_of("small"), small.boxes), Part(one_of("large"), large.boxes)]
    module = loaded(tmp_path / "candidate.py", compose(parts, one_of("others"), place(mixed), first_size(mixed)))
    answers = [module.candidate(torch.empty(shape)) for shape in ((32,), (4, 512), (512,), (32, 8))]
    assert answers == ["small", "large", "large", "others"]


TEXTS = [
    one_of("plain"),
    "x = '''a'''\n\n\ndef candidate(*args):\n    return x\n",
    "x = '''a''' + \"\"\"b\"\"\" + '\\n\\\\' + r'\\d'\n\n\ndef candidate(*args):\n    return x\n",
    "def candidate(*args):\n    return 'first line' \\\n        ' and next'",
    "from __future__ import annotations\n\n\ndef candidate(*args: Unknown):\n    return 1\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_file_means_the_same_inside_another(text: str, tmp_path: Path) -> None:
    alone = loaded(tmp_path / "alone.py", text)
    within = loaded(
        tmp_path / "candidate.py", compose([Part(text, (("float32", (1,), (9,)),))], one_of("others"), 0, 1)
    )
    assert within.candidate(torch.empty(1, 5)) == alone.candidate(None)
    assert inspect.getsource(within.LANES[0][3]) == inspect.getsource(alone.candidate)


@given(text=st.text(st.sampled_from("'\"\\\n abc{}é#"), max_size=40))
def test_a_text_as_a_literal_is_that_text_on_its_own_lines(text: str) -> None:
    value = eval(literal(text))
    assert value == "\n" + text + ("" if text.endswith("\n") else "\n")
    assert literal(text).count("\n") == value.count("\n")


def test_what_is_composed_is_known_as_such() -> None:
    assert is_composed(compose([Part(LEAN, ())], LEAN, 0, 1))
    assert not is_composed(LEAN)


@pytest.mark.parametrize(("kernels", "declared"), [("KERNELS = ['mine']\n", ["mine", "mine"]), ("", None)])
def test_kernels_are_declared_where_every_file_declares_its_own(
    kernels: str, declared: list[str] | None, tmp_path: Path
) -> None:
    other = "KERNELS = ['mine']\n" + one_of("others")
    composed = compose([Part(kernels + one_of("a"), (("float32", (1,), (1,)),))], other, 0, 1)
    assert getattr(loaded(tmp_path / "candidate.py", composed), "KERNELS", None) == declared


TRITON = '''\
import triton
import triton.language as tl

SCALE = tl.constexpr({scale})


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    """Times SCALE."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) * SCALE, at < n)


def candidate(x):
    return kernel
'''


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there on Linux only")
def test_triton_finds_the_source_of_each_files_kernel(tmp_path: Path) -> None:
    boxes = (("float32", (32,), (32,)),)
    module = loaded(
        tmp_path / "candidate.py", compose([Part(TRITON.format(scale=2), boxes)], TRITON.format(scale=3), 0, 1)
    )
    first, second = module.candidate(torch.empty(1, 32)), module.candidate(torch.empty(1, 64))
    assert first is not second
    for kernel, scale in ((first, 2), (second, 3)):
        assert kernel.src.startswith("def kernel(x, n, BLOCK: tl.constexpr):")
        assert kernel.src.rstrip().endswith("tl.store(x + at, tl.load(x + at, at < n) * SCALE, at < n)")
        assert kernel.fn.__globals__["SCALE"].value == scale


def test_a_composed_file_runs_in_the_gates_child_without_a_sign(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    own = "import math\nimport torch\n\n\ndef candidate(a):\n    return tuple(torch.geqrf(a))\n"
    path.write_text(compose([Part(own, split(QR)[0].boxes)], stock_source("geqrf"), 0, 1))
    with started(path, "cpu", Limits()) as worker:
        assert worker.build().signs == ()
        inputs = [torch.randn(2, 32, 32), torch.randn(2, 20, 20)]
        reply = worker.call([(one,) for one in inputs], watch=True)
    assert reply.signs == ()
    for one, call in zip(inputs, reply.calls, strict=True):
        assert call.error is None
        assert torch.equal(call.outputs[0], torch.geqrf(one)[0])


def test_an_import_that_is_not_allowed_is_heard_in_a_composed_file_too(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(compose([Part("import ctypes\n" + LEAN, split(QR)[0].boxes)], LEAN, 0, 1))
    with started(path, "cpu", Limits()) as worker:
        assert [sign.detail for sign in worker.build().signs] == ["it imports ctypes, which candidates may not"]
