"""Where the step goes and what it would gain: the ranking."""

from textual.app import ComposeResult
from textual.widgets import DataTable

from qrprof.profiler import units
from qrprof.tui.app.actions import BOTTLENECKS
from qrprof.tui.app.session import Session
from qrprof.tui.app.views import Shown, View


class Bottlenecks(View[list[tuple[str, str]]]):
    VIEW = BOTTLENECKS
    TITLE = "bottlenecks"

    def content(self) -> ComposeResult:
        yield DataTable(cursor_type="row")

    def load(self, session: Session, other: Session | None) -> list[tuple[str, str]]:
        return [(target.key, units.share(target.share)) for target in session.ranking.targets]

    def show(self, loaded: list[tuple[str, str]]) -> None:
        grid = self.query_one(DataTable)
        grid.clear(columns=True)
        grid.add_columns("what", "share")
        grid.add_rows(loaded)

    def table(self) -> Shown:
        return Shown([], [])
