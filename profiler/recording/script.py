"""Running a person's script as `__main__`, as python would, with work of ours right after an import of the script's.

Nothing here imports torch: the script may still set OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES before it does.
"""

import builtins
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from qrprof.profiler.errors import Exit, QrprofError

OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
LAUNCHERS = frozenset(
    (
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
    )
)
Ended = Callable[[BaseException | None], None]


# --- imports


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call `then` right after the module `name` has been imported, in this process and not in a forked copy."""
    if name in sys.modules:
        then()
        return
    finder = AfterImport(name, then)
    sys.meta_path.insert(0, finder)
    os.register_at_fork(after_in_child=finder.retire)


class AfterImport(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module, and calls `then` once it has been executed.

    A module may be looked for without being imported (`find_spec("torch") is not None`).
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def retire(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                self.retire()
                self.then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def keep_compiler_out() -> None:
    """torch.compile would trace into our hooks and overrides: let it skip our files."""
    from torch._dynamo import trace_rules

    trace_rules.add("qrprof")


# --- the script


def check_script(script: str, module: bool) -> None:
    """Raises QrprofError (exit code 2) for a launcher, and for a script that cannot be read."""
    if (script if module else Path(script).name) in LAUNCHERS:
        raise QrprofError(
            f"{script} starts the program in other processes, which qrprof would not see; have it start `qrprof trace` "
            "or `qrprof run` in each, as in `torchrun --no-python --nproc-per-node 2 qrprof trace train.py`",
            Exit.USAGE,
        )
    if module:
        return
    path = Path(script)
    if path.is_dir():
        raise QrprofError(f"cannot run {script}: it is a folder; give a script, or a module with -m", Exit.USAGE)
    try:
        path.open("rb").close()
    except OSError as error:
        raise QrprofError(
            f"cannot read {script}: {error.strerror}; give the path of a Python script, or a module with -m", Exit.USAGE
        ) from None


def run_as_main(
    target: str, arguments: list[str], as_module: bool, ended: Ended = lambda error: None, own: tuple[str, ...] = ()
) -> None:
    """Run a script, or a module as `python -m` does, and say how it ended: None where nothing was raised.

    Exceptions leave without our frames: those of this folder, and of the files and folders in `own`.
    """
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd() if as_module else os.path.dirname(os.path.realpath(target)))
    try:
        code, module = load_module(target) if as_module else load_script(target)
        sys.argv = [module.__file__ or target if as_module else target, *arguments]
        sys.modules["__main__"] = module
        exec(code, module.__dict__)  # noqa: S102 - running the script is what we are for
    except BaseException as error:
        hide_own_frames((OWN_FOLDER, *own))
        ended(error)
        raise
    ended(None)


def load_script(target: str) -> tuple[types.CodeType, types.ModuleType]:
    path = os.path.join(os.getcwd(), target)  # not normalised: so does python
    module = new_main(path)
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), module


def load_module(name: str) -> tuple[types.CodeType, types.ModuleType]:
    try:
        _, spec, code = runpy._get_module_details(name, runpy._Error)  # type: ignore[attr-defined] # what `-m` calls
    except runpy._Error as error:  # type: ignore[attr-defined]
        sys.exit(f"{sys.executable}: {error}")
    module = new_main(spec.origin)
    module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
    return code, module


def new_main(path: str) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    module.__cached__ = None  # type: ignore[attr-defined]
    return module


def hide_own_frames(own: tuple[str, ...]) -> None:
    """Let whatever sys.excepthook is now see the traceback as if python had run the script."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        trace = without_own_frames(trace, own)
        shown(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook


def without_own_frames(trace: types.TracebackType | None, own: tuple[str, ...]) -> types.TracebackType | None:
    """The script's own part of a traceback: no frame of ours, or of what we ran it with."""
    kept: list[types.TracebackType] = []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        started = kept or not name.startswith("<")  # python -c, runpy
        if started and not name.startswith((*own, "<frozen importlib")):
            kept.append(trace)
        trace = trace.tb_next
    inner: types.TracebackType | None = None
    for outer in reversed(kept):
        outer.tb_next, inner = inner, outer
    return inner
