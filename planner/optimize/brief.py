"""What an optimization starts with: the file, and what is known of the op from its run, its device and its kernels."""

from dataclasses import dataclass, replace
from pathlib import Path

from qrprof.planner.gate.aten_task import stock_source
from qrprof.planner.gate.environment import machine
from qrprof.planner.gate.evidence import find, listed
from qrprof.planner.gate.records import Task
from qrprof.planner.ledger import ledger_file, looked_up, opened
from qrprof.planner.optimize import counters, feedback
from qrprof.planner.optimize.compose import is_composed
from qrprof.planner.optimize.journal import Journal, hash_of, journal_of
from qrprof.planner.optimize.lessons import Lesson, learned, recall, shipped
from qrprof.planner.optimize.loop import Lessons
from qrprof.planner.optimize.records import Candidate, Known, Start
from qrprof.planner.optimize.starters import starter
from qrprof.planner.optimize.tunables import assignments
from qrprof.profiler.devices import Peaks, kept_peaks
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.facts import find_facts
from qrprof.profiler.load import load_run
from qrprof.profiler.store import run_folders

CPU = "cpu"


@dataclass(frozen=True)
class Brief:
    task: Task
    source: str  # the starting file
    stock: bool  # which is the stock op
    device: str  # "cpu", or the GPU's name; a GPU that is not here: ""
    feedback: tuple[str, ...]


def brief(root: Path, task: Task, start: Path | None, rank: int = 0) -> Brief:
    """Of a task in the working folder `root`; `start` is the user's own file, without one a shipped one is taken.

    On a GPU it calls a shipped starting file once; another is never run outside the gate. Raises QrprofError (exit
    code 2) where `start` cannot be read, or is no Python.
    """
    given = read(start) if start else starter(task)
    source = stock_source(task.op) if given is None else given
    here = device_here(task)
    known = (
        *of_origin(root, task, rank),
        *feedback.of_task(task, peaks_here(task, here)),
        *of_last_verdict(root, task, peaks_here(task, here)),
        *(counters.sentences(task, source) if here and start is None and given is not None else ()),
    )
    return Brief(task, source, given is None, here, known)


def read(path: Path) -> str:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QrprofError(f"cannot read {path}: {error}; name another file", Exit.USAGE) from None
    try:
        assignments(source)
    except QrprofError as error:
        raise QrprofError(f"cannot start from {path}: {error}", error.exit_code) from None
    return source


def device_here(task: Task) -> str:
    """ "cpu", or the name of the GPU; "": the task's device is not here."""
    if task.device == CPU:
        return CPU
    try:
        return machine(task.device)["device"]
    except QrprofError:
        return ""


def peaks_here(task: Task, device: str) -> Peaks | None:
    import torch

    name = machine(CPU)["device"] if device == CPU else device
    return kept_peaks(task.device, name, torch.get_num_threads()) if device else None


def of_origin(root: Path, task: Task, rank: int) -> tuple[str, ...]:
    """What the run that the task was made of tells; nothing where it was made of none, or the run is gone."""
    folder = next((one for one in run_folders(root) if one.name == task.origin), None)
    if folder is None:
        return ()
    run, trace = load_run(folder, rank)
    return feedback.of_run(find_facts(trace, run), run, task)


def of_last_verdict(root: Path, task: Task, peaks: Peaks | None) -> tuple[str, ...]:
    """What the gate found of the file that was judged last on this task, whoever wrote it."""
    ids = [one.id for one in looked_up(root, listed) if one.task == task.id]
    if not ids:
        return ()
    with opened(root) as connection:
        return feedback.of_verdict(find(connection, ids[0]).verdict, task, peaks)


# --- lessons


def known_at_first(found: Brief, root: Path, hint: str | None = None) -> Known:
    """What a proposer is told before anything was tried. Nothing is written, and no ledger is made."""
    hints = (hint,) if hint else ()
    known = Known(found.task, found.source, hints=hints, feedback=found.feedback)
    journal = journal_of(root) if ledger_file(root).exists() else None
    return replace(known, lessons=fitting(journal, found.task, found.device)(known))


def fitting(journal: Journal | None, task: Task, device: str) -> Lessons:
    """Lessons that fit what is known: of all optimizations so far, the one under way included, and the shipped ones."""

    def recalled(known: Known) -> tuple[str, ...]:
        told = of_ledger(journal, task) if journal else ()
        return recall((*told, *shipped()), task, device, " ".join((*known.feedback, *known.hints)))

    return recalled


def of_ledger(journal: Journal, task: Task) -> tuple[Lesson, ...]:
    """What candidates for the same op taught, the newest optimization first."""
    found: list[Lesson] = []
    for one in journal.optimizations():
        start = journal.start(one.id)
        if (start.task.op, start.task.device) == (task.op, task.device):
            found += learned(one.id, start.task, device_of(journal, one.id), changes(journal, start))
    return tuple(found)


def changes(journal: Journal, start: Start) -> list[Candidate]:
    """Candidates that are a change of another: neither the starting file nor several in one."""
    found = journal.candidates(start.id)
    itself = hash_of(start.source)
    return [one for one in found if one.sha256 != itself and not is_composed(one.proposal.source, start.source)]


def device_of(journal: Journal, optimization: str) -> str:
    """On which its candidates were judged: "cpu", or the GPU's name without its uuid; "": none was."""
    judged = (str(event.record["device"]) for event in journal.events(optimization) if event.kind == "judged")
    device = next((one for one in judged if one != "cuda"), "")  # what was lost does not say where
    return device if device == CPU else device.rpartition(" ")[0]
