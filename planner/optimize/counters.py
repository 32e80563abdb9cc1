"""Registers, spills and hardware counters of a starting file's kernels, by a process that calls it once on the GPU.

The file is a shipped one: its process has none of the user's keys, but is not contained. Counters are
Nsight Compute's, where `ncu` is installed and the driver permits it.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from qrprof.planner.gate.records import Task
from qrprof.planner.gate.sandbox import environment
from qrprof.planner.gate.task_store import TASK
from qrprof.profiler import units

METRICS: Final = {  # as ncu names them; shares of 100
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps active",
}
TIME: Final = "gpu__time_duration.sum"
SECONDS: Final = 180.0  # for one call, its compilation and ncu's replays
KERNELS: Final = 4  # that are told: those with the most time
PERMISSION: Final = "ERR_NVGPUCTRPERM"

Run = Callable[[Sequence[str], Mapping[str, str]], str]  # a command's stdout and stderr; "": it failed or took too long


def sentences(task: Task, source: str, run: Run | None = None) -> tuple[str, ...]:
    """Nothing for a task of a CPU. What cannot be known is a sentence too."""
    if task.device == "cpu":
        return ()
    with TemporaryDirectory(prefix="qrprof-counters-") as name:
        folder = Path(name)
        (folder / "task.json").write_bytes(TASK.dump_json(task))
        (folder / "candidate.py").write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", __name__, str(folder)]
        ask, scrubbed = run or ran, environment(folder, os.environ)
        return (*compiled(ask(command, scrubbed)), *counted(ask, command, scrubbed))


def ran(command: Sequence[str], env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


# --- what Triton compiled


def compiled(printed: str) -> Iterator[str]:
    """A sentence for each kernel, of what `main` printed."""
    for line in printed.splitlines():
        if line.startswith('{"kernel"'):
            found = json.loads(line)
            yield f"kernel {found['kernel']}: {found['registers']} registers a thread, {found['spills']} spilled"


def main(folder: Path) -> None:
    """Call the candidate once on the heaviest case, and print what Triton knows of its kernels, a JSON object each."""
    import runpy

    from qrprof.planner.gate.draw import draw, fresh_seed

    task = TASK.validate_json((folder / "task.json").read_bytes())
    heaviest = max(task.development, key=lambda case: case.weight)
    found = runpy.run_path(str(folder / "candidate.py"), run_name="candidate")
    found["candidate"](*draw(heaviest, fresh_seed(), task.device))
    for name, registers, spills in kernels(found.values()):
        print(json.dumps({"kernel": name, "registers": registers, "spills": spills}), flush=True)


def kernels(values: Iterable[object]) -> Iterator[tuple[str, int, int]]:
    """Name, registers a thread and spills of all variants that Triton functions among `values` were compiled to."""
    for value in values:
        for caches in getattr(value, "device_caches", {}).values():
            for one in caches[0].values():
                yield one.metadata.name, one.n_regs, one.n_spills


# --- ncu


def counted(ask: Run, command: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    ncu = shutil.which("ncu")
    if ncu is None:
        return ("hardware counters are not known: ncu is not installed",)
    metrics = ",".join((*METRICS, TIME))
    printed = ask([ncu, "--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics, *command], env)
    if PERMISSION in printed:
        return ("hardware counters are not known: the driver does not permit ncu",)
    return tuple(counter_lines(printed)) or ("hardware counters are not known: ncu failed on this file",)


def counter_lines(printed: str) -> Iterator[str]:
    """The kernels with the most time, of ncu's raw page as CSV: a header, a line of units, a line a launch."""
    lines = [line for line in printed.splitlines() if line.startswith('"')]
    totals: dict[str, list[dict[str, str]]] = {}
    for row in list(csv.DictReader(lines))[1:]:
        totals.setdefault(row["Kernel Name"], []).append(row)
    longest = sorted(totals.items(), key=lambda pair: -sum(number(row[TIME]) for row in pair[1]))
    for name, rows in longest[:KERNELS]:
        time = sum(number(row[TIME]) for row in rows)
        shares = [
            f"{sum(number(row[metric]) * number(row[TIME]) for row in rows) / time / 100:.0%} {label}"
            for metric, label in METRICS.items()
            if time
        ]
        yield f"kernel {name.partition('(')[0]}: {units.time(time)} in {len(rows)} launches; {', '.join(shares)}"


def number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
