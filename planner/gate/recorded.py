"""A recorded call of an op as a case: its arguments matched with the schema of the overload that it must have been."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from qrprof.planner.gate.aten_task import DTYPE, schema_of
from qrprof.planner.gate.draw import REFLECTORS, can_hold, definite
from qrprof.planner.gate.inputs import Inputs
from qrprof.planner.gate.records import ArgSpec, Plain, TaskCase

DTYPES: Final = {  # Kineto names element types as C++ does
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
SCALARS: Final = {
    "1": "int8",
    "2": "int16",
    "3": "int32",
    "4": "int64",
    "5": "float16",
    "6": "float32",
    "7": "float64",
    "15": "bfloat16",
}
OPAQUE: Final = ("Layout", "Device", "MemoryFormat", "Generator")
STRUCTURES: Final = {
    "linalg_cholesky_ex": definite.__name__,
    "linalg_householder_product": REFLECTORS,
    "ormqr": REFLECTORS,
}
Shapes = Mapping[str, tuple[int, ...]]
Values = Mapping[str, Any]
# What bounds the integers of an argument that are places in another one.
INDEXED: Final[Mapping[tuple[str, str], Callable[[Shapes, Values], int]]] = MappingProxyType(
    {
        ("index_select", "index"): lambda shapes, values: shapes["self"][values["dim"]],
        ("gather", "index"): lambda shapes, values: shapes["self"][values["dim"]],
        ("embedding_dense_backward", "indices"): lambda shapes, values: values["num_weights"],
        ("nll_loss_forward", "target"): lambda shapes, values: shapes["self"][-1],
        ("nll_loss_backward", "target"): lambda shapes, values: shapes["self"][-1],
    }
)
PLACES: Final = ("index", "indices", "target", "offsets", "pivots")


class Unfit(Exception):
    """Why a recorded call makes no case: "has complex numbers"."""


@dataclass(frozen=True)
class Made:
    case: TaskCase
    assumed: tuple[str, ...]  # arguments whose value is not in the trace: "approximate='none'"


def fits(op: str, inputs: Inputs) -> bool:
    """Whether a call with these inputs may have been one of `op`'s overload."""
    arguments = schema_of(op).arguments
    return len(arguments) == len(inputs.types) and all(
        may_be(str(argument.real_type), kind) for argument, kind in zip(arguments, inputs.types, strict=True)
    )


def may_be(wanted: str, kind: str) -> bool:
    optional = wanted.startswith("Optional[")
    inner = wanted.removeprefix("Optional[").removesuffix("]") if optional else wanted
    if inner == "Tensor":
        return kind not in ("Scalar", "ScalarList", "TensorList") and (optional or kind != "")
    if inner.startswith("List["):
        return kind == "ScalarList" or (optional and kind == "")
    return kind in ("Scalar", "") if optional or inner in ("str", *OPAQUE) else kind == "Scalar"


def made(op: str, inputs: Inputs) -> Made:
    """The case of a call that fits `op`; weight 1, named after its shapes and what is not usual. Raises Unfit."""
    packet = op.partition(".")[0]
    dims, strides = json.loads(inputs.shapes), json.loads(inputs.strides)
    specs: dict[str, ArgSpec] = {}
    plain: dict[str, Plain] = {}
    assumed, layout = [], ""
    for argument, kind, dim, stride, text in zip(
        schema_of(op).arguments, inputs.types, dims, strides, inputs.values, strict=True
    ):
        if "Tensor" in str(argument.real_type) and kind:
            specs[argument.name] = spec(kind, dim, stride)
            layout += "t"
            continue
        layout += "p"
        plain[argument.name] = value(argument, text)
        if not text and "str" in str(argument.real_type):
            assumed.append(f"{argument.name}={plain[argument.name]!r}")
    if not any(one.elements for one in specs.values()):
        raise Unfit("is given no numbers")
    bounded = with_bounds(packet, specs, plain)
    usual = "p" not in layout.rstrip("p")
    case = TaskCase(
        name=named(bounded, plain, op),
        weight=1.0,
        tensors=tuple(bounded.values()),
        plain=tuple(plain.values()),
        layout="" if usual else layout,
        structure=STRUCTURES.get(packet),
    )
    return Made(case, tuple(assumed))


def spec(kind: str, dim: Any, stride: Any) -> ArgSpec:
    """Of one tensor; contiguous where its strides were not recorded."""
    if kind not in DTYPES:
        raise Unfit(f"takes tensors of {kind or 'no known type'}")
    if not are_sizes(dim) or not are_sizes(stride):
        raise Unfit("has shapes or strides that are no sizes")
    shape = tuple(dim)
    steps = tuple(stride) if len(stride) == len(shape) else None
    if steps == contiguous(shape) or math.prod(shape) == 0:
        steps = None
    if steps is not None and not can_hold(shape, steps):
        raise Unfit("takes a tensor whose numbers overlap in memory")
    return ArgSpec(shape, DTYPES[kind], steps)


def are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


def value(argument: Any, text: str) -> Plain:
    """The plain value of an argument from its recorded text; what is not recorded has its default."""
    wanted = str(argument.real_type)
    if not text:
        if not argument.has_default_value() and not wanted.startswith("Optional["):
            raise Unfit(f"is given a {argument.name} that is not recorded")
        default = argument.default_value if argument.has_default_value() else None
        return tuple(default) if isinstance(default, list) else default
    if any(kind in wanted for kind in OPAQUE):
        raise Unfit(f"is given a {argument.name}, which cannot be handed over")
    if DTYPE in wanted:
        if text not in SCALARS:
            raise Unfit(f"is given {argument.name} {text}, a type that is not known")
        return SCALARS[text]
    if "List[" in wanted:
        return tuple(number(one.strip(), wanted) for one in text.strip("[]").split(",") if one.strip())
    return number(text, wanted)


def number(text: str, wanted: str) -> bool | int | float:
    """An integer, a float or a truth, as it was recorded."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text) if "float" in wanted else int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise Unfit(f"is given {text}, which is no number") from None


def with_bounds(packet: str, specs: Mapping[str, ArgSpec], plain: Values) -> dict[str, ArgSpec]:
    """The tensors, those of places with what bounds them."""
    shapes = {name: one.shape for name, one in specs.items()}
    found = {}
    for name, one in specs.items():
        below = None
        if one.dtype.startswith("int"):
            if (packet, name) in INDEXED:
                below = bound(INDEXED[packet, name], shapes, plain)
            elif name in PLACES:
                raise Unfit(f"takes places ({name}) whose bounds are not known")
        found[name] = ArgSpec(one.shape, one.dtype, one.stride, below)
    return found


def bound(rule: Callable[[Shapes, Values], int], shapes: Shapes, plain: Values) -> int:
    try:
        return rule(shapes, plain)
    except (IndexError, KeyError, TypeError):
        raise Unfit("takes places in what its inputs do not have") from None


def named(specs: Mapping[str, ArgSpec], plain: Values, op: str) -> str:
    """ "64x257 dim=1": shapes, dtypes other than float32, and values other than the defaults."""
    defaults = {a.name: a.default_value for a in schema_of(op).arguments if a.has_default_value()}
    shapes = ["x".join(map(str, one.shape)) or "scalar" for one in specs.values()]
    dtypes = sorted({one.dtype for one in specs.values()} - {"float32"})
    values = [f"{name}={shown(x)}" for name, x in plain.items() if telling(x, defaults.get(name))]
    strided = ["strided"] if any(one.stride for one in specs.values()) else []
    return " ".join([*shapes, *dtypes, *values, *strided])


def telling(value: Plain, default: Any) -> bool:
    return value is not None and value is not False and value != () and value != default


def shown(value: Plain) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
