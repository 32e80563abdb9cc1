"""A verdict on this machine: real processes, the device's measured peaks, and what the machine was like meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from qrprof.planner.gate import gate, sandbox, worker
from qrprof.planner.gate.environment import around, machine, state
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.records import Stage, Task, Verdict
from qrprof.planner.gate.replies import Workers
from qrprof.planner.gate.sandbox import Layer
from qrprof.profiler.devices import kept_peaks
from qrprof.profiler.errors import Exit, QrprofError


def layer_for(candidate: str, unsandboxed: bool) -> Layer:
    """The best layer that works here; `candidate` is what a sentence calls it.

    Raises QrprofError (exit code 3) where nothing can contain a candidate, and that was not allowed.
    """
    layer = sandbox.available_layer()
    if layer == "none" and not unsandboxed:
        raise QrprofError(
            f"nothing here can contain {candidate}: neither bubblewrap nor namespaces work; install bubblewrap, or give"
            " --allow-unsandboxed to run it with your rights",
            Exit.REFUSED,
        )
    return layer


def workers_on(device: str, layer: Layer, included: Path | None = None) -> Workers:
    """`included`: a file of ours that may call the included kernels."""
    return lambda source: worker.started(source, device, Limits(included=source == included), layer)


def judge(
    task: Task,
    candidate: Path,
    parent: Path | None,
    workers: Workers,
    lane: gate.Lane,
    *,
    until: Stage = "holdout",
    say: Callable[[str], None] = lambda stage: None,
) -> Verdict:
    """As run_gate, with the environment filled in.

    Raises QrprofError (exit code 3) where the task's device is not here, and what run_gate and the lane's query raise.
    """
    fixed, at_start = machine(task.device), state(task.device)
    peaks = kept_peaks(task.device, fixed["device"], torch.get_num_threads())
    verdict = gate.run_gate(task, candidate, parent, workers=workers, lane=lane, peaks=peaks, until=until, say=say)
    return replace(verdict, environment=around(fixed, at_start, state(task.device)))
