"""The parent of a recording: starts the child, passes signals on, shows progress, keeps or removes the run."""

import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import psutil

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.events import OP
from qrprof.profiler.recording.launcher import Launch, launch_of
from qrprof.profiler.recording.relay import SIGNALLED, ended
from qrprof.profiler.recording.runrecord import write_json
from qrprof.profiler.recording.script import check_script
from qrprof.profiler.store import cache_folder, make_run_folder, new_run_id, open_store, run_file

# The working folder is not where python looks for modules first when it runs a script in another folder.
WHOLE_RUN = "whole run"
CHILD = "import sys; sys.flags.safe_path or sys.path.pop(0); from qrprof.profiler.recording.record import main; main()"
QUIET = {"KINETO_LOG_LEVEL": "6"}  # Kineto would print into the script's output


@dataclass(frozen=True)
class TraceOptions:
    script: str  # a path, or a module's name
    module: bool
    args: tuple[str, ...]
    steps: int
    warmup: int
    range_name: str | None
    stop: bool
    repeat: int
    out: Path  # where .qrprof is
    shapes: bool
    samples: bool


@dataclass(frozen=True)
class TraceResult:
    exit_code: int
    run: Path | None


@dataclass
class Heard:
    """What the child has said so far."""

    error: str | None = None
    torch: bool = False
    steps: int = 0
    phase: str = ""
    recorded: int = 0
    source: str = ""
    over: bool = False  # the script had ended before the recording did
    theirs: bool = False  # the script uses torch.profiler


def trace(options: TraceOptions, talk: TextIO = sys.stderr) -> TraceResult:
    """Run the script to its own end and record it on the way.

    Returns the script's exit code (1 where it ended well but nothing was recorded, unless it is one rank
    of several) and the run's folder.
    Raises QrprofError for a script that cannot be read or starts others, and a folder that cannot be written.
    """
    check_script(options.script, options.module)
    launch = launch_of(os.environ)
    if options.repeat > 1 and launch.world_size > 1:
        raise QrprofError(
            f"cannot repeat under a launcher of {launch.world_size} ranks, which meet once; leave out --repeat",
            Exit.USAGE,
        )
    runs = open_store(options.out) / "runs"
    folder = launch.shared_folder(runs, options.script) or make_run_folder(
        runs, new_run_id(options.script, datetime.now())
    )
    heard, code = run_child(options, folder, launch, 0, talk)
    record = folder / run_file(launch.rank)
    problem = None if record.exists() else heard.error
    if heard.error is not None and record.exists():  # what was complete before is kept
        note(record, notes=[*json.loads(record.read_text(encoding="utf-8"))["notes"], heard.error])
    if problem is None and not record.exists():
        problem = nothing_recorded(options, heard, code)
    if problem is None:
        note(record, exit_code=code)
        problem = unusable(options, folder, launch.rank, heard, code)
    if problem is not None:
        forget(folder, launch)
        sample_file(folder.name, launch.rank).unlink(missing_ok=True)
        if launch.world_size > 1:  # a launcher ends all ranks for one that fails
            say(talk, f"rank {launch.rank}: {problem}")
            return TraceResult(code, None)
        say(talk, problem)
        return TraceResult(code or Exit.FAILED, None)
    if heard.source == WHOLE_RUN and launch.rank == 0:
        say(talk, recorded_line(options, heard))
    if options.repeat > 1 and code < SIGNALLED:
        note(record, repeats=run_repeats(options, folder, launch, code, talk))
    return TraceResult(code, folder)


def run_repeats(options: TraceOptions, folder: Path, launch: Launch, first: int, talk: TextIO) -> list[list[int]]:
    """Run the script again, only timed: the step durations of each further run, ns."""
    for repeat in range(1, options.repeat):
        _, code = run_child(options, folder, launch, repeat, talk)
        if code != first:
            say(talk, f"repeat {repeat} of {options.script} ended with exit code {code}, the first run with {first}")
        if code > SIGNALLED:
            break
    return read_repeats(folder, launch.rank)


# --- the child


def run_child(options: TraceOptions, folder: Path, launch: Launch, repeat: int, talk: TextIO) -> tuple[Heard, int]:
    """Run the script once in a child; what it said and its exit code, 128 + n for death by signal n."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    request = child_request(options, folder, launch, repeat, writer)
    heard = Heard()
    speaker = talk if launch.rank == 0 else None
    listener = threading.Thread(target=listen, args=(reader, heard, options, repeat, speaker), daemon=True)

    def started() -> None:
        os.close(writer)
        listener.start()

    command = [sys.executable, "-c", CHILD, json.dumps(request), options.script, *options.args]
    code = ended(command, QUIET | os.environ, started)
    # A process the script left behind may hold the pipe open: do not wait for its end.
    listener.join(timeout=1.0)
    return heard, code


def child_request(options: TraceOptions, folder: Path, launch: Launch, repeat: int, channel: int) -> dict[str, Any]:
    return {
        "channel": channel,
        "module": options.module,
        "settings": {
            "steps": options.steps,
            "warmup": options.warmup,
            "stop": options.stop,
            "record": repeat == 0,
        },
        "folder": str(folder.resolve()),
        "samples": str(sample_file(folder.name, launch.rank)) if options.samples else None,
        "range_name": options.range_name,
        "shapes": options.shapes,
        "rank": launch.rank,
        "repeat": repeat,
        "base": base_record(folder.name, options.script, options.args, options.module, launch.world_size),
    }


def base_record(run_id: str, script: str, args: Sequence[str], module: bool, world_size: int) -> dict[str, Any]:
    """What the parent knows of a run, for its record."""
    from qrprof.profiler.devices import cpu_name

    cpu = {"index": 0, "kind": "cpu", "name": cpu_name(), "memory_bytes": psutil.virtual_memory().total, "uuid": ""}
    return {
        "id": run_id,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": [*(["-m"] if module else []), script, *args],
        "cwd": os.getcwd(),
        "world_size": world_size,
        "devices": [cpu],
    }


def sample_file(run_id: str, rank: int) -> Path:
    """Where a run's matrix samples are kept: in the user's cache, outside the project."""
    return cache_folder() / "samples" / f"{run_id}.rank{rank}.pt"


def listen(reader: int, heard: Heard, options: TraceOptions, repeat: int, talk: TextIO | None) -> None:
    with os.fdopen(reader, encoding="utf-8") as lines:
        for line in lines:
            hear(json.loads(line), heard)
            if talk is None:
                continue
            if heard.recorded and heard.error is None and heard.source != WHOLE_RUN:
                clear_progress(talk)
                say(talk, recorded_line(options, heard))
            elif heard.phase:
                show_progress(talk, heard, repeat)


def hear(message: dict[str, Any], heard: Heard) -> None:
    """Each message says some fields of `Heard`."""
    for name, value in message.items():
        setattr(heard, name, value)


# --- what a person reads


def say(talk: TextIO, sentence: str) -> None:
    print(f"qrprof: {sentence}", file=talk, flush=True)


def show_progress(talk: TextIO, heard: Heard, repeat: int) -> None:
    if talk.isatty():
        again = f"repeat {repeat}: " if repeat else ""
        print(f"\r\x1b[Kqrprof: {again}step {heard.steps}, {heard.phase}", end="", file=talk, flush=True)


def clear_progress(talk: TextIO) -> None:
    if talk.isatty():
        print("\r\x1b[K", end="", file=talk, flush=True)


def recorded_line(options: TraceOptions, heard: Heard) -> str:
    what = f"{heard.recorded} steps" if heard.recorded != 1 else "1 step"
    if heard.source == WHOLE_RUN:
        what = "the whole run"
    after = "" if options.stop or heard.over else "; the script goes on"
    return f"recorded {what} of {options.script}{after}; see `qrprof rank`"


def nothing_recorded(options: TraceOptions, heard: Heard, code: int) -> str:
    """Why no run was kept, and what to do."""
    ended = f"{options.script} ended with exit code {code}" if code else f"{options.script} ended"
    if not heard.torch:
        return f"{ended} without importing torch; nothing was recorded"
    if options.range_name and not heard.steps:
        return f"{ended} without entering the range {options.range_name!r}; give the name of a range around a step"
    if not heard.steps:
        return f"{ended} before its first step; nothing was recorded"
    if heard.theirs:
        return f"{ended} and nothing was recorded: it runs torch.profiler itself; trace it without"
    needed = steps_needed(options.steps, options.warmup)
    if heard.steps >= needed:
        return f"{ended} after {heard.steps} steps, before the recording was complete: let it run longer"
    return f"{ended} after {heard.steps} steps; recording needs {needed} or more{remedy(options, heard.steps)}"


def steps_needed(steps: int, warmup: int) -> int:
    """Warm-up, which is one step at least, unprofiled steps, the lead-in step and a recorded one."""
    return max(1, warmup) + 4 * steps + 2


def remedy(options: TraceOptions, steps: int) -> str:
    """What to do for a script of so few steps, as the end of a sentence."""
    able = {"--steps": options.steps, "--warmup": options.warmup}
    lower = " and ".join(f"{name} (now {value})" for name, value in able.items() if value > 1)
    least = steps_needed(1, 1)
    if lower and steps < least:
        return f", {least} with --steps 1 --warmup 1: let it run longer"
    return ": let it run longer" + (f", or lower {lower}" if lower else "")


# --- the run on disk


def forget(folder: Path, launch: Launch) -> None:
    """Remove what a failed recording left; other ranks may still write into a shared folder."""
    if launch.world_size == 1:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in [*folder.glob(f"*rank{launch.rank}.*"), folder / run_file(launch.rank)]:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


def unusable(options: TraceOptions, folder: Path, rank: int, heard: Heard, code: int) -> str | None:
    """Read the run back, which also makes the trace's cache; the reason where it is of no use."""
    from qrprof.profiler.load import load_run

    try:
        _, trace = load_run(folder, rank)
    except QrprofError as error:
        return f"the recorded trace cannot be read back: {error}"
    died = code not in (Exit.OK, Exit.INTERRUPTED)
    if heard.source == WHOLE_RUN and (died or trace.of_kind(OP).empty):
        return nothing_recorded(options, heard, code)
    return None


def note(record: Path, **values: Any) -> None:
    """Set fields of a run's record."""
    write_json(record, {**json.loads(record.read_text(encoding="utf-8")), **values})


def read_repeats(folder: Path, rank: int) -> list[list[int]]:
    files = sorted(folder.glob(f"repeat*.rank{rank}.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    for path in files:
        path.unlink()
    return found
