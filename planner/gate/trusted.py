"""A worker that holds code of ours: where it ends, the machine is at fault and no candidate."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from qrprof.planner.gate.replies import Arguments, Built, Ended, Reply, Worker


class Broken(Exception):
    """A worker of ours ended."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(str(ended))
        self.ended = ended


class Trusted:
    """Every method raises Broken where the worker's own raises Ended."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    @property
    def layer(self) -> str:
        return self.worker.layer

    def build(self) -> Built:
        with broken():
            return self.worker.build()

    def call(self, inputs: Sequence[Arguments], *, watch: bool = False, again: bool = False) -> Reply:
        with broken():
            return self.worker.call(inputs, watch=watch, again=again)

    def echo(self, inputs: Sequence[Arguments], outputs: Sequence[Sequence[Tensor]]) -> int:
        with broken():
            return self.worker.echo(inputs, outputs)


@contextmanager
def broken() -> Iterator[None]:
    try:
        yield
    except Ended as ended:
        raise Broken(ended) from None
