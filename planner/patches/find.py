"""Which of the user's own lines a ranking speaks of, where a change is known that does the same."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from qrprof.planner.patches.calls import fused, workers
from qrprof.planner.patches.losses import waits
from qrprof.planner.patches.patch import Patch
from qrprof.planner.patches.sources import Source, sources
from qrprof.planner.targets import Target
from qrprof.profiler.runinfo import RunInfo

FUSED: Final = ("Adam", "AdamW", "SGD")  # of torch.optim, on a GPU with every torch that is served

Finder = Callable[[Source], Iterator[Patch]]


def find(root: Path, run: RunInfo, targets: Sequence[Target]) -> tuple[Patch, ...]:
    """Patches for the targets that are worth it, in their order; each is of a file as it is now.

    After one is applied, others of that file are to be found anew.
    """
    project = sources(root, run)
    finders = finders_for(run, project)
    wanted = [finders[target.key] for target in targets if target.key in finders and target.dont_bother is None]
    return tuple(patch for finder in wanted for source in project for patch in finder(source))


def finders_for(run: RunInfo, project: Sequence[Source]) -> dict[str, Finder]:
    """By the key of the target that they are for."""
    found: dict[str, Finder] = {"gap:data": lambda source: workers(source, project)}
    if any(device.kind == "cuda" for device in run.devices):
        found["gap:sync"] = waits
        optimizer = run.step_source.removeprefix("optimizer ")
        if optimizer in FUSED:
            found["fix:fused-optimizer"] = lambda source: fused(source, optimizer)
    return found
