"""Jobs and evaluations as JSON text: all that crosses to another process or host. Reads and writes without torch."""

import json
from typing import Final

from pydantic import TypeAdapter

from qrprof.planner.optimize.records import Evaluation, Job

JOB: Final = TypeAdapter(Job)
EVALUATION: Final = TypeAdapter(Evaluation)


def job_text(job: Job) -> str:
    return json.dumps(JOB.dump_python(job))


def job_in(text: str) -> Job:
    """Raises ValueError where the text is no job."""
    return JOB.validate_python(json.loads(text))


def evaluation_text(evaluation: Evaluation) -> str:
    return json.dumps(EVALUATION.dump_python(evaluation))


def evaluation_in(text: str) -> Evaluation:
    """Raises ValueError where the text is no evaluation."""
    return EVALUATION.validate_python(json.loads(text))
