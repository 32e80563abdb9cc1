"""`qrprof task export`: the folder that an outside coding agent is given."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_tasks import MM, SOFTMAX

from qrprof.planner.gate.task_store import keep
from qrprof.tui.cli import run

Call = Callable[..., tuple[int, str, str]]
START = "def candidate(a, b):\n    return a @ b\n"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `qrprof task export` in a folder with one task, the key of a model in the environment."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    keep(Path.cwd(), MM)

    def of(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["task", "export", *args])
        return code, *capsys.readouterr()

    return of


def test_the_folder_holds_contract_start_and_the_command_that_judges(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(START)
    code, out, err = call(str(tmp_path / "agent"), "--start", str(tmp_path / "own.py"))
    assert (code, out) == (0, "")
    folder = tmp_path / "agent"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "candidate.py", "parent.py"]
    assert (folder / "candidate.py").read_text() == (folder / "parent.py").read_text() == START
    page = (folder / "README.md").read_text()
    assert page.startswith("# A faster aten::mm\n")
    assert "float32[12, 96]" in page
    assert "asked only 3 times" in page
    assert "secret" not in page
    command = err.strip().partition("a candidate is judged by: ")[2]
    assert command in page
    assert not (Path.cwd() / ".qrprof" / "ledger.sqlite").exists()


def test_the_command_names_files_wherever_they_are(call: Call, tmp_path: Path) -> None:
    _, _, err = call(str(tmp_path / "an agent's"))
    words = shlex.split(err.strip().partition("a candidate is judged by: ")[2])
    assert words[:2] == ["cd", str(Path.cwd())]
    assert words[2:5] == ["&&", "qrprof", "gate"]
    assert words[5] == str(tmp_path / "an agent's" / "candidate.py")
    assert Path(words[5]).read_text() == Path(words[-1]).read_text()


def test_without_a_start_it_begins_with_the_stock_op(call: Call, tmp_path: Path) -> None:
    assert call(str(tmp_path / "agent"))[0] == 0
    assert '"""The stock kernel of aten::mm."""' in (tmp_path / "agent" / "candidate.py").read_text()


def test_nothing_is_written_over_and_a_choice_is_asked_for(call: Call, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "candidate.py").write_text("mine")
    code, _, err = call(str(tmp_path / "agent"))
    assert code == 2
    assert "candidate.py is there already" in err
    assert (tmp_path / "agent" / "candidate.py").read_text() == "mine"
    keep(Path.cwd(), SOFTMAX)
    code, _, err = call(str(tmp_path / "other"))
    assert code == 2
    assert "name one by --task ID" in err
    assert not (tmp_path / "other").exists()
