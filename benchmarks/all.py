"""All benchmarks that do without a GPU, one after the other, each with its table; their JSON goes into one folder.

What lacks something is said in a line and left out; one that fails is named at the end, and the others go on.

    python benchmarks/all.py --into build/bench
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TRACES = Path(os.environ.get("QRPROF_TRACES", ROOT.parent / "shared" / "traces"))
HTA = ROOT / ".hta" / "bin" / "python"
ON_A_GPU = (
    "optimize_gpu.py, predict_changes.py (all but its loader), qr_dispatch.py, qr_gpu_smoke.py, soap_swaps.py, "
    "trace_gpu.py"
)


class Need(NamedTuple):
    what: str
    met: Callable[[], bool]


class Benchmark(NamedTuple):
    script: str
    file: str
    options: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()


def has_soap() -> bool:
    return importlib.util.find_spec("pytorch_optimizer") is not None


def has_dask() -> bool:
    return importlib.util.find_spec("distributed") is not None


def has_mkl() -> bool:
    from qrprof.kernels.qr import cpu

    return cpu.available()


PUBLIC = Need(f"the public traces in {TRACES} (QRPROF_TRACES)", TRACES.is_dir)
OTHER = Need(f"HolisticTraceAnalysis in {HTA.parents[1]}, as its text says", HTA.exists)
SOAP = Need("the package pytorch_optimizer", has_soap)
DASK = Need("dask.distributed", has_dask)
MKL = Need("a torch with MKL", has_mkl)
BENCHMARKS = (
    Benchmark("commands.py", "cpu-commands.json"),
    Benchmark("read_large.py", "cpu-read-large.json"),
    Benchmark("read_vs_hta.py", "cpu-read-vs-hta.json", ("--hta", str(HTA), "--traces", str(TRACES)), (PUBLIC, OTHER)),
    Benchmark("replay_traces.py", "cpu-replay.json", ("--speed", "100000", "--traces", str(TRACES)), (PUBLIC,)),
    Benchmark("tui.py", "cpu-tui.json"),
    Benchmark("qr_cpu.py", "cpu-qr.json", needs=(MKL,)),
    Benchmark("trace_fidelity.py", "cpu-trace-fidelity.json", needs=(SOAP,)),
    Benchmark("predict_changes.py", "cpu-predictions.json", ("--cases", "loader")),
    Benchmark("ranks.py", "cpu-ranks.json"),
    Benchmark("pool.py", "cpu-pool.json", needs=(DASK,)),
    Benchmark("kills.py", "cpu-kills.json"),
)


def ended(one: Benchmark, into: Path) -> int:
    """Run it to its end; its exit code."""
    command = [sys.executable, str(ROOT / "benchmarks" / one.script), *one.options, "--json", str(into / one.file)]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, cwd=folder, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "bench", help="a folder")
    into = parser.parse_args().into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    failed = []
    for one in BENCHMARKS:
        lacks = [need.what for need in one.needs if not need.met()]
        if lacks:
            print(f"\n== {one.script} is left out: it needs {' and '.join(lacks)}", flush=True)
            continue
        print(f"\n== {one.script}", flush=True)
        if ended(one, into):
            failed.append(one.script)
        else:
            print(f"-> {into / one.file}", flush=True)
    print(f"\n== left out, since they are for a GPU: {ON_A_GPU}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
