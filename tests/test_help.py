"""`qrprof help`: its topics are the pages of docs/, and every example of a command's help can be typed."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conftest import Call

from qrprof.profiler.errors import Exit
from qrprof.tui.cli import COMMANDS, cli
from qrprof.tui.commands.help import TOPICS
from qrprof.tui.configuration import EACH_TIME, FROM_A_PROJECT

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLE_RUN = ROOT / "tui" / "app" / "example"  # of a GPU
RUNS = ("20260131-120000-train", "20260201-090000-train")
QUICK = {
    "runs", "rank", "show", "gaps", "launches", "panels", "ranks", "diff", "whatif", "path", "export", "task list",
    "task new", "config", "config show", "config path", "help", "completion", "swaps list",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two runs."""
    for name in RUNS:
        saved = tmp_path / ".qrprof" / "runs" / name
        shutil.copytree(EXAMPLE_RUN, saved)
        (saved / "run.json").write_text(json.dumps(json.loads((EXAMPLE_RUN / "run.json").read_text()) | {"id": name}))
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- topics and commands


def test_topics_are_listed(call: Call) -> None:
    code, out, err = call("help")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[2:]] == list(TOPICS)


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_a_page_as_it_is_written_or_one_section_of_it(call: Call, name: str) -> None:
    code, out, err = call("help", name)
    assert (code, err) == (0, "")
    topic = TOPICS[name]
    page = (DOCS / f"{topic.page}.md").read_text(encoding="utf-8")
    if topic.section:
        assert out.startswith(f"## {topic.section}\n")
        assert out in page
        assert out.count("\n## ") == 0
        assert len(out) > 200
    else:
        assert out.endswith(page)


def test_every_page_for_users_is_a_topic() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"architecture", "kernel-log"}
    assert pages == {topic.page for topic in TOPICS.values()}


@pytest.mark.parametrize("words", [["rank"], ["task"], ["task", "new"]])
def test_a_commands_help_is_what_the_command_prints(call: Call, words: list[str]) -> None:
    assert call("help", *words) == call(*words, "--help")


def test_what_is_both_is_explained_as_both(call: Call) -> None:
    out = call("help", "gate")[1]
    assert out.startswith(call("gate", "--help")[1])
    assert out.endswith((DOCS / "gate.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("word", "hint"), [("rankng", "'ranking'"), ("exitcodes", "'exit-codes'"), ("difff", "'diff'")]
)
def test_an_unknown_topic_is_an_error_with_the_nearest(call: Call, word: str, hint: str) -> None:
    code, out, err = call("help", word)
    assert (code, out) == (2, "")
    assert f"no topic and no command {word!r}" in err
    assert f"did you mean {hint}?" in err


def test_on_a_terminal_it_goes_through_the_pager(folder: Path) -> None:
    pager = folder / "bin" / "pager"
    pager.parent.mkdir()
    pager.write_text(f"#!/bin/sh\ncat > {folder}/paged\n")
    pager.chmod(0o755)
    above, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "qrprof", "help", "exit-codes"],
        env={**os.environ, "PAGER": str(pager), "TERM": "xterm", "LANG": "C.UTF-8"},
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
    )
    os.close(terminal)
    printed = b"".join(read_all(above))
    assert child.communicate(timeout=60)[1] == b""
    os.close(above)
    assert (child.returncode, printed) == (0, b"")
    paged = (folder / "paged").read_text()
    assert "interrupted by ctrl-C" in paged
    assert "| 130 |" not in paged  # drawn


def read_all(above: int) -> Iterator[bytes]:
    """What comes from a terminal until its program has ended."""
    while select.select([above], [], [], 60)[0]:
        try:
            yield os.read(above, 65536)
        except OSError:
            return


# --- what docs/configuration.md says


def section(title: str) -> str:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_exit_code_is_listed() -> None:
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)]
    assert listed == sorted({int(code) for code in Exit})


def test_every_variable_of_qrprof_is_listed() -> None:
    sources = [path for part in ("tui", "planner", "kernels", "profiler") for path in (ROOT / part).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"environ.*\"(QRPROF_[A-Z_]+)\"", path.read_text())}
    assert named >= {"QRPROF_CACHE", "QRPROF_CONFIG", "QRPROF_SWAPS"}
    assert named <= set(re.findall(r"`(QRPROF_[A-Z_]+)`", section("Environment")))


def test_what_a_project_may_say_is_listed() -> None:
    said = section("In a file").partition("**What a project's file may not say.**")[2]
    may, may_not = said.partition("All else is an error")[::2]
    assert set(re.findall(r"`--([a-z-]+)`", may)) == FROM_A_PROJECT
    assert not FROM_A_PROJECT & set(re.findall(r"`--([a-z-]+)`", may_not))
    assert set(re.findall(r"`--([a-z-]+)`", may_not)) >= EACH_TIME


def test_its_example_is_a_file_that_can_be_followed(call: Call, folder: Path) -> None:
    example = section("In a file").partition("```toml\n")[2].partition("```")[0]
    (folder / "qrprof.toml").write_text(example)
    code, out, err = call("config", "show", "--json")
    assert (code, err) == (0, "")
    found = {(one["command"], one["option"]): one["value"] for one in json.loads(out)["settings"]}
    assert (found["trace", "steps"], found["task new", "device"], found["diff", "fail-over"]) == (10, "cuda", 0.05)


# --- examples


def examples() -> list[tuple[str, str]]:
    """(command, its example) of every command, those of groups included."""

    def below(command: click.Command, words: str) -> Iterator[tuple[str, str]]:
        yield words, (command.epilog or "").removeprefix("Example: ")
        for name, one in command.commands.items() if isinstance(command, click.Group) else ():
            yield from below(one, f"{words} {name}")

    found: list[tuple[str, str]] = []
    for entry in COMMANDS:
        command = cli.get_command(click.Context(cli), entry.name)
        assert command is not None
        found += below(command, entry.name)
    return found


EXAMPLES = examples()


def typed(example: str) -> list[list[str]]:
    """The words of each command of an example, without `qrprof` and without where its output goes."""
    lines = (shlex.split(one.partition(" > ")[0].partition(" >> ")[0]) for one in example.split(" && "))
    return [words[1:] for words in lines if words[0] == "qrprof"]


@pytest.mark.parametrize(("command", "example"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_can_be_typed(command: str, example: str, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    assert example.startswith(f"qrprof {command}")
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: 0)  # all that comes before the work
    for words in typed(example):
        for word in words:
            if re.fullmatch(r"[\w-]+(\.\w+)+", word):
                Path(word).touch()
        assert call(*words)[0] == 0, words


@pytest.mark.parametrize(
    ("command", "example"), [one for one in EXAMPLES if one[0] in QUICK], ids=lambda one: one.partition(" ")[0]
)
def test_a_quick_example_runs(command: str, example: str, call: Call) -> None:
    words = typed(example)[0]
    code, out, err = call(*words)
    assert code == 0, err
    assert out or "--perfetto" in words
