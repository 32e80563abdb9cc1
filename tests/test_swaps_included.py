"""The included kernels before the gate: a file of ours may import them, and no other candidate may."""

from pathlib import Path

import pytest
import torch

from qrprof.kernels.qr import cpu
from qrprof.planner.gate.limits import Limits
from qrprof.planner.gate.worker import started
from qrprof.planner.swaps.proposals import WRAPPER

A = torch.randn(64, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.skipif(not cpu.available(), reason="torch is not built with MKL and OpenMP")
def test_a_file_of_ours_imports_them_and_their_threads_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    file = tmp_path / "candidate.py"
    file.write_text(WRAPPER)
    with started(file, "cpu", Limits(included=True)) as worker:
        assert worker.build().signs == ()
        reply = worker.call([(A, "reduced")], watch=True)
    assert reply.signs == ()
    q, r = reply.calls[0].outputs
    assert torch.allclose(q @ r, A, atol=1e-5)


@pytest.mark.parametrize(
    "text", [WRAPPER, "import sys\nassert not [name for name in sys.modules if name.startswith('qrprof.kernels.qr')]\n"]
)
def test_another_candidate_is_found_importing_them_and_finds_none_that_are_there(tmp_path: Path, text: str) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(text + "\ncandidate = print\n")
    with started(file, "cpu", Limits()) as worker:
        found = worker.build().signs
    assert [sign.detector for sign in found] == (["import"] if text == WRAPPER else [])
