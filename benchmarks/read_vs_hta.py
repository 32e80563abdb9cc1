"""qrprof against HolisticTraceAnalysis: read a trace and say where the idle time of its device went.

For each of the five largest Kineto files of a folder, `--repeat` times in turn, each in a process of its own: HTA
parses the file and breaks its idle time down; qrprof reads it and partitions its steps. The clock starts after the
imports; neither has a cache of its own, and the file is dropped from the page cache before each reading. Memory is the
highest resident size beyond that after the imports. HTA is no dependency: make an environment for it with

    python -m venv .hta && .hta/bin/pip install HolisticTraceAnalysis 'pandas<3'
    python benchmarks/read_vs_hta.py --hta .hta/bin/python --traces FOLDER \\
        --json benchmarks/results/cpu-read-vs-hta.json
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILES = 5
MEASURE = """
def memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(key))
def measured(work):
    before, start = memory("VmRSS"), time.perf_counter()
    answer = work()
    wall = time.perf_counter() - start
    return {"wall_s": wall, "peak_bytes": memory("VmHWM") - before, "answer": answer}
"""
HTA = f"""
import json, logging, sys, time
from importlib.metadata import version
from hta.trace_analysis import TraceAnalysis
{MEASURE}
logging.disable(logging.CRITICAL)
def work():
    analysis = TraceAnalysis(trace_files={{0: sys.argv[1]}}, trace_dir="/", include_last_profiler_step=True)
    table = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    return f"{{len(table)}} rows"
found = measured(work)
versions = {{name: version(name) for name in ("HolisticTraceAnalysis", "pandas", "numpy")}}
print("\\n" + json.dumps(found | {{"versions": versions}}))
"""
QRPROF = f"""
import json, sys, time
from importlib.metadata import version
from pathlib import Path
from qrprof.profiler.partition import partition
from qrprof.profiler.read import read
from qrprof.profiler.runinfo import RunInfo
{MEASURE}
run = RunInfo(
    schema_number=1, id="benchmark", created="", command=[], cwd="", step_source="imported", rank=0, world_size=1,
    versions={{}}, devices=[], threads=0, period=None, kinds=[], unprofiled=[], recorded=[], linalg=[], repeats=[],
    notes=[], trace=sys.argv[1], exit_code=None,
)
found = measured(lambda: f"{{len(partition(read(Path(sys.argv[1])), run).rows)}} rows")
versions = {{name: version(name) for name in ("qrprof", "pandas", "numpy")}}
print("\\n" + json.dumps(found | {{"versions": versions}}))
"""


def largest(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.json.gz"), key=lambda path: path.stat().st_size, reverse=True)
    if len(files) < FILES:
        raise SystemExit(f"{folder} holds {len(files)} traces (*.json.gz), {FILES} are needed; give another --traces")
    return files[:FILES]


def forget(path: Path) -> None:
    """Drop the file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def one(python: str, code: str, path: Path) -> dict[str, Any]:
    forget(path)
    # As the command line runs: Arrow's own allocator would reserve 20 MB for the first text column. For both.
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run([python, "-c", code, str(path)], check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def summary(readings: list[dict[str, Any]]) -> dict[str, Any]:
    failed = next((reading["error"] for reading in readings if "error" in reading), None)
    if failed:
        return {"error": failed}
    return {
        "wall_s": statistics.median(reading["wall_s"] for reading in readings),
        "peak_bytes": statistics.median(reading["peak_bytes"] for reading in readings),
        "answer": readings[0]["answer"],
        "versions": readings[0]["versions"],
        "readings": [{key: reading[key] for key in ("wall_s", "peak_bytes")} for reading in readings],
    }


def compare(path: Path, hta: str, repeat: int) -> dict[str, Any]:
    ours, theirs = [], []
    for _ in range(repeat):
        theirs.append(one(hta, HTA, path))
        ours.append(one(sys.executable, QRPROF, path))
    qrprof, other = summary(ours), summary(theirs)
    found: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size, "qrprof": qrprof, "hta": other}
    if "error" not in qrprof and "error" not in other:
        found["time_x"] = other["wall_s"] / qrprof["wall_s"]
        found["memory_x"] = other["peak_bytes"] / qrprof["peak_bytes"]
    return found


def line(found: dict[str, Any]) -> str:
    cells = [f"{found['file']:46}"]
    for name in ("hta", "qrprof"):
        side = found[name]
        cells.append(
            f"{name} {side['error']}"
            if "error" in side
            else f"{name} {side['wall_s']:6.2f} s {side['peak_bytes'] / 1e6:6.0f} MB"
        )
    if "time_x" in found:
        cells.append(f"{found['time_x']:5.1f}x time {found['memory_x']:5.1f}x memory")
    return "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", default=".hta/bin/python", help="Python of an environment that has HTA.")
    parser.add_argument("--traces", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "traces")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = []
    for path in largest(options.traces):
        cases.append(compare(path, options.hta, options.repeat))
        print(line(cases[-1]), flush=True)
    if options.json:
        report = {
            "schema": 1,
            "device": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": datetime.now(UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "repeat": options.repeat,
            "cases": cases,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
