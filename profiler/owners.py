"""Whose time it is: for each host row the op that owns it, its phase, and where in the program it was called.

A row belongs to the linalg driver that holds it (the outermost one: replacing `linalg_qr` replaces what
it calls); else to the innermost op, since for others the leaf is what can be replaced. Autograd's
wrappers own only what is launched directly in them. A runtime call outside all ops owns itself.

The phase is "optimizer" inside an `Optimizer.step` annotation, "backward" inside autograd's node
evaluation, "loader" inside a DataLoader's `__next__`, else "forward".
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.events import ANNOTATION, MARK_PREFIX, OP, RUNTIME
from qrprof.profiler.linalg import LINALG_DRIVERS, Signature, by_signature, row_signature
from qrprof.profiler.nesting import Ints, Mask, Nesting, Strings, innermost, named, outermost, pick, texts
from qrprof.profiler.runinfo import LinalgCall, RunInfo
from qrprof.profiler.steps import PROFILER_STEP
from qrprof.profiler.sums import Columns

LOADER: Final = "enumerate(DataLoader)"
OPTIMIZER_STEP: Final = "Optimizer.step#"
NODE: Final = "autograd::engine::evaluate_function"
STEP_NAMES: Final = (MARK_PREFIX, PROFILER_STEP)  # name the step, not a place in it
OTHER_NAMES: Final = (*STEP_NAMES, "Optimizer.", LOADER)  # annotations that are not the user's

FORWARD, BACKWARD, OPTIMIZER, LOADING = range(4)
PHASES: Final = np.array(["forward", "backward", "optimizer", "loader"], dtype=object)


@dataclass(frozen=True)
class Owners:
    """By host row, as in the nesting."""

    name: Strings
    row: Ints  # the owning row; -1: none
    loader: Ints  # the DataLoader annotation around it; -1: none
    annotation: Ints  # the innermost annotation around it that does not name the step; -1: none
    phase: Ints  # index in PHASES
    where: Strings  # of an owning row: call site or innermost user annotation; "": unknown


def find_owners(host: Nesting, run: RunInfo | None) -> Owners:
    """Find the owners of all host rows; call sites of linalg drivers come from the run's record."""
    names = host.names()
    is_op = (host.rows["kind"] == OP).to_numpy()
    is_annotation = (host.rows["kind"] == ANNOTATION).to_numpy()
    is_call = (host.rows["kind"] == RUNTIME).to_numpy()
    driver = outermost(host, is_op & host.rows["name"].isin(LINALG_DRIVERS).to_numpy())
    op = innermost(host, is_op)
    row = np.where(driver >= 0, driver, np.where(op >= 0, op, np.where(is_call, np.arange(len(names)), -1)))
    loader = outermost(host, is_annotation & starting(host, LOADER))
    user = innermost(host, is_annotation & ~starting(host, *OTHER_NAMES))
    where = pick(names, user, "")
    add_sites(where, host, np.unique(driver[driver >= 0]), by_signature(run.linalg if run else []))
    in_step = outermost(host, is_annotation & starting(host, OPTIMIZER_STEP)) >= 0
    in_node = outermost(host, is_op & starting(host, NODE)) >= 0
    phase = np.select([in_step, in_node, loader >= 0], [OPTIMIZER, BACKWARD, LOADING], FORWARD)
    annotation = innermost(host, is_annotation & ~starting(host, *STEP_NAMES))
    return Owners(names, row, loader, annotation, phase.astype(np.int64), where)


def starting(host: Nesting, *prefixes: str) -> Mask:
    """Rows whose name starts with one of `prefixes`."""
    return named(host, lambda name: name.startswith(prefixes))


def add_sites(where: Strings, host: Nesting, drivers: Ints, calls: dict[Signature, list[LinalgCall]]) -> None:
    """Put the recorded call sites of linalg drivers into `where`."""
    columns = host.rows.loc[drivers, ["name", "shapes", "dtypes"]].astype(str)
    known: dict[tuple[str, ...], str] = {}
    for driver, key in zip(drivers.tolist(), columns.itertuples(index=False, name=None), strict=True):
        if key not in known:
            signature = row_signature(*key)
            known[key] = join_sites(calls.get(signature, []) if signature else [])
        where[driver] = known[key] or where[driver]


def join_sites(calls: list[LinalgCall]) -> str:
    sites = sorted({call.site for call in calls if call.site})
    return ", ".join(sites) if len(sites) <= 2 else f"{len(sites)} sites"


def describe(host: Nesting, owners: Owners, rows: Ints) -> pd.DataFrame:
    """key, shapes, dtypes, phase and where of the owning rows `rows`; all "" for -1."""
    return pd.DataFrame(description(host, owners, rows))


def description(host: Nesting, owners: Owners, rows: Ints) -> Columns:
    """The columns of `describe`."""
    return {
        "key": pick(owners.name, rows, ""),
        "shapes": pick(texts(host.rows["shapes"]), rows, ""),
        "dtypes": pick(texts(host.rows["dtypes"]), rows, ""),
        "phase": pick(PHASES, pick(owners.phase, rows, -1), ""),
        "where": pick(owners.where, rows, ""),
    }
