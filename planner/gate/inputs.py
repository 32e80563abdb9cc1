"""What an op was called with, as its trace recorded it: shapes, strides, dtypes and the plain values."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.linalg import LINALG_DRIVERS
from qrprof.profiler.readers.chrome import Found, event_batches
from qrprof.profiler.readers.kineto import dtypes, shapes


@dataclass(frozen=True)
class Inputs:
    """The inputs of one kind of call. `shapes` and `dtypes` are the texts of the partition's rows; the other two hold
    an entry an argument: strides in elements as JSON, and the text of a plain value ("" for what was not recorded).
    """

    shapes: str
    dtypes: str
    strides: str
    values: tuple[str, ...]

    @property
    def types(self) -> list[str]:
        """The recorded type of each argument: "float", "Scalar", "" (None, or a kind that is not recorded)."""
        return self.dtypes.split(",")


@dataclass(frozen=True)
class Call:
    thread: str
    start: float
    end: float
    inputs: Inputs | None


def recorded_inputs(trace: Path, op: str) -> Counter[Inputs]:
    """The kinds of calls of `op` ("aten::mm") in a file of torch.profiler, and how often each occurs.

    Raises QrprofError where the file cannot be read, or (exit code 2) holds no call with its inputs.
    """
    calls = (call for batch in event_batches(trace, Found()) for event in batch if (call := call_of(event, op)))
    found = Counter(call.inputs for call in that_own_their_time(calls, op) if call.inputs)
    if not found:
        raise QrprofError(
            f"{trace} has no call of {op} with its shapes, strides and values; record the program with `qrprof trace`,"
            " or with torch.profiler and record_shapes=True",
            Exit.USAGE,
        )
    return found


def call_of(event: object, op: str) -> Call | None:
    if type(event) is not dict or event.get("name") != op:
        return None
    try:
        start, length = float(event.get("ts", 0)), float(event.get("dur", 0))
    except (TypeError, ValueError):  # of a file by other hands: it is a call all the same
        start, length = 0.0, -1.0
    return Call(f"{event.get('pid')} {event.get('tid')}", start, start + length, inputs_of(event))


def that_own_their_time(calls: Iterable[Call], op: str) -> Iterator[Call]:
    """Of calls within one another (an overload calls the op by another overload, under the same name) the one that the
    partition gives their time: the outermost of a linalg driver, else the innermost.
    """
    ordered = sorted(calls, key=lambda call: (call.thread, call.start, -call.end))
    if op not in LINALG_DRIVERS:
        for call, after in zip(ordered, [*ordered[1:], None], strict=True):
            if not (after and within(after, call)):
                yield call
        return
    outer = None
    for call in ordered:
        if not (outer and within(call, outer)):
            outer = call
            yield call


def within(inner: Call, outer: Call) -> bool:
    return inner.thread == outer.thread and inner.start < outer.end >= inner.end


def inputs_of(event: Mapping[str, Any]) -> Inputs | None:
    """None where the event does not hold them, an entry an argument."""
    args = event.get("args")
    if type(args) is not dict or not {"Input Dims", "Input type", "Concrete Inputs"} <= args.keys():
        return None
    dims, types, values = args["Input Dims"], args["Input type"], args["Concrete Inputs"]
    strides = args.get("Input Strides") or [[]] * len(types)
    if not all(type(one) is list and len(one) == len(types) for one in (dims, types, values, strides)):
        return None
    return Inputs(shapes(dims).decode(), dtypes(types), orjson.dumps(strides).decode(), tuple(map(str, values)))
