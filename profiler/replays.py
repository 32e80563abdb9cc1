"""Replays of graphs: launches that own several items of work, kernels among them, and whether some of that is missing.

The trace does not name the graphs. Launches from one place (call, op, call site) whose op has inputs of the same shapes
are taken for replays of one graph if all own parts of what the fullest of them owns; those that own less then lack
work. Where every step has as many launches from a place, only those that have the same turn in their steps are
compared, since the place may replay several graphs one after the other.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qrprof.profiler.events import KERNEL
from qrprof.profiler.facts import Facts, launch_weight
from qrprof.profiler.nesting import Ints, Mask
from qrprof.profiler.owners import describe
from qrprof.profiler.steps import window_at
from qrprof.profiler.work import Work


@dataclass(frozen=True)
class Replays:
    count: int  # in the steps
    compared: int  # with another one
    incomplete: int


def owns_several(work: Work) -> Mask:
    """By item of work whether its launch owns several items, kernels among them."""
    kernels = pd.Series(work.kind == KERNEL).groupby(work.launch)
    found: Mask = ((kernels.transform("size") > 1) & kernels.transform("any")).to_numpy() & (work.launch >= 0)
    return found


def count_replays(facts: Facts) -> Replays:
    """The graph replays that were launched in the steps."""
    work, here = facts.work, launch_weight(facts) > 0
    replays = np.unique(work.launch[here & owns_several(work)])
    if not len(replays):
        return Replays(0, 0, 0)
    launches = _places(facts, np.unique(work.launch[here]))
    where = launches["place"][launches["launch"].isin(replays)]
    launches = launches[launches["place"].isin(where)]  # one of them may be all that is left of a replay
    kept = np.isin(work.launch, launches["launch"])
    owned = {launch: Counter(names) for launch, names in pd.Series(work.name[kept]).groupby(work.launch[kept])}
    groups = [[owned[launch] for launch in same] for _, same in launches.groupby(["place", "shapes", "turn"])["launch"]]
    compared = sum(len(group) for group in groups if len(group) > 1)
    return Replays(len(launches), compared, sum(map(_incomplete, groups)))


def _places(facts: Facts, launches: Ints) -> pd.DataFrame:
    """launch, the number of its place, the shapes of its op's inputs, and its turn at that place in its step."""
    host, owners = facts.host, facts.owners
    op = describe(host, owners, owners.row[launches]).assign(call=owners.name[launches])
    places = op.groupby(["call", "key", "where"]).ngroup()
    found = pd.DataFrame({"launch": launches, "place": places, "shapes": op["shapes"]})
    step = window_at(facts.steps.host, host.start[launches])
    turns = found.groupby(["place", step])["launch"]
    sizes = turns.transform("size").groupby(found["place"]).transform("nunique")
    steps = pd.Series(step).groupby(found["place"]).transform("nunique")
    return found.assign(turn=turns.cumcount().where((sizes == 1) & (steps > 1), 0))


def _incomplete(group: Sequence[Counter[str]]) -> int:
    """How many of the replays lack work of the fullest one."""
    fullest = max(group, key=Counter.total)
    return sum(names != fullest for names in group) if all(names <= fullest for names in group) else 0
