"""A traced script cannot tell that python did not run it: what it sees, what it writes, how it ends."""

import os
import signal
import sys
from typing import Any

import pytest

WHAT_IT_SEES = """\
import os, sys, __main__
print(sys.argv, os.getcwd(), sys.path[0], sys.stdin.read())
print(__name__, __file__, __package__, __spec__ and __spec__.name, type(__loader__).__name__, __builtins__)
print(__main__.__dict__ is globals(), sys.modules["__main__"] is __main__)
from sibling import where
print(where)
"""
OURS = ("--steps", "5", "--stop", "-m", "x", "--json", "--", "-h")  # to us; here the script's own


def tell_where_they_are(workshop: Any) -> None:
    for name in ("train.py", "tools/train.py", "pkg/__main__.py", "pkg/train.py"):
        workshop.write(name, WHAT_IT_SEES)
    for name in ("sibling.py", "tools/sibling.py", "pkg/__init__.py"):
        workshop.write(name, "where = __file__\n")
    workshop.write("pkg/train.py", WHAT_IT_SEES.replace("from sibling", "from ."))
    (workshop.folder / "link.py").symlink_to(workshop.folder / "tools" / "train.py")


@pytest.mark.parametrize(
    "command", [("train.py",), ("./tools/train.py",), ("link.py",), ("-m", "pkg.train"), ("-m", "pkg")], ids=" ".join
)
def test_a_script_sees_what_python_shows_it(workshop: Any, command: tuple[str, ...]) -> None:
    tell_where_they_are(workshop)
    plain, traced = workshop.both(*command, *OURS, stdin="some text")
    assert plain.code == 0, plain.err
    assert (traced.out, traced.script_err, traced.code) == (plain.out, "", 1)
    assert traced.said == [f"{command[-1]} ended without importing torch; nothing was recorded"]


def test_without_the_scripts_folder_on_the_path_it_is_not_put_there(workshop: Any) -> None:
    workshop.write("train.py", "import sys\nprint(sys.path)\n")
    plain, traced = workshop.both("train.py", PYTHONSAFEPATH="1")
    assert traced.out == plain.out


def test_modules_of_the_working_folder_are_not_taken_for_pythons(workshop: Any) -> None:
    workshop.write("json.py", "")
    workshop.write("tools/train.py", "import json\nprint(json.dumps([1]))\n")
    assert workshop.python("-P", "-m", "qrprof", "trace", "tools/train.py").out == "[1]\n"


def test_classes_of_the_script_can_be_pickled_and_sent_to_spawned_processes(workshop: Any) -> None:
    workshop.write(
        "train.py",
        "import multiprocessing, pickle\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def double(point): return Point(2 * point.x)\n"
        "print(__name__)\n"
        "if __name__ == '__main__':\n"
        "    print(pickle.loads(pickle.dumps(Point(3))).x)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [Point(4)])[0].x)\n",
    )
    plain, traced = workshop.both("train.py")
    assert plain.out == "__main__\n3\n__mp_main__\n8\n"
    assert (traced.out, traced.script_err) == (plain.out, plain.err)


def test_a_script_inherits_ignored_signals_and_open_files(workshop: Any) -> None:
    workshop.write(
        "train.py",
        "import os, signal, sys\n"
        "print(signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM), os.read(int(sys.argv[1]), 9))\n",
    )
    shell = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "reader, writer = os.pipe()\n"
        "os.write(writer, b'inherited')\n"
        "os.set_inheritable(reader, True)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:], str(reader)])\n"
    )
    plain = workshop.python("-c", shell, "train.py")
    assert plain.out == "1 0 b'inherited'\n"
    assert workshop.trace("train.py").code == 1  # without the file
    assert workshop.python("-c", shell, "-m", "qrprof", "trace", "train.py").out == plain.out


# --- how it ends

ENDINGS = {
    "sys.exit(3)": "import sys\nprint('out')\nsys.exit(3)\n",
    "sys.exit(text)": "import sys\nsys.exit('no more data')\n",
    "raise": "def f():\n    raise ValueError('bad')\ndef g():\n    f()\ng()\n",
    "raise from": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error\n",
    "import error": "import nosuchmodule\n",
    "syntax error": "x = 1\nif x\n    pass\n",
    "own excepthook": "import sys\nsys.excepthook = lambda *error: print('mine', error[1])\n1 / 0\n",
    "torch cannot be imported": "import sys\nsys.path.insert(0, 'broken')\nimport torch\n",
    "os._exit(4)": "import os\nprint('out', flush=True)\nos._exit(4)\n",
    "atexit": "import atexit, sys\natexit.register(print, 'last words')\nsys.exit(5)\n",
    "no message": "raise SystemExit\n",
    "thread": "import threading\nthreading.Timer(0.2, print, ['late']).start()\n",
}


@pytest.mark.parametrize("text", ENDINGS.values(), ids=ENDINGS)
def test_a_script_ends_as_under_python(workshop: Any, text: str) -> None:
    workshop.write("broken/torch/__init__.py", "raise RuntimeError('no driver')\n")
    workshop.write("train.py", text)
    plain, traced = workshop.both("train.py")
    assert (traced.out, traced.script_err) == (plain.out, plain.err)
    assert traced.code == (plain.code or 1)  # 1: it ended well, but nothing was recorded
    assert len(traced.said) == 1
    assert traced.run_folders == []


@pytest.mark.parametrize("module", ["nosuch", "pkg.nosuch", "pkg", ".pkg", "pkg.broken"])
def test_a_module_that_cannot_run_is_reported_by_python(workshop: Any, module: str) -> None:
    workshop.write("pkg/__init__.py", "")
    workshop.write("pkg/broken.py", "if\n")
    plain, traced = workshop.both("-m", module)
    assert traced.code == plain.code == 1
    assert traced.script_err.splitlines()[-1] == plain.err.splitlines()[-1]
    assert "qrprof/profiler" not in traced.err


def test_an_error_in_a_watched_op_shows_the_scripts_frames_only(workshop: Any) -> None:
    body = "def f(x):\n    return torch.linalg.qr(x)\nf(torch.ones(3))\n"
    workshop.write("train.py", workshop.setup + body)
    plain, traced = workshop.both("train.py")
    assert "must have at least 2 dimensions" in plain.err
    assert (traced.code, traced.script_err) == (1, plain.err)
    assert traced.said == ["train.py ended with exit code 1 before its first step; nothing was recorded"]


def test_output_and_exit_code_are_the_scripts_though_it_was_recorded(workshop: Any) -> None:
    body = (
        "import atexit, warnings\n"
        "atexit.register(print, 'last words')\n"
        "for i in range(40):\n"
        "    step(); torch.linalg.qr(torch.randn(4, 4))\n"
        "    print('step', i)\n"
        "    print(i, file=sys.stderr)\n"
        "print(round(model.weight.sum().item(), 5), sys.stdin.read())\n"
        "sys.exit(3)\n"
    )
    workshop.write("train.py", workshop.setup + body)
    plain, traced = workshop.both("train.py", stdin="end", PYTHONWARNINGS="error")
    assert plain.code == 3
    assert (traced.out, traced.script_err, traced.code) == (plain.out, plain.err, 3)
    assert traced.said == ["recorded 5 steps of train.py; see `qrprof rank`"]
    assert traced.run.exit_code == 3
    assert traced.run.command == ["train.py"]


# --- signals

COUNTING = """\
import signal, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: got.append(signal.Signals(number).name))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(1)
print(*got, flush=True)
"""
WAITING = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
TERMINAL = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))\n"


def interrupted(workshop: Any, text: str, number: int, to: str) -> Any:
    """Trace `text`, send the signal once it is ready, and wait for the end."""
    workshop.write("train.py", text)
    command = ("-m", "qrprof", "trace", "train.py")
    process = workshop.start("-c", TERMINAL, sys.executable, *command) if to == "terminal" else workshop.start(*command)
    assert process.stdout.readline().strip() == "ready"
    if to == "terminal":
        process.stdin.write("\x03")
        process.stdin.flush()
    elif to == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    return workshop.ended(process, stdin=None)


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGINT, "terminal"),
        (signal.SIGINT, "group"),
        (signal.SIGINT, "parent"),
        (signal.SIGTERM, "group"),
        (signal.SIGTERM, "parent"),
        (signal.SIGHUP, "parent"),
    ],
)
def test_a_script_gets_each_signal_once(workshop: Any, number: signal.Signals, to: str) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here (nohup?), and so the script ignores it")
    assert interrupted(workshop, COUNTING, number, to).out.splitlines()[0].removeprefix("^C") == number.name


@pytest.mark.parametrize(
    ("number", "to", "code"),
    [(signal.SIGINT, "group", 130), (signal.SIGINT, "parent", 130), (signal.SIGTERM, "parent", 143)],
)
def test_a_script_that_dies_of_a_signal_gives_its_code(workshop: Any, number: int, to: str, code: int) -> None:
    ended = interrupted(workshop, WAITING, number, to)
    assert ended.code == code
    assert ended.script_err.endswith("KeyboardInterrupt\n" if number == signal.SIGINT else "")
    assert ended.said == [f"train.py ended with exit code {code} without importing torch; nothing was recorded"]


def test_what_was_recorded_before_ctrl_c_is_kept_and_no_repeat_follows(workshop: Any) -> None:
    body = "print('ready', flush=True)\nwhile True:\n    step()\n    if os.path.exists('stop'): os.kill(0, 2)\n"
    workshop.write("train.py", workshop.setup + body)
    process = workshop.start("-m", "qrprof", "trace", "--repeat", "2", "train.py")
    assert process.stderr.readline().startswith("qrprof: recorded 5 steps of train.py; the script goes on")
    workshop.write("stop", "")
    ended = workshop.ended(process)
    assert ended.code == 130
    assert (ended.run.exit_code, ended.run.repeats) == (130, [])


# --- the import of torch


def test_looking_for_torch_is_not_importing_it(workshop: Any) -> None:
    workshop.write(
        "train.py",
        "import importlib.util\nassert importlib.util.find_spec('torch')\n"
        + workshop.setup
        + "for _ in range(40): step()",
    )
    assert workshop.trace("train.py").run.step_source == "optimizer SGD"


def test_a_torch_that_cannot_be_recorded_leaves_the_script_alone(workshop: Any) -> None:
    workshop.write("torch.py", "answer = 42\n")
    workshop.write("train.py", "import torch\nprint(torch.answer)\n")
    traced = workshop.trace("train.py")
    assert (traced.out, traced.script_err, traced.code) == ("42\n", "", 1)
    assert len(traced.said) == 1
    assert traced.said[0].startswith("the recorder failed (")
    assert traced.run_folders == []


def test_a_forked_copy_that_imports_torch_is_not_recorded(workshop: Any) -> None:
    copy = "import os, sys\nif os.fork():\n    print(os.wait()[1])\n    sys.exit()\n"
    workshop.write("train.py", copy + workshop.setup + "for _ in range(40): step()")
    traced = workshop.trace("train.py")
    assert (traced.out, traced.code) == ("0\n", 1)
    assert traced.said == ["train.py ended without importing torch; nothing was recorded"]
