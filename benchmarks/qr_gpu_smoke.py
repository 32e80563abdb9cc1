"""The Triton QR on this machine's GPU: is it right, how fast is it beside torch.geqrf, and where does its time go.

python benchmarks/qr_gpu_smoke.py --json FILE [--cases 640x512,60x1024] [--no-variants]
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import triton

from qrprof.kernels.qr import blocked, form
from qrprof.kernels.qr.configs import NARROW, PANELS, SM90, WIDE, Blocked, Config, Panel, Update

CASES = ("20x32", "40x64", "40x176", "40x352", "640x512", "60x1024", "8x2048", "2x4096", "3x513", "16x100", "1x768")
TIMED = ("640x512", "60x1024")  # for the variants
EXTREMES = ((30, 30), (100, 60), (300, 300), (200, 333), (1, 1), (1, 5), (70, 1))
EXTREME_TASKS = tuple(("extreme", f"{m}x{n}") for m, n in EXTREMES)


def panels(**changes: Any) -> tuple[Panel, ...]:
    return tuple(replace(panel, **changes) for panel in PANELS)


def of(width: int, update: Update, panel_table: tuple[Panel, ...] = PANELS) -> Config:
    return replace(SM90, blocked=(Blocked(1 << 30, width, panel_table, update),))


def warps_at(rows: int, **changes: Any) -> tuple[Panel, ...]:
    return tuple(replace(panel, **changes) if panel.rows == rows else panel for panel in PANELS)


VARIANTS: dict[str, Config] = {
    "w64": of(64, NARROW),
    "w128": of(128, WIDE),
    "w64 update 64 rows 8 warps": of(64, replace(NARROW, block_rows=64, warps=8)),
    "w64 update 128 columns": of(64, replace(NARROW, columns=128, warps=8)),
    "w128 block_rows 16": of(128, WIDE, panels(block_rows=16)),
    "w128 512 by 8 warps": of(128, WIDE, warps_at(512, warps=8)),
    "w128 update 4 warps": of(128, replace(WIDE, warps=4)),
    "w64 ieee panel": of(64, NARROW, panels(precision="ieee")),
    "w64 block_rows 16": of(64, NARROW, panels(block_rows=16)),
    "w64 unpaired": of(64, NARROW, panels(paired=False)),
    "w64 512 by 8 warps": of(64, NARROW, warps_at(512, warps=8)),
    "w64 leaf 8": of(64, NARROW, panels(leaf=8)),
    "w128 leaf 8": of(128, WIDE, panels(leaf=8)),
    "w64 update ieee": of(64, replace(NARROW, block_rows=16, warps=8, precision="ieee")),
}


def shape(case: str) -> tuple[int, int]:
    batch, n = case.split("x")
    return int(batch), int(n)


def compile_one(task: tuple[str, str]) -> tuple[str, str, float, str]:
    """Fill Triton's cache on disk, in a process of its own: one matrix compiles what a batch does."""
    name, case = task
    begun = time.perf_counter()
    try:
        m, n = shape(case) if name == "extreme" else 2 * shape(case)[1:]
        config = VARIANTS.get(name)
        done = blocked.factor(torch.randn(2, m, n, device="cuda"), config)
        if config is None:
            form.orgqr(done, min(m, n))
        torch.cuda.synchronize()
        return name, case, time.perf_counter() - begun, ""
    except Exception as error:  # noqa: BLE001 - reported per case
        return name, case, time.perf_counter() - begun, f"{type(error).__name__}: {error}"[:500]


def median_ms(call: Any, *args: Any, least: int = 3, budget_s: float = 0.6) -> float:
    """The median time of a call by CUDA events, after one that does not count."""
    call(*args)
    torch.cuda.synchronize()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < least or (len(times) < 15 and time.perf_counter() - begun < budget_s):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(*args)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def kernels_us(call: Any, *args: Any) -> dict[str, float]:
    """The time of each kernel in one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(*args)
        torch.cuda.synchronize()
    found: Counter[str] = Counter()
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            found[event.name()[:60]] += event.duration_ns() / 1e3
    return {name: round(us, 1) for name, us in found.most_common(8)}


def residuals(a: torch.Tensor, h: torch.Tensor, tau: torch.Tensor) -> dict[str, float]:
    """In FP64, of some matrices: max_j |(R - Q^T A)_j|_1 / |A_j|_1 / (n eps), and |Q^T Q - I|_1 / (n eps)."""
    some = sorted({0, len(a) // 2, len(a) - 1}) if a.shape[-1] < 2048 else [0]
    scale = a.shape[-1] * torch.finfo(torch.float32).eps
    a, h, tau = a[some].double(), h[some].double(), tau[some].double()
    k = tau.shape[-1]
    q = torch.linalg.householder_product(h[..., :k].contiguous(), tau)
    left = (h.triu()[..., :k, :] - q.mT @ a).abs().sum(-2) / a.abs().sum(-2).clamp(min=1e-300)
    off = (q.mT @ q - torch.eye(k, dtype=q.dtype, device=q.device)).abs().sum(-2)
    return {"column": left.max().item() / scale, "orthogonality": off.max().item() / scale}


def one_case(case: str) -> dict[str, Any]:
    batch, n = shape(case)
    a = torch.randn(batch, n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(n))
    begun = time.perf_counter()
    h, tau = blocked.geqrf(a)
    torch.cuda.synchronize()
    first_s = time.perf_counter() - begun
    found: dict[str, Any] = {"first_s": round(first_s, 3), **residuals(a, h, tau)}
    few = a[:4]
    stock_h, stock_tau = torch.geqrf(few)
    found["h_rel"] = ((h[:4] - stock_h).norm() / stock_h.norm()).item()
    found["tau_diff"] = (tau[:4] - stock_tau).abs().max().item()
    found["strides_as_torch"] = h[:4].stride() == stock_h.stride()
    found["ms"] = median_ms(blocked.geqrf, a)
    found["stock_ms"] = median_ms(torch.geqrf, a, least=1, budget_s=0.3)
    found["times"] = found["stock_ms"] / found["ms"]
    done = blocked.factor(a)
    q = form.orgqr(done, n)
    some = torch.linalg.householder_product(stock_h, stock_tau)
    found["q_diff"] = (q[:4] - some).abs().max().item()
    found["orgqr_ms"] = median_ms(form.orgqr, done, n)
    found["kernels_us"] = kernels_us(blocked.geqrf, a)
    found["orgqr_kernels_us"] = kernels_us(form.orgqr, done, n)
    return found


def extremes() -> dict[str, Any]:
    """What the GPU's arithmetic could break: scales, zeros, NaN, odd strides; against torch on the CPU."""
    found: dict[str, Any] = {}
    for m, n in EXTREMES:
        base = torch.randn(4, m, n, generator=torch.Generator().manual_seed(m))
        tiny = base.clone()
        tiny[..., -1] *= 1e-38
        inputs = {
            "plain": base, "huge": base * 1e37, "denormal": base * 1e-39, "tiny column": tiny,
            "zero": base * 0, "strided": base.mT.contiguous().mT, "triangle": base.triu(),
        }  # fmt: skip
        for name, a in inputs.items():
            h, tau = (x.cpu() for x in blocked.geqrf(a.cuda()))
            stock_h, stock_tau = torch.geqrf(a)
            scale = a.double().norm(dim=-2, keepdim=True).clamp(min=1e-300)
            upper = ((h.double() - stock_h.double()).triu() / scale).abs().max().item()
            lower = (h - stock_h).tril(-1).abs().max().item()
            found[f"{m}x{n} {name}"] = [upper, lower, (tau - stock_tau).abs().max().item()]
        bad = base.clone()
        bad[1, m // 2, n // 2] = float("nan")
        h, _ = (x.cpu() for x in blocked.geqrf(bad.cuda()))
        found[f"{m}x{n} nan"] = h.isfinite().flatten(1).all(1).tolist()
    return found


def attempt(label: str, call: Any, *args: Any) -> Any:
    begun = time.perf_counter()
    try:
        found = call(*args)
    except Exception as error:  # noqa: BLE001 - the other cases go on
        found = {"error": f"{type(error).__name__}: {error}"[:800]}
    print(f"{time.perf_counter() - begun:6.2f} s  {label}: {json.dumps(found)}", flush=True)
    return found


def time_variant(config: Config, case: str) -> dict[str, Any]:
    batch, n = shape(case)
    a = torch.randn(batch, n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(n))
    h, tau = blocked.geqrf(a, config)
    kernels = {name[7:30]: us for name, us in kernels_us(blocked.geqrf, a, config).items() if "qrprof" in name}
    return {"ms": median_ms(blocked.geqrf, a, config, budget_s=0.2), "kernels": kernels, **residuals(a, h, tau)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument("--limit", type=float, default=110.0, help="seconds after which no variant is begun")
    options = parser.parse_args()
    begun = time.perf_counter()
    cases = options.cases.split(",")
    tasks = [("", case) for case in cases]
    variants: list[tuple[str, str]] = []
    if not options.no_variants:
        variants = [(name, case) for case in TIMED for name in VARIANTS if case in cases]
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "compile": {}, "cases": {}, "variants": {},
    }  # fmt: skip
    workers = max(2, min(14, len(os.sched_getaffinity(0)) - 2))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(compile_one, task) for task in (*tasks, *EXTREME_TASKS, *variants)]
    for future in futures:
        if broken := future.exception():
            print(f"compile: {broken}", flush=True)
            continue
        name, case, seconds, error = future.result()
        result["compile"][f"{name or 'default'} {case}"] = [round(seconds, 2), error]
        if error:
            print(f"compile {name or 'default'} {case}: {error}", flush=True)
    print(f"{time.perf_counter() - begun:.1f} s: {len(result['compile'])} compiled by {workers} processes", flush=True)
    options.json.write_text(json.dumps(result, indent=1))
    result["extremes"] = attempt("extremes", extremes)
    for case in cases:
        result["cases"][case] = attempt(case, one_case, case)
        options.json.write_text(json.dumps(result, indent=1))
    for name, case in variants:
        if time.perf_counter() - begun > options.limit:
            print(f"no time left for {name} {case}")
            continue
        result["variants"][f"{name} {case}"] = attempt(f"{name} {case}", time_variant, VARIANTS[name], case)
    options.json.write_text(json.dumps(result, indent=1))
    print(f"{time.perf_counter() - begun:.1f} s in all")


if __name__ == "__main__":
    main()
