"""What a program could trip over while it is recorded, and does not."""

import signal
from typing import Any

import pytest

from qrprof.profiler.nesting import nest


def test_a_kernel_that_the_script_keeps_outlives_the_recording(workshop: Any) -> None:
    body = (
        "kernel = torch.library.get_kernel('aten::linalg_qr', 'CPU')\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "def mine(keys, A, mode='reduced'): return kernel.call_boxed(keys, A, mode)\n"
        "library.impl('linalg_qr', mine, 'CPU', with_keyset=True, allow_override=True)\n"
        "for i in range(150): step(); torch.linalg.qr(torch.ones(4, 4))\n"
        "print(torch.library.get_kernel.__module__)\n"
    )
    ended = workshop.train(body, PYTHONWARNINGS="ignore")
    assert (ended.code, ended.out) == (0, "torch.library\n"), ended.err
    assert len(ended.run.recorded) == 5


def test_no_matrix_is_sampled_while_a_whole_run_is_recorded(workshop: Any) -> None:
    workshop.write("script.py", "import torch\ntorch.linalg.qr(torch.ones(64, 64))\n")
    ended = workshop.trace("script.py")
    assert ended.code == 0
    _, trace = ended.load()
    host = nest(trace.events)
    names = host.names()
    (qr,) = (row for row, name in enumerate(names) if name == "aten::linalg_qr")
    inside = {names[row] for row, parent in enumerate(host.parent) if parent == qr}
    assert "aten::to" not in inside
    assert not (ended.folder / "cache" / "samples").exists()


@pytest.mark.parametrize("use", ["with nvtx.annotate('part'): step()", "nvtx.annotate('part')(step)()"])
def test_nvtx_may_be_switched_off(workshop: Any, use: str) -> None:
    body = f"import nvtx\nfor i in range(10):\n    {use}\nprint('done')\n"
    ended = workshop.train(body, "--range", "x", NVTX_DISABLE="1")
    assert (ended.out, ended.script_err) == ("done\n", "")


def test_ranks_that_meet_once_are_not_repeated(workshop: Any) -> None:
    ended = workshop.train("step()\n", "--repeat", "2", RANK="0", WORLD_SIZE="2")
    assert ended.code == 2
    assert ended.said == ["cannot repeat under a launcher of 2 ranks, which meet once; leave out --repeat"]


def test_a_second_recording_cut_short_leaves_the_first(workshop: Any) -> None:
    # A rare step each 30th: the first window (24..28) holds none, and the script ends inside the second.
    body = "for i in range(89):\n    if i % 30 == 29: torch.linalg.qr(torch.ones(4, 4))\n    step()\n"
    ended = workshop.train(body)
    assert ended.code == 0
    run = ended.run
    assert [step.index for step in run.recorded] == [24, 25, 26, 27, 28]
    assert not any("the script ended after" in note for note in run.notes)
    assert any(note.startswith("steps differ") for note in run.notes)


def test_a_signal_for_checkpoints_reaches_the_script(workshop: Any) -> None:
    body = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    workshop.write("train.py", workshop.setup + body)
    process = workshop.start("-m", "qrprof", "trace", "train.py")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert workshop.ended(process).out == "saved\n"
