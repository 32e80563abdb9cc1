"""How long does it take to read a large trace, and how much memory?

Writes a trace of `--events` events as torch.profiler writes them (all of them rows: ops with shapes, launches,
kernels with long names), reads it `--repeat` times in a child process each, and prints the medians. The clock runs in
the child from after the imports to the finished columns; memory is the child's highest resident size, imports included.

    python benchmarks/read_large.py --json benchmarks/results/cpu-read-large.json
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HEADER = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320}],
  "traceEvents": [
"""
FOOTER = """
  ],
  "traceName": "large.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000
}
"""
OP = (
    '  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::op_{kind}", "pid": 4242, "tid": 4242,\n'
    '    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {number},"Record function id": 0, '
    '"Sequence number": {number}, "Ev Idx": {number}, "Input Dims": [[{rows}, 512], [512, 64], []], '
    '"Input type": ["float", "float", "Scalar"], "Concrete Inputs": ["", "", "1"]\n    }}\n  }}'
)
LAUNCH = (
    '  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242,\n'
    '    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {number}, "cbid": 211, "correlation": {launch}'
    "\n    }}\n  }}"
)
KERNEL = (
    '  {{\n    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, '
    'at::native::CUDAFunctor_{kind}<float>, std::array<char*, 3ul> >(int)", "pid": 0, "tid": 7,\n'
    '    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {number}, "queued": 0, "device": 0, '
    '"context": 1, "stream": 7, "correlation": {launch}, "registers per thread": 32, "shared memory": 0, '
    '"blocks per SM": 1.939394, "grid": [256, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 24'
    "\n    }}\n  }}"
)
PATTERN = (OP, OP, LAUNCH, KERNEL)
CHILD = """
import json, sys, time
from pathlib import Path
from qrprof.profiler.read import read
start, cpu = time.perf_counter(), time.process_time()
trace = read(Path(sys.argv[1]))
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
peak = int(status["VmHWM"].split()[0]) << 10
json.dump({"wall_s": wall, "cpu_s": cpu, "peak_bytes": peak, "rows": len(trace.events)}, sys.stdout)
"""


def events(count: int) -> Iterator[str]:
    draw = random.Random(0)
    now = 5_102_506_972_292_757  # ns; where the times of a recent trace are
    for number in range(count):
        now += draw.randrange(500, 9000)
        lasts = draw.randrange(500, 90_000)
        yield PATTERN[number % len(PATTERN)].format(
            ts=f"{now // 1000}.{now % 1000:03d}",
            dur=f"{lasts // 1000}.{lasts % 1000:03d}",
            number=number,
            launch=number // len(PATTERN) + 1,
            kind=draw.randrange(200),
            rows=draw.randrange(1, 65),
        )


def write_trace(path: Path, count: int) -> int:
    with path.open("w") as file:
        file.write(HEADER)
        for number, event in enumerate(events(count)):
            file.write(f",\n{event}" if number else event)
        file.write(FOOTER)
    return path.stat().st_size


def read_once(path: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        size = write_trace(path, options.events)
        readings = [read_once(path) for _ in range(options.repeat)]
    medians = {key: statistics.median(one[key] for one in readings) for key in readings[0]}
    print(
        f"{options.events:,} events, {size / 1e6:.0f} MB: {medians['rows']:,.0f} rows in {medians['wall_s']:.2f} s "
        f"({medians['cpu_s']:.2f} s of one core), {size / medians['wall_s'] / 1e6:.0f} MB/s, "
        f"peak {medians['peak_bytes'] / 1e9:.2f} GB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    if options.json:
        report = {
            "schema": 1,
            "device": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("qrprof", "orjson", "numpy", "pandas")},
            },
            "date": datetime.now(UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "events": options.events,
            "bytes": size,
            "medians": medians,
            "readings": readings,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
