"""Times of the included kernels: kept for a device, and what a ranking and a what-if make of them."""

from pathlib import Path
from typing import Any

import pytest
from test_planner_targets import GPU, RUN, by_key, divided, gap, op

from qrprof.kernels.times import Call, Timed, Times, keep, load, times_file, times_for
from qrprof.planner.estimate import Basis
from qrprof.planner.measured import calls_of, measured_for, per_call, untimed
from qrprof.planner.replay.levers import find_levers
from qrprof.planner.replay.model import model_of
from qrprof.planner.targets import rank
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.runinfo import RunInfo
from qrprof.profiler.trace import Trace

QR = ("aten::linalg_qr", "[[8,64,64]]", "float")
SIGNATURE = ("linalg_qr", (8, 64, 64), "float32")
OWN = Call(host=60e3, call=150e3, call_p95=160e3, device=100e3, device_p05=90e3, device_p95=120e3)
STOCK = Call(host=500e3, call=900e3, call_p95=950e3, device=800e3, device_p05=790e3, device_p95=820e3)
VERSIONS = {"torch": "2.13.0", "triton": "3.7.1", "qrprof": "0.1.0"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path))
    return tmp_path


def timed(shape: tuple[int, ...] = SIGNATURE[1], **more: Any) -> Timed:
    fields = {"op": "linalg_qr", "dtype": "float32", "lane": "cuda-blocked", "own": OWN, "stock": STOCK, "at": ""}
    return Timed(**{**fields, "shape": list(shape), **more})


def times(*of: Timed, **more: Any) -> Times:
    fields: dict[str, Any] = {"kind": "cuda", "name": "GPU", "threads": 2, "versions": VERSIONS}
    return Times(schema_number=1, timed=list(of), **{**fields, **more})


def run_on(name: str = "GPU", kind: str = "cuda", threads: int = 2, **versions: str) -> RunInfo:
    device = {"index": 0, "kind": kind, "name": name, "memory_bytes": 1}
    return RunInfo.model_validate(
        {**RUN.model_dump(), "devices": [device], "threads": threads, "versions": VERSIONS | versions}
    )


def test_what_is_kept_is_of_one_device_and_of_the_versions_that_ran() -> None:
    keep(times(timed()))
    assert [one.signature for one in times_for(run_on())] == [SIGNATURE]
    assert not times_for(run_on("Another GPU"))
    assert not times_for(run_on(torch="2.12.0"))
    assert not times_for(RUN)  # which names no device


def test_a_cpu_s_times_are_of_as_many_threads() -> None:
    keep(times(timed(), kind="cpu", name="CPU"))
    assert times_for(run_on("CPU", "cpu"))
    assert not times_for(run_on("CPU", "cpu", threads=8))


def test_times_add_up_and_newer_ones_replace_those_of_the_same_input() -> None:
    keep(times(timed(), timed((4, 8))))
    keep(times(timed(at="later")))
    kept = {one.signature: one.at for one in times_for(run_on())}
    assert kept == {SIGNATURE: "later", ("linalg_qr", (4, 8), "float32"): ""}


def test_other_versions_replace_everything() -> None:
    keep(times(timed(), timed((4, 8))))
    keep(times(timed(), versions=VERSIONS | {"torch": "2.14.0"}))
    assert not times_for(run_on())
    assert len(times_for(run_on(torch="2.14.0"))) == 1


@pytest.mark.parametrize("text", ["", "{", '{"schema_number": 2}', '{"schema_number": 1, "timed": 3}'])
def test_a_broken_file_means_that_nothing_was_timed(text: str) -> None:
    path = times_file("cuda", "GPU", 2)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert load(path) is None
    assert not times_for(run_on())
    keep(times(timed()))
    assert times_for(run_on())


def test_a_cache_that_cannot_be_written_is_said(cache: Path) -> None:
    (cache / "devices").write_text("a file")
    with pytest.raises(QrprofError, match="set QRPROF_CACHE to a writable folder"):
        keep(times(timed()))


def test_a_timed_call_is_the_basis_of_a_gain() -> None:
    """Two calls of 100 us where 1 ms was, between the device's fastest and a call that waits."""
    found = divided(op(QR[0], 1e6, *QR[1:]), gap("gap:host", 1e6), calls=2)
    target = by_key(rank(found, RUN, GPU, None, None, {SIGNATURE: per_call(timed())}))[QR[0]]
    left, gain = target.achievable_ns, target.gain_ns
    assert left is not None
    assert gain is not None
    assert (left.low, left.mid, left.high, left.basis) == (180e3, 200e3, 300e3, Basis.MEASURED)
    assert (gain.low, gain.mid, gain.high, gain.basis) == (700e3, 800e3, 820e3, Basis.MEASURED)
    assert target.advice == "Swap in the included kernels: `qrprof swaps accept qr`."
    assert "timed on this device, need 200 us for these calls" in target.why


def test_a_host_that_launches_less_gains_where_the_device_waits_for_it(build: Any) -> None:
    """Four QRs a step take the host 20 us each and the device 10 us, which waits in between: 100 us a step."""
    us, rows = 1000, []
    for number, at in enumerate((0, 100_000)):
        rows.append(build.mark(number, at))
        for n in range(4):
            host, correlation = at + (5 + 20 * n) * us, 10 * number + n + 1
            rows += [
                build.op(QR[0], host, host + 20 * us, shapes=QR[1], dtypes=QR[2]),
                build.launch(correlation, host + 17 * us, host + 19 * us),
                build.kernel("geqrf", host + 18 * us, host + 28 * us, correlation),
            ]
        rows.append(build.call("cudaDeviceSynchronize", at + 86 * us, at + 93 * us))
    run = build.run([100 * us] * 4, {0: 0.5, 1: 0.5})
    model = model_of(find_facts(Trace.from_rows([*rows, build.mark(2, 200 * us)]), run), run)
    assert model.withheld is None
    levers = find_levers(model)
    assert levers.gain(QR[0], 1.0) == pytest.approx(0.0, abs=us)
    # 20 us of the host are left. The first kernel starts 12.75 us earlier, at 10.25 us, and the others wait for the one
    # before alone: the last ends at 50.25 us instead of 93.
    assert levers.gain(QR[0], 1.0, 20.0 * us) == pytest.approx(42.75 * us, abs=1)
    assert levers.gain(QR[0], 1.0, 1e9) == pytest.approx(0.0, abs=us)  # a host that needs more is not believed


def test_a_kernel_that_is_slower_gains_nothing() -> None:
    found = divided(op(QR[0], 50e3, *QR[1:]))
    target = by_key(rank(found, RUN, GPU, None, None, {SIGNATURE: per_call(timed())}))[QR[0]]
    assert target.gain_ns is not None
    assert (target.gain_ns.low, target.gain_ns.mid, target.gain_ns.high) == (0.0, 0.0, 0.0)


def test_where_too_little_was_timed_the_basis_is_the_weaker_one() -> None:
    other = op(QR[0], 1e6, "[[8,48,48]]", "float")
    found = divided(op(QR[0], 1e6, *QR[1:]), other)
    target = by_key(rank(found, RUN, GPU, None, None, {SIGNATURE: per_call(timed())}))[QR[0]]
    assert target.achievable_ns is not None
    assert target.achievable_ns.basis is Basis.ROOFLINE
    alone = by_key(rank(found, RUN, None, None, None, {SIGNATURE: per_call(timed())}))[QR[0]]
    assert alone.achievable_ns is not None
    assert alone.achievable_ns.basis is Basis.CEILING


def test_the_calls_of_a_run_that_have_an_included_kernel() -> None:
    small = op(QR[0], 1e3, "[[1,2,2]]", "double")
    found = divided(small, op(QR[0], 1e6, *QR[1:]), op("aten::mm", 1e6, "[[8,8],[8,8]]", "float"), calls=3)
    assert [(one.signature, one.calls, one.ns) for one in calls_of(found)] == [
        (SIGNATURE, 3, 1e6),
        (("linalg_qr", (1, 2, 2), "float64"), 3, 1e3),
    ]
    # What no lane serves need not be timed.
    assert [one.signature for one in untimed(found, run_on())] == [SIGNATURE]
    keep(times(timed()))
    assert not untimed(found, run_on())
    assert measured_for(run_on()) == {SIGNATURE: per_call(timed())}
