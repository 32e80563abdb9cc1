"""A candidate's outputs, looked at in its own process: what they are, whose memory they share, whether they change."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qrprof.planner.gate.poison import unwritten
from qrprof.planner.gate.records import Detector
from qrprof.planner.gate.replies import TENSOR, Sign
from qrprof.profiler.recording.window import tearing_down

LATE_S = 0.02  # in which an output must not change any more
LATE = Sign("late-work", f"an output changed within {LATE_S * 1e3:.0f} ms after it was returned")
LONGEST_NAME = 500  # characters of a kernel's name; torch's random kernels have thousands
synchronize = torch.cuda.synchronize


@dataclass
class Answer:
    """What one call came to: a result, or an error; `reason` is given where it ends the worker."""

    result: Any = None
    error: str | None = None
    reason: Detector | None = None
    copies: list[list[Tensor]] = field(default_factory=list)  # of the outputs, where the call is watched
    filled: int = 0  # blocks of memory, before the call
    peak_bytes: int | None = None

    def items(self) -> tuple[Any, ...]:
        if self.error is not None:
            return ()
        return tuple(self.result) if isinstance(self.result, tuple) else (self.result,)

    def tensors(self) -> list[Tensor]:
        return [item for item in self.items() if kind_of(item) == TENSOR]

    def copy_outputs(self) -> None:
        """Behind what the candidate has queued on the current stream, without waiting for others."""
        self.copies.append([tensor.detach().clone() for tensor in self.tensors()])


def kind_of(item: Any) -> str:
    """TENSOR for exactly that, dense, with a storage and nothing attached; else what it is."""
    if type(item) is not Tensor:
        return f"a {type(item).__module__}.{type(item).__qualname__}"
    if item.layout is not torch.strided or item.device.type == "meta":
        return f"a tensor of layout {item.layout} on {item.device}"
    if attributes := object.__getattribute__(item, "__dict__"):
        return f"a tensor with attributes of its own: {', '.join(sorted(map(str, attributes)))[:100]}"
    return TENSOR


def described(answers: Sequence[Answer], lists: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    owners = owners_of(lists)
    first: dict[int, tuple[int, int]] = {}  # the output that holds a storage, by its address
    calls = []
    for number, answer in enumerate(answers):
        seen = [seen_as(item, shares(item, owners, first, number, place)) for place, item in enumerate(answer.items())]
        signs = [[sign.detector, sign.detail] for sign in signs_of(answer)]
        calls.append({"error": answer.error, "seen": seen, "signs": signs})
    return calls


def seen_as(item: Any, shared: list[str]) -> dict[str, Any]:
    kind = kind_of(item)
    if kind != TENSOR:
        return {"kind": kind}
    return {
        "kind": kind,
        "dtype": str(item.dtype).removeprefix("torch."),
        "shape": list(item.shape),
        "stride": list(item.stride()),
        "offset": item.storage_offset(),
        "device": item.device.type,
        "requires_grad": item.requires_grad or item.grad_fn is not None,
        "shares": shared,
    }


# --- whose memory


def owners_of(lists: Sequence[Sequence[Any]]) -> list[tuple[int, int, int, int]]:
    """(first byte, end, call, argument) of the tensors among the arguments, by address."""
    return sorted(
        (*span(arg), number, place)
        for number, args in enumerate(lists)
        for place, arg in enumerate(args)
        if isinstance(arg, Tensor)
    )


def span(tensor: Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def shares(
    item: Any,
    owners: Sequence[tuple[int, int, int, int]],
    first: dict[int, tuple[int, int]],
    number: int,
    place: int,
) -> list[str]:
    if kind_of(item) != TENSOR or not item.numel():
        return []
    start, end = span(item)
    found = []
    at = bisect_right(owners, (start,))
    for begin, stop, call, argument in owners[max(at - 1, 0) : at + 1]:
        if begin < end and start < stop:
            found.append(f"argument {argument}" + ("" if call == number else f" of call {call}"))
    call, output = first.setdefault(start, (number, place))
    if (call, output) != (number, place):
        found.append(f"output {output}" + ("" if call == number else f" of call {call}"))
    return found


# --- whether they change


def signs_of(answer: Answer) -> list[Sign]:
    """Of the copies of a watched call: at its return, once the device was idle, and a while later."""
    if not answer.copies:
        return []
    at_return, idle, later = answer.copies
    signs = []
    if differing(at_return, idle):
        signs.append(
            Sign("side-stream", "an output was not complete on the stream that the call was made on")
            if any(tensor.is_cuda for tensor in at_return)
            else LATE
        )
    if differing(idle, later):
        signs.append(LATE)
    for at, tensor in enumerate(later):
        if count := unwritten(tensor):
            detail = f"{count} words of output {at} hold what free memory was filled with: nobody wrote them"
            signs.append(Sign("uninitialised", detail))
    return signs


def differing(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
    return not all(torch.equal(as_bytes(a), as_bytes(b)) for a, b in zip(before, after, strict=True))


def as_bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


# --- memory and kernels


def mark_memory(device: str) -> int | None:
    """What is held now, the record of the most set back to that; None where the kernel keeps none."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return memory("VmRSS")


def most_memory(device: str, before: int | None) -> int | None:
    """The most that was held beyond `before`, bytes."""
    if before is None:
        return None
    return max(0, (torch.cuda.max_memory_allocated() if device == "cuda" else memory("VmHWM")) - before)


def memory(name: str) -> int:
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith(name):
            return int(text.split()[1]) << 10
    return 0


@contextmanager
def profiled(device: str) -> Iterator[list[str]]:
    """Fills the list that it gives with the names of all device work that is done inside; on CUDA alone."""
    found: list[str] = []
    if device == "cpu":
        yield found
        return
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)
    profile.start()
    try:
        yield found
    finally:
        synchronize()
        with tearing_down():
            profile.stop()
        synchronize()  # the teardown waits for a call to CUDA
    events = profile.events()  # type: ignore[no-untyped-call]
    found += [event.name for event in events if event.device_type.name == "CUDA"]


def told(answers: Sequence[Answer], work: Sequence[str]) -> dict[str, Any]:
    """What a watched request adds to its answer. The fills and copies that were made beside its calls do not count."""
    peaks = [answer.peak_bytes for answer in answers if answer.peak_bytes is not None]
    copies = sum(tensor.numel() > 0 and tensor.is_cuda for answer in answers for one in answer.copies for tensor in one)
    own = copies + sum(answer.filled for answer in answers)
    names = {name[:LONGEST_NAME] for name in work if not name.startswith(("Memcpy", "Memset"))}
    kernels = sorted(names) if work or copies else None
    return {"peak_bytes": max(peaks, default=None), "kernels": kernels, "launches": max(0, len(work) - own)}
