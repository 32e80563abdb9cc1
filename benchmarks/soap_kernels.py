"""A step of SOAP: stock, with the QR swapped in call by call, and with the calls of one shape grouped.

Each is a process of its own: the script with nothing changed but what is installed before it. The median step is read
off its last line. `examples/soap_large.py` calls QR of 63 matrices of 768 x 768, 12 of 2304 x 2304 and 24 of
3072 x 3072 a step, and a few small ones.

python benchmarks/soap_kernels.py --json benchmarks/results/h200-soap-kernels.json
"""

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from trace_fidelity import LAST_LINE, ROOT

QR = "from qrprof import kernels\nkernels.install()\n"
INSTALLED = {
    "stock": "",
    "qr": QR,
    "qr grouped": f"{QR}from qrprof.kernels import adapters\nadapters.install('soap')\n",
}
PROGRAM = """
import runpy, sys
sys.path[:0] = sys.argv[1:3]
{installed}
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(installed: str, script: Path, arguments: list[str]) -> dict[str, Any]:
    code = PROGRAM.format(installed=installed)
    command = [sys.executable, "-c", code, str(script.parent), str(ROOT / "src"), str(script), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = LAST_LINE.search(ended.stdout)
    if ended.returncode or not found:
        sys.exit(f"the program ended with exit code {ended.returncode}: {ended.stderr[-500:]}")
    return {"mean_ms": float(found[1]), "median_ms": float(found[2]), "printed": ended.stdout.splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, default=ROOT / "examples" / "soap_large.py")
    parser.add_argument("--steps", type=int, default=16, help="of which the first ones compile and capture")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    steps = {}
    for name, installed in INSTALLED.items():
        steps[name] = run(installed, options.script.resolve(), ["--steps", str(options.steps)])
        print(f"{name:12} {steps[name]['median_ms']:8.1f} ms a step", flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    about = {"device": device, "torch": torch.__version__, "date": datetime.now(UTC).date().isoformat()}
    options.json.write_text(json.dumps({**about, "script": options.script.name, "steps": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
