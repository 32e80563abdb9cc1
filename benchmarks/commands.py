"""How long does a command on a run take, from its start to its end?

Takes the run that the terminal UI brings along and an imported trace of tests/data, both with their columns kept, and
starts each command `--repeat` times on each, in turn, in a process of its own; then imports a generated trace of
`--events` events. Wall clock of the whole process and its CPU time, medians. What each writes as bytecode and keeps
beside a run is there: each command was started once before the clock.

    python benchmarks/commands.py --json benchmarks/results/cpu-commands.json
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from read_large import write_trace
from trace_fidelity import ROOT

from qrprof.profiler.devices import cpu_name

EXAMPLE = ROOT / "tui" / "app" / "example"
TRACE = ROOT / "tests" / "data" / "own_h200_soap_qr.json.gz"
COMMANDS = (
    ("rank",),
    ("show", "linalg_qr"),
    ("gaps",),
    ("launches",),
    ("whatif", "--set", "linalg_qr=2x"),
)
STAMP = re.compile(r"\d{8}-\d{6}-")  # of when a run was made


def environment(folder: Path) -> dict[str, str]:
    """As after an installation: with bytecode, and with a cache and a configuration that are a person's own."""
    own = {"QRPROF_CACHE": "cache", "QRPROF_CONFIG": "config", "PYTHONPYCACHEPREFIX": "bytecode"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {name: str(folder / place) for name, place in own.items()}


def once(words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of the wall clock and of the CPU that `qrprof WORDS` takes."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "qrprof", *words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall, process.returncode = time.perf_counter() - begun, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"qrprof {' '.join(words)} ended with exit code {process.returncode}")
    return wall, used.ru_utime + used.ru_stime


def measure(cases: Sequence[Sequence[str]], repeat: int, folder: Path) -> list[dict[str, Any]]:
    """Each command `repeat` times, in turn."""
    variables = environment(folder)
    for words in cases:
        once(words, folder, variables)
    readings = [[once(words, folder, variables) for words in cases] for _ in range(repeat)]
    return [record(words, times) for words, times in zip(cases, zip(*readings, strict=True), strict=True)]


def record(words: Sequence[str], times: Sequence[tuple[float, float]]) -> dict[str, Any]:
    wall, cpu = ([one[place] for one in times] for place in range(2))
    return {
        "command": STAMP.sub("", " ".join(words)),
        "wall_s": statistics.median(wall),
        "cpu_s": statistics.median(cpu),
        "walls_s": wall,
    }


def make_runs(folder: Path) -> list[str]:
    """The ids of the runs in the folder."""
    runs = folder / ".qrprof" / "runs"
    once(("import", str(TRACE)), folder, environment(folder))
    shutil.copytree(EXAMPLE, runs / json.loads((EXAMPLE / "run.json").read_text())["id"])
    return sorted((one.name for one in runs.iterdir()), reverse=True)


def measured(folder: Path, events: int, repeat: int) -> list[dict[str, Any]]:
    cases = [(*words, run) for run in make_runs(folder) for words in COMMANDS]
    found = measure(cases, repeat, folder)
    large = folder / f"{events}-events.json"
    write_trace(large, events)
    return [*found, *measure([("import", large.name)], repeat, folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begun = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        found = measured(Path(name), options.events, options.repeat)
    print(f"{'wall s':>7} {'CPU s':>7}  command, medians of {options.repeat}; load {begun:.1f} before")
    for one in found:
        print(f"{one['wall_s']:7.2f} {one['cpu_s']:7.2f}  qrprof {one['command']}")
    if options.json:
        report = {
            "schema": 1,
            "device": f"{cpu_name()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("qrprof", "numpy", "pandas", "pyarrow", "pydantic")},
            },
            "date": datetime.now(UTC).date().isoformat(),
            "load": begun,
            "commands": found,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
