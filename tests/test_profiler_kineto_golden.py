"""The Kineto reader on real traces: known answers to the nanosecond."""

import csv
import gzip
import json
import os
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from qrprof.profiler.events import HOST
from qrprof.profiler.readers.kineto import read, read_in_chunks
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
PUBLIC = Path(os.environ.get("QRPROF_TRACES", Path(__file__).parents[2] / "shared" / "traces"))

FACTS = ("runtime", "work", "streams", "span", "busy", "sum", "unmatched", "most")
# By a script of its own: the standard json module with Decimal, and a sweep over sorted edges.
OWN = {
    "adamw_fused": (821, 746, 1, 26329883, 3735658, 3735658, 0, 1),
    "loader_bound": (723, 644, 1, 52470650, 3468984, 3468984, 0, 1),
    "mlp_cudagraph": (7, 319, 1, 1272792, 1172060, 1172060, 79, 80),
    "mlp_eager": (361, 240, 1, 4529548, 823670, 823670, 0, 1),
    "qr_loop_8x512": (1089, 1246, 1, 20965497, 19517954, 19517954, 382, 1),
    "soap_qr": (11079, 9831, 1, 188808200, 178273785, 178273785, 883, 1),
    "two_streams_overlap": (71, 35, 3, 17854214, 15908626, 24038986, 15, 1),
}


def union(work: pd.DataFrame) -> int:
    total, reached = 0, -1
    for start, end in sorted(zip(work["start"].tolist(), work["end"].tolist(), strict=True)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def facts(trace: Trace, device: int | None) -> tuple[int, ...]:
    """A device's figures as GOLDEN.tsv gives them; unmatched work is that of all devices."""
    runtime, work = trace.of_kind("runtime"), trace.device_work()
    own = work[work["device"] == device]
    return (
        len(runtime),
        len(own),
        own["track"].nunique(),
        int(own["end"].max() - own["start"].min()) if len(own) else 0,
        union(own),
        int((own["end"] - own["start"]).sum()),
        int((~work["correlation"].isin(set(runtime["correlation"]) - {0})).sum()),
        int(work["correlation"].value_counts().max()) if len(work) else 0,
    )


def golden() -> list[Any]:
    table = PUBLIC / "GOLDEN.tsv"
    if not table.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(f"no public traces in {PUBLIC}; set QRPROF_TRACES"))]
    with table.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if ".sqlite" not in row["trace"]]
    return [pytest.param(row, id=row["trace"].split("::")[-1]) for row in rows]


def public_trace(name: str, folder: Path) -> Path:
    archive, _, member = name.partition("::")
    if not member:
        return PUBLIC / archive
    with tarfile.open(PUBLIC / archive) as tar:
        (inside,) = (info for info in tar if info.name.endswith(member))
        data = tar.extractfile(inside)
        assert data
        (folder / member).write_bytes(data.read())
    return folder / member


@pytest.mark.parametrize("name", OWN)
def test_own_traces_give_the_known_answers(name: str) -> None:
    trace = read(DATA / f"own_h200_{name}.json.gz")
    assert dict(zip(FACTS, facts(trace, 0), strict=True)) == dict(zip(FACTS, OWN[name], strict=True))
    assert trace.base_ns == 1790857026000000000
    assert trace.warnings == ()


@pytest.mark.parametrize("row", golden())
def test_public_traces_give_the_golden_answers(row: dict[str, str], tmp_path: Path) -> None:
    expected = tuple(int(value) for value in list(row.values())[3:])
    device = None if row["device"] == "None" else int(row["device"])
    trace = read(public_trace(row["trace"], tmp_path))
    assert dict(zip(FACTS, facts(trace, device), strict=True)) == dict(zip(FACTS, expected, strict=True))
    assert not any("breaks off" in line or "JSON" in line for line in trace.warnings)


@pytest.mark.parametrize("name", ["mlp_cudagraph", "two_streams_overlap", "qr_loop_8x512"])
def test_every_row_is_the_files_row(name: str) -> None:
    """Against the standard json module, which keeps decimals exactly."""
    with gzip.open(DATA / f"own_h200_{name}.json.gz") as file:
        members = json.load(file, parse_float=Decimal)["traceEvents"]
    spans = [member for member in members if member["ph"] == "X"]
    wanted = [span for span in spans if span["cat"] not in ("gpu_user_annotation", "Trace")]
    expected = sorted(
        (
            int(span["ts"] * 1000),
            int((span["ts"] + span["dur"]) * 1000),
            span["name"],
            span["args"].get("device", HOST) if "stream" in span["args"] else HOST,
            span["args"].get("stream", span["tid"]),
            span["args"].get("correlation", 0),
            span["args"].get("Sequence number", -1),
            ",".join(span["args"].get("Input type", [])),
            json.dumps(span["args"]["Input Dims"], separators=(",", ":")) if "Input Dims" in span["args"] else "",
            span["args"].get("bytes", -1),
        )
        for span in wanted
    )
    columns = ["start", "end", "name", "device", "track", "correlation", "sequence", "dtypes", "shapes", "bytes"]
    rows = read(DATA / f"own_h200_{name}.json.gz").events[columns]
    assert sorted(rows.itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("name", ["mlp_cudagraph", "mlp_eager", "two_streams_overlap"])
@pytest.mark.parametrize("chunk", [1, 7, 100, 1000, 4096, 1 << 20])
def test_pieces_of_any_size_read_the_same(name: str, chunk: int, tmp_path: Path) -> None:
    with gzip.open(DATA / f"own_h200_{name}.json.gz") as file:
        text = file.read()
    start = text.index(b"traceEvents") + len(b'traceEvents": [')
    events = text[start:].split(b"\n  },")[:40] if chunk < 100 else text[start:].split(b"\n  },")[:-1]
    path = tmp_path / "trace.json"
    path.write_bytes(text[:start] + b"\n  },".join(events) + b"}]}")
    whole = read(path)
    pieces = read_in_chunks(path, chunk)
    assert_frame_equal(pieces.events, whole.events)
    assert (pieces.base_ns, pieces.warnings) == (whole.base_ns, whole.warnings) == (1790857026000000000, ())


def test_what_the_installed_torch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.ones(8, 4, requires_grad=True)
    with torch.profiler.profile(record_shapes=True) as profile:
        for step in range(3):
            with torch.profiler.record_function(f"qrprof.step#{step}"):
                pass
            (matrix.T @ matrix).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = read(tmp_path / "trace.json.gz")
    products = trace.events[trace.events["name"] == "aten::mm"]
    forward = products[products["shapes"] == "[[4,8],[8,4]]"]
    assert [step for step, _ in trace.marks()] == [0, 1, 2]
    assert len(forward) == 3
    assert set(forward["dtypes"]) == {"float,float"}
    assert (forward["sequence"] >= 0).all()
    assert (trace.events["device"] == HOST).all()
    assert (trace.events["start"] <= trace.events["end"]).all()
    assert trace.base_ns > 0
