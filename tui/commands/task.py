"""`qrprof task`: what candidates are judged by, of a run's calls or of a set of QR cases; also for others' agents."""

from dataclasses import asdict
from pathlib import Path
from typing import Final, Literal

import click
from rich.console import RenderableType

from qrprof.planner.gate.records import ArgSpec, Domain, Plain, Task, TaskCase
from qrprof.planner.gate.task_store import TASK_FILE, keep, load_task, read_task, task_folders
from qrprof.profiler import units
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.store import FOLDER, find_run
from qrprof.tui.commands.bench import in_ms
from qrprof.tui.output import Column, field, name, say, table, title, write, write_json

FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
SHOWN: Final = 3  # ids in an error
TRIED: Final = 1 << 22  # numbers of a case that is tried before a task is kept
LIST: Final = (
    Column("task", wraps=True),
    Column("op"),
    Column("device"),
    Column("cases", right=True),
    Column("ms/step", right=True),
    Column("of", wraps=True),
)
CASES: Final = (Column("weight", right=True), Column("case", wraps=True), Column("inputs", wraps=True))
CHECKERS: Final = {
    "qr": "strict LAPACK residuals in float64, no worse than the stock op's",
    "relative": "error against float64, no more than {factor:g} times the stock kernel's own, or {floor:g} units of"
    " rounding ({low_floor:g} for results of 16 bits)",
}
SHRINKS: Final = {
    "none": "the sizes of the cases",
    "leading": "any smaller first size, down to {least}",
    "all": "any smaller sizes, down to {least}",
}


@click.group(epilog="Example: qrprof task new --from 20260201-0900 --op aten::_softmax")
def command() -> None:
    """Make, list, show and export what candidate kernels are judged by."""


@command.command(epilog="Example: qrprof task new --qr contest-512")
@click.option("--from", "run", metavar="RUN", help="Make the task of an op that this run called (--op).")
@click.option("--op", metavar="OP", help="The op: a name of `qrprof rank`; with --qr geqrf or linalg_qr.")
@click.option(
    "--qr", "cases", metavar="SET", help="Make the task of a built-in set of QR cases, as small, contest-512."
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="With --qr: where; by default a GPU if there is one."
)
@click.option("--rank", "number", type=click.IntRange(0), default=0, show_default=True, help="Process of the run.")
@click.option("--json", "as_json", is_flag=True, help="Print the task as JSON.")
def new(run: str | None, op: str | None, cases: str | None, device: str | None, number: int, as_json: bool) -> int:
    """Make a task and keep it in .qrprof/tasks.

    Of a run: its cases are the kinds of calls with the most time, weighted by it. RUN is a run's id, the start of one,
    or its folder. A composite op is refused with the name of one that it runs.
    """
    if (run is None) == (cases is None):
        raise click.UsageError("give --from RUN with --op, or --qr SET")
    if run is not None and (op is None or device is not None):
        raise click.UsageError("with --from give --op, and no --device: it is the run's")
    made = of_set(str(cases), op, device) if run is None or op is None else of_run(run, op, number)
    task = keep(Path.cwd(), made)
    if as_json:
        write_json({"task": asdict(task)})
    else:
        write(page(task))
        say(f"kept as {task.id}")
    return Exit.OK


def of_run(run: str, op: str, rank: int) -> Task:
    from qrprof.planner.gate.nulls import require_judgeable
    from qrprof.planner.gate.task import from_run

    return require_judgeable(from_run(find_run(Path.cwd(), run), op, rank), TRIED)


def of_set(cases: str, op: str | None, device: str | None) -> Task:
    import torch

    from qrprof.planner.gate.nulls import require_judgeable
    from qrprof.planner.gate.task import from_set

    on_gpu = torch.cuda.is_available() if device is None else device == "cuda"
    where: Literal["cpu", "cuda"] = "cuda" if on_gpu else "cpu"
    return require_judgeable(from_set(cases, op or "geqrf", where), TRIED)


@command.command("list", epilog="Example: qrprof task list --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> int:
    """List the tasks in .qrprof of the working folder, oldest first."""
    found, broken = read_all(Path.cwd())
    if as_json:
        write_json({"tasks": [asdict(task) for task in found], "broken": broken})
    elif found or broken:
        rows = [
            (
                name(task.id),
                task.op,
                task.device,
                str(len(task.development)),
                in_ms(task.step_ns),
                name(task.origin),
            )
            for task in found
        ]
        write([*([table(LIST, rows)] if rows else []), *(field("broken", one) for one in broken)])
    else:
        say(f"no tasks in {FOLDER}; make one with `qrprof task new --from RUN --op OP` or `--qr SET`")
    return Exit.OK


@command.command(epilog="Example: qrprof task show softmax")
@click.argument("wanted", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(wanted: str, as_json: bool) -> int:
    """Show one task in full. ID is a task's id or the start of one."""
    task = load_task(Path.cwd(), wanted)
    if as_json:
        write_json({"task": asdict(task)})
    else:
        write(page(task))
    return Exit.OK


@command.command(epilog="Example: qrprof task export agent --task softmax")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--task", "wanted", metavar="ID", help="The task; by default the only one.")
@click.option("--start", type=FILE, metavar="FILE", help="The candidate file to start from.")
def export(folder: Path, wanted: str | None, start: Path | None) -> int:
    """Write a task to FOLDER for an outside coding agent.

    README.md says what a candidate has to do, what is known of the op's calls, and how a file is judged; candidate.py
    is the file to change, parent.py what it has to beat.
    """
    from qrprof.planner.gate.evidence import QUERIES
    from qrprof.planner.optimize.brief import brief, known_at_first
    from qrprof.planner.optimize.export import fill

    root = Path.cwd()
    found = brief(root, load_task(root, wanted or only_task(root)), start)
    command = fill(folder, known_at_first(found, root), QUERIES, root)
    say(f"{found.task.id} is in {folder}; a candidate is judged by: {command}")
    return Exit.OK


def only_task(root: Path) -> str:
    """Raises QrprofError (exit code 2) where there is not exactly one."""
    ids = [folder.name for folder in task_folders(root)]
    if len(ids) == 1:
        return ids[0]
    there = f"there are {', '.join(ids[-SHOWN:])}" if ids else "there are none"
    raise QrprofError(f"{there}: name one by --task ID, or make one with `qrprof task new`", Exit.USAGE)


def read_all(root: Path) -> tuple[list[Task], list[str]]:
    """The tasks, and why others cannot be read."""
    found, broken = [], []
    for folder in task_folders(root):
        try:
            found.append(read_task(folder / TASK_FILE))
        except QrprofError as error:
            broken.append(str(error))
    return found, broken


# --- the page


def page(task: Task) -> list[RenderableType]:
    rows = [(units.share(case.weight), name(case.name), inputs(case)) for case in task.development]
    time = "" if task.step_ns is None else f", where these calls take {units.time(task.step_ns)} of a mean step"
    return [
        title(task.id),
        field("op", f"aten::{task.op} on {task.device}"),
        field("from", f"{task.origin}{time}"),
        field("candidate", f"def candidate({', '.join(task.arguments)}), in a file of its own"),
        field("returns", "what the op returns for the same arguments, in its dtypes, shapes and strides"),
        field("checks", CHECKERS[task.checker].format(**asdict(task.tolerance))),
        field("holdout", claims(task.domain)),
        *(field("note", note) for note in task.notes),
        "",
        table(CASES, rows),
    ]


def inputs(case: TaskCase) -> str:
    """ "float32[64,257], 1, False": the arguments of a call, in order."""
    shown = [one if isinstance(one, str) else plain(one) for one in case.args([spec(one) for one in case.tensors])]
    made = case.structure or ""
    captured = f"{len(case.samples) + len(case.held)} captured" if case.samples else ""
    kind = captured or (f"{made} cond {case.cond:g}" if case.cond else made)
    return ", ".join(shown) + (f" ({kind})" if kind else "")


def spec(one: ArgSpec) -> str:
    steps = f" strides [{','.join(map(str, one.stride))}]" if one.stride else ""
    return f"{one.dtype}[{','.join(map(str, one.shape))}]{steps}"


def plain(value: Plain) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def claims(domain: Domain) -> str:
    """What a candidate must be right for beyond the cases."""
    parts = [SHRINKS[domain.shrink].format(least=domain.least)]
    if domain.strided:
        parts.append("any strides")
    if domain.structures:
        parts.append(f"values {', '.join(domain.structures)}")
    if others := [f"{scale:g}" for scale in domain.scales if scale != 1]:
        parts.append(f"scaled by {', '.join(others)}")
    return "; ".join(parts)
