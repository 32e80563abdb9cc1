"""Folders that others have made or can reach: links, owners, modes, and a source unpacked without its links."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from swap_cases import accepted, loaded, workplace

from qrprof.kernels.trust import trusted
from qrprof.planner.optimize.consent import agree
from qrprof.profiler import store
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import open_store, replacing, run_folders
from qrprof.tui.cli import run

ROOT = Path(__file__).parents[1]
EXAMPLE_RUN = ROOT / "tui" / "app" / "example"
SMALL_RUN = ROOT / "tests" / "data" / "small_run"
TRACE = ROOT / "tests" / "data" / "own_h200_mlp_eager.json.gz"
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "own" / "config"))
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "own" / "cache"))
    return folder


# --- links


@pytest.mark.parametrize("name", ["runs", "ledger.sqlite", "ledger.lock", "candidates", "tasks", ".gitignore"])
@pytest.mark.parametrize("there", [True, False], ids=["to something", "to nothing"])
def test_a_link_in_the_folder_is_refused_and_what_it_leads_to_is_left_alone(
    name: str, there: bool, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    if there and name in ("runs", "candidates", "tasks"):
        mine.mkdir()
    elif there:
        mine.write_text("mine")
    (here / ".qrprof").mkdir()
    (here / ".qrprof" / name).symlink_to(mine)
    assert run(["import", str(TRACE)]) == Exit.REFUSED
    where = here / ".qrprof" / name
    assert capsys.readouterr().err == f"qrprof: {where} is a link; remove it, and qrprof makes its own\n"
    assert os.path.lexists(mine) == there
    assert not there or (list(mine.iterdir()) == [] if mine.is_dir() else mine.read_text() == "mine")


@pytest.mark.parametrize("there", [True, False])
def test_the_folder_itself_may_be_no_link(there: bool, here: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    if there:
        mine.mkdir(mode=0o755)
    (here / ".qrprof").symlink_to(mine)
    with pytest.raises(QrprofError, match=r"\.qrprof is a link; remove it") as caught:
        open_store(here)
    assert caught.value.exit_code == Exit.REFUSED
    assert not there or (list(mine.iterdir()), stat.S_IMODE(mine.stat().st_mode)) == ([], 0o755)


def test_another_programs_database_behind_a_link_is_not_opened(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "cookies.sqlite"
    other.write_bytes(b"")
    (here / ".qrprof").mkdir()
    (here / ".qrprof" / "ledger.sqlite").symlink_to(other)
    for words in (["swaps", "list"], ["predictions"], ["verdict"], ["optimize", "--list"]):
        assert run(words) != Exit.OK
    assert "is a link" in capsys.readouterr().err
    assert other.read_bytes() == b""


def test_a_temporary_name_cannot_be_foreseen(tmp_path: Path) -> None:
    names = set()
    for _ in range(50):
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("")
            names.add(temporary.name.replace(str(os.getpid()), ""))
    assert len(names) == 50


def test_a_trace_beside_a_strangers_record_is_replaced_and_not_written_through(here: Path, tmp_path: Path) -> None:
    """The columns are kept beside the record: there a link may wait."""
    folder = here / ".qrprof" / "runs" / "20260131-120000-train"
    shutil.copytree(SMALL_RUN, folder)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (folder / "rank0.events.parquet").symlink_to(mine)
    assert run(["rank"]) == 0
    assert mine.read_text() == "mine"


def test_a_record_may_name_any_file_and_gets_a_sentence(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("-----BEGIN KEY-----\nc2VjcmV0\n")
    folder = here / ".qrprof" / "runs" / "20260131-120000-train"
    folder.mkdir(parents=True)
    record = (EXAMPLE_RUN / "run.json").read_text()
    (folder / "run.json").write_text(record.replace("rank0.trace.json.gz", str(secret)))
    assert run(["rank"]) == 1
    out, err = capsys.readouterr()
    assert "id_rsa is not a trace" in err
    assert "c2VjcmV0" not in out + err


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "{a=" * 5000 + "1" + "}" * 5000, "9" * 10_000])
def test_settings_that_nobody_can_read_are_an_error(value: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("qrprof.toml").write_text(f"[rank]\ntop = {value}\n")
    assert run(["rank"]) == 2
    assert capsys.readouterr().err.startswith(f"qrprof: {here / 'qrprof.toml'} is no TOML: ")


# --- modes


def open_to_others(*tops: Path) -> list[Path]:
    """What others can reach: a folder they may not enter hides all that is in it."""
    found = []
    for top in tops:
        if stat.S_IMODE(top.stat().st_mode) & 0o077:
            found.append(top)
            if top.is_dir():
                found += open_to_others(*top.iterdir())
    return found


@pytest.mark.usefixtures("careless")
def test_everything_is_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = workplace(tmp_path, monkeypatch)
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "own" / "config"))
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cached" / "cache"))
    monkeypatch.chdir(root)
    assert run(["import", str(TRACE)]) == 0
    assert run(["rank"]) == 0
    kept = accepted(root)
    agree("https://example.org/v1", datetime(2026, 2, 1, tzinfo=UTC))
    assert run(["doctor", "--measure"]) == 0
    assert loaded(root) == [kept.name]
    written = [root / ".qrprof", tmp_path / "own", tmp_path / "cached"]
    assert [path for path in written if not path.is_dir()] == []
    assert open_to_others(*written) == []
    own = tmp_path / "own" / "config"
    assert [stat.S_IMODE((own / name).stat().st_mode) for name in ("trusted.json", "endpoints.json")] == [0o600] * 2


@pytest.mark.usefixtures("careless")
def test_a_traced_program_leaves_nothing_for_others(workshop: Any) -> None:
    """Its own files are as its umask says; the run and the samples of its matrices are not."""
    body = "for _ in range(40):\n    step()\n    torch.linalg.qr(torch.randn(8, 8))\nopen('own', 'w').close()\n"
    assert workshop.train(body).code == 0
    assert (workshop.folder / "cache" / "samples").is_dir()
    assert open_to_others(workshop.folder / ".qrprof", workshop.folder / "cache") == []
    assert stat.S_IMODE((workshop.folder / "own").stat().st_mode) == 0o666


def test_a_folder_that_was_open_is_closed(here: Path) -> None:
    (here / ".qrprof").mkdir()
    (here / ".qrprof").chmod(0o777)
    assert stat.S_IMODE(open_store(here).stat().st_mode) == 0o700


# --- another user


@needs_root
def test_what_another_user_owns_is_trusted_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = workplace(tmp_path, monkeypatch)
    accepted(root)
    assert trusted(root)
    file = store.config_folder() / "trusted.json"
    for path in (file, file.parent):
        os.chown(path, NOBODY, NOBODY)
        assert trusted(root) == frozenset()
        assert f"{path} is owned by another user" in capsys.readouterr().err
        os.chown(path, 0, 0)
    assert trusted(root)


AS_NOBODY = """
import contextlib, io, json, os, sys
from qrprof.tui.cli import run

commands = [["rank"], ["runs"], ["swaps", "list"], ["import", sys.argv[1]]]
with contextlib.redirect_stdout(io.StringIO()):
    codes = [run(words) for words in commands]  # imports all that they need, which another user may not be able to
    os.setegid(65534)
    os.seteuid(65534)
    codes += [run(words) for words in commands]
print(json.dumps(codes))
"""


@needs_root
def test_another_users_folder_is_neither_read_nor_written() -> None:
    with tempfile.TemporaryDirectory() as top:  # pytest's own folder is closed to other users
        shared = Path(top)
        shared.chmod(0o777)
        environment = dict.fromkeys(("HOME", "QRPROF_CACHE", "QRPROF_CONFIG"), str(shared / "theirs"))
        environment["OMP_NUM_THREADS"] = "1"
        importing = [sys.executable, "-m", "qrprof", "import", str(TRACE)]
        subprocess.run(importing, cwd=shared, env=os.environ | environment, check=True, capture_output=True)
        child = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(TRACE)],
            cwd=shared,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in child.stderr
        assert f"{shared}/.qrprof/runs is closed to this user" in child.stderr
        codes = json.loads(child.stdout)
        assert codes[:4] == [0] * 4
        assert set(codes[4:]) <= {1, 2, 3}
        assert len(list(run_folders(shared))) == 2


# --- the source


def unpacked_without_links(folder: Path) -> None:
    """As a zip file gives them: each link is a file that holds where it leads."""
    source = folder / "src" / "qrprof"
    source.mkdir(parents=True)
    for path in (ROOT / "src" / "qrprof").iterdir():
        if path.is_symlink():
            (source / path.name).write_text(os.readlink(path))
        elif path.is_file():
            shutil.copy(path, source)


def test_a_source_without_its_links_does_not_install_half(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    unpacked_without_links(tmp_path)
    setup = [sys.executable, "setup.py", "--version"]
    child = subprocess.run(setup, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert "lacks the links docs, kernels, planner, profiler, redteam, tui" in child.stderr
    assert "use `git clone`, or install the package with pip" in child.stderr
    assert "Traceback" not in child.stderr
