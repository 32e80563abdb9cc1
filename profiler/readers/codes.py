"""Texts and kinds as codes, and the ranges of the columns: what every reader writes its columns by."""

from typing import Any, Final

from qrprof.profiler.events import KINDS

CODE_OF: Final = {kind: code for code, kind in enumerate(KINDS)}
NS_LIMIT: Final = 1 << 62  # start and duration below it: their sum is an int64
INT32: Final = 1 << 31


class Codes(dict[Any, int]):
    """The code of each text, looked up with `codes[text]`; a new text gets the next one."""

    def __missing__(self, text: Any) -> int:
        self[text] = found = len(self)
        return found
