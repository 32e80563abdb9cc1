"""Launches of CUDA C++ kernels on a GPU: on the current stream of any thread, into a graph, and refused."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from qr_device import factors_strictly, matrices, same_bits

from qrprof.kernels.qr import gpu
from qrprof.kernels.qr.cuda import compiled, on

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

COUNT: Final = 1000
MUCH: Final = 100 * 1024  # bytes of shared memory: more than a launch may ask for unless the kernel was told
SOURCE: Final = """
extern "C" __global__ void fill(int *out, const int *in, int count, int scale, int shift) {
    extern __shared__ int passed[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    passed[threadIdx.x] = i < count ? in[i] * scale + shift : 0;
    if (i < count) out[i] = passed[threadIdx.x];
}
"""
GRID, BLOCK, BYTES = (8, 1, 1), (128, 1, 1), 512


@pytest.fixture(scope="module")
def fill() -> Callable[..., None]:
    return compiled(SOURCE, "fill", {}, torch.zeros(1, device="cuda").device)


@pytest.fixture
def numbers() -> Tensor:
    return torch.arange(COUNT, dtype=torch.int32, device="cuda")


def test_a_launch_does_what_torchs_does(fill: Callable[..., None], numbers: Tensor) -> None:
    mine, theirs = torch.zeros_like(numbers), torch.zeros_like(numbers)
    fill(GRID, BLOCK, [mine, numbers, COUNT, -3, 2**31 - 5000], BYTES)
    kernel: Any = torch.cuda._compile_kernel(SOURCE, "fill")
    kernel(GRID, BLOCK, [theirs, numbers, COUNT, -3, 2**31 - 5000], BYTES)
    assert torch.equal(mine, theirs)
    assert torch.equal(mine, numbers * -3 + (2**31 - 5000))


def test_threads_and_streams_at_once(fill: Callable[..., None], numbers: Tensor) -> None:
    outs = [[torch.zeros_like(numbers) for _ in range(200)] for _ in range(4)]
    torch.cuda.synchronize()
    together = threading.Barrier(4, timeout=20)

    def launches(thread: int) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        together.wait()
        with torch.cuda.stream(stream):
            for step, out in enumerate(outs[thread]):
                fill(GRID, BLOCK, [out, numbers, COUNT, thread + 1, step], BYTES)
        stream.synchronize()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(launches, range(4)))
    for thread, mine in enumerate(outs):
        assert all(torch.equal(out, numbers * (thread + 1) + step) for step, out in enumerate(mine))


def test_a_thread_that_has_called_nothing_of_cuda(fill: Callable[..., None], numbers: Tensor) -> None:
    out = torch.zeros_like(numbers)
    a = matrices(20, 32, 32)
    expected = gpu.geqrf(a)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(fill, GRID, BLOCK, [out, numbers, COUNT, 2, 1], BYTES).result()
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(gpu.geqrf, a).result()
    torch.cuda.synchronize()
    assert torch.equal(out, numbers * 2 + 1)
    assert same_bits(found, expected)


def test_on_the_current_stream(fill: Callable[..., None], numbers: Tensor) -> None:
    """What is in order on a stream is a chain: each launch reads what the one before wrote."""
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            found = torch.ones_like(numbers)
            for _ in range(10):
                out = torch.zeros_like(numbers)
                fill(GRID, BLOCK, [out, found, COUNT, 2, 0], BYTES)
                found = out
            stream.synchronize()
        assert torch.equal(found, torch.full_like(numbers, 1024))


def test_captured_in_a_graph(fill: Callable[..., None], numbers: Tensor) -> None:
    out, graph = torch.zeros_like(numbers), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fill(GRID, BLOCK, [out, numbers, COUNT, 3, 1], BYTES)
        fill(GRID, BLOCK, [out, out, COUNT, 1, 1], BYTES)
    torch.cuda.synchronize()
    assert not out.any()  # nothing has run
    for shift in (0, 5):
        numbers += shift
        graph.replay()
        assert torch.equal(out, numbers * 3 + 2)


def test_a_wrong_launch_raises_and_the_next_one_runs(fill: Callable[..., None], numbers: Tensor) -> None:
    out = torch.zeros_like(numbers)
    arguments = [out, numbers, COUNT, 1, 0]
    for grid, block, shared in ((GRID, (2048, 1, 1), BYTES), ((0, 1, 1), BLOCK, BYTES), (GRID, BLOCK, MUCH)):
        with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument"):
            fill(grid, block, arguments, shared)
    fill(GRID, BLOCK, arguments, BYTES)
    torch.cuda.synchronize()
    assert torch.equal(out, numbers)


def test_more_shared_memory_where_the_kernel_was_told(numbers: Tensor) -> None:
    out = torch.zeros_like(numbers)
    compiled(SOURCE, "fill", {}, numbers.device, shared=MUCH)(GRID, BLOCK, [out, numbers, COUNT, 1, 7], MUCH)
    assert torch.equal(out, numbers + 7)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_on_another_device_than_the_current_one() -> None:
    a = matrices(20, 32, 32)
    other = a.to("cuda:1")
    assert same_bits([x.to(a.device) for x in gpu.geqrf(other)], gpu.geqrf(a))
    assert torch.cuda.current_device() == 0
    mine = torch.arange(COUNT, dtype=torch.int32, device="cuda:1")
    kernel = compiled(SOURCE, "fill", {}, mine.device)
    with on(mine.device):
        kernel(GRID, BLOCK, [mine, mine, COUNT, 2, 0], BYTES)
    assert torch.equal(mine.cpu(), 2 * torch.arange(COUNT, dtype=torch.int32))


@pytest.mark.parametrize("batch", [(), (1,), (20,), (2, 3)], ids=str)
@pytest.mark.parametrize("size", [(32, 32), (1, 1), (1, 7), (7, 1), (176, 176)], ids=str)
def test_one_launch_of_batches_of_any_rank(batch: tuple[int, ...], size: tuple[int, int]) -> None:
    factors_strictly(gpu, matrices(*batch, *size))
