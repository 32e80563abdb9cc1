"""What a view shows, as text for the clipboard and for files."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import replacing
from qrprof.tui.app.views import Shown

FORMATS: Final = (".csv", ".json", ".svg")


def tsv(cells: Sequence[str]) -> str:
    return "\t".join(cells)


def markdown(shown: Shown) -> str:
    """A table; bars in a cell of their own are kept, pipes escaped."""
    lines = [shown.columns, ["---"] * len(shown.columns), *shown.rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def as_csv(shown: Shown) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([shown.columns, *shown.rows])
    return text.getvalue()


def as_json(shown: Shown) -> str:
    rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    return json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n"


def export(path: Path, shown: Shown, svg: str) -> None:
    """Write what is shown in the format that the path's ending names, whole or not at all.

    Raises QrprofError where the ending is unknown, or the file cannot be written.
    """
    if path.suffix not in FORMATS:
        raise QrprofError(f"{path} has none of the endings {', '.join(FORMATS)}; give one", Exit.USAGE)
    text = svg if path.suffix == ".svg" else (as_csv if path.suffix == ".csv" else as_json)(shown)
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise QrprofError(f"cannot write {path}: {error.strerror}; name another file") from None
