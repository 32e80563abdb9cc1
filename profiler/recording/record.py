"""The child: runs the script with the recorder waiting for torch.

    python -c "from qrprof.profiler.recording.record import main; main()" TASK_JSON SCRIPT [ARGS...]

Nothing here imports torch: the script may still set OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES before it does.
"""

import atexit
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from qrprof.profiler.recording.agree import agree_across_ranks
from qrprof.profiler.recording.plan import Settings
from qrprof.profiler.recording.recorder import Recorder, Report, leave
from qrprof.profiler.recording.runrecord import Task
from qrprof.profiler.recording.script import after_import, keep_compiler_out, run_as_main


def main() -> None:
    request = json.loads(sys.argv[1])
    target, arguments = sys.argv[2], sys.argv[3:]
    channel = request["channel"]
    os.set_inheritable(channel, False)

    def report(message: dict[str, Any]) -> None:
        try:
            os.write(channel, json.dumps(message).encode() + b"\n")
        except OSError:  # the parent is gone; the script goes on
            return

    recorder = watch(read_task(request), report)
    run_as_main(target, arguments, request["module"], lambda error: leave_forked_copy(recorder, error))


def watch(task: Task, report: Report) -> Recorder:
    """A recorder that begins its work once the script has imported torch."""
    recorder = Recorder(task, report, agree_across_ranks)

    def torch_imported() -> None:
        report({"torch": True})
        atexit.register(recorder.at_exit)
        after_import("torch._dynamo.trace_rules", lambda: recorder.guard(keep_compiler_out))
        recorder.guard(recorder.install)

    after_import("torch", torch_imported)
    recorder.guard(recorder.prepare)
    return recorder


def read_task(request: dict[str, Any]) -> Task:
    return Task(
        settings=Settings(**request["settings"]),
        folder=Path(request["folder"]),
        samples=Path(request["samples"]) if request["samples"] else None,
        range_name=request["range_name"],
        shapes=request["shapes"],
        rank=request["rank"],
        repeat=request["repeat"],
        base=request["base"],
    )


def leave_forked_copy(recorder: Recorder, error: BaseException | None) -> None:
    """End a forked copy of the script as python would, but for the exit: it hangs once torch.profiler was used."""
    if os.getpid() == recorder.pid or not recorder.profiled:
        return
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if status and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads
    atexit._run_exitfuncs()
    leave(status)
