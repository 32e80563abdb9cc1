"""QR on the CPU: torch's values, strides and errors on every lane, and threads that leave no trace."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from qrprof.kernels import qr as ours
from qrprof.kernels.qr import cpu, lanes, stock

pytestmark = pytest.mark.skipif(not cpu.available(), reason="torch is not built with MKL and OpenMP")

SERVED = [(128, 64, 64), (800, 48, 32), (800, 32, 48), (32, 40, 256), (2, 3, 20, 64, 40)]
STOCK = [(5, 3), (3, 5), (1, 1), (0, 3), (3, 0), (0, 4, 3), (2, 0, 3), (2, 3, 4, 5), (4, 30, 30)]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def one_thread(function: Any, *arguments: Any) -> Any:
    """What torch computes with one LAPACK thread: with several, other bits come out, as the work is cut differently."""
    torch.set_num_threads(1)
    try:
        return function(*arguments)
    finally:
        torch.set_num_threads(2)


def expected(op: str, matrices: Any, function: Any, *arguments: Any) -> Any:
    if lanes.lane_of(op, matrices) == "torch":
        return function(*arguments)
    return one_thread(function, *arguments)


def assert_same(got: Any, other: Any) -> None:
    pairs = [(got, other)] if isinstance(got, torch.Tensor) else list(zip(got, other, strict=True))
    for a, b in pairs:
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


@pytest.mark.parametrize("shape", SERVED + STOCK)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_and_strides_are_torchs(shape: tuple[int, ...], dtype: Any) -> None:
    A = torch.randn(shape, dtype=dtype)
    assert (lanes.lane_of("linalg_qr", A) == "cpu-batched") == (shape in SERVED)
    for mode in ("reduced", "complete", "r"):
        assert_same(ours.qr(A, mode), expected("linalg_qr", A, torch.linalg.qr, A, mode))
    H, tau = expected("geqrf", A, torch.geqrf, A)
    assert_same(ours.geqrf(A), (H, tau))
    if shape[-2] < shape[-1]:
        return
    q_of = torch.linalg.householder_product
    assert_same(ours.orgqr(H, tau), expected("linalg_householder_product", H, q_of, H, tau))
    for left, C in ((True, torch.randn(*shape[:-1], 3, dtype=dtype)), (False, torch.randn(*shape[:-2], 3, shape[-2]))):
        for transpose in (False, True):
            product = expected("ormqr", H, torch.ormqr, H, tau, C.to(dtype), left, transpose)
            assert_same(ours.ormqr(H, tau, C.to(dtype), left=left, transpose=transpose), product)


@pytest.mark.parametrize("shape", SERVED)
def test_strides_are_the_meta_kernels(shape: tuple[int, ...]) -> None:
    A = torch.randn(shape)
    for mode in ("reduced", "complete", "r"):
        for got, expected in zip(ours.qr(A, mode), torch.linalg.qr(A.to("meta"), mode), strict=True):
            assert (got.shape, got.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize("change", ["mT", "step", "expand", "permute", "grad"])
def test_any_strides(change: str) -> None:
    A = torch.randn(96, 48, 48)
    A = {
        "mT": A.mT,
        "step": torch.randn(96, 96, 96)[:, ::2, ::2],
        "expand": torch.randn(48, 48).expand(96, 48, 48),
        "permute": torch.randn(48, 96, 48).permute(1, 2, 0),
        "grad": A.requires_grad_(),
    }[change]
    Q, R = ours.qr(A)
    assert not Q.requires_grad
    assert lanes.lane_of("linalg_qr", A) == "cpu-batched"
    assert_same((Q, R), one_thread(torch.linalg.qr, A.detach()))


def test_non_finite_matrices_stay_among_themselves() -> None:
    A = torch.randn(64, 64, 64)
    clean = one_thread(torch.linalg.qr, A)
    A[5, 3, 3], A[40, 0, 0] = float("nan"), float("inf")
    Q, R = ours.qr(A)
    others = [i for i in range(64) if i not in (5, 40)]
    assert torch.equal(Q[others], clean[0][others])
    assert torch.equal(R[others], clean[1][others])
    assert not Q[5].isfinite().all()
    assert not Q[40].isfinite().all()


def test_errors_are_torchs() -> None:
    good, tau = torch.randn(64, 48, 32), torch.randn(64, 32)
    calls: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (ours.qr, torch.linalg.qr, (torch.randn(3),)),
        (ours.qr, torch.linalg.qr, (torch.ones(64, 64, 64, dtype=torch.int64),)),
        (ours.qr, torch.linalg.qr, (torch.randn(64, 64, 64), "full")),
        (ours.geqrf, torch.geqrf, (torch.randn(3),)),
        (ours.geqrf, torch.geqrf, (torch.randn(4, 4).half(),)),
        (ours.geqrf, torch.geqrf, (torch.eye(4).to_sparse(),)),
        (ours.orgqr, torch.linalg.householder_product, (good.mT, tau)),
        (ours.orgqr, torch.linalg.householder_product, (good, tau[1:])),
        (ours.orgqr, torch.linalg.householder_product, (good, tau.double())),
        (ours.ormqr, torch.ormqr, (good, tau, torch.randn(64, 47, 3))),
    ]
    for function, torchs, arguments in calls:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - the same one is asked for below
            torchs(*arguments)
        with pytest.raises(expected.type) as raised:
            function(*arguments)
        assert str(raised.value) == str(expected.value)


def test_settings_are_the_callers_afterwards() -> None:
    def settings() -> tuple[int, int]:
        threads = cpu.limits()
        own = threads.mkl(0)
        threads.mkl(own)
        return own, threads.openmp()

    in_new_thread: list[int] = []
    before = settings()
    ours.qr(torch.randn(64, 64, 64))
    with pytest.raises(ZeroDivisionError):
        cpu.share(lambda at: 1 // 0, 64)
    assert (torch.get_num_threads(), settings()) == (2, before)
    thread = threading.Thread(target=lambda: in_new_thread.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert in_new_thread == [2]


def test_an_error_in_a_helper_reaches_the_caller() -> None:
    caller = threading.get_ident()
    started = threading.Event()

    def work(at: slice) -> None:
        if threading.get_ident() == caller:
            started.wait(30)
        else:
            started.set()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cpu.share(work, 64)


def test_every_matrix_once_and_helpers_with_one_thread() -> None:
    seen: list[int] = []
    threads: set[tuple[int, int]] = set()

    def work(at: slice) -> None:
        seen.extend(range(at.start, at.stop))
        threads.add((torch.get_num_threads(), cpu.limits().openmp()))

    cpu.share(work, 101)
    assert sorted(seen) == list(range(101))
    assert threads == {(1, 1)}


def test_calls_from_several_threads_at_once() -> None:
    A = torch.randn(64, 64, 64)
    alone = one_thread(torch.linalg.qr, A)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(ours.qr(A))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for result in results:
        assert_same(result, alone)


def test_the_gil_is_free_meanwhile() -> None:
    """Other threads of the program go on while the stock kernel works: it has their steps to wait for."""
    A = torch.randn(1, 800, 800)
    ticks, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = ticks[0]
        for _ in range(200):  # without the GIL no more than a tick between two calls
            stock.qr(A)
            if ticks[0] - before > 400:
                break
        assert ticks[0] - before > 400
    finally:
        stop.set()
        thread.join()


HARD = """\
import os, sys, threading
import torch
from qrprof.kernels.qr import qr
torch.set_num_threads(2)
A = torch.randn(64, 64, 64)
expected = qr(A)
"""


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_in_workers_of_a_data_loader(workshop: Any, start: str) -> None:
    body = (
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n"
        "        torch.set_num_threads(2)\n"
        "        return qr(torch.full((64, 64, 64), float(i)))[1]\n"
        "if __name__ == '__main__':\n"
        "    qr(torch.randn(64, 64, 64))\n"
        f"    loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context='{start}')\n"
        "    print(len([batch for batch in loader]))\n"
    )
    workshop.write("load.py", "import torch\nfrom qrprof.kernels.qr import qr\ntorch.set_num_threads(2)\n" + body)
    ended = workshop.python("load.py", OMP_NUM_THREADS="2")
    assert (ended.code, ended.out) == (0, "8\n"), ended.err


def test_in_a_forked_child_and_at_exit(workshop: Any) -> None:
    body = (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    same = all(torch.equal(a, b) for a, b in zip(qr(A), expected))\n"
        "    sys.exit(0 if same else 1)\n"
        "print(os.waitpid(pid, 0)[1], all(torch.equal(a, b) for a, b in zip(qr(A), expected)), flush=True)\n"
        "import atexit\n"
        "atexit.register(lambda: print('last', len(qr(A)), flush=True))\n"
    )
    workshop.write("fork.py", HARD + body)
    ended = workshop.python("-W", "ignore::DeprecationWarning", "fork.py", OMP_NUM_THREADS="2")
    assert (ended.code, ended.out) == (0, "0 True\nlast 2\n"), ended.err


def test_memory_does_not_grow(workshop: Any) -> None:
    body = (
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "def some():\n"
        "    for _ in range(300): qr(A)\n"
        "some(); before = resident(); some(); some()\n"
        "print((resident() - before) >> 20)\n"
    )
    workshop.write("grow.py", HARD + body)
    ended = workshop.python("grow.py", OMP_NUM_THREADS="2")
    assert int(ended.out) < 16, ended.out


def test_grouped_keeps_order_and_batches_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(64, 64), (600, 20), (64, 64), (3, 5)] * 40 + [(0, 4)]
    matrices = [torch.randn(size) for size in sizes]
    batches: list[tuple[int, ...]] = []
    served = cpu.qr

    def counted(A: Any, mode: str) -> Any:
        batches.append(tuple(A.shape))
        return served(A, mode)

    monkeypatch.setattr(cpu, "qr", counted)
    for mode in ("reduced", "complete", "r"):
        results = ours.qr_grouped(matrices, mode)
        for matrix, result in zip(matrices, results, strict=True):
            expected = one_thread(torch.linalg.qr, matrix, mode)
            assert [(x.shape, x.stride()) for x in result] == [(x.shape, x.stride()) for x in expected]
            torch.testing.assert_close(result, tuple(expected))
    assert set(batches) == {(80, 64, 64), (40, 600, 20)}


def test_grouped_takes_single_matrices_only() -> None:
    assert ours.qr_grouped([]) == []
    with pytest.raises(ValueError, match=r"takes single matrices, not \(2, 3, 3\)"):
        ours.qr_grouped([torch.eye(3), torch.randn(2, 3, 3)])


def test_another_build_of_torch_is_served_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes.lane_of_shape.cache_clear()
    cpu.limits.cache_clear()
    monkeypatch.setattr(torch, "__file__", "/without/torch/__init__.py")
    A = torch.randn(64, 64, 64)
    assert lanes.lane_of("linalg_qr", A) == "torch"
    assert_same(ours.qr(A), torch.linalg.qr(A))
    lanes.lane_of_shape.cache_clear()
