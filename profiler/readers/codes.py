"""Texts and kinds as codes, and the ranges of the columns: what every reader writes its columns by."""

from typing import Any, Final

from qrprof.profiler.events import KINDS

CODE_OF: Final = {kind: code for code, kind in enumerate(KINDS)}
NS_LIMIT: Final = 1 << 62  # start and duration below it: their sum is an int64
INT32: Final = 1 << 31


def code(text: Any, codes: dict[Any, int]) -> int:
    """The code of a text; a new text gets the next one."""
    known = codes.get(text)
    return codes.setdefault(text, len(codes)) if known is None else known
