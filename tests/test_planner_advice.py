from typing import Any

import pytest

from qrprof.planner.advice import Facts, advise
from qrprof.planner.estimate import Basis, Estimate
from qrprof.profiler.devices import Peaks
from qrprof.profiler.runinfo import LinalgCall, RunInfo, StepKind

RUN = RunInfo.model_validate_json("""{
    "schema_number": 1, "id": "r", "created": "", "command": [], "cwd": "/", "step_source": "optimizer AdamW",
    "rank": 0, "world_size": 1, "versions": {}, "devices": [], "threads": 2, "period": 1, "kinds": [], "unprofiled": [],
    "recorded": [], "linalg": [], "repeats": [], "notes": [], "trace": "", "exit_code": 0
}""")
RANK = RUN.model_copy(update={"world_size": 2})
GPU = Peaks(
    schema_number=1,
    kind="cuda",
    name="GPU",
    uuid="",
    torch="2.13.0",
    threads=2,
    measured_at="2026-01-31T12:00:00+00:00",
    flops={"float": 5e13, "tf32": 4e14},
    copy_bytes_per_s=1e12,
    launch_ns=8000.0,
    repeats=7,
    spread={},
)
QR = LinalgCall(
    op="aten::linalg_qr",
    shape=[512, 512],
    dtype="float32",
    strides=[512, 1],
    device="cuda",
    site="soap.py:120",
    calls_per_step=1.6,
    ns_per_step=None,
)


def facts(key: str, **more: Any) -> Facts:
    known: dict[str, Any] = {"key": key, "ns": 9e6, "step_ns": 30e6, "calls": 3.0, "on_device": True, "run": RUN}
    known |= {"peaks": GPU, "flops": 0.0, "same_calls": 1.0, "tf32": False, "host_copy": False, "linalg": ()}
    known |= dict.fromkeys(("work_kind", "shapes", "dtype", "phase", "blamed", "where"), "") | {"blamed_ns": 0.0}
    return Facts(**{**known, "achievable": Estimate(1e6, 2e6, 3e6, Basis.ROOFLINE), **more})


PAUSE = {"blamed": "a pause in augment", "blamed_ns": 6e6, "where": "augment", "on_device": False}
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FLOAT_PRODUCT = {"work_kind": "product", "dtype": "float", "flops": 4e11}  # 8 of 9 ms at the float peak


@pytest.mark.parametrize(
    ("found", "advice", "why"),
    [
        (facts("gap:data", blamed=LOADER), "num_workers=4", "2.00 ms would be left"),
        (facts("gap:data", blamed=WORKERS), "prefetch_factor", "keep up"),
        (
            facts("gap:sync", blamed="aten::item", where="train.py:7"),
            ".item()",
            "most of it in aten::item at train.py:7",
        ),
        (facts("gap:copy", blamed="aten::copy_"), "non_blocking=True", "30.0 %"),
        (facts("gap:alloc"), "PYTORCH_ALLOC_CONF", "9.00 ms of a step of 30.0 ms"),
        (facts("gap:launch", calls=None), "CUDA graph", "a launch costs the host 8.00 us"),
        (facts("gap:host"), "Python between the ops", "while the host runs no op"),
        (facts("gap:host", on_device=False), "torch.compile", "python and the framework between ops"),
        (facts("gap:host", on_device=False, run=RANK), "`qrprof ranks` first", "and waiting for ranks, takes 9.00 ms"),
        (facts("gap:host", **PAUSE), "Profile your own Python in augment", "6.00 ms of it in a pause in augment"),
        (facts("gap:host", **PAUSE, run=RANK), "`qrprof ranks` first", "most of it in a pause in augment."),
        (facts("gap:unknown"), "CPU activities", "the trace does not show the host, 9.00 ms"),
        (facts("unattributed"), "Record more steps", "without a launch"),
        (facts("cudaGraphLaunch"), "CUDA graphs", "What cudaGraphLaunch launches"),
        (facts("aten::copy_", host_copy=True, work_kind="elementwise"), "pinned", "between host and device"),
        (facts("aten::mm", **FLOAT_PRODUCT), "TF32", "8.00x as fast (400 TFLOP/s against 50.0 TFLOP/s)"),
        (facts("aten::mm", **FLOAT_PRODUCT, peaks=None), "TF32", "outside the tensor cores"),
        (facts("aten::mul", work_kind="elementwise"), "torch.compile", "alone it needs 2.00 ms to 3.00 ms"),
        (facts("aten::view", work_kind="none"), "torch.compile", "framework"),
        (facts("autograd::engine::evaluate_function: MulBackward0"), "torch.compile", "framework"),
        (facts("aten::_softmax", work_kind="memory"), "Replace _softmax", "needs 1.00 ms to 3.00 ms on this device"),
        (facts("my::op", achievable=Estimate(0, None, 9e6, Basis.CEILING)), "Replace my::op", "nothing better"),
    ],
)
def test_each_cause_has_its_advice(found: Facts, advice: str, why: str) -> None:
    told = advise(found)
    assert advice in told[0]
    assert why in told[1]


@pytest.mark.parametrize(
    "more",
    [
        {"tf32": True},
        {"on_device": False},
        {"dtype": "c10::BFloat16"},
        {"flops": 1e10},  # 0.2 of 9 ms: latency, not arithmetic
    ],
)
def test_tf32_is_advised_only_where_float_arithmetic_takes_the_time(more: dict[str, Any]) -> None:
    assert "TF32" not in advise(facts("aten::mm", **{**FLOAT_PRODUCT, **more}))[0]


@pytest.mark.parametrize(
    ("source", "key", "advice"),
    [
        ("optimizer AdamW", "aten::_foreach_add_", "Give AdamW fused=True"),
        ("optimizer SOAP", "aten::mul", "torch.compile(optimizer.step)"),
        ("range train", "aten::lerp_", "torch.compile(optimizer.step)"),
    ],
)
def test_an_unfused_optimizer(source: str, key: str, advice: str) -> None:
    run = RUN.model_copy(update={"step_source": source})
    kind = "memory" if "foreach" in key else "elementwise"
    assert advice in advise(facts(key, run=run, phase="optimizer", work_kind=kind))[0]
    assert advice not in advise(facts(key, run=run, phase="forward", work_kind=kind))[0]


def test_a_fused_optimizer_is_not_told_to_fuse() -> None:
    assert "fused=True" not in advise(facts("aten::_fused_adamw_", phase="optimizer", work_kind="memory"))[0]
    counters = facts("aten::_foreach_add_", phase="optimizer", work_kind="elementwise", fused=True)
    assert "fused=True" not in advise(counters)[0]


def test_many_qr_calls_of_one_shape_are_one_batch() -> None:
    kinds = [
        StepKind(name="A", label="no linalg calls", frequency=0.9),
        StepKind(name="B", label="17 linalg_qr", frequency=0.1),
    ]
    other = QR.model_copy(update={"shape": [64, 64], "calls_per_step": 0.1})
    found = facts(QR.op, run=RUN.model_copy(update={"kinds": kinds}), linalg=(other, QR))
    advice, why = advise(found)
    assert "linalg_qr once on the batch" in advice
    assert "16 with 512 x 512 at soap.py:120 in one step" in why  # 1.6 a step, all of them in each tenth


def test_the_trace_counts_where_the_recorder_did_not() -> None:
    found = facts(QR.op, shapes="[[8,8],[]]", same_calls=4.0, where="train.py:3")
    advice, why = advise(found)
    assert "batch" in advice
    assert "4 with 8 x 8 at train.py:3 in one step" in why


def test_a_single_qr_needs_a_faster_kernel() -> None:
    found = facts(QR.op, linalg=(QR,), flops=9e10)
    advice, why = advise(found)
    assert "faster QR kernel" in advice
    assert "at 10.0 TFLOP/s; its work needs 1.00 ms to 3.00 ms" in why


def test_a_batched_qr_on_a_cpu_is_shared_over_threads() -> None:
    batch = QR.model_copy(update={"shape": [8, 64, 64], "calls_per_step": 1.0, "device": "cpu"})
    assert "over threads" in advise(facts(QR.op, linalg=(batch,), on_device=False))[0]
    single = QR.model_copy(update={"calls_per_step": 1.0, "device": "cpu"})
    assert "faster QR kernel" in advise(facts(QR.op, linalg=(single,), on_device=False))[0]


def test_withheld_times_are_told_as_recorded() -> None:
    for key in ("gap:data", "gap:sync", "aten::linalg_qr", "aten::_softmax"):
        why = advise(facts(key, step_ns=None, achievable=None))[1]
        assert "9.00 ms as recorded" in why
        assert "%" not in why
