"""NVTX ranges as rows of a trace: torch's op ranges are ops, all others annotations, numbered ones may be steps.

`torch.autograd.profiler.emit_nvtx` writes what it knows of a call behind the name:
`aten::mm, seq = 12, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [[5, 0]]`, each part being optional.
"""

import re
from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np
import orjson
import pandas as pd

from qrprof.profiler.events import ANNOTATION, OP
from qrprof.profiler.steps import PROFILER_STEP

SUFFIX: Final = re.compile(
    r"(?:, seq = (?P<seq>\d{1,18}))?(?P<id>, op_id = \d+)?(?:, sizes = (?P<sizes>\[[\[\]\d, ]*\]))?"
    r"(?:, input_op_ids = \[.*\])?$"
)
# What torch itself calls so, by the namespace of its schema or by name; a user's range has op_id too, but no schema.
SCHEMA_NAME: Final = re.compile(r"aten::|autograd::|record_param_comms$")
WITH_ID: Final = re.compile(r"[a-z_]\w*::\w")

STEP: Final = re.compile(r"(?P<what>(?:.*[^a-z])?(?:step|iteration|iter)[ _#:=]*)(?P<number>\d{1,9})", re.IGNORECASE)


class Range(NamedTuple):
    kind: str
    name: str
    sequence: int  # autograd's; -1: none
    shapes: str  # of the inputs, as compact JSON; "": not recorded


def parse(text: str) -> Range:
    """What a range's text says. A forward op is known by its sequence number, others by their schema's name."""
    suffix = SUFFIX.search(text)
    name = text[: suffix.start()] if suffix else text
    sequence = suffix["seq"] if suffix else None
    schema = SCHEMA_NAME.match(name) or (suffix and suffix["id"] and WITH_ID.match(name))
    kind = OP if sequence or schema else ANNOTATION
    return Range(kind, name, int(sequence) if sequence else -1, shapes_of(suffix["sizes"] if suffix else None))


def shapes_of(sizes: str | None) -> str:
    try:
        return orjson.dumps(orjson.loads(sizes)).decode() if sizes else ""
    except orjson.JSONDecodeError:
        return ""


def as_steps(events: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Rename ranges that number the program's steps ("step 7") to what torch calls them; and say what they were called.

    They are steps where they follow each other on one thread and count up by one.
    """
    categories = events["name"].cat.categories
    numbers: dict[str, dict[str, int]] = defaultdict(dict)
    for name in categories:
        if found := STEP.fullmatch(name):
            numbers[found["what"]][name] = int(found["number"])
    if any(name.startswith(PROFILER_STEP) for name in categories):
        return events, ""
    for what, found_numbers in sorted(numbers.items(), key=lambda item: -len(item[1])):
        rows = events[events["name"].isin(list(found_numbers)) & (events["kind"] == ANNOTATION)].sort_values("start")
        number = rows["name"].astype(str).map(found_numbers).to_numpy()
        apart = rows["end"].to_numpy()[:-1] <= rows["start"].to_numpy()[1:]
        if len(rows) > 1 and rows["track"].nunique() == 1 and (np.diff(number) == 1).all() and apart.all():
            steps = {name: f"{PROFILER_STEP}{number}" for name, number in found_numbers.items()}
            return events.assign(name=events["name"].cat.rename_categories(steps)), f"NVTX range {what.strip()!r}"
    return events, ""
