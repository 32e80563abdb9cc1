"""What a candidate's text shows: each warning from a line that asks for it, and none from honest kernels."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.static import examine, warnings

HONEST = '''\
"""A softmax in Triton, with torch around it."""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

KERNELS = ("softmax_rows",)


@dataclass(frozen=True)
class Config:
    warps: int = 4


CONFIGS = {128: Config(), 4096: Config(8)}


@triton.jit
def softmax_rows(x, out, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-math.inf)
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)


def candidate(self, dim, half_to_float):
    rows = self.movedim(dim, -1).contiguous()
    out = torch.empty_like(rows)
    width = triton.next_power_of_2(rows.shape[-1])
    config = CONFIGS.get(width, Config())
    softmax_rows[(rows.numel() // rows.shape[-1],)](rows, out, rows.shape[-1], WIDTH=width, num_warps=config.warps)
    return out.movedim(-1, dim)
'''

LINES = [  # a line in a candidate, and what is said of it
    ("import ctypes", "imports ctypes, which calls native code by address"),
    ("import subprocess as sp", "imports subprocess, which starts other programs"),
    ("from socket import socket", "imports socket, which reaches for the network"),
    ("import urllib.request", "imports urllib, which reaches for the network"),
    ("import gc, inspect", "imports gc, which can find objects that it was not given; imports inspect, which can"),
    ("import threading", "imports threading, which may work on after the call has returned"),
    ("import frobnicate.kernels", "imports frobnicate, which a candidate may not"),
    ("from . import other", "imports ., which is another file: a candidate is one"),
    ("import torch; torch.cuda.synchronize = lambda: None", "replaces torch.cuda.synchronize, which is not its own"),
    ("from torch.cuda import Event; Event.elapsed_time = min", "replaces torch.cuda.Event.elapsed_time"),
    ("import time; time.perf_counter: object = min", "replaces time.perf_counter"),
    ("import time as t; setattr(t, 'perf_counter', min)", "changes time, which is not its own"),
    ("import torch; del torch.cuda.Event.record", "replaces torch.cuda.Event.record"),
    ("import torch; torch.backends.cudnn.benchmark = True", "changes torch.backends.cudnn.benchmark"),
    ("import torch; torch.set_default_dtype(torch.float64)", "changes torch.set_default_dtype"),
    ("import torch; torch.manual_seed(0)", "changes torch.manual_seed, which the rest of the program uses too"),
    ("import os; os.environ['A'] = '1'", "changes os.environ, which the rest of the program uses too"),
    ("import os; os.system('true')", "calls os.system, which starts other programs"),
    ("from os import fork; fork()", "calls os.fork, which starts other processes"),
    ("import sys; sys._getframe(1)", "calls sys._getframe, which looks into its callers"),
    ("open('x')", "calls open, which opens a file"),
    ("exec('x = 1')", "calls exec, which runs code out of a string"),
    ("import torch; getattr(torch, 'ge' + 'qrf')", "calls getattr with a name that is not in the text"),
    ("import torch; torch.cuda.CUDAGraph()", "calls torch.cuda.CUDAGraph, which replays a graph"),
    ("import torch; torch.cuda.Stream()", "works on a stream of its own"),
    ("def f(a): return a.data_ptr()", "asks for data_ptr: a result kept by it would be that of what lay there before"),
    ("def f(a): return a._version", "asks for _version"),
    ("def f(a): return id(a)", "asks for id"),
    ("KEPT = {}\ndef f(a): KEPT[1] = a", "keeps KEPT between calls: no result may depend on an earlier call"),
    ("KEPT: list = []\ndef f(a): KEPT.append(a)", "keeps KEPT between calls"),
    ("import collections\nKEPT = collections.defaultdict(list)\ndef f(a): KEPT[1] += [a]", "keeps KEPT between calls"),
    ("def f():\n  global n, m\n  n = m = 1", "keeps n, m between calls"),
    ("import functools\n@functools.lru_cache(maxsize=None)\ndef f(a): return a", "keeps results of f between calls"),
    ("import torch\ntry: pass\nexcept Exception: x = torch.mm(1, 2)", "answers an error with torch.mm: its own kernel"),
    ("try: pass\nexcept Exception: pass", "swallows an error"),
    ("import contextlib as c\nwith c.suppress(ValueError): pass", "calls contextlib.suppress, which swallows errors"),
    ("import sys\nfor m in sys.modules: pass", "reads modules, and so what it was not given"),
    ("def f(g): return g.gi_frame.f_back.f_locals", "reads f_locals, and so what it was not given"),
    ("import torch\nclass Lazy(torch.Tensor): ...", "derives Lazy from a tensor: only plain tensors are taken"),
    ("class A:\n  def __torch_function__(self): ...", "defines __torch_function__: only plain tensors are taken"),
    ("def f(a): return a.half()", "uses half: the error is compared with the stock kernel's"),
    ("def f(dot): dot(input_precision='tf32')", "uses tf32: the error is compared with the stock kernel's"),
    ("def f(dot): dot(allow_tf32=True)", "uses allow_tf32: the error is compared with the stock kernel's"),
    ("import torch; torch.linalg.qr(1)", "calls torch.linalg.qr, the op that the candidate is to replace"),
    ("import torch; torch.ops.aten.linalg_qr(1)", "calls torch.ops.aten.linalg_qr, the op"),
]


def said(source: str, op: str = "linalg_qr") -> list[str]:
    return [str(one) for one in warnings(source, op)]


@pytest.mark.parametrize(("line", "words"), LINES, ids=[line for line, _ in LINES])
def test_a_line_is_warned_of_where_it_stands(line: str, words: str) -> None:
    source = "# first line\n" + line + "\ndef candidate(A): ...\n"
    found = said(source)
    assert any(words in one for one in found), found
    assert all(2 <= one.line < len(source.splitlines()) for one in warnings(source, "linalg_qr"))


def test_an_honest_kernel_is_not_warned_of() -> None:
    assert said(HONEST, "_softmax") == []


def test_warnings_decide_nothing() -> None:
    found = examine("import ctypes\nexec('')\n")
    assert [(one.detector, one.outcome, one.case, one.stage) for one in found] == [
        ("static", "PASS", None, "static") for _ in range(3)
    ]
    assert [one.detail.split()[1] for one in found] == ["1", "1", "2"]


@pytest.mark.parametrize(
    "text", ["def candidate(A):\n  return A", "candidate = abs", "from torch import geqrf as candidate"]
)
def test_a_candidate_may_be_defined_in_any_way(text: str) -> None:
    assert not [one for one in said(text) if "defines no function" in one]


def test_a_nested_candidate_is_none() -> None:
    assert "defines no function `candidate`" in said("def outer():\n  def candidate(A): ...")[0]


@pytest.mark.parametrize(
    "text", ["def candidate(A:\n", "x = 1\n\0", "  x = 1", "def candidate(A):\n\treturn A\n        x"]
)
def test_what_does_not_parse_is_one_warning(text: str) -> None:
    (found,) = said(text)
    assert "does not parse" in found


@pytest.mark.parametrize("text", [f"a = {'-' * 20000}1", f"a = {'+'.join('1' * 20000)}", f"a = f{'()' * 1500}"])
def test_what_is_nested_without_end_is_one_warning(text: str) -> None:
    (found,) = examine(text, "geqrf")
    assert (found.outcome, "nested too deeply" in found.detail) == ("PASS", True)


def test_the_stock_op_goes_by_its_name() -> None:
    source = "import torch\nimport torch.nn.functional as F\ndef candidate(x): return F.softmax(x, 1), torch.mm(x, x)"
    for op in ("_softmax", "aten::_softmax", "softmax.int"):
        assert [one for one in said(source, op) if "is to replace" in one] == [
            "line 3 calls torch.nn.functional.softmax, the op that the candidate is to replace"
        ]
    assert "torch.mm" in said(source, "mm")[0]
    assert said(source, "gelu") == []


@given(st.text(max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    assert all(one.outcome == "PASS" for one in examine(text, text))


def test_our_own_sources_can_all_be_read() -> None:
    for path in Path(__file__).parent.glob("test_gate_*.py"):
        assert not [one for one in said(path.read_text(encoding="utf-8")) if "does not parse" in one]
