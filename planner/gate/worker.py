"""What the gate asks a candidate's process: to import it, to call it on inputs, or only to move their bytes.

The inputs lie in memory that both see. They are written there once the clock runs, so that a candidate cannot begin
before it, into tensors that its process has made of it by then; the outputs are copied out of the candidate's reach
before it is asked again.
"""

import gc
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from qrprof.kernels.timing import DeviceClock, HostClock
from qrprof.planner.gate import arena, wire
from qrprof.planner.gate.arena import Arena, Place
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.process import CandidateProcess, running
from qrprof.planner.gate.records import Detector
from qrprof.planner.gate.replies import TENSOR, Arguments, Built, Call, Ended, Reply, Seen, Sign
from qrprof.planner.gate.sandbox import Layer, available_layer

clock = time.perf_counter_ns
Count = Annotated[int, Field(ge=0, lt=1 << 48)]
Text = Annotated[str, Field(max_length=2000)]
NONCE_BYTES = 16
R = TypeVar("R", bound="Answer")


@contextmanager
def started(source: Path, device: str, limits: Limits, layer: Layer | None = None) -> Iterator["ProcessWorker"]:
    """A worker for the candidate in `source`, on "cpu" or "cuda". When this is left, nothing of it runs any more.

    `layer`: None for the best that works here. Raises QrprofError where no process can be started.
    """
    with running(source, device, limits, layer or available_layer()) as process:
        yield ProcessWorker(process, device)


# --- what the child may answer; anything else is forged


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Answer(Strict):
    nonce: str
    failed: tuple[Detector, Text] | None = None  # the worker ends


class BuildAnswer(Answer):
    seconds: float = 0.0
    kernels: tuple[Text, ...] = ()
    signs: tuple[tuple[Detector, Text], ...] = ()


class DoneAnswer(Answer):
    size: Count = 0  # bytes that the outputs take
    arena: Count = 0  # bytes of new memory for outputs, whose descriptor comes along; 0: the old
    testimony_ns: Count = 0


class SeenAnswer(Strict):
    kind: Text
    dtype: Text = ""
    shape: tuple[Count, ...] = ()
    stride: tuple[Count, ...] = ()
    offset: Count = 0
    device: Text = ""
    requires_grad: bool = False
    shares: tuple[Text, ...] = ()


class CallAnswer(Strict):
    error: Text | None
    seen: tuple[SeenAnswer, ...]
    signs: tuple[tuple[Detector, Text], ...]


class CallsAnswer(Answer):
    starts: tuple[Count, ...] = ()
    calls: tuple[CallAnswer, ...] = ()
    signs: tuple[tuple[Detector, Text], ...] = ()
    peak_bytes: Count | None = None
    kernels: tuple[Text, ...] | None = None
    launches: Count = 0


# --- requests


@dataclass(frozen=True)
class Request:
    """Argument lists as they are sent: their forms as JSON, and the tensors' places and bytes."""

    forms: list[list[Any]]
    places: list[Place]
    data: Tensor  # the gate's own copy

    @property
    def message(self) -> dict[str, Any]:
        places = [[place.start, place.shape, place.stride, place.dtype] for place in self.places]
        return {"args": self.forms, "places": places}


def request_of(inputs: Sequence[Arguments], device: str) -> Request:
    tensors = [arg for args in inputs for arg in args if isinstance(arg, Tensor)]
    places = arena.lay_out(tensors)
    data = torch.empty(arena.size_of(places), dtype=torch.uint8, device=device)
    arena.fill(data, places, tensors)
    return Request([[form_of(arg) for arg in args] for args in inputs], places, data)


def form_of(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return "tensor"
    return {"dtype": arena.name_of(arg)} if isinstance(arg, torch.dtype) else {"plain": arg}


class ProcessWorker:
    """A Worker (replies.py) in a real process."""

    def __init__(self, process: CandidateProcess, device: str) -> None:
        self.process = process
        self.device = device
        self.inputs: Arena | None = None
        self.room = 0  # bytes that were asked for the inputs; a GPU gives more
        self.outputs: Arena | None = None
        self.last: Request | None = None
        self.called = False
        self.clock = DeviceClock(torch.device("cuda")) if device == "cuda" else HostClock()

    @property
    def layer(self) -> str:
        return self.process.layer

    def build(self) -> Built:
        self.process.get_ready()
        nonce = secrets.token_hex(NONCE_BYTES)
        self.process.send(wire.encode({"nonce": nonce, "kind": "build"}), [], self.process.limits.build_s)
        answer = self.next_answer(BuildAnswer, nonce)
        return Built(answer.seconds, answer.kernels, signs_of(answer.signs))

    def call(self, inputs: Sequence[Arguments], *, watch: bool = False, again: bool = False) -> Reply:
        request = request_of(inputs, self.device)
        if again and (self.last is None or self.last.message != request.message):
            raise ValueError("`again` needs arguments of the same forms as the last request's")
        self.last = request
        forms = {} if again else request.message
        nonce, done, wall_ns = self.ask(forms, {"kind": "call", "watch": watch}, request, self.limit_s())
        self.called = True
        values = self.snapshot(done.size)
        answer = self.next_answer(CallsAnswer, nonce)
        if len(answer.calls) != len(inputs):
            raise self.process.over("forged", "it answered for another number of calls")
        outputs, changed = self.outputs_in(values, answer), self.changed(request)
        calls = []
        for answered, args in zip(answer.calls, inputs, strict=True):
            seen = tuple(Seen(**dict(one)) for one in answered.seen)
            mutated = tuple(place for place, arg in enumerate(args) if isinstance(arg, Tensor) and next(changed))
            taken = tuple(next(outputs) if one.kind == TENSOR else torch.empty(0) for one in seen)
            calls.append(Call(taken, seen, answered.error, mutated, signs_of(answered.signs)))
        signs = signs_of(answer.signs)
        if watch and (left := self.process.left_running()):
            signs += (Sign("threads", f"{left} processes that it started still run"),)
        return Reply(
            tuple(calls), wall_ns, done.testimony_ns, signs, answer.kernels, answer.launches, answer.peak_bytes
        )

    def echo(self, inputs: Sequence[Arguments], outputs: Sequence[Sequence[Tensor]]) -> int:
        request = request_of(inputs, self.device)
        self.last = None
        forms = [[list(one.shape), arena.name_of(one.dtype)] for row in outputs for one in row]
        prepared = {"outputs": forms, **request.message}
        _, done, wall_ns = self.ask(prepared, {"kind": "echo"}, request, self.process.limits.wall_s)
        return wall_ns - done.testimony_ns  # in which it made tensors to send, as a candidate's calls do

    # --- asking

    def limit_s(self) -> float:
        """The first call may compile."""
        limits = self.process.limits
        return limits.wall_s if self.called else max(limits.wall_s, limits.build_s)

    def ask(
        self, forms: dict[str, Any], message: dict[str, Any], request: Request, limit_s: float
    ) -> tuple[str, DoneAnswer, int]:
        """The nonce, the answer that the outputs are there, and the ns that it took.

        The clock runs before the child can see any of the inputs, and stops when all outputs have to be there. What the
        tensors are (`forms`; empty: those of the last request) the child is told before it.
        """
        self.prepare(forms, request)
        nonce = secrets.token_hex(NONCE_BYTES)
        data = wire.encode({"nonce": nonce, **message})
        with no_collection():
            start = clock()
            self.write(request)
            self.process.send(data, [], limit_s)
            text, received = self.process.receive()
            wall_ns = clock() - start
        try:
            done = self.parsed(text, DoneAnswer, nonce)
        except Ended:
            close(received)
            raise
        self.attach_outputs(done.arena, received)
        if done.size > (0 if self.outputs is None else len(self.outputs.data)):
            raise self.process.over("forged", "its outputs lie outside the memory for outputs")
        return nonce, done, wall_ns

    def prepare(self, forms: dict[str, Any], request: Request) -> None:
        self.process.get_ready()
        if not forms:
            return
        fds = self.room_for(request)
        nonce = secrets.token_hex(NONCE_BYTES)
        size = len(self.inputs.data) if self.inputs is not None and fds else 0
        message = {"nonce": nonce, "kind": "prepare", "arena": size, **forms}
        self.process.send(wire.encode(message), fds, self.process.limits.wall_s)
        self.next_answer(Answer, nonce)

    def next_answer(self, kind: type[R], nonce: str) -> R:
        text, received = self.process.receive()
        close(received)
        return self.parsed(text, kind, nonce)

    def parsed(self, text: bytes, kind: type[R], nonce: str) -> R:
        """The answer in a message. Raises Ended where it is none, or says that the worker ends."""
        try:
            answer = kind.model_validate_json(text)
        except (ValidationError, RecursionError):
            raise self.process.over("forged", "an answer is not what an answer can be") from None
        if answer.nonce != nonce:
            raise self.process.over("forged", "an answer does not carry the nonce of its request")
        if answer.failed is not None:
            raise self.process.over(*answer.failed)
        return answer

    def room_for(self, request: Request) -> list[int]:
        """The descriptor of memory for the inputs, where it is new.

        What a GPU gives beyond what was asked for is not used: who asks for far more than before lies elsewhere.
        """
        if self.inputs is not None and self.room >= len(request.data):
            return []
        self.room = arena.with_room(len(request.data))
        self.inputs = arena.make(self.room, self.device)
        return [self.inputs.fd]

    def write(self, request: Request) -> None:
        assert self.inputs is not None
        self.inputs.data[: len(request.data)].copy_(request.data)
        self.clock.flush()  # of the inputs, too, nothing is left in the cache
        self.clock.idle()

    def attach_outputs(self, size: int, fds: list[int]) -> None:
        if not fds and not size:
            return
        if len(fds) != 1:
            close(fds)
            raise self.process.over("forged", f"for its outputs it sent {len(fds)} descriptors")
        most = self.process.limits.memory_bytes
        if self.device == "cpu" and size > most:
            close(fds)
            detail = f"its outputs take {size >> 20} MiB of memory; {most >> 20} MiB are allowed"
            raise self.process.over("memory-limit", detail)
        try:
            self.outputs = arena.attach(fds[0], size, self.device)
        except ValueError as error:
            raise self.process.over("forged", f"for its outputs it sent {error}") from None

    # --- outputs

    def snapshot(self, size: int) -> Tensor:
        """A copy of the first `size` bytes of the outputs, which the child cannot reach."""
        if self.outputs is None:
            return torch.empty(0, dtype=torch.uint8)
        copy = self.outputs.data[:size].clone()
        self.clock.idle()
        return copy

    def outputs_in(self, values: Tensor, answer: CallsAnswer) -> Iterator[Tensor]:
        """The outputs of all calls, within the copy of their bytes."""
        seen = [one for call in answer.calls for one in call.seen if one.kind == TENSOR]
        if len(seen) != len(answer.starts):
            raise self.process.over("forged", "it sent another number of outputs than it describes")
        found = []
        for start, one in zip(answer.starts, seen, strict=True):
            dtype = arena.DTYPES.get(one.dtype)
            end = start + math.prod(one.shape) * (dtype.itemsize if dtype else 0)
            if dtype is None or start % arena.APART or end > len(values):
                raise self.process.over("forged", "an output is not where it is said to be")
            try:
                found.append(values[start:end].view(dtype).view(one.shape))
            except RuntimeError:  # no elements, and sizes without end
                raise self.process.over("forged", "an output has a shape that no tensor has") from None
        return iter(found)

    def changed(self, request: Request) -> Iterator[bool]:
        """For each tensor of a request, whether its bytes, or those behind them, are no longer what was written."""
        if not request.places:
            return iter(())
        assert self.inputs is not None
        now = self.inputs.data[: len(request.data)]
        if torch.equal(now, request.data):
            return iter([False] * len(request.places))
        starts = [place.start for place in request.places]
        spans = list(zip([0, *starts[1:]], [*starts[1:], len(request.data)], strict=True))
        return iter([not torch.equal(now[a:b], request.data[a:b]) for a, b in spans])


def signs_of(pairs: Sequence[tuple[Detector, str]]) -> tuple[Sign, ...]:
    return tuple(Sign(detector, detail) for detector, detail in pairs)


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's garbage is not collected inside, which may take longer than what is timed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
