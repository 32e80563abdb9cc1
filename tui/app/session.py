"""What is open: one process of a run, and all that is computed of it, once and when it is first asked for."""

import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from qrprof.profiler import units

if TYPE_CHECKING:
    from qrprof.planner.replay.model import Model
    from qrprof.planner.whatif_parts import Subject
    from qrprof.profiler.diff import Side
    from qrprof.profiler.facts import Facts
    from qrprof.profiler.gaps import Idle
    from qrprof.profiler.launches import Launches
    from qrprof.profiler.panels import PanelStep
    from qrprof.profiler.partition import Partition
    from qrprof.profiler.runinfo import RunInfo
    from qrprof.profiler.trace import Trace
    from qrprof.tui.ranking import Ranking


@dataclass(frozen=True)
class Selection:
    """What a person looks at, whatever the view. `span` is a row of the trace, `gap` the start of one in ns."""

    key: str | None = None  # of the partition, or of a fix
    gap: int | None = None
    span: int | None = None


NOTHING: Final = Selection()


@dataclass
class Read:
    """Bytes of a trace, as its reader tells them."""

    done: int = 0
    total: int = 0  # 0: nothing was told

    def tell(self, done: int, total: int) -> None:
        self.done, self.total = done, total


@dataclass(frozen=True, eq=False)
class Session:
    """A rank of a run. What it holds is computed in the thread that asks, which holds `lock` meanwhile.

    Properties raise QrprofError where the run cannot be read.
    """

    folder: Path
    number: int = 0
    lock: RLock = field(default_factory=RLock, repr=False)
    read: Read = field(default_factory=Read, repr=False)

    @cached_property
    def loaded(self) -> "tuple[RunInfo, Trace]":
        from qrprof.profiler.load import load_run

        return load_run(self.folder, self.number, self.read.tell)

    def problem(self) -> str | None:
        """Why the run cannot be read; None where it can."""
        from qrprof.profiler.errors import QrprofError

        try:
            with self.lock:
                self.loaded  # noqa: B018 - asking is reading
            return None
        except QrprofError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a broken file does, it is said in a sentence
            return f"{self.folder} cannot be read: {type(error).__name__}: {error}"

    def title(self) -> str:
        """The run by its name, and once it is read its program and step."""
        if "loaded" not in vars(self):
            return self.folder.name
        process = f", rank {self.run.rank} of {self.run.world_size}" if self.run.world_size > 1 else ""
        return f"{self.folder.name}: {shlex.join(self.run.command)}{process}, step {units.time(self.run.step_ns())}"

    @property
    def run(self) -> "RunInfo":
        return self.loaded[0]

    @property
    def trace(self) -> "Trace":
        return self.loaded[1]

    @cached_property
    def facts(self) -> "Facts":
        from qrprof.profiler.facts import find_facts

        return find_facts(self.trace, self.run)

    @cached_property
    def partition(self) -> "Partition":
        from qrprof.profiler.partition import divide

        return divide(self.facts, self.run)

    @cached_property
    def model(self) -> "Model":
        from qrprof.planner.replay.model import model_of

        return model_of(self.facts, self.run)

    @cached_property
    def subject(self) -> "Subject":
        """Of what-ifs. Raises QrprofError where the replay is withheld too."""
        from qrprof.planner.whatif_parts import Subject
        from qrprof.profiler.errors import QrprofError

        if self.model.withheld:
            raise QrprofError(f"what-ifs are withheld: {self.model.withheld}")
        return Subject(self.run, self.model, self.partition)

    @cached_property
    def ranking(self) -> "Ranking":
        from qrprof.tui.ranking import ranking_of

        return ranking_of(self.run, self.trace.warnings, self.partition, self.model)

    @cached_property
    def side(self) -> "Side":
        """For comparisons."""
        from qrprof.profiler.diff import side_of

        return side_of(self.facts, self.run, self.partition)

    @cached_property
    def idle(self) -> "Idle":
        from qrprof.profiler.gaps import find_idle

        return find_idle(self.facts, self.run)

    @cached_property
    def launches(self) -> "Launches":
        from qrprof.profiler.launches import find_launches

        return find_launches(self.facts, self.run)

    @cached_property
    def panels(self) -> "list[PanelStep]":
        from qrprof.profiler.panels import find_panels

        return find_panels(self.facts)
