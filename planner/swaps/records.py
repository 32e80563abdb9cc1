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
class PatchText:
    """A change of the user's own file; `KeptSwap.sha256` is that of its diff."""

    path: str  # inside the project
    base_sha256: str  # of the file that the diff is of
    title: str
    why: str


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
class Proposal:
    """A swap as it is found. What is found again under the same name is the same swap."""

    name: str  # what a person calls it: "qr", "soap", "_softmax-3f2a9144"
    kind: SwapKind
    op: str  # of a candidate; "": not one op
    sha256: str  # of the source; of a patch: of its diff
    task: str = ""  # that it is judged by; "": none
    run_id: str = ""  # that it was found in; "": none
    prediction: int | None = None  # of its gain, in the log of predictions
    entry: Entry | None = None  # what a program loads; None: a patch
    patch: PatchText | None = None  # None: no patch

    @property
    def verdict(self) -> str:
        """Id of the gate's verdict on it; "": there is none."""
        return self.entry.verdict if self.entry else ""


@dataclass(frozen=True)
class KeptSwap:
    swap: Proposal
    changes: tuple[Change, ...]  # oldest first, never empty

    @property
    def state(self) -> State:
        return self.changes[-1].state

    @property
    def name(self) -> str:
        return self.swap.name

    @property
    def entry(self) -> Entry | None:
        return self.swap.entry
