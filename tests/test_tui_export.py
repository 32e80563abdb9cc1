"""`qrprof export` on saved runs."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from qrprof.planner.replay.model import model_of
from qrprof.planner.replay.path import find_path
from qrprof.profiler.facts import find_facts
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
    rest = " events, 0 arrows, 0 gaps, 2 QR calls, 12 critical path pieces; open it at https://ui.perfetto.dev\n"
    assert printed.err.endswith(rest)
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


# --- the critical path


def track(path: Path, name: str) -> list[dict[str, Any]]:
    """Slices of a track that qrprof added: name, args, and start and end in us."""
    events = json.loads(path.read_text())["traceEvents"]
    (tid,) = {event["tid"] for event in events if event["name"] == "thread_name" and event["args"]["name"] == name}
    found = [event for event in events if event["ph"] in "BE" and (event["pid"], event["tid"]) == (1, tid)]
    return [
        begin | {"start": begin["ts"], "end": end["ts"]} for begin, end in zip(found[::2], found[1::2], strict=True)
    ]


def test_the_critical_path_is_a_track(folder: Path) -> None:
    record = folder / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"unprofiled": [], "linalg": []}))
    assert run(("export", "--perfetto", "out.json")) == 0
    slices = track(Path("out.json"), "critical path")
    info, trace = load_run(folder)
    rows = find_path(model_of(find_facts(trace, info), info)).rows
    assert [(one["start"], one["end"]) for one in slices] == [
        (start / 1000, end / 1000) for start, end in zip(rows["start"], rows["end"], strict=True)
    ]
    labels = {one["name"]: one["args"] for one in slices}
    assert labels["host op: aten::linalg_qr"] == {
        "bound by": "host",
        "op": "aten::linalg_qr",
        "phase": "forward",
        "step": 11,
        "us in the calibrated replay": 500.0,
    }


def test_a_withheld_path_is_left_out_with_a_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = {"clock": "host clock", "first_step": 0, "durations_ns": [1000] * 5, "kinds": ["A"] * 5}
    record = folder / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"unprofiled": [block]}))
    assert run(("export", "--perfetto", "out.json")) == 0
    note, wrote = capsys.readouterr().err.splitlines()
    assert note.startswith("qrprof: note: the critical path is left out: the recorded steps replay in ")
    assert wrote.endswith("2 QR calls; open it at https://ui.perfetto.dev")
    assert "critical path" not in Path("out.json").read_text()


def test_the_critical_path_is_redacted_too(folder: Path) -> None:
    trace = folder / "rank0.trace.json"
    events = json.loads(trace.read_text())
    (op,) = {event["name"] for event in events["traceEvents"] if event["name"] == "aten::mm"} or {""}
    text = trace.read_text().replace(f'"{op}"', '"/home/alice/train.py: loss"')
    trace.write_text(text)
    names = []
    for option in ((), ("--redact",)):
        assert run(("export", "--perfetto", "out.json", *option)) == 0
        names.append({one["name"] for one in track(Path("out.json"), "critical path")})
    assert "host op: /home/alice/train.py: loss" in names[0]
    assert "host op: train.py: loss" in names[1]
    assert "alice" not in Path("out.json").read_text()


# --- the file


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
