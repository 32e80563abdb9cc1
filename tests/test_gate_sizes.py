"""Which members of large cases are asked, and in what requests."""

from dataclasses import replace

from gate_scripted import GEQRF
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.gate.records import ArgSpec, Domain, TaskCase
from qrprof.planner.gate.sizes import REQUEST, REQUEST_ELEMENTS, elements, fit, requests
from qrprof.planner.gate.trial import Input


def batch(members: int, n: int) -> TaskCase:
    return TaskCase(f"{members}x{n}x{n}", 0.5, (ArgSpec((members, n, n), "float32"),), structure="dense")


def test_a_large_case_is_asked_with_fewer_members_where_the_domain_has_such() -> None:
    task = replace(GEQRF, development=(batch(640, 256), batch(4, 32)))
    assert [case.tensors[0].shape for case in fit(task)] == [(32, 256, 256), (4, 32, 32)]
    rigid = replace(task, domain=Domain("none"))
    assert [case.tensors[0].shape for case in fit(rigid)] == [(4, 32, 32)]
    alone = replace(task, development=(batch(1, 2048),))
    assert fit(alone) == [batch(1, 2048)]


@given(st.lists(st.integers(1, 3000), max_size=40))
def test_requests_keep_the_order_and_are_not_too_large(sizes: list[int]) -> None:
    inputs = [Input(batch(1, size), ()) for size in sizes]
    found = list(requests(inputs))
    assert [one for request in found for one in request] == inputs
    for request in found:
        assert 1 <= len(request) <= REQUEST
        assert len(request) == 1 or sum(elements(one.case) for one in request) <= REQUEST_ELEMENTS
