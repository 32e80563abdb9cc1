import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.counts import Work, work
from qrprof.planner.roofline import EFFICIENCY, Levels, remaining
from qrprof.profiler.devices import Peaks

GPU = Peaks(
    schema_number=1,
    kind="cuda",
    name="GPU",
    uuid="",
    torch="2.13.0",
    threads=2,
    measured_at="2026-01-31T12:00:00+00:00",
    flops={"float": 1e13, "bfloat16": 1e14, "double": 5e12},
    copy_bytes_per_s=1e12,
    launch_ns=5000.0,
    repeats=7,
    spread={},
)
TF32_GPU = GPU.model_copy(update={"flops": {**GPU.flops, "tf32": 8e13}})
CPU = GPU.model_copy(update={"kind": "cpu", "flops": {"float": 1e11}, "copy_bytes_per_s": 1e10, "launch_ns": 1000.0})


def levels(
    op: str, shapes: str, types: str, calls: float, peaks: Peaks, tf32: bool = False, steps: float = 1.0
) -> Levels:
    todo = work(f"aten::{op}", shapes, types)
    assert todo is not None
    found = remaining(todo, calls, peaks, tf32, steps)
    assert found is not None
    return found


def about(low: float, mid: float, high: float) -> object:
    return pytest.approx((low, mid, high), rel=1e-9)


def test_a_large_product_is_bound_by_its_flops() -> None:
    # 2e9 flop at 1e13 flop/s: 200 us a call
    assert levels("mm", "[[1000,1000],[1000,1000]]", "float,float", 3, GPU) == about(6e5 / 0.95, 6e5 / 0.8, 6e5 / 0.6)


def test_the_best_of_a_float_product_is_tf32() -> None:
    found = levels("mm", "[[1000,1000],[1000,1000]]", "float,float", 1, TF32_GPU)
    assert found == about(2.5e4 / 0.95, 2e5 / 0.8, 2e5 / 0.6)
    found = levels("mm", "[[1000,1000],[1000,1000]]", "float,float", 1, TF32_GPU, tf32=True)
    assert found == about(2.5e4 / 0.95, 2.5e4 / 0.8, 2.5e4 / 0.6)


def test_half_takes_the_peak_of_bfloat16() -> None:
    shapes = "[[1000,1000],[1000,1000]]"
    half = levels("mm", shapes, "c10::Half,c10::Half", 1, GPU)
    assert (
        half == levels("mm", shapes, "c10::BFloat16,c10::BFloat16", 1, GPU) == about(2e4 / 0.95, 2e4 / 0.8, 2e4 / 0.6)
    )


def test_a_thin_product_is_bound_by_memory() -> None:
    # 4e6 flop, but 4 x (1e6 + 1e6 + 1) bytes
    found = levels("mm", "[[1,1000000],[1000000,1]]", "float,float", 1, GPU)
    assert found == about(8.000004e3 / 0.95, 8.000004e3 / 0.75, 8.000004e3 / 0.5)


def test_memory_bound_ops_go_by_the_copy_rate() -> None:
    assert levels("sum", "[[10000000]]", "float", 2, GPU) == about(8e4 / 0.95, 8e4 / 0.75, 8e4 / 0.5)


def test_an_elementwise_op_may_vanish() -> None:
    assert levels("mul", "[[1000000],[]]", "float,Scalar", 1, GPU) == about(0, 8e3 / 0.75, 8e3 / 0.5)


def test_qr_waits_for_its_columns_on_a_gpu() -> None:
    one = levels("linalg_qr", "[[512,512],[]]", "float,", 1, GPU)
    assert one == about(512 * 500, 512 * 1000, 512 * 2000)
    # of eight matrices the flops outweigh the chain of 512 columns, unless it is followed eight times
    ideal = 8 * 2 * 4 / 3 * 512**3 / 1e13 * 1e9
    batch = levels("linalg_qr", "[[8,512,512],[]]", "float,", 1, GPU)
    assert batch == about(ideal / 0.6, ideal / 0.35, ideal / 0.15)
    assert levels("linalg_qr", "[[512,512],[]]", "float,", 8, GPU) == about(batch.low, 8 * one.mid, 8 * one.high)


def test_a_big_batch_of_qr_is_bound_by_its_flops() -> None:
    ideal = 640 * 4 / 3 * 512**3 / 1e13 * 1e9
    assert levels("geqrf", "[[640,512,512]]", "float", 1, GPU) == about(ideal / 0.6, ideal / 0.35, ideal / 0.15)


def test_qr_on_a_cpu_has_no_chain() -> None:
    ideal = 4 / 3 * 512**3 / 1e11 * 1e9
    assert levels("geqrf", "[[512,512]]", "float", 1, CPU) == about(ideal / 0.5, ideal / 0.25, ideal / 0.1)


def test_no_kernel_is_shorter_than_a_launch() -> None:
    assert levels("sum", "[[4]]", "float", 10, GPU) == about(1e4, 2e4, 3e4)
    assert levels("sum", "[[4]]", "float", 10, CPU) == about(5e3, 1e4, 2e4)
    assert levels("view", "", "", 10, CPU) == about(0, 1e4, 2e4)


@pytest.mark.parametrize("dtype", ["double", "c10::Half", "c10::complex<float>", "int"])
def test_without_a_peak_of_the_type_nothing_is_known(dtype: str) -> None:
    todo = work("aten::mm", "[[8,8],[8,8]]", f"{dtype},{dtype}")
    assert todo is not None
    assert remaining(todo, 1, CPU) is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_efficiencies_are_in_order(device: str) -> None:
    for best, usual, poor in EFFICIENCY[device].values():
        assert best >= usual >= poor > 0


@given(
    st.sampled_from(sorted(EFFICIENCY["cuda"])),
    st.floats(min_value=0, max_value=1e15),
    st.floats(min_value=0, max_value=1),
    st.floats(min_value=0, max_value=1e12),
    st.integers(min_value=0, max_value=8192),
    st.floats(min_value=0.01, max_value=1e5),
    st.sampled_from([GPU, TF32_GPU, CPU]),
)
def test_levels_are_ordered(
    kind: str, flops: float, least: float, moved: float, columns: int, calls: float, peaks: Peaks
) -> None:
    found = remaining(Work(kind, flops, least * flops, moved, "float", columns), calls, peaks)
    assert found is not None
    assert 0 <= found.low <= found.mid <= found.high < math.inf


def test_one_batch_of_the_steps_that_factor_is_one_in_each_of_them() -> None:
    """Sixteen QR in each tenth step: their columns follow one another once in ten steps."""
    shape = ("linalg_qr", "[[64,64],[]]", "float,")
    rare, single = (levels(*shape, calls, GPU, steps=0.1) for calls in (1.6, 0.1))
    assert rare.low == single.low
    assert levels(*shape, 16.0, GPU).low == pytest.approx(10 * single.low)
    assert rare.high == pytest.approx(16 * single.high)


def test_ranking_does_not_load_torch() -> None:
    code = "import sys, qrprof.planner.targets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
