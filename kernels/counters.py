"""What a swap has done: calls served and not, and why; what the checks of its results said; how long calls took."""

import threading
from collections import Counter
from dataclasses import dataclass, field

from qrprof.kernels.stopwatch import Stopwatch


@dataclass(frozen=True)
class Report:
    """A swap on one dispatch key, so far.

    Times are of calls of the swap, in ns, and in shadow mode of the stock kernel's beside them; None where there are
    none. On a GPU they are of one call in as many as are checked, in shadow mode of all. A call in a captured graph is
    counted once, when it is captured.
    """

    name: str
    op: str
    key: str
    open: bool  # the stock kernel serves every call since results or calls failed repeatedly
    hits: int
    fallbacks: dict[str, int]  # reason -> calls
    checked: int
    failed: int
    errors: int  # calls in which the swap raised; they are in `fallbacks` by the exception's name
    shadowed: int  # calls that both computed, and whose result is the stock kernel's
    difference: float | None  # of those: the largest, as `agreement.difference`
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    stock_p50_ns: int | None
    stock_p95_ns: int | None
    stock_p99_ns: int | None


@dataclass
class Counters:
    """Counted under a lock: ops are called from autograd's and the program's own threads."""

    own: Stopwatch
    stock: Stopwatch
    calls: int = 0  # inside the domain
    hits: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    failed: int = 0
    errors: int = 0
    shadowed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self) -> int:
        """Count a call inside the domain; returns how many there were before it."""
        with self.lock:
            self.calls += 1
            return self.calls - 1

    def hit(self) -> int:
        """Count a call served; returns how many there were before it."""
        with self.lock:
            self.hits += 1
            return self.hits - 1

    def shadow(self) -> int:
        """Count a call that both computed; returns how many there were before it."""
        with self.lock:
            self.shadowed += 1
            return self.shadowed - 1

    def fall_back(self, reason: str, error: bool = False) -> None:
        with self.lock:
            self.fallbacks[reason] += 1
            self.errors += error

    def check(self, failed: bool) -> None:
        with self.lock:
            self.checked += 1
            self.failed += failed

    def report(
        self, name: str, op: str, key: str, opened: bool, failed_on_device: int, difference: float | None
    ) -> Report:
        own, stock = self.own.quantiles(), self.stock.quantiles()
        with self.lock:
            return Report(
                name,
                op,
                key,
                opened,
                self.hits,
                dict(self.fallbacks),
                self.checked,
                self.failed + failed_on_device,
                self.errors,
                self.shadowed,
                difference,
                *own,
                *stock,
            )
