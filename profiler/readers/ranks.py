"""Files of traces of any kind as their processes: a file, a folder or an archive of them, known by content."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.readers import kineto, nsys
from qrprof.profiler.readers.chrome import BLANK, CHUNK, LIST_START, Progress, read_chunks
from qrprof.profiler.readers.export import SQLITE
from qrprof.profiler.readers.source import Source

HEAD: Final = 4096  # bytes; what is in a file shows in them
MEMBERS: Final = 65_536  # of an archive: a trace for each rank
TAR_MAGIC: Final = slice(257, 262)
METADATA_KEYS: Final = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')  # one leads a Kineto trace
REPORTS: Final = (".nsys-rep", ".qdrep")  # Nsight Systems' own format


def sources_of(path: Path, progress: Progress | None = None) -> Iterator[Source]:
    """The processes in a trace, an archive (tar, plain or gzip) or a folder of them, by name.

    Files of a folder or an archive that do not look like traces are passed over, and files of a folder that cannot be
    read so far as to tell. Raises QrprofError where another file cannot be read, is no trace or is a damaged one, and
    where there is no trace at all.
    """
    if path.is_dir():
        return in_folder(path, progress)
    if path.suffix in REPORTS:
        raise QrprofError(
            f"{path} is a report of Nsight Systems: import what `nsys export --type sqlite {path}` writes"
        )
    if head(path)[TAR_MAGIC] == b"ustar":
        return in_archive(path, progress)
    return iter(in_file(path, progress))


def in_file(path: Path, progress: Progress | None = None) -> list[Source]:
    if not head(path).startswith(SQLITE):
        return [kineto.read_source(path, progress)]
    with path.open("rb") as file:
        if not file.read(len(SQLITE)).startswith(SQLITE):
            raise QrprofError(f"{path} is a compressed database: import what `gunzip` makes of it")
    return nsys.read_sources(path, progress)


def in_folder(folder: Path, progress: Progress | None) -> Iterator[Source]:
    """What cannot be read to its first bytes may be anything: the first source's warnings count it."""
    paths, unreadable = traces_in(folder)
    remarks = (f"{unreadable} files of {folder} could not be read and were passed over",) if unreadable else ()
    if not paths:
        reason = f" ({remarks[0]})" if remarks else ""
        raise QrprofError(f"{folder} holds no traces{reason}; give the folder that the profiler wrote to")
    for path in paths:
        for source in in_file(path, progress):
            warnings = (*source.trace.warnings, *remarks)
            yield replace(source, trace=replace(source.trace, warnings=warnings)) if remarks else source
            remarks = ()


def traces_in(folder: Path) -> tuple[list[Path], int]:
    """The files that look like traces, by name; and how many cannot be read so far as to tell."""
    paths, unreadable = [], 0
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file() and looks_like_a_trace(head(path)):
                paths.append(path)
        except QrprofError:
            unreadable += 1
    return paths, unreadable


def in_archive(path: Path, progress: Progress | None) -> Iterator[Source]:
    found = False
    for name, unpacked in members(path):
        found = True
        yield from in_member(path, name, unpacked, progress)
    if not found:
        raise QrprofError(f"{path} is an archive without traces; give one of what the profiler wrote")


def members(path: Path) -> Iterator[tuple[str, Path]]:
    """The names of the traces in an archive, each unpacked to a temporary file: an SQLite database needs one.

    Links, devices and sparse files, which may be of any size, are passed over; no name decides where something is
    written. Raises QrprofError where the archive is damaged or there is no room.
    """
    try:
        with (
            closing(read_chunks(path, CHUNK)) as chunks,
            tarfile.open(fileobj=cast("BinaryIO", Stream(chunks)), mode="r|") as archive,
            tempfile.TemporaryDirectory(prefix="qrprof-") as folder,
        ):
            unpacked = Path(folder) / "member"
            for count, member in enumerate(iter(archive.next, None), 1):
                if count > MEMBERS:
                    raise QrprofError(f"{path} holds over {MEMBERS:,} files; unpack it and import the folder")
                # It would keep them all.
                archive.members.clear()  # type: ignore[attr-defined]
                packed = archive.extractfile(member) if member.isfile() and not member.issparse() else None
                if packed is None:
                    continue
                with packed, unpacked.open("wb") as file:
                    file.write(packed.read(CHUNK))
                    file.flush()
                    wanted = looks_like_a_trace(head(unpacked))
                    if wanted:
                        shutil.copyfileobj(packed, file)
                if wanted:
                    yield member.name, unpacked
    except (tarfile.TarError, EOFError, ValueError, OverflowError):  # the last two of numbers in its headers
        raise QrprofError(f"{path} is a damaged archive; copy or make it again") from None
    except OSError as error:
        raise QrprofError(f"cannot unpack {path}: {error.strerror or error}; unpack it and import the folder") from None


@dataclass
class Stream:
    """Pieces of a file as a file to read from front to back: all that tarfile asks of one in this mode."""

    chunks: Iterator[bytes]
    held: bytes = b""

    def read(self, size: int) -> bytes:
        self.held = self.held or next(filter(None, self.chunks), b"")
        piece, self.held = self.held[:size], self.held[size:]
        return piece


def in_member(path: Path, name: str, unpacked: Path, progress: Progress | None) -> list[Source]:
    try:
        sources = in_file(unpacked, progress)
    except QrprofError as error:
        raise QrprofError(str(error).replace(str(unpacked), f"{name} of {path}"), error.exit_code) from None
    return [replace(one, path=path, part=f"{name}, {one.part}" if one.part else name) for one in sources]


def head(path: Path) -> bytes:
    """The first bytes of a file, unpacked where it is gzip."""
    text = b""
    with closing(read_chunks(path, HEAD)) as chunks:
        for chunk in chunks:
            text += chunk
            if len(text) >= HEAD:
                break
    return text


def looks_like_a_trace(text: bytes) -> bool:
    if text.startswith(SQLITE):
        return True
    text = text.lstrip(BLANK)
    listed = LIST_START.search(text)
    if listed and listed[0] == b"[":
        return b'"ph"' in text
    return listed is not None or (text.startswith(b"{") and any(key in text for key in METADATA_KEYS))
