"""R and Q: torch.linalg.qr and geqrf of single, tall and many matrices, ours and torch's in turn, with strict checks.

python benchmarks/qr_full.py --json FILE

Times are those of `qrprof bench`: `device`, a CUDA graph of calls, and `call`, one eager call on an idle device.
`of_geqrf` is what qr takes of our own geqrf's device time; geqrf of batches is in `qrprof bench`. Each op is checked in
float64 on an input that is not timed.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from qrprof.kernels import checks, qr
from qrprof.kernels.bench import room, with_inputs
from qrprof.kernels.bench_cases import Case
from qrprof.kernels.timing import Clock, Contender, Measured, calls_of, clock_of, compare, warm_up

CASES = (
    *(Case(batch=1, m=n, n=n) for n in (512, 768, 1024, 2048, 3072, 4096)),
    *(Case(batch=1, m=m, n=n) for m, n in ((16384, 64), (65536, 32), (1048576, 16))),
    *(Case(batch=batch, m=n, n=n) for batch, n in ((40, 176), (40, 352), (640, 512), (60, 1024), (8, 2048))),
)
ROWS_OF_GEQRF = 4096  # the dispatch leaves geqrf of more to torch
OURS, TORCH = "qrprof", "torch"
FRESH = 20_011  # added to the seed of the input that is checked
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., checks.Residuals]]] = {
    "qr": (qr.qr, torch.linalg.qr, checks.residuals_qr),
    "geqrf": (qr.geqrf, torch.geqrf, checks.residuals),
}


def row(case: Case, op: str, clock: Clock, seconds: float) -> dict[str, Any]:
    gc.collect()
    torch.cuda.empty_cache()
    device = torch.device("cuda")
    own, stock, residuals = OPS[op]
    fresh, first = case.make(device, FRESH), case.make(device)
    verdict = checks.strict(residuals(fresh, *own(fresh)), residuals(fresh, *stock(fresh)))
    for _ in range(2):
        own(first)  # the second call of a shape is captured
    warm = [warm_up(Contender(name, call, [first], clock)) for name, call in ((OURS, own), (TORCH, stock))]
    count = min(max(calls_of(one.once_ns) for one in warm), room(case, device))
    inputs = [first, *(case.make(device, number) for number in range(1, count))]
    measured = compare([with_inputs(one, inputs) for one in warm], seconds)
    times = {one.contender.name: of(found) for one, found in zip(warm, measured, strict=True)}
    return {"op": op, "batch": case.batch, "m": case.m, "n": case.n, "strict": str(verdict), **times}


def of(measured: Measured) -> dict[str, Any]:
    """ms: (median, 5th and 95th percentile)."""
    kinds = {"device": measured.device, "call": measured.call}
    return {kind: [ns / 1e6 for ns in (one.median_ns, one.p05_ns, one.p95_ns)] for kind, one in kinds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.5, help="of readings, a row")
    options = parser.parse_args()
    clock = clock_of(torch.device("cuda"))
    rows: list[dict[str, Any]] = []
    for case in CASES:
        geqrf_ms = 0.0
        for op in ("geqrf", "qr"):
            if op == "geqrf" and (case.m > ROWS_OF_GEQRF or case.batch > 1):
                continue
            rows.append(found := row(case, op, clock, options.seconds))
            ours, stock = (
                f"{found[name]['device'][0]:8.4f} ({found[name]['call'][0]:.4f})" for name in ("qrprof", "torch")
            )
            if op == "geqrf":
                geqrf_ms = found[OURS]["device"][0]
            elif geqrf_ms:
                found["of_geqrf"] = found[OURS]["device"][0] / geqrf_ms
            about = f"  {found['of_geqrf']:.2f} of geqrf" if "of_geqrf" in found else ""
            print(f"{case.label:20} {op:5} {ours}  torch {stock}  {found['strict']}{about}", flush=True)
        machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**machine, "ms": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
