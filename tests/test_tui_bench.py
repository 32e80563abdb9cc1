"""`qrprof bench`: the page, the file, the exit codes. Times come as they come; none is asserted."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qrprof.kernels.bench import Result, Setup
from qrprof.kernels.bench_cases import SETS, Case
from qrprof.kernels.bench_cases import small as small_cases
from qrprof.kernels.timing import EAGER, GRAPH, HostClock, Measured, Timing
from qrprof.profiler.devices import Peaks, cpu_name, devices_folder, save
from qrprof.tui.cli import run
from qrprof.tui.commands import bench as command
from qrprof.tui.output import write

TINY = [{"batch": 3, "n": 8, "seed": 5}, {"batch": 2, "m": 12, "n": 5, "case": "band"}]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of two tiny cases, on a machine without a GPU where nothing is measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(command, "SECONDS", 0.0)
    monkeypatch.setattr(command, "QUICK_SECONDS", 0.0)
    (tmp_path / "cases.json").write_text(json.dumps(TINY))
    return tmp_path


def taken(device_ms: float) -> Measured:
    def timing(ms: float, calls: int, how: str) -> Timing:
        return Timing(20, calls, 1e6 * ms, 0.9e6 * ms, 1.1e6 * ms, "device events", how)

    return Measured(9e8, 1 << 20, timing(1.02 * device_ms, 1, EAGER), timing(device_ms, 13, GRAPH))


def test_the_command_is_imported_without_torch(tmp_path: Path) -> None:
    code = "import sys, qrprof.tui.commands.bench; print(*{name.split('.')[0] for name in sys.modules})"
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not set(child.stdout.split()) & {"torch", "triton", "numpy"}


# --- the page


def test_a_cpu_is_benched_and_the_page_says_what_was_not_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "qr", "--cases", "cases.json", "--quick"]) == 0
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if " of 2: " in line] == [
        "qrprof: 1 of 2: 3x8 dense",
        "qrprof: 2 of 2: 2x12x5 band",
    ]
    assert printed.out.isascii()
    lines = printed.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    words = ["case", "lane", "device", "call", "GFLOP/s", "floor", "torch", "1", "cpu", "error", "check"]
    header = next(number for number, line in enumerate(lines) if line.split() == words)
    assert lines[header + 1].split()[:3] == ["3x8", "dense", "torch"]
    assert [line.split()[-1] for line in lines[header + 1 : header + 3]] == ["ok", "ok"]
    text = " ".join(printed.out.split())
    assert "no CUDA device: the CUDA lanes (cuda-blocked, cuda-tall, triton-small, triton-blocked) were not run" in text
    assert "are not measured; run `qrprof doctor --measure`" in text
    assert "sums torch, 2 of 2 cases: device" in text
    assert "loop of calls: a CPU has no graphs (host clock)" in text
    assert "geomean" not in text  # which only the contest defines


def test_measured_peaks_give_the_floor(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peaks = Peaks(
        schema_number=1,
        kind="cpu",
        name=cpu_name(),
        uuid="",
        torch="2",
        threads=torch.get_num_threads(),
        measured_at="2026-01-01T00:00:00+00:00",
        flops={"float": 1e9},
        copy_bytes_per_s=1e9,
        launch_ns=1.0,
        repeats=1,
        spread={},
    )
    save(peaks, devices_folder())
    assert run(["bench", "qr", "--cases", "cases.json", "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert not any("not measured" in note for note in record["notes"])
    first = record["cases"][0]
    assert first["floor_ms"] > 0
    assert first["floor_share"] == pytest.approx(first["floor_ms"] / first["device_ms"])


def gpu_results(cases: tuple[Case, ...]) -> list[Result]:
    """As on a GPU: one case failed, one has a peer without times, one fell back."""
    found = [
        Result(case, "triton-blocked", None, 3e5, ours=taken(12.3 + n), peers={"torch": taken(997.0 * n + 1)})
        for n, case in enumerate(cases)
    ]
    found[1] = Result(cases[1], "triton-blocked", None, None, failed="OutOfResources: shared memory, [red]227 KB[/red]")
    found[2] = replace(found[2], lane="torch", fallback="triton-blocked does not work here")
    return [replace(one, peers={**one.peers, "multistream": "OutOfMemoryError: all gone"}) for one in found]


def test_a_page_of_the_contest_on_a_gpu_fits_80_columns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = SETS["tests"]
    setup = Setup(torch.device("cpu"), ("torch", "multistream"), 1.0, HostClock(), HostClock())
    job = command.Job("tests", cases, len(cases), True, setup, "NVIDIA H200", 0.1, [])
    write(command.page(job, gpu_results(cases)))
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith(("20x32", "40x"))}
    assert rows["40x176"][-1] == "failed"
    assert rows["40x176"][3:8] == ["-"] * 5
    assert rows["40x352"][2] == "torch*"
    assert rows["20x32"][3:5] == ["12.3", "12.5"]
    text = " ".join(out.split())
    assert "failed 40x176 dense: OutOfResources: shared memory, [red]227 KB[/red]" in text
    assert "multistream on 20x32 dense: OutOfMemoryError: all gone" in text
    assert "torch*: triton-blocked does not work here" in text
    spread = "p05 to p95 at most 20 % of the median"
    assert f"device CUDA graph (device events); n = 20, of 13 calls each; {spread}" in text
    assert f"call one eager call on an idle device (device events); n = 20; {spread}" in text
    assert "first 900 ms at most" in text
    assert "memory 1.00 MiB beside the input at most" in text
    assert "torch, 21 of 22 cases:" in text


def test_large_cases_are_left_to_a_gpu_or_a_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = command.prepare("contest", None, 1.0)
    assert job.cases == small_cases(SETS["contest"])
    assert any("9 cases that take a CPU long were left out" in note for note in job.notes)
    (here / "large.json").write_text('[{"batch": 640, "n": 512}]')
    job = command.prepare("large.json", None, 1.0)
    assert [case.label for case in job.cases] == ["640x512 dense"]
    assert not any("left out" in note for note in job.notes)


# --- the file


def test_json_goes_to_a_file_or_to_stdout(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "qr", "--cases", "cases.json", "--against", "torch", "--json", "out.json"]) == 0
    assert "case" in capsys.readouterr().out  # and the page is printed
    written = json.loads((here / "out.json").read_text())
    assert run(["bench", "qr", "--cases", "cases.json", "--against", "torch", "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for record in (written, printed):
        assert record["schema"] == 1
        assert {"device", "versions", "date", "cases", "load", "complete", "summary"} <= set(record)
        assert record["complete"] is True
        assert record["versions"]["torch"] == torch.__version__
        assert [(case["batch"], case["m"], case["n"], case["case"]) for case in record["cases"]] == [
            (3, 8, 8, "dense"),
            (2, 12, 5, "band"),
        ]
        for case in record["cases"]:
            assert case["device_ms"] > 0
            assert case["call_ms"] > 0
            assert set(case["peers"]) == {"torch"}
    assert sorted(path.name for path in here.iterdir() if path.name != "cache") == ["cases.json", "out.json"]


def test_what_is_done_is_kept_when_the_run_is_interrupted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = command.measured, 0

    def second_is_interrupted(case: Case, setup: Setup) -> Result:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return real(case, setup)

    monkeypatch.setattr(command, "measured", second_is_interrupted)
    assert run(["bench", "qr", "--cases", "cases.json", "--json", "out.json"]) == 130
    record = json.loads((here / "out.json").read_text())
    assert [case["batch"] for case in record["cases"]] == [3]
    assert record["complete"] is False


# --- exit codes


def fail(case: Case, setup: Setup) -> Result:
    return Result(case, "torch", None, None, failed="RuntimeError: [b]no[/b]")


@pytest.mark.parametrize("options", [[], ["--json", "-"]])
def test_a_failed_case_is_exit_code_1(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    real: Callable[..., Result] = command.measured
    monkeypatch.setattr(command, "measured", lambda case, setup: (fail if case.m == 8 else real)(case, setup))
    assert run(["bench", "qr", "--cases", "cases.json", *options]) == 1
    out = capsys.readouterr().out
    assert "RuntimeError: [b]no[/b]" in out
    assert "band" in out


def test_a_wrong_result_is_exit_code_1(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoilt(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, tau = torch.geqrf(a)
        return h * 1.01, tau

    monkeypatch.setattr("qrprof.kernels.qr.geqrf", spoilt)
    assert run(["bench", "qr", "--cases", "cases.json"]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out
    assert "wrong     3x8 dense: strict" in out


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "WHAT"),
        (["lu"], 2, "lu"),
        (["qr", "--cases", "nope"], 2, "no set and no file 'nope'; sets are contest, tests, sweep"),
        (["qr", "--cases", "bad.json"], 2, "bad.json is no JSON"),
        (["qr", "--against", "torch,magma"], 2, "no peer 'magma'; there are torch, multistream, cpu"),
        (["qr", "--against", "multistream"], 3, "multistream needs a CUDA device"),
        (["qr", "--cases", "cases.json", "--json", "none/out.json"], 1, "cannot write none/out.json"),
    ],
)
def test_what_a_person_can_act_on_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: int, words: str
) -> None:
    (here / "bad.json").write_text("[")
    assert run(["bench", *args]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err


def test_no_peers_at_all_leaves_our_times(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "qr", "--cases", "cases.json", "--against", "", "--json", "-"]) == 0
    record: Any = json.loads(capsys.readouterr().out)
    assert record["cases"][0]["peers"] == {}
    assert record["cases"][0]["device_ms"] > 0
