"""What a person does with optimizations: starts, pauses and ends them, gives hints, and plays them again."""

import shlex
from collections.abc import Sequence
from typing import Final

from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.tui.app.aside import aside
from qrprof.tui.app.bar import Bar, Question
from qrprof.tui.app.runner import Runner
from qrprof.tui.app.views.course import CourseView

FRAME_S: Final = 0.1  # of a replay


class OptimizerView(CourseView):
    def on_mount(self) -> None:
        self.set_interval(FRAME_S, self.play_on)

    # --- the process

    def begin(self, words: Sequence[str]) -> None:
        """Start `qrprof optimize` with these words."""
        if self.runner:
            self.runner.forget()
        try:
            self.runner = Runner(words, self.root)
        except OSError as error:
            self.post_message(self.Said(f"the optimizer cannot be started: {error.strerror}", problem=True))
            return
        self.run_worker(self.wait_for(self.runner), group="process", exit_on_error=False)
        self.put()
        self.post_message(self.Changed())

    async def wait_for(self, runner: Runner) -> None:
        code = await aside(runner.process.wait)
        self.look_now()
        bad = code not in (Exit.OK, Exit.INTERRUPTED)
        self.post_message(self.Said(f"the optimizer has ended: {runner.last_words()}", problem=bad))
        self.put()
        self.post_message(self.Changed())

    def action_resume(self) -> None:
        if self.chosen:
            question = Question("go on", "", "enter, or options: --budget 30min,60evals", done=self.resume)
            self.post_message(Bar.Wanted(question))

    def resume(self, text: str) -> None:
        if self.chosen and (words := self.split(text)) is not None:
            self.replay = None
            self.begin(["--resume", self.chosen, *words])

    def split(self, text: str) -> list[str] | None:
        try:
            return shlex.split(text)
        except ValueError as error:
            self.post_message(self.Said(f"not started: {error}", problem=True))
            return None

    def action_pause(self) -> None:
        if self.replay:
            self.replay.held = not self.replay.held
        elif self.runner and self.runner.paused:
            self.runner.go_on()
        elif self.runner:
            self.runner.pause()
        self.put()

    def action_cancel(self) -> None:
        if self.runner:
            self.runner.cancel()

    # --- hints

    def action_hint(self) -> None:
        self.post_message(Bar.Wanted(Question("hint", "", "what a model should try next", done=self.keep_hint)))

    def keep_hint(self, text: str) -> None:
        if text.strip() and self.chosen:
            self.run_worker(self.hinted(self.chosen, text), group="hint", exit_on_error=False)

    async def hinted(self, chosen: str, text: str) -> None:
        from qrprof.planner.optimize.journal import journal_of
        from qrprof.tui.output import clean

        try:
            await aside(lambda: journal_of(self.root).add_hint(chosen, clean(text).strip()))
        except QrprofError as error:
            self.post_message(self.Said(str(error), problem=True))
        else:
            self.post_message(self.Said(f"kept for {chosen}: it is read before the next proposals"))

    # --- replays

    def action_replay(self) -> None:
        self.post_message(Bar.Wanted(Question("replay at", "60x", "how many times as fast", done=self.replay_at)))

    def replay_at(self, text: str) -> None:
        try:
            speed = units.parse_ratio(text)
        except ValueError as error:
            self.post_message(self.Said(str(error), problem=True))
            return
        if self.chosen:
            self.run_worker(self.play(self.chosen, speed), group="replay", exclusive=True, exit_on_error=False)

    async def play(self, chosen: str, speed: float) -> None:
        from qrprof.planner.optimize.journal import journal_of
        from qrprof.tui.app.optimizer_course import Course, replay_of

        try:
            events = await aside(lambda: journal_of(self.root).events(chosen))
        except QrprofError as error:
            self.post_message(self.Said(str(error), problem=True))
            return
        if chosen == self.chosen:
            self.course, self.replay = Course(), replay_of(events, speed)
            self.put()

    def play_on(self) -> None:
        replay = self.replay
        if replay is None or replay.held or self.course is None:
            return
        self.course.take(replay.due(FRAME_S))
        if replay.over:
            self.replay = None
        self.put()
