"""Blocks as HTML. Every text passes `Writer.text`, and nothing else puts text into a page.

Drawn parts are SVG with attributes: the page's policy allows no style attribute.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from qrprof.tui.output import Name, clean, cut, finite
from qrprof.tui.report.blocks import Bar, Block, Cell, Fields, Head, Items, Row, Section, Slot, Stack, Table

LONGEST = 72  # characters of a name in a cell, whose whole is its title
NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def embedded(record: Mapping[str, Any]) -> str:
    """JSON for a script element, in ASCII; no text in it can end the element or begin a comment."""
    return json.dumps(finite(record), separators=(",", ":")).translate(NO_MARKUP)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A record with all its texts changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {mapped(key, change): mapped(item, change) for key, item in value.items()}
    return [mapped(item, change) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Writer:
    redact: Callable[[str], str]

    def text(self, text: str) -> str:
        return escape(clean(self.redact(text)))

    def section(self, section: Section) -> str:
        lead = f"<p class=lead>{self.text(section.lead)}</p>" if section.lead else ""
        blocks = "\n".join(map(self.block, section.blocks))
        return f'<section id="{section.name}">\n<h2>{self.text(section.title)}</h2>\n{lead}\n{blocks}\n</section>'

    def block(self, block: Block) -> str:
        match block:
            case Table():
                return self.table(block)
            case Fields():
                pairs = (f"<dt>{self.text(label)}</dt><dd>{self.text(text)}</dd>" for label, text in block.pairs)
                return f"{self.heading(block.title)}<dl>{''.join(pairs)}</dl>"
            case Items():
                tag = "ol" if block.numbered else "ul"
                texts = "".join(f"<li>{self.text(text)}</li>" for text in block.texts)
                return f'{self.heading(block.title)}<{tag} class="items">{texts}</{tag}>'
            case Stack():
                return self.stack(block)
            case Slot():
                return f'<div id="{block.name}"><p class=none>{self.text(block.otherwise)}</p></div>'

    def heading(self, title: str) -> str:
        return f"<h3>{self.text(title)}</h3>" if title else ""

    # --- tables

    def table(self, table: Table) -> str:
        heads = "".join(f"<th{self.kind(head)} scope=col>{self.text(head.label)}</th>" for head in table.heads)
        rows = "\n".join(self.row(table.heads, row) for row in table.rows)
        total = ""
        if table.total is not None:
            total = f"<tfoot><tr>{self.cells(table.heads, table.total)}</tr></tfoot>"
        note = f"<p class=note>{self.text(table.note)}</p>" if table.note else ""
        return (
            f'{self.heading(table.title)}<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody>{total}</table></div>{note}"
        )

    def row(self, heads: Sequence[Head], row: Row) -> str:
        cells = f"<tr>{self.cells(heads, row.cells)}</tr>"
        if not row.says:
            return cells
        says = " ".join(f"<span>{self.text(text)}</span>" for text in row.says)
        first = next((place for place, head in enumerate(heads) if not head.right), 0)
        before = f"<td colspan={first} class=spare></td>" if first else ""
        return f"{cells}\n<tr class=says>{before}<td colspan={len(heads) - first}>{says}</td></tr>"

    def cells(self, heads: Sequence[Head], cells: Sequence[Cell]) -> str:
        return "".join(f"<td{self.kind(head)}>{self.cell(cell)}</td>" for head, cell in zip(heads, cells, strict=True))

    @staticmethod
    def kind(head: Head) -> str:
        words = ["right"] * head.right + ["spare"] * head.spare
        return f' class="{" ".join(words)}"' if words else ""

    def cell(self, cell: Cell) -> str:
        match cell:
            case Bar():
                return bar(cell)
            case Stack():
                return self.stack(cell)
            case Name():
                text = self.redact(cell.text)
                short = cut(clean(text), LONGEST, blocks=True)
                title = f' title="{self.text(text)}"' if short != text else ""
                return f"<code{title}>{escape(short)}</code>"
            case _:
                return self.text(cell)

    # --- drawn

    def stack(self, stack: Stack) -> str:
        """A bar of its parts, and what they are."""
        drawn, legend, at = [], [], 0.0
        for name, share, hue in stack.parts:
            label = f"{self.text(name)} {100 * share:.1f} %"
            drawn.append(
                f'<rect x="{1000 * at:.1f}" width="{max(1000 * share - 1.5, 0.5):.1f}" height="10" class="hue{hue}">'
                f"<title>{label}</title></rect>"
            )
            legend.append(f"<li>{swatch(hue)}{label}</li>")
            at += share
        picture = f'<svg class="stack" viewBox="0 0 1000 10" preserveAspectRatio="none">{"".join(drawn)}</svg>'
        return f'{picture}<ul class="legend">{"".join(legend)}</ul>'


def bar(found: Bar) -> str:
    if found.share is None or not found.share > 0:
        return ""
    width = max(100 * min(found.share, 1.0), 0.7)
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.1f}" height="8" class="hue{found.hue}"/></svg>'
    )


def swatch(hue: int) -> str:
    return (
        f'<svg class="swatch" viewBox="0 0 8 8" aria-hidden="true"><rect width="8" height="8" class="hue{hue}"/></svg>'
    )


def links(sections: Iterable[Section], writer: Writer) -> str:
    return "".join(f'<a href="#{one.name}">{writer.text(one.title)}</a>' for one in sections)
