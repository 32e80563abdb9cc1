"""What a candidate must leave as it found it: each change is named, and nothing else is."""

import functools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch._compile import _disable_dynamo

from qrprof.planner.gate.state import changes, functions, patches, state


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def environment() -> Iterator[None]:
    os.environ["QRPROF_TEST"] = "x"
    yield
    del os.environ["QRPROF_TEST"]


@contextmanager
def a_thread() -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def fewer_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    yield
    torch.set_num_threads(before)


@contextmanager
def tf32() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = not before
    yield
    torch.backends.cudnn.allow_tf32 = before


@contextmanager
def torch_drew() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.rand(1)
        yield


@contextmanager
def python_drew() -> Iterator[None]:
    before = random.getstate()
    random.random()
    yield
    random.setstate(before)


@pytest.mark.parametrize(
    ("change", "detector", "words"),
    [
        (default_dtype, "global-state", "the default dtype from torch.float32 to torch.float64"),
        (environment, "global-state", "the environment: QRPROF_TEST"),
        (a_thread, "threads", "the number of Python's threads"),
        (fewer_threads, "threads", "torch's number of threads"),
        (tf32, "global-state", "TF32"),
        (torch_drew, "global-state", "torch's random state"),
        (python_drew, "global-state", "Python's random state"),
        (torch.no_grad, "global-state", "the grad mode from True to False"),
        (torch.inference_mode, "global-state", "the inference mode"),
    ],
)
def test_a_change_is_named(change: Callable[[], Iterator[None]], detector: str, words: str) -> None:
    before = state("cpu")
    with change():  # type: ignore[attr-defined]
        signs = changes(before, state("cpu"))
    assert any(sign.detector == detector and words in sign.detail for sign in signs)
    assert changes(before, state("cpu")) == []


def test_what_torch_compile_replaces_at_its_first_use_is_no_patch() -> None:
    now = functions()
    name = ("torch", "manual_seed")
    assert patches(now, {**now, name: _disable_dynamo(now[name])}) == []

    @functools.wraps(now[name])
    def manual_seed(seed: int) -> None: ...

    assert [sign.detail for sign in patches(now, {**now, name: manual_seed})] == ["it replaced torch.manual_seed"]


def test_a_replaced_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = functions()
    assert patches(before, functions()) == []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: self)
    (sign,) = patches(before, functions())
    assert sign.detector == "patched"
    assert sign.detail == "it replaced Tensor.copy_, time.perf_counter"
