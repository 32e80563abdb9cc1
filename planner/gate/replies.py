"""What a worker answers, and the protocol by which the stages ask: real child processes and scripted ones alike.

Everything in a reply but the outputs' bytes, `mutated` and `wall_ns` is the child's word: good enough to convict a
candidate, never to acquit it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qrprof.planner.gate.records import Detector

if TYPE_CHECKING:
    from torch import Tensor

Arguments = Sequence[Any]  # of one call, in the op's order: tensors, and plain values

TENSOR = "Tensor"


@dataclass(frozen=True)
class Sign:
    """Something that the worker itself saw go wrong."""

    detector: Detector
    detail: str  # one sentence


@dataclass(frozen=True)
class Seen:
    """One output, as it was before its bytes were taken."""

    kind: str  # TENSOR: exactly torch.Tensor with an empty __dict__ and a storage; else what it is, for a sentence
    dtype: str = ""  # "float32"
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0  # elements
    device: str = ""  # "cpu", "cuda"
    requires_grad: bool = False  # or has a grad_fn
    shares: tuple[str, ...] = ()  # whose memory it overlaps: "argument 0", "output 1", "output 0 of call 3"


@dataclass(frozen=True)
class Call:
    """One argument list of a request."""

    outputs: "tuple[Tensor, ...]"  # copies in the parent's own memory, in C order; of no tensor: an empty one
    seen: tuple[Seen, ...]
    error: str | None = None  # the exception that the candidate raised, one line; there are no outputs then
    mutated: tuple[int, ...] = ()  # arguments whose bytes are no longer what the parent wrote
    signs: tuple[Sign, ...] = ()  # with `watch`: late-work, side-stream


@dataclass(frozen=True)
class Reply:
    calls: tuple[Call, ...]
    wall_ns: int  # the parent's clock, from sending to the reply
    testimony_ns: int  # the child's clock, around the candidate's calls
    signs: tuple[Sign, ...] = ()  # with `watch`: global-state, threads, patched, import, harness
    kernels: tuple[str, ...] | None = None  # with `watch` on CUDA: device kernels that ran; None: not known
    launches: int = 0  # of device work, as far as known
    peak_bytes: int | None = None  # with `watch`: most memory that a call took beyond what was held before it


@dataclass(frozen=True)
class Built:
    seconds: float  # of the first import
    kernels: tuple[str, ...] = ()  # the file's KERNELS
    signs: tuple[Sign, ...] = ()


class Ended(Exception):
    """A worker is gone, or is not to be talked to any more. The reason is one of

    crash, hang, memory-limit, task-limit, no-compiler, disk-full, build-error, forged, import or harness.
    """

    def __init__(self, reason: Detector, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Worker(Protocol):
    """A process that holds one candidate. Every method raises Ended."""

    @property
    def layer(self) -> str: ...

    def build(self) -> Built:
        """Import the candidate; once, and before any call."""

    def call(self, inputs: Sequence[Arguments], *, watch: bool = False, again: bool = False) -> Reply:
        """One request: the candidate is called on each of `inputs` in order; all outputs are held until the last.

        `again`: the new values are written into the memory of the last request's tensors, of the same forms, and the
        candidate is given the very same tensor objects. `watch`: look around before and after, and take the outputs
        twice: at return, and once the device is idle and a little time has passed.
        """

    def echo(self, inputs: Sequence[Arguments], outputs: "Sequence[Sequence[Tensor]]") -> int:
        """ns, by the parent's clock, of a request with these inputs and outputs in which no candidate is called.

        What the child says that it took to make the outputs is not in it: to be believed of a trusted worker alone.
        """


Workers = Callable[[Path], AbstractContextManager[Worker]]  # starts a worker on a source file
