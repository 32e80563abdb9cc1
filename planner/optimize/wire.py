"""Jobs and their answers as JSON text: all that crosses to another process or host. Reads and writes without torch."""

import json
from collections.abc import Callable
from typing import Final

from pydantic import TypeAdapter

from qrprof.planner.optimize.records import Evaluation, Job
from qrprof.profiler.errors import Exit, QrprofError

JOB: Final = TypeAdapter(Job)
EVALUATION: Final = TypeAdapter(Evaluation)


def job_text(job: Job) -> str:
    return json.dumps(JOB.dump_python(job))


def job_in(text: str) -> Job:
    return JOB.validate_python(json.loads(text))


def answer_text(evaluate: Callable[[str], Evaluation], asked: str) -> str:
    """What `evaluate` gives, or the QrprofError that it raises."""
    try:
        return json.dumps({"evaluation": EVALUATION.dump_python(evaluate(asked))})
    except QrprofError as error:
        return json.dumps({"error": str(error), "exit_code": int(error.exit_code)})


def evaluation_in(text: str) -> Evaluation:
    """The evaluation in an answer. Raises the QrprofError that it holds instead."""
    answer = json.loads(text)
    if "error" in answer:
        raise QrprofError(answer["error"], Exit(answer["exit_code"]))
    return EVALUATION.validate_python(answer["evaluation"])
