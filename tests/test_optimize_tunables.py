"""Tunables of a candidate file: read from its text, and set in it with every other byte as it was."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.optimize.tunables import Tunable, tunables, with_settings
from qrprof.profiler.errors import Exit, QrprofError

SOURCE = '''"""Ein Kandidat – mit Umlauten: äöü."""
import torch

TUNABLES = {"WIDTH": (32, 64, 128), "PRECISION": ("tf32x3", "ieee"), "TILE": ((8, 8), (16, 16))}
WIDTH = 64  # Breite, "WIDTH = 1" ist keine
PRECISION: str = "ieee"
é = "ü"; TILE = (
    8,
    8,  # tief
); LAST = 1


def candidate(A):
    WIDTH = 1
    return torch.geqrf(A)
'''


def test_tunables_are_read_in_the_files_order() -> None:
    assert tunables(SOURCE) == (
        Tunable("WIDTH", 64, (32, 64, 128)),
        Tunable("PRECISION", "ieee", ("tf32x3", "ieee")),
        Tunable("TILE", (8, 8), ((8, 8), (16, 16))),
    )


def test_a_file_without_any_has_none() -> None:
    assert tunables("WIDTH = 64\n") == ()


def test_settings_change_their_values_alone() -> None:
    expected = SOURCE.replace("WIDTH = 64", "WIDTH = 128").replace(': str = "ieee"', ": str = 'tf32x3'")
    expected = expected.replace("(\n    8,\n    8,  # tief\n)", "(16, 16)")
    assert with_settings(SOURCE, {"WIDTH": 128, "TILE": (16, 16), "PRECISION": "tf32x3"}) == expected


@given(
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    before=st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20),
    old=st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.tuples(st.integers(), st.text(max_size=3))),
    new=st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)),
)
def test_any_value_in_any_text(newline: str, before: str, old: object, new: object) -> None:
    lines = [f"# {before}", "TUNABLES = {'A': (1, 2)}", f"s = {before!r}; A = {old!r}  # {before}", f"B = {before!r}"]
    source = newline.join([*lines, ""])
    assert tunables(source)[0].value == old
    changed = with_settings(source, {"A": new})
    assert changed.split("A = ")[0] == source.split("A = ")[0]
    assert tunables(changed) == (Tunable("A", new, (1, 2)),)
    assert ast.dump(ast.parse(with_settings(changed, {"A": old}))) == ast.dump(ast.parse(source))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("TUNABLES = {", "does not parse"),
        ("a = '\0'", "does not parse"),
        ("TUNABLES = {'A': [1, 2]}\nA = 1", "is not a dict of tuples"),
        ("TUNABLES = ('A',)\nA = 1", "is not a dict of tuples"),
        ("TUNABLES = dict(A=(1, 2))\nA = 1", "to be a literal"),
        ("TUNABLES = {'A': (1, 2)}", "names A, which the file does not set"),
        ("TUNABLES = {'A': (1, 2)}\ndef f():\n    A = 1", "names A, which the file does not set"),
        ("TUNABLES = {'A': (1, 2)}\nA = 1\nA = 2", "needs A set once"),
        ("TUNABLES = {'A': (1, 2)}\nA = 1\nA += 1", "needs A set once"),
        ("TUNABLES = {'A': (1, 2)}\nA = 1\nif True:\n    A = 2", "needs A set once"),
        ("TUNABLES = {'A': (1, 2)}\nA = B = 1", "needs A set by a statement of its own"),
        ("TUNABLES = {'A': (1, 2)}\nA, B = 1, 2", "needs A set by a statement of its own"),
        ("TUNABLES = {'A': ([1], [2])}\nA = 1", "needs the values of A to be numbers, texts or tuples"),
        ("TUNABLES = {'A': (1, 2)}\nA = [1]", "needs the values of A to be numbers, texts or tuples"),
        ("TUNABLES = {'A': (1, 2)}\nA = 1e999", "to be a literal"),
        (f"a = {'-' * 20000}1", "nested too deeply"),
        (f"a = {'+'.join('1' * 20000)}", "nested too deeply"),
        ("TUNABLES = {'A': (1, 2)}\nA = max(1, 2)", "needs A to be a literal, and it is max(1, 2)"),
        ("TUNABLES = {'A': (b'x', b'y')}\nA = b'x'", "to be a literal"),
        ("TUNABLES = {'A': (1, 2)}\nA = {1, 2}", "to be a literal"),
        ("TUNABLES = {['A']: (1, 2)}\nA = 1", "to be a literal"),
    ],
)
def test_what_is_not_sound_is_named(source: str, sentence: str) -> None:
    with pytest.raises(QrprofError) as error:
        tunables(source)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == Exit.USAGE


def test_a_setting_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(QrprofError, match="names OTHER"):
        with_settings(SOURCE, {"OTHER": 1})
