"""Ranks that a launcher starts with `qrprof run`: all with the same swaps, or all on stock."""

import json
import socket
from typing import Any

import pytest
from run_swaps import SOFTMAX, accept, candidate

TRAIN = """\
import json, os, torch, torch.distributed as dist
from qrprof import kernels
dist.init_process_group("gloo")
x = torch.linspace(-3, 3, 320).view(32, 10)
for _ in range(4): total = x.softmax(1)
dist.all_reduce(total)
print(json.dumps([vars(report) for report in kernels.report()]), flush=True)
dist.barrier()
os._exit(0)
"""
UNKNOWN = "what the swaps did is not known: the program ended without python's exit, or did not import torch"


def ranks(workshop: Any, *options: str, first: dict[str, str] | None = None) -> tuple[list[Any], list[str]]:
    """What two ranks' swaps did, and what they say; `first` changes the environment of rank 0."""
    workshop.write("ddp.py", TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = ("-m", "qrprof", "run", *options, "ddp.py")
    started = [workshop.start(*command, **shared | {"RANK": r} | (first or {} if r == "0" else {})) for r in "01"]
    ended = [workshop.ended(process) for process in started]
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]
    return [json.loads(rank.out) for rank in ended], [line for rank in ended for line in rank.said]


@pytest.fixture
def entry(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("QRPROF_CONFIG", str(workshop.folder / "config"))
    accept(workshop.folder, [candidate(SOFTMAX)], [SOFTMAX])
    return candidate(SOFTMAX).name


@pytest.mark.slow
def test_ranks_with_the_same_swaps_swap(workshop: Any, entry: str) -> None:
    swaps, said = ranks(workshop)
    assert [rank[0]["hits"] for rank in swaps] == [4, 4]
    assert [rank[0]["name"] for rank in swaps] == [entry, entry]
    assert said == [UNKNOWN]  # of the first rank


def test_ranks_with_other_swaps_run_stock_and_say_so(workshop: Any, entry: str) -> None:
    swaps, said = ranks(workshop, first={"QRPROF_CONFIG": str(workshop.folder / "none")})
    assert swaps[0] == []
    assert (swaps[1][0]["hits"], swaps[1][0]["fallbacks"]) == (0, {"ranks do not agree": 4})
    assert said == [
        f"swap {entry} is off: you have not accepted it on this machine; see `qrprof swaps show {entry}`",
        "swaps, versions or devices of the ranks differ: all run stock",
        UNKNOWN,
    ]


@pytest.mark.slow
def test_ranks_take_the_same_calls_for_a_canary(workshop: Any, entry: str) -> None:
    swaps, _ = ranks(workshop, "--canary", "50%")
    assert [rank[0]["hits"] for rank in swaps] == [2, 2]
