"""A verdict with all that one can hold, for tests of what keeps and shows it."""

from dataclasses import replace

from qrprof.planner.gate.environment import around
from qrprof.planner.gate.records import STAGES, CaseTime, Finding, Interval, StageCost, Verdict

MACHINE = {"device": "A CPU", "threads": "2", "cores": "2", "torch": "2.13.0"}


def case_time(case: str, speedup: float, parent_ns: float | None = 2.4e6) -> CaseTime:
    """Twenty readings of each leg, of which the last is twice as long."""
    legs = {"stock": 3e6, "candidate": 3e6 / speedup} | ({"parent": parent_ns} if parent_ns else {})
    readings = {leg: (*[ns] * 19, 2 * ns) for leg, ns in legs.items()}
    interval = Interval(speedup - 0.05, speedup, speedup + 0.06)
    return CaseTime(case, 3e6, parent_ns, 3e6 / speedup, interval, 8, 12, readings, 3 << 20)


PASSED = Verdict(
    id="20260201-090000-abababab",
    task="qr-small",
    candidate="ab" * 32,
    outcome="PASS",
    findings=(Finding("static", "PASS", None, "line 1 imports ctypes, which calls native code by address", "static"),),
    times=(case_time("8x64x64 dense", 1.5), case_time("2x512x512 clustered", 1.1)),
    costs=tuple(StageCost(stage, 0.5 + n, 10 * n, 10 * n) for n, stage in enumerate(STAGES)),
    layer="bubblewrap",
    environment=around(MACHINE, {"load": "0.10", "stolen": "1.0 s"}, {"load": "1.90", "stolen": "1.1 s"}),
    holdout_queries=1,
    tries=4,
    speedup=Interval(1.25, 1.3, 1.36),
    over_parent=Interval(1.1, 1.2, 1.3),
    noise=0.013,
    needed=1.031,
)
FAILED = replace(
    PASSED,
    id="20260201-090100-cdcdcdcd",
    candidate="cd" * 32,
    outcome="FAIL",
    findings=(
        Finding("mutated-input", "FAIL", "8x64x64 dense", "argument 0 was changed: 12 of 32,768 elements", "contract"),
        Finding("contract", "FAIL", None, "tau has 63 columns, not 64", "contract"),
    ),
    times=(),
    costs=PASSED.costs[:4],
    speedup=None,
    over_parent=None,
    noise=None,
    needed=None,
)
