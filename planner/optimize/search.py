"""Candidates from a file's declared tunables, without a model: asynchronous successive halving, and Thompson sampling.

New settings are timed shortly; the better part of those again, three times as long, and so on. What is new is the best
so far with those values changed that a draw from the posterior of all values' effects holds for better: what was never
tried is uncertain, and so comes early, several at once, since each candidate then tells of all of them. Deterministic
under its seed.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from qrprof.planner.optimize.beam import mid, usable
from qrprof.planner.optimize.journal import hash_of
from qrprof.planner.optimize.records import Candidate, Known, Proposal, Proposed, ProposerName
from qrprof.planner.optimize.tunables import tunables, with_settings

ROUNDS: Final = (3, 9, 27)  # of timing, by rung
KEPT: Final = 4  # one of so many goes on to the next rung
RISKY: Final = 0.25  # of the candidates fail: from then on one value changes at a time, which tells which it is
DRAWS: Final = 200  # in which there has to be something new
LISTED: Final = 4096  # settings, up to which what no draw brought is listed
EFFECT: Final = 0.1  # of a value on the log of the speed, before it was tried: a standard deviation, at least
UNEXPLAINED: Final = 0.05  # of the log of a speed, by effects that add up
BOLD: Final = 10.0  # times as much on a plateau: what is known counts for less
NOT_VARIED: Final = "the starting file declares nothing to vary (TUNABLES, and more than one value in it)"
NO_FILE: Final = (
    "a search has nothing to vary, since no starting file is shipped for this task: "
    "give one that declares TUNABLES by --start, or take --proposer llm"
)
FAILED: Final = 0.5  # times the speed of the slowest that worked: what one that failed counts as

Settings = tuple[Any, ...]  # a value for each tunable, in the file's order
Floats = npt.NDArray[np.float64]
Speeds = Mapping[Settings, float | None]  # over the starting file; None: it failed


@dataclass(frozen=True)
class Space:
    """The values that each tunable can have, and those of the starting file."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    start: Settings

    @property
    def size(self) -> int:
        return math.prod(map(len, self.values))

    @property
    def pairs(self) -> list[tuple[int, Any]]:
        return [(at, value) for at, values in enumerate(self.values) for value in values]

    def row(self, settings: Settings) -> Floats:
        """1 where a pair is in these settings, else 0."""
        return np.array([float(settings[at] == value) for at, value in self.pairs])


class Search:
    """A Proposer. Nothing is proposed twice, but for being timed longer."""

    name: ProposerName = "search"
    unheard = ""

    def __init__(self, start_source: str, *, rng: random.Random, beam: int, stock: bool = False) -> None:
        """`stock`: no file was given, and the stock op stands for one."""
        self.source = start_source
        self.stock = stock
        self.rng = rng
        self.beam = beam
        self.space = space_of(start_source)
        self.rungs: dict[Settings, int] = {}  # how often settings were proposed

    def propose(self, known: Known) -> Proposed:
        if self.space.size < 2:
            return Proposed(done=NO_FILE if self.stock else NOT_VARIED)
        speeds = self.speeds(known.tried)
        longer = self.to_time_longer(speeds)
        if len(longer) < known.wanted and (new := list(islice(self.new(speeds, known.plateau), known.wanted))):
            return self.proposed(new, speeds)
        if longer:
            rung = min(self.rungs[one] for one in longer)
            return self.proposed([one for one in longer if self.rungs[one] == rung], speeds)
        return Proposed(done=f"nothing new is left among {self.space.size} settings of the starting file's tunables")

    def proposed(self, chosen: Sequence[Settings], speeds: Speeds) -> Proposed:
        rung = self.rungs.get(chosen[0], 0)
        proposals = tuple(self.proposal(one, speeds) for one in chosen)
        self.rungs |= dict.fromkeys(chosen, rung + 1)
        return Proposed(proposals, "preview", ROUNDS[rung])

    def proposal(self, settings: Settings, speeds: Speeds) -> Proposal:
        parent = min(ranked(speeds), key=lambda one: (one == settings, apart(one, settings)))
        changes = [
            f"{name} {was!r} -> {value!r}"
            for name, was, value in zip(self.space.names, parent, settings, strict=True)
            if was != value
        ]
        longer = ", timed longer" if settings in self.rungs else ""
        sha256 = None if parent == self.space.start else hash_of(self.text(parent))
        return Proposal(self.text(settings), sha256, ", ".join(changes) + longer, settings=self.named(settings))

    def text(self, settings: Settings) -> str:
        return with_settings(self.source, self.named(settings))

    def named(self, settings: Settings) -> dict[str, object]:
        return dict(zip(self.space.names, settings, strict=True))

    # --- what came of those before

    def speeds(self, candidates: Sequence[Candidate]) -> Speeds:
        """Of the starting file and of all candidates that are settings of it, the last word on each."""
        found: dict[Settings, float | None] = {self.space.start: 1.0}
        for one in candidates:
            given = one.proposal.settings
            if given.keys() == set(self.space.names):
                settings = tuple(plain(given[name]) for name in self.space.names)
                if one.outcome != "INFRA":  # a machine that failed says nothing of it
                    found[settings] = mid(one) if usable(one) else None
                self.rungs.setdefault(settings, max(1, sum(rounds <= one.rounds for rounds in ROUNDS)))
        return found

    def to_time_longer(self, speeds: Speeds) -> list[Settings]:
        """Of what reached a rung, one in KEPT goes on: those that are the fastest when there is room for one more."""
        found: list[Settings] = []
        for rung in range(1, len(ROUNDS)):
            here = [one for one in ranked(speeds) if self.rungs.get(one, 0) >= rung]
            most = len(here) // KEPT
            room = most - sum(self.rungs[one] > rung for one in here)
            found += [one for one in here[:most] if self.rungs[one] == rung][: max(0, room)]
        return found

    # --- what is new

    def new(self, speeds: Speeds, bold: bool) -> Iterator[Settings]:
        """Settings that were not proposed, the most promising first."""
        taken = {self.space.start, *self.rungs}
        for settings in self.ideas(speeds, bold):
            if settings not in taken:
                taken.add(settings)
                yield settings

    def ideas(self, speeds: Speeds, bold: bool) -> Iterator[Settings]:
        best = self.rng.choice(ranked(speeds)[: self.beam]) if bold else ranked(speeds)[0]
        effects = effects_of(self.space, speeds, best, UNEXPLAINED * (BOLD if bold else 1.0))
        failed = sum(speed is None for speed in speeds.values())
        most = 1 if failed > RISKY * len(speeds) else len(self.space.names)
        random = np.random.default_rng(self.rng.getrandbits(64))
        for _ in range(DRAWS):
            yield promising(self.space, best, effects.drawn(random), most)
        if self.space.size <= LISTED:
            yield from sorted(product(*self.space.values), key=lambda one: -float(self.space.row(one) @ effects.mean))


def space_of(source: str) -> Space:
    """Raises QrprofError (exit code 2) where the file's TUNABLES are not sound."""
    found = tunables(source)
    values = tuple(tuple(dict.fromkeys((one.value, *one.choices))) for one in found)
    return Space(tuple(one.name for one in found), values, tuple(one.value for one in found))


@dataclass(frozen=True)
class Effects:
    """What each pair of the space adds to the log of the speed: a normal distribution."""

    mean: Floats
    factor: Floats  # of its covariance, by Cholesky

    def drawn(self, random: np.random.Generator) -> Floats:
        found: Floats = self.mean + self.factor @ random.standard_normal(len(self.mean))
        return found


def effects_of(space: Space, speeds: Speeds, best: Settings, unexplained: float) -> Effects:
    """The posterior after these speeds, as if effects were a sum; seen from `best`, which worked."""
    worst = min(speed for speed in speeds.values() if speed)
    logs = np.log([speed or FAILED * worst for speed in speeds.values()]) - math.log(speeds[best] or worst)
    rows = np.stack([space.row(one) for one in speeds]) - space.row(best)
    effect = max(EFFECT, float(np.std(logs)))  # where speeds differ much, some effects are large
    covariance = np.linalg.inv(rows.T @ rows / unexplained**2 + np.eye(rows.shape[1]) / effect**2)
    return Effects(covariance @ rows.T @ logs / unexplained**2, np.linalg.cholesky(covariance))


def promising(space: Space, best: Settings, effects: Floats, most: int) -> Settings:
    """`best` with the changes that gain the most by these effects, so many at most."""
    of = dict(zip(space.pairs, effects, strict=True))
    tops = [max(values, key=lambda value: of[at, value]) for at, values in enumerate(space.values)]
    gains = [of[at, top] - of[at, was] for at, (top, was) in enumerate(zip(tops, best, strict=True))]
    settings = best
    for at in sorted(range(len(tops)), key=lambda at: -gains[at])[:most]:
        settings = changed(settings, at, tops[at])
    return settings


def ranked(speeds: Speeds) -> list[Settings]:
    """Those that worked, the fastest first."""
    worked = {one: speed for one, speed in speeds.items() if speed}
    return sorted(worked, key=lambda one: -worked[one])


def apart(one: Settings, other: Settings) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def changed(settings: Settings, at: int, value: Any) -> Settings:
    return (*settings[:at], value, *settings[at + 1 :])


def plain(value: Any) -> Any:
    """Lists come as tuples, as the file has them."""
    return tuple(map(plain, value)) if isinstance(value, list) else value
