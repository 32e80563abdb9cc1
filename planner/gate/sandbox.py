"""What a candidate's process may see and change: the layer of containment, its files, its environment."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import qrprof
from qrprof.planner.gate.keeper import MACHINE
from qrprof.profiler.store import cache_folder

Layer = Literal["bubblewrap", "namespaces", "none"]
KEEPER = Path(__file__).with_name("keeper.py")
PASSED_ON = frozenset(
    {
        "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX",
        "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY",
        "TRITON_INTERPRET", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH",
    }
)  # fmt: skip
# Without these folders nothing runs at all.
SYSTEM = frozenset(map(Path, ("/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sys", "/usr", "/var")))


@dataclass(frozen=True)
class Files:
    hidden: tuple[str, ...]  # empty folders to the candidate
    shown: tuple[str, ...]  # below those, and read-only as everything else
    devices: tuple[str, ...]
    writable: str


def environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What of `environ` a candidate gets, and caches of its own below `folder`."""
    caches = {
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TORCH_EXTENSIONS_DIR": "extensions",
        "CUDA_CACHE_PATH": "cuda",
        "XDG_CACHE_HOME": "cache",
    }
    return {
        **{name: value for name, value in environ.items() if name in PASSED_ON},
        **{name: str(folder / place) for name, place in caches.items()},
        **{name: str(folder) for name in ("HOME", "TMPDIR")},
        "USER": "candidate",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # more would be processes that stay
    }


def files(folder: Path) -> Files:
    """`folder` is the candidate's own."""
    wanted = [
        Path("~").expanduser(),
        cache_folder(),
        Path.cwd(),
        Path(tempfile.gettempdir()),
        *map(Path, ("/tmp", "/var/tmp", "/run", "/home", "/root")),
    ]
    needed = [Path(text).absolute() for text in (sys.prefix, sys.base_prefix, *code_folders())]
    found = [path.resolve() for path in wanted if path.is_dir()]
    hidden = outermost([path for path in found if not any(within in path.parents for within in needed)])
    shown = outermost([path for path in needed if any(path.is_relative_to(folder) for folder in hidden)])
    return Files(tuple(map(str, hidden)), tuple(map(str, shown)), devices(), str(folder.resolve()))


def devices() -> tuple[str, ...]:
    """The device nodes a candidate gets: those without anything behind them, and GPUs."""
    plain = [Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom")]
    return tuple(str(path) for path in (*plain, *sorted(Path("/dev").glob("nvidia*"))) if path.exists())


def code_folders() -> list[str]:
    """Where installed packages are, and qrprof: its own folder, and those that it links to."""
    root = Path(qrprof.__path__[0])
    parts = [path for part in (root, *root.iterdir()) if part.is_dir() for path in (part, part.resolve())]
    return [*installed(), *map(str, parts)]


def installed() -> list[str]:
    """The folders of installed packages; an isolated python would not look into all of them by itself."""
    return [text for text in sys.path if Path(text).name in ("site-packages", "dist-packages") and Path(text).is_dir()]


def outermost(paths: Sequence[Path]) -> list[Path]:
    """Without those below another, and without the system's."""
    kept = set(paths) - SYSTEM
    return sorted(path for path in kept if not kept.intersection(path.parents))


def keeper_command(
    layer: Layer, place: Files, command: Sequence[str], lifeline: int, passed: Sequence[int], tasks: int
) -> list[str]:
    """Starts `command` in the candidate's folder, contained; the descriptors `passed` are for it alone.

    All that the command started is killed when there are more than `tasks` threads and processes of it, and when the
    other end of `lifeline`, the reading end of a pipe, is closed.
    """
    settings = {
        "lifeline": lifeline,
        "tasks": tasks,
        "passed": list(passed),
        "namespaces": layer == "namespaces",
        "hidden": place.hidden,
        "shown": place.shown,
        "devices": place.devices,
        "folder": place.writable,
        "command": [*(bubblewrap(place) if layer == "bubblewrap" else ()), *command],
    }
    return [sys.executable, "-I", "-S", "-B", str(KEEPER), json.dumps(settings)]


def bubblewrap(place: Files) -> list[str]:
    words = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in place.devices:
        words += ["--dev-bind", path, path]
    for path in filter(os.path.exists, MACHINE):
        words += ["--ro-bind", path, path]
    for path in place.hidden:
        words += ["--tmpfs", path]
    for path in place.shown:
        words += ["--ro-bind", path, path]
    words += ["--bind", place.writable, place.writable, "--chdir", place.writable]
    for path in (*place.hidden, "/dev"):
        words += ["--remount-ro", path]
    words += ["--tmpfs", "/dev/shm"]
    return [*words, "--"]


@functools.cache
def available_layer() -> Layer:
    """The best layer that works here."""
    if shutil.which("bwrap") and works("bubblewrap"):
        return "bubblewrap"
    return "namespaces" if works("namespaces") else "none"


def works(layer: Layer) -> bool:
    """Whether a python starts in it."""
    with tempfile.TemporaryDirectory(prefix="qrprof-gate-") as folder:
        lifeline, held = os.pipe()
        try:
            done = subprocess.run(
                keeper_command(
                    layer, files(Path(folder)), [sys.executable, "-I", "-S", "-c", "pass"], lifeline, [], 10
                ),
                env=environment(Path(folder), os.environ),
                pass_fds=[lifeline],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        finally:
            os.close(lifeline)
            os.close(held)
    return done.returncode == 0
