"""Which rank of a job a file is, and what a folder or an archive of them holds."""

import gzip
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.read import of_rank, ranked, read, read_all


def rank_file(path: Path, rank: int | None, world: int | None = None) -> Path:
    info: dict[str, Any] = {"backend": "nccl", "rank": rank} | ({"world_size": world} if world else {})
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10 + (rank or 0), "dur": 1, "args": {"device": 0}}
    metadata = {} if rank is None else {"distributedInfo": info}
    path.write_text(json.dumps({"schemaVersion": 1, **metadata, "traceEvents": [event]}))
    return path


def numbers(*paths: Path) -> list[int]:
    return [rank for rank, _ in ranked(read_all(paths))]


def test_ranks_by_the_file_else_by_its_name(tmp_path: Path) -> None:
    first = rank_file(tmp_path / "rank7.json", 2, 4)
    second = rank_file(tmp_path / "job_RANK-1.json", None)
    third = rank_file(tmp_path / "worker0_step_12.169.json", None)
    assert numbers(first, second, third) == [2, 1, 0]
    assert numbers(first) == [2]
    assert numbers(rank_file(tmp_path / "trace.json", None)) == [0]


@pytest.mark.parametrize("name", ["lora_rank16.json", "rerank5.json", "worker3_99.17.pt.trace.json", "rank2.json"])
def test_the_name_of_a_single_file_is_no_rank(name: str, tmp_path: Path) -> None:
    path = rank_file(tmp_path / name, None)
    assert numbers(path) == numbers(tmp_path) == [0]
    assert len(of_rank(path, 0).events) == 1
    assert numbers(rank_file(path, 3)) == [3]


def test_a_rank_in_a_name_is_a_word_of_its_own(tmp_path: Path) -> None:
    paths = [rank_file(tmp_path / name, None) for name in ("rank3.json", "step10rank2.json", "a.worker_1.json")]
    assert numbers(*paths) == [3, 2, 1]
    with pytest.raises(QrprofError, match=r"rerank5\.json does not say which rank"):
        numbers(paths[0], rank_file(tmp_path / "rerank5.json", None))


def test_damaged_files_beside_the_traces_of_a_folder_are_counted(tmp_path: Path) -> None:
    for name in ("a.gz", "z.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8bnot gzip")
    said = f"2 files of {tmp_path} could not be read and were passed over"
    with pytest.raises(QrprofError, match=r"holds no traces \(2 files of .* passed over\)"):
        read(tmp_path)
    for rank in range(2):
        rank_file(tmp_path / f"{rank}.json", rank, 2)
    assert [source.trace.warnings for source in read_all([tmp_path])] == [(said,), ()]


@pytest.mark.parametrize("archive", [None, "w", "w:gz"])
def test_a_folder_or_an_archive_of_ranks(archive: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    (folder / "deep").mkdir(parents=True)
    paths = [rank_file(folder / "b.json", 0, 3), rank_file(folder / "deep" / "a.json", 1, 3)]
    zipped = rank_file(folder / "c.json", 2, 3)
    (folder / "c.json.gz").write_bytes(gzip.compress(zipped.read_bytes()))
    zipped.unlink()
    (folder / "readme.txt").write_text("no trace")
    whole = folder
    if archive:
        whole = tmp_path / "ranks.tar"
        with tarfile.open(whole, archive) as tar:  # type: ignore[call-overload]
            tar.add(folder, "job")
    assert sorted(numbers(whole)) == [0, 1, 2]
    assert of_rank(whole, 2).events["start"].tolist() == [12000]
    assert "holds several processes" in read(whole).warnings[-1]
    assert all(path.is_file() for path in paths)
    with pytest.raises(QrprofError, match="holds no rank 5"):
        of_rank(whole, 5)


def test_ranks_of_two_jobs_are_refused(tmp_path: Path) -> None:
    one, two = rank_file(tmp_path / "a.json", 0, 2), rank_file(tmp_path / "b.json", 1, 2)
    same, larger = rank_file(tmp_path / "c.json", 1, 2), rank_file(tmp_path / "d.json", 3, 4)
    nameless = rank_file(tmp_path / "e.json", None)
    with pytest.raises(QrprofError, match=r"b\.json and .*c\.json are both rank 1, so of two jobs"):
        numbers(one, two, same)
    with pytest.raises(QrprofError, match=r"a\.json is of a job of 2 ranks, .*d\.json of one of 4"):
        numbers(one, larger)
    for order in ((one, nameless), (nameless, one)):
        with pytest.raises(QrprofError, match=r"e\.json does not say which rank it is"):
            numbers(*order)
    shutil.copyfile(nameless, tmp_path / "f.json")
    with pytest.raises(QrprofError, match="does not say which rank"):
        numbers(nameless, tmp_path / "f.json")


def test_an_error_in_an_archive_names_the_member(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    with tarfile.open(tmp_path / "ranks.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "rank0.json", "rank0.json")
    with pytest.raises(QrprofError, match=r"^rank0\.json of .*ranks\.tar\.gz holds no events"):
        read(tmp_path / "ranks.tar.gz")


def test_a_truncated_archive(tmp_path: Path) -> None:
    for rank in range(3):
        rank_file(tmp_path / f"rank{rank}.json", rank, 3)
    with tarfile.open(tmp_path / "ranks.tar.gz", "w:gz") as tar:
        for rank in range(3):
            tar.add(tmp_path / f"rank{rank}.json", f"rank{rank}.json")
    content = (tmp_path / "ranks.tar.gz").read_bytes()
    (tmp_path / "ranks.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(QrprofError, match="is a damaged archive"):
        numbers(tmp_path / "ranks.tar.gz")
