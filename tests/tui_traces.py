"""Runs of our traces of an H200, for the views that need a device."""

import shutil
from pathlib import Path

from tui_runs import SMALL, change, run_folder

DATA = Path(__file__).parent / "data"


def add_recorded(root: Path, name: str, run: str = "20260131-120000-train") -> Path:
    """The small run with a recorded trace; nothing is known of its unprofiled steps."""
    folder = run_folder(root, run)
    shutil.copytree(SMALL, folder)
    shutil.copy(DATA / f"own_h200_{name}.json.gz", folder / "rank0.trace.json.gz")
    changes = {"trace": "rank0.trace.json.gz", "recorded": [], "unprofiled": [], "linalg": []}
    change(folder, lambda record: record.update(changes))
    return folder
