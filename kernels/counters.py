"""What a swap has done: calls served and not, and why; what the checks of its results said; times of calls on a CPU."""

import threading
from collections import Counter, deque
from dataclasses import dataclass, field

KEPT = 4096  # times of the last calls


@dataclass(frozen=True)
class Report:
    """A swap on one dispatch key, so far. Times are of calls served on a CPU, in ns; None where there are none."""

    op: str
    key: str
    open: bool  # the stock kernel serves every call since results or calls failed repeatedly
    hits: int
    fallbacks: dict[str, int]  # reason -> calls
    checked: int
    failed: int
    errors: int  # calls in which the faster kernel raised; they are in `fallbacks` by the exception's name
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None


@dataclass
class Counters:
    """Counted under a lock: ops are called from autograd's and the program's own threads."""

    hits: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    failed: int = 0
    errors: int = 0
    times: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hit(self, ns: int | None) -> int:
        """Count a call served, in `ns` on a CPU; returns how many there were before it."""
        with self.lock:
            self.hits += 1
            if ns is not None:
                self.times.append(ns)
            return self.hits - 1

    def fall_back(self, reason: str, error: bool = False) -> None:
        with self.lock:
            self.fallbacks[reason] += 1
            self.errors += error

    def check(self, failed: bool) -> None:
        with self.lock:
            self.checked += 1
            self.failed += failed

    def report(self, op: str, key: str, opened: bool, failed_on_device: int) -> Report:
        with self.lock:
            times = sorted(self.times)
            p50, p95, p99 = (times[round(q * (len(times) - 1))] if times else None for q in (0.5, 0.95, 0.99))
            return Report(
                op,
                key,
                opened,
                self.hits,
                dict(self.fallbacks),
                self.checked,
                self.failed + failed_on_device,
                self.errors,
                p50,
                p95,
                p99,
            )
