"""Which rank of how many this process is, and the one run folder that all ranks of a node share."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.store import new_run_id


@dataclass(frozen=True)
class Launch:
    rank: int
    world_size: int
    restart: int  # how often the launcher has restarted its workers

    def shared_folder(self, runs: Path, script: str) -> Path | None:
        """The folder that the ranks of one launch agree on without a word; None for a single process.

        Its name is made of what they have in common: the launcher, their parent process.
        """
        if self.world_size == 1:
            return None
        started = datetime.fromtimestamp(psutil.Process(os.getppid()).create_time())
        restart = f"-restart{self.restart}" if self.restart else ""
        folder = runs / f"{new_run_id(script, started)}-{os.getppid()}{restart}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise QrprofError(f"cannot write {folder}: {error.strerror}; give another folder with --out") from None
        return folder


def launch_of(environment: Mapping[str, str]) -> Launch:
    """As torchrun and its kin set it: RANK, WORLD_SIZE, TORCHELASTIC_RESTART_COUNT."""

    def number(name: str, default: int) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdigit() else default

    return Launch(number("RANK", 0), number("WORLD_SIZE", 1), number("TORCHELASTIC_RESTART_COUNT", 0))
