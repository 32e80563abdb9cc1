"""What is known of a trace before any question is asked: who encloses, launches and owns what, and in which steps."""

from dataclasses import dataclass, replace

import numpy as np

from qrprof.profiler.idle import Causes, find_causes
from qrprof.profiler.nesting import Floats, Nesting, nest
from qrprof.profiler.owners import Owners, find_owners
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.steps import Steps, find_steps, weight_at
from qrprof.profiler.sweep import Sweep, sweep
from qrprof.profiler.trace import Trace
from qrprof.profiler.work import Work, join


@dataclass(frozen=True)
class Facts:
    trace: Trace
    host: Nesting
    work: Work
    steps: Steps
    owners: Owners
    causes: Causes
    swept: Sweep  # of the steps' device windows


def find_facts(trace: Trace, run: RunInfo | None = None) -> Facts:
    """Look at a trace. `run` knows the weights of its steps and the call sites of its linalg ops.

    Raises QrprofError where the trace is empty.
    """
    host = nest(trace.events)
    work = join(trace, host)
    steps = find_steps(trace, run, work)
    owners = find_owners(host, run)
    return Facts(trace, host, work, steps, owners, find_causes(host, owners), sweep(work, steps.device))


def only_device(facts: Facts, device: int) -> Facts:
    """The facts with the work of one device alone."""
    work = facts.work.only(facts.work.device == device)
    return replace(facts, work=work, swept=sweep(work, facts.steps.device))


def launch_weight(facts: Facts) -> Floats:
    """By item of work the weight of the step that launched it; 0: none did, or the launch is not in the file."""
    launched = weight_at(facts.steps.host, facts.work.launched)
    return np.where(facts.work.launch >= 0, launched, 0.0)


def feeding_threads(facts: Facts) -> list[int]:
    """The threads that feed the device in the steps, that of the steps' boundaries first."""
    launches = facts.work.launch[launch_weight(facts) > 0]
    own = facts.steps.thread
    return [own, *sorted(set(facts.host.track[launches].tolist()) - {own})]
