"""A pytest plugin: once TIME_LIMIT_S seconds have passed, the tests that are left are skipped, each by its name.

The run fails if one of them holds known answers (its name has "golden"): those are never left out. Works with the
workers of pytest-xdist too: a test is skipped where it would run, and counted where its report arrives.
"""

import os
import time

import pytest

DEADLINE = time.monotonic() + float(os.environ["TIME_LIMIT_S"])
REASON = "NOT RUN, the time was up"
NEVER_LEFT_OUT = "golden"
left_out: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > DEADLINE:
        pytest.skip(f"{REASON}: {item.nodeid}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and REASON in str(report.longrepr):
        left_out.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if any(NEVER_LEFT_OUT in name for name in left_out):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
