"""What tests share: `build` makes small traces and run records, `workshop` runs scripts, traced and plain."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from qrprof.profiler.events import ANNOTATION, COPY, KERNEL, MARK_PREFIX, OP, RUNTIME
from qrprof.profiler.load import load_run
from qrprof.profiler.partition import Partition, partition
from qrprof.profiler.runinfo import Block, LinalgCall, RecordedStep, RunInfo
from qrprof.profiler.trace import Trace
from qrprof.tui.cli import run as qrprof

# No test depends on timing: a busy machine must not fail an example.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

Row = dict[str, Any]


class Build:
    """Rows for `Trace.from_rows`, times in ns; host rows are on thread 1, device work on device 0, stream 7."""

    @staticmethod
    def op(name: str, start: int, end: int, thread: int = 1, **columns: Any) -> Row:
        return {"kind": OP, "name": name, "start": start, "end": end, "track": thread, **columns}

    @staticmethod
    def note(name: str, start: int, end: int, thread: int = 1) -> Row:
        return {"kind": ANNOTATION, "name": name, "start": start, "end": end, "track": thread}

    @staticmethod
    def mark(number: int, at: int, thread: int = 1) -> Row:
        return Build.note(f"{MARK_PREFIX}{number}", at, at + 1, thread)

    @staticmethod
    def call(name: str, start: int, end: int, correlation: int = 0, thread: int = 1) -> Row:
        return {
            "kind": RUNTIME,
            "name": name,
            "start": start,
            "end": end,
            "track": thread,
            "correlation": correlation,
        }

    @staticmethod
    def launch(correlation: int, start: int, end: int, thread: int = 1) -> Row:
        return Build.call("cudaLaunchKernel", start, end, correlation, thread)

    @staticmethod
    def kernel(name: str, start: int, end: int, correlation: int = 0, stream: int = 7, kind: str = KERNEL) -> Row:
        return {
            "kind": kind,
            "name": name,
            "start": start,
            "end": end,
            "device": 0,
            "track": stream,
            "correlation": correlation,
        }

    @staticmethod
    def copy(name: str, start: int, end: int, correlation: int = 0, stream: int = 7) -> Row:
        return Build.kernel(name, start, end, correlation, stream, COPY)

    @staticmethod
    def linalg(
        op: str, shape: Sequence[int], site: str = "", ns: float | None = None, calls: float = 1.0
    ) -> LinalgCall:
        return LinalgCall(
            op=op,
            shape=list(shape),
            dtype="float32",
            strides=[],
            device="cuda" if ns is None else "cpu",
            site=site,
            calls_per_step=1.0,
            ns_per_step=ns,
        )

    @staticmethod
    def run(
        durations_ns: Sequence[int] = (),
        weights: dict[int, float] | None = None,
        linalg: Sequence[LinalgCall] = (),
    ) -> RunInfo:
        """A run whose unprofiled steps took `durations_ns`, with `weights` of the recorded steps by number."""
        kinds = ["A"] * len(durations_ns)
        block = Block(clock="device events", first_step=0, durations_ns=list(durations_ns), kinds=kinds)
        return RunInfo(
            schema_number=1,
            id="20260101-000000-train",
            created="2026-01-01T00:00:00+00:00",
            command=["train.py"],
            cwd="/work",
            step_source="optimizer AdamW",
            rank=0,
            world_size=1,
            versions={},
            devices=[],
            threads=1,
            period=1,
            kinds=[],
            unprofiled=[block] if durations_ns else [],
            recorded=[RecordedStep(index=n, kind="A", weight=w) for n, w in (weights or {}).items()],
            linalg=list(linalg),
            repeats=[],
            notes=[],
            trace="rank0.trace.json.gz",
            exit_code=0,
        )

    @staticmethod
    def divide(rows: Sequence[Row], run: RunInfo) -> Partition:
        return partition(Trace.from_rows(rows), run)

    @staticmethod
    def recorded(parts: Partition, *columns: str) -> dict[Any, float]:
        """Recorded ns of a partition by key and op, or by other columns; rows without time are left out."""
        sums = parts.rows.groupby(list(columns or ("key", "op")))["recorded_ns"].sum()
        one = len(columns) == 1
        return {name[0] if one and isinstance(name, tuple) else name: ns for name, ns in sums.items() if ns > 0}

    @staticmethod
    def calls(parts: Partition) -> dict[str, float]:
        return {str(key): ns for key, ns in parts.calls.groupby("key")["calls"].sum().items()}


@pytest.fixture(scope="session")
def build() -> type[Build]:
    return Build


SETUP = """\
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended in `folder`."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The lines of talk on stderr, without their prefix."""
        return [line.removeprefix("qrprof: ") for line in self.err.splitlines() if line.startswith("qrprof: ")]

    @property
    def script_err(self) -> str:
        """What the script itself wrote to stderr."""
        return "".join(line for line in self.err.splitlines(keepends=True) if not line.startswith("qrprof: "))

    @property
    def run_folders(self) -> list[Path]:
        return sorted((self.folder / ".qrprof" / "runs").iterdir())

    def load(self, rank: int = 0) -> tuple[RunInfo, Trace]:
        (folder,) = self.run_folders
        return load_run(folder, rank)

    @property
    def run(self) -> RunInfo:
        return self.load()[0]

    def per_step(self, name: str) -> list[int]:
        """How often the op or annotation begins in each recorded step."""
        _, trace = self.load()
        starts = trace.events[trace.events["name"] == name]["start"]
        return [int(starts.between(a, b, inclusive="left").sum()) for (_, a), (_, b) in pairwise(trace.marks())]


@contextmanager
def heeded(number: signal.Signals, handler: Any = signal.SIG_DFL) -> Iterator[None]:
    """Where what a shell runs in the background ignores Ctrl-C, and so do the processes that it starts."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@dataclass(frozen=True)
class Workshop:
    """A folder with scripts, which run there in a child as a person would start them."""

    folder: Path
    setup: str = SETUP

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def environment(self, **changes: str) -> dict[str, str]:
        own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "QRPROF_CACHE": str(self.folder / "cache")}
        return os.environ | own | changes

    def start(self, *command: str, **changes: str) -> "subprocess.Popen[str]":
        """Start `python COMMAND...` in a session of its own, with pipes."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.environment(**changes),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )

    def ended(self, process: "subprocess.Popen[str]", stdin: str | None = None) -> Ended:
        try:
            out, err = process.communicate(stdin, timeout=120)
        finally:
            process.kill()
        return Ended(self.folder, process.returncode, out, err)

    def python(self, *command: str, stdin: str = "", **changes: str) -> Ended:
        return self.ended(self.start(*command, **changes), stdin)

    def trace(self, *command: str, stdin: str = "", **changes: str) -> Ended:
        return self.python("-m", "qrprof", "trace", *command, stdin=stdin, **changes)

    def both(self, *command: str, stdin: str = "", **changes: str) -> tuple[Ended, Ended]:
        """Run `python COMMAND...` and trace it, side by side."""
        plain = self.start(*command, **changes)
        traced = self.start("-m", "qrprof", "trace", *command, **changes)
        return self.ended(plain, stdin), self.ended(traced, stdin)

    def train(self, body: str, *options: str, stdin: str = "", **changes: str) -> Ended:
        """Trace a script that has a small model and `step()`, one optimizer step of it."""
        self.write("train.py", self.setup + body)
        return self.trace(*options, "train.py", stdin=stdin, **changes)


@pytest.fixture
def careless() -> Iterator[None]:
    """A process whose files are open to all, if nothing closes them."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


# --- commands as they are typed


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in this process: its exit code, stdout and stderr."""

    def called(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = qrprof(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return called


# --- commands on a saved run


@dataclass(frozen=True)
class SavedRun:
    """A working folder with one saved run, and one command of qrprof in it."""

    folder: Path
    command: str
    capsys: pytest.CaptureFixture[str]

    def write(self, events: list[dict[str, Any]]) -> None:
        (self.folder / "rank0.trace.json").write_text(json.dumps({"traceEvents": events}))

    def change(self, **fields: Any) -> None:
        path = self.folder / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    def call(self, *args: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = qrprof([self.command, *args])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def out(self, *args: str) -> str:
        code, out, err = self.call(*args)
        assert (code, err) == (0, "")
        return out

    def json(self, *args: str) -> Any:
        record = json.loads(self.out("--json", *args), parse_constant=pytest.fail)  # no NaN, no Infinity
        assert record["schema"] == 1
        return record

    def text(self, *args: str) -> str:
        return " ".join(self.out(*args).split())


@pytest.fixture
def saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, list[dict[str, Any]]], SavedRun]:
    """Save the small run with these events of its trace, go to its folder, and call `qrprof COMMAND` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def save(command: str, events: list[dict[str, Any]]) -> SavedRun:
        run = SavedRun(tmp_path / ".qrprof" / "runs" / "20260131-120000-train", command, capsys)
        shutil.copytree(Path(__file__).parent / "data" / "small_run", run.folder)
        run.change(linalg=[])
        run.write(events)
        return run

    return save
