"""Does the search find the included QR kernels' speed again, from the same kernels with poor settings?

python benchmarks/optimize_gpu.py --json FILE [--lanes 40x176,40x352,60x1024] [--seconds 90] [--slots 6]

For each lane the real optimizer proposes for so many seconds: the search over the declared tunables, in child processes
of the gate, one of which measures at a time on each GPU. Then the package's own kernels, the same in one file, the poor
settings and what was found are timed beside each other by the gate's rounds; `over` is the speed over the package's
kernels, `recovered` that of what was found over the same kernels in one file. FILE is written after every candidate.
`--lanes cpu` is a lane of another kind, with which all of this runs in a minute without a GPU.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from qrprof.planner.gate.aten_task import signature, stock_source
from qrprof.planner.gate.draw import fresh_seed
from qrprof.planner.gate.here import layer_for, workers_on
from qrprof.planner.gate.qr_task import domain
from qrprof.planner.gate.readings import nets
from qrprof.planner.gate.records import ArgSpec, Task, TaskCase, Tolerance
from qrprof.planner.gate.rounds import CANDIDATE, PARENT, STOCK, TWIN, Legs, calls_of, pairs
from qrprof.planner.gate.stats import noise_of, together
from qrprof.planner.gate.threads import one_thread
from qrprof.planner.gate.timing import repeat
from qrprof.planner.gate.trial import Trial
from qrprof.planner.gate.trusted import Trusted
from qrprof.planner.ledger import opened
from qrprof.planner.optimize import beam
from qrprof.planner.optimize.budget import Meter
from qrprof.planner.optimize.journal import Journal
from qrprof.planner.optimize.loop import optimize
from qrprof.planner.optimize.pool import LocalPool
from qrprof.planner.optimize.records import Budget, Event, Job, Start
from qrprof.planner.optimize.search import Search
from qrprof.planner.optimize.starters import starter
from qrprof.planner.optimize.tunables import tunables, with_settings

PACKAGE = "from qrprof.kernels.qr.gpu import geqrf\n\n\ndef candidate(self):\n    return geqrf(self)\n"
WARM = 3  # calls before the timed ones: compiled, captured, replayed
POOR: Mapping[str, Any] = {
    "LEAF_256": (4, 64, 1),
    "LEAF_512": (4, 128, 1),
    "LEAF_1024": (1, 256, 4),
    "INNER": (32, 32, 2, 2),
    "GRAM": (32, 4, 2),
    "OUTER": (32, 64, 4, 2),
    "PRECISION": "tf32x3",
    "SPLITS": 1,
    "AHEAD": 0,
}


@dataclass(frozen=True)
class Lane:
    device: Any  # "cpu" or "cuda"
    shape: tuple[int, int, int]
    poor: Mapping[str, Any]


LANES = {
    "40x176": Lane("cuda", (40, 176, 176), {**POOR, "WIDTH": 128}),
    "40x352": Lane("cuda", (40, 352, 352), {**POOR, "WIDTH": 128}),
    "60x1024": Lane("cuda", (60, 1024, 1024), {**POOR, "WIDTH": 32}),
    "cpu": Lane("cpu", (8192, 8, 4), {"CHUNK": 128, "LIBRARY_FROM": 4}),
}


@dataclass
class Report:
    """What is known so far, in a file."""

    path: Path
    began: float = field(default_factory=time.monotonic)
    lanes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", flush=True)

    def keep(self, lane: str, **found: Any) -> None:
        self.lanes.setdefault(lane, {}).update(found)
        self.path.write_text(json.dumps({"seconds": time.monotonic() - self.began, "lanes": self.lanes}, indent=1))


def task_of(name: str, lane: Lane) -> Task:
    case = TaskCase(name, 1.0, (ArgSpec(lane.shape, "float32"),), structure="dense")
    leading = domain("leading")
    arguments = signature("geqrf")
    return Task(f"geqrf-{name}", "geqrf", lane.device, (case,), leading, "qr", Tolerance(), "built in", arguments)


def settings_of(source: str) -> dict[str, Any]:
    return {one.name: one.value for one in tunables(source)}


def poor_of(shipped: str, lane: Lane) -> str:
    return with_settings(shipped, {name: value for name, value in lane.poor.items() if name in settings_of(shipped)})


# --- the search


def checked(task: Task, shipped: str, poor: str, pool: LocalPool, report: Report, name: str) -> dict[str, Any]:
    """Settings with which the gate takes the shipped file; {}: as it is."""
    tries: list[dict[str, Any]] = [{}, {"KERNELS": ()}, {"GRAPHS": False}] if task.device == "cuda" else [{}]
    jobs = [Job(task, with_settings(shipped, one), with_settings(poor, one), "preview", 1) for one in tries]
    found = pool.evaluate(jobs)
    for one, evaluation in zip(tries, found, strict=True):
        why = evaluation.lost or (evaluation.preview.findings if evaluation.preview else "")
        report.say(f"{name}: the shipped file {one or ''}: {evaluation.outcome} {evaluation.over} {why}")
    for one, evaluation in zip(tries, found, strict=True):
        if evaluation.outcome in ("PASS", "SUSPECT"):
            return one
    raise SystemExit("the gate does not take the shipped file: nothing to search for")


def searched(task: Task, poor: str, pool: LocalPool, seconds: float, seed: int, report: Report, name: str) -> str:
    """The best file that the optimizer came to."""
    with TemporaryDirectory() as folder:
        journal = Journal(partial(opened, Path(folder)), lambda: datetime.now(UTC))
        start = Start("", task, poor, "search", budget=Budget(10 * seconds, None, None), patience=40)
        start = journal.begin(start)
        proposer = Search(poor, rng=random.Random(seed), beam=start.beam)
        meter = Meter(start.budget, time.monotonic)
        began = time.monotonic()
        curve: list[tuple[float, int, float]] = []
        for event in optimize(start, proposer, pool, journal, meter):
            told(event, report, name)
            now = time.monotonic()
            if event.kind == "better":
                over: Any = event.record["over"]
                curve.append((now - began, int(str(event.record["number"])), over["mid"]))
            if event.kind == "judged":
                report.keep(name, curve=curve, candidates=len(journal.candidates(start.id)))
            if event.kind == "usage" and now > began + seconds:  # all that were evaluated at once are there
                break
        candidates = journal.candidates(start.id)
    best = beam.best(candidates)
    failed = [one.why for one in candidates if one.outcome != "PASS"]
    found = best.proposal.source if best else poor
    report.keep(name, candidates=len(candidates), failed=failed, found=settings_of(found), curve=curve)
    return found


def told(event: Event, report: Report, name: str) -> None:
    if event.kind in ("proposed", "judged", "better", "trouble", "ended"):
        shown = {key: value for key, value in event.record.items() if key not in ("sha256", "host", "device", "rung")}
        report.say(f"{name}: {event.kind} {json.dumps(shown)}")


# --- the comparison


def compared(task: Task, files: Mapping[str, str], rounds: int) -> dict[str, Any]:
    """The files' speed over the package's kernels (PARENT), in the same rounds; ns of a call by leg."""
    with ExitStack() as stack, one_thread():
        folder = Path(stack.enter_context(TemporaryDirectory()))
        workers = workers_on(task.device, layer_for("a candidate", unsandboxed=True))
        legs = {}
        for leg, text in files.items():
            path = folder / f"{leg}.py"
            path.write_text(text, encoding="utf-8")
            legs[leg] = Trusted(stack.enter_context(workers(path)))
        rng = random.Random(fresh_seed())
        built = {leg: worker.build() for leg, worker in legs.items()}
        source = folder / f"{CANDIDATE}.py"
        trial = Trial(task, source, workers, legs[STOCK], legs[CANDIDATE], built[CANDIDATE], fresh_seed, rng)
        (case,) = task.development
        inputs = [[trial.draw(case).args] for _ in range(WARM)]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda worker: [worker.call(given) for given in inputs], legs.values()))
        timed = Legs(legs)
        calls = {case.name: calls_of(trial, timed, case)}
        repeat(trial, timed, calls, rounds, time.perf_counter_ns)
        found: dict[str, Any] = {"calls": calls[case.name], "findings": [one.detail for one in timed.checked.findings]}
        found["legs"] = {}
        for leg in files:
            ratios = pairs(trial, timed, leg, PARENT)
            found["legs"][leg] = {"ns": median(nets(timed.of(leg, case))), "over": ratios and asdict(together(ratios))}
        twins = pairs(trial, timed, TWIN, PARENT)
        found["noise"] = noise_of(twins).fraction if twins else None
        beside = pairs(trial, timed, CANDIDATE, "shipped")
        found["recovered"] = beside and asdict(together(beside))
    return found


def line(found: Mapping[str, Any]) -> str:
    legs = (f"{leg} {one['ns'] / 1e6:.4g} ms ({one['over']})" for leg, one in found["legs"].items())
    return "; ".join([*legs, f"noise {found['noise']}", f"recovered {found['recovered']}", *found["findings"]])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--lanes", default="40x176,40x352,60x1024")
    parser.add_argument("--seconds", type=float, default=90.0, help="after which a lane's search begins no more")
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10, help="of the comparison")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unchecked", action="store_true", help="do not ask the gate for the shipped file first")
    options = parser.parse_args()
    report = Report(options.json)
    with LocalPool(options.slots, unsandboxed=True) as pool:
        fixed: dict[str, Any] | None = {} if options.unchecked else None
        for name in options.lanes.split(","):
            lane = LANES[name]
            task = task_of(name, lane)
            shipped = starter(task)
            assert shipped is not None
            poor = poor_of(shipped, lane)
            if fixed is None:
                fixed = checked(task, shipped, poor, pool, report, name)
            shipped, poor = with_settings(shipped, fixed), with_settings(poor, fixed)
            report.keep(name, shipped=settings_of(shipped), poor=settings_of(poor))
            found = searched(task, poor, pool, options.seconds, options.seed, report, name)
            pool.rest()  # its processes hold memory of the GPU
            report.say(f"{name}: found {settings_of(found)}")
            package = PACKAGE if lane.device == "cuda" else shipped
            files = {STOCK: stock_source("geqrf"), PARENT: package, TWIN: package, "shipped": shipped, "poor": poor}
            timed = compared(task, {**files, CANDIDATE: found}, options.rounds)
            report.keep(name, timed=timed)
            report.say(f"{name}: {line(timed)}")
    report.say("done")


if __name__ == "__main__":
    main()
