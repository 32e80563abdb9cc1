"""A candidate in its own process: what comes back of a call, what is seen of it, what is seen of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qrprof.planner.gate import arena
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.replies import TENSOR, Call, Reply, Worker
from qrprof.planner.gate.worker import ProcessWorker, started

# Every behaviour that leaves the process alive, by its name.
SOURCE = """
import torch

KERNELS = ("my_kernel",)
state = {}


def candidate(x, how, *more):
    return globals()[how](x, *more)


def double(x):
    return 2 * x


def pair(x):
    return x.t().clone(), x.sum()


def plain(x, *values):
    assert values == (1, 2.5, True, None, (3, 4), "s", torch.float16), values
    return x.to(values[-1])


def addresses(x):
    same = x is state.get("x")
    state["x"] = x
    return torch.tensor([x.data_ptr(), same])


def wrong(x):
    raise ValueError("no\\nway")


def leave(x):
    raise SystemExit(3)


def mutate(x):
    y = x.clone()
    x.view(-1)[0] += 1
    return y


def beyond(x):
    y = x.clone()
    x.untyped_storage()
    torch.empty(0).set_(x.untyped_storage(), 0, (1,))
    import ctypes

    ctypes.memset(x.data_ptr() + x.numel() * x.itemsize, 0, 4)
    return y


def alias(x):
    return x, x[1:], x.clone()


def one_buffer(x):
    return state.setdefault("buffer", torch.empty(x.shape)).copy_(x)


class Lazy(torch.Tensor):
    pass


def strange(x):
    attached = x.clone()
    attached.secret = 1
    return x.as_subclass(Lazy), attached, torch.nn.Parameter(x), x.to_sparse(), [x], None, torch.empty(2, device="meta")


def with_gradient(x):
    return (x.clone().requires_grad_() * 2,)


def late(x):
    import threading
    import time

    y = torch.zeros_like(x)

    def work():
        for _ in range(300):
            y.add_(1)
            time.sleep(0.001)

    threading.Thread(target=work).start()
    return y


def set_flag(x):
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() == torch.float32 else torch.float32)
    return x.clone()


def set_precision(x):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return x.clone()


def draw(x):
    return x + torch.rand(1) * 0


def patch(x):
    import time

    time.perf_counter = time.monotonic
    return x.clone()


def write(x):
    try:
        open("/usr/x", "w")
    except OSError:
        return x.clone()


def connect(x):
    import socket

    try:
        socket.create_connection(("192.0.2.1", 80), timeout=0.01)
    except OSError:
        return x.clone()


def search(x):
    import gc

    gc.get_objects()
    return x.clone()


def leave_a_process(x):
    import subprocess

    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return x.clone()


def big(x):
    return torch.ones(1 << 20)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessWorker]:
    source = tmp_path_factory.mktemp("candidate") / "many.py"
    source.write_text(SOURCE)
    with started(source, "cpu", Limits()) as process:
        built = process.build()
        assert built.kernels == ("my_kernel",)
        assert built.signs == ()
        assert built.seconds > 0
        yield process


def once(worker: Worker, how: str, x: torch.Tensor | None = None, *, watch: bool = False) -> tuple[Reply, Call]:
    value = torch.arange(12.0).view(3, 4) if x is None else x
    reply = worker.call([(value, how)], watch=watch)
    (call,) = reply.calls
    return reply, call


def details(reply: Reply, detector: str) -> str:
    return "; ".join(sign.detail for sign in reply.signs if sign.detector == detector)


# --- what comes back


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(3, 4),
        torch.randn(4, 3).t(),
        torch.randn(8, 8)[1::2, ::3],
        torch.randn(3, 1).expand(3, 5),
        torch.randn(17)[1:],
        torch.randn(0, 3),
        torch.randn(()),
        torch.randn(5, dtype=torch.float64),
        torch.randn(5).bfloat16(),
        torch.randn(5, dtype=torch.complex64),
        torch.arange(5),
    ],
)
def test_a_call_gives_what_the_op_gives(worker: Worker, x: torch.Tensor) -> None:
    reply, call = once(worker, "double", x)
    assert torch.equal(call.outputs[0], 2 * x)
    assert call.outputs[0].is_contiguous()
    assert (call.seen[0].dtype, call.seen[0].shape) == (str(x.dtype).removeprefix("torch."), tuple(x.shape))
    assert (call.seen[0].kind, call.seen[0].device, call.seen[0].requires_grad) == (TENSOR, "cpu", False)
    assert (call.mutated, call.error) == ((), None)
    assert reply.wall_ns > reply.testimony_ns > 0


def test_strides_are_the_outputs_own(worker: Worker) -> None:
    _, call = once(worker, "pair", torch.randn(3, 4).t())
    assert [one.stride for one in call.seen] == [torch.randn(3, 4).t().t().clone().stride(), ()]


def test_plain_values_come_as_they_were(worker: Worker) -> None:
    x = torch.randn(3)
    (call,) = worker.call([(x, "plain", 1, 2.5, True, None, (3, 4), "s", torch.float16)]).calls
    assert call.error is None
    assert torch.equal(call.outputs[0], x.half())


def test_many_calls_in_one_request_keep_their_order(worker: Worker) -> None:
    values = [torch.full((size,), float(size)) for size in range(1, 40)]
    reply = worker.call([(x, "double") for x in values])
    assert all(torch.equal(call.outputs[0], 2 * x) for call, x in zip(reply.calls, values, strict=True))


def test_outputs_are_out_of_reach_of_later_calls(worker: Worker) -> None:
    first = once(worker, "one_buffer")[1].outputs[0]
    before = first.clone()
    once(worker, "one_buffer", torch.full((3, 4), -1.0))
    assert torch.equal(first, before)


def test_an_output_that_the_next_call_overwrites_is_taken_as_it_is_in_the_end(worker: Worker) -> None:
    reply = worker.call([(torch.zeros(3, 4), "one_buffer"), (torch.ones(3, 4), "one_buffer")])
    assert all(torch.equal(call.outputs[0], torch.ones(3, 4)) for call in reply.calls)
    assert reply.calls[1].seen[0].shares == ("output 0 of call 0",)


def test_again_gives_the_same_tensors_with_new_values(worker: Worker) -> None:
    first = once(worker, "addresses")[1].outputs[0]
    (call,) = worker.call([(torch.randn(3, 4), "addresses")], again=True).calls
    assert call.outputs[0].tolist() == [first[0].item(), 1]
    other = once(worker, "addresses")[1].outputs[0]
    assert other.tolist() == [first[0].item(), 0]  # another tensor in the same memory
    with pytest.raises(ValueError, match="same forms"):
        worker.call([(torch.randn(4, 3), "addresses")], again=True)


def test_five_inputs_do_not_lie_where_one_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena.make
    monkeypatch.setattr(arena, "make", lambda size, device: made(max(size, 1 << 21), device))  # as a GPU does
    source = tmp_path / "many.py"
    source.write_text(SOURCE)
    with started(source, "cpu", Limits()) as process:
        process.build()
        first = once(process, "addresses")[1].outputs[0][0]
        process.call([(torch.randn(3, 4), "addresses")] * 5)
        assert once(process, "addresses")[1].outputs[0][0] != first


def test_outputs_larger_than_any_before(worker: Worker) -> None:
    assert once(worker, "big")[1].outputs[0].sum() == 1 << 20
    assert torch.equal(once(worker, "double")[1].outputs[0], 2 * torch.arange(12.0).view(3, 4))


def test_an_echo_calls_no_candidate(worker: Worker) -> None:
    x = torch.randn(3)
    assert worker.echo([(x, "wrong")], [[torch.empty(4, 4), torch.empty(2)]]) > 0
    assert torch.equal(once(worker, "double", x)[1].outputs[0], 2 * x)


# --- what is seen


@pytest.mark.parametrize(("how", "line"), [("wrong", "ValueError: no way"), ("leave", "SystemExit: 3")])
def test_an_exception_is_told_with_its_line(worker: Worker, how: str, line: str) -> None:
    reply = worker.call([(torch.ones(2), "double"), (torch.ones(2), how), (torch.ones(2), "double")])
    number = SOURCE.splitlines().index(f"def {how}(x):") + 2
    assert [call.error for call in reply.calls] == [None, f"line {number}: {line}", None]
    assert [len(call.outputs) for call in reply.calls] == [1, 0, 1]


def test_a_changed_input_is_found_by_its_bytes(worker: Worker) -> None:
    x = torch.ones(3)
    reply = worker.call([(x, "double"), (x, "mutate"), (x, "double")])
    assert [call.mutated for call in reply.calls] == [(), (0,), ()]
    assert x.tolist() == [1, 1, 1]


def test_writing_behind_an_input_is_found(worker: Worker) -> None:
    reply = worker.call([(torch.ones(3), "double"), (torch.ones(3), "beyond")])
    assert [call.mutated for call in reply.calls] == [(), (0,)]


def test_shared_memory_is_named(worker: Worker) -> None:
    _, call = once(worker, "alias")
    assert [one.shares for one in call.seen] == [("argument 0",), ("argument 0", "output 0"), ()]


def test_what_is_not_exactly_a_tensor_is_named_and_not_taken(worker: Worker) -> None:
    _, call = once(worker, "strange")
    assert [one.kind for one in call.seen] == [
        "a candidate.Lazy",
        "a tensor with attributes of its own: secret",
        "a torch.nn.parameter.Parameter",
        "a tensor of layout torch.sparse_coo on cpu",
        "a builtins.list",
        "a builtins.NoneType",
        "a tensor of layout torch.strided on meta",
    ]
    assert [value.numel() for value in call.outputs] == [0] * 7


def test_an_output_with_a_gradient_is_seen(worker: Worker) -> None:
    assert once(worker, "with_gradient")[1].seen[0].requires_grad


def test_an_output_that_changes_after_its_return_is_seen(worker: Worker) -> None:
    _, call = once(worker, "late", watch=True)
    assert [sign.detector for sign in call.signs] == ["late-work"]


@pytest.mark.parametrize(
    ("how", "detector", "words"),
    [
        ("set_flag", "global-state", "the default dtype from torch.float32 to torch.float64"),
        ("set_precision", "global-state", "TF32"),
        ("draw", "global-state", "torch's random state"),
        ("patch", "patched", "time.perf_counter"),
        ("write", "harness", "open /usr/x"),
        ("connect", "import", "it imports socket"),
        ("connect", "import", "the network"),
        ("search", "harness", "gc.get_objects"),
    ],
)
def test_a_watched_call_tells_what_else_it_did(worker: Worker, how: str, detector: str, words: str) -> None:
    reply, call = once(worker, how, watch=True)
    assert words in details(reply, detector)
    assert call.signs == ()
    if how == "set_flag":
        once(worker, "set_flag")


def test_a_process_that_a_call_leaves_is_counted(worker: Worker) -> None:
    reply, _ = once(worker, "leave_a_process", watch=True)
    assert "1 processes" in details(reply, "threads")


def test_an_honest_call_shows_no_signs(worker: Worker) -> None:
    reply = worker.call([(torch.randn(3), "double"), (torch.randn(4), "double")], watch=True)
    assert {sign.detector for sign in reply.signs} <= {"patched", "threads"}  # of the tests before
    assert [call.signs for call in reply.calls] == [(), ()]


def test_the_environment_of_a_candidate_has_no_keys(worker: ProcessWorker) -> None:
    for process in worker.process.root.children(recursive=True):
        assert not [name for name in process.environ() if "KEY" in name or "TOKEN" in name or "OPENAI" in name]
