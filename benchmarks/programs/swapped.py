"""Run a script with the accepted swaps of the working folder, and print as JSON what they did: a program to trace.

qrprof trace benchmarks/programs/swapped.py SCRIPT [ARGS...]
"""

import json
import runpy
import sys
from pathlib import Path

from qrprof import kernels

if __name__ == "__main__":
    kernels.install(".qrprof/swaps.json")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    print(json.dumps([vars(one) for one in kernels.report()]))
