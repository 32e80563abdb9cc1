"""The process of a program that runs with swaps: the script, and our work once it has imported torch.

    python -c "from qrprof.kernels.running.child import main; main()" REQUEST_JSON SCRIPT [ARGS...]

Nothing here imports torch: the script may still set OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES before it does.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from qrprof.kernels.modes import Mode
from qrprof.kernels.running.request import Request
from qrprof.profiler.recording.script import after_import, keep_compiler_out, run_as_main

KERNELS = Path(os.path.abspath(__file__)).parents[1]


def main() -> None:
    request: Request = json.loads(sys.argv[1])
    target, arguments = sys.argv[2], sys.argv[3:]
    after_import("torch", lambda: torch_imported(request))
    run_as_main(target, arguments, request["module"], own=(str(KERNELS),))


def torch_imported(request: Request) -> None:
    after_import("torch._dynamo.trace_rules", lambda: guarded(keep_compiler_out))
    guarded(lambda: swap(request))
    if training := request.get("training"):
        guarded(lambda: watch_training(training))


def swap(request: Request) -> None:
    from qrprof.kernels.swap import hold, install, say_failures

    try:
        # Ranks of one program all install, be it nothing: one that does not would be waited for.
        install(request.get("swaps") or (), Mode(**request.get("mode", {})))
    finally:
        if request.get("swaps") or request.get("training"):  # a stock run of a verification stays stock
            hold()
    if path := request.get("report"):
        atexit.unregister(say_failures)  # the report tells them
        atexit.register(in_this_process(lambda: write_report(Path(path))))


def write_report(path: Path) -> None:
    from qrprof.kernels.running.report import write

    write(path)


def watch_training(settings: dict[str, object]) -> None:
    from qrprof.kernels.running.training import install

    install(settings)


def in_this_process(work: Callable[[], None]) -> Callable[[], None]:
    """`work`, and nothing in a forked copy."""
    pid = os.getpid()

    def here() -> None:
        if os.getpid() == pid:
            guarded(work)

    return here


def guarded(work: Callable[[], None]) -> None:
    """Do work of ours inside the script, which must not die of it."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the border between the script and us
        what = str(error).partition("\n")[0] or type(error).__name__
        print(f"qrprof: {what}; the program runs on without it", file=sys.stderr, flush=True)
