import json
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from qrprof.planner.counts import flops, work

aten = torch.ops.aten


def text(*shapes: Iterable[int]) -> str:
    return json.dumps([list(shape) for shape in shapes], separators=(",", ":"))


def counted(op: Any, *arguments: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        op(*arguments)
    return int(counter.get_total_flops())


def test_flops_of_products_agree_with_torch() -> None:
    a, b, c = torch.rand(64, 32), torch.rand(32, 8), torch.rand(8)
    assert flops("aten::mm", "[[64,32],[32,8]]", "float,float") == counted(torch.mm, a, b) == 2 * 64 * 32 * 8
    assert flops("aten::addmm", "[[8],[64,32],[32,8],[],[]]", "float,float,float,Scalar,Scalar") == counted(
        torch.addmm, c, a, b
    )
    a, b = torch.rand(5, 6, 7), torch.rand(5, 7, 3)
    assert flops("aten::bmm", text(a.shape, b.shape), "float,float") == counted(torch.bmm, a, b)
    shapes = "[[5,6,3],[5,6,7],[5,7,3],[],[]]"
    assert flops("aten::baddbmm", shapes, "float,float,float,Scalar,Scalar") == counted(
        torch.baddbmm, torch.rand(5, 6, 3), a, b
    )


@pytest.mark.parametrize(("groups", "size"), [(1, 3), (4, 3), (1, 1), (8, 5)])
def test_flops_of_same_convolutions_agree_with_torch(groups: int, size: int) -> None:
    image, weight = torch.rand(2, 8, 10, 12), torch.rand(16, 8 // groups, size, size)
    expected = counted(lambda: F.conv2d(image, weight, padding=size // 2, groups=groups))
    types = "float,float,,ScalarList"
    assert flops("aten::cudnn_convolution", text(image.shape, weight.shape, [], []), types) == expected


def test_a_strided_convolution_lies_between_its_counts() -> None:
    image, weight = torch.rand(2, 3, 32, 32), torch.rand(16, 3, 4, 4)
    found = work("aten::mkldnn_convolution", text(image.shape, weight.shape), "float,float")
    assert found is not None
    assert found.least_flops == counted(lambda: F.conv2d(image, weight, stride=4))
    assert found.least_flops < counted(lambda: F.conv2d(image, weight, stride=2, padding=1)) < found.flops


def test_flops_of_transposed_convolutions_agree_with_torch() -> None:
    image, weight = torch.rand(2, 8, 10, 10), torch.rand(8, 4, 3, 3)
    expected = counted(lambda: F.conv_transpose2d(image, weight, stride=2))
    assert flops("aten::cudnn_convolution_transpose", text(image.shape, weight.shape), "float,float") == expected


@pytest.mark.parametrize(("transposed", "stride"), [(False, 1), (False, 2), (True, 2)])
def test_flops_of_convolution_backward_agree_with_torch(transposed: bool, stride: int) -> None:
    image, weight = torch.rand(2, 8, 10, 10), torch.rand(8 if transposed else 16, 16 if transposed else 8, 3, 3)
    settings = [[stride, stride], [1, 1], [1, 1], transposed, [0, 0], 1]
    out = aten.convolution(image, weight, None, *settings)
    arguments = (torch.rand_like(out), image, weight, None, *settings)
    shapes, types = text(out.shape, image.shape, weight.shape), "float,float,float"
    found = work("aten::convolution_backward", shapes, types)
    assert found is not None
    assert found.flops == counted(aten.convolution_backward, *arguments, [True, True, False])
    assert found.least_flops == counted(aten.convolution_backward, *arguments, [False, True, False])


def test_flops_of_attention_agree_with_torch() -> None:
    q, k = torch.empty(2, 4, 32, 16, device="meta"), torch.empty(2, 4, 48, 16, device="meta")
    forward = aten._scaled_dot_product_flash_attention
    types = "float,float,float,Scalar,Scalar"
    shapes = text(q.shape, k.shape, k.shape, [], [])
    expected = counted(forward, q, k, k)
    assert expected == 2 * 2 * 4 * 32 * 48 * (16 + 16)
    for op in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"):
        assert flops(f"aten::{op}", shapes, types) == expected
    by_position = text([2, 32, 4, 16], [2, 48, 4, 16], [2, 48, 4, 16], [], [])
    assert flops("aten::_flash_attention_forward", by_position, types) == expected
    assert flops("aten::_cudnn_attention_forward", shapes, types) == expected


def test_flops_of_attention_backward_agree_with_torch() -> None:
    q = torch.rand(2, 4, 32, 16, requires_grad=True)
    out = aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)[0]
    forward = counted(aten._scaled_dot_product_flash_attention, *[q.detach().to("meta")] * 3)
    shapes = text(out.shape, q.shape, q.shape, q.shape)
    op = "aten::_scaled_dot_product_flash_attention_backward"
    assert flops(op, shapes, "float,float,float,float") == 2.5 * forward  # as torch.utils.flop_counter has it


# By hand, LAPACK Working Note 41: m = 6, n = 3 or n = 3, k = 2.
@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        ("geqrf", "[[6,3]]", 2 * 6 * 9 - 2 / 3 * 27),
        ("geqrf", "[[3,6]]", 2 * 6 * 9 - 2 / 3 * 27),
        ("geqrf", "[[5,3,3]]", 5 * 4 / 3 * 27),
        ("linalg_householder_product", "[[6,3],[3]]", 90),
        ("linalg_qr", "[[2,6,3],[]]", 2 * 2 * 90),
        ("ormqr", "[[6,3],[3],[6,2]]", 4 * 6 * 2 * 3 - 2 * 2 * 9),
        ("linalg_cholesky_ex", "[[3,3],[],[]]", 9),
        ("linalg_lu_factor_ex", "[[3,3],[],[]]", 18),
        ("linalg_lu_factor", "[[6,3],[]]", 6 * 9 - 9),
        ("linalg_inv", "[[3,3]]", 54),
        ("linalg_inv_ex", "[[4,3,3],[]]", 4 * 54),
        ("_linalg_eigh", "[[3,3],[],[]]", 9 * 27),
        ("linalg_eigh", "[[7,3,3],[]]", 7 * 9 * 27),
        ("linalg_eigvalsh", "[[3,3],[]]", 36),
        ("linalg_svd", "[[3,3],[],[]]", 22 * 27),
        ("_linalg_svd", "[[300,3],[],[],[]]", 6 * 300 * 9 + 20 * 27),
        ("linalg_solve_triangular", "[[3,3],[3,2],[],[],[]]", 9 * 2),
        ("linalg_solve_triangular", "[[3,3],[2,3],[],[],[]]", 9 * 2),
        ("linalg_solve", "[[3,3],[3,2],[]]", 18 + 2 * 9 * 2),
        ("linalg_lu_solve", "[[3,3],[3],[3,2],[],[]]", 2 * 9 * 2),
        ("cholesky_solve", "[[3,2],[3,3],[]]", 2 * 9 * 2),
    ],
)
def test_flops_of_factorisations(op: str, shapes: str, expected: float) -> None:
    types = ",".join("float" if len(shape) else "Scalar" for shape in json.loads(shapes))
    assert flops(f"aten::{op}", shapes, types) == pytest.approx(expected, rel=1e-12)


def test_a_chain_is_as_long_as_the_short_side() -> None:
    found = work("aten::linalg_qr", "[[60,4096,64],[]]", "float,")
    assert found is not None
    assert (found.kind, found.columns) == ("factorisation", 64)


@pytest.mark.parametrize(
    ("op", "shapes", "types", "moved"),
    [
        ("mm", "[[64,32],[32,8]]", "c10::BFloat16,c10::BFloat16", 2 * (64 * 32 + 32 * 8 + 64 * 8)),
        ("addmm", "[[8],[64,32],[32,8],[],[]]", "double,double,double,Scalar,Scalar", 8 * (8 + 2048 + 256 + 512)),
        ("mv", "[[64,32],[32]]", "float,float", 4 * (64 * 32 + 32 + 64)),
        ("add", "[[10,20],[20],[]]", "float,float,Scalar", 4 * (200 + 20 + 200)),
        ("add_", "[[10,20],[],[]]", "float,double,Scalar", 4 * (200 + 200) + 8),
        ("copy_", "[[100],[100],[]]", "c10::BFloat16,float,Scalar", 2 * 100 + 4 * 100),
        ("sum", "[[100],[]]", "float,", 400),
        ("zero_", "[[100]]", "long int", 800),
        ("_softmax", "[[8,16],[],[]]", "c10::Half,Scalar,Scalar", 2 * 2 * 128),
        ("cat", "[[[2,3],[2,5]],[]]", "TensorList,Scalar", 2 * 4 * 16),
        ("_foreach_add_", "[[[2,3],[4]],[[2,3],[4]],[]]", "TensorList,TensorList,Scalar", 3 * 4 * 10),
        ("embedding", "[[50000,16],[4,8],[],[],[]]", "float,long int,Scalar,Scalar,Scalar", 2 * 32 * 64 + 32 * 8),
        ("index_select", "[[512,16],[],[8]]", "float,Scalar,long int", 2 * 8 * 64 + 8 * 8),
    ],
)
def test_bytes_moved(op: str, shapes: str, types: str, moved: int) -> None:
    found = work(f"aten::{op}", shapes, types)
    assert found is not None
    assert found.bytes == moved


def test_a_fused_optimizer_reads_four_lists_and_writes_three() -> None:
    lists = "[[5,6],[2]]"
    shapes = f"[{lists},{lists},{lists},{lists},[],[[],[]],[],[],[]]"
    types = "TensorList,TensorList,TensorList,TensorList,TensorList,TensorList,Scalar,Scalar,"
    found = work("aten::_fused_adamw_", shapes, types)
    assert found is not None
    steps = 2 * 4
    assert found.bytes == 7 * 32 * 4 + 2 * steps


@pytest.mark.parametrize("op", ["view", "empty", "_reshape_alias", "matmul", "linear"])
def test_views_and_composites_have_no_work_of_their_own(op: str) -> None:
    found = work(f"aten::{op}", "", "")
    assert found is not None
    assert (found.kind, found.flops, found.bytes) == ("none", 0, 0)


@pytest.mark.parametrize(
    ("op", "shapes", "types"),
    [
        ("aten::mm", "", ""),  # not recorded
        ("aten::mm", "[[64,32]]", "float"),  # not what the op takes
        ("aten::mm", "[[64,32],[]]", "float,Scalar"),
        ("aten::add", "[[],[]]", "Scalar,Scalar"),
        ("aten::add", "[[4],[4]]", "float,quantised"),
        ("aten::_fused_adamw_", "[[],[],[],[]]", "TensorList,TensorList,TensorList,TensorList"),  # lists left out
        ("aten::_cudnn_rnn", "[[3,2,4],[[12,4]]]", "float,TensorList"),
        ("aten::linalg_lstsq", "[[9,9],[9,9]]", "float,float"),
        ("aten::_flash_attention_forward", "[[70,4,16],[70,4,16],[70,4,16]]", "float,float,float"),  # packed lengths
        ("mylib::attention", "[[64,32],[32,8]]", "float,float"),
        ("AddmmBackward0", "[[64,32]]", "float"),
    ],
)
def test_what_is_not_known_is_not_guessed(op: str, shapes: str, types: str) -> None:
    assert work(op, shapes, types) is None
    assert flops(op, shapes, types) is None


SIZES = st.integers(min_value=1, max_value=64)


@given(SIZES, SIZES, SIZES)
def test_a_batch_is_the_sum_of_its_matrices(batch: int, m: int, n: int) -> None:
    for op in ("geqrf", "linalg_qr", "linalg_svd"):
        one, many = work(f"aten::{op}", f"[[{m},{n}]]", "float"), work(f"aten::{op}", f"[[{batch},{m},{n}]]", "float")
        assert one is not None
        assert many is not None
        assert many.flops == pytest.approx(batch * one.flops)
        assert many.bytes == batch * one.bytes
        assert many.columns == one.columns


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes"),
    [
        ("aten::add", "[[[2,2]]]", "float"),
        ("aten::add", "[5]", "float"),
        ("aten::_fused_adamw_", "[[]]", "TensorList"),
        ("aten::_fused_adamw_", "[[[4]]]", "TensorList"),
    ],
)
def test_inputs_of_no_known_form_are_unknown_work(op: str, shapes: str, dtypes: str) -> None:
    assert work(op, shapes, dtypes) is None
