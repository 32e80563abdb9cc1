"""`qrprof optimize`: what it begins with, prints and keeps; the evaluator knows each file's speed beforehand."""

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest
from gate_cases import PASSED, case_time
from gate_tasks import MM
from loopback import loopback
from test_optimize_feedback import PEAKS
from test_tui_task import events, op

from qrprof.planner.gate.records import Interval, Outcome, Preview
from qrprof.planner.gate.task_store import keep
from qrprof.planner.ledger import opened
from qrprof.planner.optimize.budget import parse
from qrprof.planner.optimize.chat import Chat
from qrprof.planner.optimize.journal import journal_of
from qrprof.planner.optimize.records import Budget, Evaluation, Job
from qrprof.planner.optimize.tunables import tunables
from qrprof.planner.predictions import listed
from qrprof.profiler.devices import devices_folder, save
from qrprof.tui.cli import run
from qrprof.tui.commands.gate import command as gate_command
from qrprof.tui.commands.history import command as history_command
from qrprof.tui.commands.optimize import command as optimize_command
from qrprof.tui.commands.task import command as task_command

START = """\
TUNABLES = {"WAIT": (3, 2, 1), "SHAPE": ("wide", "tall")}
WAIT = 3
SHAPE = "wide"


def candidate(a, b):
    return a @ b
"""
SOFTMAX = START.replace("a, b", "self, dim, half_to_float").replace("a @ b", "self.softmax(dim)")
STEADY = {"clock": "host clock", "first_step": 3, "durations_ns": [400_000] * 5, "kinds": ["A"] * 5}


@dataclass
class Evaluators:
    """Stands for the pool of this machine: a file is as many times faster as its WAIT is less, and "tall" is wrong."""

    asked: list[Job] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    sealed: Outcome = "PASS"
    lost: str | None = None  # why every evaluation is
    refused: Callable[[str], bool] = lambda source: False  # whether the gate finds a file wrong
    during: Callable[[], object] = lambda: None
    slots: int = 1

    def __call__(self, slots: int = 1, **options: Any) -> Self:
        self.made.append(options)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def cancel(self) -> None: ...

    def evaluate(self, jobs: Sequence[Job]) -> list[Evaluation]:
        self.during()
        self.asked += jobs
        return [self.evaluated(job) if self.lost is None else self.gone(job) for job in jobs]

    def gone(self, job: Job) -> Evaluation:
        return Evaluation(job, 1.0, "here", "cpu", lost=self.lost)

    def evaluated(self, job: Job) -> Evaluation:
        now = {one.name: one.value for one in tunables(job.source)}
        before = {one.name: one.value for one in tunables(job.parent or START)}
        speed = int(str(before["WAIT"])) / int(str(now["WAIT"]))
        over = Interval(0.98 * speed, speed, 1.02 * speed)
        wrong = now["SHAPE"] == "tall"
        if job.rung == "preview":
            found = Preview("FAIL", ("wrong by 7 units",), None) if wrong else Preview("PASS", (), over, 0.01)
            return Evaluation(job, 2.0, "here", "cpu", preview=found)
        sha256 = hashlib.sha256(job.source.encode()).hexdigest()
        number = f"20260201-0900{len(self.asked):02}-{sha256[:8]}"
        times = tuple(case_time(case.name, speed) for case in job.task.development)
        outcome = self.sealed if job.rung == "sealed" else "PASS"
        if self.refused(job.source):
            outcome = "FAIL"
        verdict = replace(
            PASSED, id=number, task=job.task.id, candidate=sha256, outcome=outcome, times=times, findings=(),
            speedup=over, over_parent=over, tries=job.tries,
        )  # fmt: skip
        return Evaluation(job, 20.0, "here", "cpu", verdict=verdict)


@dataclass(frozen=True)
class Desk:
    """A folder with a task and a file to start from."""

    folder: Path
    pool: Evaluators
    capsys: pytest.CaptureFixture[str]

    def call(self, *args: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run(["optimize", *args])
        return code, *self.capsys.readouterr()

    def of_task(self, *args: str) -> tuple[int, str, str]:
        return self.call("--task", "test", "--start", "own.py", *args)

    def events(self, *args: str) -> list[dict[str, Any]]:
        code, out, err = self.of_task("--json", *args)
        assert (code, err) == (0, "")
        return [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("QRPROF_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    keep(tmp_path, MM)
    (tmp_path / "own.py").write_text(START)
    pool = Evaluators()
    monkeypatch.setattr("qrprof.planner.optimize.pool.LocalPool", pool)
    return Desk(tmp_path, pool, capsys)


def words(text: str) -> str:
    return " ".join(text.split())


# --- a task alone


def test_a_search_ends_in_a_file_a_verdict_and_how_to_look_at_it(desk: Desk) -> None:
    code, out, err = desk.of_task()
    assert code == 0
    assert words(out).startswith("Suggestion: 3.00x (2.94x to 3.06x) the speed of the stock op")
    (file,) = (desk.folder / ".qrprof" / "candidates").iterdir()
    assert f"file .qrprof/candidates/{file.name}" in words(out)
    assert "WAIT = 1" in file.read_text()
    assert hashlib.sha256(file.read_bytes()).hexdigest().startswith(file.stem)
    verdict = out.partition("`qrprof verdict ")[2].partition("`")[0]
    assert run(["verdict", verdict]) == 0
    lines = err.splitlines()
    judged = [line for line in lines if "WAIT" in line]
    assert any("PASS 3.00x" in line and "left" in line and "evaluations" in line for line in judged)
    assert any("FAIL" in line and "wrong by 7 units" in line for line in lines)
    assert all(line.startswith("qrprof: ") for line in lines)


def test_events_are_one_json_object_a_line_and_those_of_the_ledger(desk: Desk) -> None:
    found = desk.events()
    assert {one["schema"] for one in found} == {1}
    kinds = [one["kind"] for one in found]
    assert kinds[:2] == ["started", "plan"]
    assert "it may cost 1,800 s, 40 evaluations" in found[1]["text"]
    assert kinds[-2:] == ["ended", "suggestion"]
    journal = journal_of(desk.folder)
    (one,) = journal.optimizations()
    kept = [{"schema": 1, "kind": event.kind, "at": event.at, **event.record} for event in journal.events(one.id)]
    assert found[:-1] == json.loads(json.dumps(kept))
    assert found[-1]["optimization"] == one.id
    assert found[-1]["speedup"]["mid"] == 3.0


def test_the_budget_is_kept_to_the_evaluation(desk: Desk) -> None:
    assert desk.of_task("--budget", "3evals")[0] == 0
    assert len(desk.pool.asked) <= 3
    assert desk.of_task("--budget", "3 bananas")[0] == 2


def test_a_budget_that_is_spent_is_gone_on_from_with_a_larger_one(desk: Desk) -> None:
    code, out, err = desk.of_task("--budget", "1evals")
    assert (code, out) == (0, "")
    assert "spent by the evaluator: " in err
    (one,) = journal_of(desk.folder).optimizations()
    assert desk.call("--resume", one.id)[:2] == (0, "")
    assert len(desk.pool.asked) == 1
    code, out, _ = desk.call("--resume", one.id, "--budget", "20evals")
    assert code == 0
    assert out.startswith("Suggestion: ")


def test_the_last_evaluation_is_for_the_file_that_it_began_with(desk: Desk) -> None:
    desk.pool.refused = lambda source: source != START
    code, out, err = desk.of_task("--budget", "6evals")
    assert code == 0
    assert len(desk.pool.asked) <= 6
    assert out.startswith("Suggestion: 1.00x")
    assert "the starting file itself" in err
    assert (next((desk.folder / ".qrprof" / "candidates").iterdir())).read_text() == START


def test_what_fails_in_the_gate_makes_way_for_the_next(desk: Desk) -> None:
    slower = START.replace("(3, 2, 1)", "(9, 3, 2, 1)").replace("WAIT = 3", "WAIT = 9")
    (desk.folder / "own.py").write_text(slower.replace('("wide", "tall")', '("wide", "long")'))
    desk.pool.refused = lambda source: "WAIT = 3\n" not in source
    code, out, _ = desk.of_task()
    assert code == 0
    assert out.startswith("Suggestion: 3.00x")
    failed = {job.source for job in desk.pool.asked if job.rung == "gate" and desk.pool.refused(job.source)}
    assert len(failed) == 4
    assert "WAIT = 3\n" in next((desk.folder / ".qrprof" / "candidates").iterdir()).read_text()


def test_what_does_not_pass_is_not_suggested(desk: Desk) -> None:
    desk.pool.sealed = "UNKNOWN"
    code, out, err = desk.of_task()
    assert (code, out) == (0, "")
    assert "ended: " in err
    assert not (desk.folder / ".qrprof" / "candidates").exists()


def test_a_machine_that_fails_again_and_again_is_a_failure(desk: Desk) -> None:
    desk.pool.lost = "its process ended with exit code -9"
    code, out, err = desk.of_task()
    assert (code, out) == (1, "")
    assert "INFRA" in err
    assert "ended: 3 evaluations in a row were lost: its process ended with exit code -9" in err


def test_a_file_without_tunables_has_nothing_to_vary(desk: Desk) -> None:
    (desk.folder / "own.py").write_text(START.replace("(3, 2, 1)", "(3,)").replace('("wide", "tall")', '("wide",)'))
    code, _, err = desk.of_task()
    assert code == 0
    assert "the starting file declares nothing to vary" in err


def test_where_no_file_is_given_and_none_is_shipped_it_is_said_how_to_give_one(desk: Desk) -> None:
    code, out, err = desk.call("--task", "test")
    assert (code, out) == (0, "")
    assert "ended: a search has nothing to vary, since no starting file is shipped for this task: give one" in err
    assert "by --start" in err
    assert err.rstrip().endswith("; nothing was tried")
    assert "the starting file" not in err
    assert desk.pool.asked == []


@pytest.mark.parametrize(
    ("text", "args", "said"),
    [
        ("def candidate(a, b:\n", (), "cannot start from own.py: the candidate file does not parse"),
        (
            "def candidate(a, b:\n",
            ("--proposer", "llm", "--dry-run"),
            "cannot start from own.py: the candidate file does not parse",
        ),
        ("TUNABLES = {'WAIT': (1, 2)}\n", (), "TUNABLES of the candidate file names WAIT"),
    ],
)
def test_a_file_that_nothing_can_start_from_is_refused_before_anything_is_kept(
    desk: Desk, text: str, args: tuple[str, ...], said: str
) -> None:
    (desk.folder / "own.py").write_text(text)
    code, out, err = desk.of_task(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not (desk.folder / ".qrprof" / "ledger.sqlite").exists()


def test_a_model_that_is_never_reached_ends_it_with_what_to_check(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback() as gone:
        pass
    for name, value in gone.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QRPROF_CONFIG", str(desk.folder / "config"))

    def at_once(*given: Any) -> Chat:
        place, model, role, meter, limits, stop, _ = given
        return Chat(place, model, role, meter, limits, stop, lambda seconds: None)

    monkeypatch.setattr("qrprof.planner.optimize.llm.Chat", at_once)
    code, out, err = desk.of_task("--proposer", "llm", "--model", "m", "--yes", "--budget", "1Mtokens")
    assert (code, out) == (3, "")
    assert "ended: no request to the model was answered: " in err
    assert "check that it runs, and OPENAI_BASE_URL" in err
    assert desk.pool.asked == []
    (one,) = journal_of(desk.folder).optimizations()
    assert one.ended is not None
    assert one.ended["end"] == "failed"


def test_an_interrupt_keeps_everything_and_it_goes_on(desk: Desk) -> None:
    def interrupt() -> None:
        if len(desk.pool.asked) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    desk.pool.during = interrupt
    before = signal.getsignal(signal.SIGINT)
    assert desk.of_task()[:2] == (130, "")
    assert signal.getsignal(signal.SIGINT) is before
    journal = journal_of(desk.folder)
    (one,) = journal.optimizations()
    first = len(journal.candidates(one.id))
    assert first >= 2
    desk.pool.during = lambda: None
    asked = len(desk.pool.asked)
    code, out, _ = desk.call("--resume", one.id)
    assert code == 0
    assert out.startswith("Suggestion: ")
    again = {job.source for job in desk.pool.asked[:asked] if job.rung == "preview" and job.rounds == 3}
    assert len(again) == len([job for job in desk.pool.asked[:asked] if job.rung == "preview" and job.rounds == 3])
    assert len(journal.optimizations()) == 1


# --- a run


def shipped(monkeypatch: pytest.MonkeyPatch, **sources: str) -> None:
    """The files that come along are these, by op."""
    for module in ("planner.optimize.brief", "tui.optimizing"):
        monkeypatch.setattr(f"qrprof.{module}.starter", lambda task: sources.get(task.op))


@pytest.fixture
def traced(desk: Desk, saved: Callable[..., Any]) -> Desk:
    saved("optimize", events()).change(unprofiled=[STEADY])
    save(PEAKS.model_copy(update={"name": "Test CPU", "threads": 2}), devices_folder())
    return desk


def test_the_first_target_that_is_worth_it_is_taken_and_the_gain_remembered(
    traced: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(monkeypatch, _softmax=SOFTMAX)
    code, out, err = traced.call("--budget", "20evals")
    assert code == 0
    assert "_softmax comes first: its likely gain is " in err
    assert "plan: _softmax: at most the step becomes 1.18x as fast" in err
    assert "step 400 us -> 360 us (360 us to 360 us), 1.11x" in words(out)
    with opened(traced.folder) as connection:
        (made,) = [one.prediction for one in listed(connection) if one.prediction.source == "optimize"]
    (file,) = (traced.folder / ".qrprof" / "candidates").iterdir()
    assert made.scenario == f"_softmax=candidate {file.stem}"
    assert (made.base_ns, made.mid_ns) == (400_000, 360_000)


def test_the_next_target_is_taken_when_nothing_is_left_of_the_first(
    desk: Desk, saved: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    products = [op("aten::mm", at, 90, [[8, 8], [8, 8]], "float float", "_ _", [[8, 1], [8, 1]]) for at in (200, 600)]
    saved("optimize", [*events(), *products]).change(unprofiled=[STEADY])
    save(PEAKS.model_copy(update={"name": "Test CPU", "threads": 2}), devices_folder())
    shipped(monkeypatch, mm=START, _softmax=SOFTMAX)
    code, out, err = desk.call()
    assert code == 0
    assert out.count("Suggestion: ") == 2
    assert "qrprof: switched from aten::mm to aten::_softmax: " in err
    assert err.splitlines()[-1].startswith("qrprof: done: nothing is worth it; ")
    journal = journal_of(desk.folder)
    second, first = journal.optimizations()
    assert (first.target, second.target) == ("aten::mm", "aten::_softmax")
    budgets = [journal.start(one.id).budget.evaluations for one in (first, second)]
    assert budgets == [40, 40 - len([job for job in desk.pool.asked if job.task.op == "mm"])]
    assert [event.kind for event in journal.events(first.id)][-1] == "switched"


def test_a_file_to_start_from_is_for_an_op_that_is_named(traced: Desk) -> None:
    code, _, err = traced.call("--start", "own.py")
    assert code == 2
    assert "say which by --target or --task" in err


def test_a_search_passes_over_what_it_has_no_file_for(traced: Desk) -> None:
    code, out, err = traced.call()
    assert (code, err) == (0, "")
    assert "_softmax: its likely gain is 56.0 us of 400 us a step, 14.0 %, but a search has nothing to vary" in words(
        out
    )
    code, _, err = traced.call("--target", "_softmax")
    assert code == 0
    assert "nothing to vary" in err


def test_dont_bother_is_an_answer(traced: Desk) -> None:
    path = next((traced.folder / ".qrprof" / "runs").iterdir()) / "run.json"
    noisy = STEADY | {"durations_ns": [200_000, 600_000] * 5, "kinds": ["A"] * 10}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unprofiled": [noisy]}))
    code, out, err = traced.call()
    assert (code, err) == (0, "")
    assert out.startswith("don't bother: ")
    assert any(char.isdigit() for char in out)
    code, out, _ = traced.call("--json")
    assert code == 0
    assert json.loads(out)["end"] == "not-worth-it"
    assert traced.pool.asked == []
    assert not (traced.folder / ".qrprof" / "ledger.sqlite").exists()


# --- --dry-run


def test_a_dry_run_of_a_search_names_the_first_settings_and_does_nothing(desk: Desk) -> None:
    code, out, err = desk.of_task("--dry-run")
    assert (code, err) == (0, "")
    assert "WAIT 3 -> " in out
    assert desk.pool.made == []
    assert not (desk.folder / ".qrprof" / "ledger.sqlite").exists()


def test_a_dry_run_of_a_model_is_its_prompt_and_needs_no_key(desk: Desk) -> None:
    code, out, err = desk.of_task("--dry-run", "--proposer", "llm", "--hint", "most rows are zero")
    assert (code, err) == (0, "")
    assert out.startswith("--- system\nYou write kernels")
    assert "most rows are zero" in out
    assert START.strip() in out


def test_a_dry_run_says_nothing_to_the_terminal_itself(desk: Desk) -> None:
    code, out, _ = desk.of_task("--dry-run", "--proposer", "llm", "--hint", "rows \x1b]0;title\x07 are zero")
    assert code == 0
    assert "are zero" in out
    assert not {"\x1b", "\x07"} & set(out)


# --- who is asked


def test_with_a_key_set_and_nothing_asked_no_request_leaves(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    monkeypatch.setattr("openai.OpenAI", lambda **options: pytest.fail("a client was made"))
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("a connection was made"))
    code, out, err = desk.of_task()
    assert code == 0
    assert b"very-secret" not in (desk.folder / ".qrprof" / "ledger.sqlite").read_bytes()
    assert "very-secret" not in out + err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--proposer", "llm"), 2, "name one by --model"),
        (("--proposer", "llm", "--model", "m", "--budget", "1ktokens"), 3, "set OPENAI_API_KEY"),
        (("--proposer", "llm", "--model", "nosuch-model"), 2, "the price of nosuch-model is not known"),
        (("--target", "mm"), 2, "give a RUN with --target, or --task"),
        (("--dry-run", "--resume", "x"), 2, "goes on as it was begun"),
        (("--resume", "x"), 2, "goes on as it was begun"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_one_line(
    desk: Desk, args: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = desk.of_task(*args)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err
    assert desk.pool.asked == []


def test_prompts_are_not_sent_where_nobody_agreed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    monkeypatch.setenv("QRPROF_CONFIG", str(desk.folder / "config"))
    monkeypatch.setattr("openai.OpenAI", lambda **options: pytest.fail("a client was made"))
    code, _, err = desk.of_task("--proposer", "llm", "--model", "m", "--budget", "9ktokens")
    assert code == 3
    assert "api.openai.com" in err
    assert "--yes" in err


def test_a_model_writes_code_that_is_contained_a_search_may_run_its_file_anyway(desk: Desk) -> None:
    desk.of_task()
    assert [options["unsandboxed"] for options in desk.pool.made] == [True]


def test_the_document_names_options_that_there_are_and_the_default_budget() -> None:
    text = (Path(__file__).parents[1] / "docs" / "optimizer.md").read_text(encoding="utf-8")
    commands = (optimize_command, history_command, *task_command.commands.values(), gate_command)
    known = {name for command in commands for option in command.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= known | {"--resources", "--measure"}
    assert tunables(text.partition("```python\n")[2].partition("```")[0])[0].choices == (32, 64, 128)
    assert Budget() == parse("30min,40evals,$2")
    assert "30 minutes, 40 evaluations\nand 2 dollars" in text
