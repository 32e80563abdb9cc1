"""The command line as a person meets it: start-up, help, errors, `trace` and `runs`."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qrprof.profiler.recording.spawn import TraceOptions, TraceResult
from qrprof.tui.cli import COMMANDS, run

SMALL_RUN = Path(__file__).parent / "data" / "small_run"
HEAVY = {"torch", "triton", "pandas", "openai", "textual", "numpy", "pydantic", "rich"}
TRAIN = """\
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(150):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("trained", *sys.argv[1:])
sys.exit(7)
"""


def qrprof(*args: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "qrprof", *args],
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def modules_after(code: str, cwd: Path) -> set[str]:
    """Top-level modules and qrprof's own that a child has loaded after `code`."""
    tail = (
        "import sys; print(*{n if n.startswith('qrprof') else n.split('.')[0] for n in sys.modules}, file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], cwd=cwd, capture_output=True, text=True, check=True
    )
    return set(child.stderr.split())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A working folder with one saved run."""
    shutil.copytree(SMALL_RUN, tmp_path / ".qrprof" / "runs" / "20260131-120000-train")
    return tmp_path


# --- start-up


def test_help_loads_no_command_and_nothing_heavy(tmp_path: Path) -> None:
    loaded = modules_after("from qrprof.tui.cli import run; assert run(['--help']) == 0", tmp_path)
    assert "qrprof.tui.cli" in loaded
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith("qrprof.tui.commands")]


@pytest.mark.parametrize("command", [["runs"], ["rank"], ["show", "mm"]])
def test_a_saved_run_opens_without_torch(store: Path, command: list[str]) -> None:
    loaded = modules_after(f"from qrprof.tui.cli import run; assert run({command}) == 0", store)
    assert "pydantic" in loaded
    assert not loaded & {"torch", "triton", "openai", "textual"}


# --- help and usage


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_of_commands_says_what_each_command_says(
    entry: "tuple[str, str, str]", capsys: pytest.CaptureFixture[str]
) -> None:
    name, module, line = entry
    assert importlib.import_module(module).command.get_short_help_str(200) == line
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert line in text
    assert text.rstrip().splitlines()[-1].strip().startswith(f"Example: qrprof {name}")


def test_without_arguments_it_prints_help(tmp_path: Path) -> None:
    child = qrprof(cwd=tmp_path)
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout == qrprof("--help", cwd=tmp_path).stdout
    for entry in COMMANDS:
        assert entry.name in child.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rnak"], ["rnak", "did you mean 'rank'", "qrprof --help"]),
        (["frobnicate"], ["frobnicate", ", ".join(entry.name for entry in COMMANDS)]),
        (["--jsn"], ["--jsn", "qrprof --help"]),
        (["rank", "--jsno"], ["--jsno", "--json", "qrprof rank --help"]),
        (["trace"], ["SCRIPT", "qrprof trace --help"]),
        (["trace", "--steps", "0", "train.py"], ["--steps", "0"]),
        (["show"], ["KEY"]),
        (["swaps"], ["Missing command", "qrprof swaps --help"]),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(tmp_path: Path, args: list[str], words: list[str]) -> None:
    child = qrprof(*args, cwd=tmp_path)
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr.startswith("qrprof: ")
    assert child.stderr.count("\n") == 1
    for word in words:
        assert word in child.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["rank"], 2, ["no runs", "qrprof trace"]),
        (["show", "mm"], 2, ["no runs"]),
        (["trace", "missing\x1b[31m.py"], 2, ["missing[31m.py"]),
    ],
)
def test_what_a_person_can_act_on_is_one_line(tmp_path: Path, args: list[str], code: int, words: list[str]) -> None:
    child = qrprof(*args, cwd=tmp_path)
    assert (child.returncode, child.stdout) == (code, "")
    assert child.stderr.startswith("qrprof: ")
    assert child.stderr.count("\n") == 1
    assert "\x1b" not in child.stderr
    for word in words:
        assert word in child.stderr


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(root: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qrprof.tui.commands.runs.run_folders", interrupted)
    assert run(["runs"]) == 130
    assert capsys.readouterr().err.strip() == "qrprof: interrupted"


@pytest.mark.parametrize("args", [["rank"], ["rank", "--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_error_to_talk_about(store: Path, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "qrprof", *args]
    child = subprocess.run(command, check=False, cwd=store, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert child.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(store: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "qrprof", "rank"]
        child = subprocess.run(command, check=False, cwd=store, stdout=full, stderr=subprocess.PIPE)
    assert child.returncode == 1
    assert child.stderr.startswith(b"qrprof: cannot write the output: No space left")


# --- trace


def options_of(args: list[str], monkeypatch: pytest.MonkeyPatch, code: int = 0) -> tuple[TraceOptions, int]:
    """What `trace` is called with for `qrprof trace ARGS`, and the command's exit code."""
    seen: list[TraceOptions] = []

    def trace(options: TraceOptions) -> TraceResult:
        seen.append(options)
        return TraceResult(code, Path("somewhere/.qrprof/runs/the-run"))

    monkeypatch.setattr("qrprof.tui.commands.trace.trace", trace)
    returned = run(["trace", *args])
    return seen[0], returned


def test_trace_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(["train.py"], monkeypatch) == (
        TraceOptions(
            script="train.py",
            module=False,
            args=(),
            steps=5,
            warmup=3,
            range_name=None,
            stop=False,
            repeat=1,
            out=Path("."),
            shapes=True,
            samples=True,
        ),
        0,
    )


def test_trace_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = ["--steps", "7", "--warmup", "0", "--range", "train step", "--stop", "--repeat", "3", "--out"]
    options, _ = options_of([*given, str(tmp_path), "--no-shapes", "--no-samples", "-m", "pkg.train"], monkeypatch)
    assert options == TraceOptions(
        script="pkg.train",
        module=True,
        args=(),
        steps=7,
        warmup=0,
        range_name="train step",
        stop=True,
        repeat=3,
        out=tmp_path,
        shapes=False,
        samples=False,
    )


@pytest.mark.parametrize(
    "args",
    [
        ["--steps", "9"],
        ["--json", "-m", "other", "--help", "-h"],
        ["--", "--lr", "1"],
        ["a", "--", "b", "--unknown=1", "-x", "", "-"],
    ],
)
@pytest.mark.parametrize("before", [[], ["-m"], ["--warmup", "1"]])
def test_all_after_the_script_belongs_to_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: list[str], args: list[str]
) -> None:
    options, _ = options_of([*before, "train.py", *args], monkeypatch)
    assert (options.script, options.args, options.steps) == ("train.py", tuple(args), 5)
    assert options.module == (before == ["-m"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_trace_exits_as_the_script_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    assert options_of(["--json", "train.py"], monkeypatch, code)[1] == code
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "run": "the-run", "exit_code": code}


def test_a_traced_program_can_be_ranked(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    cache = str(tmp_path / "cache")
    traced = qrprof("trace", "--steps", "2", "--json", "train.py", "--steps", "x", cwd=tmp_path, QRPROF_CACHE=cache)
    assert traced.returncode == 7, traced.stderr
    said, _, printed = traced.stdout.partition("\n")
    assert said == "trained --steps x"
    result = json.loads(printed)
    assert result["exit_code"] == 7
    listed = json.loads(qrprof("runs", "--json", cwd=tmp_path).stdout)["runs"]
    assert [found["id"] for found in listed] == [result["run"]]
    assert listed[0]["command"] == ["train.py", "--steps", "x"]
    ranked = json.loads(qrprof("rank", "--json", cwd=tmp_path, QRPROF_CACHE=cache).stdout)
    assert ranked["run"] == result["run"]
    assert "aten::addmm" in {row["key"] for row in ranked["rows"]}


# --- runs


def test_runs_lists_what_can_be_read_and_what_is_broken(store: Path) -> None:
    runs = store / ".qrprof" / "runs"
    for name, content in (("broken", "{"), ("newer", '{"schema_number": 99}')):
        (runs / name).mkdir()
        (runs / name / "run.json").write_text(content)
    (runs / "unfinished").mkdir()
    parallel = json.loads((SMALL_RUN / "run.json").read_text()) | {"world_size": 8, "unprofiled": []}
    (runs / "parallel").mkdir()
    (runs / "parallel" / "run.json").write_text(json.dumps(parallel))
    (runs / "parallel" / "run.rank3.json").write_text("{}")

    child = qrprof("runs", cwd=store)
    assert (child.returncode, child.stderr) == (0, "")
    lines = child.stdout.splitlines()
    assert lines[0].split() == ["id", "command", "step", "recorded", "ranks"]
    small = next(line for line in lines if line.startswith("20260131-120000-train"))
    assert " ".join(small.split()) == "20260131-120000-train train.py --lr 1e-3 800 us 2 1"
    assert next(line for line in lines if line.startswith("parallel")).endswith("-        2 2 of 8")
    text = " ".join(child.stdout.split())
    assert "broken broken:" in text
    assert "broken newer:" in text
    assert "schema 99" in text
    assert "unfinished" not in text

    found = {one["id"]: one for one in json.loads(qrprof("runs", "--json", cwd=store).stdout)["runs"]}
    assert set(found) == {"20260131-120000-train", "broken", "newer", "parallel"}
    assert found["20260131-120000-train"] == {
        "id": "20260131-120000-train",
        "created": "2026-01-31T12:00:00+01:00",
        "command": ["train.py", "--lr", "1e-3"],
        "step_ms": 0.8,
        "steps_recorded": 2,
        "ranks": 1,
        "optimizations": [],
        "broken": None,
    }
    assert found["parallel"]["step_ms"] is None
    assert found["newer"]["created"] is None
    assert "schema 99" in found["newer"]["broken"]


def test_no_runs_is_an_empty_list(tmp_path: Path) -> None:
    child = qrprof("runs", cwd=tmp_path)
    assert (child.returncode, child.stdout) == (0, "")
    assert "qrprof trace" in child.stderr
    assert json.loads(qrprof("runs", "--json", cwd=tmp_path).stdout) == {"schema": 1, "runs": []}
