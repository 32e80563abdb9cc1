"""Predictions beside what was measured, on known answers."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from qrprof.planner.estimate import Basis, Estimate
from qrprof.planner.ledger import connect, opened
from qrprof.planner.predictions import (
    Forecast,
    Listed,
    Measurement,
    Prediction,
    device_of,
    forecast,
    listed,
    measured,
    remember,
    summary,
)
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import DeviceInfo

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NUMBERS = st.integers(0, 2**62)


def claim(scenario: str = "qr=achievable", run: str = "a", **changes: Any) -> Forecast:
    fields = {
        "run_id": run,
        "source": "rank",
        "scenario": scenario,
        "basis": "ROOFLINE",
        "base_ns": 1000,
        "low_ns": 400,
        "mid_ns": 500,
        "high_ns": 800,
        "device": "H200",
        "version": "0.1.0",
    }
    return Forecast.model_validate(fields | changes)


def outcome(step_ns: int, **numbers: Any) -> Listed:
    made = Prediction(**claim(**numbers).model_dump(), id=1, made_at="")
    return Listed(made, Measurement(prediction_id=1, run_id="b", step_ns=step_ns, noise=None, at=""))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with opened(tmp_path) as connection:
        yield connection


# --- kept


def test_what_is_remembered_is_listed(connection: sqlite3.Connection) -> None:
    east = NOW.astimezone(timezone(timedelta(hours=2)))
    remember(connection, [claim("qr=4x launch=0", source="whatif", mid_ns=None)], east)
    (found,) = listed(connection)
    made = found.prediction
    assert made.model_dump() == {
        "id": 1,
        "run_id": "a",
        "made_at": "2026-01-31T12:00:00+00:00",
        "source": "whatif",
        "scenario": "qr=4x launch=0",
        "basis": "ROOFLINE",
        "base_ns": 1000,
        "low_ns": 400,
        "mid_ns": None,
        "high_ns": 800,
        "device": "H200",
        "version": "0.1.0",
    }
    assert (found.measurement, found.error, found.within) == (None, None, None)


@pytest.mark.parametrize("mid", [None, 500])
def test_the_same_is_kept_once(connection: sqlite3.Connection, mid: int | None) -> None:
    for later in range(3):
        remember(connection, [claim(mid_ns=mid)] * 2, NOW + timedelta(days=later))
    (found,) = listed(connection)
    assert found.prediction.made_at == "2026-01-31T12:00:00+00:00"


@pytest.mark.parametrize(
    "change",
    [
        {"run": "b"},
        {"source": "whatif"},
        {"scenario": "mm=achievable"},
        {"base_ns": 1001},
        {"low_ns": 401},
        {"mid_ns": 501},
        {"mid_ns": None},
        {"high_ns": 801},
    ],
)
def test_what_differs_is_a_new_prediction(connection: sqlite3.Connection, change: dict[str, Any]) -> None:
    remember(connection, [claim(), claim(**change)], NOW)
    assert sorted(one.prediction.id for one in listed(connection)) == [1, 2]


def test_order(connection: sqlite3.Connection) -> None:
    """Runs by their newest prediction; of a run the largest gain first, the middle of the interval where it is bare."""
    remember(connection, [claim("small", mid_ns=780), claim("large", mid_ns=450)], NOW)
    remember(connection, [claim("other", run="b")], NOW)
    remember(connection, [claim("bare", mid_ns=None)], NOW - timedelta(days=1))
    assert [one.prediction.scenario for one in listed(connection)] == ["large", "bare", "small", "other"]
    remember(connection, [claim("again", run="b", mid_ns=790)], NOW)
    assert [one.prediction.scenario for one in listed(connection)] == ["other", "again", "large", "bare", "small"]


def test_the_latest_measurement_counts(connection: sqlite3.Connection) -> None:
    remember(connection, [claim(), claim("mm=achievable")], NOW)
    measured(connection, 1, "b", 900.4, 0.01, NOW)
    measured(connection, 1, "c", 800.0, None, NOW - timedelta(days=1))  # a clock may be set back
    first, second = listed(connection)
    assert first.measurement == Measurement(
        prediction_id=1, run_id="c", step_ns=800, noise=None, at="2026-01-30T12:00:00+00:00"
    )
    assert second.measurement is None


def test_an_unknown_prediction_is_not_measured(connection: sqlite3.Connection) -> None:
    remember(connection, [claim()], NOW)
    with pytest.raises(QrprofError, match="there is no prediction 2; list them with `qrprof predictions") as caught:
        measured(connection, 2, "b", 900.0, None, NOW)
    assert caught.value.exit_code == Exit.USAGE
    assert [one.measurement for one in listed(connection)] == [None]


def test_a_row_that_no_version_wrote(connection: sqlite3.Connection) -> None:
    remember(connection, [claim()], NOW)
    connection.execute("UPDATE predictions SET source = 'ranj'")
    with pytest.raises(QrprofError, match="the ledger holds a broken prediction \\(source: "):
        listed(connection)


def claims() -> st.SearchStrategy[Forecast]:
    intervals = st.lists(NUMBERS, min_size=3, max_size=3).map(sorted)
    return st.builds(
        lambda run, source, scenario, base, ends, bare: claim(
            scenario,
            run,
            source=source,
            base_ns=base,
            low_ns=ends[0],
            mid_ns=None if bare else ends[1],
            high_ns=ends[2],
        ),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["rank", "whatif"]),
        st.text(max_size=3),
        NUMBERS,
        intervals,
        st.booleans(),
    )


@given(st.lists(claims(), max_size=8), st.randoms())
def test_any_predictions_come_back_once(made: list[Forecast], random: Any) -> None:
    with TemporaryDirectory() as folder, closing(connect(Path(folder) / "ledger.sqlite")) as connection:
        remember(connection, made, NOW)
        remember(connection, random.sample(made, len(made)), NOW)
        kept = [one.prediction for one in listed(connection)]
    assert {Forecast(**one.model_dump(exclude={"id", "made_at"})) for one in kept} == set(made)
    assert len(kept) == len(set(made))
    assert sorted(one.id for one in kept) == list(range(1, len(kept) + 1))


# --- the error


@pytest.mark.parametrize(
    ("step", "mid", "error", "within"),
    [
        (625, 500, 0.2, True),  # slower than predicted
        (400, 500, -0.25, True),
        (500, 500, 0.0, True),
        (800, 500, 0.375, True),
        (1000, 500, 0.5, False),
        (200, 500, -1.5, False),
        (1000, None, 0.2, False),  # of the upper end
        (200, None, -1.0, False),  # of the lower end
        (400, None, 0.0, True),
        (800, None, 0.0, True),
        (500, None, 0.2, True),
        (640, None, -0.25, True),
    ],
)
def test_error_of_400_to_800(step: int, mid: int | None, error: float, within: bool) -> None:
    found = outcome(step, mid_ns=mid)
    assert found.error == pytest.approx(error)
    assert found.within is within


@given(st.lists(st.integers(0, 10**12), min_size=3, max_size=3).map(sorted), st.integers(1, 10**12), st.booleans())
def test_the_error_leads_back_to_the_prediction(ends: list[int], step: int, bare: bool) -> None:
    low, mid, high = ends
    found = outcome(step, low_ns=low, mid_ns=None if bare else mid, high_ns=high)
    assert found.error is not None
    predicted = step * (1 - found.error)
    assert min(abs(predicted - end) for end in ((low, high) if bare else (mid,))) <= 1e-9 * max(step, high)
    assert found.within == (sorted([low, step, high])[1] == step)
    if bare and found.within is False:
        assert (found.error > 0) == (step > high)


def test_summary() -> None:
    unmeasured = Listed(outcome(1).prediction, None)
    found = summary([outcome(625), unmeasured, outcome(1000), outcome(400), unmeasured])
    assert (found.predictions, found.measured, found.within, found.median_error) == (5, 3, 2, 0.25)
    none = summary([unmeasured])
    assert (none.predictions, none.measured, none.within, none.median_error) == (1, 0, 0, None)


# --- made of a run


def test_a_forecast_holds_whole_ns_and_where_they_are_from(build: Any) -> None:
    run = build.run([1000]).model_copy(update={"devices": [device("cpu", "EPYC"), device("cuda", "H200")]})
    made = forecast(run, "whatif", "launch=0", 999.6, Estimate(400.4, None, 800.5, Basis.CEILING))
    assert (made.base_ns, made.low_ns, made.mid_ns, made.high_ns) == (1000, 400, None, 800)
    assert (made.run_id, made.basis, made.device) == (run.id, "CEILING", "H200")


def device(kind: str, name: str) -> DeviceInfo:
    return DeviceInfo(index=0, kind=kind, name=name, memory_bytes=0)


def test_the_device_of_a_run(build: Any) -> None:
    run = build.run()
    assert device_of(run) == ""
    assert device_of(run.model_copy(update={"devices": [device("cpu", "EPYC")]})) == "EPYC"
    assert device_of(run.model_copy(update={"devices": [device("cuda", "H200"), device("cpu", "EPYC")]})) == "H200"


@pytest.mark.parametrize("numbers", [(2, 1, 3), (1, 4, 3), (3, None, 1), (-1, None, 1)])
def test_what_is_no_interval(numbers: tuple[int, int | None, int]) -> None:
    low, mid, high = numbers
    with pytest.raises(ValidationError):
        claim(low_ns=low, mid_ns=mid, high_ns=high)


@pytest.mark.parametrize("numbers", [{"step_ns": 0}, {"step_ns": 1, "noise": float("nan")}])
def test_what_is_no_measurement(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Measurement.model_validate({"prediction_id": 1, "run_id": "b", "noise": None, "at": ""} | numbers)
