"""The one error a person sees: a sentence that says what, where and what to do, and an exit code."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NO_DEVICE = 3
    REFUSED = 3  # the same code: what was asked for is not safe here
    UNKNOWN = 4  # of a verdict: evidence is missing
    INFRA = 5  # of a verdict: the machine failed, not the candidate
    INTERRUPTED = 130


class QrprofError(Exception):
    """Raised for anything a person can act on. `str(error)` is one line, ready for stderr."""

    def __init__(self, message: str, exit_code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
