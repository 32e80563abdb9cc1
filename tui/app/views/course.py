"""Optimizations, and the candidates of the one chosen, as the ledger has them now or had them in a replay."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from qrprof.profiler import units
from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.actions import OPTIMIZER, Process
from qrprof.tui.app.actions import Course as CourseState
from qrprof.tui.app.aside import aside
from qrprof.tui.app.glyphs import Glyphs
from qrprof.tui.app.runner import Runner
from qrprof.tui.app.session import Selection, Session
from qrprof.tui.app.views import Selected
from qrprof.tui.app.views.panes import PaneView
from qrprof.tui.app.widgets.grid import Grid

if TYPE_CHECKING:
    from qrprof.tui.app.optimizer_course import Course, Replay, Tried
    from qrprof.tui.app.optimizer_rows import Look

LOOK_S: Final = 0.5  # between two looks into the ledger
LOG, SOURCE = "log", "source"  # what the pane shows
NONE: Final = (("optimizer", "there is no optimization here yet: select an op and press o, or use `qrprof optimize`"),)


class CourseView(PaneView["Look"]):
    VIEW = OPTIMIZER
    DEFAULT_CSS = """
    CourseView .courses { height: auto; max-height: 30%; }
    """

    def __init__(self, glyphs: Glyphs, root: Path) -> None:
        super().__init__(glyphs)
        self.root = root
        self.runner: Runner | None = None  # the process that this window started last
        self.chosen: str | None = None
        self.found: Look | None = None
        self.course: Course | None = None  # of the one that is chosen
        self.replay: Replay | None = None
        self.looking = False
        self.trouble = ""  # why the ledger cannot be read

    def tables(self) -> ComposeResult:
        yield Grid(self.glyphs, "courses")
        yield Static("", classes="says", markup=False)
        yield Grid(self.glyphs, "candidates", by="candidate")

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self.look_on)

    @property
    def first(self) -> Grid:
        return self.query_one(".candidates", Grid)

    @property
    def courses(self) -> Grid:
        return self.query_one(".courses", Grid)

    # --- what is known

    def process_state(self) -> Process:
        runner = self.runner
        if runner is None:
            return ""
        if not runner.runs:
            return "gone"
        return "starts" if runner.optimization is None else "paused" if runner.paused else "runs"

    def course_state(self) -> CourseState:
        if self.replay:
            return "replay"
        if self.course is None:
            return ""
        return "ended" if self.course.ended else "open"

    def load(self, session: Session, other: Session | None) -> "Look":
        from qrprof.tui.app.optimizer_rows import look

        return look(self.root, self.chosen, 0)

    def show(self, loaded: "Look") -> None:
        self.course = None
        self.take(loaded)

    def look_on(self) -> None:
        """Read what is new, of whatever process, while the view is shown."""
        if self.ready and self.display and not self.looking and self.replay is None:
            self.look_now()

    def look_now(self) -> None:
        self.looking = True
        self.run_worker(self.looked(), group="look", exit_on_error=False)

    async def looked(self) -> None:
        from qrprof.tui.app.optimizer_rows import look

        chosen, seen = self.chosen, self.course.seen if self.course else 0
        try:
            found = await aside(lambda: look(self.root, chosen, seen))
        except QrprofError as error:
            self.trouble = str(error)
            self.post_message(self.Changed())
            return
        finally:
            self.looking = False
        self.trouble = ""
        if self.replay:
            return
        if chosen != self.chosen or seen != (self.course.seen if self.course else 0):
            self.look_now()  # meanwhile another one was chosen, or was played
        else:
            self.take(found)

    def take(self, found: "Look") -> None:
        """Show what was read, all of it at once."""
        from qrprof.tui.app.optimizer_course import Course

        anew = self.course is None or found.id != self.chosen
        if anew:
            self.course = Course() if found.id else None
        before, self.found, self.chosen = self.found, found, found.id
        if self.course is not None:
            self.course.take(found.events)
        self.meet(found)
        if anew or found != before:
            self.put()

    def meet(self, found: "Look") -> None:
        """Find out what the process of this window has begun, and show it."""
        runner = self.runner
        if runner is None or not runner.runs or runner.optimization is not None:
            return
        runner.optimization = runner.begun([one.id for one in found.listed])
        if runner.optimization is not None:
            self.choose(runner.optimization)

    # --- what is shown

    def put(self) -> None:
        from qrprof.tui.app import optimizer_rows as rows

        found, course = self.found, self.course
        if found is None:
            return
        self.courses.display = self.first.display = bool(found.listed)
        self.courses.wanted = self.chosen
        self.courses.put(rows.COURSES, [rows.course_line(one, self.runner) for one in found.listed])
        if course is None:
            self.say(".says", NONE)
            self.first.put((), ())
        else:
            self.say(".says", rows.says(course, found, self.runner, self.replay_line()))
            best = course.best
            self.first.put(rows.CANDIDATES, [rows.candidate_line(one, best) for one in course.tried.values()])
        if self.opened == LOG:
            self.open_pane(LOG, self.log_lines(), at_end=True)

    def replay_line(self) -> str:
        replay = self.replay
        if replay is None:
            return ""
        at, whole = units.time(1e9 * replay.at), units.time(1e9 * replay.length)
        return f"replay at {units.ratio(replay.speed)}, {at} of {whole}{', paused' * replay.held}"

    def status(self) -> str:
        one = self.tried()
        why = f"#{one.number}: {one.why}" if one and one.why else ""
        return "; ".join(filter(None, [self.trouble, why or super().status()]))

    def tried(self) -> "Tried | None":
        """The candidate that the cursor is on."""
        key = self.first.selected
        return self.course.tried.get(int(key)) if self.course and key and key.isdigit() else None

    def place(self) -> str | None:
        from qrprof.kernels.swapfile import candidate_file
        from qrprof.planner.ledger import ledger_file

        one = self.tried()
        path = candidate_file(ledger_file(self.root), one.sha256) if one else None
        return f"{path}:1" if path and path.exists() else None

    def select(self, selection: Selection) -> None:
        """Go to the newest one of an op, unless the one that is chosen is."""
        own = [one.id for one in self.found.listed if one.target == selection.key] if self.found else []
        if selection.key and own and self.chosen not in own:
            self.choose(own[0])

    @on(Grid.Moved, ".courses")
    def follow(self, message: Grid.Moved) -> None:
        self.choose(message.key)
        target = next((one.target for one in self.found.listed if one.id == message.key), "") if self.found else ""
        if target:
            self.post_message(Selected(Selection(target)))

    @on(Grid.Moved, ".candidates")
    def moved(self) -> None:
        if self.opened == SOURCE:
            self.open_source()
        self.post_message(self.Changed())

    def choose(self, name: str) -> None:
        if name != self.chosen:
            self.chosen, self.course, self.replay = name, None, None
            self.look_now()

    def close(self) -> bool:
        """Close the pane; else end the replay."""
        if super().close():
            return True
        if self.replay is None:
            return False
        self.replay, self.course = None, None
        self.look_now()
        return True

    # --- one long text

    @on(DataTable.RowSelected, ".candidates")
    def open_source(self) -> None:
        one, chosen = self.tried(), self.chosen
        if one and chosen:
            self.run_worker(self.read_source(one, chosen), group="source", exclusive=True, exit_on_error=False)

    async def read_source(self, one: "Tried", chosen: str) -> None:
        from qrprof.tui.app.optimizer_rows import source_of

        try:
            source = await aside(lambda: source_of(self.root, chosen, one.number))
        except QrprofError as error:
            self.post_message(self.Said(str(error), problem=True))
            return
        head = [f"candidate #{one.number} of {chosen}: {one.changed}", *([one.why] if one.why else []), ""]
        self.open_pane(SOURCE, [*head, *(source.splitlines() if source is not None else ["it is not judged yet"])])

    def action_log(self) -> None:
        if self.opened == LOG:
            self.close()
        else:
            self.open_pane(LOG, self.log_lines(), at_end=True)

    def log_lines(self) -> list[str]:
        course = [*self.course.lines] if self.course else []
        runner = self.runner
        if runner is None or runner.optimization not in (None, self.chosen):
            return course
        return [*course, "", f"the process printed ({runner.printed}):", *runner.lines()]
