"""A candidate's process on a GPU: the same promises as on a CPU, and those that only a GPU can break."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.replies import Call, Ended, Reply, Worker
from qrprof.planner.gate.worker import ProcessWorker, started

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

SOURCE = """
import torch
import triton
import triton.language as tl

KERNELS = ("doubled",)
state = {}


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)


def candidate(x, how):
    return globals()[how](x)


def double(x):
    return 2 * x


def by_triton(x):
    y = torch.empty_like(x)
    doubled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


def geqrf(x):
    return torch.ops.aten.geqrf(x)


def address(x):
    same = x is state.get("x")
    state["x"] = x
    return torch.tensor([x.data_ptr(), same], device="cuda")


def mutate(x):
    y = x.clone()
    x.view(-1)[0] += 1
    return y


def alias(x):
    return x, x[1:]


def on_the_host(x):
    return x.cpu()


def side_stream(x):
    y = torch.zeros_like(x)
    stream = state.setdefault("stream", torch.cuda.Stream())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        y.copy_(x)
    return y


def take_memory(x):
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda").fill_(1)
    return x.clone()


def draw(x):
    torch.rand(1, device="cuda")
    return x.clone()


def big(x):
    return torch.ones(1 << 24, device="cuda")
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessWorker]:
    source = tmp_path_factory.mktemp("candidate") / "many.py"
    source.write_text(SOURCE)
    with started(source, "cuda", Limits()) as process:
        assert process.build().kernels == ("doubled",)
        yield process


def once(worker: Worker, how: str, x: torch.Tensor | None = None, *, watch: bool = False) -> tuple[Reply, Call]:
    value = torch.randn(64, 64, device="cuda") if x is None else x
    reply = worker.call([(value, how)], watch=watch)
    (call,) = reply.calls
    assert call.error is None
    return reply, call


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64])
@pytest.mark.parametrize("how", ["double", "by_triton"])
def test_a_call_gives_what_the_op_gives(worker: Worker, dtype: torch.dtype, how: str) -> None:
    if how == "by_triton" and dtype.is_complex:
        pytest.skip("Triton has no complex numbers")
    x = (8 * torch.randn(300, device="cuda")).to(dtype)
    _, call = once(worker, how, x)
    assert call.seen[0].device == "cuda"
    assert call.outputs[0].is_cuda
    assert torch.equal(call.outputs[0], 2 * x)


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(64.0).view(8, 8)[1::2, ::3],
        torch.arange(3.0).view(3, 1).expand(3, 5),
        torch.arange(17.0)[1:],
        torch.empty(0, 3),
    ],
)
def test_strides_and_alignment_cross(worker: Worker, x: torch.Tensor) -> None:
    on_device = torch.empty_strided(x.shape, x.stride(), device="cuda")
    if x.numel() and 0 not in x.stride():
        on_device.copy_(x)
    assert torch.equal(once(worker, "double", on_device)[1].outputs[0], 2 * on_device)


def test_qr_is_the_librarys(worker: Worker) -> None:
    x = torch.randn(16, 32, 32, device="cuda")
    _, call = once(worker, "geqrf", x)
    for ours, theirs in zip(call.outputs, torch.geqrf(x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_many_calls_and_outputs_larger_than_any_before(worker: Worker) -> None:
    values = [torch.full((size,), float(size), device="cuda") for size in range(1, 200)]
    reply = worker.call([(x, "double") for x in values])
    assert all(torch.equal(call.outputs[0], 2 * x) for call, x in zip(reply.calls, values, strict=True))
    assert once(worker, "big")[1].outputs[0].sum().item() == 1 << 24


def test_again_gives_the_same_tensors_with_new_values(worker: Worker) -> None:
    first = once(worker, "address")[1].outputs[0]
    (call,) = worker.call([(torch.randn(64, 64, device="cuda"), "address")], again=True).calls
    assert call.outputs[0].tolist() == [first[0].item(), 1]


def test_five_inputs_do_not_lie_where_one_did(tmp_path: Path) -> None:
    source = tmp_path / "many.py"
    source.write_text(SOURCE)
    with started(source, "cuda", Limits()) as process:
        process.build()
        x = torch.randn(64, 64, device="cuda")
        first = once(process, "address", x)[1].outputs[0][0]
        process.call([(x, "address")] * 5)
        assert once(process, "address", x)[1].outputs[0][0] != first


def test_a_changed_input_and_shared_memory_are_found(worker: Worker) -> None:
    assert once(worker, "mutate")[1].mutated == (0,)
    _, call = once(worker, "alias")
    assert [one.shares for one in call.seen] == [("argument 0",), ("argument 0", "output 0")]


def test_an_output_on_the_host_is_named(worker: Worker) -> None:
    assert once(worker, "on_the_host")[1].seen[0].device == "cpu"


def test_a_watched_call_names_its_kernels_and_memory(worker: Worker) -> None:
    reply, _ = once(worker, "by_triton", watch=True)
    assert reply.kernels == ("doubled",)
    assert reply.launches == 1
    reply, _ = once(worker, "take_memory", watch=True)
    assert reply.peak_bytes is not None
    assert reply.peak_bytes >= 64 << 20


def test_a_side_stream_and_a_drawn_number_are_seen(worker: Worker) -> None:
    once(worker, "side_stream")
    _, call = once(worker, "side_stream", watch=True)
    assert "side-stream" in {sign.detector for sign in call.signs}
    reply, call = once(worker, "draw", watch=True)
    assert any("CUDA's random state" in sign.detail for sign in reply.signs)
    assert call.signs == ()


def test_an_echo_takes_no_candidate(worker: Worker) -> None:
    x = torch.randn(64, 64, device="cuda")
    assert worker.echo([(x, "nothing of the kind")], [[x]]) > 0
    assert torch.equal(once(worker, "double", x)[1].outputs[0], 2 * x)


def ask_twice(worker: Worker) -> None:
    """What breaks a context may be told by the next request only."""
    for _ in range(2):
        worker.call([(torch.ones(3, device="cuda"),)])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("torch.cuda._sleep(1 << 62)", "hang"),
        ("return x.new_empty(1 << 45)", "memory-limit"),
        ("import ctypes; ctypes.string_at(0)", "crash"),
        ("x[torch.full((1,), 1 << 40, device='cuda')]; torch.cuda.synchronize()", "crash"),
    ],
)
def test_a_hostile_call_ends_its_worker_alone(body: str, reason: str, tmp_path: Path, worker: Worker) -> None:
    source = tmp_path / "candidate.py"
    source.write_text(f"import torch\n\ndef candidate(x):\n    {body}\n    return x.clone()\n")
    with started(source, "cuda", Limits(wall_s=10, build_s=20)) as hostile:
        hostile.build()
        with pytest.raises(Ended) as ended:
            ask_twice(hostile)
    assert ended.value.reason == reason, ended.value
    assert torch.equal(once(worker, "double", torch.ones(3, device="cuda"))[1].outputs[0].cpu(), torch.full((3,), 2.0))
