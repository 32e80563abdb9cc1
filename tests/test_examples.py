"""The examples run as a new user would start them, for a few steps."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
LAST_LINE = r"mean step \d+\.\d\d ms, median \d+\.\d\d ms, over {} steps"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(
    script: str, *args: str, launcher: tuple[str, ...] = (), gpu: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run an example in a child; without `gpu` the child sees no GPU, so the device it chooses is the CPU.

    One thread, since OpenMP's threads wait by spinning, which is slow on a busy machine.
    """
    defaults = {"OMP_NUM_THREADS": "1"} | ({} if gpu else {"CUDA_VISIBLE_DEVICES": ""})
    return subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / script), *args],
        env=os.environ | defaults | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("script", ["soap_charlm.py", "loader_bound.py", "adamw_charlm.py"])
def test_example_runs_and_ends_with_its_step_times(script: str) -> None:
    assert re.fullmatch(LAST_LINE.format(3), last_line(run(script, "--steps", "3")))


def test_two_ranks_train_and_only_one_of_them_talks() -> None:
    done = run("ddp_charlm.py", "--steps", "3", launcher=TORCHRUN)
    assert re.fullmatch(LAST_LINE.format(3), last_line(done))
    assert done.stdout.count("mean step") == 1


def test_ddp_without_torchrun_says_how_to_start_it() -> None:
    done = run("ddp_charlm.py")
    assert done.returncode == 1
    assert done.stderr == "ddp_charlm.py is started by torchrun: torchrun --nproc-per-node 2 examples/ddp_charlm.py\n"


def test_block_soap_trains() -> None:
    done = run("block_soap.py", "--steps", "31")
    assert re.fullmatch(LAST_LINE.format(28), last_line(done))
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert losses[0] > 4.5  # an untrained model: about ln 128 = 4.85
    assert losses[-1] < 3.2  # the frequencies of the characters alone reach 3.25


@pytest.mark.parametrize("script", ["soap_charlm.py", "soap_large.py"])
def test_without_pytorch_optimizer_the_message_says_what_to_install(script: str, tmp_path: Path) -> None:
    (tmp_path / "pytorch_optimizer.py").write_text("raise ModuleNotFoundError")
    done = run(script, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"{script} needs the package pytorch_optimizer: pip install pytorch_optimizer\n"


def test_the_large_example_needs_a_gpu() -> None:
    done = run("soap_large.py", "--steps", "3")
    assert done.returncode == 3
    assert done.stderr == "soap_large.py needs a GPU; on a CPU run examples/soap_charlm.py\n"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("script", ["soap_charlm.py", "soap_large.py"])
def test_example_runs_on_a_gpu(script: str) -> None:
    assert re.fullmatch(LAST_LINE.format(3), last_line(run(script, "--steps", "3", gpu=True)))
