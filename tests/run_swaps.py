"""Swaps as if a person had accepted them: the files that `qrprof run` reads, in a folder with its own configuration."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from qrprof.kernels import swapfile
from qrprof.kernels.sources import own_sha256
from qrprof.kernels.swapfile import Case, Entry
from qrprof.kernels.trust import trust
from qrprof.profiler.store import FOLDER

INCLUDED = Entry("qr", "included", "", own_sha256("included", "qr"), "", "cpu", "", "", ())
SOFTMAX = """\
import torch
def candidate(x, dim, half_to_float):
    shifted = (x - x.amax(dim, keepdim=True)).exp_()
    return shifted / shifted.sum(dim, keepdim=True)
"""
ROWS = Case((((1, 64), (10, 10)),), ("float32",), (1, False), "", False)


def candidate(source: str, *cases: Case, op: str = "_softmax") -> Entry:
    """The entry of a candidate file with this text."""
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    return Entry(f"{op}-{sha256[:6]}", "candidate", op, sha256, "", "cpu", "", "", cases or (ROWS,))


def write(folder: Path, entries: Sequence[Entry], sources: Sequence[str] = ()) -> Path:
    """The swaps.json of a project and the candidates beside it; nobody has accepted them."""
    path = folder / FOLDER / swapfile.FILE
    path.parent.mkdir(exist_ok=True)
    swapfile.write(path, entries)
    for source in sources:
        file = swapfile.candidate_file(path, hashlib.sha256(source.encode()).hexdigest())
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
    return path


def accept(folder: Path, entries: Sequence[Entry], sources: Sequence[str] = ()) -> Path:
    """The same, accepted by this user: what $QRPROF_CONFIG names trusts it."""
    path = write(folder, entries, sources)
    for entry in entries:
        trust(swapfile.project_of(path), entry, datetime.now(UTC))
    return path
