"""Does qrprof see the program that runs without it?

For each case, `--pairs` times in turn: the script alone (its own timing of its steps, and the share of
`torch.linalg.qr` timed by hand over 70 steps, no profiler anywhere), then the script under `qrprof trace`
(the unprofiled step time and the share that `qrprof rank` prints). The figures are medians over the pairs.

    python benchmarks/trace_fidelity.py --pairs 5 --json benchmarks/results/cpu-trace-fidelity.json
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = (
    ("soap_charlm.py", "--precondition-frequency", "10"),
    ("soap_charlm.py", "--precondition-frequency", "7"),
    ("block_soap.py",),
    ("adamw_charlm.py",),
)
LAST_LINE = re.compile(r"mean step ([\d.]+) ms, median ([\d.]+) ms")
# Runs a script as __main__ and times torch.linalg.qr over 70 steps after the first 3, by hand.
BY_HAND = """
import json, runpy, sys, time
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
script, out = sys.argv[1], sys.argv[2]
sys.argv = sys.argv[1:2] + sys.argv[3:]
sys.path[0] = script.rpartition("/")[0]
stock, inside, ends = torch.linalg.qr, [], []
def timed(*args, **kwargs):
    begin = time.perf_counter()
    result = stock(*args, **kwargs)
    inside.append((time.perf_counter(), time.perf_counter() - begin))
    return result
torch.linalg.qr = timed
register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
runpy.run_path(script, run_name="__main__")
first, last = ends[2], ends[72]
spent = sum(seconds for at, seconds in inside if first < at <= last)
json.dump({"share": spent / (last - first), "step_ms": (last - first) / 70 * 1e3}, open(out, "w"))
"""


def alone(script: str, args: list[str]) -> dict[str, float]:
    text = subprocess.run([sys.executable, script, *args], check=True, capture_output=True, text=True).stdout
    found = LAST_LINE.search(text)
    if found is None:
        raise SystemExit(f"{script} did not print its step times:\n{text[-400:]}")
    return {"mean_ms": float(found[1]), "median_ms": float(found[2])}


def by_hand(script: str, args: list[str], folder: Path) -> dict[str, float]:
    out = folder / "by-hand.json"
    subprocess.run([sys.executable, "-c", BY_HAND, script, str(out), *args], check=True, stdout=subprocess.DEVNULL)
    result: dict[str, float] = json.loads(out.read_text())
    return result


def traced(script: str, args: list[str], folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "qrprof"]
    subprocess.run(
        [*command, "trace", "--out", str(folder), script, *args],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    text = subprocess.run([*command, "rank", "--json"], check=True, capture_output=True, text=True, cwd=folder).stdout
    rank = json.loads(text)
    shares = {row["key"]: row["share"] for row in rank["rows"]}
    return {
        "step_ms": rank["step_ms"],
        "qr_share": shares.get("aten::linalg_qr", 0.0),
        "top": rank["rows"][0]["key"],
        "sum_ms": sum(row["ms"] for row in rank["rows"]),
        "overhead_x": rank["overhead_x"],
    }


def run_case(case: tuple[str, ...], pairs: int, folder: Path) -> dict[str, Any]:
    script, args = str(ROOT / "examples" / case[0]), list(case[1:])
    own, hand, seen = [], [], []
    for _ in range(pairs):
        own.append(alone(script, args))
        hand.append(by_hand(script, args, folder))
        seen.append(traced(script, args, folder))

    def middle(rows: list[dict[str, Any]], key: str) -> float:
        return statistics.median(row[key] for row in rows)

    ratio = statistics.median(s["step_ms"] / o["mean_ms"] for s, o in zip(seen, own, strict=True))
    points = statistics.median(100 * (s["qr_share"] - h["share"]) for s, h in zip(seen, hand, strict=True))
    return {
        "case": " ".join(case),
        "own_mean_ms": middle(own, "mean_ms"),
        "own_mean_ms_all": [row["mean_ms"] for row in own],
        "qrprof_step_ms": middle(seen, "step_ms"),
        "qrprof_step_ms_all": [row["step_ms"] for row in seen],
        "step_ratio": ratio,
        "rows_sum_over_step": statistics.median(row["sum_ms"] / row["step_ms"] for row in seen),
        "qr_share_by_hand": middle(hand, "share"),
        "qr_share_qrprof": middle(seen, "qr_share"),
        "qr_share_difference_points": points,
        "profiler_overhead_x": middle(seen, "overhead_x"),
        "top": statistics.mode(row["top"] for row in seen),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = [run_case(case, options.pairs, Path(name)) for case in CASES]
    report = {
        "schema": 1,
        "device": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "torch": version("torch"), "qrprof": version("qrprof")},
        "date": datetime.now(UTC).date().isoformat(),
        "pairs": options.pairs,
        "cases": results,
    }
    for row in results:
        print(
            f"{row['case']:45} own {row['own_mean_ms']:7.2f} ms  qrprof {row['qrprof_step_ms']:7.2f} ms  "
            f"ratio {row['step_ratio']:.3f}  qr by hand {100 * row['qr_share_by_hand']:5.1f} %  "
            f"qrprof {100 * row['qr_share_qrprof']:5.1f} %  top {row['top']}"
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
