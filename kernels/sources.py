"""The source of what this library swaps in itself, as one hash. Without torch."""

import hashlib
from pathlib import Path
from typing import Final

from qrprof.kernels.swapfile import Kind

HERE: Final = Path(__file__).parent
PATTERNS: Final = {"included": ("{}/*.py", "{}/*.cu"), "adapter": ("adapters/{}.py",)}


def own_sha256(kind: Kind, name: str) -> str:
    """Of the files of the included kernels `name` ("qr"), or of the adapter `name`; "" where there are none."""
    if kind == "candidate" or not name.isidentifier():
        return ""
    files = sorted(path for pattern in PATTERNS[kind] for path in HERE.glob(pattern.format(name)))
    parts = [f"{path.name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files]
    return hashlib.sha256("".join(parts).encode()).hexdigest() if parts else ""
