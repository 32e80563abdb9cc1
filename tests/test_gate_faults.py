"""An exception of a candidate: which of them mean more than a candidate that is wrong, and the line that is shown."""

import errno
import os
import runpy
from pathlib import Path

import pytest

from qrprof.planner.gate.faults import line, reason


def missing(program: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "disk-full"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "disk-full"),
        (RuntimeError("ptxas fatal: No space left on device"), "disk-full"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory-limit"),
        (MemoryError(), "memory-limit"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "memory-limit"),
        (missing("/usr/bin/gcc"), "no-compiler"),
        (missing("nvcc"), "no-compiler"),
        (RuntimeError("Failed to find C compiler. Please specify via CC environment variable."), "no-compiler"),
        (RuntimeError("can't start new thread"), "task-limit"),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "task-limit"),
        (missing("weights.pt"), None),
        (ValueError("no"), None),
    ],
)
def test_the_reason(error: BaseException, expected: str | None) -> None:
    assert reason(error) == expected


def test_torch_says_no_memory_in_words_that_are_known() -> None:
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert reason(caught.value) == "memory-limit"


def test_the_line_names_the_place_in_the_file(tmp_path: Path) -> None:
    source = tmp_path / "candidate.py"
    source.write_text("def candidate():\n    x = 1\n    raise ValueError('two\\nlines')\n")
    with pytest.raises(ValueError, match="two") as caught:
        runpy.run_path(str(source))["candidate"]()
    assert line(caught.value, source) == "line 3: ValueError: two lines"


def test_an_error_whose_text_fails_has_a_line_too(tmp_path: Path) -> None:
    class Trap(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert line(Trap(), tmp_path) == "Trap"
