"""What a key of a what-if names in a run: an op, an op's calls with inputs of some shapes, a kernel, or a kind of cost.

Reserved words (`launch`, `sync`, `copy`, `comm`, `optimizer`) and `gap:CAUSE` come first, then ops, then kernels: by a
kernel's own name (with whatever it was instantiated), its whole name, or a part of that which no other has.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from qrprof.planner.replay.changes import WORDS, cause_of, change_cause, change_items, change_rows, owned_rows
from qrprof.planner.replay.covered import covered, item_weight
from qrprof.planner.whatif_parts import (
    KERNEL,
    OP,
    WORD,
    Part,
    Subject,
    count_calls,
    count_items,
    count_launches,
    shares,
)
from qrprof.profiler import events
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.events import CAUSES, is_communication
from qrprof.profiler.facts import Facts
from qrprof.profiler.nesting import Floats, Mask, outermost
from qrprof.profiler.owners import OPTIMIZER, PHASES
from qrprof.profiler.partition import UNATTRIBUTED
from qrprof.profiler.steps import weight_at

RESERVED: Final = (*WORDS, *(f"gap:{cause}" for cause in CAUSES))
ON_A_HOST: Final = ("optimizer", "gap:data", "gap:host")  # what has a meaning without a device
NEAREST: Final = 3  # names in an error, at most
LONGEST: Final = 100  # characters of such a name
SHAPED: Final = re.compile(r"(.+)\[([0-9x, ]*)\]")
HEAD: Final = re.compile(r"^(?:void )?(?:(?:[A-Za-z_0-9]+|<unnamed>|\(anonymous namespace\))::)*([A-Za-z_0-9]+)")


def find_part(subject: Subject, key: str) -> Part:
    """What `key` names. Raises QrprofError (exit code 2) where it names nothing in the steps, or several things."""
    if key in RESERVED or key.startswith("gap:"):
        return word_part(subject, key)
    ops = ops_in_steps(subject.facts)
    if names := named_ops(ops, key):
        return op_part(subject, the_only(names, key, "ops"))
    shaped = SHAPED.fullmatch(key)
    if shaped and (names := named_ops(ops, shaped[1])):
        return shaped_part(subject, the_only(names, shaped[1], "ops"), shaped[2].replace(" ", ""))
    kernels = kernels_in_steps(subject.facts)
    if key == UNATTRIBUTED or key in map(head, kernels):
        return kernels_part(subject, key)
    if names := [key] if key in kernels else [name for name in kernels if key and key in name]:
        return kernel_part(subject, the_only(names, key, "kernels"))
    known = [*RESERVED, *map(short, ops), *dict.fromkeys(map(head, kernels))]
    raise unknown(f"no op or kernel {key!r} in the steps of run {subject.run.id}", key, known)


def short(name: str) -> str:
    """An op's name without its namespace."""
    return name.rpartition("::")[2]


def head(kernel: str) -> str:
    """A kernel's own name, without what it was instantiated with."""
    found = HEAD.match(kernel)
    return found[1] if found else kernel


def unknown(problem: str, key: str, known: Sequence[str]) -> QrprofError:
    nearest = difflib.get_close_matches(key, known, n=NEAREST)
    hint = f"; nearest: {listed(nearest)}" if nearest else ""
    return QrprofError(f"{problem}{hint}; see `qrprof rank --top 1000` and `qrprof show`", Exit.USAGE)


def the_only(names: Sequence[str], key: str, what: str) -> str:
    if len(names) == 1:
        return names[0]
    longer = list(dict.fromkeys(map(head, names))) if what == "kernels" else names
    nearest = difflib.get_close_matches(key, longer, n=NEAREST, cutoff=0)
    raise QrprofError(f"{key!r} is in the names of {len(names)} {what}: write {' or '.join(nearest)}", Exit.USAGE)


def listed(names: Iterable[str]) -> str:
    return ", ".join(name if len(name) <= LONGEST else f"{name[:LONGEST]}.." for name in names)


# --- ops


def ops_in_steps(facts: Facts) -> list[str]:
    """The names of the ops and calls in the recorded steps, in order."""
    rows = facts.host.rows
    inside = (weight_at(facts.steps.host, facts.host.start) > 0) & rows["kind"].isin([events.OP, events.RUNTIME])
    return sorted(rows.loc[inside, "name"].unique().tolist())


def named_ops(ops: Sequence[str], key: str) -> list[str]:
    return [key] if key in ops else [name for name in ops if key == short(name)]


def op_part(subject: Subject, name: str) -> Part:
    return _owned(subject, name, name, None, owned_rows(subject.facts, name))


def shaped_part(subject: Subject, name: str, wanted: str) -> Part:
    """The calls of an op whose first inputs have the shapes that `wanted` lists."""
    facts, label = subject.facts, name.removeprefix("aten::")
    inside = (facts.host.rows["name"] == name) & (weight_at(facts.steps.host, facts.host.start) > 0)
    called = {text: spelled(text) for text in facts.host.rows.loc[inside, "shapes"].unique().tolist() if text}
    if not called:
        raise QrprofError(f"the trace of run {subject.run.id} holds no shapes of {label}: name it alone", Exit.USAGE)
    sizes = wanted.split(",")
    fitting = tuple(sorted(text for text, inputs in called.items() if inputs[: len(sizes)] == sizes))
    if not fitting:
        texts = sorted({",".join(inputs).rstrip(",") for inputs in called.values()})
        nearest = difflib.get_close_matches(wanted, texts, n=NEAREST, cutoff=0)
        raise QrprofError(
            f"no call of {label} begins with inputs of {wanted!r}; nearest: "
            f"{listed(f'{label}[{text}]' for text in nearest)}; see `qrprof show {label}`",
            Exit.USAGE,
        )
    calls = (facts.host.rows["name"] == name) & facts.host.rows["shapes"].isin(fitting)
    return _owned(subject, f"{name}[{wanted}]", name, fitting, outermost(facts.host, calls.to_numpy()) >= 0)


def spelled(shapes: str) -> list[str]:
    """Recorded shapes of inputs as keys write them; a list of tensors counts as several inputs, a number as ""."""
    inputs: list[Any] = []
    for one in json.loads(shapes):
        inputs += one if one and isinstance(one[0], list) else [one]
    return ["x".join(map(str, one)) for one in inputs]


def _owned(subject: Subject, key: str, op: str, shapes: tuple[str, ...] | None, mask: Mask) -> Part:
    change = partial(change_rows, subject.model.graph, mask)
    device, host = covered(subject.model, change(0.0))
    calls = count_calls(subject.facts, mask)
    label = key.removeprefix("aten::")
    return Part(key, label, OP, change, shares(subject, mask), calls, device, host, op, shapes)


# --- kernels


def kernels_in_steps(facts: Facts) -> list[str]:
    return sorted(set(facts.work.name[item_weight(facts) > 0].tolist()))


def kernel_part(subject: Subject, name: str) -> Part:
    rows = (subject.partition.rows["kernel"] == name).to_numpy()
    return _device_work(subject, name, subject.facts.work.name == name, rows)


def kernels_part(subject: Subject, key: str) -> Part:
    """All that a kernel was instantiated with, or all work without a launch."""
    work, rows = subject.facts.work, subject.partition.rows
    if key == UNATTRIBUTED:
        return _device_work(subject, key, work.launch < 0, (rows["key"] == key).to_numpy())
    names = {name for name in set(work.name.tolist()) if head(name) == key}
    items = np.array([name in names for name in work.name], dtype=bool)
    return _device_work(subject, key, items, rows["kernel"].isin(names).to_numpy())


def _device_work(subject: Subject, key: str, items: Mask, rows: Mask) -> Part:
    change = partial(change_items, subject.model.graph, items)
    device, host = covered(subject.model, change(0.0))
    return Part(
        key, head(key), KERNEL, change, rows.astype(np.float64), count_items(subject.facts, items), device, host
    )


# --- reserved words


def word_part(subject: Subject, word: str) -> Part:
    """A kind of cost. Raises QrprofError (exit code 2) where there is no such one, or not in this run."""
    if word not in RESERVED:
        raise unknown(f"no cause of idle time {word!r}; there are {listed(RESERVED[len(WORDS) :])}", word, RESERVED)
    if word not in ON_A_HOST and not subject.partition.on_device:
        raise QrprofError(
            f"{word!r} has no meaning in run {subject.run.id}, whose steps used no device: name an op, "
            f"{' or '.join(ON_A_HOST)}",
            Exit.USAGE,
        )
    cause = cause_of(word)
    graph = subject.model.graph
    change = partial(WORDS[word], graph) if cause is None else partial(change_cause, graph, cause)
    device, host = covered(subject.model, change(0.0))
    return Part(word, word, WORD, change, _word_rows(subject, word), _word_calls(subject, word), device, host)


def _word_rows(subject: Subject, word: str) -> Floats:
    rows = subject.partition.rows
    if word == "optimizer":
        mine = (rows["phase"] == PHASES[OPTIMIZER]).to_numpy()
    else:
        mine = (rows["key"] == f"gap:{word.removeprefix('gap:')}").to_numpy()
        moved = items_of(subject.facts, word)
        mine = mine | rows["kernel"].isin(set(subject.facts.work.name[moved].tolist())).to_numpy()
    found: Floats = mine.astype(np.float64)
    return found


def _word_calls(subject: Subject, word: str) -> float | None:
    """Items of device work of a mean step, or calls."""
    if word in ("copy", "comm"):
        return count_items(subject.facts, items_of(subject.facts, word))
    if word.endswith("launch"):
        return count_launches(subject.facts)
    if word in ("optimizer", "gap:host"):
        return None
    calls = subject.partition.calls
    return float(calls.loc[calls["key"] == f"gap:{word.removeprefix('gap:')}", "calls"].sum())


def items_of(facts: Facts, word: str) -> Mask:
    """The device work that a word means by its kind."""
    if word == "copy":
        copies: Mask = facts.work.kind == events.COPY
        return copies
    known = {name for name in set(facts.work.name.tolist()) if word == "comm" and is_communication(name)}
    return np.array([name in known for name in facts.work.name], dtype=bool)
