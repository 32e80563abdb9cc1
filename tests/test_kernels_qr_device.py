"""The QR kernels on a GPU, as the dispatch serves them and as the lane itself does: right on every kind of input and
size, and safe beside whatever else the device is doing."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from qr_device import Result, factors_strictly, made, matrices, same_bits, same_layout

from qrprof.kernels import contest, qr, structures
from qrprof.kernels.checks import residuals_qr, strict
from qrprof.kernels.qr import blocked, gpu, lanes

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

EPS: Final = torch.finfo(torch.float32).eps
# geqrf: one warp a matrix; one program; a block; block columns of 64; of 128; wide in a block; wide in block columns.
PATHS: Final = (
    (12, 30, 31),
    (12, 60, 40),
    (12, 180, 170),
    (12, 300, 200),
    (12, 500, 450),
    (12, 90, 300),
    (12, 60, 300),
)
SERVED: Final = (
    (12, 32, 32),
    (12, 60, 40),
    (40, 176, 176),
    (12, 300, 300),
    (12, 500, 450),
    (60, 700, 100),
    (10, 1000, 1000),
)  # the last one shares leaves in clusters
SQUARE: Final = (*(1, 2, 3, 31, 33, 100, 176, 250, 352, 513, 768, 1000), *(1536, 3000))
TALL_AND_WIDE: Final = ((2, 4096, 64), (12, 2000, 32), (12, 64, 300))
BATCHES: Final = ((), (1,), (7,), (133,), (2, 3))
WARMED: Final = (
    *("12x60x40 12x200x200", "12x500x450", "12x90x300 12x300x100", "10x1000", "2x3000 12x513", "133x300x200 133x33"),
    *("2x4096x64 12x2000x32 12x64x300", "40x176 2x2048"),
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Several processes fill Triton's cache: one alone would compile for minutes."""
    warm = [sys.executable, "-m", "qrprof", "kernels", "warm"]
    children = [subprocess.Popen([*warm, *shapes.split()], stderr=subprocess.PIPE, text=True) for shapes in WARMED]
    try:
        ended = [(child.communicate(timeout=240)[1], child.returncode) for child in children]
    finally:
        for child in children:
            child.kill()
    assert not [said for said, code in ended if code]


@pytest.fixture(params=[qr, gpu], ids=["dispatch", "lane"])
def route(request: pytest.FixtureRequest) -> Any:
    """What has geqrf, qr, orgqr and ormqr."""
    return request.param


def decomposes_strictly(route: Any, a: Tensor, mode: str = "reduced") -> None:
    found, stock = route.qr(a, mode), torch.linalg.qr(a, mode)
    same_layout(found, stock)
    verdict = strict(residuals_qr(a, *found), residuals_qr(a, *stock))
    assert verdict.passed, f"qr: {verdict}"


# --- right


@pytest.mark.parametrize("shape", PATHS, ids=str)
@pytest.mark.parametrize("structure", structures.CASES)
def test_every_structure_is_factored_as_well_as_stock(route: Any, structure: str, shape: tuple[int, int, int]) -> None:
    a = made(structure, *shape)
    factors_strictly(route, a)
    decomposes_strictly(route, a)


@pytest.mark.parametrize("case", contest.TESTS, ids=lambda case: f"{case.label} {case.cond:g}")
def test_the_contests_cases_pass(route: Any, case: contest.Case) -> None:
    factors_strictly(route, case.make("cuda"))


@pytest.mark.parametrize("shape", [*((12 if n < 1024 else 2, n, n) for n in SQUARE), *TALL_AND_WIDE], ids=str)
def test_sizes_that_nothing_was_tuned_for(route: Any, shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    factors_strictly(route, a)
    decomposes_strictly(route, a)


def test_every_size_that_a_warp_holds_and_the_next() -> None:
    for m in range(1, 34):
        for n in sorted({1, 2, max(1, m - 1), m, m + 1, 16, 17, 32, 33}):
            factors_strictly(gpu, matrices(5, m, n, seed=m))


@pytest.mark.parametrize("size", [(20, 20), (33, 33), (100, 60), (300, 200)], ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_batches_of_any_rank(route: Any, batch: tuple[int, ...], size: tuple[int, int]) -> None:
    a = matrices(*batch, *size)
    factors_strictly(route, a)
    decomposes_strictly(route, a)


@pytest.mark.parametrize("shape", [(0, 5, 5), (0, 600, 500), (2, 0, 20, 10), (8, 0, 5), (8, 5, 0)], ids=str)
def test_nothing_to_factor(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    same_layout(qr.geqrf(a), torch.geqrf(a))
    same_layout(qr.qr(a), torch.linalg.qr(a))


@pytest.mark.parametrize("shape", [(12, 300, 100), (12, 100, 300)], ids=str)
def test_all_of_q_or_none(route: Any, shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    decomposes_strictly(route, a, "complete")
    found = route.qr(a, "r")
    same_layout(found, torch.linalg.qr(a, "r"))
    assert same_bits(found[1:], route.qr(a, "reduced")[1:])


@pytest.mark.parametrize(("shape", "dtype"), [((16384, 80), torch.float32), ((12, 200, 200), torch.float64)])
def test_what_the_kernels_do_not_serve_is_torchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a = matrices(*shape).to(dtype)
    m, n = shape[-2:]
    assert not blocked.serves(a.shape[:-2].numel(), m, n, dtype)
    assert lanes.lane_of("geqrf", a) == "torch"
    for found, stock in ((qr.geqrf(a), torch.geqrf(a)), (qr.qr(a), torch.linalg.qr(a))):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, stock, strict=True))


@pytest.mark.parametrize("shape", [(12, 60, 40), (12, 300, 200), (12, 500, 450), (2, 3, 100, 100)], ids=str)
def test_q_is_formed_as_in_float64(route: Any, shape: tuple[int, ...]) -> None:
    h, tau = torch.geqrf(matrices(*shape))
    for some in (tau, tau[..., : tau.shape[-1] // 2].contiguous()):
        q, stock = route.orgqr(h, some), torch.linalg.householder_product(h, some)
        same_layout([q], [stock])
        exact = torch.linalg.householder_product(h.double(), some.double())
        assert ((q - exact).abs().sum(-2) <= 5 * max(16, shape[-2]) * EPS).all()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("shape", [(12, 60, 40), (12, 500, 450)], ids=str)
def test_q_is_applied_as_in_float64(route: Any, shape: tuple[int, ...], transpose: bool, left: bool) -> None:
    batch, m, _ = shape
    h, tau = torch.geqrf(matrices(*shape))
    c = matrices(batch, m, 11, seed=1) * torch.logspace(-20, 20, 11, device="cuda")
    c = c if left else c.mT
    found, stock = route.ormqr(h, tau, c, left=left, transpose=transpose), torch.ormqr(h, tau, c, left, transpose)
    same_layout([found], [stock])
    exact = torch.ormqr(h.double(), tau.double(), c.double(), left, transpose)
    along = -2 if left else -1
    assert ((found - exact).norm(dim=along) <= m * EPS * c.double().norm(dim=along)).all()


@pytest.mark.parametrize("shape", [(6, 20, 32), (6, 60, 40), (10, 200, 150)], ids=str)
def test_strides_do_not_matter(route: Any, shape: tuple[int, int, int]) -> None:
    a = matrices(*shape)
    batch, m, n = shape
    apart, shifted = a.new_zeros(batch, m, 2 * n), a.new_zeros(a.numel() + 1)
    apart[..., ::2] = a
    shifted[1:] = a.flatten()
    alike = {
        "columns": a.mT.contiguous().mT,
        "every other column": apart[..., ::2],
        "every other matrix": torch.stack([a, a + 1], 1)[:, 0],
        "the batch last": a.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        "not aligned": shifted[1:].view(shape),
    }
    for name, same in alike.items():
        assert torch.equal(same, a), name
        factors_strictly(route, same)
        decomposes_strictly(route, same)
    factors_strictly(route, a[:1].expand(shape))


# --- one matrix does not reach another


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [(12, 30, 30), (12, 60, 40), (60, 200, 200), (60, 300, 100), (12, 500, 450)], ids=str)
def test_one_bad_matrix_of_a_mixed_batch_leaves_the_others_as_they_are(
    route: Any, shape: tuple[int, int, int], bad: float
) -> None:
    a = made("mixed", *shape)
    draw = torch.Generator().manual_seed(5)
    place = tuple(int(torch.randint(size, (), generator=draw)) for size in shape)
    others = torch.arange(shape[0], device="cuda") != place[0]
    spoilt = a.clone()
    spoilt[place] = bad
    for call in (route.geqrf, lambda x: route.qr(x, "reduced")):
        clean, found = call(a), call(spoilt)
        assert same_bits([x[others] for x in found], [x[others] for x in clean])
        assert not all(x[place[0]].isfinite().all() for x in found)


# --- beside others


@pytest.mark.parametrize("shape", SERVED, ids=str)
def test_results_are_the_callers_and_the_same_every_time(route: Any, shape: tuple[int, ...]) -> None:
    a, b = matrices(*shape), matrices(*shape, seed=1)
    given = a.clone()
    for call in calls(route):
        first = call(a)
        kept = [x.clone() for x in first]
        call(b)
        assert same_bits(first, kept)
        assert torch.equal(a, given)
        assert same_bits(call(a), kept)


@pytest.mark.parametrize("shape", SERVED, ids=str)
def test_two_streams_at_once(route: Any, shape: tuple[int, ...]) -> None:
    inputs = [matrices(*shape, seed=seed) for seed in range(2)]
    for call in calls(route):
        expected = [call(a) for a in inputs]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in inputs]  # type: ignore[no-untyped-call]
        found = [on(stream, call, a) for _ in range(4) for stream, a in zip(streams, inputs, strict=True)]
        torch.cuda.synchronize()
        assert all(same_bits(one, expected[number % 2]) for number, one in enumerate(found))


@pytest.mark.parametrize("shape", SERVED, ids=str)
def test_two_threads_at_once(route: Any, shape: tuple[int, ...]) -> None:
    inputs = [matrices(*shape, seed=seed) for seed in range(2)]
    for call in calls(route):
        expected = [call(a) for a in inputs]
        torch.cuda.synchronize()

        def several(a: Tensor, call: Callable[[Tensor], Result] = call) -> list[Result]:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            found = [on(stream, call, a) for _ in range(4)]
            stream.synchronize()
            return found

        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(several, inputs))
        for theirs, right in zip(found, expected, strict=True):
            assert all(same_bits(one, right) for one in theirs)


@pytest.mark.parametrize("shape", SERVED, ids=str)
def test_in_a_graph_that_is_replayed_on_other_contents(route: Any, shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    for call in calls(route):
        call(a)  # compiled by now
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call(a)
        for seed in (1, 2):
            other = matrices(*shape, seed=seed)
            a.copy_(other)
            graph.replay()
            assert same_bits(found, call(other))


@pytest.mark.parametrize("shape", SERVED, ids=str)
def test_beside_a_kernel_that_holds_almost_the_whole_device(route: Any, shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    for call in calls(route):
        mine = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        for _ in range(3):  # nothing is compiled, loaded or allocated later, which would wait for the other kernel
            expected = on(mine, call, a)
        torch.cuda.synchronize()
        with held(free=8) as left:
            found = on(mine, call, a)
            beside = not left.query()
            finished(
                mine.record_event(), seconds=0.5
            )  # blocks of a cluster may have to wait for the other kernel's end
        assert beside
        assert same_bits(found, expected)


def calls(route: Any) -> list[Callable[[Tensor], Result]]:
    return [route.geqrf, lambda a: route.qr(a, "reduced")]


def on(stream: Any, call: Callable[[Tensor], Result], a: Tensor) -> Result:
    with torch.cuda.stream(stream):
        return call(a)


def finished(event: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (done := event.query()) and time.monotonic() < end:
        time.sleep(1e-3)
    return bool(done)


HOLD: Final = """
extern "C" __global__ void hold(volatile int *released, int *held, int mega_cycles) {
    const long long begin = clock64();
    if (threadIdx.x == 0) atomicAdd(held, 1);
    while (!*released && clock64() - begin < mega_cycles * 1000000LL) __nanosleep(1000);
}
"""
MEGA_CYCLES: Final = 6000  # about three seconds: then it ends by itself


@contextmanager
def held(free: int) -> Iterator[Any]:
    """All multiprocessors but `free` hold a block that leaves no shared memory; the event says that they are done."""
    properties: Any = torch.cuda.get_device_properties(0)
    room, blocks = properties.shared_memory_per_block_optin, properties.multi_processor_count - free
    kernel = torch.cuda._compile_kernel(HOLD, "hold")
    kernel.set_shared_memory_config(room)
    flags = torch.zeros(2, dtype=torch.int32, device="cuda")
    released, count = flags[:1], flags[1:]
    one = torch.ones(1, dtype=torch.int32).pin_memory()
    holding, other = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    kernel((blocks, 1, 1), (32, 1, 1), [released, count, MEGA_CYCLES], room, holding)
    left = holding.record_event()
    try:
        with torch.cuda.stream(other):
            while count.item() < blocks and not left.query():
                pass
        yield left
    finally:
        with torch.cuda.stream(other):
            released.copy_(one, non_blocking=True)
        torch.cuda.synchronize()
