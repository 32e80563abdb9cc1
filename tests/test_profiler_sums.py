"""Sums: rows of the same texts become one, as pandas would have it."""

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.sums import Columns, add_up, in_order, together

BY = ["op", "phase", "number"]


def columns(rows: list[tuple[str, str, int, float]]) -> Columns:
    op, phase, number, ns = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {
        "op": np.array(op, dtype=object),
        "phase": np.array(phase, dtype=object),
        "number": np.array(number, dtype=np.int64),
        "ns": np.array(ns, dtype=np.float64),
    }


def rows_of(found: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(values.tolist() for values in found.values()), strict=True))


def test_rows_of_the_same_texts_become_one() -> None:
    rows = [
        ("mm", "forward", 1, 2.0),
        ("add", "forward", 1, 3.0),
        ("mm", "backward", 1, 5.0),
        ("mm", "forward", 1, 7.0),
    ]
    found = in_order(add_up(columns(rows), BY), BY)
    assert rows_of(found) == [("add", "forward", 1, 3.0), ("mm", "backward", 1, 5.0), ("mm", "forward", 1, 9.0)]


def test_a_long_sum_keeps_its_small_parts() -> None:
    rows = [("a", "", 0, 2.0**53), *[("a", "", 0, 1.0)] * 1000]
    assert add_up(columns(rows), BY)["ns"].tolist() == [2.0**53 + 1000]


def test_parts_follow_each_other() -> None:
    parts = columns([("mm", "forward", 1, 2.0)]), columns([]), columns([("add", "", 3, 4.0)])
    assert rows_of(together(*parts)) == [("mm", "forward", 1, 2.0), ("add", "", 3, 4.0)]


def test_nothing_adds_up_to_nothing() -> None:
    found = in_order(add_up(columns([]), BY), BY)
    assert {name: (len(values), values.dtype) for name, values in found.items()} == {
        "op": (0, np.dtype(object)),
        "phase": (0, np.dtype(object)),
        "number": (0, np.dtype(np.int64)),
        "ns": (0, np.dtype(np.float64)),
    }


ROWS = st.tuples(
    st.sampled_from(["", "a", "b", "ä"]), st.sampled_from(["", "a", "z"]), st.integers(-1, 2), st.just(1.0)
)


@given(st.lists(ROWS, min_size=1))
def test_sums_and_order_are_those_of_pandas(rows: list[tuple[str, str, int, float]]) -> None:
    known = pd.DataFrame(rows, columns=[*BY, "ns"]).groupby(BY, as_index=False).sum()
    assert rows_of(in_order(add_up(columns(rows), BY), BY)) == list(known.itertuples(index=False, name=None))
