"""The one table of actions: bindings, footer, help, palette and the README's list of keys are made of it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from qrprof.tui.app.session import NOTHING, Selection

BOTTLENECKS, TIMELINE, LAUNCHES, PANELS = "bottlenecks", "timeline", "launches", "panels"
OPTIMIZER, SUGGESTIONS = "optimizer", "suggestions"
PROFILE: Final = (BOTTLENECKS, TIMELINE, LAUNCHES, PANELS)  # what can be seen of a run
RUN_VIEWS: Final = (*PROFILE, OPTIMIZER, SUGGESTIONS)
COMPARED: Final = (BOTTLENECKS, LAUNCHES, PANELS)  # with another run
TABLES: Final = (*COMPARED, OPTIMIZER, SUGGESTIONS)
LONG: Final = (BOTTLENECKS, OPTIMIZER, SUGGESTIONS)  # have a pane for one long text
NO_OPS: Final = ("gap", "fix")  # how keys of the ranking begin that are no op's
START: Final = "start"  # shown while there is no run


# The optimizer's process that this window started.
Process = Literal["", "starts", "runs", "paused", "gone"]
# The optimization that is shown; "": there is none.
Course = Literal["", "open", "ended", "replay"]


@dataclass(frozen=True)
class State:
    """What it depends on whether an action can be done."""

    view: str
    loaded: bool = False  # the view has something to show
    selection: Selection = NOTHING
    filter: str = ""
    place: str | None = None  # file:line of what is selected
    others: int = 0  # runs to compare with
    process: Process = ""
    course: Course = ""
    swap: str = ""  # the state of the suggestion selected; "": there is none
    objection: str = ""  # to accepting it
    judgeable: bool = False  # the gate could say more of it
    changes: bool = False  # what was changed is shown


Enabled = Callable[[State], str | None]  # the reason why not; None: it can be done


def always(state: State) -> str | None:
    return None


def has_rows(state: State) -> str | None:
    return None if state.loaded else "nothing is loaded yet"


def has_others(state: State) -> str | None:
    return None if state.others else "there is no other run to compare with; record one with `qrprof trace`"


def has_place(state: State) -> str | None:
    return None if state.place else "no source line is known for this row"


def has_op(state: State) -> str | None:
    if state.process not in ("", "gone"):
        return "an optimizer runs already; view 5 shows it"
    if not state.selection.key:
        return "select an op first"
    kind = state.selection.key.partition(":")[0]
    return f"select an op: this is a {kind}" if kind in NO_OPS else None


def has_process(state: State) -> str | None:
    return None if state.process not in ("", "gone") else "no optimizer of this window runs; o starts one"


def can_pause(state: State) -> str | None:
    if state.course == "replay":
        return None
    return "it has not begun yet" if state.process == "starts" else has_process(state)


def has_course(state: State) -> str | None:
    return None if state.course else "there is no optimization yet; o starts one"


def can_replay(state: State) -> str | None:
    goes_on = state.course == "open" and state.process in ("runs", "paused")
    return "it goes on: it is shown as it comes" if goes_on else has_course(state)


def is_open(state: State) -> str | None:
    return "it has ended; R goes on with it" if state.course == "ended" else has_course(state)


def can_resume(state: State) -> str | None:
    return "an optimizer runs already" if state.process not in ("", "gone") else has_course(state)


def has_swap(state: State) -> str | None:
    return None if state.swap else "there is no suggestion yet"


def can_accept(state: State) -> str | None:
    if state.swap == "accepted":
        return "it is accepted already"
    more = "; v: have it judged" if state.judgeable else ""
    return f"{state.objection}{more}, O: accept it all the same" if state.objection else has_swap(state)


def can_override(state: State) -> str | None:
    if state.swap == "accepted":
        return "it is accepted already"
    return has_swap(state) or (None if state.objection else "nothing speaks against it: a accepts it")


def can_reject(state: State) -> str | None:
    return "it is rejected already" if state.swap == "rejected" else has_swap(state)


def can_undo(state: State) -> str | None:
    accepted = state.swap.startswith("accepted")
    return has_swap(state) or (None if accepted else f"it is {state.swap}, not accepted")


def can_judge(state: State) -> str | None:
    return has_swap(state) or (None if state.judgeable else "the gate has nothing more to say of it")


def shows_changes(state: State) -> str | None:
    return has_swap(state) or (None if state.changes else "b shows what was changed")


def has_hits(state: State) -> str | None:
    marked = state.view == TIMELINE and state.selection.key
    return None if state.filter or marked else "nothing is filtered; type / first"


@dataclass(frozen=True)
class Action:
    """What a person can do. The app, or the view shown, has a method `action_<id>`."""

    id: str
    key: str  # a character, or a name such as escape or comma; several are separated by commas
    label: str  # a word or two, for the footer
    help: str  # a sentence without its full stop
    views: tuple[str, ...] = RUN_VIEWS
    enabled: Enabled = always
    footer: bool = False


EVERYWHERE: Final = (*RUN_VIEWS, START)

OF_START: Final = (
    Action("trace", "1", "trace a script", "Trace a script, and open the run", (START,), footer=True),
    Action("open_example", "2", "example", "Open the run of an example on a GPU", (START,), footer=True),
)

GENERAL: Final = (
    Action("bottlenecks", "1", "bottlenecks", "Show where the step goes, and what it would gain"),
    Action("timeline", "2", "timeline", "Show what ran when, and the gaps"),
    Action("launches", "3", "launches", "Show what launching costs"),
    Action("panels", "4", "panels", "Show QR calls by block column and phase"),
    Action("optimizer", "5", "optimizer", "Show what optimizations try, live and as they were"),
    Action("suggestions", "6", "suggestions", "Show what may be accepted, and what was"),
    Action("down", "j", "down", "Go to the next row (also the arrow keys)", TABLES, has_rows),
    Action("up", "k", "up", "Go to the row before", TABLES, has_rows),
    Action("first", "g", "first", "Go to the first row", TABLES, has_rows),
    Action("last", "G", "last", "Go to the last row", TABLES, has_rows),
    Action("more", "enter", "more", "Show more of the row: details, source, evidence", LONG, has_rows, footer=True),
    Action(
        "find",
        "/",
        "filter",
        "Keep rows as you type: a part of a name, kind:gap, share>2",
        enabled=has_rows,
        footer=True,
    ),
    Action(
        "next",
        "n",
        "next hit",
        "Go to the next hit of the filter; in the timeline also of what is marked",
        enabled=has_hits,
    ),
    Action("previous", "N", "previous hit", "Go to the hit before", enabled=has_hits),
    Action("clear", "escape", "clear", "Close what is open, then drop the filter and the what-if"),
    Action("compare", "c", "compare", "Compare with another run, or stop comparing", COMPARED, has_others, footer=True),
    Action("copy_row", "y", "copy row", "Copy the row as tab-separated text", enabled=has_rows),
    Action("copy_view", "Y", "copy view", "Copy what the view shows as a Markdown table", enabled=has_rows),
    Action("export", "x", "export", "Write what the view shows to a .csv, .json or .svg file", enabled=has_rows),
    Action("edit", "e", "edit", "Open the row's source line in $EDITOR", enabled=has_place),
    Action("reload", "r", "reload", "Read the run again"),
)

CLOSING: Final = (
    Action("theme", "t", "theme", "Change between dark, light and the terminal's own colours", EVERYWHERE),
    Action(
        "help",
        "?",
        "help",
        "Show the keys of this view; type to find one, enter does it",
        EVERYWHERE,
        footer=True,
    ),
    Action("quit", "q", "quit", "Leave", EVERYWHERE, footer=True),
)

OF_BOTTLENECKS: Final = (
    Action(
        "what_if",
        "w",
        "what if",
        "Type what would be faster, such as linalg_qr=4x",
        (BOTTLENECKS,),
        has_rows,
        footer=True,
    ),
    Action(
        "sort",
        "s",
        "sort",
        "Sort by the next column (or click a header; again: the other way)",
        TABLES,
        has_rows,
        footer=True,
    ),
    Action("reverse", "S", "reverse", "Sort the other way round", TABLES, has_rows),
)

OF_TIMELINE: Final = (
    Action("zoom_in", "w,+,=", "zoom in", "Zoom in (also the mouse wheel)", (TIMELINE,), has_rows, footer=True),
    Action("zoom_out", "s,-", "zoom out", "Zoom out", (TIMELINE,), has_rows, footer=True),
    Action("earlier", "a,h,left", "earlier", "Move to earlier times (also a drag)", (TIMELINE,), has_rows),
    Action("later", "d,l,right", "later", "Move to later times", (TIMELINE,), has_rows),
    Action("whole", "0", "all", "Show all of the trace", (TIMELINE,), has_rows, footer=True),
    Action("centre", "f", "centre", "Show what is picked in the middle; again: zoom to it", (TIMELINE,), has_rows),
    Action("fit", "F", "fit", "Zoom to what is picked", (TIMELINE,), has_rows),
    Action("previous_span", "comma", "span before", "Pick the span before on this line", (TIMELINE,), has_rows),
    Action("next_span", ".", "next span", "Pick the next span on this line", (TIMELINE,), has_rows),
    Action("longer_gap", "[", "longer gap", "Pick the next longer gap", (TIMELINE,), has_rows),
    Action(
        "shorter_gap",
        "]",
        "next gap",
        "Pick the longest gap, then the next shorter one",
        (TIMELINE,),
        has_rows,
        footer=True,
    ),
    Action("lane_down", "j,down", "line down", "Go to the line below", (TIMELINE,), has_rows),
    Action("lane_up", "k,up", "line up", "Go to the line above", (TIMELINE,), has_rows),
)

OF_LAUNCHES: Final = (
    Action(
        "by", "b", "by op/work", "Change between rows by op and by what is launched", (LAUNCHES,), has_rows, footer=True
    ),
)

OF_PANELS: Final[tuple[Action, ...]] = ()

OF_OPTIMIZER: Final = (
    Action(
        "optimize",
        "o",
        "optimize",
        "Search for a faster kernel for the op selected; its budget is asked first",
        (*PROFILE, OPTIMIZER),
        has_op,
        footer=True,
    ),
    Action(
        "pause",
        "space",
        "pause/go on",
        "Pause after the evaluation under way, or go on; in a replay too",
        (OPTIMIZER,),
        can_pause,
        footer=True,
    ),
    Action("cancel", "c", "cancel", "End what runs; all is kept", (OPTIMIZER,), has_process, footer=True),
    Action("hint", "i", "hint", "Type what a model should try next", (OPTIMIZER,), is_open),
    Action(
        "log", "l", "log", "Show the last events, and what the process printed", (OPTIMIZER,), has_course, footer=True
    ),
    Action("replay", "p", "replay", "Play its events again, at a speed that you type", (OPTIMIZER,), can_replay),
    Action("resume", "R", "resume", "Go on with this optimization, with what is left", (OPTIMIZER,), can_resume),
)

OF_SUGGESTIONS: Final = (
    Action(
        "accept",
        "a",
        "accept",
        "Accept it, once you have seen all of it and agreed",
        (SUGGESTIONS,),
        can_accept,
        footer=True,
    ),
    Action("reject", "d", "reject", "Say that it is not wanted, and why", (SUGGESTIONS,), can_reject, footer=True),
    Action("undo", "z", "undo", "Take it back: programs run stock again", (SUGGESTIONS,), can_undo, footer=True),
    Action(
        "override", "O", "accept anyway", "Accept it against the evidence, for a reason", (SUGGESTIONS,), can_override
    ),
    Action("judge", "v", "judge", "Have the gate judge it, and be asked then", (SUGGESTIONS,), can_judge, footer=True),
    Action(
        "changes", "b", "changes", "Show what was changed, or the whole source", (SUGGESTIONS,), has_swap, footer=True
    ),
    Action("more_context", "}", "more around", "Show a line more around each change", (SUGGESTIONS,), shows_changes),
    Action("less_context", "{", "less around", "Show a line less around each change", (SUGGESTIONS,), shows_changes),
)

ACTIONS: Final[tuple[Action, ...]] = (
    *OF_START,
    *GENERAL,
    *OF_BOTTLENECKS,
    *OF_TIMELINE,
    *OF_LAUNCHES,
    *OF_PANELS,
    *OF_OPTIMIZER,
    *OF_SUGGESTIONS,
    *CLOSING,
)


def actions_of(view: str) -> Iterator[Action]:
    """What can be done in a view, in the table's order."""
    return (action for action in ACTIONS if view in action.views)


def conflicts(actions: Iterable[Action]) -> Iterator[tuple[Action, Action, str]]:
    """Pairs of actions that share a key in a view, with the key."""
    taken: dict[tuple[str, str], Action] = {}
    for action in actions:
        for key in action.key.split(","):
            for view in action.views:
                other = taken.setdefault((view, key), action)
                if other is not action:
                    yield other, action, key
