"""What a watched process keeps of a step, goes back to, and writes down; and inputs moved by one rounding."""

import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qrprof import kernels
from qrprof.kernels import swap
from qrprof.kernels.running import following, pace, snapshot, training, watched
from qrprof.kernels.running.following import holders, names_of, watch_losses
from qrprof.kernels.running.rounding import rounded
from qrprof.kernels.running.training import guarded, most_resident
from qrprof.kernels.running.watched import Apart, Machine, Parameter, Served, Step, Swaps, Timed, Trained


def trained(seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A small model after two steps of Adam."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        step(model, optimizer)
    return model, optimizer


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()


def kept(optimizer: torch.optim.Optimizer, folder: Path) -> snapshot.Snapshot:
    gradients = [p.grad for p in snapshot.parameters_of(optimizer)]
    snapshot.save(folder / "0.pt", snapshot.taken(optimizer, gradients))
    return snapshot.load(folder / "0.pt")


def everything(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    parameters = snapshot.parameters_of(optimizer)
    return [t.detach().clone() for p in parameters for t in (p, *snapshot.state_of(optimizer, p))]


def test_a_step_after_going_back_repeats_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = trained()
    before = kept(optimizer, tmp_path)
    step(model, optimizer)
    python, first = random.random(), everything(optimizer)
    snapshot.restore(optimizer, before)
    step(model, optimizer)
    assert all(map(torch.equal, first, everything(optimizer)))
    assert random.random() == python


def test_another_process_comes_to_where_the_first_one_was(tmp_path: Path) -> None:
    there = kept(trained(seed=1)[1], tmp_path)
    _, optimizer = trained(seed=2)
    assert snapshot.apart(snapshot.taken(optimizer, there["gradients"]), there)[0].update > 0
    snapshot.restore(optimizer, there)
    off = snapshot.apart(snapshot.taken(optimizer, there["gradients"]), there)
    assert off == [Apart(0.0, 0.0, 0.0)] * 4


def test_distances_are_norms_and_those_of_states_are_fractions(tmp_path: Path) -> None:
    _, optimizer = trained()
    stock = kept(optimizer, tmp_path)
    own = snapshot.taken(optimizer, [None, *stock["gradients"][1:]])
    (p, *_) = snapshot.parameters_of(optimizer)
    with torch.no_grad():
        p += 3.0
        optimizer.state[p]["exp_avg"] *= 1.5
    off = snapshot.apart(own, stock)[0]
    assert off.gradient == pytest.approx(float(stock["gradients"][0].norm()))  # it is missing: all of it
    assert off.update == pytest.approx(3.0 * p.numel() ** 0.5, rel=1e-5)
    assert off.state == pytest.approx(0.5, rel=1e-5)


def test_a_state_of_another_form_is_infinitely_far_and_left_alone(tmp_path: Path) -> None:
    _, optimizer = trained()
    stock = kept(optimizer, tmp_path)
    (p, *_) = snapshot.parameters_of(optimizer)
    del optimizer.state[p]["exp_avg"]
    own = snapshot.taken(optimizer, stock["gradients"])
    assert [one.state for one in snapshot.apart(own, stock)] == [float("inf"), 0, 0, 0]
    snapshot.restore(optimizer, stock)
    assert "exp_avg" not in optimizer.state[p]


def test_buffers_are_put_back_in_place(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("constant", torch.ones(1).expand(3))  # cannot be written
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    (root,) = modules = holders(list(model.parameters()))
    assert root is model
    snapshot.save(tmp_path / "0.pt", snapshot.taken(optimizer, [None] * 4, modules))
    before, memory = [b.clone() for b in model.buffers()], [b.data_ptr() for b in model.buffers()]
    step(model, optimizer)
    assert not all(map(torch.equal, model.buffers(), before))
    snapshot.restore(optimizer, snapshot.load(tmp_path / "0.pt"), modules)
    assert all(map(torch.equal, model.buffers(), before))
    assert [b.data_ptr() for b in model.buffers()] == memory


def test_complex_parameters_are_compared_whole() -> None:
    one = torch.tensor([3 + 4j, 1j])
    assert snapshot.norm(one) == pytest.approx(26**0.5)
    assert snapshot.distance(one, one + 2j) == pytest.approx(8**0.5)
    assert snapshot.distance(one, one.clone()) == 0


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_in_the_same_way_is_nothing_apart(value: float) -> None:
    one = torch.tensor([1.0, value])
    assert snapshot.distance(one, one.clone()) == 0
    assert not math.isfinite(snapshot.distance(one, torch.tensor([1.0, 2.0])))


@pytest.mark.parametrize("order", [1, -1])
def test_one_state_that_is_no_number_outweighs_all_others(order: int) -> None:
    stock = [torch.ones(2), torch.ones(3)][::order]
    own = [torch.full((2,), math.nan), torch.full((3,), 1.5)][::order]
    assert math.isnan(snapshot.furthest(own, stock))


def test_the_hash_of_random_generators_tells_one_draw() -> None:
    before = snapshot.random_hash()
    assert snapshot.random_hash() == before
    for draw in (lambda: torch.rand(()), random.random):
        draw()
        assert snapshot.random_hash() != before
        before = snapshot.random_hash()


def test_parameters_are_named_as_their_outermost_module_names_them() -> None:
    model, _ = trained()
    loose = torch.nn.Parameter(torch.zeros(2))
    parameters = [*model.parameters(), loose]
    assert names_of(parameters, holders(parameters)) == ("0.weight", "0.bias", "1.weight", "1.bias", "parameter 4")


def test_numbers_that_backward_is_called_on_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back at the end
    losses: list[Tensor] = []
    watch_losses(losses)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.sum().backward()  # type: ignore[no-untyped-call]
    torch.autograd.backward([2 * x.sum(), x * 1], [None, torch.ones(2)])
    torch.autograd.backward(torch.autograd.graph.get_gradient_edge(4 * x.sum()))
    assert [float(one) for one in losses] == [3.0, 6.0]
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 8.0]


@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=9), st.sampled_from(["float32", "float64"])
)
def test_inputs_are_moved_by_one_rounding_at_most(values: list[float], dtype: str) -> None:
    x = torch.tensor(values, dtype=getattr(torch, dtype))
    moved = rounded(x, torch.Generator().manual_seed(0))
    most = 1.5 * torch.finfo(x.dtype).eps * x.abs() + torch.finfo(x.dtype).tiny  # the product is rounded too
    assert bool(((moved - x).abs() <= most).all())
    assert moved.dtype == x.dtype


def test_complex_inputs_move_by_both_parts() -> None:
    x = torch.full((100, 3), 1 + 1j).T
    moved = rounded(x, torch.Generator().manual_seed(0))
    eps = torch.finfo(torch.float32).eps
    off = torch.view_as_real(moved - x).flatten(0, 1)
    assert {tuple(one) for one in off.tolist()} == {(a, b) for a in (-eps, 0, eps) for b in (-eps, 0, eps)}
    assert (moved.stride(), moved.dtype) == (x.stride(), x.dtype)


def test_inputs_move_up_down_and_not_at_all() -> None:
    x = torch.ones(100, 3).T
    moved = rounded(x, torch.Generator().manual_seed(0))
    eps = torch.finfo(torch.float32).eps
    assert set((moved - x).flatten().tolist()) == {-eps, 0.0, eps}
    assert moved.stride() == x.stride()


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf")])
def test_records_are_read_as_they_were_written(tmp_path: Path, value: float) -> None:
    swaps = Swaps((Served("linalg_qr", "CPU", 3, {"mode": 1}, 3, 0, 0, "qr"),), ("soap",), ("swap x is off",))
    parameters = (Parameter("float32", value, 0.1, 1.0, Apart(0.0, 0.0, 0.0)), Parameter(None, 0.0, 0.0, 1.0, None))
    made = Trained(
        (("weight", "bias"),),
        (Step(0, 2.5, 7, "abc", {"qr": 3}, parameters),),
        swaps,
        10,
        Machine("a CPU", "", 20, {"torch": "2"}),
    )
    timed = Timed("host clock", (1, 2), (3, 4), (6, 0), 5, swaps)
    watched.write(tmp_path / "trained.json", made)
    watched.write(tmp_path / "timed.json", timed)
    assert repr(watched.read_trained(tmp_path / "trained.json")) == repr(made)  # nan is not equal to itself
    assert watched.read_timed(tmp_path / "timed.json") == timed


def test_the_end_of_a_timed_step_waits_for_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What swaps served in it is counted without a report, which waits."""
    monkeypatch.setattr(swap, "report", lambda: pytest.fail("a report in a timed step"))
    seen, timing = pace.Seen(), pace.Pace(tmp_path / "timed.json", warmup=1, steps=3, traced=0, folder=None)
    kernels.install()
    try:
        for calls in (1, 0, 2, 0):
            for _ in range(calls):
                torch.linalg.qr(torch.randn(40, 64, 64))
            pace.step_ended("optimizer", seen, timing, lambda: None)
    finally:
        kernels.uninstall()
    assert seen.served == [0, 2, 0]


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    held = b"x" * (1 << 28)
    code = "from qrprof.kernels.running.training import most_resident; print(most_resident())"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert 1 << 20 < int(said) < len(held) < most_resident()


def test_sparse_gradients_are_compared_as_others_are(tmp_path: Path) -> None:
    def steps(leads: bool) -> list[Step]:
        torch.manual_seed(0)
        model = torch.nn.Embedding(5, 3, sparse=True)
        optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
        seen = following.Seen()
        task = following.Task(tmp_path / "record.json", tmp_path, leads, forced=2, steps=3)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.tensor([1, 3, 3])).square().sum().backward()
            following.begins(optimizer, seen)
            optimizer.step()  # type: ignore[no-untyped-call]
            following.stepped(optimizer, seen, task)
        return seen.steps

    stock, own = steps(leads=True), steps(leads=False)
    assert [one.parameters[0].gradient for one in stock] == [one.parameters[0].gradient for one in own]
    assert stock[0].parameters[0].gradient > 0
    assert [one.parameters[0].apart for one in own] == [None, Apart(0.0, 0.0, 0.0), Apart(0.0, 0.0, 0.0)]


def test_no_snapshot_follows_one_for_which_there_was_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, optimizer = trained()
    own = snapshot.taken(optimizer, [None] * 4)
    task = following.Task(tmp_path / "record.json", tmp_path, leads=True, forced=4, steps=6)
    for number in range(4):
        monkeypatch.setattr(following, "room_for", lambda own, folder, room=number != 1: room)
        following.leave_snapshot(number, own, task)
    assert [path.name for path in tmp_path.iterdir()] == ["0.pt"]


def test_a_snapshot_of_other_parameters_is_none(tmp_path: Path) -> None:
    _, optimizer = trained()
    task = following.Task(tmp_path / "record.json", tmp_path, leads=True, forced=4, steps=6)
    own = snapshot.taken(optimizer, [None] * 4)
    following.leave_snapshot(0, own, task)
    assert following.snapshot_of(0, own, task) is not None
    assert following.snapshot_of(0, own | {"parameters": own["parameters"][:3]}, task) is None
    assert following.snapshot_of(1, own, task) is None


def test_a_failure_of_the_device_while_we_watch_is_the_program_s(tmp_path: Path) -> None:
    def fail() -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        guarded(tmp_path / "record.json", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("stats", "bytes_"), [({"requested_bytes.all.current": 100}, 100), ({}, 512)])
def test_on_a_gpu_memory_counts_as_it_was_asked_for(
    stats: dict[str, int], bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some allocators of torch do not count that: then what was handed out does."""
    monkeypatch.setattr(training, "uses_device", lambda: True)
    monkeypatch.setattr("torch.cuda.memory_stats", lambda: stats)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda: 512)
    assert training.held() == bytes_


@pytest.mark.parametrize(
    ("op", "call"), [("sum.dim_IntList", "x.sum(1)"), ("linalg_qr", "torch.linalg.qr(x).R"), ("mm", "x @ x")]
)
def test_the_inputs_of_an_op_and_of_an_overload_are_moved_by_one_rounding(op: str, call: str) -> None:
    code = f"""
import torch
from qrprof.kernels.running.rounding import install
x = torch.rand(80, 80, generator=torch.Generator().manual_seed(0))
stock = {call}
install(["{op}"], 1)
moved = {call}
assert not torch.equal(moved, stock)
torch.testing.assert_close(moved, stock, rtol=1e-3, atol=1e-3)
"""
    child = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
