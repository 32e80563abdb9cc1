"""`qrprof doctor`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qrprof.profiler.devices import Peaks, cpu_name
from qrprof.tui.cli import run


def doctor(*args: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "qrprof", "doctor", *args],
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "QRPROF_CACHE": str(cwd / "cache"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def states(record: Any) -> dict[str, str]:
    return {check["what"]: check["state"] for check in record["checks"]}


def broken(folder: Path, package: str) -> str:
    """A PYTHONPATH on which `package` cannot be imported."""
    (folder / "path").mkdir()
    (folder / "path" / f"{package}.py").write_text("raise ImportError('libcudart.so.13: no [red]file[/red]')\n")
    return str(folder / "path")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with an empty cache, for commands that run in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")  # or the command would set it for good
    return tmp_path


def test_each_line_has_a_glyph_and_a_word(tmp_path: Path) -> None:
    child = doctor(cwd=tmp_path)
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout.isascii()
    lines = [line.split() for line in child.stdout.splitlines()]
    assert lines[0] == ["state", "what", "found"]
    rows = {line[2]: line[:2] for line in lines[1:] if line[0] in "+!x"}
    assert rows["python"] == rows["torch"] == rows["profiler"] == rows["cpu"] == ["+", "ok"]
    assert rows["peaks"] == ["!", "warn"]
    assert "not measured; run `qrprof doctor --measure`" in " ".join(child.stdout.split())


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    assert doctor(cwd=tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_without_torch_it_fails_and_says_why(tmp_path: Path) -> None:
    path = broken(tmp_path, "torch")
    child = doctor(cwd=tmp_path, PYTHONPATH=path)
    assert child.returncode == 1
    text = " ".join(child.stdout.split())
    assert "x fail torch cannot be imported (libcudart.so.13: no [red]file[/red])" in text
    assert "`pip install torch`" in text
    assert "+ ok python" in text
    record = json.loads(doctor("--json", "--measure", cwd=tmp_path, PYTHONPATH=path).stdout)
    assert (record["ok"], record["peaks"], states(record)["torch"]) == (False, [], "fail")


def test_without_triton_it_warns(tmp_path: Path) -> None:
    child = doctor("--json", cwd=tmp_path, PYTHONPATH=broken(tmp_path, "triton"))
    record = json.loads(child.stdout)
    assert child.returncode == 0
    assert record["ok"] is True
    assert (states(record)["torch"], states(record)["triton"]) == ("ok", "warn")


def peaks_of_this_cpu(spread: float) -> Peaks:
    import torch

    return Peaks(
        schema_number=1,
        kind="cpu",
        name=cpu_name(),
        uuid="",
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        measured_at="2026-01-31T12:00:00+00:00",
        flops={"float": 100e9, "double": 50e9},
        copy_bytes_per_s=10 * 2**30,
        launch_ns=1500.0,
        repeats=7,
        spread={"float": spread, "copy": 0.01},
    )


def test_measured_peaks_are_kept_and_dated(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def measure(device: str) -> Peaks:
        measured.append(device)
        return peaks_of_this_cpu(spread=0.1)

    monkeypatch.setattr("qrprof.tui.commands.doctor.measure", measure)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(["doctor", "--measure"]) == 0
    printed = capsys.readouterr()
    assert measured == ["cpu"]
    assert printed.err == f"qrprof: measuring {cpu_name()}\n"
    found = "measured 2026-01-31: float 100 GFLOP/s, double 50.0 GFLOP/s, copy 10.0 GiB/s, launch 1.50 us"
    assert found in " ".join(printed.out.split())

    assert run(["doctor", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert measured == ["cpu"]
    assert states(record)["peaks"] == "ok"
    assert [(peaks["name"], peaks["flops"]["float"]) for peaks in record["peaks"]] == [(cpu_name(), 100e9)]


def test_a_store_that_cannot_be_written_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / ".qrprof").write_text("a file in the place of the folder")
    (here / ".qrprof").chmod(0o600)
    assert run(["doctor", "--json"]) == 1
    assert states(json.loads(capsys.readouterr().out))["store"] == "fail"


def test_a_profiler_that_does_not_work_fails(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def profile(**options: Any) -> None:
        raise RuntimeError("kineto is not available")

    monkeypatch.setattr("torch.profiler.profile", profile)
    assert run(["doctor"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "x fail profiler torch.profiler does not work here: kineto is not available" in text


def test_no_gpu_is_a_fact_and_one_that_torch_cannot_use_a_warning(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for gpus, state, said in ((0, "ok", "no GPU"), (2, "warn", "driver 580.65 knows 2")):
        monkeypatch.setattr("qrprof.tui.commands.doctor.nvidia_driver", lambda gpus=gpus: ("580.65", gpus))
        assert run(["doctor", "--json"]) == 0
        (check,) = (c for c in json.loads(capsys.readouterr().out)["checks"] if c["what"] == "cuda")
        assert check["state"] == state
        assert said in check["found"]


@pytest.mark.gpu
def test_a_gpu_is_named_and_its_kernels_are_recorded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    record = json.loads(doctor("--json", cwd=tmp_path).stdout)
    found = {check["what"]: check["found"] for check in record["checks"]}
    assert torch.cuda.get_device_name(0) in found["cuda:0"]
    assert found["profiler"].endswith("ops and kernels")


def test_peaks_of_a_busy_machine_are_doubted(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("qrprof.tui.commands.doctor.measure", lambda device: peaks_of_this_cpu(spread=0.6))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(["doctor", "--measure"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the times moved by 60.0 %: something else had the device" in printed
    assert "run `qrprof doctor --measure` again when it is quiet" in printed
    assert run(["doctor", "--json"]) == 0
    assert states(json.loads(capsys.readouterr().out))["peaks"] == "warn"
