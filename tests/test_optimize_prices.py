"""What models cost, and whether a person agreed to send prompts."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from qrprof.planner.optimize import consent, prices
from qrprof.planner.optimize.prices import Price, check, lookup
from qrprof.planner.optimize.records import Budget
from qrprof.profiler.errors import Exit, QrprofError

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
URL = "https://user:word@models.example.com:8443/v1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration folder, which is not there yet."""
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config" / "qrprof"))
    return tmp_path / "config" / "qrprof"


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / prices.FILE).write_text(text)


# --- prices


def test_a_price_is_of_a_million_tokens() -> None:
    assert Price(input=2.0, output=8.0).dollars(500_000, 250_000) == pytest.approx(3.0)


def test_the_shipped_table_can_be_read_and_says_to_be_checked() -> None:
    shipped = Path(prices.__file__).with_name(prices.FILE)
    assert all(price.output >= price.input > 0 for price in prices.read(shipped).values())
    assert "Check them" in shipped.read_text()


@pytest.mark.parametrize("model", ["no-such-model", "gpt-5-2025-08-07", "GPT-5", "gpt", ""])
def test_a_model_of_any_other_name_has_no_price(model: str) -> None:
    assert lookup(model) is None


def test_the_users_own_table_adds_and_overrides(folder: Path) -> None:
    shipped = lookup("gpt-5-mini")
    write(folder, '"my-model" = { input = 0, output = 0 }\n"gpt-5" = { input = 9.0, output = 99.0 }\n')
    assert lookup("my-model") == Price(input=0, output=0)
    assert lookup("gpt-5") == Price(input=9.0, output=99.0)
    assert lookup("gpt-5-mini") == shipped is not None


@pytest.mark.parametrize(
    "text",
    [
        '"m" = { input = -1, output = 1 }',
        '"m" = { input = 1 }',
        '"m" = { input = 1, output = inf }',
        '"m" = { input = 1, output = 1, cached = 1 }',
        '"m" = 3',
        '"m" = {',
    ],
)
def test_a_table_that_is_none_is_an_error(folder: Path, text: str) -> None:
    write(folder, text)
    with pytest.raises(QrprofError, match="no table of prices") as error:
        lookup("gpt-5")
    assert str(folder) in str(error.value)
    assert error.value.exit_code == Exit.USAGE


def test_dollars_cannot_be_held_without_a_price() -> None:
    with pytest.raises(QrprofError, match="price of no-such-model is not known") as error:
        check(Budget(dollars=2.0), ["gpt-5", "no-such-model"])
    assert error.value.exit_code == Exit.USAGE
    assert "--budget" in str(error.value)


def test_a_limit_in_tokens_needs_no_price() -> None:
    check(Budget(dollars=2.0, tokens=100_000), ["no-such-model"])
    check(Budget(dollars=None), ["no-such-model"])
    check(Budget(dollars=2.0), ["gpt-5"])


# --- consent


def never(text: str) -> bool:
    pytest.fail(f"nobody was to be asked: {text}")


def test_a_host_is_asked_about_once(folder: Path) -> None:
    asked: list[str] = []

    def confirm(text: str) -> bool:
        asked.append(text)
        return True

    assert consent.needed(URL)
    consent.ask(URL, ["writer", "adviser", "writer"], NOW, yes=False, confirm=confirm)
    assert not consent.needed(URL)
    consent.ask(URL, ["another"], NOW, yes=False, confirm=never)
    (text,) = asked
    assert "models.example.com:8443" in text
    assert "model writer, adviser." in text
    assert "source of the candidates" in text
    assert "word" not in text, "nor what stands before the host"


def test_consent_is_of_one_host() -> None:
    consent.agree(URL, NOW)
    assert consent.needed("https://models.example.com/v1")
    assert consent.needed("https://example.com:8443/v1")
    assert not consent.needed("https://MODELS.example.com:8443/other")


def test_the_answer_is_kept_for_the_user_alone(folder: Path) -> None:
    consent.agree("https://one.example.com", NOW)
    consent.agree(URL, NOW)
    file = folder / consent.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    at = "2026-01-31T12:00:00+00:00"
    kept = {"schema": 1, "hosts": {"one.example.com": at, "models.example.com:8443": at}}
    assert json.loads(file.read_text()) == kept
    assert [path.name for path in folder.iterdir()] == [consent.FILE]


def test_no_is_not_kept_and_ends_it(folder: Path) -> None:
    with pytest.raises(QrprofError, match="nothing was sent to models") as error:
        consent.ask(URL, ["m"], NOW, yes=False, confirm=lambda _: False)
    assert error.value.exit_code == Exit.REFUSED
    assert consent.needed(URL)


def test_without_a_terminal_nobody_agrees_but_by_yes() -> None:
    with pytest.raises(QrprofError, match="--yes") as error:
        consent.ask(URL, ["m"], NOW, yes=False, confirm=None)
    assert error.value.exit_code == Exit.REFUSED
    assert "models.example.com:8443" in str(error.value)
    assert "model m" in str(error.value)
    consent.ask(URL, ["m"], NOW, yes=True, confirm=None)
    assert not consent.needed(URL)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2, "hosts": {}}', '{"schema": 1}', '{"schema": 1, "hosts": 3}']
)
def test_a_file_that_cannot_be_read_is_no_consent(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / consent.FILE).write_text(text)
    assert consent.needed(URL)
    consent.agree(URL, NOW)
    assert not consent.needed(URL)


def test_a_folder_that_cannot_be_made_is_an_error(folder: Path) -> None:
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_text("a file")
    with pytest.raises(QrprofError, match="cannot write"):
        consent.agree(URL, NOW)
