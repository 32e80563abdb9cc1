"""What the pages tell one to type can be typed, their Python compiles and imports, and their links lead somewhere.

The words after a fence's opening say what it is: `console` has lines to type after "$ " and what they print, `sh` only
lines to type, `python NAME.py` is a file. `run` after `console`: the files of the section (of ##) are written, its
commands run, and they print what is quoted, where a line of "..." stands for any lines; after `varies` too, lines that
begin as quoted, on stderr too.
`slow`: only in the long set.
"""

import ast
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from qrprof.tui.cli import COMMANDS, cli, run

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
COLUMNS = "96"
RUN_ID = r"\d{8}-\d{6}"


class Snippet(NamedTuple):
    page: str
    section: str
    line: int
    info: tuple[str, ...]  # the words after the fence's opening
    text: str

    @property
    def language(self) -> str:
        """As it is written, or `sh` where all that stands there are commands of qrprof."""
        bare = all(line.startswith("qrprof ") for line in self.text.splitlines())
        return self.info[0] if self.info else "sh" if bare else ""

    def exchanges(self) -> list[tuple[str, str]]:
        """(what is typed, what is then printed)."""
        text = self.text.replace("\\\n", "")
        if self.language == "console":
            found = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
            return [(typed, printed) for typed, printed in found]
        return [(line, "") for line in text.splitlines() if line] if self.language in ("sh", "bash") else []


def snippets(page: str) -> Iterator[Snippet]:
    section, info, begun, lines = "", None, 0, list[str]()
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and info is None:
            info, begun, lines = tuple(line[3:].split()), number, []
        elif line.startswith("```") and info is not None:
            yield Snippet(page, section, begun, info, "".join(f"{one}\n" for one in lines))
            info = None
        elif info is not None:
            lines.append(line)
        elif line.startswith(("# ", "## ")):
            section = line.lstrip("# ")
    assert info is None, f"{page}:{begun}: a fence that is never closed"


SNIPPETS = [one for page in PAGES for one in snippets(page)]
PYTHON = [one for one in SNIPPETS if one.language == "python"]


def place(one: Snippet) -> str:
    return f"{one.page}:{one.line}"


def calls(typed: str) -> Iterator[list[str]]:
    """The words after `qrprof`, of each call in a line of the shell."""
    lexer = shlex.shlex(typed, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    for ends, part in groupby(lexer, key=lambda word: set(word) <= set("|&;<>")):
        command = list(part)
        at = [number for number, word in enumerate(command) if Path(word).name == "qrprof"]
        if at and not ends:
            yield command[at[0] + 1 :]


TYPED = [(one, typed) for one in SNIPPETS for typed, _ in one.exchanges() if any(calls(typed))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that looks like the repository's to the commands of a page."""
    folder = tmp_path / "folder"
    (folder / "tests").mkdir(parents=True)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(folder)
    return folder


def test_every_page_is_looked_at() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/recipes.md"} <= set(PAGES)
    assert {"console", "sh", "python"} <= {one.language for one in SNIPPETS}


def test_the_readme_names_every_command() -> None:
    _, section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Commands\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    named_there = set(re.findall(r"`(?:qrprof )?(\w+)", "\n".join(row.split("|")[1] for row in rows)))
    assert {entry.name for entry in COMMANDS} <= named_there


@pytest.mark.parametrize(("snippet", "typed"), TYPED, ids=[f"{place(one)} {typed}" for one, typed in TYPED])
def test_a_command_can_be_typed(
    snippet: Snippet, typed: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: 0)  # all that comes before the work
    for words in filter(None, calls(typed)):
        for word in words:
            if re.fullmatch(r"[\w./-]+\.\w+|FILE", word) and not Path(word).exists():
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
        assert run(words) == 0, f"{place(snippet)}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_have_the_options_that_it_names(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`qrprof ([^`]+)`", text):
        command, rest = named(re.sub(r"[\[\]]", "", span).split())
        if not command.allow_interspersed_args:
            rest = rest[: next((at + 1 for at, word in enumerate(rest) if word.endswith(".py")), None)]
        options = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        said = {word.partition("=")[0].rstrip(".,") for word in rest if word.startswith("--")}
        assert said <= options | {"--help"}, f"{page}: qrprof {span}"


def named(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words begin with, and the rest of them."""
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            assert words[0].isupper() or words[0].startswith("-"), f"no command {words[0]!r}"
            break
        command, words = below, words[1:]
    return command, words


@pytest.mark.parametrize("snippet", PYTHON, ids=map(place, PYTHON))
def test_python_compiles_and_what_it_imports_is_there(snippet: Snippet) -> None:
    tree = ast.parse(snippet.text)
    compile(tree, place(snippet), "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.import_module(f"{node.module}.{alias.name}")


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {link}"


def recipes() -> Iterator[object]:
    """The snippets of each section of which something runs."""
    for (page, section), group in groupby(SNIPPETS, key=lambda one: (one.page, one.section)):
        found = list(group)
        words = {word for one in found for word in one.info[1:]}
        if "run" in words:
            yield pytest.param(
                found, id=f"{page} {section}", marks=[pytest.mark.slow, pytest.mark.alone] if "slow" in words else []
            )


@pytest.mark.parametrize("section", list(recipes()))
def test_a_recipe_runs_and_prints_what_it_says(section: list[Snippet], folder: Path) -> None:
    env = os.environ | {"COLUMNS": COLUMNS, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "LANG": "C.UTF-8"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    for one in section:
        if one.language == "python" and len(one.info) > 1:
            (folder / one.info[1]).write_text(one.text, encoding="utf-8")
        for typed, quoted in one.exchanges() if "run" in one.info else ():
            done = subprocess.run(
                ["bash", "-c", typed], env=env, capture_output=True, text=True, check=False, timeout=600
            )
            assert done.returncode == 0, f"{place(one)}: {typed}\n{done.stdout}{done.stderr}"
            where = f"{place(one)}: {typed}"
            if "varies" in one.info:
                begins(quoted, done.stdout + done.stderr, where)
            else:
                prints(quoted, done.stdout, where)


def prints(quoted: str, printed: str, where: str) -> None:
    """All that is quoted and nothing else; one run's id is as good as another's."""
    want, got = (re.sub(RUN_ID, "DATE-TIME", text.strip("\n")) + "\n" for text in (quoted, printed))
    assert not quoted or doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), f"{where}\n{got}"


def begins(quoted: str, printed: str, where: str) -> None:
    """Lines that begin with the quoted lines' first words, their figures apart."""
    for line in quoted.splitlines():
        first = line.split()[0] if line.strip() and not line.startswith(" ") else ""
        if first and first != "..." and not re.search(r"\d", first):
            assert re.search(rf"^{re.escape(first)}(?!\S)", printed, re.MULTILINE), f"{where}: {line}\n{printed}"
