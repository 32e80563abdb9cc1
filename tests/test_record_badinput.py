"""What cannot be run or recorded: one sentence, the right exit code, and nothing half-written."""

import os
import stat
import sys
from typing import Any

import pytest

RUN_40 = "for i in range(40): step()\nprint('end')\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("nosuch.py", "nosuch.py"), ("folder", "folder"), ("secret.py", "secret.py"), ("", "")],
)
def test_a_script_that_cannot_be_read_is_a_usage_error(workshop: Any, script: str, reason: str) -> None:
    (workshop.folder / "folder").mkdir()
    workshop.write("secret.py", "print('read')\n").chmod(0)
    if script == "secret.py" and os.access(workshop.folder / script, os.R_OK):
        pytest.skip("this user may read every file")
    ended = workshop.trace(script)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == len(ended.said) == 1
    assert reason in ended.said[0]
    assert not (workshop.folder / ".qrprof").exists()


def test_the_folder_for_runs_must_be_writable_before_the_script_starts(workshop: Any) -> None:
    workshop.write(".qrprof", "a file\n")
    workshop.write("train.py", "print('started')\n")
    ended = workshop.trace("train.py")
    assert (ended.code, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == len(ended.said) == 1
    assert ended.said[0].startswith("cannot write .qrprof")
    assert "--out" in ended.said[0]


def test_runs_go_where_out_says_even_if_the_script_changes_its_folder(workshop: Any) -> None:
    (workshop.folder / "elsewhere").mkdir()
    ended = workshop.train("os.chdir('/')\n" + RUN_40, "--out", "elsewhere")
    assert (ended.code, ended.out) == (0, "end\n")
    (run,) = (workshop.folder / "elsewhere" / ".qrprof" / "runs").iterdir()
    assert (run / "run.json").is_file()
    assert stat.S_IMODE((workshop.folder / "elsewhere" / ".qrprof").stat().st_mode) == 0o700


def test_a_script_that_dies_before_its_first_step_leaves_no_run(workshop: Any) -> None:
    ended = workshop.train("torch.ones(3) + 1\nraise ValueError('bad data')\n")
    assert ended.code == 1
    assert ended.script_err.endswith("ValueError: bad data\n")
    assert ended.said == ["train.py ended with exit code 1 before its first step; nothing was recorded"]
    assert ended.run_folders == []


def test_a_script_that_only_imports_torch_leaves_no_run(workshop: Any) -> None:
    workshop.write("train.py", "import torch\nprint('end')\n")
    ended = workshop.trace("train.py")
    assert (ended.code, ended.out, ended.run_folders) == (1, "end\n", [])
    assert ended.said == ["train.py ended before its first step; nothing was recorded"]


def test_a_range_that_is_never_entered_is_named(workshop: Any) -> None:
    ended = workshop.train(RUN_40, "--range", "nosuch")
    assert (ended.code, ended.run_folders) == (1, [])
    assert ended.said == ["train.py ended without entering the range 'nosuch'; give the name of a range around a step"]


def test_a_hard_exit_loses_the_recording_under_way_only(workshop: Any) -> None:
    leave = "for i in range({}): step()\nos._exit(4)\n"
    lost = workshop.train(leave.format(26))
    assert (lost.code, lost.run_folders) == (4, [])
    assert len(lost.said) == 1
    kept = workshop.train(leave.format(32))
    assert (kept.code, kept.run.exit_code, len(kept.run.recorded)) == (4, 4, 5)


def test_a_fault_of_the_recorder_ends_the_recording_and_not_the_script(workshop: Any) -> None:
    ended = workshop.train("import qrprof.profiler.recording.recorder as own\nown.decide = lambda *_: 1 / 0\n" + RUN_40)
    assert (ended.code, ended.out, ended.script_err, ended.run_folders) == (1, "end\n", "", [])
    assert ended.said == ["the recorder failed (ZeroDivisionError: division by zero); the script went on without it"]


# --- no space left

FULL = """\
import resource, signal
def fill(bytes_a_file):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("size", [0, 4096], ids=["nothing", "part of a file"])
def test_on_a_full_disk_the_script_runs_to_its_end(workshop: Any, size: int) -> None:
    ended = workshop.train(FULL + f"fill({size})\n" + RUN_40)
    assert (ended.code, ended.out, ended.script_err) == (1, "end\n", "")
    assert len(ended.said) == 1
    assert ended.said[0].startswith("cannot write ")
    assert ended.run_folders == []


def test_without_room_for_samples_the_run_is_kept(workshop: Any) -> None:
    (workshop.folder / "cache").write_text("no folder\n")
    ended = workshop.train("for i in range(40): step(); torch.linalg.qr(torch.ones(4, 4))\n")
    assert (ended.code, len(ended.run.recorded)) == (0, 5)
    assert [call.samples for call in ended.run.linalg] == [0]
    (note,) = ended.run.notes
    assert note.startswith(f"no matrix samples: cannot write {workshop.folder / 'cache'}")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_output_that_cannot_be_written_fails_as_under_python(workshop: Any) -> None:
    workshop.write("train.py", "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('lost')\n")
    plain, traced = workshop.both("train.py")
    assert (traced.code, traced.script_err) == (plain.code or 1, plain.err)
