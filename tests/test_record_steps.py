"""What is recorded of real training programs: which steps, where they end, and that the program goes on as before."""

import gzip
import json
import re
from itertools import pairwise
from typing import Any

import pytest
import torch

MANY = 150  # steps: enough for every phase


def per_step(ended: Any, name: str) -> list[int]:
    """How often the op or annotation begins in each recorded step."""
    _, trace = ended.load()
    starts = trace.events[trace.events["name"] == name]["start"]
    return [int(starts.between(a, b, inclusive="left").sum()) for (_, a), (_, b) in pairwise(trace.marks())]


def recorded(ended: Any) -> list[int]:
    return [step.index for step in ended.run.recorded]


def test_marks_lead_in_and_settling_step_and_no_hook_is_left(workshop: Any) -> None:
    body = (
        "import torch.optim.optimizer as hooks\n"
        "before = torch._C._dispatch_dump('aten::linalg_qr'), torch.autograd.profiler.record_function.__enter__\n"
        f"for i in range({MANY}): step()\n"
        "print(len(hooks._global_optimizer_post_hooks), torch.autograd.profiler._enable_profiler.__module__)\n"
        "print(torch._C._dispatch_dump('aten::linalg_qr'))\n"
    )
    ended = workshop.train(body)
    plain = workshop.python("train.py")
    assert (ended.code, ended.out) == (0, plain.out)
    assert plain.out.startswith("0 ")
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
    assert per_step(ended, "aten::addmm") == [1] * 5


def test_the_record_holds_what_was_asked_for(workshop: Any) -> None:
    options = ("--steps", "3", "--warmup", "1", "--no-shapes", "--no-samples")
    ended = workshop.train(f"for i in range({MANY}): step(); torch.linalg.qr(torch.ones(4, 4))\n", *options)
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
    assert per_step(ended, "aten::addmm") == [4] * 5
    assert per_step(ended, "Optimizer.step#Adam.step") == [2] * 5


def test_mixed_precision(workshop: Any) -> None:
    body = (
        "scaler = torch.amp.GradScaler('cpu')\n"
        "for i in range(40):\n"
        "    with torch.autocast('cpu', dtype=torch.bfloat16): loss = model(torch.randn(4, 8)).square().mean()\n"
        "    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()\n"
    )
    ended = workshop.train(body)
    assert ended.code == 0
    assert per_step(ended, "aten::_amp_foreach_non_finite_check_and_unscale_") == [1] * 5


@pytest.mark.parametrize("steps", [60, 28], ids=["goes on", "ends while recording"])
def test_training_in_another_thread(workshop: Any, steps: int) -> None:
    body = (
        f"import threading\ndef train():\n    for i in range({steps}): step()\nthreading.Thread(target=train).start()\n"
    )
    ended = workshop.train(body)
    assert (ended.code, ended.script_err) == (0, "")
    assert set(per_step(ended, "aten::addmm")) == {1}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(workshop: Any, method: str) -> None:
    body = (
        "from torch.utils.data import DataLoader\n"
        "if __name__ == '__main__':\n"
        "    rows = [row for row in torch.randn(160, 8)]\n"
        f"    data = DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context='{method}')\n"
        "    for batch in data: model(batch).sum().backward(); optimizer.step()\n"
        "    print('done')\n"
    )
    ended = workshop.train(body)
    assert (ended.code, ended.out, ended.script_err) == (0, "done\n", "")
    assert per_step(ended, "aten::addmm") == [1] * 5


COPIES = """\
import atexit, resource
def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def copy(i):
    before, x = used(), torch.ones(4)
    for _ in range(50_000): x.add_(1)
    assert used() - before < 20_000, used() - before  # kB; an op that is recorded takes about one
    atexit.register(lambda: print('bye', i, flush=True))
    if i == 25: raise ValueError('bad')
    if i == 26: sys.exit('text')
    sys.exit(i)
if os.fork() == 0: copy(1)
for i in range(40):
    step()
    if 24 <= i <= 29 and os.fork() == 0: copy(i)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(7)))
"""


def test_forked_copies_end_as_under_python_and_are_not_recorded(workshop: Any) -> None:
    ended = workshop.train(COPIES)
    plain = workshop.python("train.py")
    assert plain.out.endswith("[1, 1, 1, 24, 27, 28, 29]\n")
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
    ended = workshop.train(body)
    plain = workshop.python("train.py")
    strip = re.compile(r"^W\d+ \S+ \d+")
    assert (ended.code, ended.out) == (0, plain.out)
    assert [strip.sub("", line) for line in ended.script_err.splitlines()] == [
        strip.sub("", line) for line in plain.err.splitlines()
    ]
    assert len(recorded(ended)) == 5
    assert ended.run.linalg[0].site == "train.py:15"


def test_a_program_without_steps_is_recorded_as_a_whole(workshop: Any) -> None:
    ended = workshop.train("print(torch.linalg.qr(torch.ones(4, 4))[0].shape)\n")
    run = ended.run
    assert ended.said == ["recorded the whole run of train.py; see `qrprof rank`"]
    assert (run.step_source, run.step_ns()) == ("whole run", None)
    assert [(step.index, step.weight) for step in run.recorded] == [(0, 1.0)]
    assert per_step(ended, "aten::linalg_qr") == [1]


# --- the script's own profiler

OWN = (
    "from torch.profiler import profile, schedule\n"
    "def profiled(steps):\n"
    "    with profile() as own:\n"
    "        for i in range(steps): step()\n"
    "    return sum(event.name == 'aten::addmm' for event in own.events())\n"
)


@pytest.mark.parametrize(
    ("body", "printed", "notes"),
    [
        ("print(profiled(4))\nfor i in range(40): step()\n", "4\n", 1),
        ("for i in range(26): step()\nprint(profiled(9))\nfor i in range(40): step()\n", "9\n", 1),
        ("for i in range(35): step()\nprint(profiled(9))\n", "9\n", 1),
        (f"for i in range({MANY}): step()\nprint(profiled(4))\n", "4\n", 0),
    ],
    ids=["before ours", "during ours", "in the second block", "after ours"],
)
def test_a_script_with_its_own_profiler_gets_its_events(workshop: Any, body: str, printed: str, notes: int) -> None:
    ended = workshop.train(OWN + body)
    assert (ended.code, ended.out, ended.script_err) == (0, printed, "")
    assert per_step(ended, "aten::addmm") == [1] * 5
    theirs = "the script runs torch.profiler itself; steps it profiled were left alone"
    assert ended.run.notes == [theirs] * notes


def test_a_script_that_always_profiles_itself_is_told_so(workshop: Any) -> None:
    ended = workshop.train(OWN + "print(profiled(60))\n")
    assert (ended.code, ended.out, ended.run_folders) == (1, "60\n", [])
    assert ended.said == ["train.py ended and nothing was recorded: it runs torch.profiler itself; trace it without"]


# --- ranges

RANGES = {
    "record_function": ("", "with torch.profiler.record_function('part'): work()"),
    "nvtx.annotate": ("import nvtx\n", "with nvtx.annotate('part', color='red'): work()"),
    "nvtx decorator": ("from nvtx import annotate\n", "annotate('part')(work)()"),
    "push_range": ("from nvtx import push_range, pop_range\n", "push_range(message='part'); work(); pop_range()"),
}


@pytest.mark.parametrize(("imports", "call"), RANGES.values(), ids=RANGES)
def test_a_step_can_be_a_range(workshop: Any, imports: str, call: str) -> None:
    body = (
        "def work(): return model(torch.randn(4, 8))\n"
        "for i in range(40):\n"
        "    with torch.profiler.record_function('other'): step()\n"
        f"    {call}\n"
    )
    workshop.write("train.py", imports + workshop.setup + body)
    ended = workshop.trace("--range", "part", "train.py")
    assert (ended.code, ended.script_err) == (0, "")
    assert ended.run.step_source == "range part"
    assert per_step(ended, "aten::addmm") == [2] * 5


# --- the end comes early, or is asked for


@pytest.mark.parametrize("steps", [2, 12, 24])
def test_too_few_steps_are_not_recorded(workshop: Any, steps: int) -> None:
    ended = workshop.train(f"for i in range({steps}): step()\n")
    assert (ended.code, ended.run_folders) == (1, [])
    enough = "recording needs 25 or more: let it run longer, or lower --steps (now 5) and --warmup (now 3)"
    assert ended.said == [f"train.py ended after {steps} steps; {enough}"]


def test_a_recording_cut_short_keeps_its_whole_steps(workshop: Any) -> None:
    ended = workshop.train("for i in range(27): step()\n")
    assert ended.code == 0
    assert ended.said == ["recorded 3 steps of train.py; see `qrprof rank`"]
    assert recorded(ended) == [24, 25, 26]
    assert sum(step.weight for step in ended.run.recorded) == pytest.approx(1)
    assert ended.run.notes == ["the script ended after 3 of 5 steps to record"]


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


def test_nothing_is_thrown_into_a_script_that_catches_everything(workshop: Any) -> None:
    assert workshop.train(STUBBORN).out == "saved\nend\n"


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


# --- steps that differ


def every(period: int, steps: int) -> str:
    return (
        f"for i in range({steps}):\n"
        f"    if i % {period} == {period} - 1: q, r = torch.linalg.qr(torch.full((6, 4), i / 7) + torch.eye(6, 4))\n"
        "    step()\n"
    )


@pytest.mark.parametrize("period", [10, 7])
def test_a_period_is_found_and_recorded_whole(workshop: Any, period: int) -> None:
    ended = workshop.train(every(period, 200))
    run = ended.run
    assert (run.period, len(run.recorded)) == (period, period)
    assert sorted(kind.frequency for kind in run.kinds) == pytest.approx([1 / period, 1 - 1 / period])
    assert sum(step.weight for step in run.recorded) == pytest.approx(1)
    qr = per_step(ended, "aten::linalg_qr")
    assert [step.kind for step in run.recorded] == ["AB"[count] for count in qr]
    assert sum(qr) == 1
    for block in run.unprofiled:
        assert len(block.durations_ns) % period == 0
        assert [kind == "B" for kind in block.kinds] == [
            n % period == period - 1 for n in range(block.first_step, block.first_step + len(block.kinds))
        ]
    (call,) = run.linalg
    assert (call.op, call.shape, call.strides) == ("aten::linalg_qr", [6, 4], [4, 1])
    assert (call.dtype, call.device) == ("float32", "cpu")
    assert call.calls_per_step == pytest.approx(1 / period)
    assert call.ns_per_step > 0
    assert call.site == "train.py:10"
    (path,) = (ended.folder / "cache" / "samples").iterdir()
    for sample in torch.load(path, weights_only=True).values():
        x = float((sample - torch.eye(6, 4))[0, 1])
        assert torch.equal(sample, torch.full((6, 4), round(7 * x) / 7) + torch.eye(6, 4))
        assert round(7 * x) % period == period - 1
    assert len(torch.load(path, weights_only=True)) == call.samples > 0


def test_a_rare_refresh_is_found_and_weighted(workshop: Any) -> None:
    ended = workshop.train(every(50, 300))
    run = ended.run
    assert run.period == 50
    assert len(run.recorded) < 10
    weights = {kind: sum(step.weight for step in run.recorded if step.kind == kind) for kind in "AB"}
    assert weights == pytest.approx({"A": 0.98, "B": 0.02})
    assert sum(per_step(ended, "aten::linalg_qr")) == 1
    assert run.linalg[0].calls_per_step == pytest.approx(0.02)
    assert run.notes == []


def test_steps_without_a_pattern_are_said_to_differ(workshop: Any) -> None:
    squares = "for i in range(300):\n    if i**0.5 % 1 == 0: torch.linalg.qr(torch.ones(4, 4))\n    step()\n"
    run = workshop.train(squares).run
    assert run.period is None
    assert len(run.notes) == 1
    assert re.fullmatch(
        r"steps differ: the recorded ones are 1 of 2 kinds, and no period up to 64 was found in \d+ steps", run.notes[0]
    )
