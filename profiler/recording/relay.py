"""Signals on their way to the child: each reaches it once.

Ctrl-C on a terminal, and launchers that signal a process group, reach the child by themselves; a
signal sent to this process alone has to be passed on. Nothing tells the two apart, but a third
process of the group does: it dies of the former.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
PATIENCE = 0.5  # seconds for the third process to die
SIGNALLED = 128  # exit codes above it: ended by a signal

Child = subprocess.Popen[bytes]


def ended(command: Sequence[str], environment: Mapping[str, str], started: Callable[[], None] = lambda: None) -> int:
    """Run a command of the person's to its end; its exit code, 128 + n for death by signal n.

    `started` is called once it runs.
    """
    children = list[Child]()
    with signals_passed_on(children):
        child = subprocess.Popen(command, close_fds=False, env=environment)  # it inherits what we have inherited
        children.append(child)
        started()
        code = child.wait()
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def signals_passed_on(children: list[Child]) -> Iterator[None]:
    """Pass the signals sent to this process alone on to `children`; they may be added later."""
    witness = [start_witness()]

    def received(number: int, frame: FrameType | None) -> None:
        try:
            witness[0].wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for child in children:
                child.send_signal(number)
        else:
            witness[0] = start_witness()

    try:
        with handled(PASSED_ON, received):
            yield
    finally:
        witness[0].kill()
        witness[0].communicate()


@contextmanager
def handled(numbers: Sequence[signal.Signals], received: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have `received` called for these signals. What this process ignores (nohup), its children are to ignore too."""
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, received) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: after what it has started, and with exit code 128 + n."""

    def received(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(SIGNALLED + number)

    with handled((signal.SIGTERM, signal.SIGHUP), received):
        yield


def start_witness() -> Child:
    """A process of our group that waits for its end, or for ours."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
