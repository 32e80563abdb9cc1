"""`.qrprof/swaps.json`: what a program is to load, as it was accepted. Without torch.

The file is no permission: whoever made the folder wrote it. What this user accepted is in `trust`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import FOLDER, write_private

FILE: Final = "swaps.json"
SCHEMA: Final = 1
CANDIDATES: Final = "candidates"
SHA: Final = 12  # digits of a hash in the name of a file
REMEDY: Final = "`qrprof swaps list` in its folder writes it anew"

Kind = Literal["included", "candidate", "adapter"]
Plain = bool | int | float | str | None | tuple[bool | int | float, ...]  # what JSON holds; lists as tuples
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,80}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Range = tuple[int, int]  # both ends included


@dataclass(frozen=True)
class Case:
    """Calls that a candidate serves: it was judged on calls like these.

    `plain` are the plain arguments in their order, `layout` the order of all positional ones, "t" a tensor and "p" a
    plain value; "": all tensors, then all plain values. A dtype is given by its name: "float32". A dimension that
    may vary is as long in all tensors of a call.
    """

    shapes: tuple[tuple[Range, ...], ...]  # by tensor and dimension
    dtypes: tuple[str, ...]  # by tensor
    plain: tuple[Plain, ...]
    layout: str
    strided: bool  # of any strides; else contiguous


@dataclass(frozen=True)
class Entry:
    """One accepted swap. Of `device`, `machine` and `torch`, "" says any."""

    name: Name  # what a person calls it: "qr", "soap", "_softmax-3f2a91"
    kind: Kind
    op: str  # of a candidate: the op it replaces, as aten names it, without the namespace; else ""
    sha256: Sha256  # of the bytes of its source
    verdict: str  # id of the gate's; "": accepted without one
    device: Literal["cpu", "cuda", ""]
    machine: str  # name of the GPU or CPU that it was judged on
    torch: str  # version that it was judged with
    cases: tuple[Case, ...]  # of a candidate

    @property
    def digest(self) -> str:
        """sha256 of all that the entry says: the same source under another op, or for other calls, is another one."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


ENTRIES: Final = TypeAdapter(tuple[Entry, ...])


def read(path: Path) -> tuple[Entry, ...]:
    """Raises QrprofError where the file cannot be read, is damaged, or of an unknown schema."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise QrprofError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise QrprofError(f"{path} is damaged: it is not JSON; {REMEDY}") from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if isinstance(schema, int) and schema != SCHEMA:
        raise QrprofError(f"{path} has schema {schema}, this qrprof reads {SCHEMA}: {REMEDY}")
    try:
        return ENTRIES.validate_python(record["swaps"] if schema == SCHEMA else None)
    except (KeyError, ValidationError) as error:
        raise QrprofError(f"{path} is damaged: {first(error)}; {REMEDY}") from None


def first(error: KeyError | ValidationError) -> str:
    """Where the first thing is that is wrong."""
    if isinstance(error, KeyError):
        return "it lists no swaps"
    found = error.errors()[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else "it lists no swaps"


def write(path: Path, entries: Sequence[Entry]) -> None:
    """Whole or not at all, readable by its user alone. Raises QrprofError where that cannot be done."""
    record = {"schema": SCHEMA, "swaps": [asdict(entry) for entry in entries]}
    try:
        write_private(path, json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; make room, or its folder writable") from None


def project_of(path: Path) -> Path:
    """The folder that a file of swaps belongs to: the one whose `.qrprof` holds it, else its own.

    By the names in the path: a link to another project's file is no part of that project.
    """
    folder = path.absolute().parent
    return (folder.parent if folder.name == FOLDER else folder).resolve()


def same_torch(one: str, other: str) -> bool:
    """Whether two versions of torch are the same. The package's may leave out the build that torch names: "+cu130"."""
    builds = "+" in one and "+" in other
    return one == other if builds else one.partition("+")[0] == other.partition("+")[0]


def candidate_file(path: Path, sha256: str) -> Path:
    """Where the source of an entry lies, beside the file of swaps at `path`."""
    return path.parent / CANDIDATES / f"{sha256[:SHA]}.py"
