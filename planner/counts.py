"""Flops and bytes of an op, from its recorded input shapes.

Counts of the factorisations: LAPACK Working Note 41, appendix C; of eigenvalues and singular values: Golub and Van
Loan, Matrix Computations (4th ed.), 8.3 and 8.6. Outputs, strides, padding and masks are not recorded: where they
matter, the count is the most that the shapes usually allow and `least_flops` is the other end.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

BYTES: Final = {
    "float": 4,
    "double": 8,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}


class Tensor(NamedTuple):
    shape: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * BYTES[self.dtype]


@dataclass(frozen=True)
class Work:
    """What one call has to do. `kind` names the class of kernel.

    `columns` is the length of a factorisation's chain of columns that wait for one another, in columns of a QR panel (a
    reduction over the rows and an update each).
    """

    kind: str
    flops: float
    least_flops: float
    bytes: float  # moved: each input and output once
    dtype: str = ""  # of the arithmetic, as in the trace; "" where there is none worth counting
    columns: float = 0.0


# Columns of QR that a column costs: on an H200 cuSOLVER's Cholesky and triangular solves take 0.3 to 0.4 us a column,
# its QR and LU 2 to 4; a reduction to tridiagonal form needs the whole remaining matrix for a column, a bidiagonal one
# needs it twice.
NO_REDUCTION: Final = 0.25
TRIDIAGONAL: Final = 4.0
BIDIAGONAL: Final = 8.0

Arguments = Sequence[Sequence[Tensor]]  # the tensors of each argument; none for numbers, several for a list


def parse(shapes: str, dtypes: str) -> Arguments | None:
    """The recorded inputs; None where they were not recorded or hold a type without a known size.

    The types inside a tensor list are not recorded: float is assumed.
    """
    if not shapes:
        return None
    dims, types = json.loads(shapes), dtypes.split(",")
    lists = [dim for dim, dtype in zip(dims, types, strict=False) if dtype == "TensorList"]
    if len(dims) != len(types) or (lists and not any(lists)):  # some builds record every list as empty
        return None
    arguments: list[list[Tensor]] = []
    for dim, dtype in zip(dims, types, strict=True):
        if dtype == "TensorList":
            arguments.append([Tensor(tuple(shape), "float") for shape in dim])
        elif dtype in BYTES:
            arguments.append([Tensor(tuple(dim), dtype)])
        elif dtype in ("", "Scalar", "ScalarList"):
            arguments.append([])
        else:
            return None
    return arguments


def work(op: str, shapes: str, dtypes: str) -> Work | None:
    """The work of one call of `op` with these inputs (the trace's text, e.g. "[[64,32],[32,8]]", "float,float").

    None where the shapes are unknown or do not fit the op, and where no formula is known and it is not safe to take the
    op for memory-bound: custom ops, autograd nodes, RNNs, other linear algebra.
    """
    name = op.removeprefix("aten::").strip("_").removesuffix("_ex")
    if not op.startswith("aten::"):
        return None
    if name in NO_WORK:
        return Work("none", 0, 0, 0)
    try:
        arguments = parse(shapes, dtypes)
        if arguments is None:
            return None
        if name in FORMULAS:
            return FORMULAS[name](arguments)
        opaque = name not in NO_NEW_OUTPUT and any(word in name for word in OPAQUE)
        return None if opaque else stream(name, arguments)
    except (IndexError, TypeError, ValueError):  # inputs of another form than the formula's
        return None


def flops(op: str, shapes: str, dtypes: str) -> float | None:
    """Flops of one call, a multiply-add being two; None as for `work`."""
    found = work(op, shapes, dtypes)
    return found.flops if found else None


def product(arguments: Arguments, first: int = 0) -> Work:
    """[..., m, k] @ [..., k, n] or @ [k], plus an addend before them where `first` is 1."""
    (a,), (b,) = arguments[first : first + 2]
    n = b.shape[-1] if len(b.shape) > 1 else 1
    count = 2.0 * a.numel * n
    out = math.prod(a.shape[:-1]) * n * BYTES[a.dtype]
    moved = a.bytes + b.bytes + out + sum(size(argument) for argument in arguments[:first])
    return Work("product", count, count, moved, a.dtype)


def convolution(arguments: Arguments) -> Work:
    """Counted with stride 1 and as much output as input; at least with the stride of the kernel's size."""
    (image,), (weight,) = arguments[:2]
    count = 2.0 * image.shape[0] * math.prod(image.shape[2:]) * weight.numel
    out = image.shape[0] * weight.shape[0] * math.prod(image.shape[2:]) * BYTES[image.dtype]
    least = count / math.prod(weight.shape[2:])
    return Work("convolution", count, least, image.bytes + weight.bytes + out, image.dtype)


def convolution_backward(arguments: Arguments) -> Work:
    """Gradients of input and weight, each as much as the forward; at least one of them is asked for."""
    (gradient,), (image,), (weight,) = arguments[:3]
    positions = min(math.prod(gradient.shape[2:]), math.prod(image.shape[2:]))  # the larger one if transposed
    once = 2.0 * image.shape[0] * positions * weight.numel
    moved = gradient.bytes + 2.0 * (image.bytes + weight.bytes)
    return Work("convolution", 2 * once, once, moved, image.dtype)


def attention(arguments: Arguments, heads_first: bool = True) -> Work:
    """Q K^T and P V without a mask."""
    (q,), (k,), (v,) = arguments[:3]
    batch, queries, keys = extents(q, k, heads_first)
    count = 2.0 * batch * queries * keys * (q.shape[3] + v.shape[3])
    out = batch * queries * v.shape[3] * BYTES[v.dtype]
    return Work("attention", count, count, q.bytes + k.bytes + v.bytes + out, q.dtype)


def attention_backward(arguments: Arguments, heads_first: bool = True) -> Work:
    """Q K^T again, then the gradients of V, P, Q and K: five products."""
    (gradient,), (q,), (k,), (v,) = arguments[:4]
    batch, queries, keys = extents(q, k, heads_first)
    count = 2.0 * batch * queries * keys * (3 * q.shape[3] + 2 * v.shape[3])
    moved = 2.0 * (gradient.bytes + q.bytes + k.bytes + v.bytes)
    return Work("attention", count, count, moved, q.dtype)


def extents(q: Tensor, k: Tensor, heads_first: bool) -> tuple[int, int, int]:
    """(batch x heads, queries, keys) of [batch, heads, n, d] or [batch, n, heads, d]."""
    batch, heads, queries, _ = q.shape if heads_first else (q.shape[0], q.shape[2], q.shape[1], q.shape[3])
    return batch * heads, queries, k.shape[2 if heads_first else 1]


def factorisation(
    count: Callable[[int, int], float], kind: str = "factorisation", chain: float = 1.0
) -> Callable[[Arguments], Work]:
    """Work on a batch of matrices, `count(long side, short side)` flops each; a column is `chain` of QR's."""

    def formula(arguments: Arguments) -> Work:
        matrices = arguments[0][0]
        *batch, rows, columns = matrices.shape
        short = min(rows, columns)
        total = math.prod(batch) * count(max(rows, columns), short)
        return Work(kind, total, total, 2.0 * matrices.bytes, matrices.dtype, chain * short)

    return formula


def solve(arguments: Arguments, cubes: float, passes: int, matrix: int = 0, right: int = 1) -> Work:
    """A X = B: `cubes` n^3 flops to factor A with pivots, n for each element of B and each triangular pass."""
    (a,), (b,) = arguments[matrix], arguments[right]
    *batch, n, _ = a.shape
    count = math.prod(batch) * cubes * n**3 + float(passes * n * b.numel)
    chain = passes * NO_REDUCTION + (1.0 if cubes else 0.0)
    return Work("factorisation", count, count, 2.0 * b.bytes + a.bytes, a.dtype, chain * n)


def apply_reflectors(arguments: Arguments) -> Work:
    """Q C or C Q of k reflectors of length m: 4 m n k - 2 n k^2, C being m x n (or n x m)."""
    (reflectors,), _, (c,) = arguments[:3]
    length, k = reflectors.shape[-2:]
    other = c.numel // max(length, 1)
    count = 4.0 * length * other * k - 2.0 * other * k**2
    return Work("factorisation", count, count, reflectors.bytes + 2.0 * c.bytes, c.dtype, k)


def qr(m: int, n: int) -> float:
    return 2 * m * n**2 - 2 / 3 * n**3


def singular_vectors(m: int, n: int) -> float:
    """U, S and V of a thin decomposition: the better of Golub-Reinsch and R-SVD."""
    return min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3)


def lookup(arguments: Arguments) -> Work:
    """Rows of a table by index: the rows are read and written, not the table."""
    table, index = (argument[0] for argument in arguments if argument)
    rows = index.numel * math.prod(table.shape[1:]) * BYTES[table.dtype]
    return Work("memory", 0, 0, 2 * rows + index.bytes)


def stream(name: str, arguments: Arguments) -> Work | None:
    """A memory-bound op: its inputs once, and as much output as its largest input."""
    sizes = [size(argument) for argument in arguments]
    if not any(sizes):
        return None
    moved = sum(sizes)
    if name.startswith("fused_"):
        moved += moved - sizes[1]  # parameters and all state are written back; the gradients (second) are not
    elif name not in NO_NEW_OUTPUT:
        moved += max(sizes)
    return Work("elementwise" if name in ELEMENTWISE else "memory", 0, 0, moved)


def size(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.bytes for tensor in tensors)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names are without "aten::", outer underscores and "_ex": add for add_, softmax for _softmax.
SDPA: Final = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
CONVOLUTIONS: Final = words(
    "convolution convolution_overrideable cudnn_convolution cudnn_convolution_transpose miopen_convolution"
    " mkldnn_convolution thnn_conv2d slow_conv2d_forward slow_conv3d_forward conv_depthwise2d conv_depthwise3d"
)
LU: Final = ("linalg_lu", "linalg_lu_factor", "linalg_det", "linalg_slogdet")
FORMULAS: Final[dict[str, Callable[[Arguments], Work]]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "scaled_mm"), product),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addmm_activation"), partial(product, first=1)),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    "convolution_backward": convolution_backward,
    **{f"scaled_dot_product_{kind}": attention for kind in SDPA},
    **{f"scaled_dot_product_{kind}_backward": attention_backward for kind in SDPA},
    "cudnn_attention_forward": attention,
    "cudnn_attention_backward": attention_backward,
    "flash_attention_forward": partial(attention, heads_first=False),
    "flash_attention_backward": partial(attention_backward, heads_first=False),
    "efficient_attention_forward": partial(attention, heads_first=False),
    "efficient_attention_backward": partial(attention_backward, heads_first=False),
    **dict.fromkeys(("geqrf", "linalg_householder_product", "orgqr"), factorisation(qr)),
    **dict.fromkeys(("linalg_qr", "qr"), factorisation(lambda m, n: 2 * qr(m, n))),  # reduced: factor, then form Q
    "ormqr": apply_reflectors,
    **dict.fromkeys(("linalg_cholesky", "cholesky"), factorisation(lambda m, n: n**3 / 3, chain=NO_REDUCTION)),
    "cholesky_inverse": factorisation(lambda m, n: 2 * n**3 / 3, chain=NO_REDUCTION),
    **dict.fromkeys(LU, factorisation(lambda m, n: m * n**2 - n**3 / 3)),
    **dict.fromkeys(("linalg_inv", "inverse"), factorisation(lambda m, n: 2 * n**3)),
    "linalg_eigh": factorisation(lambda m, n: 9 * n**3, "spectral", TRIDIAGONAL),  # with vectors
    "linalg_eigvalsh": factorisation(lambda m, n: 4 * n**3 / 3, "spectral", TRIDIAGONAL),
    **dict.fromkeys(("linalg_svd", "svd"), factorisation(singular_vectors, "spectral", BIDIAGONAL)),
    "linalg_svdvals": factorisation(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3, "spectral", BIDIAGONAL),
    "linalg_solve": partial(solve, cubes=2 / 3, passes=2),
    "linalg_lu_solve": partial(solve, cubes=0, passes=2, right=2),
    "lu_solve": partial(solve, cubes=0, passes=2, matrix=1, right=0),
    "cholesky_solve": partial(solve, cubes=0, passes=2, matrix=1, right=0),
    "linalg_solve_triangular": partial(solve, cubes=0, passes=1),
    "triangular_solve": partial(solve, cubes=0, passes=1, matrix=1, right=0),
    "embedding": lookup,
    "index_select": lookup,
}
# Views, allocations, and composites whose work is done by the ops that they call.
NO_WORK: Final = words(
    "view reshape reshape_alias unsafe_view as_strided transpose t permute expand expand_as unsqueeze squeeze"
    " select slice narrow detach alias unbind split split_with_sizes chunk unsafe_chunk unsafe_split diagonal real"
    " view_as_real mT mH T resolve_conj resolve_neg lift_fresh resize set new_empty new_empty_strided empty"
    " empty_like empty_strided zeros ones full zeros_like ones_like full_like item is_nonzero linear matmul einsum"
    " tensordot conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d to contiguous layer_norm"
    " group_norm batch_norm batch_norm_impl_index scaled_dot_product_attention cross_entropy_loss nll_loss"
    " nll_loss_nd dropout"
)
# Parts of names whose work is more than a pass over the inputs, or whose output can be far larger than they are.
OPAQUE: Final = words("linalg lstsq rnn lstm gru fft conv attention linear cdist upsample embedding_bag")
# What they write is one of the inputs, or next to nothing.
NO_NEW_OUTPUT: Final = words(
    "copy fill zero foreach_copy foreach_zero foreach_norm sum mean prod norm linalg_vector_norm amax amin max"
    " min argmax argmin any all count_nonzero dot local_scalar_dense nll_loss_forward"
)
ELEMENTWISE: Final = words(
    "add sub rsub mul div neg abs sign exp log log1p sqrt rsqrt square reciprocal pow sin cos tanh sigmoid relu"
    " gelu silu leaky_relu threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward clamp"
    " clamp_min clamp_max where lerp addcmul addcdiv native_dropout native_dropout_backward masked_fill maximum"
    " minimum eq ne lt le gt ge logical_and logical_or logical_not copy to_copy clone fill zero"
)
