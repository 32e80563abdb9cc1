"""The QR benchmark's results as sums and as the record that is written to a file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from qrprof.kernels.bench import OURS, Check, Result
from qrprof.kernels.checks import Residuals, Verdict
from qrprof.kernels.timing import Measured, Timing

KINDS = ("device", "call")
MEASURES = ("factor", "column", "orthogonality")


@dataclass(frozen=True)
class Sums:
    """Over the cases that both have times of: ns a call, summed, of one kind of time."""

    cases: int
    ours_ns: float
    theirs_ns: float

    @property
    def ratio(self) -> float | None:
        return self.theirs_ns / self.ours_ns if self.ours_ns else None


def times(result: Result) -> dict[str, Measured]:
    """By name, ours first; those that were measured."""
    found = {} if result.ours is None else {OURS: result.ours}
    return found | {name: one for name, one in result.peers.items() if isinstance(one, Measured)}


def median_ns(measured: Measured, kind: str) -> float:
    found: Timing = getattr(measured, kind)
    return found.median_ns


def sums(results: Sequence[Result], peer: str, kind: str) -> Sums:
    both = [found for found in map(times, results) if OURS in found and peer in found]
    ours, theirs = (math.fsum(median_ns(found[name], kind) for found in both) for name in (OURS, peer))
    return Sums(len(both), ours, theirs)


def geometric_means(results: Sequence[Result], names: Sequence[str], kind: str) -> tuple[int, dict[str, float]]:
    """(number of cases, ns by name) over the cases that all of `names` have times of."""
    common = [found for found in map(times, results) if all(name in found for name in names)]
    if not common:
        return 0, {}
    return len(common), {
        name: math.exp(math.fsum(math.log(median_ns(found[name], kind)) for found in common) / len(common))
        for name in names
    }


def report(
    results: Sequence[Result],
    *,
    device: str,
    versions: Mapping[str, str],
    cases: str,
    wanted: int,
    peers: Sequence[str],
    contest: bool,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The whole record: `cases` names the set, of which `wanted` are to be run; times in ms, medians of a call.

    A case's `peers` are their device times. The geometric mean, which only the contest defines, is there for its set.
    """
    return {
        "device": device,
        "versions": dict(versions),
        "date": datetime.now(UTC).date().isoformat(),
        "set": cases,
        "complete": len(results) == wanted,
        "notes": list(notes),
        "cases": [case_record(result) for result in results],
        "summary": summary(results, peers, contest),
    }


def summary(results: Sequence[Result], peers: Sequence[str], contest: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cases": len(results),
        "failed": sum(result.failed is not None for result in results),
        "wrong": sum(result.failed is None and not result.right for result in results),
        "peers": {name: {kind: sums_record(sums(results, name, kind)) for kind in KINDS} for name in peers},
    }
    if contest:
        for kind in KINDS:
            count, means = geometric_means(results, [OURS, *peers], kind)
            found[f"geometric_mean_{kind}"] = {"cases": count} | {f"{name}_ms": to_ms(ns) for name, ns in means.items()}
    return found


def sums_record(found: Sums) -> dict[str, Any]:
    ours, theirs = to_ms(found.ours_ns), to_ms(found.theirs_ns)
    return {"cases": found.cases, "ours_ms": ours, "theirs_ms": theirs, "ratio_of_sums": found.ratio}


def case_record(result: Result) -> dict[str, Any]:
    peers = times(result)
    device, call = (getattr(result.ours, kind, None) for kind in KINDS)
    return {
        **result.case.model_dump(),
        "device_ms": to_ms(getattr(device, "median_ns", None)),
        "call_ms": to_ms(getattr(call, "median_ns", None)),
        "p05_ms": to_ms(getattr(device, "p05_ns", None)),
        "p95_ms": to_ms(getattr(device, "p95_ns", None)),
        "peers": {name: to_ms(peers[name].device.median_ns) if name in peers else None for name in result.peers},
        "peers_call": {name: to_ms(peers[name].call.median_ns) if name in peers else None for name in result.peers},
        "lane": result.lane,
        "fallback": result.fallback,
        "failed": result.failed,
        "gflop_per_s": None if result.flops_per_s is None else result.flops_per_s / 1e9,
        "floor_ms": to_ms(result.floor_ns),
        "floor_share": result.floor_share,
        "timing": {name: measured_record(one) for name, one in peers.items()},
        "peers_failed": {name: one for name, one in result.peers.items() if isinstance(one, str)},
        **check_record(result.check),
    }


def measured_record(measured: Measured) -> dict[str, Any]:
    return {
        "first_ms": to_ms(measured.first_ns),
        "peak_bytes": measured.peak_bytes,
        **{kind: timing_record(getattr(measured, kind)) for kind in KINDS},
    }


def timing_record(timing: Timing) -> dict[str, Any]:
    quantiles = {name: to_ms(getattr(timing, f"{name}_ns")) for name in ("median", "p05", "p95")}
    own = {f"{name}_ms": ms for name, ms in quantiles.items()}
    return {"n": timing.n, "calls": timing.calls, **own, "clock": timing.clock, "how": timing.how}


def check_record(check: Check | None) -> dict[str, Any]:
    if check is None:
        return {"strict": None, "contest": None, "residuals": None, "torch_residuals": None, "same_bits": None}
    return {
        "strict": verdict_record(check.strict),
        "contest": verdict_record(check.contest),
        "residuals": residuals_record(check.own),
        "torch_residuals": residuals_record(check.stock),
        "same_bits": check.same_bits,
    }


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    return {"passed": verdict.passed, "reasons": [str(reason) for reason in verdict.reasons]}


def residuals_record(residuals: Residuals) -> dict[str, Any]:
    """Quantiles over the matrices; `at` is the worst one's index in the batch."""
    return {measure: asdict(residuals.spread(measure)) for measure in MEASURES}


def to_ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
