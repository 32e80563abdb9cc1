"""Ranks of torch.distributed swap together or not at all."""

import json
import socket
from typing import Any

import pytest

# A data-parallel step that, as SOAP does, keeps a basis by QR of what the gradients add up to.
LOOP = """\
import hashlib, json, os, sys
import torch
import torch.distributed as dist
from qrprof import kernels
from qrprof.kernels.guard import Swap
torch.set_num_threads(2)
rank = int(os.environ['RANK'])
def train(steps=20):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
    basis = torch.eye(64).repeat(40, 1, 1)
    weight = model.module.weight
    with torch.no_grad(): weight.copy_(torch.linspace(-1, 1, 4096).view(64, 64))
    for step in range(steps):
        model.zero_grad()
        torch.manual_seed(100 * step + rank)
        model(torch.randn(8, 64)).square().mean().backward()
        grad = weight.grad
        with torch.no_grad():
            basis = torch.linalg.qr((grad @ grad.mT + 1e-3 * torch.eye(64)) @ basis)[0]
            turned = basis[0].mT @ grad
            weight -= 0.1 * basis[0] @ (turned / (turned.square().mean().sqrt() + 1e-6))
    return hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest()
def done(**more):
    reports = [vars(report) for report in kernels.report() if report.key == 'CPU']
    print(json.dumps({'rank': rank, 'reports': reports} | more), flush=True)
    dist.barrier()
    os._exit(0)
"""
START = "dist.init_process_group('gloo')\n"
ORDERS = ["kernels.install()\n" + START, pytest.param(START + "kernels.install()\n", marks=pytest.mark.slow)]


def ranks(workshop: Any, body: str, first: dict[str, str] | None = None) -> tuple[list[Any], list[str]]:
    """What two ranks print, and what they say; `first` changes the environment of rank 0."""
    workshop.write("ddp.py", LOOP + body)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}  # four threads may have fewer cores
    started = [workshop.start("ddp.py", **shared | {"RANK": r} | (first or {} if r == "0" else {})) for r in "01"]
    ended = [workshop.ended(process) for process in started]
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]
    return [json.loads(rank.out) for rank in ended], [line for rank in ended for line in rank.said]


@pytest.mark.parametrize("order", ORDERS)
def test_equal_ranks_swap_and_keep_equal_weights(workshop: Any, order: str) -> None:
    (a, b), said = ranks(workshop, order + "done(weights=train())\n")
    assert a["weights"] == b["weights"]
    assert [rank["reports"][0]["hits"] for rank in (a, b)] == [20, 20]
    assert said == []


def test_ranks_that_a_device_mesh_starts_swap_too(workshop: Any) -> None:
    mesh = "dist.device_mesh.init_device_mesh('cpu', (2,))\nrank = dist.get_rank()\n"
    (a, b), said = ranks(workshop, "kernels.install()\n" + mesh + "done(weights=train())\n")
    assert a["weights"] == b["weights"]
    assert [rank["reports"][0]["hits"] for rank in (a, b)] == [20, 20]
    assert said == []


@pytest.mark.parametrize("order", ORDERS)
def test_a_rank_with_its_swaps_off_keeps_all_on_stock(workshop: Any, order: str) -> None:
    (a, b), said = ranks(workshop, order + "done(weights=train())\n", {"QRPROF_SWAPS": "off"})
    assert a["weights"] == b["weights"]
    assert a["reports"] == []
    assert b["reports"][0]["hits"] == 0
    assert b["reports"][0]["fallbacks"] == {"ranks do not agree": 20}
    assert said == ["swaps, versions or devices of the ranks differ: all run stock"]


@pytest.mark.slow
def test_a_rank_with_another_table_keeps_all_on_stock(workshop: Any) -> None:
    body = (
        "from qrprof.kernels import swap\n"
        "if os.environ.get('OTHER'): swap.RULES = swap.RULES[1:]\n"
        "kernels.install()\n" + START + "done(weights=train())\n"
    )
    (a, b), said = ranks(workshop, body, {"OTHER": "1"})
    assert a["weights"] == b["weights"]
    assert [rank["reports"][0]["hits"] for rank in (a, b)] == [0, 0]
    assert len(said) == 1


@pytest.mark.slow
def test_a_rank_that_does_not_install_is_missed(workshop: Any) -> None:
    body = (
        "from datetime import timedelta\n"
        "from qrprof.kernels import replicas\n"
        "replicas.WAIT = timedelta(seconds=1)\n" + START + "if rank: kernels.install()\n"
        "done(weights=train())\n"
    )
    (a, b), _ = ranks(workshop, body)
    assert a["weights"] == b["weights"]
    assert b["reports"][0]["hits"] == 0


@pytest.mark.parametrize(
    "order", ["kernels.install()\n{}", pytest.param("{}kernels.install()\n", marks=pytest.mark.slow)]
)
def test_a_group_whose_store_does_not_answer_runs_stock_and_says_so(workshop: Any, order: str) -> None:
    start = "dist.init_process_group('fake', store=dist.Store(), rank=0, world_size=2)\n"
    show = "torch.linalg.qr(torch.ones(40, 64, 64))\nprint(json.dumps(vars(kernels.report()[0])))\n"
    fake = "import torch.testing._internal.distributed.fake_pg\n"  # registers that backend: ranks that are not there
    workshop.write("fake.py", LOOP + fake + order.format(start) + show)
    ended = workshop.python("fake.py", RANK="0")
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert (report["hits"], report["fallbacks"]) == (0, {"ranks do not agree": 1})
    assert ended.said == [
        "no store answers in this process group, so that the ranks cannot compare their swaps: all run stock"
    ]


@pytest.mark.slow
def test_a_late_rank_does_not_decide_otherwise(workshop: Any) -> None:
    body = (
        "import time\n"
        "from datetime import timedelta\n"
        "from qrprof.kernels import replicas\n"
        "replicas.WAIT = timedelta(seconds=1)\n" + START + "if rank:\n"
        "    dist.barrier()\n"  # rank 0 has given up
        "    kernels.install()\n"
        "else:\n"
        "    kernels.install()\n"
        "    dist.barrier()\n"
        "done(weights=train())\n"
    )
    (a, b), said = ranks(workshop, body)
    assert a["weights"] == b["weights"]
    assert [rank["reports"][0]["hits"] for rank in (a, b)] == [0, 0]
    assert said == ["a rank did not come within 1 s to compare its swaps: all run stock"]


@pytest.mark.slow
def test_no_circuit_opens_on_one_rank(workshop: Any) -> None:
    body = (
        "def fails(A, mode='reduced'):\n"
        "    if rank == 0: raise OSError\n"
        "    return torch.ops.aten.linalg_qr.out(A, mode, Q=A.new_empty(0), R=A.new_empty(0))\n"
        "kernels.install([Swap('linalg_qr', fails, lambda *_: '')])\n" + START + "train()\ndone()\n"
    )
    (a, b), _ = ranks(workshop, body)
    assert (a["reports"][0]["fallbacks"], a["reports"][0]["open"]) == ({"OSError": 20}, False)
    assert b["reports"][0]["hits"] == 20
