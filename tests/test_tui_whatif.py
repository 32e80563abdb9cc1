"""`qrprof whatif` on saved and imported runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qrprof.tui.cli import run

DATA = Path(__file__).parent / "data"
ID = "20260131-120000-train"

# Two steps of 1000 us: gemm from 120 to 620 and add from 620 to 920 keep the device busy; the host is done at 150, but
# for what it prepares before. Unprofiled a step takes 1000 us.
PAGE = """\
replay    off by 0.0 % of the recorded step, 100.0 % of the device's starts
          explained, 0.0 % off with the residuals of the step before
noise     0.0 % of a step, 0 ns (within-run)

what set to faster calls device, ms host, ms
mm   100us   5.00x     1      0.500   0.0250

what if   920 us -> 520 us, 1.77x, 400 us a step gained
between   520 us and 520 us, by the replay's own errors and the noise
amdahl    1.77x, 520 us: the same, for nothing hides behind other work or waits
          for it
"""
CURVE = """\
By the speedup of mm:
faster step, ms gain, ms  step
 1.00x    0.920        0 1.00x ####################
 1.25x    0.820    0.100 1.12x ##################
 1.50x    0.753    0.167 1.22x ################
 2.00x    0.670    0.250 1.37x ###############
 3.00x    0.587    0.333 1.57x #############
 4.00x    0.545    0.375 1.69x ############
 6.00x    0.503    0.417 1.83x ###########
 8.00x    0.482    0.438 1.91x ##########
 16.0x    0.451    0.469 2.04x ##########
  gone    0.420    0.500 2.19x #########

slope     5.00 us a step for the first per cent off its time
"""


def event(kind: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    place = {"tid": args["stream"]} if "stream" in args else {"tid": 1}
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, **place, "ts": start, "dur": end - start, "args": args}


def step(number: int, begin: int) -> list[dict[str, Any]]:
    """The device is 120 us late and then works without a pause."""
    busy = 120 + 920 * number
    gemm, add = 2 * number + 1, 2 * number + 2
    work = {"device": 0, "stream": 7}
    return [
        event("user_annotation", f"qrprof.step#{10 + number}", begin, begin),
        event("cpu_op", "aten::mm", begin + 105, begin + 130),
        event("cuda_runtime", "cudaLaunchKernel", begin + 110, begin + 118, correlation=gemm),
        event("kernel", "gemm", busy, busy + 500, correlation=gemm, **work),
        event("cpu_op", "aten::add", begin + 130, begin + 150),
        event("cuda_runtime", "cudaLaunchKernel", begin + 135, begin + 140, correlation=add),
        event("kernel", "adder", busy + 500, busy + 920, correlation=add, **work),
    ]


@pytest.fixture
def store(saved: Any) -> Any:
    """Three steps, of which the device's first is longer: the host has run ahead before the second."""
    found = saved("whatif", [])
    found.write([*step(0, 0), *step(1, 200), *step(2, 400), event("user_annotation", "qrprof.step#13", 600, 600)])
    weights = [{"index": 10 + number, "kind": "A", "weight": weight} for number, weight in enumerate((0.0, 0.5, 0.5))]
    block = {"clock": "device events", "first_step": 0, "durations_ns": [920_000] * 10, "kinds": ["A"] * 10}
    found.change(recorded=weights, unprofiled=[block], kinds=[])
    return found


def test_the_page(store: Any) -> None:
    printed = store.out("--set", "mm=100us")
    assert PAGE in printed
    lines = printed.splitlines()
    assert lines[0].startswith(f"run       {ID}: train.py")
    assert lines[1].startswith("coverage  trusted: 4 launches and 4 items of device work in 2 steps")
    assert "920 us, the mean of n = 10 unprofiled steps" in " ".join(printed.split())
    assert printed.isascii()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_the_curve(store: Any) -> None:
    printed = store.out("--sweep", "mm")
    assert CURVE in printed
    assert "what if" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_the_curve_beside_other_changes(store: Any) -> None:
    text = store.text("--set", "add=0", "--sweep", "gap:host")
    assert "920 us -> 500 us" in text
    assert "1.00x 0.500 0.420 1.84x ###########" in text
    assert text.endswith("slope 0 ns a step for the first per cent off its time; flat: off the critical path")


def test_json(store: Any) -> None:
    record = store.json("--set", "aten::mm=100us", "--set", "adder=0.5x")
    assert list(record)[:9] == [
        *("schema", "run", "base_ms", "step_ms", "speedup", "amdahl_x", "replay_error", "explained", "next_step_error")
    ]
    assert (record["run"], record["explained"], record["in_noise"]) == (ID, 1, None)
    assert (record["base_ms"], record["step_ms"]) == pytest.approx((0.92, 0.94))
    assert record["speedup"] == pytest.approx(0.92 / 0.94)
    assert record["amdahl_x"] == pytest.approx(0.92 / 0.94)
    assert (record["replay_error"], record["next_step_error"]) == (0, 0)
    assert record["low_ms"] <= record["step_ms"] <= record["high_ms"]
    assert record["basis"] == "ASSUMED"
    assert record["noise"] == {"name": "within-run", "ms": 0}
    mm, adder = record["changes"]
    assert (mm["key"], mm["kind"], mm["set"], mm["factor"]) == ("aten::mm", "op", "100us", pytest.approx(0.2))
    assert (mm["calls"], mm["device_ms"], mm["host_ms"]) == pytest.approx((1, 0.5, 0.025))
    assert (adder["key"], adder["kind"], adder["factor"], adder["host_ms"]) == ("adder", "kernel", 2, 0)
    assert "points" not in record


def test_json_of_a_sweep(store: Any) -> None:
    record = store.json("--sweep", "add")
    assert record["changes"] == []
    assert record["sweep"] == "aten::add"
    assert [point["x"] for point in record["points"]] == [1, 1.25, 1.5, 2, 3, 4, 6, 8, 16, None]
    assert record["points"][3] == {"x": 2, "step_ms": pytest.approx(0.71), "speedup": pytest.approx(0.92 / 0.71)}
    assert record["slope_ms"] == pytest.approx(0.0042)
    assert record["flat_from"] is None


def test_a_gain_under_the_noise_is_called_so(store: Any) -> None:
    block = {"clock": "device events", "first_step": 0, "kinds": ["A"] * 10}
    uneven = [1000 * us for us in (820, 820, 820, 1020, 1020, 820, 1020, 1020, 1020, 820)]
    store.change(unprofiled=[{**block, "durations_ns": uneven}])
    text = store.text("--set", "mm=1.01x")
    assert "in noise at most 4.95 us of a step of 920 us, under twice its within-run noise of" in text
    assert "in noise" not in store.text("--set", "mm=0")


def test_each_scenario_is_remembered_as_a_prediction(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        store.out("--set", "mm=100us", "--set", "launch=0.5x")
    store.out("--sweep", "mm")
    capsys.readouterr()
    assert run(["predictions", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["predictions"]
    assert (made["source"], made["scenario"]) == ("whatif", "aten::mm=100us launch=0.5x")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "nothing to change: give --set KEY=SPEC or --sweep KEY (see `qrprof whatif --help`)"),
        (["--set", "mm"], "'mm' is not KEY=SPEC, such as linalg_qr=4x or launch=0"),
        (["--set", "mm=quick"], "'quick' says no time: give 4x, 0, a time such as 120us, table or roofline"),
        (["--set", "addr=4x"], f"no op or kernel 'addr' in the steps of run {ID}; nearest: adder, add"),
        (["--sweep", "gap:tea"], "no cause of idle time 'gap:tea'"),
        (["--set", "mm=table"], "no included kernel was timed for all calls of mm on this device"),
        (["--set", "mm=2x", "--set", "mm=2x"], "'mm' is set twice"),
        (["--set", "mm=2x", "--sweep", "aten::mm"], "'mm' is set and swept"),
        (["--set", "mm=2x", "--rank", "3"], "has no rank 3"),
    ],
)
def test_bad_usage(store: Any, args: list[str], said: str) -> None:
    code, out, err = store.call(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_withheld_model_gives_no_numbers(store: Any) -> None:
    lost = [event("cuda_runtime", "cudaLaunchKernel", at, at + 5, correlation=90 + at) for at in (160, 170, 360, 370)]
    store.write([*step(0, 0), *step(1, 200), *lost, event("user_annotation", "qrprof.step#12", 400, 400)])
    for more in ([], ["--json"]):
        code, out, err = store.call("--set", "mm=2x", *more)
        assert (code, out) == (1, "")
        assert err.startswith(f"qrprof: what-ifs of run {ID} are withheld: ")


def test_hostile_names_are_text(store: Any) -> None:
    hostile = "\x1b[31m\u202e[red]x[/red]" * 40
    events = [one | {"name": hostile} if one["name"] == "adder" else one for one in [*step(0, 0), *step(1, 200)]]
    store.write([*events, event("user_annotation", "qrprof.step#12", 400, 400)])
    printed = store.out("--set", "[/red]=0")
    assert "[red]x" in printed
    assert not [char for char in printed if not (char.isprintable() or char == "\n")]
    assert max(map(len, printed.splitlines())) <= 80


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "  --set 'mm[128x256,256x512]=120us'  a call with such inputs takes 120 us\n" in printed


def test_all_ranks_of_a_run_of_one(store: Any) -> None:
    code, out, err = store.call("--all-ranks", "--set", "mm=2x")
    assert (code, out) == (2, "")
    assert "--all-ranks is for runs of several ranks" in err


# --- imported runs


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Import traces in a folder of their own, and call `qrprof whatif` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def load(*names: str) -> Any:
        for name in names:
            shutil.copy(DATA / name, tmp_path)
        assert run(["import", *names]) == 0
        capsys.readouterr()

        def call(*args: str) -> str:
            assert run(["whatif", *args]) == 0
            printed = capsys.readouterr()
            assert printed.err == ""
            return printed.out

        return call

    return load


def test_an_imported_run_has_its_times_as_recorded(imported: Any, capsys: pytest.CaptureFixture[str]) -> None:
    call = imported("own_h200_mlp_eager.json.gz")
    printed = call("--set", "launch=0", "--sweep", "addmm")
    text = " ".join(printed.split())
    assert "step not measured without the profiler (imported, ProfilerStep)" in text
    assert "what if 1.55 ms -> 309 us, 5.00x" in text
    assert "between not known: the noise of the step was not measured" in text
    assert "note no step ran unprofiled: times are as recorded, and hold the profiler's own cost" in text
    assert max(map(len, printed.splitlines())) <= 80
    assert run(["predictions", "--json"]) == 0  # of a step that was not measured there is nothing to predict
    assert json.loads(capsys.readouterr().out)["predictions"] == []


def test_products_beside_a_copy_are_off_the_critical_path(imported: Any) -> None:
    call = imported("own_h200_two_streams_overlap.json.gz")
    assert "flat: off the critical path" in " ".join(call("--sweep", "mm").split())
    record = json.loads(call("--json", "--set", "cutlass=10x"))
    assert record["speedup"] < 1.05 < record["amdahl_x"]
    text = " ".join(call("--set", "mm=10x").split())
    assert "of that are hidden, since other work takes as long meanwhile" in text
