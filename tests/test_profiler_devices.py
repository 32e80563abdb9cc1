import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from qrprof.profiler import devices
from qrprof.profiler.devices import Peaks, Sizes
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.runinfo import DeviceInfo, RunInfo

PEAKS = Peaks(
    schema_number=1,
    kind="cpu",
    name="Fast CPU @ 3 GHz",
    uuid="",
    torch="2.13.0",
    threads=2,
    measured_at="2026-01-31T12:00:00+00:00",
    flops={"float": 6e10, "bfloat16": 3e11, "double": 3e10},
    copy_bytes_per_s=2e10,
    launch_ns=1800.0,
    repeats=7,
    spread={"float": 0.1},
)
GPU = PEAKS.model_copy(update={"kind": "cuda", "name": "NVIDIA H200"})


RUN = RunInfo.model_validate_json("""{
    "schema_number": 1, "id": "r", "created": "", "command": [], "cwd": "/", "step_source": "whole run", "rank": 0,
    "world_size": 1, "versions": {}, "devices": [], "threads": 2, "period": null, "kinds": [], "unprofiled": [],
    "recorded": [], "linalg": [], "repeats": [], "notes": [], "trace": "", "exit_code": 0
}""")


def run_on(*found: DeviceInfo, threads: int = 2) -> RunInfo:
    return RUN.model_copy(update={"devices": list(found), "threads": threads})


def device(kind: str, name: str) -> DeviceInfo:
    return DeviceInfo(index=0, kind=kind, name=name, memory_bytes=1 << 30)


def test_rates_follow_from_the_median_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "product_ns", lambda where, name, n: [900.0, 1000.0, 1200.0])
    monkeypatch.setattr(devices, "copy_ns", lambda where, size: [400.0, 500.0, 500.0])
    monkeypatch.setattr(devices, "launch_ns", lambda where, launches: [7.0, 9.0, 8.0])
    peaks = devices.measure("cpu", Sizes({"float": 100, "double": 10}, copy_bytes=1000, launches=3))
    assert peaks.flops == {"float": 2e12, "double": 2e9}  # 2e6 and 2e3 flop in 1 us
    assert peaks.copy_bytes_per_s == 4e9  # 1000 read and 1000 written in 500 ns
    assert peaks.launch_ns == 8
    assert peaks.spread == {"float": 0.3, "double": 0.3, "copy": 0.2, "launch": 0.25}


def test_a_real_measurement_describes_this_cpu() -> None:
    peaks = devices.measure("cpu", Sizes({"float": 32, "bfloat16": 32}, copy_bytes=1 << 16, launches=10))
    assert (peaks.kind, peaks.name, peaks.threads) == ("cpu", devices.cpu_name(), torch.get_num_threads())
    assert peaks.flops.keys() == {"float", "bfloat16"}
    assert peaks.name


def test_products_leave_the_precision_flag_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = torch.backends.cuda.matmul
    seen = []

    def broken(where: torch.device, call: object) -> list[float]:
        seen.append(matmul.fp32_precision)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(devices, "samples", broken)
    before = matmul.fp32_precision
    for name in ("tf32", "float"):
        with pytest.raises(RuntimeError):
            devices.product_ns(torch.device("cpu"), name, 4)
    assert seen == ["tf32", "ieee"]
    assert matmul.fp32_precision == before


@pytest.mark.parametrize("name", ["cuda:64", "abacus", "meta"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(QrprofError, match=name) as caught:
        devices.measure(name)
    assert caught.value.exit_code == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_measured_by_type() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    peaks = devices.measure("cuda", Sizes({"float": 512, "tf32": 512, "bfloat16": 512, "double": 512}, 1 << 24, 50))
    assert peaks.kind == "cuda"
    assert peaks.uuid
    assert peaks.flops.keys() == {"float", "tf32", "bfloat16", "double"}
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_saved_peaks_are_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "devices"
    path = devices.save(PEAKS, folder)
    assert path == folder / "cpu-fast-cpu-3-ghz-2-threads.json"
    assert devices.load(path) == PEAKS
    assert [found.name for found in folder.iterdir()] == [path.name]


@pytest.mark.parametrize("change", [{"schema_number": 2}, {"launch_ns": 0}, {"flops": {"float": -1}}, {"more": 1}])
def test_an_unknown_or_senseless_record_is_not_measured(tmp_path: Path, change: dict[str, Any]) -> None:
    path = devices.save(PEAKS, tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert devices.load(path) is None


def test_a_broken_or_missing_file_is_not_measured(tmp_path: Path) -> None:
    path = devices.save(PEAKS, tmp_path)
    path.write_bytes(path.read_bytes()[:-20] + b"\xff")
    assert devices.load(path) is None
    assert devices.load(tmp_path / "none.json") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QrprofError, match="QRPROF_CACHE"):
        devices.save(PEAKS, tmp_path / "file")


def test_peaks_are_found_by_the_run_s_device(tmp_path: Path) -> None:
    devices.save(PEAKS, tmp_path)
    devices.save(GPU, tmp_path)
    cpu, gpu = device("cpu", PEAKS.name), device("cuda", GPU.name)
    assert devices.peaks_for(run_on(cpu), tmp_path) == PEAKS
    assert devices.peaks_for(run_on(gpu, cpu, threads=16), tmp_path) == GPU


def test_peaks_of_another_device_are_not_taken(tmp_path: Path) -> None:
    devices.save(PEAKS, tmp_path)
    cpu = device("cpu", PEAKS.name)
    assert devices.peaks_for(run_on(cpu, threads=4), tmp_path) is None
    assert devices.peaks_for(run_on(device("cuda", "NVIDIA H200"), cpu), tmp_path) is None
    assert devices.peaks_for(run_on(device("cpu", "Fast CPU (3 GHz)")), tmp_path) is None  # the same file name
    assert devices.peaks_for(run_on(), tmp_path) is None


def test_the_cache_folder_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QRPROF_CACHE", os.fspath(tmp_path))
    assert devices.devices_folder() == tmp_path / "devices"
