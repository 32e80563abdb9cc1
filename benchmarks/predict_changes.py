"""Changes of a program, predicted from a trace of the program before them, then measured.

    python benchmarks/predict_changes.py --json benchmarks/results/h200-predictions.json

Each program of programs/changed_step.py is timed before and after its change, in turn, in one process; then the one
before is recorded by `qrprof trace`, and its replay says what the step takes after the change.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trace_fidelity import ROOT
from trace_gpu import qrprof

from qrprof.planner.fixes import fused_optimizer
from qrprof.planner.replay.changes import cause_of, change_cause, change_launches, change_rows, owned_rows
from qrprof.planner.replay.model import Model, model_of, step_of
from qrprof.profiler.devices import Peaks, cpu_name, devices_folder, peaks_for
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.store import find_run

PROGRAM = ROOT / "benchmarks" / "programs" / "changed_step.py"


def without_items(model: Model, run: RunInfo, peaks: Peaks | None) -> float:
    graph = model.graph
    return step_of(model, change_rows(graph, owned_rows(graph.facts, "aten::item"), 0.0))


def as_graph(model: Model, run: RunInfo, peaks: Peaks | None) -> float:
    return step_of(model, change_launches(model.graph, 0.0))


def fused(model: Model, run: RunInfo, peaks: Peaks | None) -> float:
    fix = fused_optimizer(model, run, peaks)
    if fix is None or fix.gain_ns.mid is None:
        raise SystemExit("the trace of the adamw case shows no optimizer that could be fused")
    return model.base_ns - fix.gain_ns.mid


def without_loading(model: Model, run: RunInfo, peaks: Peaks | None) -> float:
    cause = cause_of("gap:data")
    assert cause is not None
    return step_of(model, change_cause(model.graph, cause, 0.0))


CASES: dict[str, Callable[[Model, RunInfo, Peaks | None], float]] = {
    "adamw": fused,
    "item": without_items,
    "graph": as_graph,
    "loader": without_loading,
}


def measure(case: str, pairs: int) -> dict[str, list[float]]:
    command = [sys.executable, str(PROGRAM), case, "--compare", str(pairs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    times: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return times


def predict(case: str, folder: Path) -> tuple[RunInfo, dict[str, Any]]:
    qrprof("trace", "--no-samples", str(PROGRAM), case, cwd=folder)
    run, trace = load_run(find_run(folder, None), 0)
    model = model_of(find_facts(trace, run), run)
    after = CASES[case](model, run, peaks_for(run, devices_folder()))
    return run, {
        "base_ms": model.base_ns / 1e6,
        "predicted_ms": after / 1e6,
        "recorded_ms": model.recorded_ns / 1e6,
        "replay_error": model.error,
        "explained": model.explained,
        "next_step_error": model.next_step_error,
        "withheld": model.withheld,
        "unprofiled": [[ns / 1e6 for ns in block.durations_ns] for block in run.unprofiled],
    }


def run_case(case: str, pairs: int, folder: Path) -> tuple[RunInfo, dict[str, Any]]:
    times = measure(case, pairs)
    before, after = (statistics.median(times[name]) for name in ("before_ms", "after_ms"))
    run, found = predict(case, folder)
    ratio = found["predicted_ms"] / found["base_ms"]
    return run, {
        "case": case,
        "before_ms": before,
        "after_ms": after,
        "measured_x": before / after,
        "predicted_x": 1 / ratio,
        "error_of_step": ratio - after / before,  # as a part of the step before
        "error_of_result": ratio * before / after - 1,
        **found,
        "times": times,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES), help="loader alone does without a GPU")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--folder", type=Path, default=Path("."), help="where the runs are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    qrprof("doctor", "--measure", cwd=options.folder)
    cases = []
    for case in options.cases.split(","):
        run, found = run_case(case, options.pairs, options.folder)
        cases.append(found)
        record = {
            "schema": 1,
            "device": run.devices[0].name if run.devices else cpu_name(),
            "versions": run.versions,
            "date": datetime.now(UTC).date().isoformat(),
            "cases": cases,
        }
        # After each case: a machine may be taken away.
        options.json.write_text(json.dumps(record, indent=1) + "\n")
        print(
            f"{case:6} {found['before_ms']:8.3f} -> {found['after_ms']:8.3f} ms, {found['measured_x']:.2f}x measured, "
            f"{found['predicted_x']:.2f}x predicted, off by {100 * found['error_of_step']:+.1f} % of the step, "
            f"{100 * found['error_of_result']:+.1f} % of the result"
        )


if __name__ == "__main__":
    main()
