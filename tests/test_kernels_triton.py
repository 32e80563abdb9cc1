"""The Triton kernels without a GPU: their tests run in Triton's interpreter, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent


@pytest.mark.parametrize("part", ["not orgqr and not ormqr", "orgqr or ormqr"])
def test_in_the_interpreter(part: str) -> None:
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, str(HERE / "triton_interpreted.py"), "-q", "-p", "no:cacheprovider", "-k"]
    ours = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, part], check=False, capture_output=True, text=True, env=ours, cwd=HERE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
