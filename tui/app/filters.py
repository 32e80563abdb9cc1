"""What is typed after `/`: words that a name holds, and conditions such as `kind:gap` or `share>2`.

All must hold. A word matches where its letters come in the name in that order: `lqr` finds linalg_qr.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

LONGEST: Final = 400  # characters of a name that are looked at
CONDITION: Final = re.compile(r"([a-z_]+)(>=|<=|>|<|=|:)(.*)")
COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
}

Record = Mapping[str, str | float | None]  # "name" and what else conditions may ask for
Match = Callable[[Record], bool]


def parse(text: str) -> Match:
    """A test of records. A condition without its end, as while it is typed, keeps all."""
    tests = [part(word) for word in text.lower().split()]
    return lambda record: all(test(record) for test in tests)


def part(word: str) -> Match:
    condition = CONDITION.fullmatch(word)
    if condition is None:
        return lambda record: spelled(word, str(record.get("name") or "").lower()[:LONGEST])
    field, sign, wanted = condition.groups()
    if sign == ":":
        return lambda record: wanted in str(record.get(field) or "").lower()
    try:
        number = float(wanted.removesuffix("%"))
    except ValueError:
        return lambda record: True
    return lambda record: holds(record.get(field), sign, number)


def holds(value: str | float | None, sign: str, number: float) -> bool:
    return isinstance(value, int | float) and COMPARED[sign](value, number)


def spelled(word: str, name: str) -> bool:
    """Whether the letters of `word` come in `name` in their order."""
    letters: Iterable[str] = iter(name)
    return all(letter in letters for letter in word)
