"""The parent of a program that is run with swaps: starts it, passes signals on, and gives its exit code."""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from qrprof.kernels.running.request import Request
from qrprof.profiler.recording.relay import ended
from qrprof.profiler.recording.script import check_script
from qrprof.profiler.recording.spawn import QUIET

# The working folder is not where python looks for modules first when it runs a script in another folder.
CHILD = "import sys; sys.flags.safe_path or sys.path.pop(0); from qrprof.kernels.running.child import main; main()"


def launched(
    script: str, args: Sequence[str], module: bool, request: Request, env: Mapping[str, str] | None = None
) -> int:
    """Run a script, or with `module` a module, to its own end; its exit code, 128 + n for death by signal n.

    What it prints is its own. Raises QrprofError (exit code 2) for a script that cannot be read, or starts others.
    """
    check_script(script, module)
    command = [sys.executable, "-c", CHILD, json.dumps(request | {"module": module}), script, *args]
    return ended(command, QUIET | dict(os.environ if env is None else env))
