from itertools import permutations
from typing import Any

import pandas as pd
from test_planner_targets import ROW, divided, gap, op

from qrprof.planner.rows import Row, counts_by_key, most, ns_of, of_key, rows_by_key


def rows(*kernels: tuple[str, float]) -> list[Row]:
    found: list[dict[str, Any]] = [op("aten::mm", ns, kernel=kernel) for kernel, ns in kernels]
    return of_key(divided(*found), "aten::mm")[0]


def test_rows_and_calls_are_found_by_their_key() -> None:
    found = divided(op("aten::mm", 2e3, "[[8,8]]", "float"), gap("gap:sync", 1e3, "aten::item"), calls=3)
    own, counts = of_key(found, "aten::mm")
    assert own == [Row("op", "aten::mm", "[[8,8]]", "float", "", "", "", 2e3, False)]
    assert counts == {("[[8,8]]", "float"): 3}
    assert of_key(found, "aten::add") == ([], {})
    assert list(rows_by_key(found.rows)) == ["aten::mm", "gap:sync"]


def test_calls_of_the_same_inputs_are_added_up() -> None:
    called = [{**ROW, "key": "aten::mm", "shapes": "[[8,8]]", "phase": phase, "calls": 1.5} for phase in "ab"]
    assert counts_by_key(pd.DataFrame(called)) == {"aten::mm": {("[[8,8]]", ""): 3.0}}


def test_what_takes_most_is_found_by_its_sum() -> None:
    assert most(rows(("b", 2.0), ("a", 3.0), ("b", 2.0)), "kernel") == "b"


def test_of_equals_the_first_is_taken_in_whatever_order_they_are_added() -> None:
    parts = (0.1, 0.2, 0.3, 1e16)  # a plain sum of them depends on their order
    for other in permutations(parts):
        assert most(rows(*(("b", ns) for ns in parts), *(("a", ns) for ns in other)), "kernel") == "a"
    assert len({ns_of(rows(*(("a", ns) for ns in order))) for order in permutations(parts)}) == 1
