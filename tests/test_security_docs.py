"""docs/security.md: each row names tests, and these are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!what |when |-)(.+?) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_row_is_passed_over() -> None:
    tables = len(re.findall(r"^\|---", TEXT, re.MULTILINE))
    assert len(ROWS) == len(re.findall(r"^\|", TEXT, re.MULTILINE)) - 2 * tables > 30


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_each_row_names_tests_that_there_are(row: tuple[str, str, str]) -> None:
    named = row[2].split(", ")
    for one in named:
        file, _, name = one.strip("`").partition("::")
        assert (TESTS / file).is_file()
        assert not name or name in names_in(file)
