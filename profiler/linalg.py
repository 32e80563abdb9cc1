"""Which ops are linalg drivers, and how a trace's rows are matched with the recorder's linalg calls.

A driver (a factorisation or a solve, as LAPACK has them) is one replaceable thing: the copies and
triangular masks that run inside it go when it is replaced.
"""

import json
from collections import defaultdict
from collections.abc import Sequence

from qrprof.profiler.runinfo import LinalgCall

_NAMES = """
    linalg_qr geqrf orgqr ormqr linalg_householder_product qr
    linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_svd linalg_svdvals svd
    linalg_cholesky linalg_cholesky_ex cholesky cholesky_solve cholesky_inverse
    linalg_inv linalg_inv_ex inverse linalg_det linalg_slogdet
    linalg_solve linalg_solve_ex linalg_solve_triangular triangular_solve linalg_lstsq
    linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve lu_solve
    linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_matrix_exp
    _linalg_eigh _linalg_svd _linalg_solve_ex _linalg_det _linalg_slogdet _linalg_eigvals
"""
LINALG_DRIVERS = frozenset(f"aten::{name}" for name in _NAMES.split())

# Composites under another name than the driver they call, which is the one the recorder counts.
_CALLS = {
    "qr": "linalg_qr",
    "orgqr": "linalg_householder_product",
    "linalg_eigvalsh": "linalg_eigh",
    "linalg_eigvals": "linalg_eig",
    "linalg_svdvals": "linalg_svd",
    "svd": "linalg_svd",
    "inverse": "linalg_inv",
}

# Kineto names element types as C++ does.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}

Signature = tuple[str, tuple[int, ...], str]  # op, shape of the first input, dtype of the first input


def row_signature(op: str, shapes: str, dtypes: str) -> Signature | None:
    """Of a trace's row; None where shapes were not recorded."""
    inputs = json.loads(shapes) if shapes else []
    first = inputs[0] if inputs else None
    if not isinstance(first, list) or not all(isinstance(size, int) for size in first):
        return None
    return _spelling(op), tuple(first), _dtype(dtypes.split(",")[0])


def by_signature(calls: Sequence[LinalgCall]) -> dict[Signature, list[LinalgCall]]:
    """The recorder's calls by what `row_signature` gives for their rows."""
    found: dict[Signature, list[LinalgCall]] = defaultdict(list)
    for call in calls:
        found[_spelling(call.op), tuple(call.shape), _dtype(call.dtype)].append(call)
    return dict(found)


def _spelling(op: str) -> str:
    """One name for the spellings of a driver: linalg_inv runs as linalg_inv_ex, linalg_svd as _linalg_svd."""
    name = op.removeprefix("aten::").removeprefix("_").removesuffix("_ex")
    return _CALLS.get(name, name)


def _dtype(name: str) -> str:
    return _DTYPES.get(name.strip(), name.strip().removeprefix("torch."))
