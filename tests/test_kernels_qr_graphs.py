"""When a call is captured and replayed; that replays are right is tested on a GPU (test_kernels_qr_device.py)."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qrprof.kernels.capture import NoGraph
from qrprof.kernels.qr import graphs
from qrprof.kernels.qr.graphs import Graphs


class Machine:
    """A GPU of which only what `Graphs` asks is there: work runs on the CPU, a graph is the work itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures: list[Any] = []
        self.fails = False
        monkeypatch.setattr(graphs, "served", lambda inputs: True)
        monkeypatch.setattr(graphs, "captured", self.captured)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("Stream", (), {"cuda_stream": 7}))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("Gpu", (), {"total_memory": 80}))
        monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())

    def captured(self, work: Any, device: torch.device, mode: str) -> Any:
        self.captures.append(mode)
        if self.fails:
            raise NoGraph("no")
        outputs = work()

        class Graph:
            @staticmethod
            def replay() -> None:
                for mine, made in zip(outputs, work(), strict=True):
                    mine.copy_(made)

        return Graph, outputs


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def twice(x: Tensor) -> tuple[Tensor, ...]:
    return (2 * x,)


def test_the_second_call_of_a_shape_is_captured_and_later_ones_replayed(machine: Machine) -> None:
    kept = Graphs()
    results: list[Tensor] = []
    for number, captures in enumerate([0, 1, 1, 1]):
        results += kept.run("twice", twice, torch.full((3,), float(number)))
        assert len(machine.captures) == captures
    assert [float(x[0]) for x in results] == [0, 2, 4, 6]  # each result is the caller's own
    kept.run("twice", twice, torch.ones(4))
    kept.run("other", twice, torch.ones(3))
    assert len(machine.captures) == 1  # another shape, another op


def test_what_cannot_be_captured_runs_as_it_is_and_is_not_tried_again(machine: Machine) -> None:
    machine.fails = True
    kept = Graphs()
    for number in range(4):
        (result,) = kept.run("twice", twice, torch.full((3,), float(number)))
        assert float(result[0]) == 2 * number
    assert len(machine.captures) == 1


def test_the_graph_used_longest_ago_goes_and_is_captured_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST", 2)
    kept = Graphs()
    for size in (1, 2, 1, 2, 1, 3, 3):  # the last one takes the place of size 2
        kept.run("twice", twice, torch.ones(size))
    assert len(machine.captures) == 3
    kept.run("twice", twice, torch.ones(1))
    assert len(machine.captures) == 3
    kept.run("twice", twice, torch.ones(2))
    assert len(machine.captures) == 4
