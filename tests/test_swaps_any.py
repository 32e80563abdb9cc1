"""Whatever is decided, damaged, copied or edited, in any order: a program loads only what is accepted and unchanged."""

import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from swap_cases import SOURCE, by, verified

from qrprof.kernels.loading import load
from qrprof.kernels.swapfile import candidate_file, write
from qrprof.planner.ledger import looked_up, opened
from qrprof.planner.swaps import decide, proposals, store
from qrprof.planner.swaps.publish import swaps_file
from qrprof.planner.swaps.records import KeptSwap

HERE = decide.here()
SOURCES = {"one": SOURCE, "other": SOURCE.replace("weights", "w")}
names = st.sampled_from([*SOURCES, "qr"])


class Decisions(RuleBasedStateMachine):
    """Two candidates for one op, and the included QR. `edited` are those whose file is not what was accepted."""

    @initialize()
    def begin(self) -> None:
        self.top = Path(tempfile.mkdtemp())
        self.root = self.top / "work"
        self.root.mkdir()
        self.environment = mock.patch.dict(os.environ, QRPROF_CONFIG=str(self.top / "config"))
        self.environment.start()
        self.known = {name: verified(self.root, text, id=name).name for name, text in SOURCES.items()} | {"qr": "qr"}
        with opened(self.root) as connection:
            found = proposals.of_library("included", "qr")
            store.propose(connection, found, None, by(self.root).change("proposed", "found"))
        self.running: set[str] = set()
        self.edited: set[str] = set()

    def teardown(self) -> None:
        self.environment.stop()
        shutil.rmtree(self.top)

    def swap(self, name: str) -> KeptSwap:
        return next(one for one in looked_up(self.root, store.listed) if one.name == self.known[name])

    @rule(name=names)
    def accept(self, name: str) -> None:
        decide.accept(by(self.root), self.swap(name), SOURCES.get(name), "the gate passed it")
        self.running = ({"qr"} & self.running if name in SOURCES else self.running) | {name}
        self.edited.discard(name)

    @rule(name=names, state=st.sampled_from(["undone", "rejected"]))
    def leave(self, name: str, state: str) -> None:
        decide.leave(by(self.root), self.swap(name), "undone" if state == "undone" else "rejected", "not wanted")
        self.running.discard(name)

    @rule(name=names)
    def find_again(self, name: str) -> None:
        with opened(self.root) as connection:
            store.propose(
                connection, self.swap(name).swap, SOURCES.get(name), by(self.root).change("proposed", "found")
            )

    @rule(name=st.sampled_from(list(SOURCES)), text=st.sampled_from(["", "def candidate(*args): evil()\n", None]))
    def edit(self, name: str, text: str | None) -> None:
        file = candidate_file(swaps_file(self.root), self.swap(name).swap.sha256)
        if file.exists() and text is None:
            file.unlink()
        elif file.exists():
            file.write_text(str(text))
        self.edited.add(name)

    @rule(text=st.sampled_from(["", "{", "[]", '{"schema": 2}']))
    def damage(self, text: str) -> None:
        swaps_file(self.root).write_text(text)

    @rule()
    def plant(self) -> None:
        """All that there is, accepted or not."""
        write(swaps_file(self.root), [entry for name in self.known if (entry := self.swap(name).entry)])

    @rule()
    def look(self) -> None:
        decide.refresh(by(self.root), HERE)
        self.running -= self.edited
        assert self.loaded(self.root) == self.running

    @invariant()
    def no_more_than_what_is_accepted_and_unchanged(self) -> None:
        assert self.loaded(self.root) <= self.running - self.edited

    @invariant()
    def a_copy_loads_nothing(self) -> None:
        clone = self.top / "clone"
        shutil.copytree(self.root, clone)
        assert self.loaded(clone) == set()
        shutil.rmtree(clone)

    def loaded(self, root: Path) -> set[str]:
        path = swaps_file(root)
        found = {swap.name for swap in load(path).swaps} if path.exists() else set()
        return {name for name, known in self.known.items() if known in found}


Decisions.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestDecisions = pytest.mark.slow(Decisions.TestCase)
