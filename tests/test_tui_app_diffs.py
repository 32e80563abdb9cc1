"""Diffs and long lines of the panes: which words stand out, and what tells a line from the next."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.content import Content

from qrprof.tui.app.diffs import changed, emphasised
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.widgets.long_text import LongText, folded

DIFF = """\
--- starting file
+++ candidate
@@ -1,4 +1,4 @@
 import torch
-WARPS = 4
-def old(): ...
+WARPS = 8
+return weights.sum(dim)
+new = 1""".splitlines()


def underlined(line: Content) -> list[str]:
    return [line.plain[span.start : span.end] for span in line.spans if span.style == "underline"]


# --- what was changed


def test_the_words_that_differ_are_underlined() -> None:
    drawn = emphasised(DIFF)
    assert [line.plain for line in drawn] == DIFF
    assert {line.plain: words for line in drawn if (words := underlined(line))} == {
        "-WARPS = 4": ["4"],
        "+WARPS = 8": ["8"],
    }


def test_signs_have_a_hue_and_a_weight_beside_them() -> None:
    styles = [[span.style for span in line.spans if span.style != "underline"] for line in emphasised(DIFF)]
    assert styles[3:7] == [[], ["$error"], ["$error"], ["bold $primary"]]


@pytest.mark.parametrize(
    ("old", "new", "gone", "came"),
    [
        ("-a = f(x)", "+a = f(x, 2)", [], [", 2"]),
        ("-a  b", "+a b", ["  "], [" "]),
        ("-same", "+same", [], []),
        ("-one", "+quite another line", [], []),  # not alike
    ],
)
def test_words_are_told_apart(old: str, new: str, gone: list[str], came: list[str]) -> None:
    before, after = changed(old, new)
    assert [old[start:end] for start, end in before] == gone
    assert [new[start:end] for start, end in after] == came


def without(line: str, spans: list[tuple[int, int]]) -> str:
    inside = {place for start, end in spans for place in range(start, end)}
    return "".join(char for place, char in enumerate(line[1:], start=1) if place not in inside)


@given(st.text("ab (,", max_size=20), st.text("ab (,", max_size=20))
def test_without_what_differs_the_lines_are_the_same(old: str, new: str) -> None:
    before, after = changed(f"-{old}", f"+{new}")
    if before or after:
        assert without(f"-{old}", before) == without(f"+{new}", after)


@given(st.lists(st.text(st.sampled_from("+- @ab[]"), max_size=12)))
def test_whatever_the_lines_are_they_are_shown_as_they_are(lines: list[str]) -> None:
    assert [line.plain for line in emphasised(lines)] == lines


# --- long lines


@given(st.text(st.sampled_from("ab 漢"), min_size=1, max_size=60), st.integers(5, 30))
def test_a_long_line_goes_on_behind_a_sign_and_nothing_is_lost(text: str, width: int) -> None:
    first, *rest = (part.plain for part in folded(Content(text), width, "> "))
    assert all(part.startswith("> ") for part in rest)
    whole = "".join([first, *(part.removeprefix("> ") for part in rest)])
    assert whole.replace(" ", "") == text.replace(" ", "")
    assert all(Content(part).cell_length <= width for part in (first, *rest))


class Alone(App[None]):
    """Nothing but a long text."""

    def compose(self) -> ComposeResult:
        yield LongText(Glyphs())


def test_it_is_folded_anew_where_the_screen_gets_another_width() -> None:
    async def look() -> list[str]:
        app = Alone()
        async with app.run_test(size=(20, 10)) as pilot:
            text = app.query_one(LongText)
            text.put([Content("one two three four five six"), Content("seven")])
            found = []
            for width in (20, 14, 40):
                await pilot.resize_terminal(width, 10)
                await pilot.pause()
                strips = app.screen._compositor.render_strips()
                found.append("|".join("".join(part.text for part in strip).strip() for strip in strips).rstrip("|"))
            return found

    assert asyncio.run(look()) == [
        "one two three four|↪ five six|seven",
        "one two|↪ three four|↪ five six|seven",
        "one two three four five six|seven",
    ]
