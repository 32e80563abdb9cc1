"""What this library swaps in itself: the ops, and the source as one hash. Without torch."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qrprof.kernels.swapfile import Kind

HERE: Final = Path(__file__).parent
OPS: Final[Mapping[str, tuple[str, ...]]] = {"qr": ("linalg_qr", "geqrf", "linalg_householder_product")}


def own_sha256(kind: Kind, name: str) -> str:
    """Of the files of the included kernels `name` ("qr"), or of the adapter `name`; "" where there are none."""
    if kind == "included" and name in OPS:
        files = [path for path in (HERE / name).iterdir() if path.suffix in (".py", ".cu", ".cuh")]
    elif kind == "adapter" and name.isidentifier() and (HERE / "adapters" / f"{name}.py").is_file():
        files = list((HERE / "adapters").glob("*.py"))
    else:
        return ""
    parts = [f"{path.name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in sorted(files)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
