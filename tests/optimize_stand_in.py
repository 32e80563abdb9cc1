"""Stands for the process of job.py, without torch: a job's source is what it does, with a Request named `request`."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from qrprof.planner.optimize.records import Evaluation
from qrprof.planner.optimize.wire import answer_text, job_in
from qrprof.profiler.errors import Exit


@dataclass(frozen=True)
class Request:
    folder: Path  # the process's own
    job: str
    target: Path

    def answer(self) -> None:
        """With an evaluation whose host is this process's id."""
        self.publish(answer_text(lambda text: Evaluation(job_in(text), 1.0, str(os.getpid()), "a device"), self.job))

    def refuse(self, why: str) -> None:
        self.publish(json.dumps({"error": why, "exit_code": int(Exit.NO_DEVICE)}))

    def publish(self, text: str) -> None:
        temporary = self.target.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.rename(self.target)


def main() -> None:
    folder = Path(sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        source = job_in(asked["job"]).source
        exec(source, {"request": Request(folder, asked["job"], Path(asked["answer"]))})  # noqa: S102 - the tests' own


if __name__ == "__main__":
    main()
