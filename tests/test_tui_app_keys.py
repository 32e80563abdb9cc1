"""The table of actions: what is made of it, every key in every view at every size, and a person's own keys."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.command import CommandList, CommandPalette
from textual.widgets import Input
from tui_runs import SIZES, Driver, add_example, app_on, calm, play

from qrprof.profiler.errors import QrprofError
from qrprof.tui.app.actions import ACTIONS, EVERYWHERE, RUN_VIEWS, START, Action, actions_of, conflicts
from qrprof.tui.app.keymap import keys_of, load_actions
from qrprof.tui.app.views.help import Help
from qrprof.tui.app.views.start import EXAMPLE
from qrprof.tui.configuration import own_file

README = Path(__file__).parents[1] / "README.md"
DOCS = Path(__file__).parents[1] / "docs" / "tui.md"
LEAVING = ("quit", "trace", "open_example")  # tested by themselves


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    calm(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def example(root: Path) -> Path:
    add_example(root, "before", slower=1.2)
    return EXAMPLE


# --- the table


def test_no_two_actions_of_a_view_have_the_same_key() -> None:
    assert list(conflicts(ACTIONS)) == []
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)


def test_no_key_is_one_that_terminals_swallow() -> None:
    for action in ACTIONS:
        for key in action.key.split(","):
            assert not re.search(r"ctrl\+|alt\+|^f\d|\+enter", key), action.id


def test_help_is_a_sentence_of_which_each_action_says_something_else() -> None:
    for view in EVERYWHERE:
        helps = [action.help for action in actions_of(view)]
        assert len(set(helps)) == len(helps)
        assert all(text and not text.endswith(".") for text in helps)


def readme_keys() -> list[tuple[str, str]]:
    """(keys, help) of the README's list."""
    _, section = README.read_text(encoding="utf-8").split("\n### Keys\n")
    return re.findall(r"^\| `(.+?)` \| (.+?) \|", section.split("\n#")[0], re.MULTILINE)


def test_the_readme_lists_every_action_as_the_table_has_it() -> None:
    listed = readme_keys()
    for action in ACTIONS:
        assert (keys_of(action), action.help) in listed, (
            f"{action.id} is missing: | `{keys_of(action)}` | {action.help} |"
        )
    assert len(listed) == len({(keys_of(action), action.help) for action in ACTIONS})


def test_the_documentation_names_every_action_and_only_tests_that_exist() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"`{action.id}`" in text for action in ACTIONS)
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    named = set(re.findall(r"\btest_\w+", text))
    assert named == {name for name in named if f"def {name}(" in tests}


def test_bindings_footer_help_and_palette_are_of_the_table(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        for view in RUN_VIEWS:
            await driver.press(str(1 + RUN_VIEWS.index(view)))
            await driver.settle()
            table = list(actions_of(view))
            bound = {active.binding.action for active in driver.app.active_bindings.values()}
            enter = {"act('more')"} if "select_cursor" in bound else set()  # the table's own, which does the same
            assert {f"act('{action.id}')" for action in table} <= bound | enter
            footer = driver.lines[-1]
            assert all(f"{keys_of(action)} {action.label}" in footer for action in table if action.footer)
            await driver.press("?")
            await driver.settle()
            screen = driver.app.screen
            assert isinstance(screen, Help)
            assert [action for action, _ in screen.actions] == [action for action in table if action.id != "help"]
            await driver.press("escape")
            await driver.settle()
            assert driver.app.possible() == table  # of which the palette is made

    play(app_on(example, root), script, (200, 60))


def test_help_finds_as_one_types_and_does_what_is_chosen(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("?")
        await driver.settle()
        await driver.type("launching")
        await driver.settle()
        assert isinstance(driver.app.screen, Help)
        assert [action.id for action, _ in driver.app.screen.found] == ["launches"]
        await driver.press("enter")
        await driver.until(lambda: driver.app.shown == "launches")

    play(app_on(example, root), script)


def test_the_palette_does_an_action(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("ctrl+p")
        await driver.settle()
        assert isinstance(driver.app.screen, CommandPalette)
        commands = driver.app.screen.query_one(CommandList)
        labels = [action.label for action in driver.app.possible()]
        await driver.until(lambda: commands.option_count == len(labels))
        assert [str(option.prompt).splitlines()[0] for option in commands.options] == labels
        await driver.type("what launching")
        await driver.settle()
        await driver.pilot.pause(0.5)
        await driver.press("enter")
        await driver.settle()
        if isinstance(driver.app.screen, CommandPalette):
            await driver.press("enter")
        await driver.until(lambda: driver.app.shown == "launches")

    play(app_on(example, root), script)


def test_an_action_that_cannot_be_done_says_why(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("G", "e")
        await driver.settle()
        assert driver.said[-1] == "edit: no source line is known for this row"

    play(app_on(example, root), script)


def test_a_message_leaves_the_lines_below_in_sight(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("/")
        await driver.type("qr")
        await driver.press("enter")
        await driver.settle()
        below = driver.lines[-2:]
        assert below[0].startswith(" filter qr: ")
        await driver.press("t", "t", "t")
        await driver.settle()
        assert "theme qrprof-light" in driver.screen
        assert driver.lines[-2:] == below

    play(app_on(example, root), script)


def test_a_long_message_stands_for_as_long_as_it_takes_to_read(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        for length in (10, 300):
            driver.app.say("x" * length)
        await driver.settle()
        assert [one.timeout for one in driver.app._notifications] == [5.0, 20.0]

    play(app_on(example, root), script)


# --- every key


def keys(view: str) -> Iterator[tuple[Action, str]]:
    for action in actions_of(view):
        if action.id not in LEAVING:
            for key in action.key.split(","):
                yield action, key


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
@pytest.mark.parametrize("view", RUN_VIEWS)
def test_every_key_in_every_view_at_every_size(root: Path, example: Path, size: tuple[int, int], view: str) -> None:
    async def script(driver: Driver) -> None:
        for action, key in keys(view):
            await driver.press(str(1 + RUN_VIEWS.index(view)))
            await driver.press(key)
            assert driver.screen.strip(), action.id
            await driver.press("escape", "escape")
            assert driver.app.screen is driver.app.screen_stack[0], action.id
            assert not isinstance(driver.app.focused, Input), action.id
        await driver.settle()

    play(app_on(example, root), script, size)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_every_key_of_the_start_screen_at_every_size(root: Path, size: tuple[int, int]) -> None:
    async def script(driver: Driver) -> None:
        for _, key in keys(START):
            await driver.press(key)
            await driver.settle()
            await driver.press("escape")
        assert "Open the example run" in driver.screen

    play(app_on(None, root), script, size)


# --- the mouse


def test_tabs_and_keys_can_be_clicked(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.pilot.click("#tabs", offset=(driver.lines[1].index("3 launches") + 2, 0))
        await driver.until(lambda: driver.app.shown == "launches")
        await driver.pilot.click("#tabs", offset=(driver.lines[1].index("1 bottlenecks") + 2, 0))
        await driver.until(lambda: driver.app.shown == "bottlenecks")
        await driver.pilot.click("#keys", offset=(driver.lines[-1].index("w what if") + 2, 0))
        await driver.settle()
        assert isinstance(driver.app.focused, Input)

    play(app_on(example, root), script)


# --- sizes


def test_below_the_smallest_size_the_app_says_so_and_takes_no_key(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.pilot.resize_terminal(59, 16)
        await driver.settle()
        assert driver.lines[1].strip() == "The terminal is 59 x 16; qrprof needs 60 x 16. q: quit"
        await driver.press("2", "/", "x", "?")
        await driver.settle()
        assert (driver.app.shown, driver.app.filter_text, len(driver.app.screen_stack)) == ("bottlenecks", "", 1)
        await driver.pilot.resize_terminal(60, 16)
        await driver.settle()
        assert "linalg_qr" in driver.screen

    play(app_on(example, root), script)


def test_q_leaves_even_a_terminal_that_is_too_small(root: Path, example: Path) -> None:
    async def script(driver: Driver) -> None:
        await driver.pilot.resize_terminal(30, 5)
        await driver.press("q")

    app = app_on(example, root)
    play(app, script)
    assert app.return_code == 0


# --- a person's own keys


def configured(root: Path, text: str) -> tuple[Action, ...]:
    own_file().parent.mkdir()
    own_file().write_text(text)
    return load_actions(own_file())


def test_without_a_configuration_the_keys_are_the_tables() -> None:
    assert load_actions(own_file()) == ACTIONS


def test_a_view_that_is_done_loading_leaves_the_keys_to_what_is_being_typed(example: Path) -> None:
    async def script(driver: Driver) -> None:
        before = driver.app.session
        await driver.press("/")
        driver.app.action_reload()  # as if asked for just before
        await driver.until(lambda: driver.app.session is not before and driver.app.bottlenecks.ready)
        await driver.type("3x")
        assert driver.app.shown == "bottlenecks"
        assert driver.app.query_one(Input).value == "3x"
        await driver.press("escape", "3")
        assert driver.app.shown == "launches"

    play(app_on(example, example.parent), script)


def test_a_person_can_give_an_action_another_key(root: Path, example: Path) -> None:
    actions = configured(root, '[keys]\nwhat_if = "i"\nfind = "ctrl+f,slash"\n')

    async def script(driver: Driver) -> None:
        await driver.press("w")
        await driver.settle()
        assert not isinstance(driver.app.focused, Input)
        await driver.press("i")
        await driver.settle()
        assert isinstance(driver.app.focused, Input)
        await driver.press("escape")
        assert "i what if" in driver.lines[-1]
        await driver.press("ctrl+f")
        await driver.settle()
        assert isinstance(driver.app.focused, Input)

    play(app_on(example, root, actions=actions), script)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[keys]\nsort = "w"', "w would be the key of 'what_if' and of 'sort'; give one another key"),
        ('[keys]\nsrot = "o"', "there is no action 'srot'; did you mean 'sort'?"),
        ("[keys]\nsort = 1", "the key of 'sort' must be text"),
        ("keys = 1", "keys must be a table"),
        ("[keys", "is no TOML"),
    ],
)
def test_keys_that_cannot_be_had_are_an_error_that_names_both(root: Path, text: str, message: str) -> None:
    with pytest.raises(QrprofError, match=re.escape(message)) as raised:
        configured(root, text)
    assert raised.value.exit_code == 2
    assert str(own_file()) in str(raised.value)
