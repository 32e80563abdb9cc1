"""Two ranks of data-parallel training: what they wait for, and what accepted swaps change on each.

python benchmarks/ranks.py --json benchmarks/results/cpu-ranks.json

NCCL where there are two GPUs, else gloo on the CPU. The example is traced under torchrun as it is, with a last rank
that is late by a known time, and with the included QR swapped in on both; `qrprof ranks` says what it says of each.
Then runs without a profiler take turns, without the swaps and with them (`qrprof run`). It works in a folder of its
own, and what it accepts is trusted there alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from trace_fidelity import LAST_LINE, ROOT

RANKS = 2
EXAMPLE = str(ROOT / "examples" / "ddp_charlm.py")
SWAPPED = str(ROOT / "benchmarks" / "programs" / "swapped.py")
QRPROF = (sys.executable, "-m", "qrprof")
REASON = "benchmarks/ranks.py asks what it changes, whatever the gate says"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=3, help="runs without the swaps and with them")
    options = parser.parse_args()
    gpus = torch.cuda.device_count() >= RANKS
    steps, late_ms = (200, 100) if gpus else (60, 300)  # a step takes a few ms, or some hundred
    program = (EXAMPLE, "--optimizer", "soap", "--steps", str(steps), "--device", "cuda" if gpus else "cpu")
    load = os.getloadavg()[0]
    with TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {"QRPROF_CONFIG": str(folder / "config"), "OMP_WAIT_POLICY": "PASSIVE"}
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // RANKS)))
        bench = Bench(folder, environment)
        cases = [bench.traced("as it is", *program), bench.traced("late", *program, "--late", str(late_ms))]
        bench.accept_qr(cases[0]["run"])
        cases.append(bench.traced("with swaps", SWAPPED, *program))
        timed = bench.timed(program, options.pairs)
    record = {
        "schema": 1,
        "device": torch.cuda.get_device_name() if gpus else f"CPU, {os.cpu_count()} cores",
        "backend": "nccl" if gpus else "gloo",
        "ranks": RANKS,
        "threads": environment["OMP_NUM_THREADS"],
        "load_at_start": load,
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "date": datetime.now(UTC).date().isoformat(),
        "program": " ".join(("examples/ddp_charlm.py", *program[1:])),
        "late_ms": late_ms,
        "traced": cases,
        "timed": timed,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    show(record)


class Bench:
    """Commands in one working folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def run(self, *command: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self.folder, env=self.environment
        )
        if done.returncode not in codes:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done

    def torchrun(self, *command: str) -> list[str]:
        """What each rank prints."""
        with TemporaryDirectory() as logs:
            launcher = ("--standalone", "--nproc-per-node", str(RANKS), "--log-dir", logs, "--redirects", "1")
            self.run(sys.executable, "-m", "torch.distributed.run", *launcher, "--no-python", *command)
            return [next(Path(logs).rglob(f"{rank}/stdout.log")).read_text() for rank in range(RANKS)]

    def traced(self, case: str, *program: str) -> dict[str, Any]:
        """What `qrprof ranks` and a what-if without communication say of a trace, and what swaps did meanwhile."""
        printed = self.torchrun(*QRPROF, "trace", *program)
        found = json.loads(self.run(*QRPROF, "ranks", "--json").stdout)
        asked = self.run(*QRPROF, "whatif", "--all-ranks", "--json", "--set", "comm=0", codes=(0, 1))
        without = json.loads(asked.stdout) if asked.returncode == 0 else None
        late = found["straggler"]
        return {
            "case": case,
            "run": found["run"],
            "ranks": found["ranks"],
            "wait_ms": found["wait_ms"],
            "straggler": late and {"rank": late["rank"], "causes": late["caused_ms"] / found["wait_ms"]},
            "why": found["why"],
            "collectives": len(found["collectives"]),
            "left_out": found["left_out"],
            "clock": found["clock"],
            "without_communication_ms": without and {"base": without["base_ms"], "new": without["step_ms"]},
            "what_if_withheld": None if without else asked.stderr.strip(),
            "swaps": [served(json.loads(text.splitlines()[-1])) for text in printed] if program[0] == SWAPPED else None,
        }

    def accept_qr(self, run: str) -> None:
        self.run(*QRPROF, "swaps", "list", run)
        self.run(*QRPROF, "swaps", "accept", "qr", "--yes", "--override", REASON)

    def timed(self, program: tuple[str, ...], pairs: int) -> dict[str, Any]:
        """Mean steps as the program itself prints them, and what the swaps did on each rank in the last run."""
        stock, swapped, printed = [], [], list[str]()
        for _ in range(pairs):
            stock.append(mean_ms(self.torchrun(sys.executable, *program)[0]))
            printed = self.torchrun(*QRPROF, "run", "--json", *program)
            swapped.append(mean_ms(printed[0]))
        return {
            "stock_ms": statistics.median(stock),
            "swapped_ms": statistics.median(swapped),
            "stock_ms_all": stock,
            "swapped_ms_all": swapped,
            "swaps": [served(json.loads(text[text.index("{\n") :])["swaps"]) for text in printed],
        }


def mean_ms(printed: str) -> float:
    found = LAST_LINE.search(printed)
    if found is None:
        sys.exit(f"{EXAMPLE} did not print its step times:\n{printed[-400:]}")
    return float(found[1])


def served(swaps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is kept of those that were called on a rank."""
    keys = ("op", "key", "hits", "fallbacks", "checked", "failed", "p50_ns")
    return [{key: row[key] for key in keys} for row in swaps if row["hits"] or row["fallbacks"]]


def show(record: dict[str, Any]) -> None:
    print(f"{record['ranks']} ranks, {record['backend']}, {record['device']}, {record['threads']} threads a rank")
    print(f"{'case':11} {'rank':>4} {'step':>8} {'unprof.':>8} {'exposed':>8} {'waits':>8} {'causes':>8} ms")
    for case in record["traced"]:
        for row in case["ranks"]:
            times = ("step_ms", "unprofiled_ms", "exposed_ms", "wait_ms", "caused_ms")
            print(f"{case['case']:11} {row['rank']:4} " + " ".join(f"{row[key] or 0:8.2f}" for key in times))
        print(f"{'':11} {case['why']}")
        if without := case["without_communication_ms"]:
            print(f"{'':11} without communication: {without['base']:.2f} -> {without['new']:.2f} ms")
        else:
            print(f"{'':11} {case['what_if_withheld']}")
    timed = record["timed"]
    print(f"a step without a profiler: {timed['stock_ms']:.2f} ms stock, {timed['swapped_ms']:.2f} ms with the swaps")
    for rank, swaps in enumerate(timed["swaps"]):
        for row in swaps:
            print(f"rank {rank}: {row['op']} on {row['key']}: {row['hits']} served, {row['fallbacks']} by stock")


if __name__ == "__main__":
    main()
