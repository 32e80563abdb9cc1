"""A partition's rows and calls as plain values: for the few rows of one op, pandas takes far longer than python."""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Literal, NamedTuple

import pandas as pd

from qrprof.profiler.partition import Partition

Counts = Mapping[tuple[str, str], float]  # calls of a mean step by shapes and dtypes


class Row(NamedTuple):
    """One row, under its key: see `Partition.rows`."""

    kind: str
    op: str
    shapes: str
    dtypes: str
    phase: str
    where: str
    kernel: str
    ns: float
    overlap: bool


def rows_by_key(rows: pd.DataFrame) -> dict[str, list[Row]]:
    """The keys in order, and the rows of each in theirs."""
    found: dict[str, list[Row]] = {key: [] for key in sorted(set(rows["key"]))}
    columns = (rows[name].tolist() for name in Row._fields)
    for key, *values in zip(rows["key"].tolist(), *columns, strict=True):
        found[key].append(Row(*values))
    return found


def counts_by_key(calls: pd.DataFrame) -> dict[str, Counts]:
    found: dict[str, dict[tuple[str, str], float]] = {}
    columns = (calls[name].tolist() for name in ("key", "shapes", "dtypes", "calls"))
    for key, shapes, dtypes, count in zip(*columns, strict=True):
        own = found.setdefault(key, {})
        own[shapes, dtypes] = own.get((shapes, dtypes), 0.0) + count
    return dict(found)


def of_key(found: Partition, key: str) -> tuple[list[Row], Counts]:
    """What a partition holds of one key; nothing of an unknown one."""
    rows, calls = (frame[frame["key"] == key] for frame in (found.rows, found.calls))
    return rows_by_key(rows).get(key, []), counts_by_key(calls).get(key, {})


def ns_of(rows: Sequence[Row]) -> float:
    """In a mean step."""
    return fsum(row.ns for row in rows)


def most(rows: Sequence[Row], column: Literal["op", "phase", "where", "kernel"]) -> str:
    """The value of `column` with the most time; of equals the first one in the alphabet."""
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(getattr(row, column), []).append(row.ns)
    return max(sorted(times), key=lambda value: fsum(times[value]))  # exact: a plain sum would tell equals apart
