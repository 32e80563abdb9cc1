"""aten's ops as tasks: which can be judged, the stock op with a candidate's arguments, and its float64 reference.

A candidate takes all of the op's arguments by position, in the order of the schema; a dtype crosses by its name.
"""

import functools
import keyword
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from qrprof.kernels.swappable import Refusal, Swappable, overload, swappable
from qrprof.planner.gate.records import Plain
from qrprof.profiler.errors import Exit, QrprofError

MATRICES: Final = frozenset({"geqrf", "linalg_qr"})  # the checker "qr" knows them
UNCHECKED: Final = {  # several answers are right, and no checker knows which
    **dict.fromkeys(("_linalg_eigh", "linalg_eig", "_linalg_svd"), "has vectors that are unique up to signs only"),
    **dict.fromkeys(
        ("linalg_lu", "linalg_lu_factor_ex", "linalg_ldl_factor_ex", "linalg_lstsq", "sort", "topk"),
        "has several right answers",
    ),
    **dict.fromkeys(("empty_like", "new_empty", "empty_strided"), "computes nothing"),
}
WRITES: Final = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})  # the schema does not say so
DTYPE, LIST_KINDS = "ScalarType", ("List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Tensor]]")
BINDINGS: Final = ("_VariableFunctions", "_nn", "_linalg", "_special", "_fft")  # of torch._C
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")


def judged(op: str) -> tuple[str, ...]:
    """The overloads of `op` ("aten::_softmax", "sum", "sum.dim_IntList") that a candidate can be judged on.

    Raises QrprofError (exit code 2) where there is none, with the op to take in its place if that is known.
    """
    name = op.removeprefix("aten::").removesuffix(".default")
    asked = (name,) if "." in name else overloads(name)
    found = [(one, swappable(one)) for one in asked or (name,)]
    fit = [one for one, answer in found if isinstance(answer, Swappable) and answer.op == one]
    if fit:
        reasons = [reason for one in fit if (reason := unjudged(one))]
        if len(reasons) < len(fit):
            return tuple(one for one in fit if not unjudged(one))
        raise QrprofError(f"no task for aten::{fit[0]}: it {reasons[0]}", Exit.USAGE)
    first, answer = found[0]
    if isinstance(answer, Refusal):
        above = "" if answer.op == first else f", of which aten::{first} is composed"
        raise QrprofError(f"no task for aten::{answer.op}{above}: {answer.why.removesuffix('.')}", Exit.USAGE)
    raise QrprofError(
        f"no task for aten::{first}: it is composed of other ops, and swapping it would sever its backward; take one"
        f" that it runs, as `--op aten::{answer.op}`",
        Exit.USAGE,
    )


def unjudged(name: str) -> str:
    """Why results of a swappable op cannot be judged; "" where they can."""
    packet, schema = name.partition(".")[0], schema_of(name)
    if packet in UNCHECKED:
        return UNCHECKED[packet]
    if packet in WRITES:
        return "writes to its running statistics"
    if any(str(value.type) != "Tensor" for value in schema.returns) or not schema.returns:
        return "returns something other than tensors"
    lists = [argument.name for argument in schema.arguments if str(argument.type) in LIST_KINDS]
    return f"takes a list of tensors ({lists[0]}), which the gate cannot hand over" if lists else ""


def overloads(packet: str) -> tuple[str, ...]:
    """The names of an op's overloads in the dispatcher that write to no argument, the default one first."""
    found = getattr(torch.ops.aten, packet, None)
    names = [] if found is None else [packet if one == "default" else f"{packet}.{one}" for one in found.overloads()]
    kept = [one for one in names if in_dispatcher(one) and not any(a.is_out for a in schema_of(one).arguments)]
    return tuple(sorted(kept, key=lambda one: "." in one))


def in_dispatcher(name: str) -> bool:
    """TorchScript has overloads of its own beside the dispatcher's."""
    packet, _, which = name.partition(".")
    return bool(torch._C._dispatch_has_kernel(f"aten::{packet}.{which}" if which else f"aten::{packet}"))


def schema_of(name: str) -> Any:
    return overload(name)._schema


def call(op: str, args: Sequence[Tensor | Plain]) -> tuple[Tensor, ...]:
    """The stock op's outputs. `args` are a candidate's. Raises what torch raises."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument, value in zip(schema_of(op).arguments, args, strict=True):
        given = getattr(torch, value) if DTYPE in str(argument.real_type) and isinstance(value, str) else value
        if argument.kwarg_only:
            named[argument.name] = given
        else:
            positional.append(given)
    with torch.no_grad():
        result = overload(op)(*positional, **named)
    outputs = (result,) if isinstance(result, Tensor) else tuple(result)
    if not all(isinstance(one, Tensor) for one in outputs):
        raise TypeError(f"aten::{op} leaves out an output with these arguments")
    return outputs


def reference(op: str, args: Sequence[Tensor | Plain]) -> tuple[Tensor, ...]:
    """The same in float64: of the stock op on the inputs as float64.

    Raises QrprofError (exit code 2) where torch has no such form of the op, or no memory for it.
    """
    try:
        return call(op, [wide(argument, value) for argument, value in zip(schema_of(op).arguments, args, strict=True)])
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise QrprofError(
            f"aten::{op} cannot be judged: of its form in float64 torch says {reason!r}", Exit.USAGE
        ) from None


def wide(argument: Any, value: Tensor | Plain) -> Tensor | Plain:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if DTYPE in str(argument.real_type) and value in FLOATS:
        return "float64"
    return False if argument.name == "half_to_float" else value


def signature(op: str) -> tuple[str, ...]:
    """The names of a candidate's arguments."""
    return tuple(
        f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name
        for argument in schema_of(op).arguments
    )


@functools.cache
def stock_source(op: str) -> str:
    """The file of a candidate that is the stock op itself, for the other leg of a comparison."""
    names = signature(op)
    given = [
        f"{argument.name}={value}" if argument.kwarg_only else value
        for argument, name in zip(schema_of(op).arguments, names, strict=True)
        for value in [f"{name} and getattr(torch, {name})" if DTYPE in str(argument.real_type) else name]
    ]
    return (
        f'"""The stock kernel of aten::{op}."""\n\nimport torch\n\nstock = {binding(op)}\n\n\n'
        f"def candidate({', '.join(names)}):\n    return stock({', '.join(given)})\n"
    )


def binding(op: str) -> str:
    """Where Python finds an op: torch's own binding where there is one, since its `ops` take a microsecond more."""
    packet, _, which = op.partition(".")
    spaces = [name for name in BINDINGS if hasattr(getattr(torch._C, name), packet)]
    if spaces and not which:
        return f"torch._C.{spaces[0]}.{packet}"
    return f"torch.ops.aten.{packet}.{which or 'default'}"
