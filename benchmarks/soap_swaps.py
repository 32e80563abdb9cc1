"""The way of a swap in a real program, command by command: what was promised, and what came of it.

Stages, in this order: `record` traces the stock program, times the included kernels and ranks; `qr` and `soap` accept
that swap, run the program with all that is accepted by then, and verify it; `undo` takes all back. A stage may be
asked for alone: what the ones before it left is in --folder. A command that takes longer than --limit is ended. What
all of them printed is in FOLDER/transcript.txt.

    python benchmarks/soap_swaps.py record qr soap --folder /tmp/soap --json benchmarks/results/h200-soap-swaps.json
    python benchmarks/soap_swaps.py record qr --script examples/block_soap.py --folder /tmp/soap-cpu  # without a GPU
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trace_fidelity import LAST_LINE, ROOT

STAGES = ("record", "qr", "soap", "undo")
OVERRIDES = {"qr": (), "soap": ("--override", "an adapter, which the gate cannot judge")}


@dataclass(frozen=True)
class Setting:
    folder: Path
    script: list[str]  # with its arguments, but without --steps
    steps: int  # of a run
    limit_s: float
    verify: list[str]  # options


def command(setting: Setting, *words: str) -> dict[str, Any]:
    """Run `qrprof WORDS` in the folder, print its lines as they come, and add them to the transcript."""
    begun = time.monotonic()
    started = [sys.executable, "-m", "qrprof", *words]
    process = subprocess.Popen(started, cwd=setting.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    limit = threading.Timer(setting.limit_s, process.terminate)
    limit.start()
    print(head := f"$ qrprof {shlex.join(words)}", flush=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        print(f"{time.monotonic() - begun:5.1f} {line}", end="", flush=True)
    code, seconds = process.wait(), round(time.monotonic() - begun, 1)
    limit.cancel()
    text = "".join(lines)
    print(tail := f"[exit code {code}, {seconds} s]\n", flush=True)
    with (setting.folder / "transcript.txt").open("a", encoding="utf-8") as transcript:
        transcript.write(f"{head}\n{text.rstrip()}\n{tail}\n")
    found = LAST_LINE.search(text)
    times = {"mean_ms": float(found[1]), "median_ms": float(found[2])} if found else {}
    return {"command": list(words), "exit_code": code, "seconds": seconds, **times, "printed": text.splitlines()}


def as_json(setting: Setting, *words: str) -> Any:
    """What `qrprof WORDS --json` says; None where it fails."""
    ended = subprocess.run(
        [sys.executable, "-m", "qrprof", *words, "--json"],
        cwd=setting.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(ended.stdout) if ended.returncode == 0 else None


def record(setting: Setting) -> dict[str, Any]:
    done = [
        command(setting, "trace", "--steps", "3", *program(setting, setting.steps)),
        command(setting, "probe"),
        command(setting, "rank", "--top", "8"),
        command(setting, "swaps", "list"),
    ]
    ranking = as_json(setting, "rank")
    for row in ranking["rows"] if ranking else ():
        del row["parts"]  # kernel by kernel: four fifths of it
    return {"commands": done, "rank": ranking}


def swapped(setting: Setting, name: str) -> dict[str, Any]:
    found = setting.folder / f"verify-{name}.json"
    verified = ("verify", *setting.verify, "--json", str(found))
    done = [
        command(setting, "swaps", "accept", name, "--yes", *OVERRIDES[name]),
        command(setting, "run", "--report", *program(setting, setting.steps)),
        command(setting, *verified, *program(setting, 60)),
    ]
    verdict = json.loads(found.read_text()) if found.is_file() else None
    return {"commands": done, "verify": verdict, "predictions": as_json(setting, "predictions")}


def undo(setting: Setting) -> dict[str, Any]:
    return {"commands": [command(setting, "swaps", "undo", name) for name in ("soap", "qr")]}


def program(setting: Setting, steps: int) -> list[str]:
    return [*setting.script, "--steps", str(steps)]


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in ("qrprof", "torch", "triton", "pytorch_optimizer"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=STAGES)
    parser.add_argument("--script", default=str(ROOT / "examples" / "soap_large.py"), help="with its own arguments")
    parser.add_argument("--steps", type=int, default=33, help="of a run; at least those that a recording needs")
    parser.add_argument("--limit", type=float, default=280, help="seconds for one command")
    # On a GPU the included kernels are compiled and captured as graphs in the first steps: those are not to be timed.
    parser.add_argument(
        "--verify",
        default="--steps 6 --rounds 1 --warmup 6",
        help="its options; with new bases each tenth step --steps 20 --rounds 1 --warmup 10",
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    script, *arguments = options.script.split()
    options.folder.mkdir(parents=True, exist_ok=True)
    started = [str(Path(script).resolve()), *arguments]
    setting = Setting(options.folder, started, options.steps, options.limit, options.verify.split())
    kept = options.folder / "results.json"
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    for stage in options.stages:
        done = {"record": record, "undo": undo}
        results[stage] = done[stage](setting) if stage in done else swapped(setting, stage)
        kept.write_text(json.dumps(results))
    if options.json:
        about = {"schema": 1, "device": device(), "versions": versions(), "date": datetime.now(UTC).date().isoformat()}
        text = json.dumps({**about, "case": options.script, **results}, indent=1) + "\n"
        options.json.write_text(text.replace(f"{ROOT}/", "").replace(f"{options.folder}/", ""))


if __name__ == "__main__":
    main()
