"""The process of one candidate: imports it, calls it on what the gate sends, and tells what came out.

Candidate code runs in here and can change any of it. So what it says of itself is testimony; the gate judges by the
bytes in the outputs' memory and by its own clock.
"""

import gc
import importlib.util
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from qrprof.planner.gate import faults, outputs, wire
from qrprof.planner.gate.arena import DTYPES, Arena, Place, attach, lay_out_dense, make, store, tensor_at, with_room
from qrprof.planner.gate.outputs import Answer
from qrprof.planner.gate.poison import poison
from qrprof.planner.gate.state import changes, functions, patches, state
from qrprof.planner.gate.witness import ALLOWED, NAME, Witness

Message = dict[str, Any]
Replies = Iterator[tuple[Message, list[int]]]  # and the descriptors that go with each
clock = time.perf_counter_ns


def main() -> NoReturn:
    settings = json.loads(sys.argv[1])
    channel = socket.socket(fileno=settings["channel"])
    child = Child(settings["device"], Path(settings["source"]), settings["folder"], settings["included"])
    child.get_ready()
    if settings["device"] == "cpu":  # CUDA reserves far more addresses than it takes memory
        limit_addresses(settings["memory_bytes"])
    limit_tasks(settings["tasks"])
    try:
        wire.send(channel, {"ready": True})
        while True:
            text, fds = wire.receive(channel)
            message = json.loads(text)
            for reply, sent in child.answers(message, fds):
                wire.send(channel, {"nonce": message["nonce"], **reply}, sent)
    except wire.Closed:
        os._exit(0)


def limit_addresses(more: int) -> None:
    """No more than `more` bytes of address space beyond what is taken now."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


def limit_tasks(more: int) -> None:
    """No more than `more` tasks beyond those that this user has now; the kernel does not hold root to it."""
    mine = [folder for folder in Path("/proc").glob("[0-9]*") if owner(folder) == os.getuid()]
    taken = sum(len(list(folder.glob("task/*"))) for folder in mine)
    resource.setrlimit(resource.RLIMIT_NPROC, (taken + more, taken + more))


def owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


class Child:
    def __init__(self, device: str, source: Path, folder: str, included: bool) -> None:
        self.device = device
        self.source = source
        self.included = included
        self.witness = Witness(folder, ALLOWED | {"qrprof"} if included else ALLOWED)
        self.functions = functions()
        self.candidate: Callable[..., Any] | None = None
        self.inputs: Arena | None = None
        self.outputs: Arena | None = None
        self.lists: list[list[Any]] = []  # the arguments of the last request
        self.forms: list[Any] = []  # of the outputs that an echo has
        self.sizes: list[int] = []  # bytes, of the outputs of the last watched call

    def get_ready(self) -> None:
        """What the first use of a device or of threads costs is not the candidate's."""
        a = torch.ones(256, 256, device=self.device)
        torch.linalg.qr(a @ a)
        torch.ones(1 << 20, device=self.device).exp().sum().item()
        if self.included and self.device == "cpu":
            from qrprof.kernels.qr.cpu import start_helpers  # which other candidates shall not find

            start_helpers()
        gc.collect()
        gc.freeze()  # else a collection goes through all of torch, for 0.1 s, in the middle of a call

    def answers(self, message: Message, fds: list[int]) -> Replies:
        kinds = {"build": self.build, "prepare": self.prepare, "call": self.call, "echo": self.echo}
        try:
            if fds:
                self.inputs = attach(fds[0], message["arena"], self.device)
            yield from kinds[message["kind"]](message)
        except (OSError, MemoryError, RuntimeError) as error:
            reason = faults.reason(error)
            if reason is None:
                raise
            yield {"failed": [reason, faults.line(error, self.source)]}, []

    # --- build

    def build(self, message: Message) -> Replies:
        before = state(self.device)
        start = clock()
        try:
            with self.witness.listening():
                module = self.load()
            candidate, kernels = module.candidate, tuple(map(str, getattr(module, "KERNELS", ())))
            if not callable(candidate):
                raise TypeError("`candidate` is not a function")
        except BaseException as error:  # noqa: BLE001 - here candidate code ends
            yield {"failed": [faults.reason(error) or "build-error", faults.line(error, self.source)]}, []
            return
        self.candidate = candidate
        yield {"seconds": (clock() - start) / 1e9, "kernels": kernels, "signs": self.signs(before)}, []

    def load(self) -> Any:
        spec = importlib.util.spec_from_file_location(NAME, self.source)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.source.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module
        spec.loader.exec_module(module)
        return module

    def signs(self, before: Any) -> list[list[str]]:
        found = [*self.witness.taken(), *changes(before, state(self.device)), *patches(self.functions, functions())]
        return [[sign.detector, sign.detail] for sign in found]

    # --- calls

    def call(self, message: Message) -> Replies:
        """First that the outputs are where the gate sees them, which stops its clock; then what they are."""
        lists, extra = self.lists, Message()
        if message["watch"]:
            before = state(self.device)
            with outputs.profiled(self.device) as work:
                answers, took = self.run_watched(lists)
            extra = {"signs": self.signs(before), **outputs.told(answers, work)}
        else:
            answers, took = self.run(lists)
        for answer in answers:
            if answer.reason is not None:
                yield {"failed": [answer.reason, answer.error]}, []
                return
        starts, taken, fds = self.take([tensor for answer in answers for tensor in answer.tensors()])
        yield {**taken, "testimony_ns": took}, fds
        yield {"starts": starts, "calls": outputs.described(answers, lists), **extra}, []

    def prepare(self, message: Message) -> Replies:
        """Tensors where the inputs are going to be written."""
        places = iter([Place(*place) for place in message["places"]])
        self.lists = [[self.argument(text, places) for text in row] for row in message["args"]]
        self.forms = [(shape, DTYPES[dtype]) for shape, dtype in message.get("outputs", ())]
        yield {}, []

    def argument(self, form: Any, places: Any) -> Any:
        if form == "tensor":
            assert self.inputs is not None
            return tensor_at(self.inputs, next(places))
        return DTYPES[form["dtype"]] if "dtype" in form else plain(form["plain"])

    def run(self, lists: Sequence[Sequence[Any]]) -> tuple[list[Answer], int]:
        start = clock()
        answers = [self.called(args) for args in lists]
        self.synchronize()
        return answers, clock() - start

    def run_watched(self, lists: Sequence[Sequence[Any]]) -> tuple[list[Answer], int]:
        """As `run`, but each call's outputs are copied, and once more after a while, before the next."""
        answers, took = [], 0
        for args in lists:
            filled = poison([*sizes_of(args), *self.sizes], self.device)
            held = outputs.mark_memory(self.device)
            start = clock()
            with self.witness.listening():
                answer = self.called(args)
            answer.peak_bytes, answer.filled = outputs.most_memory(self.device, held), filled
            answer.copy_outputs()
            self.synchronize()
            took += clock() - start
            answer.copy_outputs()
            time.sleep(outputs.LATE_S)
            answer.copy_outputs()
            self.synchronize()
            self.sizes = sizes_of(answer.tensors())
            answers.append(answer)
        return answers, took

    def called(self, args: Sequence[Any]) -> Answer:
        assert self.candidate is not None
        try:
            return Answer(self.candidate(*args))
        except BaseException as error:  # noqa: BLE001 - here candidate code ends
            return Answer(error=faults.line(error, self.source), reason=faults.reason(error))

    def synchronize(self) -> None:
        if self.device == "cuda":
            outputs.synchronize()

    # --- outputs

    def take(self, tensors: Sequence[Tensor]) -> tuple[list[int], Message, list[int]]:
        """Copy tensors into memory that the gate sees: where each begins, how much is taken, and what is new of it."""
        rows = lay_out_dense(tensors)
        size, fds = rows[-1].end if rows else 1, list[int]()
        if self.outputs is None or len(self.outputs.data) < size:
            self.outputs = make(with_room(size), self.device)
            fds = [self.outputs.fd]
        with torch.no_grad():
            store(rows, self.outputs.data, tensors)
        self.synchronize()
        starts = {member: start for row in rows for member, start in row.starts.items()}
        return (
            [starts[member] for member in range(len(tensors))],
            {"size": size, "arena": len(self.outputs.data) if fds else 0},
            fds,
        )

    def echo(self, message: Message) -> Replies:
        start = clock()
        kept = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.forms]
        took = clock() - start
        _, taken, fds = self.take(kept)
        yield {**taken, "testimony_ns": took}, fds


def plain(value: Any) -> Any:
    """Lists come as tuples, as the gate had them."""
    return tuple(map(plain, value)) if isinstance(value, list) else value


def sizes_of(values: Iterable[Any]) -> list[int]:
    """Bytes of the tensors among them."""
    return [value.nbytes for value in values if isinstance(value, Tensor)]
