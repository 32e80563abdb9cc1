"""QR calls taken apart: phases, block columns, gaps and rates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qrprof.profiler.blocks import Problem, place_blocks
from qrprof.profiler.panels import PanelStep, panels
from qrprof.profiler.panelsums import by_call, by_shape
from qrprof.profiler.phases import pattern_of
from qrprof.profiler.trace import Trace

DATA = Path(__file__).parent / "data"
DOMINO = "void geqr2_smem_domino_fast<float, float, 8, 512>(int, int, float*, int, float*, int*, int*)"
SET, RESTORE = "void larfb_set_v1_R_kernel<float, 16>(long)", "void larfb_restore_v1_R_kernel<float, 16>(long)"
LARFT, LARFT_BATCH = "void larft_T_64<float>(int)", "void larft_T_64_batch<float>(int)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_execute_kernel__5x_cublas"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)"
TRIU = "void at::native::triu_tril_kernel<float, int, true, 2, false>(int)"
STEP1, LACPY = "void orgqr_step1_kernel<float, 5, 3>(int)", "void lacpy_kernel<float, float, 5, 3>(long)"

# As cuSOLVER does it, but two block columns of geqrf and two of orgqr.
PANEL = ["Memset (Device)", DOMINO, SET, GEMM, LARFT, GEMM, RESTORE]
LAST_PANEL = ["Memset (Device)", DOMINO]
FORM_LAST = [STEP1, GEMM, LARFT_BATCH, GEMM, LACPY]
FORM_NEXT = [GEMM, LARFT_BATCH, GEMM, GEMM, LACPY]
CUSOLVER = [FILL, *PANEL, *LAST_PANEL, TRIU, *FORM_LAST, *FORM_NEXT]


class Calls:
    """A trace of QR calls: kernels of 10 ns with 2 ns between them, each launched in its call."""

    def __init__(self, build: Any) -> None:
        self.build, self.now = build, 0
        self.rows: list[dict[str, Any]] = []

    def call(
        self, kernels: Sequence[str], shapes: str, op: str = "aten::linalg_qr", stream: int = 7, thread: int = 1
    ) -> None:
        start = self.now
        for number, kernel in enumerate(kernels):
            correlation = len(self.rows) + 1
            at = start + 12 * number
            self.rows.append(self.build.launch(correlation, at, at + 1, thread))
            self.rows.append(self.build.kernel(kernel, at + 5, at + 15, correlation, stream))
        self.now += 12 * max(len(kernels), 1) + 100
        self.rows.append(self.build.op(op, start, self.now - 90, thread, shapes=shapes, dtypes="float,"))

    def steps(self) -> list[PanelStep]:
        return panels(Trace.from_rows(self.rows))


@pytest.fixture
def calls(build: Any) -> Calls:
    return Calls(build)


def shown(steps: Sequence[PanelStep]) -> list[tuple[Any, ...]]:
    return [(step.part, step.column, step.m, step.n, step.nb, step.phases) for step in steps]


# --- phases by name and place


def test_a_call_of_cusolver(calls: Calls) -> None:
    """Gram before larft, products after it, a memset with the panel that it prepares, lacpy in its block column."""
    calls.call(CUSOLVER, "[[200,192],[]]")
    steps = calls.steps()
    assert shown(steps) == [
        ("", None, None, None, None, {"copy": 20}),
        ("geqrf", 0, 200, 192, 64, {"geqr2": 20, "larft": 20, "larfb": 30}),
        ("geqrf", 1, 136, 128, 128, {"geqr2": 20}),
        ("orgqr", 1, 72, 64, 64, {"larft": 10, "orgqr": 30, "copy": 10}),
        ("orgqr", 0, 200, 192, 128, {"larft": 10, "orgqr": 30, "copy": 10}),
    ]
    assert [step.gap for step in steps] == [2, 14, 4, 10, 10]
    assert {(step.library, step.batch, step.matrix, step.dtype, step.note) for step in steps} == {
        ("cuSOLVER", 1, None, "float", "")
    }
    assert {step.kernels for step in steps} == {2, 5, 7}


def test_magma_and_rocsolver_by_their_names(calls: Calls) -> None:
    calls.call(
        [
            "void sgeqr2_fused_reg_kernel_batched<64, 8>(int)",
            "slarft_recztrmv_sm32x32_kernel_batched(int, int)",
            "void gemm_template_batched_nt_kernel<float>(int)",
            "void sgeqr2_fused_reg_kernel_batched<64, 8>(int)",
        ],
        "[[3,64,16]]",
        "aten::geqrf",
    )
    larfg = ["rocblas_dot_kernel", "void set_taubeta<float>(float*)", "rocblas_gemvt_kernel", "rocblas_ger_kernel"]
    larft = ["set_triangular<float>", "set_tau<float>", "rocblas_trmv_kernel", "set_tau<float>"]
    calls.call(
        [*larfg, *larfg[:2], *larft, "copymatA1<float>", "Cijk_Ailk_Bljk_SB_MT64x64x16", "addmatA1<float>", *larfg[:2]],
        "[[8,3]]",
        "aten::geqrf",
    )
    steps = calls.steps()
    assert [step.library for step in steps] == ["MAGMA"] * 2 + ["rocSOLVER"] * 2
    assert shown(steps) == [
        ("geqrf", 0, 64, 16, 8, {"geqr2": 10, "larft": 10, "larfb": 10}),
        ("geqrf", 1, 56, 8, 8, {"geqr2": 10}),
        ("geqrf", 0, 8, 3, 2, {"geqr2": 60, "larft": 40, "larfb": 30}),
        ("geqrf", 1, 6, 1, 1, {"geqr2": 20}),
    ]
    assert [step.matrix for step in steps[:2]] == [None, None]  # all three at once
    assert steps[0].flops == pytest.approx(3 * ((2 * 64 * 16**2 - 2 / 3 * 16**3) - (2 * 56 * 8**2 - 2 / 3 * 8**3)))


def test_a_fused_kernel_of_ours_has_no_split(calls: Calls) -> None:
    calls.call([FILL, "qrprof_geqr2_larft_larfb_kernel", "qrprof_orgqr_kernel", TRIU], "[[640,512,512],[]]")
    calls.call(["qrprof_geqr2_larft_panel", GEMM, "qrprof_geqr2_larft_panel", GEMM], "[[64,64]]", "aten::geqrf")
    steps = calls.steps()
    fused = {"geqr2": None, "larft": None, "larfb": None, "fused: geqr2+larft+larfb": 10}
    half = {"geqr2": None, "larft": None, "larfb": 10, "fused: geqr2+larft": 10}
    assert shown(steps) == [
        ("", None, None, None, None, {"copy": 20}),
        ("geqrf", 0, 512, 512, 512, fused),
        ("orgqr", 0, 512, 512, 512, {"orgqr": 10}),
        ("geqrf", 0, None, None, None, half),
        ("geqrf", 1, None, None, None, half),
    ]
    assert [step.note for step in steps] == ["", "fused: geqr2+larft+larfb", ""] + 2 * ["fused: geqr2+larft"]
    assert {step.library for step in steps} == {"qrprof"}
    assert steps[1].gflops == pytest.approx(640 * 4 / 3 * 512**3 / 12)
    (one, other) = by_call(steps)
    assert one.phases == {**fused, "orgqr": 10, "copy": 20}
    assert (one.note, other.note) == ("fused: geqr2+larft+larfb", "fused: geqr2+larft")
    shape = by_shape([one])[0]
    assert shape.shares() == {"orgqr": 10 / 46, "copy": 20 / 46, "fused: geqr2+larft+larfb": 10 / 46, "gap": 6 / 46}


def test_a_kernel_that_forms_q_too_has_the_flops_of_both(calls: Calls) -> None:
    calls.call(["qrprof_geqr2_larft_larfb_orgqr_whole"], "[[640,512,512],[]]")
    (one,) = calls.steps()
    assert one.note == "fused: geqr2+larft+larfb+orgqr"
    assert one.flops == pytest.approx(640 * 8 / 3 * 512**3)


def test_kernels_without_a_known_name_are_unknown_and_counted(calls: Calls) -> None:
    calls.call([FILL, "mystery_factor", GEMM, TRIU], "[[64,64],[]]")
    calls.call([FILL, "mystery_factor", TRIU, *FORM_LAST], "[[64,64],[]]")
    steps = calls.steps()
    assert [(step.part, step.nb, step.phases, step.note) for step in steps] == [
        ("", None, {"copy": 20}, "unknown"),
        ("geqrf", None, {"unknown": 20}, "unknown"),
        ("", None, {"copy": 20}, ""),
        ("geqrf", None, {"unknown": 10}, ""),
        ("orgqr", 64, {"larft": 10, "orgqr": 30, "copy": 10}, ""),
    ]
    assert [step.gflops is None for step in steps] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("kernel", "phase"),
    [
        ("void geqr2_smem<double, double, 8, 6, 4>(int, int, double*)", "geqr2"),
        ("void geqr2_gmem_domino<double, double, 9>(int, int)", "geqr2"),
        ("zgeqr2_sm_kernel_batched(int, int, magmaDoubleComplex**)", "geqr2"),
        ("void larft_vtv_32<float>(int)", "larft"),
        ("zlarft_gemvcolwise_kernel(int, double2*)", "larft"),
        ("void ormtr_gemv_c<float, 4>(int)", "ormqr"),
        ("ung2r_kernel", "orgqr"),
        ("void rocsolver::v33::geqr2_kernel_small<256, float, int>(int)", "geqr2"),
        ("my_geqrf_batched", "geqr2+larft+larfb"),
        ("qrprof_larfb_trailing_512", "larfb"),
        ("qrprof_copy_in", "copy"),
        ("qrprof_geqr2", "geqr2"),
        ("qrprof_geqr2_small", "geqr2"),
        ("qrprof_geqr2_larft_rows", "geqr2+larft"),
        ("qrprof_larft", "larft"),
        ("qrprof_larft_y", "larft"),
        ("qrprof_larfb_update", "larfb"),
        ("qrprof_orgqr_update", "orgqr"),
        ("qrprof_ormqr_update", "ormqr"),
        ("qrprof_copy_prepare", "copy"),
        ("qrprofile_geqr2x", "unknown"),
        ("triton_poi_fused_add_0", "unknown"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("larger_kernel", "unknown"),
        ("gerbil", "unknown"),
    ],
)
def test_names(kernel: str, phase: str) -> None:
    assert pattern_of(kernel).phase == phase


# --- calls


def test_a_batch_that_the_library_takes_one_by_one(calls: Calls) -> None:
    """Two matrices of two panels each, then their Q: the kernels say only where panels begin."""
    factor = ["copy_info_kernel(int, int*)", *PANEL, *LAST_PANEL]
    calls.call([FILL, *factor, *factor, TRIU, *FORM_LAST, *FORM_NEXT, *FORM_LAST, *FORM_NEXT], "[[2,200,192],[]]")
    steps = calls.steps()
    assert [(step.part, step.matrix, step.column, step.nb) for step in steps] == [
        ("", None, None, None),
        ("geqrf", 0, 0, 64),
        ("geqrf", 0, 1, 128),
        ("geqrf", 1, 0, 64),
        ("geqrf", 1, 1, 128),
        ("orgqr", 0, 1, 64),
        ("orgqr", 0, 0, 128),
        ("orgqr", 1, 1, 64),
        ("orgqr", 1, 0, 128),
    ]
    assert sum(step.flops or 0 for step in steps) == pytest.approx(4 * (2 * 200 * 192**2 - 2 / 3 * 192**3))


def test_small_matrices_are_narrower_than_the_block_of_the_library(calls: Calls) -> None:
    form = [STEP1, "void larft_vtv_32<float>(int)", "void larft_T_32<float>(int)", GEMM, LACPY]
    calls.call([FILL, *LAST_PANEL, *LAST_PANEL, TRIU, *form, *form], "[[2,8,8],[]]")
    assert [(step.part, step.matrix, step.nb) for step in calls.steps() if step.part] == [
        ("geqrf", 0, 8),
        ("geqrf", 1, 8),
        ("orgqr", 0, 8),
        ("orgqr", 1, 8),
    ]


def test_widths_that_do_not_make_up_the_matrix_are_not_shown(calls: Calls) -> None:
    calls.call([*PANEL, *PANEL], "[[512,512]]", "aten::geqrf")
    calls.call([*PANEL, *LAST_PANEL], "", "aten::geqrf")  # shapes were not recorded
    steps = calls.steps()
    assert [(step.column, step.nb, step.gflops) for step in steps[:2]] == [(0, None, None), (1, None, None)]
    assert [(step.column, step.nb, step.m, step.batch, step.gflops) for step in steps[2:]] == 2 * [5 * (None,)]
    assert [step.phases for step in steps[2:]] == [{"geqr2": 20, "larft": 20, "larfb": 30}, {"geqr2": 20}]


def test_each_op_has_its_own_parts(calls: Calls) -> None:
    calls.call([FILL, *FORM_LAST, *FORM_NEXT], "[[300,256],[256]]", "aten::linalg_householder_product")
    calls.call([LARFT_BATCH, GEMM, GEMM], "[[300,128],[128],[300,7]]", "aten::ormqr")
    steps = [step for step in calls.steps() if step.part]
    assert shown(steps) == [
        ("orgqr", 1, 172, 128, 128, {"larft": 10, "orgqr": 30, "copy": 10}),
        ("orgqr", 0, 300, 256, 128, {"larft": 10, "orgqr": 30, "copy": 10}),
        ("ormqr", 0, 300, 128, 128, {"larft": 10, "ormqr": 20}),
    ]
    assert steps[2].flops == pytest.approx(4 * 300 * 128 * 7 - 2 * 7 * 128**2)


def test_an_op_inside_another_is_no_call_of_its_own(calls: Calls) -> None:
    calls.call(LAST_PANEL, "[[64,64]]", "aten::geqrf")
    outer = calls.build.op("aten::linalg_qr", 0, calls.now, shapes="[[64,64],[]]", dtypes="float,")
    steps = panels(Trace.from_rows([outer, *calls.rows]))
    assert [(step.op, step.call, step.nb) for step in steps] == [("aten::linalg_qr", 0, 64)]


def test_gaps_are_idle_time_of_the_device(calls: Calls) -> None:
    """7 ns between two panels in which another stream works for 3; and no gap before the first kernel."""
    build = calls.build
    rows = [
        build.op("aten::geqrf", 0, 90, shapes="[[128,128]]", dtypes="float"),
        build.launch(1, 1, 2),
        build.kernel(DOMINO, 20, 30, 1),
        build.launch(2, 3, 4),
        build.kernel(DOMINO, 37, 40, 2),
        build.kernel("other", 28, 33, stream=9),
        build.kernel("later", 45, 50, stream=9),
        build.kernel("earlier", 0, 5, stream=9),
    ]
    first, second = panels(Trace.from_rows(rows))
    assert (first.gap, second.gap) == (0, 4)
    assert (first.start, second.end) == (20, 40)
    assert second.nb is None  # two panels whose names give no width
    (call,) = by_call([first, second])
    assert (call.ns, call.gap) == (20, 4)
    assert call.gflops == pytest.approx(4 / 3 * 128**3 / 20)


def test_calls_on_two_streams_are_taken_apart_stream_by_stream(calls: Calls) -> None:
    calls.call([*PANEL, *LAST_PANEL], "[[128,128]]", "aten::geqrf")
    calls.now = 3  # the second call runs beside the first
    calls.call([*PANEL, *LAST_PANEL], "[[128,128]]", "aten::geqrf", stream=9, thread=2)
    steps = calls.steps()
    assert [(step.call, step.nb, step.phases) for step in steps] == [
        (call, nb, phases)
        for call in (0, 1)
        for nb, phases in ((64, {"geqr2": 20, "larft": 20, "larfb": 30}), (64, {"geqr2": 20}))
    ]


def test_on_a_cpu_a_call_is_one_row(build: Any) -> None:
    rows = [
        build.op("aten::linalg_qr", 10, 110, shapes="[[4,64,64],[]]", dtypes="float,"),
        build.op("aten::copy_", 20, 30),
        build.op("aten::geqrf", 200, 250, shapes="[[64,64]]", dtypes="double"),
        build.op("aten::linalg_qr", 300, 310),
    ]
    qr, geqrf, shapeless = panels(Trace.from_rows(rows))
    assert (qr.phases, qr.gap, qr.note, qr.batch, qr.m, qr.n) == (None, None, "LAPACK: not split", 4, 64, 64)
    assert qr.gflops == pytest.approx(2 * 4 * 4 / 3 * 64**3 / 100)
    assert geqrf.gflops == pytest.approx(4 / 3 * 64**3 / 50)
    assert (geqrf.dtype, shapeless.gflops, shapeless.batch) == ("double", None, None)
    assert [call.ns for call in by_call([qr, geqrf, shapeless])] == [100, 50, 10]


def test_a_call_whose_device_work_is_missing_is_not_measured(calls: Calls) -> None:
    calls.call([*PANEL, *LAST_PANEL], "[[128,128]]", "aten::geqrf")
    whole = calls.rows
    cut = [row for row in whole if row.get("name") != DOMINO or row["start"] < 20]  # the last panel is lost
    steps = panels(Trace.from_rows(cut))
    assert [(step.lost, step.nb, step.gap, step.gflops, step.note) for step in steps] == [
        (1, None, None, None, "some of its device work is not in the file")
    ] * len(steps)
    (call,) = by_call(steps)
    assert (call.gap, call.gflops) == (None, None)  # what looks idle may be the missing work
    assert by_shape([call])[0].shares() == {"geqr2": 2 / 8, "larft": 2 / 8, "larfb": 3 / 8, "copy": 1 / 8}
    (nothing,) = panels(Trace.from_rows(row for row in whole if "device" not in row))
    assert (nothing.phases, nothing.start, nothing.gflops, nothing.lost) == (None, None, None, 9)
    assert nothing.note == "its device work is not in the file"
    (shape,) = by_shape(by_call([nothing]))
    assert (shape.ns, shape.step_ns, shape.phases, shape.shares(), shape.gflops) == (None, None, None, {}, None)


def test_only_calls_of_the_steps_count_by_their_weights(build: Any) -> None:
    def qr(at: int) -> dict[str, Any]:
        return dict(build.op("aten::linalg_qr", at, at + 50, shapes="[[64,64],[]]", dtypes="float,"))

    rows = [qr(0), build.mark(0, 100), qr(110), build.mark(1, 200), qr(210), qr(270), build.mark(2, 400), qr(450)]
    steps = panels(Trace.from_rows(rows), build.run(weights={0: 0.9, 1: 0.1}))
    assert [(step.call, step.weight) for step in steps] == [(1, 0.9), (2, 0.1), (3, 0.1)]
    (shape,) = by_shape(by_call(steps))
    assert shape.calls == pytest.approx(1.1)
    assert shape.ns == pytest.approx(50)
    assert shape.step_ns == pytest.approx(55)
    equal = panels(Trace.from_rows(rows))
    assert [step.weight for step in equal] == [0.5, 0.5, 0.5]


def test_no_qr_call_is_no_row(build: Any) -> None:
    assert panels(Trace.from_rows([build.op("aten::mm", 0, 10)])) == []


# --- invariants


@given(st.integers(1, 300), st.integers(1, 300), st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_block_columns_make_up_the_matrix_and_its_flops(m: int, n: int, widths: list[int]) -> None:
    size = Problem(1, m, n, min(m, n))
    for part, long in (("geqrf", size), ("orgqr", size.in_part("aten::linalg_qr", "orgqr"))):
        blocks = place_blocks(part, [*widths, None] if part == "geqrf" else [None, *widths], size.k)
        known = [block for block in blocks if block]
        if not known:
            assert sum(widths) >= size.k
            continue
        assert sum(nb for _, nb in known) == size.k
        assert sorted(known) == known[:: 1 if part == "geqrf" else -1]
        rows = max(m, n) if part == "geqrf" else m
        total = sum(long.block_flops(part, offset, nb) for offset, nb in known)
        assert total == pytest.approx(2 * rows * size.k**2 - 2 / 3 * size.k**3)


NAMES = (DOMINO, SET, GEMM, LARFT, RESTORE, FILL, LACPY, STEP1, "Memset (Device)", "mystery", "qrprof_geqr2_larft")


@given(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=30))
def test_all_time_of_any_call_is_in_one_phase_or_gap(build: Any, names: list[str]) -> None:
    calls = Calls(build)
    calls.call(names, "[[128,128],[]]")
    steps = calls.steps()
    assert sum(step.kernels for step in steps) == len(names)
    assert sum(step.busy for step in steps) == 10 * len(names)
    assert sum(step.gap or 0 for step in steps) == 2 * (len(names) - 1)
    (shape,) = by_shape(by_call(steps))
    assert sum(shape.shares().values()) == pytest.approx(1.0)
