"""What a command showed as a prediction is kept in the working folder's ledger, to be held against what is measured."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from qrprof.planner import predictions
from qrprof.planner.ledger import opened
from qrprof.planner.predictions import Forecast, forecast
from qrprof.planner.targets import Target
from qrprof.profiler.errors import QrprofError
from qrprof.tui.output import clean, say
from qrprof.tui.ranking import Ranking


def remember(forecasts: Sequence[Forecast]) -> None:
    """Keep what was shown. Where that cannot be done, one line on stderr says so: the command has done its work."""
    if not forecasts:
        return
    try:
        with opened(Path.cwd()) as connection:
            predictions.remember(connection, forecasts, datetime.now(UTC))
    except QrprofError as error:
        say(f"note: these predictions are not kept: {error}")


def gains(ranking: Ranking, shown: Sequence[Target]) -> list[Forecast]:
    """The step after each gain that was shown; nothing where no step was measured."""
    step = ranking.partition.step_ns
    if step is None:
        return []
    return [
        # A gain may exceed the step by a rounding.
        forecast(
            ranking.run,
            "rank",
            clean(f"{target.key}=achievable"),
            step,
            target.gain_ns.off(max(step, target.gain_ns.high)),
        )
        for target in shown
        if target.gain_ns is not None
    ]
