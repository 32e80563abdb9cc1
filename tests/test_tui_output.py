"""What is printed: names from traces as plain text, and what a terminal gets."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from qrprof.tui.cli import run
from qrprof.tui.output import clean, finite, middle

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a saved run in the store of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / ".qrprof" / "runs" / "20260131-120000-train"
    return Path(shutil.copytree(Path(__file__).parent / "data" / "small_run", folder))


def rename(store: Path, old: str, new: str) -> None:
    """Give an op of the trace another name."""
    trace = store / "rank0.trace.json"
    trace.write_text(trace.read_text().replace(json.dumps(old), json.dumps(new)))


def out(capsys: Captured, *args: str) -> str:
    capsys.readouterr()
    assert run(args) == 0
    return capsys.readouterr().out


def test_json_has_no_infinities() -> None:
    record = {"x": float("inf"), "rows": [{"y": float("nan")}, (1.5, "inf", None, True, 3)]}
    assert finite(record) == {"x": None, "rows": [{"y": None}, [1.5, "inf", None, True, 3]]}


# --- names from traces


@pytest.mark.parametrize(
    "hostile",
    [
        "aten::[red]x[/red]",
        "k[/]y[/foo][bold",
        "evil\x1b[31m\x07\x00\rname\nnext\tline",
        "bidi\u202egnp.exe\u2066",
        "wide 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
        "std::array<char*, 3ul>[ok]" * 400,
        "x" * 10_000,
        ":emoji: :smile:",
    ],
    ids=range(8),
)
def test_hostile_names_are_text(store: Path, capsys: Captured, hostile: str) -> None:
    rename(store, "aten::mm", hostile)
    record = store / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"notes": [hostile], "command": [hostile]}))
    row = json.loads(out(capsys, "rank", "--json"))["rows"][2]
    for printed in (out(capsys, "rank"), out(capsys, "show", row["key"]), out(capsys, "runs")):
        assert not [char for char in printed if not (char.isprintable() or char == "\n")]
        assert max(cell_len(line) for line in printed.splitlines()) <= 80
    line = out(capsys, "rank").partition("# what")[2].splitlines()[3]
    assert line.startswith("3 " + clean(row["key"]).removeprefix("aten::")[:6])
    assert line.endswith("0.175  21.9 % #       1   1.28x up to 0.175 ceiling")


def test_markup_in_a_name_stays_as_it_is(store: Path, capsys: Captured) -> None:
    rename(store, "aten::mm", "aten::[red]x[/red]")
    assert "3 [red]x[/red]" in out(capsys, "rank")
    assert json.loads(out(capsys, "show", "[red]", "--json"))["key"] == "aten::[red]x[/red]"


def test_a_long_name_in_a_table_keeps_both_ends(store: Path, capsys: Captured) -> None:
    rename(store, "aten::mm", f"aten::head_{'x' * 200}_tail")
    line = out(capsys, "rank").partition("# what")[2].splitlines()[3]
    assert line.startswith("3 head_xx")
    assert "xx_tail " in line


@given(text=st.text(max_size=60), width=st.integers(min_value=4, max_value=40))
def test_a_cut_name_fits_and_keeps_both_ends(text: str, width: int) -> None:
    name = clean(text)
    cut = middle(name, width)
    assert cell_len(cut) <= width
    if cell_len(name) <= width:
        assert cut == name
    elif name.isascii():
        head, _, tail = cut.partition("..")
        assert name.startswith(head)
        assert name.endswith(tail)


# --- on a terminal


def on_terminal(cwd: Path, *args: str, **env: str) -> str:
    """What a command draws on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    clean_env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "TERM")}
    with subprocess.Popen(
        [sys.executable, "-m", "qrprof", *args],
        cwd=cwd,
        env={**clean_env, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **env},
        stdin=theirs,
        stdout=theirs,
    ) as child:
        os.close(theirs)
        drawn = b""
        while chunk := read_or_end(ours):
            drawn += chunk
    os.close(ours)
    assert child.returncode == 0
    return drawn.decode().replace("\r\n", "\n")


def read_or_end(file: int) -> bytes:
    try:
        return os.read(file, 1 << 16)
    except OSError:  # Linux reports the end of a terminal as an error
        return b""


def test_a_terminal_gets_colours_and_block_glyphs(store: Path) -> None:
    drawn = on_terminal(store.parents[2], "rank")
    assert "\x1b[38;5;" in drawn
    assert "███" in drawn
    assert "linalg_qr" in drawn
    assert "–" in drawn


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}], ids=str)
def test_a_terminal_that_wants_plain_text_gets_it(store: Path, env: dict[str, str]) -> None:
    drawn = on_terminal(store.parents[2], "rank", **env)
    assert "1 linalg_qr         0.400  50.0 % ###     1   2.00x up to 0.400 ceiling\n" in drawn
    assert "\x1b" not in drawn
