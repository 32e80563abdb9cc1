"""How long does the terminal UI let a person wait, on a run of 100,000 spans?

Writes a trace of `--spans` spans, imports it, and opens it in the UI on a screen of 200 x 60 in a child process,
`--repeat` times with the columns that are kept of a trace and as often without them. The clock runs from the start of
the process to the first frame and to the filled table; from a key to the timeline on the screen; and from each key
that moves or zooms the timeline to the frame that shows it. Prints the medians.

    python benchmarks/tui.py --json benchmarks/results/cpu-tui.json
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

SIZE = (200, 60)
NEAR = "wwwww"  # from all of the trace to where it can be moved
KEYS = {"zoom": "wwwwwwwwwwssssssssss" * 2, "pan": "ddddddddddaaaaaaaaaa" * 2}
STEPS = 10
OPS = 60  # different ones, the k-th 1/k as often as the first: what large public traces of training steps have


def events(spans: int) -> Iterator[dict[str, Any]]:
    """Ops in ops that launch a kernel each, in ten steps; the device waits for the host now and then."""
    draw, now, busy = random.Random(0), 0.0, 0.0
    units = spans // 4
    names = draw.choices(range(OPS), [1 / (place + 1) for place in range(OPS)], k=units)
    for number, name in enumerate(names):
        if number % (units // STEPS) == 0:
            yield span("user_annotation", f"ProfilerStep#{number * STEPS // units}", now, units // STEPS * 11.0, {})
        lasts = draw.uniform(1, 18)
        yield span("cpu_op", f"aten::outer_{name}", now, 9, {})
        yield span("cpu_op", f"aten::op_{name}", now + 1, 7, {"Input Dims": [[64, 64]], "Input type": ["float"]})
        yield span("cuda_runtime", "cudaLaunchKernel", now + 2, 4, {"correlation": number + 1})
        start = max(now + 7, busy + 1)
        kernel = {"correlation": number + 1, "device": 0, "stream": 7}
        yield span("kernel", f"void kernel_{name}<float, 4>(float*, int)", start, lasts, kernel) | {"pid": 0, "tid": 7}
        busy = start + lasts
        now += 11.0 if draw.random() < 0.99 else 60.0


def span(kind: str, name: str, start: float, lasts: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasts, "args": args}


def make_run(folder: Path, spans: int) -> Path:
    """Import a trace of so many spans; the folder of the run."""
    trace = folder / "large.json"
    trace.write_text(json.dumps({"traceEvents": list(events(spans))}))
    subprocess.run([sys.executable, "-m", "qrprof", "import", str(trace)], cwd=folder, check=True, capture_output=True)
    (run,) = (folder / ".qrprof" / "runs").iterdir()
    return run


# --- in the child


async def drive(folder: Path, begun: float) -> dict[str, Any]:
    from qrprof.tui.app.app import QrprofApp
    from qrprof.tui.app.session import Session
    from qrprof.tui.app.views.timeline import TimelineView

    app = QrprofApp(Session(folder), folder.parents[2])
    found: dict[str, Any] = {}
    async with app.run_test(size=SIZE) as pilot:
        await painted(app)
        found |= {"first_frame_s": time.time() - begun, "first_frame_cpu_s": time.process_time()}
        await until(app, lambda: bool(app.view and app.view.ready and app.view.table().rows))
        found |= {"table_s": time.time() - begun, "table_cpu_s": time.process_time()}
        asked = time.perf_counter()
        await pilot.press("2")
        view = app.query_one(TimelineView)
        await until(app, lambda: view.ready)
        found["timeline_s"] = time.perf_counter() - asked
        lanes = view.lanes
        found["spans"] = sum(len(lane.start) for lane in view.told.timeline.lanes) if view.told else 0
        for what, keys in KEYS.items():
            if what == "pan":
                await pilot.press(*NEAR)
            before, times = lanes.tally.looked, [await frame(app, lanes, key) for key in keys]
            found[f"{what}_ms"] = statistics.median(times)
            found[f"{what}_worst_ms"] = max(times)
            found[f"{what}_looked"] = (lanes.tally.looked - before) / len(keys)
    return found


async def frame(app: Any, lanes: Any, key: str) -> float:
    """ms from a key to the frame that shows what it did."""
    asked, before = time.perf_counter(), lanes.tally.looked
    app.simulate_key(key)
    while lanes.tally.looked == before:
        await asyncio.sleep(0.001)
    await painted(app)
    return 1e3 * (time.perf_counter() - asked)


async def painted(app: Any) -> None:
    """Until what is posted so far is done and on the screen."""
    done = asyncio.Event()
    app.call_later(lambda: app.screen.call_after_refresh(done.set))
    await done.wait()


async def until(app: Any, holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)
    await painted(app)


# --- in the parent


def measure(folder: Path, *, kept: bool) -> dict[str, Any]:
    """One opening; `kept`: of the columns kept beside the run, else of the trace itself."""
    if not kept:
        for cache in folder.glob("*.parquet"):
            cache.unlink()
    command = [sys.executable, __file__, "--drive", str(folder), str(time.time())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def medians(readings: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: statistics.median(one[key] for one in readings) for key in readings[0]}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)  # the child's own call
    options = parser.parse_args()
    if options.drive:
        print(json.dumps(asyncio.run(drive(Path(options.drive[0]), float(options.drive[1])))))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), options.spans)
        readings = {
            name: [measure(run, kept=kept) for _ in range(options.repeat)]
            for name, kept in (("columns", True), ("trace", False))
        }
    found = {name: medians(own) for name, own in readings.items()}
    for name, own in found.items():
        print(
            f"from the {name}: first frame {own['first_frame_s']:.2f} s ({own['first_frame_cpu_s']:.2f} of one core), "
            f"table {own['table_s']:.2f} s ({own['table_cpu_s']:.2f}), timeline {own['timeline_s']:.2f} s after its "
            f"key; a pan {own['pan_ms']:.0f} ms (at worst {own['pan_worst_ms']:.0f}), a zoom {own['zoom_ms']:.0f} ms ("
            f"{own['zoom_worst_ms']:.0f}); a frame looks at {own['pan_looked']:,.0f} times of {own['spans']:,.0f} spans"
        )
    if options.json:
        report = {
            "schema": 1,
            "device": f"{processor()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("qrprof", "textual", "numpy", "pandas")},
            },
            "date": datetime.now(UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "size": SIZE,
            "spans": options.spans,
            "medians": found,
            "readings": readings,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
