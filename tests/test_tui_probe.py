"""`qrprof probe`: the included kernels timed on the inputs of a run that was traced on this CPU."""

import json
import re
from pathlib import Path

import pytest
from conftest import Workshop

from qrprof.kernels.qr import cpu

TRAIN = """\
import torch
torch.set_num_threads(2)
weight = torch.nn.Parameter(torch.randn(2048, 32, 16))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(40):
    Q, R = torch.linalg.qr(weight)
    optimizer.zero_grad()
    (weight * Q.detach()).sum().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.skipif(not cpu.available(), reason="this build of torch has no MKL: no lane on a CPU")


@pytest.fixture
def traced(workshop: Workshop) -> Workshop:
    script = workshop.write("train.py", TRAIN)
    assert workshop.trace(str(script)).code == 0
    if why := json.loads(qrprof(workshop, "rank", "--json"))["withheld"]:
        pytest.skip(f"the machine is too busy for a ranking: {why}")
    return workshop


def qrprof(workshop: Workshop, *args: str) -> str:
    found = workshop.python("-m", "qrprof", *args, COLUMNS="100")
    assert found.code == 0, found.err
    return found.out


def test_what_was_timed_is_what_the_ranking_rests_on(traced: Workshop) -> None:
    assert "run `qrprof probe`" in " ".join(qrprof(traced, "rank").split())
    found = json.loads(qrprof(traced, "probe", "--seconds", "0.2", "--json"))
    (call,) = found["calls"]
    assert (call["op"], call["shape"], call["dtype"]) == ("linalg_qr", [2048, 32, 16], "float32")
    timed = call["timed"]
    assert timed["lane"] == "cpu-batched"
    assert timed["own"]["device"] > 0 < timed["stock"]["device"]

    ranked = json.loads(qrprof(traced, "rank", "--json"))
    assert not any("qrprof probe" in note for note in ranked["notes"])
    row = next(row for row in ranked["rows"] if row["key"] == "aten::linalg_qr")
    assert row["basis"] == "MEASURED"
    answer = json.loads(qrprof(traced, "whatif", "--set", "linalg_qr=table", "--json"))
    assert answer["step_ms"] <= answer["base_ms"]


def test_the_page_has_both_times_and_their_ratio(traced: Workshop) -> None:
    text = qrprof(traced, "probe", "--seconds", "0.2")
    assert re.search(r"linalg_qr +2048 x 32 x 16 float32 +1 +\S+ [mu]s +\S+ [mu]s +\S+ [mu]s +\S+x", text)


def test_a_run_without_such_calls(workshop: Workshop) -> None:
    script = workshop.write("train.py", TRAIN.replace("torch.linalg.qr(weight)", "(weight + 1, 0)"))
    assert workshop.trace(str(script)).code == 0
    assert "there is nothing to time" in qrprof(workshop, "probe")


def test_a_run_of_another_machine_is_refused(traced: Workshop) -> None:
    (record,) = Path(traced.folder, ".qrprof", "runs").glob("*/run.json")
    run = json.loads(record.read_text())
    run["devices"][0]["name"] = "Another CPU"
    record.write_text(json.dumps(run))
    found = traced.python("-m", "qrprof", "probe")
    assert found.code == 3
    assert "the run was on Another CPU, and this is" in found.err
