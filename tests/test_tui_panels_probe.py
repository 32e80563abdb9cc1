"""`qrprof panels --probe`: which shapes, what is said of each, and what it needs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from qrprof.kernels.probe import Probe
from qrprof.kernels.qr import lanes
from qrprof.profiler.blocks import problem
from qrprof.profiler.panelsums import PanelShape
from qrprof.profiler.phases import COPY, GEQR2, LARFB, LARFT
from qrprof.tui import probed

DATA = Path(__file__).parent / "data"
H200 = {"index": 0, "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 1 << 37}
PHASES = {LARFB: 2e6, COPY: 250e3, GEQR2: 3e6, LARFT: 750e3}  # as a factorisation may first meet them
PAGE = """\
recorded  on NVIDIA H200
probed    geqrf by the included kernels on Test GPU

linalg_qr 512 x 512 float
recorded: 8 calls a step, 1.88 ms each by cuSOLVER, geqrf 1.58 ms of it
phase    ms   share
geqr2  3.00  50.0 %
larft 0.750  12.5 %
larfb  2.00  33.3 %
copy  0.250   4.2 %
sum    6.00 100.0 %
117 launches, one after the other 1.20x the 5.00 ms of the plain kernels
"""
NO_GPU = "qrprof: --probe runs the kernels on a CUDA device, and torch sees none\n"


@dataclass
class Prober:
    """Remembers what it was asked for; of 2000 rows and more it does nothing."""

    asked: list[tuple[str, int, int, int]] = field(default_factory=list)

    def __call__(self, op: str, batch: int, m: int, n: int) -> Probe:
        self.asked.append((op, batch, m, n))
        if m >= 2000:
            raise ValueError("that is too tall")
        return Probe(batch, m, n, PHASES, 117, 5e6)


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> Prober:
    """That of the GPU at hand, as the command sees it."""
    prober = Prober()
    monkeypatch.setattr(probed, "gpu_at_hand", lambda: probed.Gpu("Test GPU", prober))
    return prober


@pytest.fixture
def of_h200(saved: Callable[..., Any]) -> Callable[[str], Any]:
    """A saved run of one of the H200 traces."""

    def save(name: str) -> Any:
        there = saved("panels", [])
        shutil.copy(DATA / f"own_h200_{name}.json.gz", there.folder / "rank0.trace.json.gz")
        devices = [H200 | {"kind": "cpu", "name": "Test CPU"}, H200, H200 | {"index": 1}]
        there.change(trace="rank0.trace.json.gz", recorded=[], unprofiled=[], devices=devices)
        return there

    return save


@pytest.fixture
def of_cpu(saved: Callable[..., Any]) -> Any:
    """The small run as it is: 4 x 64 x 64."""
    there = saved("panels", [])
    shutil.copytree(DATA / "small_run", there.folder, dirs_exist_ok=True)
    return there


def shape_of(op: str = "linalg_qr", sizes: str = "[[6, 500, 400]]", dtype: str = "float") -> PanelShape:
    full_op = f"aten::{op}"
    return PanelShape(
        op=full_op, shapes=sizes, dtype=dtype, library="MAGMA", size=problem(full_op, sizes), note="", calls=1.0,
        ns=2e6, phases=None, gap=None, parts={}, gflops=None, lost=0, members=(0,),
    )  # fmt: skip


# --- what is printed


def test_the_page_of_one_shape(of_h200: Callable[[str], Any], prober: Prober) -> None:
    printed = of_h200("qr_loop_8x512").out("--probe")
    assert PAGE in printed
    assert printed.splitlines()[0].split()[:2] == ["run", "20260131-120000-train:"]
    assert printed.splitlines()[1].startswith("coverage  trusted")
    assert prober.asked == [("linalg_qr", 1, 512, 512)]
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) <= 80


def test_shapes_of_most_time_come_first_and_those_not_served_are_named(
    of_h200: Callable[[str], Any], prober: Prober
) -> None:
    lines = of_h200("soap_qr").out("--probe", "--top", "2").splitlines()
    assert prober.asked == [("linalg_qr", 1, 2048, 2048), ("linalg_qr", 1, 512, 512)]
    first = lines.index("linalg_qr 2048 x 2048 float")
    assert lines[first + 1].startswith("recorded: 8 calls a step, ")
    assert lines[first + 2 : first + 5] == ["not probed: that is too tall", "", "linalg_qr 512 x 512 float"]
    assert lines[-2:] == ["", "1 other shape"]


def test_json_is_the_page_as_data(of_h200: Callable[[str], Any], prober: Prober) -> None:
    there = of_h200("soap_qr")
    record, recorded = there.json("--probe"), there.json()
    assert (record["recorded_on"], record["probed_on"]) == (["NVIDIA H200"], "Test GPU")
    assert (record["run"], record["coverage"]) == (recorded["run"], recorded["coverage"])
    tall, small, _ = record["shapes"]
    assert small == {
        "op": "aten::linalg_qr",
        "shapes": recorded["shapes"][1]["shapes"],
        "dtype": "float",
        "size": {"batch": 1, "m": 512, "n": 512},
        "calls": 22.0,
        "recorded": {
            "library": "cuSOLVER",
            "ns": recorded["shapes"][1]["ns"],
            "geqrf_ns": recorded["shapes"][1]["parts_ns"]["geqrf"],
            "note": "",
        },
        "probe": {
            "phases_ns": PHASES,
            "shares": {"geqr2": 0.5, "larft": 0.125, "larfb": 1 / 3, "copy": 1 / 24},
            "launches": 117,
            "sum_ns": 6e6,
            "plain_ns": 5e6,
            "ratio": 1.2,
        },
        "reason": "",
    }
    assert list(small["probe"]["phases_ns"]) == ["geqr2", "larft", "larfb", "copy"]
    assert (tall["probe"], tall["reason"]) == (None, "that is too tall")


def test_a_run_on_a_cpu_is_probed_too(of_cpu: Any, prober: Prober) -> None:
    lines = of_cpu.out("--probe").splitlines()
    assert "recorded  on Test CPU" in lines
    assert "recorded: 1 call a step, 500 us each; LAPACK: not split" in lines
    assert prober.asked == [("linalg_qr", 4, 64, 64)]


def test_a_run_without_qr_says_so(of_h200: Callable[[str], Any], prober: Prober) -> None:
    there = of_h200("mlp_eager")
    assert "panels    no calls of geqrf or linalg_qr in the recorded steps" in there.out("--probe").splitlines()
    assert there.json("--probe")["shapes"] == []
    assert prober.asked == []


# --- what is probed


def test_calls_that_factor_nothing_are_left_out() -> None:
    shapes = [shape_of(op) for op in ("linalg_qr", "geqrf", "qr")]
    others = [shape_of(op, "[[6, 500, 400], [6, 400]]") for op in ("linalg_householder_product", "orgqr")]
    assert probed.factored([others[0], *shapes, others[1]]) == shapes


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (shape_of(dtype="double"), "the kernels take float32, not float64"),
        (shape_of(dtype="c10::complex<float>"), "the kernels take float32, not complex64"),
        (shape_of(dtype=""), "the kernels take float32, and the trace does not say what these are"),
        (shape_of(sizes=""), "its shape is not in the trace"),
        (shape_of(sizes="[[5]]"), "its shape is not in the trace"),
        (shape_of(sizes="[[3000, 4]]"), "that is too tall"),
    ],
)
def test_what_is_not_probed_has_a_reason(shape: PanelShape, reason: str) -> None:
    found = probed.rerun(shape, probed.Gpu("Test GPU", Prober()))
    assert found == probed.Probed(shape, None, reason)


@pytest.mark.parametrize(
    ("op", "sizes", "asked"),
    [
        ("geqrf", "[[6, 500, 400]]", ("geqrf", 6, 500, 400)),
        ("geqrf", "[[2, 3, 500, 400]]", ("geqrf", 6, 500, 400)),
        ("geqrf", "[[40, 400]]", ("geqrf", 1, 40, 400)),
        ("qr", "[[7, 7]]", ("linalg_qr", 1, 7, 7)),
    ],
)
def test_matrices_of_a_batch_of_any_rank(op: str, sizes: str, asked: tuple[str, int, int, int]) -> None:
    prober = Prober()
    found = probed.rerun(shape_of(op, sizes), probed.Gpu("Test GPU", prober))
    assert found.probe is not None
    assert prober.asked == [asked]


def test_a_profiler_that_records_no_kernels() -> None:
    found = probed.rerun(shape_of(), probed.Gpu("Test GPU", lambda *shape: Probe(6, 500, 400, {}, 0, 5e6)))
    assert found.probe is None
    assert "qrprof doctor" in found.reason


# --- what it needs


def test_without_a_gpu_one_sentence_before_a_run_is_read_or_a_kernel_loaded(tmp_path: Path) -> None:
    code = "import sys; from qrprof.tui.cli import run; ended = run(['panels', '--probe']); print(*sys.modules)"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit(ended)"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (child.returncode, child.stderr) == (3, NO_GPU)
    loaded = set(child.stdout.split())
    assert "torch" in loaded
    assert not loaded & {"qrprof.kernels.probe", "qrprof.kernels.qr.lanes", "qrprof.kernels.qr.rows", "triton"}


def test_it_is_imported_without_torch(tmp_path: Path) -> None:
    code = "import sys, qrprof.tui.probed; print(*sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = child.stdout.split()
    assert "qrprof.tui.commands.panels" in loaded
    assert not {"torch", "triton"} & set(loaded)


def test_a_gpu_that_the_kernels_cannot_run_on(of_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(lanes, "usable", lambda lane, device: False)
    code, out, err = of_cpu.call("--probe")
    assert (code, out) == (3, "")
    assert err.startswith("qrprof: --probe cannot run the kernels on Tesla T4: they need ")


def test_csv_has_no_probe(of_cpu: Any) -> None:
    code, out, err = of_cpu.call("--probe", "--csv")
    assert (code, out) == (2, "")
    assert "--probe prints no block columns; give it without --csv" in err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore")
def test_on_a_gpu(of_h200: Callable[[str], Any]) -> None:
    there = of_h200("qr_loop_8x512")
    record = there.json("--probe")
    (shape,) = record["shapes"]
    assert record["probed_on"] == torch.cuda.get_device_name()
    assert shape["reason"] == ""
    assert sum(shape["probe"]["phases_ns"].values()) == pytest.approx(shape["probe"]["sum_ns"])
