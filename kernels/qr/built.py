"""Kernels as NVRTC built them, kept in the user's cache: it takes seconds for each, in every process anew."""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from qrprof.kernels.trust import require_private
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import cache_folder, make_private, write_private

FOLDER: Final = "kernels"
DIGEST: Final = hashlib.sha256().digest_size

Built = tuple[bytes, str]  # what a driver loads, and what the kernel is called in it


def built(text: str, kernel: str, options: Sequence[str]) -> Any:
    """The kernel of that name, as torch loads it for the current device. Raises what torch raises."""
    from torch.cuda._utils import _cuda_load_module, _nvrtc_compile

    file = file_of(text, kernel, options)
    made = kept(file)
    if made is None:
        made = _nvrtc_compile(text, kernel, nvcc_options=list(options))
        keep(file, made)
    code, name = made
    loaded: Any = _cuda_load_module(code, [name])
    return loaded[name]


def file_of(text: str, kernel: str, options: Sequence[str]) -> Path:
    """Named after all that decides what is built."""
    capability = torch.cuda.get_device_capability()
    parts = repr((text, kernel, *options, capability, torch.__version__, torch.version.cuda))
    return cache_folder() / FOLDER / f"{hashlib.sha256(parts.encode()).hexdigest()}.bin"


def kept(file: Path) -> Built | None:
    """None where there is none, or not as it was written, and where another user may have written it: it is code."""
    try:
        with file.open("rb") as source:
            require_private(file, source)
            whole = source.read()
    except (OSError, QrprofError):
        return None
    name, found, code = whole[DIGEST:].partition(b"\0")
    right = hashlib.sha256(whole[DIGEST:]).digest() == whole[:DIGEST]
    return (code, name.decode()) if found and right else None


def keep(file: Path, made: Built) -> None:
    """Where it can be written: nothing depends on it."""
    code, name = made
    rest = name.encode() + b"\0" + code
    with contextlib.suppress(OSError):
        make_private(file.parent)
        write_private(file, hashlib.sha256(rest).digest() + rest)
