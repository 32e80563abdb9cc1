"""What options are where none is given: files, variables, their order, and what a project's file may not say."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from conftest import Call
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.optimize.budget import parse
from qrprof.planner.optimize.records import Budget
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.recording.spawn import TraceOptions, TraceResult
from qrprof.tui.cli import COMMANDS, cli, run
from qrprof.tui.configuration import FIXED, FROM_A_PROJECT, line_of, options_of, own_file, project_source


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, two below the project's; the configuration folder is beside the project."""
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "configuration"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "configuration").mkdir()
    folder = tmp_path / "home" / "project" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def origins(call: Call) -> Callable[[str], dict[str, tuple[object, str]]]:
    """By option of a command its value and where it comes from, as `config show` has them."""

    def shown(command: str) -> dict[str, tuple[object, str]]:
        code, out, err = call("config", "show", command.split()[0], "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)["settings"]
        return {one["option"]: (one["value"], one["origin"]) for one in found if one["command"] == command}

    return shown


# --- which one holds


def test_the_command_line_goes_before_the_environment_a_project_and_ones_own_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TraceOptions] = []

    def trace(options: TraceOptions) -> TraceResult:
        seen.append(options)
        return TraceResult(0, None)

    monkeypatch.setattr("qrprof.tui.commands.trace.trace", trace)
    own_file().write_text("[trace]\nsteps = 11\nwarmup = 12\nrepeat = 13\nno_shapes = true\n")
    (here.parent / "qrprof.toml").write_text("[trace]\nsteps = 21\nwarmup = 22\nno-samples = true\n")
    monkeypatch.setenv("QRPROF_TRACE_STEPS", "31")
    monkeypatch.setenv("QRPROF_TRACE_STOP", "1")
    assert run(["trace", "train.py"]) == 0
    assert run(["trace", "--steps", "41", "train.py"]) == 0
    assert [(one.steps, one.warmup, one.repeat) for one in seen] == [(31, 22, 13), (41, 22, 13)]
    assert (seen[0].stop, seen[0].shapes, seen[0].samples, seen[0].module) == (True, False, False, False)


def test_config_show_says_where_each_value_comes_from(
    here: Path, origins: Callable[[str], dict[str, tuple[object, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = here.parent / "qrprof.toml"
    own_file().write_text('\n[gaps]\ntop = 5\ncsv = true\n\n[optimize]\nmodel = "small"\n')
    project.write_text('task.new.device = "cuda"\n[gaps]\ntop = 7\n')
    monkeypatch.setenv("QRPROF_GAPS_RANK", "3")
    assert origins("gaps") == {
        "json": (False, "default"),
        "csv": (True, f"{own_file()}, line 4"),
        "top": (7, f"{project}, line 3"),
        "rank": (3, "$QRPROF_GAPS_RANK"),
    }
    assert origins("task new")["device"] == ("cuda", f"{project}, line 1")
    assert origins("optimize")["model"] == ("small", f"{own_file()}, line 7")
    assert origins("gate")["task"] == (None, "default")


def test_config_show_prints_a_table_of_all_commands(call: Call) -> None:
    code, out, err = call("config", "show")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "command option value from"
    assert "rank --top 12 default" in lines
    assert "whatif --set - default" in lines
    assert {line.split()[0] for line in lines[1:]} >= {"trace", "task", "doctor"}


def test_plain_qrprof_opens_the_app_as_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []

    def open_app(name: str | None, number: int, *, plain: bool) -> int:
        opened.append(plain)
        return 0

    monkeypatch.setattr("qrprof.tui.commands.tui.interactive", lambda: True)
    monkeypatch.setattr("qrprof.tui.commands.tui.wanted", lambda: True)
    monkeypatch.setattr("qrprof.tui.commands.tui.open_app", open_app)
    own_file().write_text("[tui]\nascii = true\n[keys]\nsort = 'o'\n")
    assert run([]) == 0
    assert opened == [True]


def test_an_optimization_goes_on_as_it_was_begun(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    own_file().write_text("[optimize]\nproposer = 'llm'\nbudget = '5evals'\n")
    asked: list[Budget | None] = []

    def resumed(name: str, budget: Budget | None) -> None:
        asked.append(budget)
        raise QrprofError("far enough")

    monkeypatch.setattr("qrprof.tui.optimizing.resumed", resumed)
    assert call("optimize", "--resume", "x")[2] == "qrprof: far enough\n"
    assert call("optimize", "--resume", "x", "--budget", "6evals")[2] == "qrprof: far enough\n"
    assert asked == [None, parse("6evals")]
    assert "--resume goes on as it was begun" in call("optimize", "--resume", "x", "--proposer", "search")[2]


# --- where a project's file is


def test_the_nearest_file_holds_alone(here: Path, origins: Callable[[str], dict[str, tuple[object, str]]]) -> None:
    (here.parent / "qrprof.toml").write_text("[rank]\ntop = 7\njson = true\n")
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.qrprof.rank]\ntop = 8\n")
    assert origins("rank")["top"] == (8, f"{here / 'pyproject.toml'}, line 4")
    assert origins("rank")["json"] == (False, "default")
    (here / "qrprof.toml").write_text("")
    assert origins("rank")["top"] == (12, "default")


@pytest.mark.parametrize(
    "text", ["[tool.ruff]\nline-length = 5\n", "[tool.qrprof]\n", "name = 'qrprof'\n", "[[ broken"]
)
def test_a_pyproject_that_is_not_about_qrprof_is_passed_by(here: Path, text: str) -> None:
    (here / "pyproject.toml").write_text(text)
    (here.parent / "qrprof.toml").write_text("")
    found = project_source(here, here.parents[1])
    assert found is not None
    assert found.path == here.parent / "qrprof.toml"


def test_nothing_above_the_home_is_read(here: Path) -> None:
    home = here.parents[1]
    (home.parent / "qrprof.toml").write_text("[rank]\ntop = 7\n")
    assert project_source(here, home) is None
    found = project_source(here, here / "elsewhere")
    assert found is not None
    (home / "qrprof.toml").write_text("")
    found = project_source(here, home)
    assert found is not None
    assert found.path == home / "qrprof.toml"


def test_a_home_behind_a_link_is_the_home(here: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    link = here.parents[2] / "link"
    link.symlink_to(here.parents[1])
    monkeypatch.setenv("HOME", str(link))
    (link.parent / "qrprof.toml").write_text("")
    assert json.loads(call("config", "path", "--json")[1])["project"] is None


def test_config_path_names_the_files(here: Path, call: Call) -> None:
    assert json.loads(call("config", "path", "--json")[1]) == {
        "schema": 1,
        "own": str(own_file()),
        "own_exists": False,
        "project": None,
    }
    assert "not there" in call("config", "path")[1]
    own_file().write_text("")
    (here / "qrprof.toml").write_text("[rank]\ntpo = 1\n")  # what a person may look for it for
    code, out, err = call("config", "path")
    assert (code, err) == (0, "")
    assert str(here / "qrprof.toml") in out
    assert "not there" not in out


# --- what cannot be followed


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[rank]\ntpo = 3\n", 2, ["'tpo'", "did you mean 'top'?", "`qrprof rank`"]),
        ("\n\n[rnak]\ntop = 3\n", 3, ["'rnak'", "did you mean 'rank'?"]),
        ("[help]\n", 1, ["'help'"]),
        ("[keys]\nsort = 'o'\n", 1, ["'keys'"]),
        ("rank = 3\n", 1, ["rank must be a table"]),
        ("[task]\nnew = 3\n", 2, ["new must be a table"]),
        ("[task.nwe]\n", 1, ["'nwe'", "did you mean 'new'?"]),
        ("[rank]\n# top\ntop = '3'\n", 3, ["top must be a whole number"]),
        ("[rank]\ntop = true\n", 2, ["top must be a whole number"]),
        ("[rank]\ntop = 0\n", 2, ["top cannot be 0: 0 is not in the range"]),
        ("[rank]\njson = 1\n", 2, ["json must be true or false"]),
        ("[probe]\nseconds = 'x'\n", 2, ["seconds must be a number"]),
        ("[path]\nby = 'size'\n", 2, ["by cannot be size: 'size' is not one of"]),
        ("[diff]\nfail_over = 'x'\n", 2, ["fail_over cannot be x: "]),
        ("[diff]\nfail_over = ['5%']\n", 2, ["fail_over must be text"]),
    ],
)
def test_what_cannot_be_followed_is_an_error_with_its_line(
    here: Path, call: Call, text: str, line: int, words: list[str]
) -> None:
    file = here / "qrprof.toml"
    file.write_text(text)
    code, out, err = call("config", "show")
    assert (code, out) == (2, "")
    assert err.startswith(f"qrprof: {file}, line {line}: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_list_is_wanted_where_an_option_may_be_repeated(call: Call) -> None:
    own_file().write_text("[whatif]\nset = 'a=2x'\n")
    assert "set must be a list, each text" in call("config", "show", "whatif")[2]
    own_file().write_text("[whatif]\nset = ['a=2x', 'b=0']\n")
    assert "a=2x, b=0" in call("config", "show", "whatif")[1]


@pytest.mark.parametrize("text", ["[rank", "[rank]\ntop = 1\ntop = 2\n", "\N{BOM}[rank]"])
def test_what_is_no_toml_is_an_error_of_every_command(here: Path, call: Call, text: str) -> None:
    (here / "qrprof.toml").write_text(text)
    for words in (["rank"], ["config", "show"]):
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert str(here / "qrprof.toml") in err
    assert call("--help")[0] == 0


def test_a_file_that_cannot_be_read_is_an_error(here: Path, call: Call) -> None:
    (here / "qrprof.toml").write_bytes(b"\xff\xfe[rank]")
    code, _, err = call("rank")
    assert code == 2
    assert f"cannot read {here / 'qrprof.toml'}" in err


def test_a_variable_that_cannot_be_followed_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_RANK_TOP", "many")
    for words in (["rank"], ["config", "show", "rank"]):
        code, _, err = call(*words)
        assert code == 2
        assert "'many'" in err
        assert "$QRPROF_RANK_TOP" in err
    assert "$QRPROF_RANK_TOP" not in call("rank", "--top", "many")[2]


# --- what a stranger's folder may not do


@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        ("optimize", "allow_unsandboxed", True),
        ("optimize", "allow-unsandboxed", False),
        ("gate", "allow_unsandboxed", True),
        ("optimize", "model", "m"),
        ("optimize", "adviser", "m"),
        ("optimize", "proposer", "llm"),
        ("optimize", "cluster", "tcp://somewhere:8786"),
        ("optimize", "hint", "send all"),
        ("optimize", "budget", "$1000"),
        ("optimize", "start", "theirs.py"),
        ("bench", "json", "/etc/passwd"),
        ("trace", "out", "/"),
        ("export", "perfetto", "x"),
    ],
)
def test_what_runs_sends_or_writes_is_not_taken_from_a_project(
    here: Path, call: Call, command: str, key: str, value: object
) -> None:
    text = f"[{command}]\n{key} = {json.dumps(value)}\n"
    (here / "qrprof.toml").write_text(text)
    code, _, err = call("config", "show", command)
    assert code == 2
    assert err.startswith(f"qrprof: {here / 'qrprof.toml'}, line 2: {key} is not taken")
    assert f"--{key.replace('_', '-')} each time" in err
    assert str(own_file()) in err


def test_a_command_does_not_begin_what_a_project_may_not_ask_for(here: Path, call: Call) -> None:
    (here / "pyproject.toml").write_text("[tool.qrprof.optimize]\nallow_unsandboxed = true\n")
    code, _, err = call("optimize", "--dry-run")
    assert code == 2
    assert "allow_unsandboxed is not taken" in err


def test_consent_is_given_each_time(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_OPTIMIZE_YES", "1")
    lines = [line.split() for line in call("config", "show", "optimize")[1].splitlines()]
    assert ["optimize", "--yes", "no", "default"] in lines
    own_file().write_text("[optimize]\nyes = true\n")
    code, _, err = call("config", "show", "optimize")
    assert code == 2
    assert "yes is to be said each time" in err


def test_ones_own_file_may_name_a_model_and_run_without_containment(call: Call) -> None:
    own_file().write_text('[optimize]\nproposer = "llm"\nmodel = "m"\nallow_unsandboxed = true\n')
    assert call("config", "show", "optimize")[0] == 0


def every_option() -> dict[str, click.Option]:
    """By command and option."""
    found = {}

    def walk(command: click.Command, words: str) -> None:
        found.update({f"{words} --{name}": option for name, option in options_of(command).items()})
        for name, below in command.commands.items() if isinstance(command, click.Group) else ():
            walk(below, f"{words} {name}")

    for entry in COMMANDS:
        command = cli.get_command(click.Context(cli), entry.name)
        assert command is not None
        walk(command, entry.name)
    return found


def test_what_a_project_may_say_are_options_that_there_are() -> None:
    assert {name.rpartition("--")[2] for name in every_option()} >= FROM_A_PROJECT


def test_no_two_options_have_the_same_variable() -> None:
    named = [option.envvar for name, option in every_option().items() if name.split()[0] not in FIXED]
    given = [one for one in named if one]
    assert len(set(map(str, given))) == len(given)
    assert not {"QRPROF_CACHE", "QRPROF_CONFIG", "QRPROF_SWAPS"} & set(map(str, given))


# --- lines


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("rank",), 1),
        (("rank", "top"), 3),
        (("a b", "c.d"), 6),
        (("text",), 7),
        (("after",), 11),
        (("list",), 12),
        (("one", "two", "three"), 17),
        (("one", "four", "five"), 18),
        (("table", "x", "y"), 21),
        (("none",), 1),
    ],
)
def test_a_key_is_found_however_it_is_written(keys: tuple[str, ...], line: int) -> None:
    text = """\
rank.json = true
# rank.top = 1
rank . "top" = 3

# more
"a b".'c.d' = 1
text = '''
after = 1
[list]
'''
after = "#"
list = [
  1,  # [one]
  2,
]
[one]
two.three = 1
four = { five = 1, six = 2 }

[[table.x]]
[table.x.y]
"""
    if keys == ("table", "x", "y"):
        text = text.replace("[[table.x]]", "")
    assert line_of(text, keys) == line


NAMES = st.sampled_from(["steps", "a b", "c.d", "'", "#", "[x]", "é", "1"])
VALUES = st.sampled_from(["1", "true", '"#"', "[\n1,\n# x\n2 ]", '"""\nsteps = 1\n[x]\n"""', "'''\n\n'''", "{ a = 1 }"])


@given(st.lists(st.tuples(NAMES, NAMES, VALUES, st.booleans()), unique_by=lambda one: one[:2]))
def test_the_line_is_that_of_the_statement(entries: list[tuple[str, str, str, bool]]) -> None:
    text, lines = "", {}
    for place, (table, key, value, dotted) in enumerate(entries):
        names = [json.dumps(f"{place}{table}", ensure_ascii=False), json.dumps(key, ensure_ascii=False)]
        if place == 0 and dotted:
            lines[f"{place}{table}", key] = text.count("\n") + 1
            text += f"{names[0]} . {names[1]} = {value}\n"
        else:
            lines[f"{place}{table}", key] = text.count("\n") + 2
            text += f"[{names[0]}]\n{names[1]} = {value} # {key}\n\n"
    assert {keys: line_of(text, keys) for keys in lines} == lines
