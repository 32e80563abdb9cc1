"""`qrprof export` on saved runs."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from qrprof.profiler.load import load_run
from qrprof.profiler.readers import kineto
from qrprof.tui.cli import run

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the one run of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    saved = tmp_path / ".qrprof" / "runs" / ID
    shutil.copytree(DATA / "small_run", saved)
    return saved


def test_the_file_is_the_trace_with_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("export", "--perfetto", "out.json")) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("qrprof: wrote out.json: ")
    assert printed.err.endswith(" events, 0 arrows, 0 gaps, 2 QR calls; open it at https://ui.perfetto.dev\n")
    text = ["kind", "name", "shapes", "dtypes"]
    _, trace = load_run(folder)
    back = kineto.read(Path("out.json")).events
    assert_frame_equal(back.astype(dict.fromkeys(text, str)), trace.events.astype(dict.fromkeys(text, str)))
    told = json.loads(Path("out.json").read_text())["otherData"]
    assert (told["run"], told["command"]) == (ID, "train.py --lr 1e-3")


def test_gz_by_the_name_and_any_earlier_file_is_replaced(folder: Path) -> None:
    Path("out.json.gz").write_text("something old")
    assert run(("export", ID, "--perfetto", "out.json.gz")) == 0
    assert "traceEvents" in json.loads(gzip.decompress(Path("out.json.gz").read_bytes()))
    assert sorted(path.name for path in Path().iterdir()) == [".qrprof", "out.json.gz"]


def test_redact(folder: Path) -> None:
    record = folder / "run.json"
    change = {"command": ["/home/alice/train.py", "--key", "hf_abcdefghijklmnopqrstuvwxyz"], "cwd": "/home/alice"}
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    told = []
    for option in ((), ("--redact",)):
        assert run(("export", "--perfetto", "out.json", *option)) == 0
        told.append(json.loads(Path("out.json").read_text())["otherData"]["command"])
    assert told == ["/home/alice/train.py --key hf_abcdefghijklmnopqrstuvwxyz", "train.py --key [masked]"]
    assert "alice" not in Path("out.json").read_text()


@pytest.mark.parametrize("name", ["run.json", "rank0.trace.json", "rank0.events.parquet"])
def test_files_of_the_run_are_never_overwritten(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load_run(folder)  # writes the cache
    before = (folder / name).read_bytes()
    Path("link.json").symlink_to(folder / name)
    Path("hard.json").hardlink_to(folder / name)
    for path in (str(folder / name), "link.json", *(["hard.json"] if "trace" in name else [])):
        assert run(("export", "--perfetto", path)) == 2
        assert "is a file of the run itself" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


def test_the_file_that_a_run_was_imported_from_is_not_overwritten(folder: Path) -> None:
    record, source = folder / "run.json", Path("somewhere.json").resolve()
    shutil.move(folder / "rank0.trace.json", source)
    change = {"trace": str(source), "command": ["somewhere.json"], "cwd": str(Path.cwd())}
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    before = source.read_bytes()
    assert run(("export", "--perfetto", "somewhere.json")) == 2
    assert source.read_bytes() == before
    assert run(("export", "--perfetto", "other.json")) == 0


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        ((), 2, "--perfetto"),
        (("--perfetto", "no/such/out.json"), 1, "cannot write no/such/out.json"),
        (("--perfetto", "."), 2, "is a directory"),
        (("--perfetto", "out.json", "--rank", "4"), 2, "has no rank 4"),
        (("nothing", "--perfetto", "out.json"), 2, "run 'nothing' is unknown"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_usage(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, reason: str) -> None:
    assert run(("export", *args)) == code
    printed = capsys.readouterr()
    assert (printed.out, reason in printed.err) == ("", True)
    assert not Path("out.json").exists()


@pytest.mark.usefixtures("folder")
def test_help_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("export", "--help")) == 0
    last = capsys.readouterr().out.splitlines()[-1].strip()
    assert last == "Example: qrprof export --perfetto step.json.gz --redact"
