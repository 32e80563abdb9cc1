"""kill -9 at random moments of trace, import, accept and optimize: is anything lost, or half there?

Kills each command while it runs, `--kills` times, at moments that are spread evenly over the time that it takes, and
after each kill does the checks of tests/kill_cases.py: what was saved before is there to the byte, what is taken for a
run can be read and ranked, a swap is accepted whole or the program is on stock, an optimization goes on with every
candidate that was judged. The first fault ends it, with a traceback and no JSON. A kill that comes after the command's
end is counted apart and made again. Every ten kills begin in an empty folder, and take the command's time anew; every
second ten of `trace` leave the traced program alone. The gate that `optimize` asks has a scripted clock. So many tens
run side by side as `--workers` says: the busier the machine, the more moments there are.

    python benchmarks/kills.py --json benchmarks/results/cpu-kills.json
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from conftest import Workshop
from kill_cases import Kill, accepts, imports, optimizations, traces, until_struck

from qrprof.profiler.devices import cpu_name

TEN = 10  # kills in one folder
Kills = Callable[[Path, pytest.MonkeyPatch], Iterator[Kill]]
COMMANDS: dict[str, tuple[Kills, ...]] = {  # whose ways take turns
    "trace": (lambda folder, _: traces(Workshop(folder)), lambda folder, _: traces(Workshop(folder), alone=True)),
    "import": (lambda folder, _: imports(Workshop(folder)),),
    "accept": (accepts,),
    "optimize": (lambda folder, _: optimizations(Workshop(folder)),),
}


def killed(command: str, turn: int, count: int) -> list[Kill]:
    """So many kills of the running command, and those that came too late."""
    ways = COMMANDS[command]
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("QRPROF_CACHE", f"{name}/cache")
        patch.setenv("QRPROF_CONFIG", f"{name}/config")
        return until_struck(ways[turn % len(ways)](Path(name), patch), count)


def summary(found: list[Kill]) -> dict[str, Any]:
    struck = [kill for kill in found if not kill.late]
    moments, whole = (sorted(times) for times in ([k.at_s for k in struck], [k.whole_s for k in struck]))
    return {
        "kills": len(struck),
        "too_late": len(found) - len(struck),
        "left": dict(Counter(kill.left for kill in struck).most_common()),
        "moments_s": {"first": moments[0], "median": statistics.median(moments), "last": moments[-1]},
        "whole_s": {"shortest": whole[0], "longest": whole[-1]},
        "each": [[round(kill.at_s, 3), kill.left] for kill in struck],
    }


def line(command: str, found: dict[str, Any]) -> str:
    left = ", ".join(f"{times} x {what}" for what, times in found["left"].items())
    first, median, last = found["moments_s"].values()
    shortest, longest = found["whole_s"].values()
    return (
        f"{command:9} {found['kills']:3} kills after {first:.2f} to {last:.2f} s (median {median:.2f}) of the "
        f"{shortest:.2f} to {longest:.2f} s that it takes, {found['too_late']} more after its end; left: {left}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of each command")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = [min(TEN, options.kills - done) for done in range(0, options.kills, TEN)]
    cases = {}
    with ProcessPoolExecutor(options.workers) as pool:
        going = {name: [pool.submit(killed, name, *ten) for ten in enumerate(counts)] for name in COMMANDS}
        for command, tens in going.items():
            cases[command] = summary([kill for ten in tens for kill in ten.result()])
            print(line(command, cases[command]), flush=True)
    print(
        f"{sum(found['kills'] for found in cases.values())} kills: nothing lost, nothing half-written taken for whole"
    )
    if options.json:
        report = {
            "schema": 1,
            "device": f"{cpu_name()}, {os.cpu_count()} cores",
            "versions": {"python": platform.python_version(), "torch": version("torch"), "qrprof": version("qrprof")},
            "date": datetime.now(UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "commands": cases,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
