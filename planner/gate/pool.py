"""Workers of the stock op that several verdicts use, one after the other: most of a short verdict is their start."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from qrprof.planner.gate.replies import Arguments, Built, Ended, Reply, Worker, Workers

if TYPE_CHECKING:
    from torch import Tensor


class Lent:
    """A worker that was built before, and lives on."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.built = worker.build()
        self.ended = False

    @property
    def layer(self) -> str:
        return self.worker.layer

    def build(self) -> Built:
        return self.built

    def call(self, inputs: Sequence[Arguments], *, watch: bool = False, again: bool = False) -> Reply:
        with self.minded():
            return self.worker.call(inputs, watch=watch, again=again)

    def echo(self, inputs: Sequence[Arguments], outputs: "Sequence[Sequence[Tensor]]") -> int:
        with self.minded():
            return self.worker.echo(inputs, outputs)

    def answers(self) -> bool:
        """Whether it is still there: the system may have ended it while it was idle."""
        with suppress(Ended):
            self.echo([], [])
        return not self.ended

    @contextmanager
    def minded(self) -> Iterator[None]:
        try:
            yield
        except Ended:
            self.ended = True
            raise


class Pool:
    """Workers, of which those on files with one of the texts `kept` live on for the next verdict, until the stack ends.

    For trusted files alone: what a candidate did in its process must not meet the next one.
    """

    def __init__(self, workers: Workers, kept: frozenset[str], stack: ExitStack) -> None:
        self.workers = workers
        self.kept = kept
        self.stack = stack
        self.idle: dict[str, list[Lent]] = {}
        self.lock = Lock()

    @contextmanager
    def __call__(self, source: Path) -> Iterator[Worker]:
        text = source.read_text(encoding="utf-8", errors="replace")
        if text not in self.kept:
            with self.workers(source) as worker:
                yield worker
            return
        lent = self.take(text) or Lent(self.started(source))
        try:
            yield lent
        finally:
            if not lent.ended:
                with self.lock:
                    self.idle.setdefault(text, []).append(lent)

    def take(self, text: str) -> Lent | None:
        while True:
            with self.lock:
                idle = self.idle.get(text)
                lent = idle.pop() if idle else None
            if lent is None or lent.answers():
                return lent

    def started(self, source: Path) -> Worker:
        worker = self.workers(source)
        with self.lock:
            return self.stack.enter_context(worker)
