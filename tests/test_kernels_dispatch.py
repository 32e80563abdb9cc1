"""The table that says which lane serves a QR call, and the registry that stands on it."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from qrprof.kernels.qr.dispatch import MOST, PASSES, RULES, lane
from qrprof.kernels.registry import KERNELS, spec
from qrprof.planner import counts


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("linalg_qr", "cpu", "float32", 64, 64, 64), "cpu-batched"),
        (("linalg_qr", "cpu", "float64", 64, 64, 64), "cpu-batched"),
        (("linalg_qr", "cpu", "float32", 64, 16, 16), "torch"),  # over before threads have begun
        (("linalg_qr", "cpu", "float32", 100_000, 3, 3), "cpu-batched"),
        (("linalg_qr", "cpu", "float32", 32, 256, 256), "cpu-batched"),
        (("linalg_qr", "cpu", "float32", 64, 128, 128), "torch"),  # LAPACK's own threads do as well
        (("linalg_qr", "cpu", "float32", 4, 256, 256), "torch"),
        (("linalg_qr", "cpu", "float32", 1, 512, 512), "torch"),
        (("linalg_qr", "cpu", "float32", 64, 1024, 1024), "torch"),
        (("linalg_qr", "cpu", "complex64", 64, 64, 64), "torch"),
        (("linalg_qr", "cuda", "float32", 640, 512, 512), "cuda-blocked"),
        (("linalg_qr", "cuda", "float32", 1, 8, 8), "cuda-blocked"),
        (("linalg_qr", "cuda", "float32", 1, 4096, (1 << 18) - 1), "cuda-blocked"),
        (("linalg_qr", "cuda", "float32", 1, 4096, 1 << 18), "torch"),
        (("linalg_qr", "cuda", "float32", 640, 512, 512, {"cuda-blocked"}), "triton-blocked"),
        (("linalg_qr", "cuda", "float32", 1, 4096, 4096, {"cuda-blocked"}), "torch"),
        (("geqrf", "cuda", "float32", 20, 32, 32), "cuda-blocked"),
        (("geqrf", "cuda", "float32", 1, 32, 32), "torch"),
        (("geqrf", "cuda", "float32", 640, 16, 16, {"cuda-blocked"}), "triton-small"),
        (("geqrf", "cuda", "float32", 1, 512, 512), "cuda-blocked"),
        (("geqrf", "cuda", "float32", 1, 5000, 512), "torch"),
        (("geqrf", "cuda", "float32", 1, 16384, 64), "torch"),
        (("linalg_qr", "cuda", "float32", 1, 4096, 64), "cuda-blocked"),
        (("linalg_qr", "cuda", "float32", 1, 4097, 64), "cuda-tall"),
        (("linalg_qr", "cuda", "float32", 8, 1_048_576, 16), "cuda-tall"),
        (("linalg_qr", "cuda", "float32", 9, 1_048_576, 16), "torch"),
        (("linalg_qr", "cuda", "float32", 1, 16384, 65), "torch"),
        (("linalg_qr", "cuda", "float32", 1, 16384, 64, {"cuda-blocked", "cuda-tall"}), "torch"),
        (("ormqr", "cuda", "float32", 1, 512, 512), "cuda-blocked"),
        (("ormqr", "cuda", "float32", 1, 2048, 2048), "torch"),
        (("linalg_householder_product", "cuda", "float32", 1, 2048, 2048), "cuda-blocked"),
        (("linalg_householder_product", "cuda", "float32", 1, 4096, 4096), "torch"),
        (("geqrf", "cuda", "float64", 640, 512, 512), "torch"),
        (("linalg_qr", "mps", "float32", 640, 512, 512), "torch"),
        (("linalg_qr", "cpu", "float32", 0, 64, 64), "torch"),
        (("linalg_qr", "cuda", "float32", 640, 0, 0), "torch"),
    ],
)
def test_lanes(call: Any, expected: str) -> None:
    assert lane(*call) == expected


def test_a_rule_decides_by_shape_and_the_first_one_wins() -> None:
    assert {rule.device for rule in RULES} == {"cpu", "cuda"}
    for rule in RULES:
        for low, high in (rule.batch, rule.rows, rule.columns):
            assert 1 <= low <= high <= MOST
    at_all = lane("geqrf", "cuda", "float32", 8, 128, 64)
    assert at_all == next(rule.lane for rule in RULES if rule.device == "cuda")


def test_the_gpus_rules_lie_in_what_its_kernels_serve() -> None:
    pytest.importorskip("triton")
    from qrprof.kernels.qr.blocked import serves

    for rule in RULES:
        if rule.device == "cuda" and rule.lane != "cuda-tall":
            assert serves(rule.batch[0], rule.rows[1], min(rule.columns[1], 4096), torch.float32)


def test_the_table_and_the_registry_need_no_torch() -> None:
    names = "'torch', 'triton', 'numpy'"
    code = f"import sys, qrprof.kernels, qrprof.kernels.registry; print([m for m in ({names}) if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_every_kernel_loads_and_names_an_op_with_a_lane() -> None:
    assert {kernel.op for kernel in KERNELS} == set(PASSES)
    for kernel in KERNELS:
        assert callable(kernel.load())
        assert callable(kernel.load_reference())
        assert kernel.load_tunables()
        assert spec(f"aten::{kernel.op}") is kernel
        assert not kernel.serves("cpu", "float32", 1, 8, 8)
    assert spec("aten::add") is None


@pytest.mark.parametrize(("batch", "m", "n"), [(1, 64, 64), (7, 96, 32)])
def test_flops_and_bytes_are_those_of_the_ranking(batch: int, m: int, n: int) -> None:
    square, tau = f"[{batch},{m},{n}]", f"[{batch},{n}]"
    shapes = {
        "geqrf": f"[{square}]",
        "linalg_qr": f"[{square}]",
        "ormqr": f"[{square},{tau},[{batch},{m},{m}]]",
        "linalg_householder_product": f"[{square},{tau}]",
    }
    for kernel in KERNELS:
        dtypes = ",".join(["float"] * (shapes[kernel.op].count("[") - 1))
        work = counts.work(f"aten::{kernel.op}", shapes[kernel.op], dtypes)
        assert work is not None
        assert kernel.flops(batch, m, n, 4) == pytest.approx(work.flops)
        assert kernel.bytes(batch, m, n, 4) == pytest.approx(work.bytes, rel=0.6)  # the ranking leaves out tau and R
