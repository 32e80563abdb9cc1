"""What a model is asked: the contract, the parent, what is known of both, and what came of earlier tries.

Two roles: the proposer writes a file, the adviser says in a few sentences what to try. Neither is told how answers are
judged beyond what a caller of the op could know. All of it is bounded; history goes first, from its oldest end.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from qrprof.planner.gate.records import ArgSpec, Task, TaskCase
from qrprof.planner.gate.witness import ALLOWED
from qrprof.planner.optimize.answer import FIELDS
from qrprof.planner.optimize.lanes import part, split
from qrprof.planner.optimize.records import Candidate, Known
from qrprof.profiler import units
from qrprof.profiler.readers.texts import Masked, clean, mask
from qrprof.profiler.redact import without_homes

LIMIT: Final = 24_000  # characters of a prompt beside the parent's file, which is whole whatever its length
LESSONS, FEEDBACK, HINTS, ADVICE = 1500, 3000, 2000, 1500  # characters
LONG: Final = 20_000  # characters of a file, which a model would have to write anew
TRY: Final = 300  # characters of one earlier try
SEED: Final = re.compile(r"\bseed \d+")
ALLOWED_ERROR: Final = re.compile(r"(?: >|, allowed are) (?:[\d.]+(?:e[-+]?\d+)?|inf)\b")

Message = dict[str, str]

PROPOSER: Final = f"""\
You write kernels for PyTorch. You are given one op, the calls of it that a program makes, and a parent: a file that \
computes it. Write one file that computes the same and is faster on these calls, by wall clock, cold caches included.

A candidate is one Python file that defines `candidate` with the stock op's positional arguments and returns the stock \
op's outputs:
- every output has the shape, dtype, strides and device that the stock op's would have, and memory of its own; \
factorisations keep LAPACK's conventions, signs included;
- inputs stay as they were; they may be strided, of other values and scales, and of sizes next to those of the calls;
- results are compared with float64: be about as accurate as the stock op, on badly scaled and mixed batches as well;
- no state between calls, no threads, streams, files or network; random state and global settings stay as they were;
- imports: only {", ".join(sorted(ALLOWED))};
- it runs below autograd: no gradients;
- on a GPU: Triton, or CUDA C++ in a string for `torch.cuda._compile_kernel(source, name)`; \
`KERNELS = ("name", ...)` names the kernels that it launches;
- values worth varying may be declared for a search: `TUNABLES = {{"WIDTH": (32, 64, 128)}}`, with `WIDTH = 64` at the \
top level of the file.
Inputs are new for every call, and all outputs are looked at. A file that keeps answers, passes all work on to the \
stock op, tells test from use, or touches timers is found out and disqualified."""

ADVISER: Final = """\
You advise somebody who writes a faster kernel for one PyTorch op and is stuck. From the task, the best file and what \
was tried, say what bounds it now and which one or two changes of algorithm, data layout or division of work are most \
likely to help, and what to leave alone. At most 150 words, no code."""

PLATEAU: Final = (
    "The last tries were no better. Be bold: change the algorithm, the data layout or how the work is divided, "
    "not another setting of the same."
)


def build(known: Known, turn: int = 0, note: str = "") -> list[Message]:
    """The proposer's messages. `turn` numbers the requests, each takes another parent; `note`: why the last answer was
    of no use.
    """
    focus = focus_of(known, turn)
    before = [*task_sections(known, focus.lane), shown("Parent", known, focus.parent)]
    after = [
        section("Lessons from elsewhere", bullets(map(untelling, known.lessons), LESSONS)),
        section("Advice", cut(known.advice, ADVICE)),
        section("Hints of the person you work for", hints_of(known)),
        PLATEAU if known.plateau else "",
        section("Your last answer could not be used", cut(note, TRY)),
        form(len(source_of(known, focus.parent)) > LONG),
    ]
    return messages(PROPOSER, before, known, after, beside=len(source_of(known, focus.parent)))


def for_adviser(known: Known) -> list[Message]:
    """The adviser's messages, about the best file so far."""
    best = parents(known)[0].parent
    before = [*task_sections(known, ""), shown("Best so far", known, best)]
    after = [section("Hints of the person", hints_of(known))]
    return messages(ADVISER, before, known, after, beside=len(source_of(known, best)))


def messages(role: str, before: Sequence[str], known: Known, after: Sequence[str], beside: int) -> list[Message]:
    """With as much history as there is room for; `beside` characters do not count."""
    room = LIMIT + beside - sum(map(len, (role, *before, *after)))
    history = section("Tried before, oldest first", newest(map(told, known.tried), max(room, 0)))
    text = "\n\n".join(part for part in (*before, history, *after) if part)
    return [{"role": "system", "content": role}, {"role": "user", "content": mask(text)}]


# --- the parent


class Focus(NamedTuple):
    """What a request is about: whose file is to be changed (None: the starting one), and for which lane ("": all)."""

    parent: Candidate | None
    lane: str


def focus_of(known: Known, turn: int) -> Focus:
    """Each of the parents in turn, from the best on. On a plateau from the second, and for one lane alone."""
    found = parents(known)
    parent, lane = found[(turn + known.plateau) % len(found)]
    own = parent.lane if parent is not None else ""
    return Focus(parent, own or (lane if known.plateau else ""))


def parents(known: Known) -> list[Focus]:
    """The beams' candidates with the lane that each is good at: the best of each lane first, then the second ones.

    One that is good at several comes once, but on a plateau for each of them. Before all stands the starting file, as
    long as nothing is faster.
    """
    names = [lane.name for lane in split(known.task)]
    rows = zip_longest(*([(one, name) for one in beam] for beam, name in zip(known.beam, names, strict=False)))
    found: dict[tuple[str, str], Focus] = {}
    for one, lane in (pair for pair in chain.from_iterable(rows) if pair is not None):
        found.setdefault((one.sha256, lane if known.plateau else ""), Focus(one, lane))
    faster = any(one.over is not None and one.over.mid > 1 for beam in known.beam for one in beam)
    return [*([] if faster else [Focus(None, "")]), *found.values()]


def source_of(known: Known, parent: Candidate | None) -> str:
    return (known.start if parent is None else parent.proposal.source).rstrip("\n")


def shown(title: str, known: Known, parent: Candidate | None) -> str:
    return section(f"{title}: {standing(parent)}", f"```python\n{source_of(known, parent)}\n```")


def standing(parent: Candidate | None) -> str:
    if parent is None:
        return "the file that the work starts from"
    speed = f", {units.ratio(parent.over.mid)} as fast as the file that the work started from" if parent.over else ""
    lane = f", for {parent.lane}" if parent.lane else ""
    return f"try {parent.number}{lane}{speed}"


# --- the task


def task_sections(known: Known, lane: str) -> list[str]:
    task = part(known.task, lane)
    calls = "\n".join(f"- {call(case)}: {units.share(case.weight)} of the time" for case in task.development)
    alone = "\nFor these calls alone; other files serve the op's other calls." if lane else ""
    return [
        section(
            f"Op: aten::{task.op} on {'a GPU' if task.device == 'cuda' else 'a CPU'}",
            f"{signature(task)}\n{calls}{alone}",
        ),
        section("Profile", bullets(known.feedback, FEEDBACK)),
    ]


def signature(task: Task) -> str:
    return f"def candidate({', '.join(task.arguments)}): ...\nCalls:" if task.arguments else "Calls:"


def call(case: TaskCase) -> str:
    """`candidate(float32[16, 33], 1, False)`: of a task's case nothing but its form is told."""
    given = case.args([tensor(spec) for spec in case.tensors])
    return f"candidate({', '.join(one if isinstance(one, Form) else repr(one) for one in given)})"


class Form(str):
    """Text that stands for a tensor, where a plain text would be an argument of its own."""


def tensor(spec: ArgSpec) -> Form:
    strides = f" strides {list(spec.stride)}" if spec.stride is not None else ""
    indices = f" of indices below {spec.below}" if spec.below is not None else ""
    return Form(f"{spec.dtype}{list(spec.shape)}{strides}{indices}")


# --- history


def told(candidate: Candidate) -> str:
    speed = f", {units.ratio(candidate.over.mid)}" if candidate.over else ""
    failed = f": {untelling(candidate.why)}" if candidate.why else ""
    return cut(f"{candidate.number}. {candidate.proposal.changed} -> {candidate.outcome}{speed}{failed}", TRY)


def untelling(finding: str) -> str:
    """What the gate or a machine said, printable, without the seed, the error that is allowed, and the user's name."""
    return without_homes(ALLOWED_ERROR.sub("", SEED.sub("one seed", clean(finding, Masked()))))


def hints_of(known: Known) -> str:
    return newest((cut(hint, HINTS - 1) for hint in known.hints), HINTS)


def form(long: bool) -> str:
    fields = "\n".join(f'- "{name}": {text}' for name, text in FIELDS.items())
    diff = "\nThe parent is long: a diff of it is asked for." if long else ""
    return section("Answer", f"One JSON object with these texts, and nothing else:\n{fields}{diff}")


# --- texts


def section(title: str, body: str) -> str:
    return f"## {title}\n{body}" if body else ""


def bullets(lines: Iterable[str], room: int) -> str:
    """The first of the lines, as many as there is room for."""
    return "\n".join(fitting((f"- {line}" for line in lines), room))


def newest(lines: Iterable[str], room: int) -> str:
    """The last of the lines, in their order, as many as there is room for."""
    return "\n".join(reversed(fitting(reversed(list(lines)), room)))


def fitting(lines: Iterable[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def cut(text: str, room: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 4]} ..."
