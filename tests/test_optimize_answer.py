"""What a model wrote, in the forms in which models write it, and the file that is read from it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.optimize.answer import Unread, read
from qrprof.planner.optimize.patch import Misfit, applied

PARENT = """\
import torch

WIDTH = 64


def candidate(x, dim, half):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp()
    total = weights.sum(dim, keepdim=True)
    return weights / total
"""
NEW = PARENT.replace("WIDTH = 64", "WIDTH = 32").replace(".exp()", ".exp_()")
DIFF = """\
--- a/candidate.py
+++ b/candidate.py
@@ -3,6 +3,6 @@

-WIDTH = 64
+WIDTH = 32


 def candidate(x, dim, half):
@@ -7,3 +7,3 @@
     x = x.contiguous()
-    weights = (x - x.amax(dim, keepdim=True)).exp()
+    weights = (x - x.amax(dim, keepdim=True)).exp_()
     total = weights.sum(dim, keepdim=True)
"""
RECORD = json.dumps({"changed": "In place.", "expects": "Less memory traffic in the exponential.", "code": NEW})
FORMS = {
    "json": RECORD,
    "indented json": json.dumps(json.loads(RECORD), indent=2),
    "json in a fence": f"```json\n{RECORD}\n```",
    "json after prose with braces": f"I use {{braces}} and {{}} first.\n\n{RECORD}\n\nDone {{}}.",
    "json with line ends in its strings": '{"changed": "x", "expects": "", "code": "' + NEW + '"}',
    "json with fenced code": json.dumps({"code": f"```python\n{NEW}```"}),
    "json with a diff": json.dumps({"code": DIFF}),
    "json with a fenced diff": json.dumps({"code": f"```diff\n{DIFF}```"}),
    "a fence": f"Here it is.\n\n```python\n{NEW}```\nIt should be faster.",
    "a fence of tildes": f"~~~\n{NEW}~~~",
    "a longer fence": f"````py\n{NEW}````",
    "an indented fence": f"  ```python\n{NEW}  ```",
    "a fence that is not closed": f"```python\n{NEW}",
    "the old file, then the new one": f"Before:\n```python\n{PARENT}```\nAfter:\n```python\n{NEW}```\n",
    "a fragment, then the file": f"The line\n```python\nWIDTH = 32\n```\nchanges:\n```python\n{NEW}```",
    "a diff in a fence": f"Small:\n```diff\n{DIFF}```",
    "a bare diff": f"A small change:\n\n{DIFF}\nThat is all.",
    "a bare file": NEW,
    "other line ends": f"```python\n{NEW}```".replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_file_is_read_whatever_the_form(form: str) -> None:
    assert read(FORMS[form], PARENT).source.replace("\r\n", "\n") == NEW


def test_what_was_changed_and_is_expected_is_kept_on_one_line() -> None:
    answer = read(json.dumps({"changed": "in\n place ", "expects": "x" * 500, "code": NEW}), PARENT)
    assert answer.changed == "in place"
    assert len(answer.expects) < 210


def test_without_json_the_prose_before_the_code_says_what_was_changed() -> None:
    assert read(FORMS["a fence"], PARENT).changed == "Here it is."


def test_a_secret_in_a_sentence_is_masked() -> None:
    answer = read(json.dumps({"changed": "used sk-abcdefghij0123456789", "expects": "", "code": NEW}), PARENT)
    assert answer.changed == "used [masked]"


@pytest.mark.parametrize(
    ("text", "trouble", "says"),
    [
        ("", "empty", "empty"),
        (" \n\t", "empty", "empty"),
        ("I am sorry, I cannot help with that.", "no-code", "candidate"),
        ("```python\nWIDTH = 32\n```", "no-code", "candidate"),
        (RECORD[:80], "malformed", "JSON"),
        ('{"code": 3}', "malformed", "JSON"),
        ("[" * 100_000, "no-code", "candidate"),
        ("{" * 100_000, "malformed", "JSON"),
        (f"```python\n{NEW.partition(', keepdim')[0]}", "malformed", "does not parse: line 8"),
        (json.dumps({"code": "def candidate(x:\n    return x\n"}), "malformed", "does not parse: line 1"),
        (json.dumps({"code": "def candidate(x):\n    return '\0'\n"}), "malformed", "does not parse"),
        (json.dumps({"code": ""}), "no-code", "candidate"),
        (json.dumps({"code": DIFF.replace("contiguous", "clone")}), "malformed", "hunk 2"),
        (json.dumps({"code": DIFF.replace("+WIDTH = 32", "+WIDTH = (32")}), "malformed", "with the model's diff"),
    ],
)
def test_an_answer_without_a_candidate_says_why(text: str, trouble: str, says: str) -> None:
    with pytest.raises(Unread, match=says) as unread:
        read(text, PARENT)
    assert unread.value.trouble == trouble
    assert "\n" not in str(unread.value)


@given(st.text(max_size=300))
def test_no_text_does_worse_than_to_be_unread(text: str) -> None:
    try:
        found = read(text, PARENT)
    except Unread:
        return
    assert "candidate" in found.source


# --- diffs

LINE = st.sampled_from(["a", "b", "c", "", "  d", "-e", "+f", "@g"])
TEXTS = st.lists(LINE, max_size=12).map("\n".join)


def unified(old: str, new: str) -> str:
    from difflib import unified_diff

    return "\n".join(unified_diff(old.split("\n"), new.split("\n"), "a", "b", lineterm="", n=3))


@given(TEXTS, TEXTS)
def test_a_unified_diff_gives_the_new_text(old: str, new: str) -> None:
    assert applied(unified(old, new), old) == new


@given(TEXTS, TEXTS)
def test_a_diff_of_another_text_is_refused_or_adds_lines_alone(old: str, new: str) -> None:
    diff = unified(old, new)
    if "\n-" in diff.partition("@@")[2] or "\n " in diff.partition("@@")[2]:
        with pytest.raises(Misfit):
            applied(diff, "nothing\nlike\nit")


def test_wrong_line_numbers_do_not_matter_where_the_place_is_plain() -> None:
    shifted = DIFF.replace("-3,6 +3,6", "-1,2 +9,9").replace("@@ -7,3 +7,3 @@", "@@ def candidate @@")
    assert applied(shifted, PARENT) == NEW


def test_a_line_number_without_end_is_none() -> None:
    assert applied(f"@@ -{'9' * 5000},1 +1 @@\n-a\n+A\n", "a\nb\n") == "A\nb\n"


def test_where_two_places_fit_the_header_decides_or_nobody() -> None:
    text = "a\nx\na\nx\n"
    assert applied("@@ -3,2 +3,2 @@\n a\n-x\n+y\n", text) == "a\nx\na\ny\n"
    with pytest.raises(Misfit, match="hunk 1"):
        applied("@@ @@\n a\n-x\n+y\n", text)


def test_context_has_to_be_exact() -> None:
    with pytest.raises(Misfit, match=r"x\.contiguous"):
        applied("@@ -7,2 +7,2 @@\n   x = x.contiguous()\n-    weights\n+    w\n", PARENT)


def test_hunks_out_of_order_do_not_fit() -> None:
    with pytest.raises(Misfit, match="hunk 2"):
        applied("@@ @@\n-c\n+C\n@@ @@\n-a\n+A\n", "a\nb\nc\n")
