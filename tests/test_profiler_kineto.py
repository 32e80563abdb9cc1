"""The Kineto reader on made traces: rows, text, exact times, broken files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.events import HOST
from qrprof.profiler.readers.kineto import read, read_in_chunks
from qrprof.profiler.trace import Trace


def event(ts: str = "10.000", dur: str = "5.000", **fields: Any) -> str:
    rest = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "args": {}} | fields
    return json.dumps(rest)[:-1] + f', "ts": {ts}, "dur": {dur}}}'


def kernel(args: dict[str, Any], **fields: Any) -> str:
    drawn: dict[str, Any] = {"cat": "kernel", "name": "gemm", "pid": 3, "tid": 7, "args": args}
    return event(**(drawn | fields))


def text_of(*events: str, before: str = "", after: str = "") -> str:
    return f'{{{before} "traceEvents": [\n{", ".join(events)}\n] {after}}}'


def save(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_text(folder: Path, text: str | bytes) -> Trace:
    return read(save(folder, text))


# --- rows ---


def test_host_and_device_rows(tmp_path: Path) -> None:
    trace = read_text(
        tmp_path,
        text_of(
            event(
                "1.000", "9.500", args={"Input Dims": [[2, 3], [[4]], []], "Input type": ["float", "TensorList", ""]}
            ),
            event("2", "1", cat="cuda_driver", name="cuLaunchKernel", args={"correlation": 5}),
            kernel({"device": 1, "stream": 9, "correlation": 5}, ts="4.001", dur="0.002"),
            kernel({"Correlation": 6}, ts="5.5", dur="0.25"),
            kernel({"device": 0, "stream": 7, "bytes": 4096, "correlation": 7}, cat="gpu_memcpy", ts="8", dur="1"),
            kernel({"device": 0, "stream": -1}, cat="cuda_sync", name="Context Sync", ts="9", dur="0"),
            event("11", "1", cat="overhead", name="Buffer Flush", pid=-1, tid=-1),
            after=', "baseTimeNanoseconds": 123456789012345678',
        ),
    )
    columns = ["kind", "start", "end", "device", "track", "correlation", "bytes"]
    assert list(trace.events[columns].itertuples(index=False, name=None)) == [
        ("op", 1000, 10500, HOST, 2, 0, -1),
        ("runtime", 2000, 3000, HOST, 2, 5, -1),
        ("kernel", 4001, 4003, 1, 9, 5, -1),
        ("kernel", 5500, 5750, 3, 7, 6, -1),
        ("copy", 8000, 9000, 0, 7, 7, 4096),
        ("sync", 9000, 9000, 0, -1, 0, -1),
        ("overhead", 11000, 12000, HOST, -1, 0, -1),
    ]
    assert trace.events.loc[0, "shapes"] == "[[2,3],[[4]],[]]"
    assert trace.events.loc[0, "dtypes"] == "float,TensorList,"
    assert trace.base_ns == 123456789012345678
    assert trace.warnings == ()


def test_spans_that_are_no_rows(tmp_path: Path) -> None:
    others = [event(cat=cat) for cat in ("gpu_user_annotation", "python_function", "Trace")]
    arrows = [event(cat=cat, ph=phase) for cat in ("ac2g", "fwdbwd") for phase in "sf"]
    instants = [event(cat="cpu_instant_event", ph="i"), json.dumps({"ph": "M", "name": "process_name", "args": {}})]
    trace = read_text(tmp_path, text_of(*others, *arrows, *instants, event(), "7", "null", '"text"', "[]"))
    assert list(trace.events["name"]) == ["aten::mm"]
    assert trace.warnings == ()


def test_unknown_categories_are_counted(tmp_path: Path) -> None:
    unknown = [event(cat="hpu_op"), event(cat="hpu_op"), event(cat="new\nline")]
    (warning,) = read_text(tmp_path, text_of(event(), *unknown)).warnings
    assert warning == "3 events of unknown categories were left out: 'hpu_op' (2), 'new\\nline' (1)"


def test_threads_without_a_number_stay_apart(tmp_path: Path) -> None:
    trace = read_text(tmp_path, text_of(*(event(tid=tid) for tid in ("loader", "main", "loader", -1, 0))))
    tracks = trace.events["track"].tolist()
    assert tracks[0] == tracks[2]
    assert len(set(tracks)) == 4


def test_odd_arguments_fall_back_to_nothing_recorded(tmp_path: Path) -> None:
    odd = {"device": "gpu", "stream": None, "correlation": -1, "bytes": 1.5, "Input type": "float", "Input Dims": None}
    trace = read_text(tmp_path, text_of(kernel(odd), event(args=None), event(args=[1], tid=None, name=None)))
    row = trace.device_work().iloc[0]
    assert (row["device"], row["track"], row["correlation"], row["bytes"]) == (0, 0, 0, -1)
    assert (row["shapes"], row["dtypes"]) == ("", "")
    assert len(trace.events) == 3


def test_nothing_of_the_metadata_is_kept(tmp_path: Path) -> None:
    secret = '"env": {"TOKEN": "hf_secret"}, "traceName": "/home/someone/hf_secret.json"'
    trace = read_text(tmp_path, text_of(event(), before=secret + ",", after="," + secret))
    assert "secret" not in repr(trace.__dict__) + trace.events.to_csv()


@pytest.mark.parametrize("place", ["before", "after"])
def test_zero_may_stand_on_both_sides_of_the_events(place: str, tmp_path: Path) -> None:
    lists = '"devices": [{"id": 0, "name": "A"}, {"name": "B", "id": 1}], "baseTimeNanoseconds": 1700000000000000001'
    sides = {"before": f"{lists}," if place == "before" else "", "after": f", {lists}" if place == "after" else ""}
    for chunk in (5, 50, 500, 5000):
        trace = read_in_chunks(save(tmp_path, text_of(event(), event(), **sides)), chunk)
        assert (trace.base_ns, len(trace.events), trace.warnings) == (1700000000000000001, 2, ())


# --- text ---


@pytest.mark.parametrize("chunk", [3, 64, 1 << 20])
def test_text_that_looks_like_structure(chunk: int, tmp_path: Path) -> None:
    names = ['a}, {"ph": "X", "ts": 1', '"traceEvents": [', 'dur": 7, ]}', "\\", '\\"}, {', "naïve ☃", "{[}]"]
    nested = {"list": [{"name": "a", "ts": 1}, {"name": "b"}, {"ts": 2.5}], "baseTimeNanoseconds": 5}
    path = save(tmp_path, text_of(*(event(name=name, args=nested) for name in names), before='"a": "traceEvents: [",'))
    trace = read_in_chunks(path, chunk)
    assert trace.events["name"].tolist() == names
    assert (trace.events["start"] == 10000).all()
    assert (trace.base_ns, trace.warnings) == (0, ())


@pytest.mark.parametrize("chunk", [3, 64, 1 << 20])
def test_raw_control_characters_and_bad_text_are_replaced(chunk: int, tmp_path: Path) -> None:
    bad = [event(name="a@b").encode().replace(b"@", byte) for byte in (b"\x01", b"\n", b"\xff", b"\\ud800")]
    good = [event(name="c").encode(), event(name="d\x1be").encode()]
    path = save(tmp_path, b'{"traceEvents": [' + b",".join([good[0], *bad, *good]) + b"]}")
    trace = read_in_chunks(path, chunk)
    assert trace.events["name"].tolist() == ["c", "a b", "a b", "a\ufffdb", "a b", "c", "d e"]
    assert trace.warnings == (
        "4 events with raw control characters, bad UTF-8 or numbers that JSON has not (NaN) were read all the same",
    )


@pytest.mark.parametrize("chunk", [3, 64, 1 << 20])
def test_stretches_that_are_no_json_are_left_out(chunk: int, tmp_path: Path) -> None:
    bad = event(name="@").replace("@", 'operator "" _s')
    events = [event(name=name) for name in "abcd"]
    trace = read_in_chunks(save(tmp_path, text_of(events[0], bad, bad, *events[1:3], bad, events[3])), chunk)
    assert trace.events["name"].tolist() == ["a", "b", "c", "d"]
    assert trace.warnings == ("2 stretches of the file are no JSON and were left out",)


# --- times ---


def decimal_text(ns: int, decimals: int) -> str:
    """`ns` in microseconds with at least `decimals` decimals."""
    whole, rest = divmod(ns, 1000)
    digits = f"{rest:03d}".rstrip("0").ljust(decimals, "0")
    return f"{whole}.{digits}" if digits else str(whole)


starts_ns = st.integers(min_value=1, max_value=8 * 10**15)  # 0 may be a time that was lost
durations_ns = st.integers(min_value=0, max_value=8 * 10**15)
spans = st.lists(st.tuples(starts_ns, durations_ns, st.integers(0, 6), st.booleans()), min_size=1, max_size=20)


@settings(deadline=None)
@given(spans=spans, chunk=st.integers(1, 4000))
def test_times_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, spans: Any, chunk: int) -> None:
    quoted = [
        [f'"{decimal_text(ns, decimals)}"' if text else decimal_text(ns, decimals) for ns in (start, duration)]
        for start, duration, decimals, text in spans
    ]
    path = save(tmp_path_factory.getbasetemp(), text_of(*(event(ts, dur) for ts, dur in quoted)), "exact.json")
    rows = read_in_chunks(path, chunk).events[["start", "end"]].itertuples(index=False, name=None)
    assert sorted(rows) == sorted((start, start + duration) for start, duration, _, _ in spans)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("0.001", 1),
        ("0.0004", 0),
        ("0.0006", 1),
        ("-1.5", -1500),
        ("-0.500", -500),
        ("5102506972292.757", 5102506972292757),
        ("1694128201428551", 1694128201428551000),
        ("1694128201428551.25", 1694128201428551250),
        ("1.5e3", 1500000),
        ("12E2", 1200000),
        ("25e-4", 2),
    ],
)
def test_times_as_other_writers_put_them(text: str, ns: int, tmp_path: Path) -> None:
    trace = read_text(tmp_path, text_of(event(ts=text, dur="1.001")))
    assert trace.events[["start", "end"]].to_numpy().tolist() == [[ns, ns + 1001]]


@pytest.mark.parametrize("text", ["null", '"soon"', "{}", "true", '"nan"'])
def test_events_without_a_usable_time_are_counted(text: str, tmp_path: Path) -> None:
    trace = read_text(tmp_path, text_of(event(), event(ts=text), event(dur=text)))
    assert len(trace.events) == 1
    assert trace.warnings == ("2 events without a usable time were left out",)


@pytest.mark.parametrize("text", ["1e999999999", "1e30", "9300000000000000", "1" * 400, '"18446744073709551.615"'])
def test_times_beyond_the_range_are_no_times_but_the_span_was_there(text: str, tmp_path: Path) -> None:
    trace = read_text(tmp_path, text_of(event(), event(ts=text), event(dur=text), event(dur="-1")))
    assert trace.events[["start", "end"]].to_numpy().tolist() == [[10000, 15000], [10000, 10000], [10000, 10000]]
    assert trace.warnings[:2] == (
        "1 events without a usable time were left out",
        "2 spans of an impossible duration were kept with none",
    )


def test_rows_are_sorted_outer_span_first(tmp_path: Path) -> None:
    trace = read_text(tmp_path, text_of(event("3", "1"), event("1", "1"), event("1", "5"), event("0", "0")))
    assert trace.events[["start", "end"]].to_numpy().tolist() == [[0, 0], [1000, 6000], [1000, 2000], [3000, 4000]]


# --- files ---


def test_gzip_is_known_by_content(tmp_path: Path) -> None:
    text = text_of(event()).encode()
    two_members = gzip.compress(text[:50]) + gzip.compress(text[50:])
    files = [save(tmp_path, text, "plain.gz"), save(tmp_path, gzip.compress(text), "zipped.json")]
    for path in [*files, save(tmp_path, two_members, "two.gz"), save(tmp_path, b"\xef\xbb\xbf \n" + text, "mark.json")]:
        trace = read(path)
        assert (len(trace.events), trace.warnings) == (1, ())


def test_bare_list(tmp_path: Path) -> None:
    trace = read_text(tmp_path, f" [{event()}, {event()}]\n")
    assert (len(trace.events), trace.warnings) == (2, ())


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("chunk", [11, 1 << 20])
def test_a_file_that_breaks_off_keeps_its_whole_events(chunk: int, zipped: bool, tmp_path: Path) -> None:
    events = [event(str(ts), name=f"op {ts}", args={"list": [{"name": ts}, {"name": 2}]}) for ts in range(5)]
    text = text_of(*events).encode()
    ends = [text.index(piece.encode()) + len(piece) for piece in events]
    for cut in range(ends[0], len(text)):
        path = save(tmp_path, gzip.compress(text[:cut], 0, mtime=0)[:-8] if zipped else text[:cut])
        trace = read_in_chunks(path, chunk)
        kept = sum(end <= cut for end in ends)
        assert trace.events["name"].tolist() == [f"op {ts}" for ts in range(kept)]
        if text[:cut].rstrip().endswith(b"]"):  # all that is missing is the last brace
            continue
        assert trace.warnings == (f"the file breaks off: the {kept} events up to there were kept",)


AFTER = "the file breaks off after its events, which were all kept"


@pytest.mark.parametrize("chunk", [11, 1 << 20])
@pytest.mark.parametrize(
    ("text", "warnings", "complete"),
    [
        ('{"traceEvents": [EVENT], "baseTimeNano', (AFTER,), True),
        ('{"traceEvents": [EVENT]}\0', (AFTER,), True),
        ("[EVENT];", (AFTER,), True),
        ("[EVENT", (), True),  # which the format allows
        ("[EVENT,\n", (), True),
        ('[EVENT, {"ph', ("the file breaks off: the 1 events up to there were kept",), False),
        ('{"traceEvents": [EVENT', ("the file breaks off: the 1 events up to there were kept",), False),
    ],
)
def test_what_is_whole_is_the_list_of_events(
    tmp_path: Path, text: str, warnings: tuple[str, ...], complete: bool, chunk: int
) -> None:
    trace = read_in_chunks(save(tmp_path, text.replace("EVENT", event()).encode()), chunk)
    assert (len(trace.events), trace.warnings, trace.complete) == (1, warnings, complete)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"hello", "is not a trace"),
        (b'{"a": 1}', "is not a trace"),
        (b'{"traceEvents": {}}', "is not a trace"),
        (b'{"traceEvents"', "is not a trace"),
        (b"SQLite format 3\0", "is not a trace"),
        (b"\x1f\x8bnot gzip at all", "is damaged gzip"),
        (gzip.compress(text_of(event()).encode(), mtime=0)[:-8] + bytes(8), "is damaged gzip"),
        (b'{"traceEvents": []}', "holds no events"),
        (b"[1, 2, 3]", "holds no events"),
        (b'{"traceEvents": [{"ph": "X", "na', "holds no events (the file breaks off"),
        (text_of(event(cat="hpu_op")).encode(), "holds no events (1 events of unknown categories"),
        (text_of(event(ph="i")).encode(), "holds no events"),
    ],
)
def test_bad_files_are_one_sentence(content: bytes, reason: str, tmp_path: Path) -> None:
    path = save(tmp_path, content)
    with pytest.raises(QrprofError) as caught:
        read(path)
    assert f"{path} {reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(QrprofError, match="cannot read"):
            read(path)


def attempt(path: Path, content: bytes, chunk: int) -> None:
    """Read whatever it is: a trace in order, or the one error a person sees."""
    path.write_bytes(content)
    try:
        trace = read_in_chunks(path, chunk)
    except QrprofError:
        return
    assert len(trace.events) > 0
    assert (trace.events["start"] <= trace.events["end"]).all()
    assert trace.events["start"].is_monotonic_increasing


starts = st.sampled_from([b"", b"[", b'{"traceEvents": [', b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b'[{"ph":"X"'])


@settings(deadline=None)
@given(start=starts, content=st.binary(max_size=400), chunk=st.integers(1, 500))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, start: bytes, content: bytes, chunk: int) -> None:
    attempt(tmp_path_factory.getbasetemp() / "random.json", start + content, chunk)


scraps = st.one_of(
    st.binary(max_size=6), st.sampled_from([b'"', b"}", b"]", b"[", b"{", b",", b'"ts": ', b"\\", b"9" * 5000])
)
damages = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 60), scraps), min_size=1, max_size=4)


@settings(deadline=None)
@given(damages=damages, chunk=st.integers(1, 2000), zipped=st.booleans())
def test_damaged_traces(tmp_path_factory: pytest.TempPathFactory, damages: Any, chunk: int, zipped: bool) -> None:
    args = {"Input Dims": [[2, 3]], "Input type": ["float"], "correlation": 4, "device": 0, "stream": 7}
    text = text_of(
        event(args=args), kernel(args), event(), event(args=args), after=', "baseTimeNanoseconds": 5'
    ).encode()
    content = gzip.compress(text) if zipped else text
    for place, length, scrap in damages:
        at = int(place * len(content))
        content = content[:at] + scrap + content[at + length :]
    attempt(tmp_path_factory.getbasetemp() / "damaged.json", content, chunk)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_anywhere(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    names = ("Input Dims", "Input type", "correlation", "device", "stream", "bytes", "Sequence number")
    fields = ("name", "cat", "pid", "tid", "args", "ph")
    events = [kernel(dict.fromkeys(names, value)), *(event(**{name: value}) for name in fields), event()]
    attempt(tmp_path_factory.getbasetemp() / "any.json", text_of(*events).encode(), 4096)
