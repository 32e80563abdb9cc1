"""Real processes: a swap that trains the same, and swaps that do not, each refused with its own reason."""

import re
from pathlib import Path

import pytest
from verify_cases import CASES, QR, SOFTMAX, SOFTMAX_BACKWARD, Accepted, accepted

from qrprof.kernels.running.watched import Swaps, read_timed, read_trained
from qrprof.planner.verify import verify as verifying
from qrprof.planner.verify.processes import Leg, Program, run
from qrprof.planner.verify.records import Kind, Verification
from qrprof.planner.verify.traces import compared
from qrprof.profiler.recording.spawn import base_record

pytestmark = pytest.mark.slow  # each starts the program several times

# Right, by another way: what rounding makes of it differs.
RIGHT = """
import torch
def candidate(x, dim, half_to_float):
    e = (x.double() - x.double().amax(dim, keepdim=True)).exp()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)
"""
BACKWARD = """
def candidate(grad, y, dim, dtype):
    return {scale} * y * (grad - (grad * y).sum(dim, keepdim=True))
"""
SEVERED = """
import torch
linear = torch.nn.functional.linear
torch.nn.functional.linear = lambda x, *parameters: linear(x.detach(), *parameters)
"""
STOCK = """
import torch
def stock(A):
    Q, R = A.new_empty(0), A.new_empty(0)
    return torch.ops.aten.linalg_qr.out(A, "reduced", Q=Q, R=R)
"""
PLAIN = """
def candidate(A, mode):
    return stock(A)
"""
FLIPPED = (
    STOCK
    + """
def candidate(A, mode):
    Q, R = stock(A)
    flips = torch.ones(A.shape[-1])
    flips[0] = -1
    return (Q * flips).mT.contiguous().mT, (R * flips[:, None]).mT.contiguous().mT
"""
)
LEAKING = (
    STOCK
    + """
kept = []
def candidate(A, mode):
    kept.append(torch.ones(1 << 20))
    return stock(A)
"""
)
SLOW = (
    STOCK
    + """
import time
def candidate(A, mode):
    time.sleep(0.05)
    return stock(A)
"""
)
DRAWING = (
    STOCK
    + """
def candidate(A, mode):
    torch.rand(())
    return stock(A)
"""
)
HANGING = "import time\ndef candidate(A, mode):\n    time.sleep(600)\n"
FATAL = "import os\ndef candidate(A, mode):\n    os._exit(7)\n"


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration of our own, and fewer stock runs than a verdict for a person rests on."""
    for name, value in {"QRPROF_CONFIG": str(tmp_path / "config"), "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(verifying, "SPREAD", 2)


def kinds(found: Verification) -> set[Kind]:
    return {one.kind for one in found.findings}


def refused(swaps: Accepted, *expected: Kind) -> Verification:
    found = swaps.verified()
    assert found.outcome == "harmful"
    assert set(expected) <= kinds(found)
    return found


def test_right_swaps_train_the_same(tmp_path: Path) -> None:
    found = accepted(tmp_path, (SOFTMAX, RIGHT), (QR, STOCK + PLAIN)).verified()
    same = found.equivalence
    assert same is not None
    assert (same.findings, same.forced, same.free, same.parameters) == ((), 2, 2, 4)
    assert 0 < same.gradient < 1e-5
    assert {one.op: one.hits > 0 for one in found.swaps.served} == {SOFTMAX: True, QR: True}
    assert found.gain is not None
    assert found.gain.steps >= 4
    assert found.compared is not None
    assert found.compared.withheld is None
    assert kinds(found) <= {"noise", "slower", "leak"}  # a busy machine's


def test_a_wrong_backward_is_refused(tmp_path: Path) -> None:
    found = refused(accepted(tmp_path, (SOFTMAX_BACKWARD, BACKWARD.format(scale=0.5))), "wrong results", "gradient")
    text = next(one.text for one in found.findings if one.kind == "gradient")
    assert "2 of 4 parameters (0.weight, 0.bias)" in text
    assert "by 50 %" in text
    assert found.gain is None


def test_a_severed_backward_is_refused(tmp_path: Path) -> None:
    found = refused(accepted(tmp_path, (SOFTMAX, RIGHT + SEVERED)), "no gradient")
    assert "2 of 4 parameters (0.weight, 0.bias)" in found.findings[0].text


def test_flipped_signs_of_q_are_refused(tmp_path: Path) -> None:
    refused(accepted(tmp_path, (QR, FLIPPED)), "wrong results", "state")


def test_a_swap_that_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    refused(accepted(tmp_path, (QR, DRAWING)), "random numbers")


def test_a_swap_that_ends_the_program_is_refused(tmp_path: Path) -> None:
    found = refused(accepted(tmp_path, (QR, FATAL)), "crashed")
    assert found.findings[0].text == "with the swaps the program ends with exit code 7"


def test_a_swap_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "COMPILING_S", 5.0)
    monkeypatch.setattr(verifying, "PATIENCE", 1)
    (found,) = refused(accepted(tmp_path, (QR, HANGING)), "crashed").findings
    assert re.fullmatch(r"with the swaps the program is still running after \d+ s, and is ended", found.text)


def test_a_swap_that_never_engages_makes_no_difference(tmp_path: Path) -> None:
    found = accepted(tmp_path, (SOFTMAX, RIGHT), case=CASES[QR]).verified()
    assert (found.outcome, kinds(found)) == ("no difference", {"not engaged"})
    assert "outside the calls it was judged on" in found.findings[0].text


def test_a_swap_that_leaks_is_refused(tmp_path: Path) -> None:
    refused(accepted(tmp_path, (QR, LEAKING)), "leak")


def test_a_slower_swap_is_refused(tmp_path: Path) -> None:
    found = refused(accepted(tmp_path, (QR, SLOW)), "slower")
    assert found.equivalence is not None
    assert found.equivalence.findings == ()


CHANGING = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    print(model[1].running_mean.tolist())
    optimizer.zero_grad()
    model(torch.randn(32, 8)).square().mean().backward()
    optimizer.step()
"""


def test_steps_that_begin_alike_begin_with_the_stock_program_s_buffers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CHANGING)
    watch = {"kind": "train", "folder": str(tmp_path), "forced": 2, "steps": 6}
    moved = {"rounding": {"ops": ["addmm"], "seed": 0}}
    legs = [Leg("stock", None, {**watch, "leads": True}), Leg("moved", None, {**watch, **moved, "leads": False})]
    program = Program(str(tmp_path / "train.py"), (), module=False)
    assert [run(program, leg, tmp_path).code for leg in legs] == [0, 0]
    stock, other = ((tmp_path / f"{leg.name}.stdout").read_text().splitlines() for leg in legs)
    assert [one == another for one, another in zip(stock, other, strict=True)] == [True] * 4 + [False] * 2


PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(1000):
    if i == {begin}:
        own = profile(activities=[ProfilerActivity.CPU])
        own.start()
    optimizer.zero_grad()
    model(torch.randn(32, 8)).square().mean().backward()
    optimizer.step()
    if i == {end}:
        own.stop()
"""


@pytest.mark.parametrize(("begin", "end"), [(3, 5), (5, 6)])  # of its profile; ours would begin after step 3
def test_a_program_that_profiles_itself_is_timed_without_a_trace(tmp_path: Path, begin: int, end: int) -> None:
    (tmp_path / "train.py").write_text(PROFILED.format(begin=begin, end=end))
    base = base_record("A", "train.py", (), False, 1)
    watch = {"kind": "time", "folder": str(tmp_path), "warmup": 1, "steps": 3, "traced": 4, "base": base}
    ended = run(Program(str(tmp_path / "train.py"), (), module=False), Leg("stock", None, watch), tmp_path)
    assert (ended.code, len(read_timed(ended.file).steps_ns)) == (0, 3)
    assert compared(tmp_path, ()).withheld
    assert not list(tmp_path.glob("*.trace.json.gz"))


def test_a_stock_run_stays_stock_whatever_the_program_installs(tmp_path: Path) -> None:
    text = CHANGING.replace("import torch\n", "import torch\nfrom qrprof import kernels\nkernels.install()\n", 1)
    (tmp_path / "train.py").write_text(text)
    watch = {"kind": "train", "folder": str(tmp_path), "forced": 1, "steps": 2, "leads": True}
    ended = run(Program(str(tmp_path / "train.py"), (), module=False), Leg("stock", None, watch), tmp_path)
    assert read_trained(ended.file).swaps == Swaps()


def test_a_program_that_cannot_bear_a_rounding_is_not_compared(tmp_path: Path) -> None:
    swaps = accepted(tmp_path, (SOFTMAX, RIGHT))
    script = tmp_path / "train.py"
    check = "    assert torch.softmax(torch.ones(1, 3), -1).unique().numel() == 1\n"
    script.write_text(script.read_text().replace("    optimizer.zero_grad()\n", f"    optimizer.zero_grad()\n{check}"))
    found = swaps.verified()
    (why,) = (one for one in found.findings if one.kind == "not repeatable")
    assert why.text.startswith(
        "where inputs are moved by one rounding the stock program ends with exit code 1: AssertionError"
    )
    assert found.equivalence is None
