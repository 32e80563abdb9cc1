"""Jobs for tests of what evaluates them."""

import sys
from pathlib import Path

from gate_tasks import MM

from qrprof.planner.optimize.records import Job, Rung

STAND_IN = (sys.executable, "-P", "-u", str(Path(__file__).with_name("optimize_stand_in.py")))
GOOD = "def candidate(a, b):\n    return a @ b\n"
WRONG = "def candidate(a, b):\n    return a @ b + 1\n"
HANGS = f"import time\ntime.sleep(100)\n{GOOD}"


def job(source: str, rung: Rung = "preview", parent: str | None = None, query: int | None = None) -> Job:
    return Job(MM, source, parent, rung, 1, query)
