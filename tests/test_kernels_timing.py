"""The timing protocol, on a scripted clock: nothing here depends on how long anything takes."""

from collections.abc import Callable

import pytest
import torch

from qrprof.kernels.capture import NoGraph
from qrprof.kernels.timing import (
    EAGER,
    GRAPH,
    MOST_CALLS,
    MOST_PAIRS,
    READING_NS,
    Contender,
    DeviceClock,
    HostClock,
    calls_of,
    clock_of,
    compare,
    take_turns,
    timing,
    warm_up,
)


class Script:
    """A clock that moves only when a contender works; `log` holds what happened, in order."""

    name = "script"

    def __init__(self, graphs: bool = True) -> None:
        self.ns = 0
        self.graphs = graphs
        self.log: list[str] = []

    def now(self) -> int:
        return self.ns

    def idle(self) -> None:
        self.log.append("idle")

    def flush(self) -> None:
        self.log.append("flush")

    def span(self, work: Callable[[], object]) -> float:
        start = self.ns
        work()
        return self.ns - start

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        if not self.graphs:
            raise NoGraph("not in this play")
        self.log.append("capture")
        return work

    def peak_bytes(self, work: Callable[[], object]) -> int | None:
        work()
        return 1234

    def contender(self, name: str, *costs: int, inputs: int = 3) -> Contender:
        """Calls cost `costs` in turn, the last one from then on."""
        left = list(costs)

        def call(given: int) -> None:
            self.log.append(f"{name}{given}")
            self.ns += left.pop(0) if len(left) > 1 else left[0]

        return Contender(name, call, range(inputs), self)

    def worked(self) -> list[str]:
        return [what for what in self.log if what not in ("idle", "flush", "capture")]


MS = 1_000_000


def test_the_first_call_and_memory_are_apart() -> None:
    clock = Script()
    warm = warm_up(clock.contender("a", 900 * MS, 3 * MS, 2 * MS))
    assert (warm.first_ns, warm.once_ns, warm.peak_bytes) == (900 * MS, 2 * MS, 1234)
    (found,) = compare([warm], seconds=0)
    assert (found.first_ns, found.peak_bytes) == (900 * MS, 1234)
    assert found.call.p95_ns == found.device.p95_ns == 2 * MS


def test_contenders_take_turns_there_and_back() -> None:
    clock = Script()
    field = [warm_up(clock.contender(name, MS, inputs=1)) for name in "abc"]
    clock.log.clear()
    compare(field, seconds=0)
    eager = ["a0", "b0", "c0", "c0", "b0", "a0"]
    uploads = ["a0", "b0", "c0"]
    assert clock.worked() in (eager + uploads + eager, uploads + eager + eager)


def test_an_eager_reading_is_one_call_on_the_next_input_of_an_idle_device_with_a_cold_l2() -> None:
    clock = Script()
    warm = warm_up(clock.contender("a", 40 * MS, inputs=3))
    clock.log.clear()
    (found,) = compare([warm], seconds=0.33)
    first = clock.log.index("flush")
    assert clock.log[first : first + 9] == ["flush", "idle", "a0", "flush", "idle", "a1", "flush", "idle", "a2"]
    assert (found.call.calls, found.call.median_ns, found.call.how, found.call.clock) == (1, 40 * MS, EAGER, "script")


def test_a_device_reading_is_a_graph_over_inputs_that_differ() -> None:
    clock = Script()
    warm = warm_up(clock.contender("a", 5 * MS, inputs=4))
    clock.log.clear()
    (found,) = compare([warm], seconds=0)
    assert clock.log.count("capture") == 1
    assert clock.log[-12:] == 2 * ["idle", "flush", "a0", "a1", "a2", "a3"]  # flushed behind the wait, before the graph
    assert (found.device.n, found.device.calls, found.device.how) == (2, 4, GRAPH)
    assert found.device.median_ns == 5 * MS


def test_without_a_graph_a_loop_of_calls_says_so() -> None:
    clock = Script(graphs=False)
    (found,) = compare([warm_up(clock.contender("a", 5 * MS, inputs=4))], seconds=0)
    assert found.device.how == "loop of calls: not in this play"
    assert (found.device.calls, found.device.median_ns) == (4, 5 * MS)


@pytest.mark.parametrize(
    ("once_ns", "calls"),
    [(0, MOST_CALLS), (1000, MOST_CALLS), (READING_NS / 10, 10), (READING_NS, 1), (100 * READING_NS, 1)],
)
def test_a_graph_holds_fewer_calls_where_they_are_long(once_ns: float, calls: int) -> None:
    assert calls_of(once_ns) == calls


def test_a_graph_holds_no_more_calls_than_there_are_inputs() -> None:
    clock = Script()
    field = [warm_up(clock.contender("fast", 1000, inputs=80)), warm_up(clock.contender("slow", 60 * MS, inputs=80))]
    fast, slow = compare(field, seconds=0)
    assert (fast.device.calls, slow.device.calls) == (MOST_CALLS, 1)


# --- the budget


def turns(costs: list[int], seconds: float) -> list[list[float]]:
    clock = Script()

    def reader(name: str, cost: int) -> Callable[[], float]:
        contender = clock.contender(name, cost)
        return lambda: clock.span(lambda: contender.call(0))

    return take_turns([reader(name, cost) for name, cost in zip("abc", costs, strict=False)], seconds, clock.now)


def test_readings_stop_before_another_pair_of_rounds_would_go_beyond_the_budget() -> None:
    assert [len(found) for found in turns([10 * MS, 40 * MS], seconds=0.45)] == [8, 8]  # a pair takes 100 ms


def test_everybody_is_read_twice_however_slow() -> None:
    assert turns([1, 10_000 * MS], seconds=0.001) == [[1, 1], [10_000 * MS, 10_000 * MS]]


def test_a_fast_call_is_read_a_bounded_number_of_times() -> None:
    assert [len(found) for found in turns([10, 10], seconds=3600)] == [2 * MOST_PAIRS] * 2


def test_no_contenders_have_no_times() -> None:
    assert compare([], seconds=1) == []


# --- figures


def test_quantiles_are_of_the_readings() -> None:
    found = timing([float(ns) for ns in range(101)], 7, "script", "somehow")
    assert (found.n, found.calls, found.p05_ns, found.median_ns, found.p95_ns) == (101, 7, 5, 50, 95)
    assert (found.clock, found.how) == ("script", "somehow")


def test_one_long_call_among_short_ones_moves_p95_not_the_median() -> None:
    clock = Script()
    costs = [*[MS] * 10, 500 * MS, *[MS] * 1000]
    (found,) = compare([warm_up(clock.contender("a", *costs))], seconds=10)
    assert found.call.median_ns == found.device.median_ns == MS
    assert found.call.p05_ns == MS


def test_what_a_call_raises_is_the_callers() -> None:
    def broken(given: object) -> None:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        warm_up(Contender("a", broken, [0], Script()))


# --- real clocks


def test_the_host_clock_runs_work_and_has_no_graphs() -> None:
    clock = clock_of(torch.device("cpu"))
    assert clock == HostClock()
    done: list[int] = []
    assert clock.span(lambda: done.append(1)) > 0
    assert clock.peak_bytes(lambda: done.append(2)) is None
    assert done == [1, 2]
    with pytest.raises(NoGraph, match="a CPU has no graphs"):
        clock.capture(lambda: None)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@gpu
def test_a_graph_of_the_device_does_the_work_again() -> None:
    device = torch.device("cuda")
    clock = DeviceClock(device)
    assert clock.other_data.numel() > torch.cuda.get_device_properties(device).L2_cache_size
    x = torch.zeros(8, device=device)
    x.add_(1)
    replay = clock.capture(lambda: x.add_(1))
    assert x.tolist() == [1.0] * 8  # a capture does not run
    clock.flush()
    assert clock.span(replay) > 0
    assert x.tolist() == [2.0] * 8
    assert clock.peak_bytes(lambda: torch.empty(1 << 20, dtype=torch.uint8, device=device)) == 1 << 20


@pytest.mark.gpu
@gpu
def test_a_capture_that_fails_leaves_the_device_as_it_was() -> None:
    device = torch.device("cuda")
    clock = DeviceClock(device)
    here = torch.cuda.current_stream(device)
    x = torch.ones(8, device=device)
    with pytest.raises(NoGraph, match="no capture"):
        clock.capture(lambda: x.sum().item())  # waits for the device
    assert torch.cuda.current_stream(device) == here
    assert (x + 1).sum().item() == 16
    torch.cuda.empty_cache()
    replay = clock.capture(lambda: x.add_(1))
    replay()
    assert x.sum().item() == 16


@pytest.mark.gpu
@gpu
def test_a_call_on_the_device_has_both_times_and_its_memory() -> None:
    device = torch.device("cuda")
    inputs = [torch.rand(64, 64, device=device) for _ in range(4)]
    (found,) = compare([warm_up(Contender("mm", lambda a: a @ a, inputs, DeviceClock(device)))], seconds=0)
    assert found.device.how == GRAPH
    assert found.peak_bytes is not None
    assert found.peak_bytes >= 4 * 64 * 64
