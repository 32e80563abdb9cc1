"""`Source`: one process as a file holds it, with what the file says of it beside the trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qrprof.profiler.runinfo import DeviceInfo
from qrprof.profiler.trace import Trace


@dataclass(frozen=True)
class Source:
    trace: Trace
    path: Path
    part: str = ""  # of the file: an archive's member, a process; "": all of it
    rank: int | None = None  # None: the file does not say
    world_size: int | None = None
    devices: tuple[DeviceInfo, ...] = ()  # of the process's machine; empty: the file does not say
    versions: Mapping[str, str] = field(default_factory=dict)
    steps: str = ""  # what the reader took the steps from; "": the trace itself says

    @property
    def origin(self) -> str:
        return f"{self.path} ({self.part})" if self.part else str(self.path)

    def without_events(self) -> "Source":
        return replace(self, trace=replace(self.trace, events=self.trace.events.iloc[:0].copy()))
