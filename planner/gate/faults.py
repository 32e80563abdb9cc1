"""What went wrong in a candidate, by the exception that it raised."""

import errno
import traceback
from pathlib import Path

from qrprof.planner.gate.records import Detector

COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "clang", "clang++", "nvcc", "ptxas", "ninja"})
NO_COMPILER = (
    "Failed to find C compiler",
    "InvalidCxxCompiler",
    "No working C++ compiler found",
    "CUDA_HOME environment variable is not set",
    "Ninja is required to load C++ extensions",
    "Cannot find ptxas",
)
NO_MEMORY = (
    "CUDA out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "DefaultCPUAllocator: can't allocate memory",
    "not enough memory",
)
NO_THREAD = "can't start new thread"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
LONGEST = 300


def reason(error: BaseException) -> Detector | None:
    """A name of records.DETECTORS for what is no ordinary error of the candidate."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        if error.errno == errno.ENOMEM:
            return "memory-limit"
        if error.errno in FULL:
            return "disk-full"
        if isinstance(error, FileNotFoundError) and Path(str(error.filename)).name in COMPILERS:
            return "no-compiler"
    if "No space left on device" in text:
        return "disk-full"
    if any(words in text for words in NO_COMPILER):
        return "no-compiler"
    if NO_THREAD in text or (isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN):
        return "task-limit"
    if isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY):
        return "memory-limit"
    return None


def line(error: BaseException, source: Path) -> str:
    """The exception in one line, with the place in the candidate's file."""
    try:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
    except Exception:  # noqa: BLE001 - its own text may be code of the candidate's
        words = type(error).__name__
    places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source)]
    return f"line {places[-1]}: {words}" if places else words
