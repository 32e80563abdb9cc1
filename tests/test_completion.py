"""What a shell completes, by its own script and by what it asks qrprof."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qrprof.planner.replay.changes import WORDS
from qrprof.profiler.events import CAUSES
from qrprof.tui.cli import COMMANDS, run
from qrprof.tui.completing import PARTS

RUN = "20260131-120000-train"
SMALL_RUN = Path(__file__).parent / "data" / "small_run"
Complete = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two runs and a task."""
    runs = tmp_path / ".qrprof" / "runs"
    for name in (RUN, "20260201-090000-train"):
        shutil.copytree(SMALL_RUN, runs / name)
        record = json.loads((SMALL_RUN / "run.json").read_text()) | {"id": name}
        (runs / name / "run.json").write_text(json.dumps(record))
    os.utime(runs / RUN / "run.json", ns=(0, 0))
    (tmp_path / ".qrprof" / "tasks" / "softmax-1").mkdir(parents=True)
    (tmp_path / ".qrprof" / "tasks" / "softmax-1" / "task.json").write_text("{}")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What is offered for the last of these words of a command line."""

    def offered(*words: str) -> list[str]:
        monkeypatch.setenv("_QRPROF_COMPLETE", "fish_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["qrprof", *words[:-1]]))
        monkeypatch.setenv("COMP_CWORD", words[-1])
        capsys.readouterr()
        with pytest.raises(SystemExit):
            run([])
        monkeypatch.delenv("_QRPROF_COMPLETE")
        printed = capsys.readouterr()
        assert printed.err == ""
        return [line.partition(",")[2].partition("\t")[0] for line in printed.out.splitlines() if line]

    return offered


def test_commands(complete: Complete) -> None:
    assert complete("") == [entry.name for entry in COMMANDS]
    assert complete("ra") == ["rank", "ranks"]
    assert complete("task", "") == ["export", "list", "new", "show"]
    assert complete("frobnicate", "x") == []
    assert complete("help", "whati") == ["whatif"]
    assert complete("help", "what") == ["what-if", "whatif"]


@pytest.mark.parametrize("time", ["first", "later"])
def test_options_and_their_choices(complete: Complete, time: str) -> None:
    for _ in range(1 if time == "first" else 2):
        assert complete("rank", "--") == ["--json", "--top", "--rank", "--help"]
        assert complete("task", "new", "--dev") == ["--device"]
        assert complete("task", "new", "--device", "") == ["cpu", "cuda"]
        assert complete("path", "--by", "o") == ["op"]
        assert complete("completion", "") == ["bash", "zsh", "fish"]


def test_runs_the_last_one_first(complete: Complete) -> None:
    for words in (["rank"], ["show", "mm"], ["diff", RUN], ["task", "new", "--from"]):
        assert complete(*words, "2026") == ["20260201-090000-train", RUN]
    assert complete("rank", "202601") == [RUN]


def test_no_name_is_offered_that_a_shell_would_take_for_more(complete: Complete, folder: Path) -> None:
    runs = folder / ".qrprof" / "runs"
    for name in ("2026$(touch x)", "2026`x`", "2026;x", "2026 x", "2026\nx", "2026*", "--help", "2026" + 200 * "x"):
        shutil.copytree(SMALL_RUN, runs / name)
    assert set(complete("rank", "")) == {"20260201-090000-train", RUN}


def test_tasks(complete: Complete) -> None:
    assert complete("gate", "--task", "") == ["softmax-1"]


def test_keys_are_those_of_the_ranking_of_the_last_run(complete: Complete, capsys: pytest.CaptureFixture[str]) -> None:
    assert complete("show", "") == ["linalg_qr"]  # which the run's record names
    assert run(["rank", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["rows"]
    keys = {row["key"].rpartition("::")[2] for row in shown if row["gain_ms"]}
    assert len(keys) > 2
    assert set(complete("show", "")) == keys | {"linalg_qr"}
    assert set(complete("optimize", "--target", "l")) == {"linalg_qr"}
    assert set(complete("whatif", "--sweep", "")) == keys | {"linalg_qr", *PARTS}
    assert complete("whatif", "--set", "lin") == ["linalg_qr="]
    assert "mm=" in complete("whatif", "--set", "")


def test_parts_are_those_of_a_what_if() -> None:
    assert [*WORDS, *(f"gap:{cause}" for cause in CAUSES)] == list(PARTS)


def test_where_nothing_can_be_read_nothing_is_offered(complete: Complete, folder: Path) -> None:
    shutil.rmtree(folder / ".qrprof")
    assert complete("rank", "") == []
    assert complete("show", "") == []
    assert complete("whatif", "--set", "") == []
    (folder / "qrprof.toml").write_text("[rank")
    assert complete("rank", "--t") == ["--top"]


def test_a_broken_cache_is_made_anew(complete: Complete, folder: Path) -> None:
    for text in ("", "[]", "{", '{"qrprof.tui.commands.rank": {"version": 1}}'):
        (folder / "cache").mkdir(exist_ok=True)
        (folder / "cache" / "completion.json").write_text(text)
        assert complete("rank", "--t") == ["--top"]


def test_a_second_time_nothing_slow_is_imported(folder: Path) -> None:
    code = "import sys\nfrom qrprof.tui.cli import run\ntry: run([])\nfinally: print(*sys.modules, file=sys.stderr)"
    words = {"COMP_WORDS": "qrprof whatif --set l", "COMP_CWORD": "3", "_QRPROF_COMPLETE": "bash_complete"}
    for _ in range(2):
        child = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **words}, capture_output=True, text=True, check=False
        )
        assert "plain,linalg_qr=" in child.stdout.split()
    loaded = set(child.stderr.split())
    assert "qrprof.tui.completing" in loaded
    assert not loaded & {"torch", "pandas", "numpy", "pyarrow", "rich", "textual", "openai"}


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_with_the_script_that_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    program = folder / "bin" / "qrprof"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qrprof "$@"\n')
    program.chmod(0o755)
    asked = 'COMP_WORDS=(qrprof rank --); COMP_CWORD=2; _qrprof_completion qrprof; echo "${COMPREPLY[@]}"'
    child = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asked}"],
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.stdout, child.stderr) == ("--json --top --rank --help\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_QRPROF_COMPLETE={shell}_complete" in capsys.readouterr().out
