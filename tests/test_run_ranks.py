"""Ranks that a launcher starts with `qrprof run`: all with the same swaps, or all on stock."""

import json
import socket
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from run_swaps import INCLUDED, SOFTMAX, accept, candidate

from qrprof.kernels.counters import Report
from qrprof.profiler.recording.launcher import Launch
from qrprof.tui.commands.run import told

TRAIN = """\
import json, os, sys, torch, torch.distributed as dist
from qrprof import kernels
dist.init_process_group("gloo")
x = torch.linspace(-3, 3, 320).view(32, 10)
for _ in range(4): total = x.softmax(1)
dist.all_reduce(total)
if os.environ.get("QUIT"):  # as python does
    __import__("time").sleep(0.2)  # gloo's thread drops the result meanwhile: it can abort the exit
    dist.destroy_process_group()
    sys.exit()
print(json.dumps([vars(report) for report in kernels.report()]), flush=True)
dist.barrier()
os._exit(0)
"""
UNKNOWN = "what the swaps did is not known: the program ended without python's exit, or did not import torch"
DDP = Path(__file__).parents[1] / "examples" / "ddp_charlm.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", sys.executable)
WRONG_ON_RANK_1 = f"import os\n{SOFTMAX}".replace("return", "return (1 + int(os.environ['RANK'])) *")


def ranks(workshop: Any, *options: str, first: dict[str, str] | None = None) -> tuple[list[Any], list[str]]:
    """What two ranks' swaps did, and what they say; `first` changes the environment of rank 0."""
    ended = started(workshop, *options, first=first)
    return [json.loads(rank.out) for rank in ended], [line for rank in ended for line in rank.said]


def started(workshop: Any, *options: str, first: dict[str, str] | None = None, **both: str) -> list[Any]:
    """Two ranks that have ended; `first` changes the environment of rank 0."""
    workshop.write("ddp.py", TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **both}
    command = ("-m", "qrprof", "run", *options, "ddp.py")
    running = [workshop.start(*command, **shared | {"RANK": r} | (first or {} if r == "0" else {})) for r in "01"]
    ended = [workshop.ended(process) for process in running]
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]
    return ended


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
    reason = "you have not accepted it on this machine for this folder"
    assert said == [
        f"swap {entry} is off: {reason}; see `qrprof swaps show {entry}`",
        "swaps, versions or devices of the ranks differ: all run stock",
        UNKNOWN,
    ]


@pytest.mark.slow
def test_ranks_take_the_same_calls_for_a_canary(workshop: Any, entry: str) -> None:
    swaps, _ = ranks(workshop, "--canary", "50%")
    assert [rank[0]["hits"] for rank in swaps] == [2, 2]


@pytest.mark.slow
def test_data_parallel_training_under_torchrun_swaps_on_both_ranks(
    workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QRPROF_CONFIG", str(workshop.folder / "config"))
    accept(workshop.folder, [INCLUDED])
    command = ("-m", "qrprof", "run", "--report", str(DDP), "--optimizer", "soap", "--steps", "4")
    ended = workshop.python(*TORCHRUN, *command, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="PASSIVE")
    assert ended.code == 0, ended.err
    for rank in "01":
        assert [line for line in ended.said if line.startswith(f"rank {rank}: ")][:3] == [
            f"rank {rank}: swap qr: linalg_qr on CPU, circuit closed",
            f"rank {rank}:   calls   4 served, 0 computed by both, 0 by stock alone",
            f"rank {rank}:   checks  1 result, 0 wrong, 0 calls raised",
        ]


@pytest.mark.parametrize("full", [False, True])
def test_another_rank_speaks_in_full_or_of_what_went_wrong_there(full: bool) -> None:
    good = Report("good", "_softmax", "CPU", False, 4, {}, 1, 0, 0, 0, *[None] * 7)
    bad = replace(good, name="bad", fallbacks={"OSError": 2}, errors=2)
    done = {"swaps": [asdict(good), asdict(bad)]}
    whose = [list(told(done, full, Launch(rank, 2, 0))) for rank in (0, 1)]
    if full:
        assert whose[1] == [line.replace("rank 0: ", "rank 1: ") for line in whose[0]]
        assert all(line.startswith("rank 0: ") for line in whose[0])
    else:
        assert whose[0] == ["swap good served 4 of 4 calls", "swap bad served 4 of 6 calls; stock alone: OSError (2)"]
        assert whose[1] == [f"rank 1: {whose[0][1]}"]


@pytest.mark.slow
def test_a_rank_that_computes_something_else_says_so(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_CONFIG", str(workshop.folder / "config"))
    entry = candidate(WRONG_ON_RANK_1)
    accept(workshop.folder, [entry], [WRONG_ON_RANK_1])
    first, second = started(workshop, "--json", QUIT="1")
    assert first.said == [f"swap {entry.name} served 4 of 4 calls"]
    assert second.said == [f"rank 1: swap {entry.name} served 4 of 4 calls; 1 checked results were wrong"]
    records = [json.loads(rank.out) for rank in (first, second)]
    assert [(one["rank"], one["world_size"], one["exit_code"]) for one in records] == [(0, 2, 0), (1, 2, 0)]
    assert [one["swaps"][0]["failed"] for one in records] == [0, 1]
