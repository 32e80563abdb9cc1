"""Linalg while it is recorded: the stock kernels' results, and the GIL is free meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from qrprof.profiler.recording.calls import OPS, Tally, install, overridable
from qrprof.profiler.recording.stock import RESULTS, SMALL, out_form

aten = torch.ops.aten
N = 70  # N * N is more than SMALL
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def arguments(op: str, dtype: torch.dtype) -> list[Arguments]:
    """Calls of `op` that differ in what they return."""
    a, b = random(2, N, N, dtype=dtype), random(2, N, 3, dtype=dtype)
    positive = a @ a.mH + N * torch.eye(N, dtype=dtype)
    h, tau = torch.geqrf(a)
    low = torch.linalg.cholesky(positive)
    tall = random(2 * N, N, dtype=dtype)
    calls: dict[str, list[Arguments]] = {
        "linalg_qr": [*(((a, mode), {}) for mode in ("reduced", "complete", "r")), ((tall, "complete"), {})],
        "geqrf": [((a,), {}), ((tall.mT,), {})],
        "linalg_householder_product": [((h, tau), {})],
        "ormqr": [((h, tau, b), {}), ((h, tau, b.mT, False, True), {})],
        "_linalg_eigh": [((positive,), {}), ((positive, "U", False), {})],
        "linalg_eig": [((a,), {})],
        "_linalg_svd": [((a,), {}), ((tall, True), {"driver": None}), ((a, False, False), {})],
        "linalg_cholesky_ex": [((positive,), {}), ((a @ a.mH - positive,), {"upper": True})],
        "cholesky_inverse": [((low,), {}), ((low.mH, True), {})],
        "linalg_inv_ex": [((a,), {}), ((a * 0,), {})],
        "_linalg_solve_ex": [((a, b), {}), ((a, b.mT), {"left": False})],
        "linalg_solve_triangular": [((a, b), {"upper": True}), ((a[0], b), {"upper": False, "unitriangular": True})],
        "linalg_lu_factor_ex": [((a,), {}), ((tall,), {})],
        "linalg_ldl_factor_ex": [((positive,), {"hermitian": True})],
        "linalg_matrix_exp": [((a / N,), {})],
    }
    return calls[op]


def several(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.fixture
def tally() -> Iterator[Tally]:
    tally = Tally()
    remove = install(tally)
    yield tally
    remove()


def recorded(call: Callable[[], Any]) -> tuple[Any, Tally]:
    tally = Tally()
    remove = install(tally)
    try:
        return call(), tally
    finally:
        remove()


def test_all_but_one_of_the_ops_have_an_out_form_of_use() -> None:
    ours = {op for op in OPS if overridable(f"aten::{op}", "CPU")}
    assert {op for op in OPS if out_form(op)} == set(RESULTS) == ours - {"linalg_matrix_exp"}
    assert N * N > SMALL


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("op", [*RESULTS, "linalg_matrix_exp"])
def test_results_are_those_of_the_op_and_each_call_counts_once(op: str, dtype: torch.dtype) -> None:
    default = getattr(aten, op).default
    for args, options in arguments(op, dtype):
        expected = several(default(*args, **options))
        found, tally = recorded(lambda args=args, options=options: default(*args, **options))  # type: ignore[misc]
        for mine, theirs in zip(several(found), expected, strict=True):
            assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
            torch.testing.assert_close(mine, theirs, equal_nan=True)
            assert not mine.requires_grad
        assert [(call.op, count) for call, (count, _) in tally.take().items()] == [(f"aten::{op}", 1)]


@pytest.mark.parametrize("function", [torch.linalg.qr, torch.linalg.eigh, torch.linalg.svd, torch.linalg.inv])
def test_derivatives_and_vmap(function: Callable[[Tensor], Any]) -> None:
    a = random(2, N, N)
    a = (a + a.mT + 4 * torch.diag(torch.arange(1.0, N + 1))).requires_grad_()

    def work() -> tuple[Tensor, ...]:
        total = torch.stack([x.abs().sum() for x in several(function(a))]).sum()
        return (*torch.autograd.grad(total, a), *several(torch.func.vmap(function)(a.detach())))

    expected = work()
    found, tally = recorded(work)
    assert sum(count for count, _ in tally.take().values()) >= 2
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_in_inference_mode(tally: Tally) -> None:
    with torch.inference_mode():
        assert torch.linalg.qr(random(N, N)).R.is_inference()
    assert not torch.linalg.qr(random(N, N)).R.is_inference()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: torch.linalg.qr(random(N * N)),
        lambda: torch.linalg.qr(random(N, N), mode="full"),
        lambda: torch.geqrf(torch.ones(N, N, dtype=torch.int32)),
        lambda: torch.linalg.eig(torch.ones(N, N, dtype=torch.int32)),
        lambda: torch.linalg.eigh(random(N, N + 1)),
        lambda: torch.linalg.inv(torch.zeros(N, N)),
        lambda: torch.ormqr(random(N, N), random(N - 1), random(N + 1, N)),
    ],
)
def test_errors_are_the_ops_own(wrong: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError) as own:
        wrong()
    with pytest.raises(RuntimeError) as ours:
        recorded(wrong)
    assert (ours.type, str(ours.value)) == (own.type, str(own.value))


class Watching(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_what_the_recorder_does_with_a_matrix_is_not_the_scripts_doing(tally: Tally) -> None:
    traced = torch.jit.trace(torch.linalg.inv, random(N, N) + N * torch.eye(N))  # type: ignore[no-untyped-call]
    matrix = random(N, N)
    with Watching() as watching:
        traced(matrix)
    assert watching.seen == []


def test_a_profiler_sees_one_event_a_call(tally: Tally) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.linalg.qr(random(N, N))
    assert [event.name for event in profile.events()].count("aten::linalg_qr") == 1


PROGRAM = """
import threading, time
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.0005)
threading.Thread(target=tick, daemon=True).start()

def meanwhile():
    before = ticks
    torch.linalg.qr(A)
    return ticks - before

A = torch.randn(1000, 1000)
for i in range(150):
    step()
    if i == 6:  # between warm-up and recording
        print(any(meanwhile() >= 5 for _ in range(20)))
"""


def test_other_threads_of_the_program_run_during_a_long_call(workshop: Any) -> None:
    ended = workshop.train(PROGRAM)
    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert any(call.op == "aten::linalg_qr" for call in ended.run.linalg)
