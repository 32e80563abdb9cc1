"""A program that trains with SOAP: the adapter is found in its trace, accepted, run, watched, and taken back."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Workshop
from run_swaps import INCLUDED, accept

from qrprof.kernels.adapters import find, unfit
from qrprof.kernels.sources import own_sha256

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


RANK = """\
import json, os, torch, torch.distributed as dist
from torch import nn
from pytorch_optimizer import SOAP
from qrprof import kernels
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16)))
optimizer = SOAP(net.parameters(), precondition_frequency=1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(8, 64)).square().mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
print(json.dumps([sum(swap.hits for swap in kernels.report()), [p.double().sum().item() for p in net.parameters()]]))
dist.barrier()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("elsewhere", "hits"), [("config", 3), ("none", 0)])
def test_ranks_group_alike_or_not_at_all(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, elsewhere: str, hits: int
) -> None:
    monkeypatch.setenv("QRPROF_CONFIG", str(workshop.folder / "config"))
    entry = replace(INCLUDED, name="soap", kind="adapter", sha256=own_sha256("adapter", "soap"))
    accept(workshop.folder, [entry])
    workshop.write("ddp.py", RANK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    folders = {"0": "config", "1": elsewhere}
    started = [
        workshop.start(
            "-m", "qrprof", "run", "ddp.py", **shared, RANK=rank, QRPROF_CONFIG=str(workshop.folder / folder)
        )
        for rank, folder in folders.items()
    ]
    ended = [workshop.ended(process) for process in started]
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]
    first, second = (json.loads(rank.out) for rank in ended)
    assert first == second
    assert first[0] == hits
