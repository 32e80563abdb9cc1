"""The Triton QR on this machine's GPU: is it right, how long does it take, and where does its time go.

python benchmarks/qr_gpu_smoke.py --json FILE [--cases 640x512,60x1024] [--variants NAME,...|all] [--stock] [--extremes]

Times are of a CUDA graph of one call, replayed; `qrprof bench qr` is the comparison with the libraries.
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
from qrprof.kernels.qr.configs import MOST, SM90, Config, Rows, Tiles

CASES = ("20x32", "40x64", "40x176", "40x352", "640x512", "60x1024", "8x2048", "2x4096")
EXTREMES = ((30, 30), (100, 60), (300, 300), (200, 333), (1, 1), (1, 5), (70, 1), (513, 513), (1536, 40))


BIG = SM90.blocked[-1]
LOW = SM90.blocked[0]


def tiles(columns: int, rows: int, warps: int, stages: int, precision: Any = "fp16x3") -> Tiles:
    return Tiles(columns, rows, warps, stages, precision)


def big(**changes: Any) -> Config:
    """The shipped settings of many columns, changed."""
    return replace(SM90, blocked=(LOW, *(replace(of, **changes) for of in SM90.blocked[1:])))


def everywhere(**changes: Any) -> Config:
    return replace(SM90, blocked=tuple(replace(of, **changes) for of in SM90.blocked))


def low(**changes: Any) -> Config:
    return replace(SM90, blocked=(replace(LOW, **changes), *SM90.blocked[1:]))


def leaf(rows: int, each: int, threads: int, cluster: int) -> Config:
    """The leaf of up to `rows` rows with these settings."""
    others = tuple(of for of in SM90.rows if of.rows != rows)
    return replace(SM90, rows=tuple(sorted((*others, Rows(rows, MOST, each, threads, cluster)), key=lambda r: r.rows)))


FIRST = ("640x512", "60x1024")
# name: (cases, settings)
VARIANTS: dict[str, tuple[tuple[str, ...], Config]] = {
    "not ahead": (("40x176", "60x1024", "2x4096"), everywhere(ahead=0)),
    "all ahead": (("640x512",), big(ahead=MOST)),
    "programs 264": (("8x2048", "2x4096"), big(programs=264)),
    "programs 132": (("2x4096", "60x1024"), big(programs=132)),
}  # fmt: skip


def shape(case: str) -> tuple[int, int]:
    batch, n = case.split("x")
    return int(batch), int(n)


def compile_one(task: tuple[str, str]) -> tuple[str, str, float, str]:
    """Fill Triton's cache on disk, in a process of its own: one matrix compiles what a batch does."""
    name, case = task
    begun = time.perf_counter()
    try:
        m, n = shape(case) if name == "extreme" else 2 * shape(case)[1:]
        blocked.geqrf(torch.randn(2, m, n, device="cuda"), VARIANTS[name][1] if name in VARIANTS else None)
        if name == "":
            form.orgqr(blocked.factor(torch.randn(2, m, n, device="cuda"), SM90), n, SM90)
        torch.cuda.synchronize()
        return name, case, time.perf_counter() - begun, ""
    except Exception as error:  # noqa: BLE001 - reported per case
        return name, case, time.perf_counter() - begun, f"{type(error).__name__}: {error}"[:500]


def eager_ms(call: Any, *args: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call(*args)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def graph_ms(call: Any, *args: Any, budget_s: float = 0.25) -> float:
    """The median time of one call as a CUDA graph."""
    call(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(*args)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 4 or (len(times) < 15 and time.perf_counter() - begun < budget_s):
        times.append(eager_ms(graph.replay))
    return statistics.median(times[1:])


def kernels_us(call: Any, *args: Any) -> dict[str, Any]:
    """The time of each kernel in one call, and how many there were."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(*args)
        torch.cuda.synchronize()
    found: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    each: list[tuple[str, float]] = []
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            name = event.name().removeprefix("qrprof_")[:40]
            found[name] += event.duration_ns() / 1e3
            each.append((name.removeprefix("larft_"), event.duration_ns() / 1e3))
            calls[name] += 1
    first = [f"{name[:6]} {us:.1f}" for name, us in each][:12]
    return {name: [round(us, 1), calls[name]] for name, us in found.most_common(8)} | {"first": first}


def residuals(a: torch.Tensor, h: torch.Tensor, tau: torch.Tensor) -> dict[str, float]:
    """In FP64, of some matrices: max_j |(R - Q^T A)_j|_1 / |A_j|_1 / (n eps), and |Q^T Q - I|_1 / (n eps)."""
    some = sorted({0, len(a) // 2, len(a) - 1}) if a.shape[-1] < 2048 else [0]
    scale = a.shape[-1] * torch.finfo(torch.float32).eps
    a, h, tau = a[some].double(), h[some].double(), tau[some].double()
    k = tau.shape[-1]
    q = torch.linalg.householder_product(h[..., :k].contiguous(), tau)
    left = (h.triu()[..., :k, :] - q.mT @ a).abs().sum(-2) / a.abs().sum(-2).clamp(min=1e-300)
    off = (q.mT @ q - torch.eye(k, dtype=q.dtype, device=q.device)).abs().sum(-2)
    return {"column": round(left.max().item() / scale, 4), "orthogonality": round(off.max().item() / scale, 4)}


def one_case(case: str, config: Config, stock: bool) -> dict[str, Any]:
    batch, n = shape(case)
    a = torch.randn(batch, n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(n))
    h, tau = blocked.geqrf(a, config)
    found: dict[str, Any] = dict(residuals(a, h, tau))
    found["ms"] = round(graph_ms(blocked.geqrf, a, config), 4)
    found["kernels_us"] = kernels_us(blocked.geqrf, a, config)
    if stock:
        blocked.geqrf(a, config)
        found["call_ms"] = round(statistics.median(eager_ms(blocked.geqrf, a, config) for _ in range(5)), 4)
        torch.geqrf(a[:1])
        found["stock_ms"] = round(eager_ms(torch.geqrf, a), 4)
        done = blocked.factor(a, config)
        found["orgqr_ms"] = round(graph_ms(form.orgqr, done, n, config), 4)
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
            worst = max(upper, lower, (tau - stock_tau).abs().max().item())
            if not worst < 1e-4:
                found[f"{m}x{n} {name}"] = [upper, lower, (tau - stock_tau).abs().max().item()]
        bad = base.clone()
        bad[1, m // 2, n // 2] = float("nan")
        h, _ = (x.cpu() for x in blocked.geqrf(bad.cuda()))
        if (finite := h.isfinite().flatten(1).all(1).tolist()) != [True, False, True, True]:
            found[f"{m}x{n} nan"] = finite
    return found


def attempt(label: str, call: Any, *args: Any) -> Any:
    begun = time.perf_counter()
    try:
        found = call(*args)
    except Exception as error:  # noqa: BLE001 - the other cases go on
        found = {"error": f"{type(error).__name__}: {error}"[:800]}
    print(f"{time.perf_counter() - begun:5.2f} s  {label}: {json.dumps(found)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--variants", default="")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--extremes", action="store_true")
    parser.add_argument("--limit", type=float, default=110.0, help="seconds after which no variant is begun")
    options = parser.parse_args()
    begun = time.perf_counter()
    cases = [case for case in options.cases.split(",") if case]
    chosen = VARIANTS if options.variants == "all" else [x for x in options.variants.split(",") if x]
    variants = [(name, case) for name in chosen for case in VARIANTS[name][0]]
    tasks = [("", case) for case in cases] + [("extreme", f"{m}x{n}") for m, n in EXTREMES if options.extremes]
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "compile": {}, "cases": {}, "variants": {},
    }  # fmt: skip
    workers = max(2, min(15, len(os.sched_getaffinity(0)) - 1))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(compile_one, task) for task in (*tasks, *variants)]
    for future in futures:
        if broken := future.exception():
            print(f"compile: {broken}", flush=True)
            continue
        name, case, seconds, error = future.result()
        result["compile"][f"{name or 'default'} {case}"] = [round(seconds, 2), error]
        if error:
            print(f"compile {name or 'default'} {case}: {error}", flush=True)
    print(f"{time.perf_counter() - begun:.1f} s: {len(result['compile'])} compiled by {workers} processes", flush=True)
    if options.extremes:
        result["extremes"] = attempt("extremes", extremes)
    for case in cases:
        result["cases"][case] = attempt(case, one_case, case, SM90, options.stock)
        options.json.write_text(json.dumps(result, indent=1))
    for name, case in variants:
        if time.perf_counter() - begun > options.limit:
            print(f"no time left for {name} {case}")
            continue
        result["variants"][f"{name} {case}"] = attempt(f"{name} {case}", one_case, case, VARIANTS[name][1], False)
    options.json.write_text(json.dumps(result, indent=1))
    print(f"{time.perf_counter() - begun:.1f} s in all")


if __name__ == "__main__":
    main()
