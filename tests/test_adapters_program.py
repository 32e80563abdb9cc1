"""A program that trains with SOAP: the adapter is found in its trace, accepted, run, watched, and taken back."""

import json
from pathlib import Path

import pytest
from conftest import Workshop

from qrprof.kernels.adapters import find, unfit

pytestmark = pytest.mark.skipif(bool(unfit(find("soap"))), reason="there is no version of the package that it knows")

TRAIN = """\
import torch
from torch import nn
from pytorch_optimizer import SOAP
torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16)))
optimizer = SOAP(net.parameters(), precondition_frequency=1)
for _ in range(30):
    optimizer.zero_grad()
    loss = net(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item(), *(p.double().sum().item() for p in net.parameters()))
"""


@pytest.mark.slow
def test_found_accepted_run_and_taken_back(workshop: Workshop, tmp_path: Path) -> None:
    def qrprof(*arguments: str) -> tuple[str, str]:
        ended = workshop.python("-m", "qrprof", *arguments, QRPROF_CONFIG=str(tmp_path / "configuration"))
        assert ended.code == 0, ended.err
        return ended.out, ended.err

    workshop.write("train.py", TRAIN)
    stock, _ = qrprof("trace", "train.py")
    listed = json.loads(qrprof("swaps", "list", "--json")[0])
    assert [(one["name"], one["kind"], one["state"]) for one in listed["swaps"]] == [("soap", "adapter", "proposed")]

    qrprof("swaps", "accept", "soap", "--yes", "--override", "its results are those of the package")
    out, said = qrprof("run", "--report", "train.py")
    assert out == stock  # one thread: the batched lane has the bits of torch
    assert "calls   29 served, 0 computed by both, 0 by stock alone" in said
    out, said = qrprof("run", "--shadow", "train.py")
    assert out == stock
    assert "computed 29 of 29 calls beside the stock kernel" in said

    qrprof("swaps", "undo", "soap")
    out, said = qrprof("run", "train.py")
    assert out == stock
    assert "train.py runs on stock kernels" in said
