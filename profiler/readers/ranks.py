"""Files of traces of any kind as their processes: a file, a folder or an archive of them, known by content."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.readers import kineto, nsys
from qrprof.profiler.readers.chrome import BLANK, LIST_START, Progress, read_chunks
from qrprof.profiler.readers.export import SQLITE
from qrprof.profiler.readers.source import Source

HEAD: Final = 4096  # bytes; what is in a file shows in them
TAR_MAGIC: Final = slice(257, 262)
METADATA_KEYS: Final = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')  # one leads a Kineto trace
REPORTS: Final = (".nsys-rep", ".qdrep")  # Nsight Systems' own format


def sources_of(path: Path, progress: Progress | None = None) -> Iterator[Source]:
    """The processes in a trace, an archive (tar, plain or gzip) or a folder of them, by name.

    Files of a folder or an archive that do not look like traces are passed over. Raises QrprofError where a file
    cannot be read, is no trace or is a damaged one, and where there is no trace at all.
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
    found = False
    for path in sorted(folder.rglob("*")):
        if path.is_file() and looks_like_a_trace(head(path)):
            found = True
            yield from in_file(path, progress)
    if not found:
        raise QrprofError(f"{folder} holds no traces; give the folder that the profiler wrote to")


def in_archive(path: Path, progress: Progress | None) -> Iterator[Source]:
    """A member is unpacked to a temporary file while it is read: an SQLite database needs one."""
    found = False
    try:
        with tarfile.open(path) as archive, tempfile.TemporaryDirectory(prefix="qrprof-") as folder:
            for member in archive:
                packed = archive.extractfile(member) if member.isfile() else None
                if packed is None:
                    continue
                unpacked = Path(folder) / "member"
                with packed, unpacked.open("wb") as file:
                    shutil.copyfileobj(packed, file)
                if looks_like_a_trace(head(unpacked)):
                    found = True
                    yield from in_member(path, member.name, unpacked, progress)
    except (tarfile.TarError, EOFError, zlib.error):
        raise QrprofError(f"{path} is a damaged archive; copy or make it again") from None
    except OSError as error:
        raise QrprofError(f"cannot unpack {path}: {error.strerror or error}; unpack it and import the folder") from None
    if not found:
        raise QrprofError(f"{path} is an archive without traces; give one of what the profiler wrote")


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
