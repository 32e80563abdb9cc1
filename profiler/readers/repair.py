"""What a profiler got wrong and can be put right: each returns the frame and the number of rows it was about."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from qrprof.profiler.events import DEVICE_WORK, RUNTIME

FAR: Final = 3600 * 10**9  # ns; no recording lasts an hour
ROUNDING: Final = 10_000  # ns; spans of whole microseconds seem to overlap by one or two of them
NEVER: Final = np.iinfo(np.int64).max

STRAYS: Final = "events whose time was lost (ts 0) were left out"
IMPOSSIBLE: Final = "spans of an impossible duration were kept with none"
OVERRUNS: Final = "spans of device work ended after later ones of their stream (ROCm): cut where the next one starts"
MASKED: Final = "names that look like secrets were masked"


def counted(found: Mapping[str, int]) -> list[str]:
    """A line for each thing that was found at all."""
    return [f"{count} {what}" for what, count in found.items() if count]


def drop_strays(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Leave out the rows at time 0 of a trace that starts long after it: their stamps were lost."""
    start = frame["start"].to_numpy()
    strays = start == 0
    others = start[~strays]
    if not strays.any() or not len(others) or others.min() < FAR:
        return frame, 0
    return frame[~strays].reset_index(drop=True), int(strays.sum())  # the next repair counts rows by their label


def cut_overruns(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """End ROCm's device work that ends after a later one of its stream where the next one starts.

    A stream runs in order, so that end is wrong (the stamp of a late flush). Programmatic launches of CUDA overlap too,
    but there the later work ends later: they are left as they are.
    """
    if not is_rocm(frame):
        return frame, 0
    work = frame[frame["kind"].isin(DEVICE_WORK)]
    work = work.iloc[np.lexsort((work["end"], work["start"], work["track"], work["device"]))]
    start, end = work["start"].to_numpy(), work["end"].to_numpy()
    streams = [work["device"].to_numpy()[::-1], work["track"].to_numpy()[::-1]]
    lasting = pd.Series(np.where(end > start, end, NEVER)[::-1])
    soonest = lasting.groupby(streams).cummin().groupby(streams).shift(fill_value=NEVER).to_numpy()[::-1]
    over = soonest < end - ROUNDING
    fixed = frame["end"].to_numpy().copy()
    fixed[work.index[over]] = np.append(start[1:], 0)[over]
    return frame.assign(end=fixed), int(over.sum())


def is_rocm(frame: pd.DataFrame) -> bool:
    names = frame.loc[frame["kind"] == RUNTIME, "name"].cat
    return any(name.startswith("hip") for name in names.categories[np.unique(names.codes)])
