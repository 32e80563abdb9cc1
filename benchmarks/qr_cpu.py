"""Batched `torch.linalg.qr` on a CPU: stock, stock with one thread, and the batch shared over threads.

The three run in turn, with a pause before each call so that no thread of the one before is still spinning, until each
has `--calls` calls or `--seconds` are over. Times are medians, with the 5th and 95th percentile in the JSON; `others`
is the share of the machine's time that other processes took meanwhile, so that a table made on a busy machine shows it.

    python benchmarks/qr_cpu.py --json benchmarks/results/cpu-qr.json
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from qrprof.kernels.qr import cpu, lanes

CASES = (
    (100_000, 3, 3),
    (64, 16, 16),
    (4096, 16, 16),
    (64, 32, 32),
    (1024, 32, 32),
    (64, 64, 64),
    (308, 64, 64),
    (64, 256, 32),
    (64, 48, 200),
    (8, 2048, 64),
    (64, 96, 96),
    (8, 128, 128),
    (64, 128, 128),
    (4, 256, 256),
    (32, 200, 200),
    (32, 256, 256),
    (8, 512, 512),
    (32, 512, 512),
    (2, 1024, 1024),
    (1, 512, 512),
)
PAUSE_S = 0.002


def one_thread(A: Tensor) -> Any:
    with cpu.one_thread():
        return torch.linalg.qr(A)


WAYS: dict[str, Callable[[Tensor], Any]] = {"stock": torch.linalg.qr, "one_thread": one_thread, "shared": cpu.qr}


def measure(shape: tuple[int, ...], calls: int, seconds: float) -> dict[str, Any]:
    A = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for way in WAYS.values():
        way(A)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    begin, own, machine = time.perf_counter(), time.process_time(), busy_s()
    while len(times["shared"]) < calls and (time.perf_counter() - begin < seconds or len(times["shared"]) < 5):
        for name, way in WAYS.items():
            time.sleep(PAUSE_S)
            start = time.perf_counter()
            way(A)
            times[name].append((time.perf_counter() - start) * 1e3)
    elapsed = (time.perf_counter() - begin) * (os.cpu_count() or 1)
    others = max(0.0, busy_s() - machine - (time.process_time() - own)) / elapsed
    batch, m, n = shape
    figures = {f"{name}_ms": spread(values) for name, values in times.items()}
    lane = lanes.lane_of("linalg_qr", A)
    return {"batch": batch, "m": m, "n": n, "lane": lane, "calls": len(times["shared"]), "others": others} | figures


def busy_s() -> float:
    used = psutil.cpu_times()
    return float(used.user + used.system + getattr(used, "nice", 0.0) + getattr(used, "steal", 0.0))


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return {"median": statistics.median(values), "p05": cuts[0], "p95": cuts[-1]}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each shape")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not cpu.available():
        raise SystemExit("this build of torch has no MKL: the batch is not shared")
    print(f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print("batch x m x n       stock   1 thread  shared, ms    x    others  lane")
    cases = []
    for shape in CASES:
        case = measure(shape, options.calls, options.seconds)
        cases.append(case)
        stock, one, shared = (case[f"{name}_ms"]["median"] for name in WAYS)
        name = "x".join(map(str, shape))
        print(
            f"{name:16}{stock:9.3f}{one:11.3f}{shared:12.3f}{stock / shared:7.2f}{case['others']:8.0%}  {case['lane']}"
        )
    if options.json:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        device = {"name": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
        record = {"schema": 1, "date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device}
        options.json.write_text(json.dumps(record | {"versions": versions, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
