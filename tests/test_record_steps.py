"""What is recorded of real training programs: which steps, where they end, and that the program goes on as before."""

import gzip
import json
import re
from typing import Any

import pytest
import torch


def recorded(ended: Any) -> list[int]:
    return [step.index for step in ended.run.recorded]


STUBBORN = (
    "def train():\n"
    "    while True:\n"
    "        try:\n"
    "            for i in range(1000): step()\n"
    "            return\n"
    "        except BaseException as error: print('caught', error)\n"
    "        finally: print('saved')\n"
    "train()\n"
    "print('end')\n"
)


def test_marks_lead_in_and_settling_step_and_no_hook_is_left(workshop: Any) -> None:
    body = (
        "import torch.optim.optimizer as hooks\n"
        + STUBBORN
        + "print(len(hooks._global_optimizer_post_hooks), torch.autograd.profiler._enable_profiler.__module__)\n"
        "print(torch._C._dispatch_dump('aten::linalg_qr'))\n"
        "with torch.profiler.profile() as own: step()\n"
        "print(sum(event.name == 'aten::addmm' for event in own.events()))\n"
    )
    workshop.write("train.py", workshop.setup + body)
    plain, ended = workshop.both("train.py")
    assert (ended.code, ended.out) == (0, plain.out)
    assert plain.out.startswith("saved\nend\n0 torch")
    assert plain.out.endswith("\n1\n")
    assert ended.run.notes == []
    assert ended.said == ["recorded 5 steps of train.py; the script goes on; see `qrprof rank`"]
    with gzip.open(ended.run_folders[0] / "rank0.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    marks = [event for event in events if event.get("name", "").startswith("qrprof.step#")]
    # 3 steps of warm-up (0..2), 20 unprofiled (3..22), the lead-in (23), 5 recorded (24..28)
    marks.sort(key=lambda mark: mark["ts"])
    assert [mark["name"] for mark in marks] == [f"qrprof.step#{n}" for n in range(24, 30)]
    assert recorded(ended) == [24, 25, 26, 27, 28]
    steps = sorted(event["ts"] for event in events if event.get("name") == "Optimizer.step#SGD.step")
    assert sum(start < marks[0]["ts"] for start in steps) == 1  # of the lead-in step
    assert ended.per_step("aten::addmm") == [1] * 5


def test_the_record_holds_what_was_asked_for(workshop: Any) -> None:
    options = ("--steps", "3", "--warmup", "1", "--no-shapes", "--no-samples")
    ended = workshop.train("for i in range(150): step(); torch.linalg.qr(torch.ones(4, 4))\n", *options)
    run, trace = ended.load()
    assert run.unprofiled[0].first_step == 1
    assert len(run.unprofiled[0].durations_ns) == 12
    assert recorded(ended) == [14, 15, 16]
    assert set(trace.events["shapes"]) == {""}
    assert [call.samples for call in run.linalg] == [0]
    assert not (ended.folder / "cache" / "samples").exists()
    assert (run.period, run.threads, run.exit_code, run.world_size) == (1, 1, 0, 1)
    assert run.step_ns() > 0
    assert run.versions["torch"] == torch.__version__
    assert [device.kind for device in run.devices] == ["cpu"]


# --- programs


def test_a_step_is_a_step_of_the_first_optimizer(workshop: Any) -> None:
    body = (
        "other = torch.optim.Adam(model.parameters())\n"
        "for i in range(160):\n"
        "    model(torch.randn(4, 8)).sum().backward()\n"
        "    if i % 4 == 3: optimizer.step(); other.step(); other.step()\n"
    )
    ended = workshop.train(body)
    assert ended.run.step_source == "optimizer SGD"
    assert ended.per_step("aten::addmm") == [4] * 5
    assert ended.per_step("Optimizer.step#Adam.step") == [2] * 5


def test_mixed_precision(workshop: Any) -> None:
    body = (
        "scaler = torch.amp.GradScaler('cpu')\n"
        "for i in range(40):\n"
        "    with torch.autocast('cpu', dtype=torch.bfloat16): loss = model(torch.randn(4, 8)).square().mean()\n"
        "    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()\n"
    )
    ended = workshop.train(body)
    assert ended.code == 0
    assert ended.per_step("aten::_amp_foreach_non_finite_check_and_unscale_") == [1] * 5


def test_training_in_another_thread(workshop: Any) -> None:
    body = (
        "import threading\n"
        "def train():\n"
        "    for i in range(27): step()\n"
        "threading.Thread(target=train).start()\n"  # the recording ends in the main thread
    )
    ended = workshop.train(body)
    assert (ended.code, ended.script_err) == (0, "")
    assert ended.per_step("aten::addmm") == [1] * 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(workshop: Any, method: str) -> None:
    body = (
        "from torch.utils.data import DataLoader\n"
        "if __name__ == '__main__':\n"
        "    rows = [row for row in torch.randn(160, 8)]\n"
        f"    data = DataLoader(rows, batch_size=4, num_workers=1, multiprocessing_context='{method}')\n"
        "    for batch in data: model(batch).sum().backward(); optimizer.step()\n"
        "    print('done')\n"
    )
    ended = workshop.train(body)
    assert (ended.code, ended.out, ended.script_err) == (0, "done\n", "")
    assert ended.per_step("aten::addmm") == [1] * 5


COPIES = """\
import atexit, resource
def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def copy(i):
    before, x = used(), torch.ones(4)
    for _ in range(30_000): x.add_(1)
    assert used() - before < 10_000, used() - before  # kB; an op that is recorded takes about one
    atexit.register(lambda: print('bye', i, flush=True))
    if i == 25: raise ValueError('bad')
    if i == 26: sys.exit('text')
    sys.exit(i)
if os.fork() == 0: copy(1)
for i in range(40):
    step()
    if i in (24, 25, 26, 29) and os.fork() == 0: copy(i)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(5)))
"""


def test_forked_copies_end_as_under_python_and_are_not_recorded(workshop: Any) -> None:
    workshop.write("train.py", workshop.setup + COPIES)
    plain, ended = workshop.both("train.py")
    assert plain.out.endswith("[1, 1, 1, 24, 29]\n")
    assert ended.code == 0
    for mine, pythons in ((ended.out, plain.out), (ended.script_err, plain.err)):
        assert sorted(mine.splitlines()) == sorted(pythons.splitlines())
    assert recorded(ended) == [24, 25, 26, 27, 28]


def test_compiled_model_and_optimizer_are_compiled_as_without_us(workshop: Any) -> None:
    body = (
        "model.compile(backend='aot_eager')\n"
        "@torch.compile(backend='eager')\n"
        "def optimize(): optimizer.step()\n"
        "@torch.compile(backend='eager')\n"
        "def factor(x):\n"
        "    torch._dynamo.graph_break()\n"
        "    return torch.linalg.qr(x)[0]\n"
        "for i in range(40):\n"
        "    optimizer.zero_grad(); model(torch.randn(4, 8)).square().mean().backward(); optimize()\n"
        "    factor(torch.randn(4, 4))\n"
        "print(torch._dynamo.utils.counters['stats'], torch._dynamo.utils.counters['graph_break'])\n"
    )
    workshop.write("train.py", workshop.setup + body)
    plain, ended = workshop.both("train.py")
    strip = re.compile(r"^W\d+ \S+ \d+")
    assert (ended.code, ended.out) == (0, plain.out)
    assert [strip.sub("", line) for line in ended.script_err.splitlines()] == [
        strip.sub("", line) for line in plain.err.splitlines()
    ]
    assert len(recorded(ended)) == 5
    assert re.fullmatch("train.py:1[45]", ended.run.linalg[0].site)  # compiled code keeps no exact line


def test_a_program_without_steps_is_recorded_as_a_whole(workshop: Any) -> None:
    ended = workshop.train("print(torch.linalg.qr(torch.ones(4, 4))[0].shape)\n")
    run = ended.run
    assert ended.said == ["recorded the whole run of train.py; see `qrprof rank`"]
    assert (run.step_source, run.step_ns(), run.notes) == ("whole run", None, [])
    assert [(step.index, step.weight) for step in run.recorded] == [(0, 1.0)]
    assert ended.per_step("aten::linalg_qr") == [1]


def test_of_a_long_program_without_steps_the_beginning_is_recorded(workshop: Any) -> None:
    begin = (
        "import time, qrprof.profiler.recording.recorder\nqrprof.profiler.recording.recorder.OPENING_SECONDS = 0.6\n"
    )
    body = "model(torch.ones(4, 8))\ntime.sleep(1.5)\ntorch.linalg.qr(torch.ones(4, 4))\n"
    workshop.write("train.py", begin + workshop.setup + body)
    ended = workshop.trace("train.py")
    assert ended.run.notes == ["only the first 1 s were recorded; give --range NAME for steps"]
    assert (ended.per_step("aten::addmm"), ended.per_step("aten::linalg_qr")) == ([1], [0])


# --- the script's own profiler

OWN = (
    "from torch.profiler import profile, schedule\n"
    "def profiled(steps):\n"
    "    with profile() as own:\n"
    "        for i in range(steps): step()\n"
    "    return sum(event.name == 'aten::addmm' for event in own.events())\n"
)


@pytest.mark.parametrize(
    ("body", "printed"),
    [
        ("print(profiled(4))\nfor i in range(40): step()\n", "4\n"),
        ("for i in range(26): step()\nprint(profiled(9))\nfor i in range(40): step()\n", "9\n"),
        ("for i in range(35): step()\nprint(profiled(9))\n", "9\n"),
    ],
    ids=["before ours", "during ours", "in the second block"],
)
def test_a_script_with_its_own_profiler_gets_its_events(workshop: Any, body: str, printed: str) -> None:
    ended = workshop.train(OWN + body)
    assert (ended.code, ended.out, ended.script_err) == (0, printed, "")
    assert ended.per_step("aten::addmm") == [1] * 5
    assert ended.run.notes == ["the script runs torch.profiler itself; steps it profiled were left alone"]


def test_a_script_that_always_profiles_itself_is_told_so(workshop: Any) -> None:
    ended = workshop.train(OWN + "print(profiled(60))\n")
    assert (ended.code, ended.out, ended.run_folders) == (1, "60\n", [])
    assert ended.said == ["train.py ended and nothing was recorded: it runs torch.profiler itself; trace it without"]


# --- ranges

RANGES = """\
def work(): return model(torch.randn(4, 8))
@annotate('part')
def decorated(): work()
for i in range(60):
    with torch.profiler.record_function('other'): step()
    if i % 5 == 0:
        with torch.profiler.record_function('part'): work()
    if i % 5 == 1:
        with annotate('part', color='red'): work()
    if i % 5 == 2: decorated()
    if i % 5 == 3: push_range(message='part'); work(); pop_range()
    if i % 5 == 4: end = start_range('part'); work(); end_range(end)
"""


def test_a_step_can_be_a_range_of_torch_or_nvtx(workshop: Any) -> None:
    imports = "from nvtx import annotate, push_range, pop_range, start_range, end_range\n"  # before torch
    workshop.write("train.py", imports + workshop.setup + RANGES)
    ended = workshop.trace("--range", "part", "train.py")
    assert (ended.code, ended.script_err) == (0, "")
    assert ended.run.step_source == "range part"
    assert ended.per_step("aten::addmm") == [2] * 5


# --- several optimizers

TWO = """\
other = torch.nn.Linear(8, 8)
second = torch.optim.Adam(other.parameters())
def second_step():
    second.zero_grad(); other(torch.randn(4, 8)).square().mean().backward(); second.step()
for i in range(60):
    step()
    if {when}: second_step()
"""


def test_another_optimizer_that_steps_less_often_is_noted(workshop: Any) -> None:
    run = workshop.train(TWO.format(when="i % 5 == 4")).run
    assert run.step_source == "optimizer SGD"
    (note,) = run.notes
    told = r"another optimizer \(Adam\) stepped (0\.\d+) times a step; a step here is the first one's; give --range"
    found = re.match(told, note)
    assert found is not None
    assert float(found[1]) == pytest.approx(0.2, abs=0.03)  # counted until the recording is complete


def test_optimizers_that_step_as_often_are_one_step(workshop: Any) -> None:
    run = workshop.train(TWO.format(when="i != 3")).run
    assert run.step_source == "optimizer SGD"
    assert run.notes == []


# --- the end comes early, or is asked for


@pytest.mark.parametrize(
    ("steps", "options", "enough"),
    [
        (2, (), "25 or more, 7 with --steps 1 --warmup 1: let it run longer"),
        (24, (), "25 or more: let it run longer, or lower --steps (now 5) and --warmup (now 3)"),
        (22, ("--warmup", "0"), "23 or more: let it run longer, or lower --steps (now 5)"),
        (8, ("--steps", "1"), "9 or more: let it run longer, or lower --warmup (now 3)"),
        (6, ("--steps", "1", "--warmup", "0"), "7 or more: let it run longer"),
    ],
)
def test_too_few_steps_are_not_recorded(workshop: Any, steps: int, options: tuple[str, ...], enough: str) -> None:
    ended = workshop.train(f"for i in range({steps}): step()\n", *options)
    assert (ended.code, ended.run_folders) == (1, [])
    assert ended.said == [f"train.py ended after {steps} steps; recording needs {enough}"]


@pytest.mark.parametrize(("steps", "options"), [(7, ("--steps", "1", "--warmup", "0")), (25, ())])
def test_as_many_steps_as_are_needed_are_recorded(workshop: Any, steps: int, options: tuple[str, ...]) -> None:
    ended = workshop.train(f"for i in range({steps}): step()\n", *options)
    assert (ended.code, len(recorded(ended))) == (0, 1)


def test_a_recording_cut_short_keeps_its_whole_steps(workshop: Any) -> None:
    ended = workshop.train("for i in range(27): step()\n")
    assert ended.code == 0
    assert ended.said == ["recorded 3 steps of train.py; see `qrprof rank`"]
    assert recorded(ended) == [24, 25, 26]
    assert sum(step.weight for step in ended.run.recorded) == pytest.approx(1)
    assert ended.run.notes == ["the script ended after 3 of 5 steps to record"]


def test_stop_ends_the_script_at_once_and_without_its_handlers(workshop: Any) -> None:
    body = "import atexit\natexit.register(print, 'exit handler')\nprint('begin')\nprint('warned', file=sys.stderr)\n"
    ended = workshop.train(body + STUBBORN, "--stop")
    assert (ended.code, ended.out, ended.script_err) == (0, "begin\n", "warned\n")
    assert ended.said == ["recorded 5 steps of train.py; see `qrprof rank`"]
    assert recorded(ended) == [24, 25, 26, 27, 28]


def test_repeat_runs_the_script_again_to_time_it(workshop: Any) -> None:
    ended = workshop.train("print('run')\nfor i in range(60): step()\n", "--repeat", "2")
    assert (ended.code, ended.out) == (0, "run\nrun\n")
    (durations,) = ended.run.repeats
    assert len(durations) == 20
    assert min(durations) > 0
    assert sorted(path.name for path in ended.run_folders[0].glob("*.json*")) == ["rank0.trace.json.gz", "run.json"]
