"""The ranks of a run side by side: known answers, and what holds for any."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qrprof.profiler.events import HOST, is_communication
from qrprof.profiler.ranks import Ranks, at_least, ranks
from qrprof.profiler.trace import Trace

WALL = 1_700_000_000 * 10**9  # ns: November 2023
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STEP = 1000  # ns

Row = dict[str, Any]
Collective = tuple[int, int]  # start and end
Make = Callable[..., Trace]


@pytest.fixture(scope="session")
def make(build: Any) -> Make:
    """A rank's trace: in each of its steps of 1000 ns some collectives, launched at the step's begin."""

    def make(
        *steps: Sequence[Collective],
        name: str = ALL_REDUCE,
        base: int = WALL,
        stream: int = 20,
        more: Sequence[Row] = (),
    ) -> Trace:
        rows = [build.mark(number, number * STEP) for number in range(len(steps) + 1)]
        for number, step in enumerate(steps):
            for turn, (start, end) in enumerate(step):
                zero, correlation = number * STEP, 100 * number + turn + 1
                rows += [build.launch(correlation, zero + turn, zero + turn)]
                rows += [build.kernel(name, zero + start, zero + end, correlation, stream=stream)]
        return replace(Trace.from_rows([*rows, *more]), base_ns=base)

    return make


def work(build: Any, row: Row, correlation: int) -> list[Row]:
    """A row of device work with its launch at the begin of the first step."""
    return [build.launch(correlation, 0, 0), row | {"correlation": correlation}]


def later(trace: Trace, ns: int) -> Trace:
    """The trace as a clock that is ahead would have recorded it."""
    moved = {"start": trace.events["start"] + ns, "end": trace.events["end"] + ns}
    return replace(trace, events=trace.events.assign(**moved))


def waits(found: Ranks) -> dict[int, float]:
    return {one.rank: one.wait_ns for one in found.arrivals}


# --- names


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "msccl_kernel",
        "hcclAllReduce",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)",
        "gloo:all_reduce",
    ],
)
def test_communication_is_known_by_its_name(name: str) -> None:
    assert is_communication(name)


@pytest.mark.parametrize(
    "name", ["nccl:all_reduce", "reduce_kernel", "c10d::allreduce_", "Memcpy PtoP", "ampere_sgemm"]
)
def test_what_is_no_communication(name: str) -> None:
    assert not is_communication(name)


# --- one rank


def test_a_step_is_compute_exposed_communication_and_idle(build: Any, make: Make) -> None:
    """mm 100..300, a copy 300..350, the collective 200..600, of 1000."""
    more = [*work(build, build.kernel("mm", 100, 300), 50), *work(build, build.copy("Memcpy HtoD", 300, 350), 51)]
    (times,) = ranks({0: make([(200, 600)], more=more)}).times
    assert (times.step_ns, times.busy_ns, times.compute_ns) == (1000, 500, 250)
    assert (times.communication_ns, times.exposed_ns, times.idle_ns) == (400, 250, 500)
    assert times.unprofiled_ns is None


def test_the_record_weighs_the_steps(build: Any, make: Make) -> None:
    run = build.run([900, 1100], weights={0: 0.9, 1: 0.1})
    (times,) = ranks({0: make([(0, 100)], [(0, 500)])}, {0: run}).times
    assert times.communication_ns == pytest.approx(0.9 * 100 + 0.1 * 500)
    assert times.unprofiled_ns == 1000


def test_a_rank_of_two_devices_has_a_row_for_each(build: Any, make: Make) -> None:
    """Communication on one device is not covered by what another one computes."""
    other = work(build, build.kernel("mm", 100, 400) | {"device": 1}, 50)
    found = ranks({0: make([(100, 400)], more=other)})
    assert [(one.device, one.compute_ns, one.exposed_ns) for one in found.times] == [(0, 0, 300), (1, 300, 0)]
    assert found.label(found.times[1]) == "rank 0, device 1"


def test_a_lost_device_is_not_idle(build: Any) -> None:
    (times,) = ranks({0: Trace.from_rows([build.mark(0, 0), build.mark(1, 1000), build.launch(1, 10, 20)])}).times
    assert times.step_ns == 1000
    assert (times.busy_ns, times.compute_ns, times.exposed_ns, times.idle_ns) == (None, None, None, None)


def test_ranks_without_a_device_communicate_on_the_host(build: Any) -> None:
    """An op 100..400, gloo on a thread of its own 300..700: 300 of it beside nothing."""

    def rank(start: int, thread: int) -> Trace:
        rows = [build.mark(0, 0), build.mark(1, 1000), build.op("aten::mm", 100, 400)]
        return replace(Trace.from_rows([*rows, build.note("gloo:all_reduce", start, 700, thread)]), base_ns=WALL)

    found = ranks({0: rank(300, 2), 1: rank(500, 3)})
    first = found.times[0]
    assert (first.device, first.busy_ns) == (HOST, None)
    assert (first.compute_ns, first.communication_ns, first.exposed_ns, first.idle_ns) == (300, 400, 300, 400)
    assert waits(found) == {0: 200, 1: 0}


def test_who_waits_in_two_collectives_at_once_waits_once(build: Any) -> None:
    """Rank 0 waits 100..400 and 150..450 for rank 1, which is 300 late; the transfers take 100 and 110."""

    def rank(*begins: int) -> Trace:
        rows = [build.mark(0, 0), build.mark(1, 1000)]
        notes = [
            build.note("gloo:all_reduce", begin, end, 2 + end) for begin, end in zip(begins, (500, 560), strict=True)
        ]
        return replace(Trace.from_rows([*rows, *notes]), base_ns=WALL)

    found = ranks({0: rank(100, 150), 1: rank(400, 450)})
    assert found.collectives.table()["wait_ns"].tolist() == [300, 50]
    assert found.collectives.table()["skew_ns"].tolist() == [300, 300]
    assert waits(found) == {0: 350, 1: 0}
    assert (found.arrivals[0].rank, found.arrivals[0].caused_ns, found.arrivals[0].early_ns) == (1, 350, 300)


# --- collectives


def test_latency_skew_and_waiting(make: Make) -> None:
    """Rank 2 comes last, at 500; the transfer takes 100."""
    found = ranks({0: make([(100, 600)]), 1: make([(200, 600)]), 2: make([(500, 600)])})
    (collective,) = found.collectives.table().to_dict("records")
    assert (collective["latency_ns"], collective["skew_ns"], collective["wait_ns"]) == (100, 400, 400 + 300)
    assert (collective["last_rank"], collective["members"], collective["early_ns"]) == (2, 3, 300)
    assert collective["start"] == WALL + 100
    assert waits(found) == {0: 400, 1: 300, 2: 0}
    assert (found.arrivals[0].rank, found.arrivals[0].caused_ns, found.arrivals[0].early_ns) == (2, 700, 300)


def test_collectives_are_matched_by_order_and_name_on_each_stream(build: Any, make: Make) -> None:
    """Streams have other numbers on rank 1, and one of them has two collectives."""
    first = make([(100, 200), (300, 400)], more=work(build, build.kernel(SEND_RECV, 100, 400, stream=30), 50))
    others = work(build, build.kernel(SEND_RECV, 250, 400, stream=9), 50)
    second = make([(150, 200), (300, 410)], stream=5, more=others)
    table = ranks({0: first, 1: second}).collectives.table().set_index(["lane", "start"])
    assert table.loc[(1, WALL + 100), "skew_ns"] == 50
    assert table.loc[(2, WALL + 100), "skew_ns"] == 150
    assert table.loc[(1, WALL + 300), "wait_ns"] == 10
    assert len(table) == 3


def test_what_was_launched_before_the_steps_is_not_counted(build: Any, make: Make) -> None:
    """Rank 1 ran late: a collective of the step before the first, whose launch is in its file, ends in it."""
    old = [build.launch(99, -50, -40), build.kernel(ALL_REDUCE, 20, 90, 99, stream=20)]
    found = ranks({0: make([(100, 300)]), 1: make([(200, 300)], more=old)})
    assert len(found.collectives.table()) == 1
    assert found.collectives.left_out == 0
    assert waits(found) == {0: 100, 1: 0}


def test_what_ranks_have_differently_often_is_left_out(make: Make) -> None:
    """One may be missing anywhere: which one, nothing says. The step in which both have one is matched."""
    found = ranks({0: make([(100, 200)], [(100, 200)]), 1: make([(100, 200)], [(100, 200), (300, 400)])})
    assert found.collectives.table()["step"].tolist() == [0]
    assert found.collectives.left_out == 3


def test_a_group_of_some_of_the_ranks(make: Make) -> None:
    found = ranks({0: make([(100, 200)]), 1: make([(150, 200)]), 2: make([])})
    assert found.collectives.table()["members"].tolist() == [2]
    assert waits(found) == {0: 50, 1: 0}


def test_what_does_not_run_at_the_same_time_is_left_out(make: Make) -> None:
    """Two pairs of ranks, each with collectives of its own."""
    pairs = [make([(100, 200)], name=SEND_RECV)] * 2 + [make([(300, 400)], name=SEND_RECV)] * 2
    found = ranks(dict(enumerate(pairs)))
    assert found.collectives.left_out == 4
    assert found.wait_ns is None
    assert found.why == "no collective was found on two ranks"


# --- clocks


def test_bases_are_added(make: Make) -> None:
    found = ranks({0: make([(100, 600)]), 1: later(make([(500, 600)], base=WALL - 10**12), 10**12)})
    assert found.collectives.clock.name == "recorded"
    assert found.collectives.clock.off_ns == 0
    assert waits(found) == {0: 400, 1: 0}


def test_without_bases_ranks_are_lined_up_by_the_ends_of_collectives(make: Make) -> None:
    steps = [[(100, 600), (700, 790)], [(500, 600), (750, 790)]]
    found = ranks({0: make(steps[0], base=0), 1: later(make(steps[1], base=0), 5000)})
    assert (found.collectives.clock.name, found.collectives.clock.checked) == ("aligned", 2)
    assert found.collectives.table()["skew_ns"].tolist() == [400, 50]
    assert waits(found) == {0: 400 + 50, 1: 0}


def test_without_bases_and_barriers_nothing_is_said(make: Make) -> None:
    found = ranks({0: make([(100, 600)], name=SEND_RECV, base=0), 1: make([(500, 600)], name=SEND_RECV, base=0)})
    assert found.collectives.clock.name == "unknown"
    assert found.collectives.table().empty
    assert "no common zero" in found.why


def test_clocks_that_collectives_contradict_are_lined_up(make: Make) -> None:
    """Rank 1's clock is a second ahead."""
    found = ranks({0: make([(100, 600)]), 1: make([(500, 600)], base=WALL + 10**9)})
    assert (found.collectives.clock.name, found.collectives.clock.contradicted) == ("aligned", 0)
    assert waits(found) == {0: 400, 1: 0}


# --- the straggler


def test_the_rank_that_is_late_in_every_step_is_the_straggler(make: Make) -> None:
    steps = [[(100, 600)]] * 6
    found = ranks({0: make(*steps), 1: make(*steps), 2: make(*[[(500, 600)]] * 6)})
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.came_last, found.straggler.led_steps) == (2, 6, 6)
    assert found.wait_ns == pytest.approx(2 * 400)
    assert found.straggler.caused_ns == pytest.approx(800)
    assert found.straggler.luck == pytest.approx(3 * (1 / 3) ** 6)
    assert found.why.startswith("rank 2 causes 100.0 % of the waiting")


def test_a_rank_late_once_a_step_leads_the_steps(make: Make) -> None:
    """It comes last to one collective of four in each of five steps: not often, but always at the same place."""
    one = [(100, 300), (399, 410), (500, 510), (600, 610)]
    other = [(290, 300), (400, 410), (499, 510), (599, 610)]
    third = [(110, 300), (399, 410), (500, 510), (601, 610)]
    found = ranks({0: make(*[one] * 5), 1: make(*[other] * 5), 2: make(*[third] * 5)})
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.led_steps) == (1, 5)


def test_a_single_mishap_is_not_a_habit(make: Make) -> None:
    quiet = [(100, 110), (200, 210), (300, 310)]
    found = ranks({0: make([*quiet, (400, 900)]), 1: make([*quiet, (850, 900)])})
    assert found.straggler is None
    assert found.why.startswith("none stands out: rank 1 causes 100.0 % of the waiting, but it came last to")


def test_ranks_that_take_turns(make: Make) -> None:
    found = ranks({0: make([(100, 600)], [(500, 600)]), 1: make([(500, 600)], [(100, 600)])})
    assert found.straggler is None
    assert "none stands out" in found.why


def test_ranks_that_hardly_wait(make: Make) -> None:
    found = ranks({0: make(*[[(100, 200)]] * 8), 1: make(*[[(109, 200)]] * 8)})
    assert found.straggler is None
    assert found.why == "nobody is waited for: waiting takes 0.4 % of the ranks' steps"


def test_a_rank_alone(make: Make) -> None:
    found = ranks({3: make([(100, 200)])})
    assert found.straggler is None
    assert found.collectives.left_out == 1
    assert "only one rank" in found.why


def test_ranks_without_collectives(build: Any, make: Make) -> None:
    trace = make([], more=work(build, build.kernel("mm", 100, 200), 50))
    found = ranks({0: trace, 1: trace})
    assert found.wait_ns is None
    assert found.arrivals == ()
    assert [times.communication_ns for times in found.times] == [0, 0]


@pytest.mark.parametrize(("hits", "tries", "one_in"), [(0, 5, 2), (5, 8, 8), (22, 33, 2), (3, 3, 4), (1, 1, 1)])
def test_the_probability_of_so_many_hits(hits: int, tries: int, one_in: int) -> None:
    counted = sum(comb(tries, k) * (one_in - 1) ** (tries - k) for k in range(hits, tries + 1)) / one_in**tries
    assert at_least(hits, tries, 1 / one_in) == pytest.approx(counted)


# --- any ranks


@st.composite
def jobs(draw: st.DrawFn) -> list[list[list[Collective]]]:
    """By rank and step the collectives: all end at the same time, and begin at any before."""
    ends = [[400, 700, 900][: draw(st.integers(0, 3))] for _ in range(draw(st.integers(1, 3)))]
    floor = {400: 10, 700: 410, 900: 710}
    return [
        [[(draw(st.integers(floor[end], end - 1)), end) for end in step] for step in ends]
        for _ in range(draw(st.integers(1, 4)))
    ]


@settings(max_examples=20, deadline=None)
@given(job=jobs(), ahead=st.integers(-(10**6), 10**6))
def test_all_that_is_waited_is_caused(make: Make, job: list[list[list[Collective]]], ahead: int) -> None:
    found = ranks({rank: make(*steps) for rank, steps in enumerate(job)})
    assert sum(one.caused_ns for one in found.arrivals) == pytest.approx(found.wait_ns or 0)
    assert sum(one.wait_ns for one in found.arrivals) == pytest.approx(found.wait_ns or 0)
    assert sum(one.came_last for one in found.arrivals) == len(found.collectives.table())
    for times in found.times:
        parts = (times.compute_ns, times.exposed_ns, times.idle_ns)
        assert sum(part for part in parts if part is not None) == pytest.approx(times.step_ns)
    if len(job) > 1:
        assert found.collectives.left_out == 0
        lined = ranks({rank: later(make(*steps, base=0), rank * ahead) for rank, steps in enumerate(job)})
        assert lined.arrivals == found.arrivals


spans = st.tuples(st.integers(10, 500), st.integers(10, 500), st.integers(501, 900))  # two begins, and the end of both


@settings(max_examples=20, deadline=None)
@given(found=st.lists(spans, min_size=1, max_size=5))
def test_a_rank_waits_as_long_as_it_waits_in_any_collective(build: Any, found: list[tuple[int, int, int]]) -> None:
    def rank(number: int) -> Trace:
        notes = [build.note(f"gloo:all_reduce_{n}", one[number], one[2], 2 + n) for n, one in enumerate(found)]
        return replace(Trace.from_rows([build.mark(0, 0), build.mark(1, 1000), *notes]), base_ns=WALL)

    for arrival in ranks({0: rank(0), 1: rank(1)}).arrivals:
        own, other = arrival.rank, 1 - arrival.rank
        waited = {ns for one in found for ns in range(one[own], max(one[own], one[other]))}
        late = [range(one[other], one[own]) for one in found]
        assert arrival.wait_ns == pytest.approx(len(waited))
        assert max(map(len, late)) <= arrival.early_ns + 1e-6
        assert arrival.early_ns <= len({ns for one in late for ns in one}) + 1e-6
