"""What qrprof predicted a step would take, and what it took when someone had done it: both kept in the ledger."""

import sqlite3
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError, model_validator

from qrprof import __version__
from qrprof.planner.estimate import Estimate
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import Record, RunInfo

Source = Literal["rank", "whatif", "optimize", "swaps"]
Kept = TypeVar("Kept", bound=Record)


class Forecast(Record):
    """A prediction as it is made: the step of a run if the scenario came true. Times are ns of a mean step."""

    run_id: str
    source: Source  # the command that showed it
    scenario: str  # "aten::linalg_qr=achievable", "linalg_qr=4x launch=0"
    basis: str  # of the interval, as `estimate.Basis` names it
    base_ns: NonNegativeInt  # before
    low_ns: NonNegativeInt
    mid_ns: int | None  # None: nothing speaks for a value inside the interval
    high_ns: int
    device: str  # "": unknown
    version: str  # of qrprof

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low_ns <= self.middle_ns <= self.high_ns:
            raise ValueError(f"not an interval: low {self.low_ns}, mid {self.mid_ns}, high {self.high_ns}")
        return self

    @property
    def middle_ns(self) -> float:
        return (self.low_ns + self.high_ns) / 2 if self.mid_ns is None else self.mid_ns


class Prediction(Forecast):
    """A forecast that is kept."""

    id: int
    made_at: str  # ISO 8601, UTC


class Measurement(Record):
    """What the step of a later run took."""

    prediction_id: int
    run_id: str
    step_ns: PositiveInt  # mean unprofiled step
    noise: Annotated[NonNegativeFloat, Field(allow_inf_nan=False)] | None  # fraction of the step; None: not measured
    at: str  # ISO 8601, UTC


@dataclass(frozen=True)
class Listed:
    """A prediction with its latest measurement."""

    prediction: Prediction
    measurement: Measurement | None

    @property
    def error(self) -> float | None:
        """Measured minus predicted step, as a fraction of the measured one: above 0, the step is slower than predicted.

        Predicted is the middle, or without one the end of the interval that is nearer to the measured step. None: not
        measured.
        """
        if self.measurement is None:
            return None
        made, step = self.prediction, self.measurement.step_ns
        ends = (made.low_ns, made.high_ns)
        expected = min(ends, key=lambda end: abs(step - end)) if made.mid_ns is None else made.mid_ns
        return (step - expected) / step

    @property
    def within(self) -> bool | None:
        """Whether the measured step lies in the predicted interval. None: not measured."""
        if self.measurement is None:
            return None
        return self.prediction.low_ns <= self.measurement.step_ns <= self.prediction.high_ns


@dataclass(frozen=True)
class Summary:
    predictions: int
    measured: int
    within: int  # of the measured ones, in their interval
    median_error: float | None  # of the absolute errors, a fraction; None: nothing measured


def device_of(run: RunInfo) -> str:
    """Name of the device that a run was on: its GPU, else its CPU; "" where the run does not say."""
    return run.device.name if run.device else ""


def forecast(run: RunInfo, source: Source, scenario: str, base_ns: float, step: Estimate) -> Forecast:
    """What `source` shows of `run`: that the mean step of `base_ns` would become `step`, both ns."""
    return Forecast(
        run_id=run.id,
        source=source,
        scenario=scenario,
        basis=step.basis,
        base_ns=round(base_ns),
        low_ns=round(step.low),
        mid_ns=None if step.mid is None else round(step.mid),
        high_ns=round(step.high),
        device=device_of(run),
        version=__version__,
    )


def remember(connection: sqlite3.Connection, forecasts: Iterable[Forecast], now: datetime) -> None:
    """Keep all of the forecasts, or none where that fails; what is kept already stays as it is.

    It is kept already where run, source, scenario and all numbers are the same.
    """
    made = [{**one.model_dump(), "made_at": stamp(now)} for one in forecasts]
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            """INSERT INTO predictions
                (run_id, made_at, source, scenario, basis, base_ns, low_ns, mid_ns, high_ns, device, version) VALUES
                (:run_id, :made_at, :source, :scenario, :basis, :base_ns, :low_ns, :mid_ns, :high_ns, :device, :version)
            ON CONFLICT DO NOTHING""",
            made,
        )


def find(connection: sqlite3.Connection, prediction_id: int) -> Prediction:
    """The prediction of this id. Raises QrprofError (exit code 2) where there is none."""
    row = connection.execute("SELECT * FROM predictions WHERE id = ?", (prediction_id,)).fetchone()
    if row is None:
        raise QrprofError(
            f"there is no prediction {prediction_id}; list them with `qrprof predictions --top 1000`", Exit.USAGE
        )
    return read(Prediction, row)


def latest_of(connection: sqlite3.Connection, run_id: str, source: Source, scenario: str) -> int | None:
    """Id of the last prediction of this scenario of a run; None: there is none."""
    query = "SELECT max(id) FROM predictions WHERE run_id = ? AND source = ? AND scenario = ?"
    (found,) = connection.execute(query, (run_id, source, scenario)).fetchone()
    return None if found is None else int(found)


def measured(
    connection: sqlite3.Connection, prediction_id: int, run_id: str, step_ns: float, noise: float | None, now: datetime
) -> None:
    """Keep what the mean unprofiled step of run `run_id` took (ns) as the outcome of a prediction.

    Raises QrprofError (exit code 2) where there is no such prediction.
    """
    made = find(connection, prediction_id)
    found = Measurement(prediction_id=made.id, run_id=run_id, step_ns=round(step_ns), noise=noise, at=stamp(now))
    connection.execute(
        "INSERT INTO measurements (prediction_id, run_id, step_ns, noise, at)"
        " VALUES (:prediction_id, :run_id, :step_ns, :noise, :at)",
        found.model_dump(),
    )


def listed(connection: sqlite3.Connection) -> list[Listed]:
    """All predictions: those of the run that was last predicted from come first, and of a run the largest gain."""
    made = connection.execute(
        """SELECT * FROM predictions ORDER BY
            max(id) OVER (PARTITION BY run_id) DESC, base_ns - ifnull(mid_ns, (low_ns + high_ns) / 2.0) DESC, id"""
    )
    predictions = [read(Prediction, row) for row in made]
    outcomes = connection.execute("SELECT prediction_id, run_id, step_ns, noise, at FROM measurements ORDER BY id")
    latest = {found.prediction_id: found for found in (read(Measurement, row) for row in outcomes)}
    return [Listed(prediction, latest.get(prediction.id)) for prediction in predictions]


def summary(found: Sequence[Listed]) -> Summary:
    """How well the predictions held."""
    errors = [abs(one.error) for one in found if one.error is not None]
    return Summary(
        predictions=len(found),
        measured=len(errors),
        within=sum(one.within is True for one in found),
        median_error=statistics.median(errors) if errors else None,
    )


def read(kind: type[Kept], row: sqlite3.Row) -> Kept:
    """A row as its record. Raises QrprofError where it holds what no version of this schema wrote."""
    try:
        return kind.model_validate(dict(row))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the row"
        raise QrprofError(
            f"the ledger holds a broken {kind.__name__.lower()} ({where}: {first['msg']}); move ledger.sqlite away"
        ) from None


def stamp(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="seconds")
