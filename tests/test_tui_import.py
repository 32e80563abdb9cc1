"""`qrprof import`: every format becomes a run that the other commands can read."""

import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.load import load_run, ranks
from qrprof.profiler.runinfo import RunInfo
from qrprof.tui.cli import run

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
EAGER = DATA / "own_h200_mlp_eager.json.gz"
BASE = 1_700_000_000_000_000_000
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runs(folder: Path) -> list[Path]:
    store = folder / ".qrprof" / "runs"
    return sorted(store.iterdir()) if store.is_dir() else []


def rank_file(path: Path, rank: int, world: int = 2, base: int = BASE, **metadata: Any) -> Path:
    """A step of 100 us with one kernel, 10 us after the file's zero."""
    spans = (("user_annotation", "ProfilerStep#3", 10, 100), ("cpu_op", "aten::mm", 20, 30), ("kernel", "gemm", 60, 20))
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": {"device": rank}}
        for cat, name, ts, dur in spans
    ]
    record = {"distributedInfo": {"rank": rank, "world_size": world}, "baseTimeNanoseconds": base, **metadata}
    path.write_text(json.dumps({"schemaVersion": 1, **record, "traceEvents": events}))
    return path


def public() -> list[Any]:
    found = sorted(path for path in PUBLIC.glob("*") if path.suffix in (".gz", ".sqlite"))
    skip = pytest.mark.skip(f"no public traces in {PUBLIC}; set QRPROF_TRACES")
    return [pytest.param(path, id=path.name) for path in found] or [pytest.param(None, marks=skip)]


@pytest.mark.parametrize("path", public())
def test_every_trace_is_imported_and_ranked(path: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "--json", str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    (folder,) = runs(here)
    assert (said["schema"], said["run"]) == (1, folder.name)
    assert ranks(folder) == [one["rank"] for one in said["ranks"]]
    for one in said["ranks"]:
        info, trace = load_run(folder, one["rank"])
        assert len(trace.events) == one["events"] > 0
        assert len(trace.device_work()) == one["device_work"]
        assert (info.rank, info.notes) == (one["rank"], one["notes"])
    assert run(["rank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_ms"] is None  # nothing ran unprofiled


def test_the_record_of_an_imported_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(EAGER)]) == 0
    (folder,) = runs(here)
    out, err = capsys.readouterr()
    assert err == f"qrprof: imported as {folder.name}; see `qrprof rank`\n"
    assert "NVIDIA H200" in out
    assert "ProfilerStep" in out
    assert max(map(len, out.splitlines())) <= 80
    info, trace = load_run(folder)
    assert folder.name.endswith("-own_h200_mlp_eager")
    assert sorted(path.name for path in folder.iterdir()) == ["rank0.events.parquet", "run.json"]
    assert (info.step_source, info.command, info.trace) == ("imported, ProfilerStep", [str(EAGER)], str(EAGER))
    assert (info.unprofiled, info.recorded, info.linalg, info.world_size) == ([], [], [], 1)
    assert [(device.index, device.name, device.memory_bytes) for device in info.devices] == [
        (0, "NVIDIA H200", 150109880320)
    ]
    assert info.versions == {"cuda": "13.0"}
    assert len(trace.events) == 1207


def test_an_imported_run_outlives_its_file_and_its_cache(here: Path) -> None:
    copy = Path(shutil.copyfile(EAGER, here / "trace.json.gz"))
    assert run(["import", copy.name]) == 0
    (folder,) = runs(here)
    _, before = load_run(folder)
    (folder / "rank0.events.parquet").write_bytes(b"broken")
    _, again = load_run(folder)
    assert again.events.equals(before.events)
    copy.unlink()
    _, after = load_run(folder)
    assert after.events.equals(before.events)


def test_a_file_recorded_anew_does_not_change_the_run(here: Path) -> None:
    path = rank_file(here / "trace.json", 0)
    assert run(["import", path.name]) == 0
    path.write_text("[]")
    assert len(load_run(runs(here)[0])[1].events) == 3


def test_ranks_of_a_job_count_from_one_zero(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [rank_file(here / "b.json", 1, base=BASE), rank_file(here / "a.json", 0, base=BASE + 5_000)]
    assert run(["import", *map(str, paths)]) == 0
    (folder,) = runs(here)
    starts = {rank: load_run(folder, rank)[1] for rank in ranks(folder)}
    assert {rank: trace.events["start"].tolist() for rank, trace in starts.items()} == {
        0: [15_000, 25_000, 65_000],
        1: [10_000, 20_000, 60_000],
    }
    assert {trace.base_ns for trace in starts.values()} == {BASE}
    assert (folder / "run.rank1.json").is_file()
    assert "note" not in capsys.readouterr().out


def test_a_job_that_is_not_whole_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = rank_file(here / "c.json", 5, 8, base=BASE + 10**12)
    assert run(["import", str(rank_file(here / "a.json", 3, 8)), str(late)]) == 0
    (folder,) = runs(here)
    assert ranks(folder) == [3, 5]
    assert RunInfo.model_validate_json((folder / "run.json").read_text()).rank == 3
    assert load_run(folder)[0].rank == 3  # without a rank 0 the lowest is meant
    assert load_run(folder, 5)[0].rank == 5
    out = " ".join(capsys.readouterr().out.split())
    assert "2 of 8 ranks were imported" in out
    assert "not all ranks overlap in time" in out
    assert run(["rank", "--rank", "4"]) == 2
    assert "has no rank 4; its ranks: 3, 5" in capsys.readouterr().err


def test_ranks_whose_zero_is_unknown_are_not_moved(here: Path) -> None:
    assert run(["import", str(rank_file(here / "a.json", 0, base=0)), str(rank_file(here / "b.json", 1))]) == 0
    (folder,) = runs(here)
    assert [load_run(folder, rank)[1].events["start"].min() for rank in (0, 1)] == [10_000, 10_000]
    assert load_run(folder)[0].notes == ["the ranks' clocks are not aligned: not all files say when their zero was"]


def test_an_archive_is_read_again_where_its_cache_is_gone(here: Path) -> None:
    with tarfile.open(here / "job.tar.gz", "w:gz") as tar:
        for rank in (1, 0):
            tar.add(rank_file(here / f"{rank}.json", rank), f"job/{rank}.json")
    assert run(["import", "job.tar.gz"]) == 0
    (folder,) = runs(here)
    (folder / "rank1.events.parquet").unlink()
    assert set(load_run(folder, 1)[1].device_work()["device"]) == {1}


def test_warnings_are_notes_and_are_not_said_twice(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "cut.json").write_text(rank_file(here / "a.json", 0).read_text()[:-20])
    assert run(["import", "cut.json"]) == 0
    (folder,) = runs(here)
    (folder / "rank0.events.parquet").unlink()
    info, trace = load_run(folder)
    assert info.notes == ["the file breaks off: the 2 events up to there were kept", "1 of 2 ranks were imported"]
    assert trace.warnings == ()
    capsys.readouterr()
    assert run(["rank"]) == 0
    assert capsys.readouterr().out.count("events up to there were kept") == 1


def test_no_secret_of_the_file_reaches_the_run(here: Path) -> None:
    environment: dict[str, Any] = {
        "env": {"HF_TOKEN": TOKEN},
        "username": TOKEN,
        "deviceProperties": [{"id": 0, "name": TOKEN}],
    }
    path = rank_file(here / "a.json", 0, 1, **environment)
    path.write_text(path.read_text().replace("aten::mm", f"load {TOKEN}"))
    assert run(["import", str(path)]) == 0
    (folder,) = runs(here)
    assert not [one for one in folder.iterdir() if TOKEN.encode() in one.read_bytes()]
    info, trace = load_run(folder)
    assert "load [masked]" in set(trace.events["name"])
    assert info.devices[0].name == "[masked]"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["junk.json"], "junk.json is not a trace"),
        (["rank0.json", "again.json"], "are both rank 0, so of two jobs"),
        (["rank0.json", "other.json"], "is of a job of 2 ranks"),
        (["rank0.json", "junk.json"], "junk.json is not a trace"),
    ],
)
def test_what_cannot_be_imported_leaves_no_run(
    names: list[str], reason: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "junk.json").write_text("hello")
    rank_file(here / "rank0.json", 0)
    rank_file(here / "again.json", 0)
    rank_file(here / "other.json", 1, 4)
    assert run(["import", *names]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert reason in err
    assert runs(here) == []


def test_a_file_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "missing.json"]) == 2
    assert "missing.json" in capsys.readouterr().err
    assert run(["import"]) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(["import", str(EAGER)]) == 0
    shown = terminal.getvalue()
    assert "qrprof: reading " in shown
    assert " % of 27.3 KiB" in shown
    assert shown.splitlines()[-1].split("\x1b[K")[-1].startswith("qrprof: imported as")
