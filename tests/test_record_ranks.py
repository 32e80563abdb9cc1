"""Several ranks under torchrun: one run folder, the same steps on each rank, and no rank left waiting."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

DDP = """\
import itertools
import torch.distributed as dist
dist.init_process_group('gloo')
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(model)
count = itertools.count()
def train(steps):
    for i in itertools.islice(count, steps):
        if i % 10 == 9: torch.linalg.qr(torch.ones(4, 4))
        step()
"""
# gloo's threads can abort the interpreter's exit ("terminate called without an active exception"): leave without it.
END = "dist.barrier(); print(f'rank {rank} done\\n', end='', flush=True); os._exit(0)\n"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", sys.executable)


def torchrun(workshop: Any, body: str) -> Any:
    workshop.write("ddp.py", workshop.setup + DDP + body)
    return workshop.python(*TORCHRUN, "-m", "qrprof", "trace", "ddp.py")


def two_ranks(workshop: Any, text: str, *options: str) -> list[Any]:
    """The ranks without torchrun, which is slow to start; here rank 0 serves the store."""
    workshop.write("ddp.py", workshop.setup + text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [workshop.start("-m", "qrprof", "trace", *options, "ddp.py", RANK=rank, **shared) for rank in "01"]
    return [workshop.ended(process) for process in started]


def test_ranks_share_a_run_and_record_the_same_steps(workshop: Any) -> None:
    ended = torchrun(workshop, "train(160)\n" + END)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["rank 0 done", "rank 1 done"]
    (folder,) = ended.run_folders
    assert {path.name for path in folder.glob("*.json*")} == {
        "run.json",
        "run.rank1.json",
        "rank0.trace.json.gz",
        "rank1.trace.json.gz",
    }
    runs, traces = zip(*(ended.load(rank) for rank in (0, 1)), strict=True)
    assert [(run.rank, run.world_size, run.period, run.exit_code) for run in runs] == [(0, 2, 10, 0), (1, 2, 10, 0)]
    assert [run.id for run in runs] == [folder.name] * 2
    assert runs[0].recorded == runs[1].recorded
    assert len(runs[0].recorded) == 10
    assert [block.first_step for block in runs[0].unprofiled] == [block.first_step for block in runs[1].unprofiled]
    assert [number for number, _ in traces[0].marks()] == [number for number, _ in traces[1].marks()]
    assert ended.said == ["recorded 10 steps of ddp.py; the script goes on; see `qrprof rank`"]


@pytest.mark.slow
def test_a_rank_that_is_slow_is_named_and_what_the_others_wait(
    workshop: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\nquick = step\ndef step():\n    if rank == 1: time.sleep(0.1)\n    quick()\n"
    assert torchrun(workshop, slow + "train(60)\n" + END).code == 0
    monkeypatch.chdir(workshop.folder)
    code, out, _ = call("ranks", "--json")
    found = json.loads(out)
    waiting, late = found["ranks"]
    assert (code, found["straggler"]["rank"], len(found["collectives"])) == (0, 1, 10)
    assert late["caused_ms"] > 0.9 * found["wait_ms"]
    assert waiting["exposed_ms"] > 0.5 * waiting["step_ms"]  # gloo, beside nothing
    assert late["exposed_ms"] < 0.5 * late["step_ms"]
    assert "straggler  rank 1 causes " in call("ranks")[1]
    code, _, err = call("whatif", "--all-ranks", "--set", "addmm@1=0")
    assert code == 1
    assert "are withheld: its ranks communicate on the host, where no trace shows what waits for a collective" in err


def test_a_failing_rank_fails_the_launch(workshop: Any) -> None:
    # By os._exit, for gloo's threads can abort the interpreter's own exit, and the code would be that of the abort.
    ended = torchrun(workshop, "train(10)\nif rank == 1: os._exit(7)\ntrain(1_000_000)\n")
    assert ended.code != 0
    assert "exitcode  : 7" in ended.err
    assert ended.run_folders == []
    assert any(line.startswith("rank 1: ddp.py ended with exit code 7 after ") for line in ended.said)


def test_stop_ends_all_ranks_at_the_same_step(workshop: Any) -> None:
    ranks = two_ranks(workshop, DDP + "train(100_000)\n" + END, "--stop")
    assert [(rank.code, rank.out, rank.script_err) for rank in ranks] == [(0, "", "")] * 2
    assert [len(ranks[0].load(rank)[0].recorded) for rank in (0, 1)] == [10, 10]


def test_a_rank_with_a_profiler_of_its_own_holds_up_no_other(workshop: Any) -> None:
    body = (
        "from torch.profiler import profile\n"
        "if rank == 0:\n"
        "    with profile(): train(7)\n"
        "else: train(7)\n"
        "train(30)\n"
        "if rank == 1:\n"
        "    with profile(): train(7)\n"
        "else: train(7)\n"
        "train(160)\n"
    )
    ranks = two_ranks(workshop, DDP + body + END)
    assert [(rank.code, rank.out) for rank in ranks] == [(0, "rank 0 done\n"), (0, "rank 1 done\n")], ranks
    run = ranks[0].run
    assert len(run.recorded) == 10
    assert run.notes == ["the script runs torch.profiler itself; steps it profiled were left alone"]
    lost = "rank 1: ddp.py ended and nothing was recorded: it runs torch.profiler itself; trace it without"
    assert ranks[1].said == [lost]


def test_ranks_that_do_not_talk_to_each_other_are_recorded_too(workshop: Any) -> None:
    ranks = two_ranks(workshop, "for _ in range(40): step()\n")
    assert [rank.code for rank in ranks] == [0, 0]
    assert [len(ranks[0].load(rank)[0].recorded) for rank in (0, 1)] == [5, 5]


@pytest.mark.parametrize("command", ["trace", "run"])
@pytest.mark.parametrize(
    "launcher", [("torchrun",), ("-m", "torch.distributed.run"), ("/opt/bin/accelerate", "launch")]
)
def test_a_launcher_is_no_program_to_follow(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, launcher: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(command, *launcher, "--nproc-per-node", "2", "train.py")
    assert (code, out) == (2, "")
    assert "starts the program in other processes, which qrprof would not see" in err
    assert "`torchrun --no-python --nproc-per-node 2 qrprof trace train.py`" in err
