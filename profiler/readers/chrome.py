"""Chrome trace JSON as a stream of event batches: bounded memory, and no time is rounded.

The text is cut only where one event ends and the next begins. An unescaped quote cannot stand inside
a JSON string, so `}, {"ph"` is always structure; it may still lie inside an event's nested list, and
then the piece is no JSON and is read event by event.

A time of three decimals is one double and no other below 2**43 us. Where a longer one is in sight,
times are kept as their decimal text.
"""

import json
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from qrprof.profiler.errors import QrprofError

CHUNK: Final = 128 << 10  # bytes; what is parsed stays in the processor's cache: 4 MiB take twice as long
NEAR: Final = 16 << 10  # bytes; the last event of a piece is nearly always shorter
EVENT_LIMIT: Final = 16 << 20  # bytes; no header and no event is longer
UNPACKED: Final = 256 << 20  # bytes that any compressed file may hold
RATIO: Final = 200  # of a larger one's size to its compressed size; of traces that people recorded it was at most 38
METADATA_LIMIT: Final = 100  # a file says each once; in texts its key may stand again
PROGRESS_EVERY: Final = 1 << 20  # bytes
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_FORMAT: Final = 31  # zlib's code for "a gzip header and trailer"
EXACT_BELOW: Final = 2.0**43  # us; from here on not every ns has a double of its own
KEY_WINDOW: Final = 100  # bytes; holds a key and the start of its value
BLANK: Final = b" \t\r\n\xef\xbb\xbf"  # white space and the byte order mark
SEPARATORS: Final = b" \t\r\n,"
MEMBER: Final = re.compile(rb"[^\s,]")  # the first byte of a list's next member, or its end

LIST_START: Final = re.compile(rb'\A\[|"traceEvents"\s*:\s*\[')
EVENT_END: Final = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|name|cat|pid|ts)")')
BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\s*[,}]')
METADATA: Final = re.compile(
    r'"(distributedInfo|deviceProperties|cuda_runtime_version|hip_runtime_version|roctracer_version)"\s*:\s*'
)
# The byte after the number must be in sight: at the end of a piece the number may go on.
TIME: Final = re.compile(rb'"(ts|dur)"\s*:\s*(-?\d[\d.eE+-]*)(?=[\s,}])')
TIME_AS_TEXT: Final = rb'"\1":"\2"'

LENIENT: Final = json.JSONDecoder(strict=False)

Batch = list[Any]
Progress = Callable[[int, int], None]  # bytes of the file done, and all


@dataclass
class Found:
    """What a reading has met beside the events."""

    base_ns: int = 0  # wall time of the trace's zero
    repaired: int = 0  # events that only a lenient parser takes: raw control characters, bad UTF-8
    broken: int = 0  # stretches that no parser takes: one event or several that follow each other
    bare: bool = False  # the file is the list of events alone, whose closing bracket may be left out
    listed: bool = False  # the list of events was there to its end
    complete: bool = False  # and so was what follows it
    metadata: dict[str, Any] = field(default_factory=dict)  # of the keys in METADATA: all others are never parsed


def event_batches(
    path: Path, found: Found, chunk_bytes: int = CHUNK, progress: Progress | None = None
) -> Iterator[Batch]:
    """Yield the members of `traceEvents` (or of a bare list) in batches; `ts` and `dur` as numbers or decimal text.

    Raises QrprofError where the file cannot be read or is no trace. A file that breaks off yields its
    whole events and leaves `found.complete` false, and `found.listed` where it does so within the list.
    """
    chunks = read_chunks(path, chunk_bytes, progress)
    held, ended, enough = open_list(path, chunks, found), False, 0
    for chunk in chain((b"",), chunks):
        held += chunk
        if len(held) < enough:
            continue
        cut = last_cut(held)
        batch, rest = parse(held[:cut], found)
        yield batch
        held, ended = rest + held[cut:], rest.startswith(b"]")
        enough = 0 if batch else 2 * len(held)  # a long event is not parsed anew with each piece of it
        if ended or len(held) > EVENT_LIMIT:
            break
    if not ended:
        batch, held = parse(held, found)
        yield batch
        ended = held.startswith(b"]")
    found.listed = ended or (found.bare and not held.strip(SEPARATORS))
    closed = read_tail(chain((held,), chunks), found)  # all of it: what unpacks to too much is refused
    found.complete = closed if ended else found.listed


def read_chunks(path: Path, size: int, progress: Progress | None = None) -> Generator[bytes, None, None]:
    """The file's text in pieces of at most `size` bytes; gzip is known by its content, not by its name."""
    try:
        with path.open("rb") as file:
            compressed = file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
            chunks = inflate(file, size, path) if compressed else iter(lambda: file.read(size), b"")
            yield from chunks if progress is None else told(chunks, file, path.stat().st_size, progress)
    except zlib.error as error:
        raise QrprofError(f"{path} is damaged gzip ({error}); copy or record it again") from None
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}; give the file of a trace") from None


def told(chunks: Iterator[bytes], file: BinaryIO, total: int, progress: Progress) -> Iterator[bytes]:
    """Pass on the chunks and report the file's position now and then."""
    due = 0
    for chunk in chunks:
        if file.tell() >= due:
            progress(file.tell(), total)
            due = file.tell() + PROGRESS_EVERY
        yield chunk
    progress(total, total)


def inflate(file: BinaryIO, size: int, path: Path) -> Iterator[bytes]:
    """Decompress member by member. A file that breaks off gives all that is there, without an error.

    Raises QrprofError where it holds more than a trace of its size can.
    """
    engine, data, done = zlib.decompressobj(GZIP_FORMAT), b"", 0
    limit = max(UNPACKED, RATIO * path.stat().st_size)
    while data := data or file.read(size):
        if engine.eof:
            engine = zlib.decompressobj(GZIP_FORMAT)
        chunk = engine.decompress(data, size)
        done += len(chunk)
        if done > limit:
            raise QrprofError(f"{path} unpacks to over {RATIO} times its size, as no trace does; unpack it yourself")
        yield chunk
        data = engine.unused_data if engine.eof else engine.unconsumed_tail
    yield engine.flush()


def open_list(path: Path, chunks: Iterator[bytes], found: Found) -> bytes:
    """Read up to the list of events; return what was read beyond its bracket."""
    head = b""
    for chunk in chunks:
        head = (head + chunk).lstrip(BLANK)
        if start := LIST_START.search(head, max(0, len(head) - len(chunk) - KEY_WINDOW)):
            note_metadata(head[: start.start()], found)
            found.bare = head.startswith(b"[")
            return head[start.end() :]
        if not b"{".startswith(head[:1]) or len(head) > EVENT_LIMIT:
            break
    if not head:
        raise QrprofError(f"{path} is empty: its program ended before the trace was written; record it again")
    raise QrprofError(f"{path} is not a trace: it has no list of traceEvents; give what export_chrome_trace wrote")


def last_cut(text: bytes) -> int:
    """Where the last event that another one follows ends; the whole length where there is none."""
    for begin in (max(0, len(text) - NEAR), 0):
        ends = [match.end() for match in EVENT_END.finditer(text, begin)]
        if ends:
            return ends[-1]
    return len(text)


def parse(text: bytes, found: Found) -> tuple[Batch, bytes]:
    """The events of `text`, and the rest: an event that goes on, or the end of the list from its `]`."""
    text = text.lstrip(SEPARATORS)
    try:
        batch = orjson.loads(b"[" + text + b"]")
        return (orjson.loads(b"[" + TIME.sub(TIME_AS_TEXT, text) + b"]") if any(map(inexact, batch)) else batch), b""
    except orjson.JSONDecodeError:
        return parse_singly(TIME.sub(TIME_AS_TEXT, text), found)


def inexact(event: Any) -> bool:
    """Whether the event starts at a time that a double cannot hold to the ns."""
    start = event.get("ts") if type(event) is dict else None
    return type(start) is float and not start < EXACT_BELOW


def parse_singly(text: bytes, found: Found) -> tuple[Batch, bytes]:
    batch: Batch = []
    characters = text.decode("latin-1")  # one a byte: positions hold for both
    end = 0
    while (member := MEMBER.search(text, end)) and member[0] != b"]":
        start = member.start()
        stop = value_end(characters, start)
        if stop is not None:
            batch.append(decode(text[start:stop], found))
            end = stop
            continue
        following = next_event(text, characters, start)
        if following is None:
            return batch, text[start:]
        found.broken += 1
        end = following
    return batch, text[member.start() :] if member else b""


def value_end(characters: str, start: int) -> int | None:
    try:
        return LENIENT.raw_decode(characters, start)[1]
    except (ValueError, RecursionError):
        return None


def next_event(text: bytes, characters: str, start: int) -> int | None:
    """Where the next whole event begins; a member of a nested list is none, it has no phase."""
    ends = [match.end() for match in EVENT_END.finditer(text, start)]
    for end, limit in pairwise([*ends, len(text)]):  # a look at the next one only: the whole stays linear
        begin = text.index(b"{", end)
        stop = value_end(characters[begin:limit], 0)
        if stop is not None and b'"ph"' in text[begin : begin + stop]:
            return begin
    return None


def decode(text: bytes, found: Found) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        found.repaired += 1
        return LENIENT.decode(text.decode("utf-8", "replace"))


def note_metadata(text: bytes, found: Found) -> None:
    if base := BASE.search(text):
        found.base_ns = int(base[1])
    characters = text.decode("utf-8", "replace")
    for key in islice(METADATA.finditer(characters), METADATA_LIMIT):
        with suppress(ValueError, RecursionError):
            found.metadata[key[1]] = LENIENT.raw_decode(characters, key.end())[0]


def read_tail(chunks: Iterable[bytes], found: Found) -> bool:
    """Note the metadata in what follows the events; whether the file is closed as JSON is."""
    tail, window = bytearray(), b""
    for chunk in chunks:
        if len(tail) < EVENT_LIMIT:
            tail += chunk
        window = window[-KEY_WINDOW:] + chunk
    note_metadata(bytes(tail), found)
    return window.rstrip().endswith((b"]", b"}"))
