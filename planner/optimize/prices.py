"""What a model's tokens cost: a small table by name, to which the user's own file adds."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from qrprof.planner.optimize.records import Budget
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import Record
from qrprof.profiler.store import config_folder

FILE: Final = "prices.toml"
PER: Final = 1_000_000  # tokens
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(Record):
    """Dollars per million tokens of the prompt and of the answer."""

    input: Dollars
    output: Dollars

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.input + tokens_out * self.output) / PER


TABLE: Final = TypeAdapter(dict[str, Price])


def lookup(model: str) -> Price | None:
    """The price of the model of this very name; None: unknown. The user's own file goes before the shipped one.

    Raises QrprofError (exit code 2) where the user's file cannot be read.
    """
    own = own_file()
    return (read(own) if own.exists() else {}).get(model) or read(Path(__file__).with_name(FILE)).get(model)


def own_file() -> Path:
    return config_folder() / FILE


def read(path: Path) -> Mapping[str, Price]:
    try:
        return TABLE.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # which TOML's, UTF-8's and pydantic's errors are
        where = error.errors()[0]["loc"] if isinstance(error, ValidationError) else error
        raise QrprofError(
            f'{path} is no table of prices ({where}): each line is "MODEL" = {{ input = 1.25, output = 10.0 }}',
            Exit.USAGE,
        ) from None


def check(budget: Budget, models: Iterable[str]) -> None:
    """Raises QrprofError (exit code 2) where a limit in dollars could not be held, and there is none in tokens."""
    if budget.dollars is None or budget.tokens is not None:
        return
    unknown = [model for model in models if lookup(model) is None]
    if unknown:
        raise QrprofError(
            f"the price of {unknown[0]} is not known, so a budget of {budget.dollars:g} dollars cannot be held: "
            f"add the model to {own_file()}, or give a limit in tokens, as --budget 200ktokens",
            Exit.USAGE,
        )
