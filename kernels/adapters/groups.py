"""Which calls of a recorded run an adapter would group, and how many there would be in a batch."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qrprof.kernels.registry import served

if TYPE_CHECKING:
    from qrprof.kernels.adapters import Adapter
    from qrprof.profiler.linalg import Signature
    from qrprof.profiler.runinfo import RunInfo

FEWEST: Final = 2


@dataclass(frozen=True)
class Group:
    """Calls of one shape in a step that makes any."""

    op: str  # "linalg_qr"
    count: int
    shape: tuple[int, int]  # of one matrix
    dtype: str
    device: str
    share: float  # of the steps, that make such calls

    @property
    def single(self) -> "Signature":
        return self.op, self.shape, self.dtype

    @property
    def batch(self) -> "Signature":
        return self.op, (self.count, *self.shape), self.dtype


def groups(adapter: "Adapter", run: "RunInfo") -> tuple[Group, ...]:
    """Those of which a batch is served by a kernel of this library, in the order of their calls.

    Empty where the run's steps are not those of the adapter's optimizer.
    """
    if run.step_source != f"optimizer {adapter.optimizer}":
        return ()
    op, file = adapter.op.removeprefix("aten::"), adapter.target.replace(".", "/") + ".py:"
    share = sum(kind.frequency for kind in run.kinds if op in kind.label) or 1.0
    calls: defaultdict[tuple[tuple[int, int], str, str], float] = defaultdict(float)
    for call in run.linalg:
        if call.op == adapter.op and len(call.shape) == 2 and file in call.site:
            calls[(call.shape[0], call.shape[1]), call.dtype, call.device] += call.calls_per_step
    found = (Group(op, round(count / share), *key, share) for key, count in calls.items())
    return tuple(one for one in found if one.count >= FEWEST and served(one.op, one.device, one.dtype, one.batch[1]))
