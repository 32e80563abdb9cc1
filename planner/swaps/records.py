"""What has become of a swap: plain records, without torch.

proposed: it could be used. verified: the gate passed it, faster than stock. accepted: a person lets it run. rejected: a
person does not want it. stale: the source, torch or the device is no longer what was accepted. undone: accepted once,
stock again. retired: accepted once, another one has taken its place.
"""

from dataclasses import dataclass
from typing import Literal

from qrprof.kernels.swapfile import Entry

State = Literal["proposed", "verified", "accepted", "rejected", "stale", "undone", "retired"]
SwapKind = Literal["included", "candidate", "adapter", "patch"]


@dataclass(frozen=True)
class Change:
    """One step in the life of a swap; the last one is its state."""

    state: State
    at: str  # ISO 8601, UTC
    who: str  # the user's name on this machine
    why: str  # a sentence
    verdict: str = ""  # id of the gate's that speaks for it
    override: str = ""  # the reason for which it was accepted against the evidence


@dataclass(frozen=True)
class KeptSwap:
    id: str
    name: str  # what a person calls it: "qr", "soap", "_softmax-3f2a91"
    kind: SwapKind
    op: str  # of a candidate; "": not one op
    sha256: str  # of the source; of a patch: of its diff
    task: str  # that it is judged by; "": none
    run_id: str  # that it was found in; "": none
    prediction: int | None  # of its gain, in the log of predictions
    entry: Entry | None  # what a program loads; None: a patch
    changes: tuple[Change, ...]  # oldest first, never empty

    @property
    def state(self) -> State:
        return self.changes[-1].state
