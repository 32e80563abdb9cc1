"""Can the replay reproduce recorded traces, and how long does it take?

For every trace (and every rank in an archive) under `--traces` and in tests/data: what its graph holds, what coverage
says, how far the unchanged replay is off, what share of device starts it explains, how well the residuals of one step
predict the next, and whether the model is withheld. `--speed N` also replays a generated trace of N events: three
threads, of which two launch, and two streams. Times are of one run each, in this process; reading the file is not
counted.

    python benchmarks/replay_traces.py --speed 100000 --json benchmarks/results/cpu-replay.json
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qrprof.planner.replay.changes import change_items
from qrprof.planner.replay.model import model_of, step_of
from qrprof.profiler.coverage import cover
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.read import read_all
from qrprof.profiler.trace import Trace

ROOT = Path(__file__).parents[1]
SUFFIXES = (".json", ".json.gz", ".sqlite", ".tar.gz")
NO_TRACE = ("own_h200.json",)  # the step times beside the traces
COLUMNS = (
    ("events", "events", "{:,}"),
    ("nodes", "nodes", "{:,}"),
    ("edges", "edges", "{:,}"),
    ("verdict", "coverage", "{}"),
    ("error", "error", "{:.2%}"),
    ("explained", "explained", "{:.1%}"),
    ("next_step_error", "next step", "{:.1%}"),
    ("facts_s", "facts s", "{:.3f}"),
    ("model_s", "model s", "{:.3f}"),
    ("scenario_s", "scenario s", "{:.4f}"),
    ("withheld", "withheld", "{}"),
)


def measure(trace: Trace) -> dict[str, Any]:
    """What the replay makes of a trace. Raises QrprofError where it is empty."""
    begin = time.perf_counter()
    facts = find_facts(trace)
    known = time.perf_counter()
    model = model_of(facts)
    built = time.perf_counter()
    step_ns = step_of(
        model, change_items(model.graph, facts.work.name == longest(facts.work.name, facts.swept.ns), 0.5)
    )
    done = time.perf_counter()
    return {
        "events": len(trace.events),
        "nodes": len(model.graph.order),
        "edges": len(model.graph.edges.source),
        "verdict": str(cover(facts).verdict),
        "steps": len(facts.steps.numbers),
        "step_ns": model.recorded_ns,
        "error": model.error,
        "explained": model.explained,
        "next_step_error": model.next_step_error,
        "withheld": model.withheld,
        "scenario_step_ns": step_ns,
        "facts_s": known - begin,
        "model_s": built - known,
        "scenario_s": done - built,
    }


def longest(names: Any, ns: Any) -> str:
    """The kernel that takes most of the steps; it is the one that a scenario makes twice as fast."""
    sums: dict[str, float] = {}
    for name, spent in zip(names, ns, strict=True):
        sums[name] = sums.get(name, 0.0) + spent
    return max(sums, key=lambda name: sums[name], default="")


def measured(folders: list[Path]) -> Iterator[dict[str, Any]]:
    files = {path.name: path for folder in folders for path in sorted(folder.iterdir())}
    for name, path in sorted(files.items()):
        if not name.endswith(SUFFIXES) or name in NO_TRACE:
            continue
        for source in read_all([path]):
            label = f"{name}::{source.part}" if source.part else name
            try:
                yield {"trace": label, **measure(source.trace)}
            except QrprofError as error:
                yield {"trace": label, "withheld": str(error)}


def generated(count: int) -> Trace:
    """About `count` events: steps of a thread that works and one for the backward pass; a third one loads data."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    now, free, launched = 0, {7: 0, 20: 0}, 0
    while len(rows) < count:
        if launched % 500 == 0:
            rows.append(row("annotation", f"qrprof.step#{launched // 500}", now, now + 1, 1))
            now += 1
        thread = 1 + (launched % 500 >= 250)
        launched += 1
        call, stream = now + draw.randrange(2000, 6000), 7 if launched % 5 else 20
        done = call + draw.randrange(3000, 5000)
        start = max(done + 2000, free[stream] + 1000)
        free[stream] = start + draw.randrange(2000, 16_000)
        end = done + draw.randrange(500, 3000)
        name = f"aten::op_{draw.randrange(60)}"
        rows += [row("op", name, now, end, thread), row("op", f"{name}_", now + 500, end - 100, thread)]
        rows.append(row("runtime", "cudaLaunchKernel", call, done, thread, correlation=launched))
        place = {"device": 0, "correlation": launched}
        rows.append(row("kernel", f"kernel_{draw.randrange(200)}", start, free[stream], stream, **place))
        if launched % 50 == 0:
            rows.append(row("op", "aten::collate", now, end, 3))
        now = end + 300
        if launched % 500 == 499:
            now = max(now, *free.values()) + 3000
            rows.append(row("runtime", "cudaDeviceSynchronize", end + 300, now, thread))
    return Trace.from_rows(rows)


def row(kind: str, name: str, start: int, end: int, track: int, **columns: int) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start": start, "end": end, "track": track, **columns}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(one["trace"]) for one in rows)
    yield f"{'trace':{width}}  " + "  ".join(f"{head:>10}" for _, head, _ in COLUMNS)
    for one in rows:
        cells = ("-" if one.get(key) is None else form.format(one[key]) for key, _, form in COLUMNS)
        yield f"{one['trace']:{width}}  " + "  ".join(f"{cell:>10}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public = Path(os.environ.get("QRPROF_TRACES", ROOT.parent / "shared" / "traces"))
    parser.add_argument("--traces", type=Path, default=public, help="a folder of traces (QRPROF_TRACES)")
    parser.add_argument("--speed", type=int, metavar="N", help="also a generated trace of N events")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.traces.is_dir():
        sys.exit(f"{options.traces} is no folder: give the traces by --traces or QRPROF_TRACES")
    rows = list(measured([options.traces, ROOT / "tests" / "data"]))
    speed = measure(generated(options.speed)) if options.speed else None
    shown = rows + ([{"trace": f"generated, {options.speed:,} events", **speed}] if speed else [])
    print("\n".join(table(shown)))
    if options.json:
        report = {
            "schema": 1,
            "device": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("qrprof", "numpy", "pandas")},
            },
            "date": datetime.now(UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "traces": rows,
            "generated": speed,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
