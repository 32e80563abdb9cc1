"""The file of accepted swaps and the user's own file of trust: whole, private, and worth nothing once damaged."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swap_cases import CASE, ENTRY, NOW

from qrprof.kernels import trust
from qrprof.kernels.qr.swaps import SWAPS
from qrprof.kernels.sources import OPS, own_sha256
from qrprof.kernels.swapfile import Case, Entry, candidate_file, project_of, read, write
from qrprof.profiler.errors import QrprofError

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5)
CASES = st.builds(
    Case,
    shapes=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(9, 99)), max_size=3).map(tuple), max_size=2).map(
        tuple
    ),
    dtypes=st.lists(st.sampled_from(["float32", "int64"]), max_size=2).map(tuple),
    plain=st.lists(PLAIN | st.lists(st.integers(), max_size=2).map(tuple), max_size=3).map(tuple),
    layout=st.text("tp", max_size=4),
    strided=st.booleans(),
)
ENTRIES = st.builds(
    Entry,
    name=st.from_regex(r"[A-Za-z0-9_.\-]{1,80}", fullmatch=True),
    kind=st.sampled_from(["included", "candidate", "adapter"]),
    op=st.text(max_size=8),
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    verdict=st.text(max_size=8),
    device=st.sampled_from(["cpu", "cuda", ""]),
    machine=st.text(max_size=8),
    torch=st.text(max_size=8),
    cases=st.lists(CASES, max_size=2).map(tuple),
)
OTHERS: dict[str, Any] = {
    "name": "other",
    "kind": "included",
    "op": "_log_softmax",
    "sha256": "cd" * 32,
    "verdict": "two",
    "device": "cuda",
    "machine": "Another CPU",
    "torch": "2.14.0",
    "cases": (replace(CASE, plain=(0, False)),),
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


# --- swaps.json


@given(entries=st.lists(ENTRIES, max_size=3))
def test_what_was_written_is_what_is_read(entries: list[Entry], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("swaps") / "swaps.json"
    write(path, entries)
    found = read(path)
    assert found == tuple(entries)
    assert [one.digest for one in found] == [one.digest for one in entries]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("field", [field.name for field in fields(Entry)])
def test_whatever_an_entry_says_is_in_its_digest(field: str) -> None:
    assert replace(ENTRY, **{field: OTHERS[field]}).digest != ENTRY.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("[" * 99999, "it is not JSON"),
        ("\udcff", "it is not JSON"),
        ("[]", "it lists no swaps"),
        ('{"schema": 1}', "it lists no swaps"),
        ('{"schema": 1, "swaps": 3}', "it lists no swaps"),
        ('{"schema": 7, "swaps": []}', "has schema 7, this qrprof reads 1"),
        ('{"schema": 1, "swaps": [{"name": "a"}]}', "0."),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "swaps.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(QrprofError) as caught:
        read(path)
    assert said in str(caught.value)
    assert "`qrprof swaps list`" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("name", "a b"), ("name", "../x"), ("sha256", "../../x"), ("device", 1)])
def test_an_entry_that_could_name_another_file_is_damage(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "swaps.json"
    write(path, [ENTRY])
    record = json.loads(path.read_text())
    record["swaps"][0][field] = value
    path.write_text(json.dumps(record))
    with pytest.raises(QrprofError, match=f"0.{field}"):
        read(path)


def test_a_file_belongs_to_the_folder_whose_store_holds_it(tmp_path: Path) -> None:
    (tmp_path / "work" / ".qrprof").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    inside = tmp_path / "link" / ".qrprof" / "swaps.json"
    assert project_of(inside) == (tmp_path / "work").resolve()
    assert project_of(tmp_path / "link" / "mine.json") == (tmp_path / "work").resolve()
    assert candidate_file(inside, "ab" * 32) == inside.parent / "candidates" / "abababababab.py"


# --- what the library has itself


def test_ops_of_the_included_kernels_are_those_they_swap() -> None:
    assert OPS["qr"] == tuple(swap.op for swap in SWAPS)


def test_only_what_the_library_has_has_a_source() -> None:
    assert len(own_sha256("included", "qr")) == len(own_sha256("adapter", "soap")) == 64
    assert own_sha256("included", "qr") != own_sha256("adapter", "soap")
    for kind, name in (("included", "svd"), ("adapter", "../qr"), ("adapter", "none"), ("candidate", "qr")):
        assert own_sha256(kind, name) == ""  # type: ignore[arg-type]


# --- trust


def test_trust_is_of_one_entry_in_one_project(config: Path, tmp_path: Path) -> None:
    trust.trust(tmp_path, ENTRY, NOW)
    assert trust.trusted(tmp_path) == {ENTRY.digest}
    assert trust.trusted(tmp_path / "clone") == frozenset()
    assert (config / "trusted.json").stat().st_mode & 0o777 == 0o600
    assert config.stat().st_mode & 0o777 == 0o700
    other = replace(ENTRY, name="qr")
    trust.trust(tmp_path, other, NOW)
    trust.distrust(tmp_path / "clone", ENTRY)
    assert trust.trusted(tmp_path) == {ENTRY.digest, other.digest}
    trust.distrust(tmp_path, ENTRY)
    assert trust.trusted(tmp_path) == {other.digest}


def test_accepting_anew_under_a_name_ends_the_trust_in_what_it_was_before(config: Path, tmp_path: Path) -> None:
    newer = replace(ENTRY, torch="2.14.0")
    trust.trust(tmp_path, ENTRY, NOW)
    trust.trust(tmp_path, newer, NOW)
    assert trust.trusted(tmp_path) == {newer.digest}


def damaged(path: Path) -> None:
    path.write_text(path.read_text()[:-9])


def of_another_schema(path: Path) -> None:
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))


def of_no_list(path: Path) -> None:
    path.write_text('{"schema": 1, "trusted": [{"project": 1}]}')


def writable_by_others(path: Path) -> None:
    path.chmod(0o622)


def in_a_folder_that_others_can_write(path: Path) -> None:
    path.parent.chmod(0o777)


def of_another_user(path: Path) -> None:
    os.chown(path, 12345, 12345)


SPOILT: dict[Callable[[Path], None], str] = {
    damaged: "is damaged",
    of_another_schema: "has schema 2, this qrprof reads 1",
    of_no_list: "is damaged",
    writable_by_others: "others can write",
    in_a_folder_that_others_can_write: "others can write",
    of_another_user: "is owned by another user",
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_file_that_cannot_be_relied_on_trusts_nothing_and_says_so(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    if spoil is of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    trust.trust(tmp_path, ENTRY, NOW)
    path = config / "trusted.json"
    spoil(path)
    before = path.read_bytes()
    assert trust.trusted(tmp_path) == frozenset()
    err = capfd.readouterr().err
    assert SPOILT[spoil] in err
    assert err.startswith("qrprof: no swap is trusted: ")
    assert err.count("\n") == 1
    with pytest.raises(QrprofError):
        trust.trust(tmp_path, ENTRY, NOW)
    assert path.read_bytes() == before


MANY = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from qrprof.kernels import trust
from qrprof.kernels.swapfile import Entry
for n in range(5):
    entry = Entry(f"{sys.argv[2]}-{n}", "included", "", "ab" * 32, "", "", "", "", ())
    trust.trust(Path(sys.argv[1]), entry, datetime.now(UTC))
"""


def test_two_processes_that_trust_at_once_lose_nothing(config: Path, tmp_path: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", MANY, str(tmp_path), name]) for name in ("a", "b")]
    assert [process.wait() for process in both] == [0, 0]
    assert len(trust.trusted(tmp_path)) == 10
