"""The stock kernel of a linalg op, called so that other Python threads run meanwhile.

`call_boxed` of a kernel that `torch.library.get_kernel` gives holds the GIL until the kernel returns. The out= form of
most of these ops computes by itself: it reaches the stock kernel below an override of the op, and is called as any op
is, without the GIL. It is an op of its own to a profiler, so while one of the program's runs `call_boxed` has to do.
(torch does not tell of a profiler that watches all threads, as the recorder's does: its traces hold both, the op around
its out= form, and the outermost one is the call.)
"""

from collections.abc import Callable
from typing import Any

SAME, REAL, COMPLEX, INT = "same", "real", "complex", "int32"
# The dtypes of the results. Not of linalg_matrix_exp, whose out= form calls the op itself.
RESULTS = {
    "linalg_qr": (SAME, SAME),
    "geqrf": (SAME, SAME),
    "linalg_householder_product": (SAME,),
    "ormqr": (SAME,),
    "_linalg_eigh": (REAL, SAME),
    "linalg_eig": (COMPLEX, COMPLEX),
    "_linalg_svd": (SAME, REAL, SAME),
    "linalg_cholesky_ex": (SAME, INT),
    "cholesky_inverse": (SAME,),
    "linalg_inv_ex": (SAME, INT),
    "_linalg_solve_ex": (SAME, SAME, INT, INT),
    "linalg_solve_triangular": (SAME,),
    "linalg_lu_factor_ex": (SAME, INT, INT),
    "linalg_ldl_factor_ex": (SAME, INT, INT),
}
SMALL = 4096  # elements of a matrix whose kernel takes microseconds
Call = Callable[..., Any]  # (keyset, *arguments of the op)


def stock_call(op: str, kernel: Any) -> Call:
    """What calls `kernel`, the stock one of `op` ("linalg_qr"); results and errors are the op's own."""
    import torch

    out = out_form(op)
    call_boxed: Call = kernel.call_boxed
    if out is None:
        return call_boxed
    names = [argument.name for argument in out._schema.arguments if argument.is_out]

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        matrix = args[0]
        if matrix.numel() <= SMALL or torch._C._autograd._profiler_enabled():
            return call_boxed(keyset, *args, **kwargs)
        with torch.no_grad():
            dtypes = [dtype_of(kind, matrix.dtype) for kind in RESULTS[op]]
            empty = [torch.empty(0, dtype=dtype, device=matrix.device) for dtype in dtypes]
            return out(*args, **kwargs, **dict(zip(names, empty, strict=True)))

    return call


def out_form(op: str) -> Any:
    """The overload of `op` that writes its results to what it is given; None where that is of no use here."""
    import torch

    if op not in RESULTS:  # which all have a packet by their name; an overload's has a dot
        return None
    packet = getattr(torch.ops.aten, op)
    overloads = [getattr(packet, name) for name in packet.overloads()]
    results = len(RESULTS[op])
    fitting = [one for one in overloads if sum(argument.is_out for argument in one._schema.arguments) == results]
    return fitting[0] if fitting else None


def dtype_of(kind: str, dtype: Any) -> Any:
    import torch

    if kind in (REAL, COMPLEX):
        return dtype.to_real() if kind == REAL else dtype.to_complex()
    return torch.int32 if kind == INT else dtype
