"""The optimizer's process and the app: how it is started from any view, and what becomes of it when the app leaves."""

from typing import Final

from qrprof.tui.app.aside import aside
from qrprof.tui.app.bar import Question
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.sharing import Sharing
from qrprof.tui.app.views.choice import Choice
from qrprof.tui.app.views.optimizer import OptimizerView

FIRST_BUDGET: Final = "--budget 30min,40evals"
LONGEST_NAME: Final = 24  # cells of an op's name before what is typed
LEAVING: Final = {
    "stay": "Stay",
    "detach": "Leave, and let it go on",
    "stop": "Stop it, and leave",
}


class Optimizing(Sharing):
    session: Session | None
    optimizer: OptimizerView

    @property
    def here(self) -> Selection:
        """What is to be optimized."""
        raise NotImplementedError

    def open_view(self, name: str) -> None:
        raise NotImplementedError

    def action_optimize(self) -> None:
        session, key = self.session, self.here.key
        if session is None or key is None:
            return
        words = [str(session.folder), "--rank", str(session.number), "--target", key]
        label = f"optimize {self.glyphs.middle(key, LONGEST_NAME)}"
        hint = "options of `qrprof optimize`"
        self.ask(Question(label, FIRST_BUDGET, hint, done=lambda text: self.optimize(words, text)))

    def optimize(self, words: list[str], text: str) -> None:
        options = self.optimizer.split(text)
        if options is not None:
            self.open_view("optimizer")
            self.optimizer.begin([*words, *options])

    async def action_quit(self) -> None:
        """Leave; while an optimizer of this window runs, ask what is to become of it."""
        if self.optimizer.process_state() in ("", "gone"):
            self.go()
        else:
            self.push_screen(Choice("An optimizer runs", LEAVING), self.leave)

    def leave(self, how: str | None) -> None:
        if how == "detach":
            printed = self.optimizer.runner.printed if self.optimizer.runner else ""
            self.exit(message=f"the optimizer goes on; what it prints is in {printed}")
        elif how == "stop":
            self.say("ending the optimizer; all is kept")
            self.run_worker(self.stop(), exit_on_error=False)

    async def stop(self) -> None:
        if self.optimizer.runner:
            await aside(self.optimizer.runner.end)
        self.go()

    def go(self) -> None:
        if self.optimizer.runner:
            self.optimizer.runner.forget()
        self.exit()
