"""What a program's process is asked to do beside running it. Paths are absolute: a script may change its folder."""

from typing import Any, TypedDict


class Request(TypedDict, total=False):
    module: bool  # the target is a module's name; filled in by `launched`
    swaps: str | None  # a swaps.json; None: stock
    mode: dict[str, Any]  # fields of `kernels.modes.Mode`
    report: str | None  # a file to write at exit: what the swaps did
    training: dict[str, Any] | None  # what `running.training.install` takes
