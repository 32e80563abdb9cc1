"""Where the GPU lanes gain: one eager call of geqrf and of qr, ours and torch's, on an idle device, over many shapes.

python benchmarks/qr_dispatch.py --json FILE
python benchmarks/qr_dispatch.py --json FILE --batches 1 8 40 160 640 2000 --sizes 64 128 256 384 512 --most 530000000

It calls the lanes themselves, not what the dispatch would choose: the rules of `kernels/qr/dispatch` are read off here.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from qrprof.kernels.qr import gpu

BATCHES = (1, 2, 4, 8, 40, 160, 640, 2000)
SIZES = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
OTHERS = ((1, 4096, 64), (1, 2048, 128), (8, 1024, 64), (64, 256, 32), (1, 4096, 512), (8, 256, 2048), (1, 512, 4096))
MOST = 1 << 26  # elements of a case
SLOW_MS = 150.0  # a call of torch's that takes longer is timed once


def median_ms(call: Callable[[torch.Tensor], Any], a: torch.Tensor, calls: int) -> float:
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(a)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def stock_ms(call: Callable[[torch.Tensor], Any], a: torch.Tensor) -> float:
    once = median_ms(call, a, 1)
    return once if once > SLOW_MS else median_ms(call, a, 3 if once > 10 else 5)


def own_ms(call: Callable[[torch.Tensor], Any], a: torch.Tensor) -> float:
    """After the calls that compile and capture."""
    for _ in range(4):
        call(a)
    return median_ms(call, a, 5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which no shape is begun")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rows and columns")
    parser.add_argument("--most", type=int, default=MOST, help="elements of a case")
    options = parser.parse_args()
    begun = time.perf_counter()
    square = [(batch, n, n) for n in options.sizes for batch in options.batches if batch * n * n <= options.most]
    shapes = square + (list(OTHERS) if options.sizes is SIZES else [])
    rows: list[dict[str, Any]] = []
    torch.linalg.qr(torch.randn(2, 8, 8, device="cuda"))
    for batch, m, n in shapes:
        if time.perf_counter() - begun > options.limit:
            print(f"no time left from {batch} x {m} x {n} on")
            break
        a = torch.randn(batch, m, n, device="cuda", generator=torch.Generator("cuda").manual_seed(m))
        row: dict[str, Any] = {"batch": batch, "m": m, "n": n}
        row["geqrf"] = [own_ms(gpu.geqrf, a), stock_ms(torch.geqrf, a)]
        if row["geqrf"][1] < SLOW_MS:
            row["qr"] = [own_ms(lambda x: gpu.qr(x, "reduced"), a), stock_ms(torch.linalg.qr, a)]
        rows.append(row)
        times = {op: f"{ours:.3f} of {stock:.3f}" for op in ("geqrf", "qr") for ours, stock in [row.get(op, (0, 0))]}
        print(f"{batch:5} x {m:5} x {n:5}  {times}", flush=True)
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "ms": rows}, indent=1))


if __name__ == "__main__":
    main()
