"""QR of a batch on the CPU: the batch shared over threads, each with a LAPACK of one thread.

torch factors a batch one matrix after the other, with all threads on each; on matrices of up to a few hundred columns
they mostly wait for one another. Results are those of torch with one LAPACK thread, bit by bit, whatever the number of
threads here.
"""

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels.qr import stock
from qrprof.kernels.qr.layout import batched, column_major

PIECES = 4  # pieces of the batch a thread: a thread that the machine delays holds up less


def available() -> bool:
    """Whether this build of torch lets a thread limit its LAPACK: with MKL and OpenMP, as its packages for x86 have."""
    try:
        limits()
    except (AttributeError, OSError):
        return False
    return True


def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """As `torch.linalg.qr`: A is [..., m, n], float32 or float64, not empty. Not differentiable."""
    batch, m, n = A.shape[:-2], *A.shape[-2:]
    flat = A.detach().reshape(-1, m, n)
    k = m if mode == "complete" else min(m, n)
    R = column_major(A, len(flat), k, n)
    if mode == "r":
        share(lambda at: stock.qr(flat[at], mode, (A.new_empty(0), R[at])), len(flat))
        return A.new_empty(0), batched(R, batch)
    Q = column_major(A, len(flat), m, k)
    share(lambda at: stock.qr(flat[at], mode, (Q[at], R[at])), len(flat))
    return batched(Q, batch), batched(R, batch)


def geqrf(A: Tensor) -> tuple[Tensor, Tensor]:
    """As `torch.geqrf`: A is [..., m, n], float32 or float64, not empty. Not differentiable."""
    batch, m, n = A.shape[:-2], *A.shape[-2:]
    flat = A.detach().reshape(-1, m, n)
    H, tau = column_major(A, len(flat), m, n), A.new_empty(len(flat), min(m, n))
    share(lambda at: stock.geqrf(flat[at], (H[at], tau[at])), len(flat))
    return batched(H, batch), tau.view(*batch, min(m, n))


def orgqr(H: Tensor, tau: Tensor) -> Tensor:
    """As `torch.linalg.householder_product`: H is [..., m, n], tau [..., k], not empty. Not differentiable."""
    batch, m, n = H.shape[:-2], *H.shape[-2:]
    flat, taus = H.detach().reshape(-1, m, n), tau.detach().reshape(-1, tau.shape[-1])
    Q = column_major(H, len(flat), m, n)
    share(lambda at: stock.orgqr(flat[at], taus[at], (Q[at],)), len(flat))
    return batched(Q, batch)


def ormqr(H: Tensor, tau: Tensor, C: Tensor, left: bool, transpose: bool) -> Tensor:
    """As `torch.ormqr`: H is [..., m, n], tau [..., k], C [..., m, p] or [..., p, m], not empty. Not differentiable."""
    batch, m, n = H.shape[:-2], *H.shape[-2:]
    flat, taus = H.detach().reshape(-1, m, n), tau.detach().reshape(-1, tau.shape[-1])
    others = C.detach().reshape(-1, *C.shape[-2:])
    product = column_major(C, len(flat), *C.shape[-2:])
    share(lambda at: stock.ormqr(flat[at], taus[at], others[at], left, transpose, (product[at],)), len(flat))
    return batched(product, batch)


def share(work: Callable[[slice], Any], batch: int) -> None:
    """Run `work` on slices that cover the batch, in as many threads as the caller's torch uses: it and helpers.

    Each takes the next slice, so a helper that the machine starts late costs no more than the help it did not give.
    """
    workers = min(torch.get_num_threads(), batch)
    if workers == 1:
        work(slice(0, batch))
        return
    pieces = min(PIECES * workers, batch)
    cuts = [batch * i // pieces for i in range(pieces + 1)]
    slices = iter([slice(*ends) for ends in pairwise(cuts)])

    def take() -> None:
        for at in slices:
            work(at)

    helping: list[Future[None]] = []
    with suppress(RuntimeError):  # no threads: the interpreter ends, or a limit is reached; the caller is enough
        helping.extend(helpers(os.getpid()).submit(take) for _ in range(workers - 1))
    with one_thread():
        take()
    for helper in helping:
        if not helper.cancel():
            helper.result()


@functools.cache
def helpers(process: int) -> ThreadPoolExecutor:
    """Threads of this process that wait for work; a forked child has none of its parent's and starts its own.

    Each is limited to one thread by itself: `torch.set_num_threads` would change the default of later threads too.
    """
    return ThreadPoolExecutor(os.cpu_count(), "qrprof-qr", limit_this_thread)


def start_helpers() -> None:
    """All of this process's helpers now, rather than as batches ask for them; nothing where none can be had."""
    if not available():
        return
    count = os.cpu_count() or 1
    together = threading.Barrier(count)
    for helper in [helpers(os.getpid()).submit(together.wait) for _ in range(count)]:
        helper.result()


def limit_this_thread() -> None:
    torch.get_num_threads()  # sets this thread's defaults, which torch would do at its first parallel loop
    threads = limits()
    threads.mkl(1)
    threads.set_openmp(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for OpenMP and MKL as the calling thread uses them; other threads keep their settings."""
    threads = limits()
    before = threads.mkl(1), threads.openmp()
    threads.set_openmp(1)
    try:
        yield
    finally:
        threads.mkl(before[0])
        threads.set_openmp(before[1])


@dataclass(frozen=True)
class Limits:
    """The functions of torch's own MKL and OpenMP that set and tell the number of threads of the calling thread."""

    mkl: Callable[[int], int]  # sets, and returns what was set
    openmp: Callable[[], int]
    set_openmp: Callable[[int], None]


@functools.cache
def limits() -> Limits:
    """Raises AttributeError or OSError where torch is built for another platform or with another LAPACK."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return Limits(library.MKL_Set_Num_Threads_Local, library.omp_get_max_threads, library.omp_set_num_threads)
