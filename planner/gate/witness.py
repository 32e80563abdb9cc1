"""What a candidate reaches for, heard in its process: imports, sockets, files outside its folder, other objects."""

import builtins
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from qrprof.planner.gate.records import Detector
from qrprof.planner.gate.replies import Sign

NAME = "candidate"  # of its module
ALLOWED = frozenset(
    {
        "__future__", "abc", "array", "bisect", "cmath", "collections", "contextlib", "copy", "cuda", "cutlass",
        "dataclasses", "enum", "functools", "heapq", "itertools", "math", "numbers", "numpy", "operator", "os",
        "pathlib", "re", "string", "struct", "sys", "textwrap", "time", "torch", "triton", "types", "typing",
        "typing_extensions", "warnings",
    }
)  # fmt: skip
NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto"})
SIGNALS = frozenset({"os.kill", "os.killpg"})
SEARCHES = frozenset({"gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames"})
CHANGES = frozenset(
    {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link", "os.symlink"}
)
MOST = 20  # signs kept


class Witness:
    """`signs` of what was heard while `listening`."""

    def __init__(self, folder: str, allowed: frozenset[str] = ALLOWED) -> None:
        self.folder = folder
        self.allowed = allowed
        self.signs: list[Sign] = []
        self.hearing = False
        sys.addaudithook(self.hear)

    @contextmanager
    def listening(self) -> Iterator[None]:
        original = builtins.__import__

        def imported(
            name: str,
            globals: Mapping[str, object] | None = None,  # noqa: A002
            locals: Mapping[str, object] | None = None,  # noqa: A002
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            if globals is not None and globals.get("__name__") == NAME and name.partition(".")[0] not in self.allowed:
                self.add("import", f"it imports {name}, which candidates may not")
            return original(name, globals, locals, fromlist or (), level)

        builtins.__import__ = imported
        self.hearing = True
        try:
            yield
        finally:
            self.hearing = False
            if builtins.__import__ is imported:  # else the candidate changed it, which is told apart
                builtins.__import__ = original

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.hearing:
            return
        if event in NETWORK:
            self.add("import", f"it reached for the network ({event})")
        elif event in SIGNALS:
            self.add("harness", f"it sent a signal ({event}{args!r})")
        elif event in SEARCHES and by_candidate(sys._getframe(1)):
            self.add("harness", f"it looked through its process ({event})")
        elif event in CHANGES or (event == "open" and writes(args)):
            self.changed(event, args[0])

    def changed(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        full = os.path.realpath(os.fsdecode(path))
        if not full.startswith((self.folder, "/dev/")):
            self.add("harness", f"it changes files outside its folder ({event} {full})")

    def add(self, detector: Detector, detail: str) -> None:
        sign = Sign(detector, detail)
        if len(self.signs) < MOST and sign not in self.signs:
            self.signs.append(sign)

    def taken(self) -> list[Sign]:
        signs, self.signs = self.signs, []
        return signs


def writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def by_candidate(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") == NAME
