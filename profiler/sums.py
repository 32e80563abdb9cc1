"""Columns of texts and numbers as plain arrays, and the sums over rows that are the same.

By the integer codes of the texts: pandas turns text columns into Arrow's before it groups or sorts them, which costs
more than all sums of a partition.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Columns = dict[str, npt.NDArray[Any]]  # all of the same length; texts are objects


def together(*parts: Columns) -> Columns:
    """The rows of one after those of the other; all have the same columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def add_up(columns: Columns, by: Sequence[str]) -> Columns:
    """One row for all that are the same in the columns `by`: the sums of the other columns."""
    group = np.zeros(len(columns[by[0]]), dtype=np.int64)
    for name in by:
        codes, distinct = pd.factorize(columns[name])
        group = pd.factorize(group * len(distinct) + codes)[0]  # anew each time, so that no product overflows
    first = np.unique(group, return_index=True)[1]
    same = {name: columns[name][first] for name in by}
    rest = pd.DataFrame({name: values for name, values in columns.items() if name not in same})
    sums = rest.groupby(group).sum()  # compensated: a plain sum would tell equal rows apart
    return same | {str(name): sums[name].to_numpy() for name in sums}


def in_order(columns: Columns, by: Sequence[str]) -> Columns:
    """The rows sorted by the columns `by`, of which the first counts first."""
    keys = list(zip(*(columns[name].tolist() for name in by), strict=True))
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    return {name: values[order] for name, values in columns.items()}
