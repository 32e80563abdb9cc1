"""`qrprof run`: the program is its own, the accepted swaps serve it, and whatever does not fit is off with a line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_swaps import INCLUDED, SOFTMAX, accept, candidate, write

from qrprof.kernels.qr import cpu
from qrprof.kernels.swapfile import Entry

EXAMPLES = Path(__file__).parents[1] / "examples"
THREADS = "2"  # the included QR shares a batch over them
needs_mkl = pytest.mark.skipif(not cpu.available(), reason="torch is not built with MKL and OpenMP")

HASH = """\
import hashlib, sys, torch
def digest(*tensors):
    whole = hashlib.sha256()
    for tensor in tensors: whole.update(tensor.detach().contiguous().numpy().tobytes())
    return whole.hexdigest()
"""
QR = HASH + (
    "torch.manual_seed(0)\n"
    "found = [torch.linalg.qr(torch.randn(308, 64, 64)).R for _ in range(3)]\n"
    "print(digest(*found))\n"
)
ROWS = HASH + "x = torch.linspace(-3, 3, 320).view(32, 10)\nprint(digest(*(x.softmax(1) for _ in range(8))))\n"


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def plain_rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What python prints for ROWS."""
    script = tmp_path_factory.mktemp("plain") / "train.py"
    script.write_text(ROWS)
    environment = os.environ | {"OMP_NUM_THREADS": THREADS, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, script], env=environment, check=True, capture_output=True, text=True).stdout


def run(workshop: Any, *command: str, **changes: str) -> Any:
    return workshop.python("-m", "qrprof", "run", *command, **{"OMP_NUM_THREADS": THREADS} | changes)


def stock(workshop: Any, *command: str, **changes: str) -> Any:
    return workshop.python(*command, **{"OMP_NUM_THREADS": THREADS} | changes)


def rows(workshop: Any, *options: str, text: str = ROWS, name: str = "train.py") -> dict[str, Any]:
    """What the swaps did, by the record of `--json`, as a whole."""
    workshop.write(name, text)
    ended = run(workshop, "--json", *options, name)
    assert ended.code == 0, ended.err
    record: dict[str, Any] = json.loads(ended.out[ended.out.index("{\n") :])
    return record


def served(record: dict[str, Any], name: str) -> int:
    return sum(row["hits"] for row in record["swaps"] if row["name"] == name)


# --- engagement


@needs_mkl
def test_an_accepted_swap_serves_the_program(workshop: Any) -> None:
    workshop.write("train.py", QR)
    accept(workshop.folder, [INCLUDED])
    ended = run(workshop, "train.py")
    assert (ended.code, len(ended.out.split()), ended.script_err) == (0, 1, "")
    assert ended.said == ["swap qr served 3 of 3 calls"]


def test_undone_it_is_stock_bit_for_bit(workshop: Any, plain_rows: str) -> None:
    workshop.write("train.py", ROWS)
    rounded = SOFTMAX.replace("return shifted", "return 1.000001 * shifted")
    accept(workshop.folder, [candidate(rounded)], [rounded])
    assert run(workshop, "train.py").out != plain_rows
    write(workshop.folder, [])
    ended = run(workshop, "train.py")
    assert (ended.out, ended.script_err) == (plain_rows, "")
    assert ended.said == ["no swap is accepted in .qrprof: train.py runs on stock kernels; see `qrprof swaps list`"]


@needs_mkl
@pytest.mark.slow
def test_block_soap_is_served_and_stock_again(workshop: Any) -> None:
    for name in ("charlm.py", "block_soap.py"):
        workshop.write(name, (EXAMPLES / name).read_text())
    accept(workshop.folder, [INCLUDED])
    command = ("block_soap.py", "--device", "cpu", "--steps", "3")
    swapped = run(workshop, *command)
    assert swapped.code == 0
    assert swapped.said == ["swap qr served 3 of 3 calls"]
    off = run(workshop, *command, QRPROF_SWAPS="off")
    assert off.said == ["QRPROF_SWAPS=off: everything ran on stock kernels"]
    shadow = run(workshop, "--shadow", *command)
    assert shadow.said[0].startswith("swap qr computed 3 of 3 calls beside the stock kernel; linalg_qr on CPU ")


def test_a_candidate_serves_the_program(workshop: Any) -> None:
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    record = rows(workshop)
    assert (record["schema"], record["exit_code"], record["refused"]) == (1, 0, [])
    (row,) = record["swaps"]
    assert (row["name"], row["op"], row["hits"], row["checked"], row["failed"]) == (entry.name, "_softmax", 8, 1, 0)


def test_a_swap_that_is_never_called_says_so(workshop: Any) -> None:
    accept(workshop.folder, [candidate(SOFTMAX)], [SOFTMAX])
    workshop.write("train.py", "import torch\n")
    assert run(workshop, "train.py").said == [f"swap {candidate(SOFTMAX).name}: none of its ops was called"]


def test_the_report_tells_all(workshop: Any) -> None:
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    workshop.write("train.py", ROWS + "x.softmax(0)\n")
    text = "\n".join(run(workshop, "--report", "train.py").said)
    assert f"swap {entry.name}: _softmax on CPU, circuit closed" in text
    assert "8 served, 0 computed by both, 1 by stock alone" in text
    assert "why     outside the calls it was judged on (1)" in text
    assert "1 result, 0 wrong, 0 calls raised" in text
    assert "p50 " in text
    assert "p99 " in text


@pytest.mark.slow
def test_workers_of_a_loader_and_compiled_code_are_served(workshop: Any) -> None:
    """A forked worker has the swaps of the program, and leaves no report."""
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    text = ROWS + (
        "from torch.utils.data import DataLoader\n"
        "from qrprof import kernels\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): x.softmax(1); return kernels.report()[0].hits\n"
        "print([int(hits) for hits in DataLoader(Rows(), num_workers=1)])\n"
        "print(torch.compile(lambda x: x.softmax(1), backend='eager', fullgraph=True)(x).sum().item() > 0)\n"
    )
    workshop.write("train.py", text)
    ended = run(workshop, "train.py")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[1:] == ["[9, 10, 11, 12]", "True"]
    assert ended.said == [f"swap {entry.name} served 9 of 9 calls"]


# --- modes


def test_shadow_leaves_every_bit_and_says_how_far_it_was(workshop: Any, plain_rows: str) -> None:
    wrong = SOFTMAX.replace("return shifted", "return 2 * shifted")
    entry = candidate(wrong)
    accept(workshop.folder, [entry], [wrong])
    workshop.write("train.py", ROWS)
    shadow = run(workshop, "--shadow", "train.py")
    assert shadow.out == plain_rows
    (line,) = shadow.said
    assert line.startswith(f"swap {entry.name} computed 8 of 8 calls beside the stock kernel; _softmax on CPU ")
    assert line.endswith("at most 1 apart; 1 checked results were wrong")


def test_a_canary_serves_some(workshop: Any) -> None:
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    record = rows(workshop, "--canary", "25%")
    assert (served(record, entry.name), record["mode"]["share"]) == (2, 0.25)
    assert record["swaps"][0]["fallbacks"] == {"not in the canary's share": 6}


def test_two_modes_at_once_and_a_bad_share_are_usage_errors(workshop: Any) -> None:
    workshop.write("train.py", "raise SystemExit('it ran')\n")
    for options in (("--shadow", "--canary", "5%"), ("--canary", "0%")):
        ended = run(workshop, *options, "train.py")
        assert (ended.code, ended.out, len(ended.said), ended.script_err) == (2, "", 1, "")


# --- what does not fit


def plant(workshop: Any, entry: Entry, sources: Sequence[str] = ()) -> str:
    workshop.write("train.py", ROWS)
    accept(workshop.folder, [entry], sources)
    ended = run(workshop, "train.py")
    assert (ended.code, ended.script_err) == (0, "")
    (line,) = ended.said
    return str(line)


@pytest.mark.slow
def test_a_swap_of_another_torch_cpu_or_source_is_off(workshop: Any) -> None:
    assert "judged with torch 2.0.1" in plant(workshop, replace(candidate(SOFTMAX), torch="2.0.1"), [SOFTMAX])
    assert "judged on Some CPU" in plant(workshop, replace(candidate(SOFTMAX), machine="Some CPU"), [SOFTMAX])
    assert "own source has changed" in plant(workshop, replace(INCLUDED, sha256="0" * 64))
    wrong = write(workshop.folder, [])
    next((wrong.parent / "candidates").iterdir()).write_text("x = 1\n")
    assert "has changed since it was accepted" in plant(workshop, candidate(SOFTMAX))


def test_a_planted_file_runs_nothing(workshop: Any, plain_rows: str) -> None:
    planted = "open('planted', 'w')\n" + SOFTMAX
    write(workshop.folder, [candidate(planted)], [planted])
    workshop.write("train.py", ROWS)
    ended = run(workshop, "train.py")
    assert (ended.code, ended.out) == (0, plain_rows)
    assert "you have not accepted it on this machine" in ended.said[0]
    assert not (workshop.folder / "planted").exists()


def test_a_damaged_file_is_one_line(workshop: Any, plain_rows: str) -> None:
    accept(workshop.folder, [candidate(SOFTMAX)], [SOFTMAX]).write_text("{")
    workshop.write("train.py", ROWS)
    ended = run(workshop, "train.py")
    assert (ended.code, ended.out) == (0, plain_rows)
    (line,) = ended.said
    assert "is damaged" in line
    assert line.endswith("; the program runs on stock kernels")


def test_what_others_could_have_written_is_not_trusted(workshop: Any) -> None:
    accept(workshop.folder, [candidate(SOFTMAX)], [SOFTMAX])
    (workshop.folder / "config" / "trusted.json").chmod(0o666)
    workshop.write("train.py", ROWS)
    ended = run(workshop, "train.py")
    assert ended.code == 0
    assert ended.said[0].startswith("no swap is trusted: others can write ")


def test_a_candidate_that_raises_leaves_the_program_on_stock(workshop: Any, plain_rows: str) -> None:
    text = "def candidate(x, dim, half_to_float): raise OSError\n"
    entry = candidate(text)
    accept(workshop.folder, [entry], [text])
    workshop.write("train.py", ROWS)
    ended = run(workshop, "train.py")
    assert (ended.code, ended.out) == (0, plain_rows)
    assert ended.said[-1] == (
        f"swap {entry.name} served 0 of 8 calls; stock alone: circuit open (5), OSError (3);"
        " the circuit opened: stock served every later call"
    )


# --- the program is its own

ENDINGS = {
    "sys.exit(3)": "import sys, torch\nprint('out', sys.argv, __name__)\nsys.exit(3)\n",
    "raise": "import torch\ndef f():\n    raise ValueError('bad')\nf()\n",
    "error in a swapped op": "import torch\ndef f(x):\n    return torch.linalg.qr(x)\nf(torch.ones(3))\n",
    "another one": "import torch\ntorch.linalg.qr(torch.ones(3, 3), mode='x')\n",
    "no torch": "import atexit\natexit.register(print, 'last words')\n",
    "os._exit(4)": "import os, torch\nprint('out', flush=True)\nos._exit(4)\n",
    "fork": "import os, torch\nif not os.fork(): raise SystemExit(1)\nprint(os.wait()[1])\n",
}


@pytest.mark.parametrize("text", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_as_under_python(workshop: Any, text: str) -> None:
    accept(workshop.folder, [INCLUDED])
    workshop.write("train.py", text)
    plain, ended = stock(workshop, "train.py", "--x", "1"), run(workshop, "train.py", "--x", "1")
    assert (ended.code, ended.out, ended.script_err) == (plain.code, plain.out, plain.err)
    assert len(ended.said) == 1


def test_a_module_and_its_arguments(workshop: Any) -> None:
    workshop.write("pkg/train.py", "import sys, torch\nprint(sys.argv[1:], __package__)\n")
    assert run(workshop, "-m", "pkg.train", "--shadow", "-m").out == "['--shadow', '-m'] pkg\n"


def test_a_script_that_cannot_be_read_is_a_usage_error(workshop: Any) -> None:
    ended = run(workshop, "nosuch.py")
    assert ended.code == 2
    assert ended.said[-1].startswith("cannot read nosuch.py: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_program(workshop: Any, number: signal.Signals) -> None:
    workshop.write(
        "train.py",
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n",
    )
    process = workshop.start("-m", "qrprof", "run", "train.py")
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    assert workshop.ended(process).code == 7


def test_death_by_a_signal_is_told_as_a_shell_does(workshop: Any) -> None:
    accept(workshop.folder, [INCLUDED])
    workshop.write("train.py", "import os, signal, torch\nos.kill(os.getpid(), signal.SIGKILL)\n")
    ended = run(workshop, "train.py")
    assert ended.code == 128 + signal.SIGKILL
    assert ended.said == [
        "what the swaps did is not known: the program ended without python's exit, or did not import torch"
    ]


def test_the_program_may_leave_its_folder(workshop: Any) -> None:
    accept(workshop.folder, [candidate(SOFTMAX)], [SOFTMAX])
    workshop.write("train.py", "import os\nos.mkdir('x')\nos.chdir('x')\n" + ROWS)
    assert "served 8 of 8" in run(workshop, "train.py").said[0]


def test_without_the_command(workshop: Any, plain_rows: str) -> None:
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    workshop.write(
        "train.py",
        "from qrprof import kernels\nkernels.install('.qrprof/swaps.json')\n"
        + ROWS
        + "print(kernels.report()[0].hits)\nkernels.uninstall()\n"
        + ROWS,
    )
    ended = stock(workshop, "train.py")
    assert (ended.code, ended.err, ended.out.splitlines()[1:]) == (0, "", ["8", plain_rows.strip()])


def test_a_program_that_installs_swaps_itself_may_do_so_where_none_are_accepted(workshop: Any) -> None:
    workshop.write("train.py", "from qrprof import kernels\nkernels.install()\nprint(len(kernels.report()) > 0)\n")
    assert run(workshop, "train.py").out == "True\n"


def test_where_some_are_accepted_the_command_decides(workshop: Any) -> None:
    entry = candidate(SOFTMAX)
    accept(workshop.folder, [entry], [SOFTMAX])
    workshop.write("train.py", "from qrprof import kernels\nkernels.install('.qrprof/swaps.json')\n" + ROWS)
    ended = run(workshop, "train.py")
    assert (ended.code, ended.script_err) == (0, "")
    assert ended.said == [
        "the command decides what is swapped: install() in the program does nothing",
        f"swap {entry.name} served 8 of 8 calls",
    ]


def test_nothing_of_torch_is_loaded_for_a_program_that_does_not_use_it(workshop: Any) -> None:
    accept(workshop.folder, [INCLUDED])
    workshop.write("train.py", "import sys\nprint(sorted({'torch', 'triton', 'pandas', 'rich'} & set(sys.modules)))\n")
    assert run(workshop, "train.py").out == "[]\n"
