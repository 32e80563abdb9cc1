"""What a candidate must leave as it found it: random state, torch's settings, threads, environment, and functions.

Taken in the candidate's process, before and after its calls.
"""

import _thread
import builtins
import gc
import hashlib
import json
import locale
import math
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from qrprof.planner.gate.records import Detector
from qrprof.planner.gate.replies import Sign

State = Mapping[tuple[Detector, str], Any]  # by detector and what it is called in a sentence
Functions = Mapping[tuple[str, str], Any]  # by owner and name

OWNERS: tuple[Any, ...] = (
    torch, torch.Tensor, torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.linalg, torch.nn.functional,
    torch.testing, torch.autograd, torch.random, builtins, time, json, os, sys, gc, threading, socket, math, random,
    statistics, hashlib, signal,
)  # fmt: skip
INDUCTORS = "_TORCHINDUCTOR_"  # what torch.compile leaves in the environment
INSTALLED = (sys.prefix, sys.base_prefix, tempfile.gettempdir())  # torch.compile adds paths in there
SHOWN = 60  # characters of a value in a sentence


def state(device: str) -> State:
    found: dict[tuple[Detector, str], Any] = {
        ("threads", "the number of Python's threads"): _thread._count(),
        ("threads", "torch's number of threads"): (torch.get_num_threads(), torch.get_num_interop_threads()),
    }
    found.update((("global-state", name), read(value)) for name, value in READINGS.items())
    if device == "cuda":
        found["global-state", "CUDA's random state"] = digest(torch.cuda.get_rng_state().numpy().tobytes())
    if numpy := sys.modules.get("numpy"):
        found["global-state", "numpy's random state"] = digest(repr(numpy.random.get_state()).encode())
    return found


def read(value: Callable[[], Any]) -> Any:
    try:
        return value()
    except RuntimeError:  # torch has two ways to set TF32, and after the one does not answer the other
        return "no answer"


READINGS: Mapping[str, Callable[[], Any]] = {
    "torch's random state": lambda: digest(torch.get_rng_state().numpy().tobytes()),
    "Python's random state": lambda: digest(repr(random.getstate()).encode()),
    "what becomes of denormal numbers": lambda: sys.float_info.min / 2 > 0,  # torch cannot tell
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "the grad mode": torch.is_grad_enabled,
    "the inference mode": torch.is_inference_mode_enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "TF32": lambda: (
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn.fp32_precision,  # type: ignore[attr-defined]
    ),
    "reduced-precision sums": lambda: (
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ),
    "cuDNN's settings": lambda: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    ),
    "the linear algebra library": lambda: str(torch.backends.cuda.preferred_linalg_library()),
    "the environment": lambda: {name: value for name, value in os.environ.items() if not name.startswith(INDUCTORS)},
    "the working folder": os.getcwd,
    "where modules are found": lambda: tuple(path for path in sys.path if not path.startswith(INSTALLED)),
    "the handlers of signals": lambda: tuple(signal.getsignal(number) for number in sorted(signal.valid_signals())),
    "tracing": lambda: (sys.gettrace(), sys.getprofile()),
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold()),
    "the switch interval": sys.getswitchinterval,
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
}


def functions() -> Functions:
    """The functions and classes that measuring, checking and other programs rely on."""
    return {(owner.__name__, name): value for owner in OWNERS for name, value in members(owner) if callable(value)}


def members(owner: Any) -> Iterable[tuple[str, Any]]:
    """Those of a module; of a class also the inherited ones, which a new one of the same name would hide."""
    owners = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
    found: dict[str, Any] = {name: value for one in owners for name, value in vars(one).items()}
    return found.items()


def changes(before: State, after: State) -> list[Sign]:
    return [
        Sign(detector, f"it changed {name}{shown(value, after.get((detector, name)))}")
        for (detector, name), value in before.items()
        if value != after.get((detector, name))
    ]


def patches(before: Functions, after: Functions) -> list[Sign]:
    changed = sorted(
        f"{owner}.{name}" for (owner, name), value in before.items() if not same(value, after.get((owner, name)))
    )
    if not changed:
        return []
    return [Sign("patched", f"it replaced {', '.join(changed[:5])}{' and others' if len(changed) > 5 else ''}")]


def same(before: Any, after: Any) -> bool:
    """Also where torch.compile, at its first use, has put a wrapper of torch's own around it."""
    if getattr(after, "__wrapped__", None) is before:
        code = getattr(after, "__code__", None)
        return code is not None and str(code.co_filename).startswith(str(Path(torch.__file__).parent))
    return after is before


def shown(before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return ": " + ", ".join(names[:5])
    texts = repr(before), repr(after)
    return f" from {texts[0]} to {texts[1]}" if max(map(len, texts)) <= SHOWN else ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
