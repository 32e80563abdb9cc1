"""Runs a file of tests in Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def passes(file: str, part: str) -> None:
    """Those tests of the file that `part` selects, as pytest's -k."""
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, str(HERE / file), "-q", "-p", "no:cacheprovider", "-k", part]
    ours = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=ours, cwd=HERE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
