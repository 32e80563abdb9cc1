"""torch.profiler around the recorded window, and its trace on disk."""

import errno
import gzip
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qrprof.profiler.events import MARK_PREFIX

CHUNK = 1 << 20
TEARDOWN = "TEARDOWN_CUPTI"  # Kineto asks for it as a profile stops
SAFE_TEARDOWN = (12, 6)  # of CUDA


@dataclass
class Turn:
    """Whose turn it is: torch has one profiler, and a second user silently takes the first one's events."""

    ours: bool = False  # we are calling torch.profiler right now
    theirs: bool = False  # the script's own profiler runs

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.ours = True
        try:
            yield
        finally:
            self.ours = False


class Window:
    """One use of torch.profiler: start, mark the boundaries, stop, save."""

    def __init__(self, turn: Turn, shapes: bool, device: bool) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        self.turn = turn
        self.device = device
        self.running = False
        self.marks: list[int] = []
        self._profile = profile(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * device,
            record_shapes=shapes,
            acc_events=True,  # one cycle only; False would warn
            experimental_config=torch._C._profiler._ExperimentalConfig(
                profile_all_threads=True, enable_cuda_sync_events=device
            ),
        )

    def start(self) -> None:
        with self.turn.taken():
            self._profile.start()
        self.running = True

    def mark(self, step: int) -> None:
        """Put the boundary before step `step` into the trace."""
        from torch.profiler import record_function

        with record_function(f"{MARK_PREFIX}{step}"):
            self.marks.append(step)

    def stop(self, *, another_follows: bool = False) -> None:
        """End the profile; waits for the device."""
        self.running = False
        # Kineto's teardown waits for a call to CUDA (the end of `save`): where none is to come, it hangs the exit.
        leaves = self.device and not another_follows
        with self.turn.taken(), tearing_down() if leaves else nullcontext():
            self._profile.stop()

    def save(self, path: Path) -> None:
        """Write the trace as gzip to `path` (a temporary name, then a rename). Raises OSError.

        export_chrome_trace reports no failed write, so the end of what it wrote is checked.
        """
        import torch

        plain = path.with_suffix(".tmp.json")
        packed = path.with_suffix(".tmp.gz")
        try:
            self._profile.export_chrome_trace(str(plain))
            check_whole(plain)
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target, CHUNK)
            packed.replace(path)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
            if self.device:
                torch.cuda.synchronize()


@contextmanager
def tearing_down() -> Iterator[None]:
    """Let a profile that stops here take CUPTI down with it: what it leaves in the driver slows every later launch.

    With CUDA before 12.6 a program with CUDA graphs may crash of it, and so may a profile that starts at once.
    """
    import torch

    version = tuple(int(part) for part in (torch.version.cuda or "0.0").split(".")[:2])
    if version < SAFE_TEARDOWN or TEARDOWN in os.environ:
        yield
        return
    os.environ[TEARDOWN] = "1"
    try:
        yield
    finally:
        del os.environ[TEARDOWN]


def check_whole(path: Path) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        tail = file.read().rstrip()
    if not tail.endswith(b"}"):
        raise OSError(errno.ENOSPC, "the trace was cut short (is the disk full?)", os.fspath(path))


def gpu_present() -> bool:
    """Whether a CUDA or ROCm driver is loaded; asking initialises nothing."""
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd")


class Opening:
    """A window over the start of the program, kept only if no step is ever found.

    On a machine with a GPU it begins when the script initialises the GPU, not before: any use of the
    profiler would do that itself, and the script could no longer choose a device or fork.
    """

    def __init__(self, turn: Turn, shapes: bool, seconds: float) -> None:
        import torch

        self.turn, self.shapes = turn, shapes
        self.cut = False
        self._over = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._window: Window | None = None
        if gpu_present():
            torch.cuda._lazy_call(self._device_ready)  # type: ignore[no-untyped-call]
        else:
            self._begin(device=False)
        self._timer = threading.Timer(seconds, self._out_of_time)
        self._timer.daemon = True
        self._timer.start()

    def _begin(self, device: bool) -> None:
        self._window = Window(self.turn, self.shapes, device)
        self._window.start()
        self._window.mark(0)

    def _device_ready(self) -> None:
        if os.getpid() != self._pid:  # in a forked copy the profiler is not ours to use
            return
        with self._lock:
            if not self._over:
                self._begin(device=True)

    def _out_of_time(self) -> None:
        with self._lock:
            self._over = True
            if self._window is not None and self._window.running:
                self.cut = True
                self._end(self._window)

    def _end(self, window: Window) -> None:
        window.mark(1)
        window.stop()

    def running(self) -> bool:
        return self._window is not None and self._window.running

    def drop(self, *, another_follows: bool = False) -> None:
        """End it and forget it."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._window is not None and self._window.running:
                self._window.stop(another_follows=another_follows)
            self._window = None

    def keep(self) -> Window | None:
        """End it; the window with its two marks."""
        self._timer.cancel()
        with self._lock:
            if self._window is not None and self._window.running:
                self._end(self._window)
            return self._window


def watch_other_profilers(turn: Turn, before_theirs: Callable[[], None]) -> Callable[[], None]:
    """Call `before_theirs` before any use of torch.profiler that is not ours. Returns the function that undoes it.

    torch offers no hook for this; these three names are where every use passes.
    """
    import torch.autograd.profiler

    module: Any = torch.autograd.profiler

    prepare, enable, disable = module._prepare_profiler, module._enable_profiler, module._disable_profiler

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not turn.ours:
                turn.theirs = True
                before_theirs()
            return original(*args, **kwargs)

        return wrapped

    def ending(*args: Any, **kwargs: Any) -> Any:
        result = disable(*args, **kwargs)
        if not turn.ours:
            turn.theirs = False
        return result

    module._prepare_profiler, module._enable_profiler, module._disable_profiler = (
        starting(prepare),
        starting(enable),
        ending,
    )

    def undo() -> None:
        module._prepare_profiler, module._enable_profiler, module._disable_profiler = prepare, enable, disable

    return undo
