"""The page of `qrprof report --html` in a real browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browsing, chromium
from report_pages import HOSTILE, hostile_page
from tui_runs import add_example

from qrprof.planner.whatif import find_changes, parse_setting, what_if
from qrprof.tui.app.session import Session
from qrprof.tui.report.page import redactor_of, write_page

pytestmark = pytest.mark.slow
LEVELS = {0: "1x", 20: "1.25x", 50: "2x", 75: "4x", 100: "0"}  # of a slider: what is taken off, in per cent


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    chromium()  # skips before anything is computed
    return Session(add_example(tmp_path_factory.mktemp("run"), "20260131-120000-block_soap"))


@pytest.fixture(scope="module")
def report(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    page = folder / "report.html"
    page.write_text(write_page(session, folder, redactor_of(session, wanted=False)), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page, report: Path) -> Iterator[Page]:
    """The report, opened anew; whatever the test does, the page says nothing and asks for nothing."""
    browser.said.clear()
    browser.asked.clear()
    browser.open(report)
    yield browser
    assert browser.said == []
    assert browser.asked == [report.resolve().as_uri()]


def rows(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.run("data.whatif.rows")
    return found


def replayed(session: Session, *settings: str) -> float:
    """ms of the step by `qrprof whatif` with these settings."""
    subject = session.subject
    return what_if(subject, find_changes(subject, [parse_setting(one) for one in settings], {})).step_ns / 1e6


# --- what if


def test_sliders_show_the_replays_step_at_the_points_of_the_grid(page: Page, session: Session) -> None:
    first, second = (row["key"] for row in rows(page)[:2])
    for taken, spec in LEVELS.items():
        assert page.slide(0, taken) == pytest.approx(replayed(session, f"{first}={spec}"), rel=1e-9)
        for other in (50, 100):
            both = replayed(session, f"{first}={spec}", f"{second}={LEVELS[other]}")
            assert page.slide(1, other) == pytest.approx(both, rel=1e-9)
        page.slide(1, 0)
    assert "by replay" in page.run("document.querySelector('.answer').textContent")


def test_between_them_it_says_that_it_interpolates(page: Page) -> None:
    ends, middle = (page.slide(0, 20), page.slide(0, 50)), page.slide(0, 35)
    assert middle == pytest.approx(sum(ends) / 2)
    assert "interpolated between replays" in page.run("document.querySelector('.answer').textContent")


def test_of_three_rows_it_says_that_it_adds_up(page: Page, session: Session) -> None:
    keys = [row["key"] for row in rows(page)]
    assert len(keys) == 3
    told = [page.slide(place, 50) for place in range(3)][-1]
    assert "added up from replays of each two rows" in page.run("document.querySelector('.answer').textContent")
    off = abs(told - replayed(session, *(f"{key}=2x" for key in keys)))
    assert off <= page.run("data.whatif.several_off") * page.run("data.whatif.base") * (1 + 1e-9)


def test_the_command_line_is_that_of_the_sliders_and_reset_takes_all_back(page: Page) -> None:
    base = page.slide(0, 0)
    page.slide(0, 50)
    page.slide(1, 100)
    settings = f"--set {rows(page)[0]['key']}=2x --set {rows(page)[1]['key']}=0"
    assert page.run("document.querySelector('.answer code').textContent").endswith(settings)
    page.run("document.querySelector('#sliders > button').click()")
    assert page.run("+document.querySelector('.answer').dataset.ms") == base == pytest.approx(39.38674, rel=1e-4)


# --- the timeline


def shown(page: Page) -> tuple[float, float]:
    start, end = page.run("(one => [+one.start, +one.end])(document.querySelector('canvas').dataset)")
    return start, end


def test_the_timeline_zooms_and_moves_by_keys(page: Page) -> None:
    whole = shown(page)
    page.run("document.querySelector('canvas').focus()")
    page.press("+")
    start, end = shown(page)
    assert end - start == pytest.approx((whole[1] - whole[0]) / 2)
    page.press("ArrowRight")
    moved = shown(page)
    assert moved[0] == pytest.approx(start + 0.2 * (end - start))
    page.press("0")
    assert shown(page) == whole


def test_the_timeline_zooms_by_the_wheel_once_it_has_the_focus(page: Page) -> None:
    whole = shown(page)
    page.run("document.querySelector('#lanes').scrollIntoView({block: 'center'})")
    page.wheel("canvas", -400)
    assert shown(page) == whole
    page.run("document.querySelector('canvas').focus({preventScroll: true})")
    page.run("document.querySelector('#lanes').scrollIntoView({block: 'center'})")
    page.wheel("canvas", -400)
    start, end = shown(page)
    assert end - start < 0.9 * (whole[1] - whole[0])


def test_a_span_is_named_with_its_time(page: Page, session: Session) -> None:
    page.run("document.querySelector('canvas').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    page.press("]")
    told = page.run("document.querySelector('.readout').textContent")
    assert re.match(r"stream 7, at [0-9.,]+ (ns|us|ms): .+, [0-9.,]+ (ns|us|ms)", told)


def test_the_buttons_do_it_too(page: Page) -> None:
    page.run("document.querySelector('.controls button[aria-label=\"zoom in\"]').click()")
    start, end = shown(page)
    page.run("document.querySelector('.controls button[aria-label=\"show all\"]').click()")
    whole = shown(page)
    assert end - start == pytest.approx((whole[1] - whole[0]) / 2)


# --- how it looks


def background(page: Page) -> list[int]:
    return [int(value) for value in re.findall(r"\d+", page.run("getComputedStyle(document.body).backgroundColor"))]


def test_light_and_dark_as_the_reader_prefers_and_by_a_switch(page: Page) -> None:
    assert min(background(page)) > 200
    page.prefer("dark")
    assert max(background(page)) < 60
    page.run("document.getElementById('theme').click()")
    assert min(background(page)) > 200
    page.run("document.getElementById('theme').click()")
    assert max(background(page)) < 60


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_no_width_scrolls_sideways(page: Page, report: Path, width: int) -> None:
    page.asked.clear()
    page.open(report, width)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('#ranking .scroll'))")


def test_every_picture_and_control_can_be_reached_by_the_keyboard(page: Page) -> None:
    controls = "'button, input, canvas, a[href]'"
    hidden = f"[...document.querySelectorAll({controls})].filter(one => one.tabIndex < 0).length"
    assert page.run(hidden) == 0
    unnamed = "[...document.querySelectorAll('input')].filter(one => !one.labels.length).length"
    assert page.run(unnamed) == 0


def test_the_pages_policy_lets_nothing_else_run(page: Page) -> None:
    """What is added to the page is not run, and nothing is fetched."""
    page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))")
    assert page.run("typeof window.ran") == "undefined"
    assert page.run("fetch('https://example.com').then(() => 'fetched', () => 'refused')") == "refused"
    assert any("Content Security Policy" in one or "content security policy" in one for one in page.said)
    page.said.clear()
    page.asked[1:] = []


def test_names_of_a_hostile_trace_are_text(browser: Page, tmp_path: Path) -> None:
    path = hostile_page(tmp_path)
    browser.said.clear()
    browser.open(path)
    assert browser.run("typeof window.ran") == "undefined"
    assert browser.said == []
    assert set(HOSTILE) <= set(browser.run("data.rank.rows.map(row => row.key)"))
    assert browser.run("document.querySelectorAll('main img, main b, main script').length") == 0
    assert json.loads(browser.run("document.getElementById('data').textContent"))["schema"] == 1
