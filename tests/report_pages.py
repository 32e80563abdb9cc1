"""Reports of runs that are ours, and what is in a page."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from tui_runs import add_small, change, ops

from qrprof.tui.app.session import Session
from qrprof.tui.cli import run
from qrprof.tui.report.page import redactor_of, write_page

HOSTILE: Final = (
    "</script><script>window.ran=1</script>",
    '"><img src=x onerror="window.ran=1">',
    "<!--<script>window.ran=1</script>",
    "\"double\" 'single' `back`",
    "&lt;b&gt;<b>bold</b>&amp;",
    "${window.ran=1} $title $data",
    "javascript:window.ran=1",
    "\U0001f600 \U00010348 \u2028 \u2029",
    "]]> */ // \\u003c \\",
)
ODD: Final = ("\u202eevil", "a\x00b\x1b[31m", "\ud800 lone")  # whose characters are not all shown


class Elements(HTMLParser):
    """The elements of a page by tag, with their attributes and the text inside, and all text by section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.sections: dict[str, str] = {}
        self.open, self.section = "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open = tag
        if tag in self.raw:
            self.raw[tag].append("")
        if tag == "section":
            self.section = dict(attrs)["id"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.open = ""
        self.section = "" if tag == "section" else self.section

    def handle_data(self, data: str) -> None:
        if self.open in self.raw:
            self.raw[self.open][-1] += data
        else:
            self.sections[self.section] = f"{self.sections.get(self.section, '')} {data}"

    def text(self, section: str) -> str:
        return " ".join(self.sections[section].split())

    def tags(self) -> list[str]:
        return [tag for tag, _ in self.found]

    @property
    def data(self) -> Any:
        return json.loads(self.raw["script"][0], parse_constant=lambda text: 1 / 0)


def report(*args: str) -> Elements:
    """What `qrprof report` writes in the working folder."""
    assert run(["report", "--html", "report.html", *args]) == 0
    return Elements(Path("report.html").read_text(encoding="utf-8"))


def page_of(folder: Path, root: Path, redacted: bool = False) -> str:
    session = Session(folder)
    return write_page(session, root, redactor_of(session, redacted))


def hostile_page(root: Path) -> Path:
    """The report of a run whose ops are called HOSTILE and ODD, and its command, device and notes are HOSTILE."""
    folder = add_small(root, ops([*HOSTILE, *ODD]))
    device = {"index": 0, "kind": "cpu", "name": HOSTILE[1], "memory_bytes": 0}
    told = {"command": list(HOSTILE), "devices": [device], "notes": list(HOSTILE), "versions": {HOSTILE[2]: HOSTILE[3]}}
    change(folder, lambda record: record.update(told))
    path = root / "report.html"
    path.write_text(page_of(folder, root), encoding="utf-8")
    return path
