"""Numbers among tensors: a kernel in Python gets the 2.0 of `x * 2.0` as such, and one of torch's takes a tensor."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qrprof.kernels.elsewhere import elsewhere
from qrprof.kernels.swappable import overload

Call = Callable[..., Any]  # (keyset, *arguments of the op)
KNOWN = 4096  # numbers whose tensor is remembered


def with_numbers(op: str, call: Call) -> Call:
    """`call`, which takes tensors, for an op of aten whose tensors may come as numbers."""
    arguments = enumerate(overload(op)._schema.arguments)
    places = [i for i, one in arguments if str(one.type) in ("Tensor", "Optional[Tensor]")]

    def called(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = [i for i in places if i < len(args) and isinstance(args[i], int | float | complex)]
        if numbers:
            args = tuple(tensor_of(one) if i in numbers else one for i, one in enumerate(args))
        return call(keyset, *args, **kwargs)

    return called


def tensor_of(number: complex) -> Tensor:
    """As torch makes it of a number: unlike others it does not decide on the dtype of a result."""
    return kept(number, repr(number))  # -0.0 is equal to 0.0


@functools.lru_cache(KNOWN, typed=True)
def kept(number: complex, text: str) -> Tensor:
    """Nothing in Python makes one, but autograd keeps it; it does so in a thread where it is not off."""

    def saved() -> Tensor:
        product = torch.ones((), device="meta", requires_grad=True) * number
        found: Tensor = product.grad_fn._saved_other  # type: ignore[union-attr]
        return found

    return elsewhere(saved)
