"""Candidates from a file's declared tunables, without a model: asynchronous successive halving, led by what each did.

New settings are timed shortly; the better part of those again, three times as long, and so on. What is new comes from
the best so far: first every value that no candidate had yet, one at a time, then what the sum of all values' effects
foretells. Deterministic under its seed.
"""

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

import numpy as np

from qrprof.planner.optimize.records import Candidate, Known, Proposal, Proposed, ProposerName
from qrprof.planner.optimize.tunables import tunables, with_settings

ROUNDS: Final = (3, 9, 27)  # of timing, by rung
KEPT: Final = 4  # one of so many goes on to the next rung
LISTED: Final = 4096  # settings, up to which all are weighed up
DRAWN: Final = 256  # that are weighed up where there are more
BOLD: Final = 4  # values changed at once, at most
FAILED: Final = 0.5  # times the speed of the slowest that worked: what one that failed counts as
RIDGE: Final = 0.1  # an effect seen once is believed to nine tenths

Settings = tuple[Any, ...]  # a value for each tunable, in the file's order
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

    def pairs(self, settings: Settings) -> set[tuple[int, Any]]:
        return set(enumerate(settings))

    def near(self, settings: Settings) -> Iterator[Settings]:
        """With one other value."""
        for at, values in enumerate(self.values):
            yield from (changed(settings, at, value) for value in values if value != settings[at])

    def drawn(self, settings: Settings, rng: random.Random) -> Settings:
        """With up to BOLD other values."""
        for at in rng.sample(range(len(self.names)), min(rng.randint(1, BOLD), len(self.names))):
            settings = changed(settings, at, rng.choice(self.values[at]))
        return settings


class Search:
    """A Proposer. Nothing is proposed twice, but for being timed longer."""

    name: ProposerName = "search"

    def __init__(self, start_source: str, *, rng: random.Random, beam: int) -> None:
        self.source = start_source
        self.rng = rng
        self.beam = beam
        self.space = space_of(start_source)
        self.rungs: dict[Settings, int] = {}  # how often settings were proposed

    def propose(self, known: Known) -> Proposed:
        if self.space.size < 2:
            return Proposed(done="the starting file declares nothing to vary (TUNABLES, and more than one value in it)")
        speeds = self.speeds(known.tried)
        longer = self.to_time_longer(speeds)
        if len(longer) < known.wanted and (new := list(islice(self.new(speeds, known.plateau), known.wanted))):
            return self.proposed(new, speeds)
        if longer:
            rung = min(self.rungs[one] for one in longer)
            return self.proposed([one for one in longer if self.rungs[one] == rung], speeds)
        return Proposed(done=f"all {self.space.size} settings of the starting file's tunables were tried")

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
        sha256 = None if parent == self.space.start else hashlib.sha256(self.text(parent).encode()).hexdigest()
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
                found[settings] = one.over.mid if one.over and one.outcome == "PASS" else None
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
        best, *_ = parents = ranked(speeds)[: self.beam]
        effects = effects_of(self.space, speeds)
        seen = set().union(*map(self.space.pairs, (self.space.start, *self.rungs)))
        if len(speeds) > 1:
            yield tuple(
                max((value for value in values if (at, value) in seen), key=lambda value: effects.get((at, value), 0.0))
                for at, values in enumerate(self.space.values)
            )
        unseen = [one for one in self.space.near(best) if not self.space.pairs(one) <= seen]
        yield from self.rng.sample(unseen, len(unseen))
        pool = list(self.pool(parents))
        self.rng.shuffle(pool)  # equals are tried in no order of the file's
        weigh = (lambda one: 0.0) if bold else (lambda one: -sum(effects.get(pair, 0.0) for pair in enumerate(one)))
        yield from sorted(pool, key=weigh)

    def pool(self, parents: Sequence[Settings]) -> Iterator[Settings]:
        if self.space.size <= LISTED:
            yield from product(*self.space.values)
            return
        for parent in parents:
            yield from self.space.near(parent)
        yield from (self.space.drawn(self.rng.choice(parents), self.rng) for _ in range(DRAWN))


def space_of(source: str) -> Space:
    """Raises QrprofError (exit code 2) where the file's TUNABLES are not sound."""
    found = tunables(source)
    values = tuple(tuple(dict.fromkeys((one.value, *one.choices))) for one in found)
    return Space(tuple(one.name for one in found), values, tuple(one.value for one in found))


def effects_of(space: Space, speeds: Speeds) -> dict[tuple[int, Any], float]:
    """What each value that was tried adds to the log of the speed, as if effects were a sum: a ridge regression."""
    worst = min(speed for speed in speeds.values() if speed)
    pairs = sorted(set().union(*map(space.pairs, speeds)) - space.pairs(space.start), key=repr)
    rows = np.array([[pair in space.pairs(one) for pair in pairs] for one in speeds], dtype=float)
    logs = np.log([speed or FAILED * worst for speed in speeds.values()])
    fitted = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(len(pairs)), rows.T @ logs)
    return dict(zip(pairs, map(float, fitted), strict=True))


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
