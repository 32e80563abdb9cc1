"""What `qrprof trace` says of SOAP training on a GPU, beside the scripts' own timing without it.

python benchmarks/trace_gpu.py --json benchmarks/results/h200-trace.json [--text FOLDER]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trace_fidelity import ROOT, alone

# A script of examples/ with its arguments, and options of `qrprof trace`.
CASES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("soap_charlm.py",), ()),
    (("block_soap.py",), ()),
    (("adamw_charlm.py",), ()),
    (("loader_bound.py", "--steps", "120"), ()),
    (("soap_large.py", "--steps", "33"), ("--steps", "3")),  # a step takes a second
)


def qrprof(*args: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "qrprof", *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"qrprof {' '.join(args)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def run_case(case: tuple[str, ...], options: tuple[str, ...], folder: Path, text: Path | None) -> dict[str, Any]:
    script, args = str(ROOT / "examples" / case[0]), list(case[1:])
    own = alone(script, args)
    qrprof("trace", *options, script, *args, cwd=folder)
    rank = json.loads(qrprof("rank", "--json", cwd=folder))
    if text:
        (text / f"rank-{Path(case[0]).stem}.txt").write_text(qrprof("rank", cwd=folder))
    run = json.loads((max((folder / ".qrprof" / "runs").iterdir()) / "run.json").read_text())
    return {
        "case": " ".join(case),
        "options": " ".join(options),
        "own_mean_ms": own["mean_ms"],
        "own_median_ms": own["median_ms"],
        "qrprof_step_ms": rank["step_ms"],
        "recorded_over_unprofiled_x": rank["overhead_x"],
        "factor": rank["factor"],
        "withheld": rank["withheld"],
        "notes": rank["notes"],
        "period": run["period"],
        "unprofiled_steps": [len(block["durations_ns"]) for block in run["unprofiled"]],
        "clock": run["unprofiled"][0]["clock"],
        "recorded_steps": len(run["recorded"]),
        "rows": [
            {k: row[k] for k in ("key", "kind", "share", "ms", "calls", "ceiling_x")} for row in rank["rows"][:12]
        ],
        "linalg": rank["linalg"],
        "device": run["devices"][0]["name"],
        "versions": run["versions"],
    }


def report(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "device": results[0]["device"],
        "versions": results[0]["versions"],
        "date": datetime.now(UTC).date().isoformat(),
        "cases": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="a folder for the printed rankings")
    parser.add_argument("--only", help="run the cases of this example only")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        qrprof("doctor", "--measure", cwd=folder)
        for case, trace_options in CASES:
            if options.only in (None, case[0]):
                results.append(run_case(case, trace_options, folder, options.text))
                # After each case: a machine may be taken away.
                options.json.write_text(json.dumps(report(results), indent=1) + "\n")
    for row in results:
        top = ", ".join(f"{line['key']} {100 * (line['share'] or 0):.1f} %" for line in row["rows"][:4])
        print(
            f"{row['case']:22} own {row['own_mean_ms']:8.2f} ms  qrprof {row['qrprof_step_ms']:8.2f} ms  "
            f"recorded/unprofiled {row['recorded_over_unprofiled_x']:.2f}  {top}"
        )


if __name__ == "__main__":
    main()
