"""The page: one file that needs no network, made of the sections, the data, and the page's style and script."""

import shlex
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

from qrprof import __version__
from qrprof.profiler import units
from qrprof.profiler.redact import names_here, redactor
from qrprof.profiler.runinfo import RunInfo
from qrprof.tui.app.session import Session
from qrprof.tui.commands import rank
from qrprof.tui.output import SCHEMA
from qrprof.tui.ranking import Ranking, record, run_line
from qrprof.tui.report import sections as told
from qrprof.tui.report.blocks import Block, Fields, Items, Section, Slot
from qrprof.tui.report.evidence import evidence_sections
from qrprof.tui.report.grid import grid_record
from qrprof.tui.report.html import Writer, embedded, links, mapped
from qrprof.tui.report.ranks import ranks_section
from qrprof.tui.report.sections import Hues, hues_of
from qrprof.tui.report.timeline import timeline_record

Redact = Callable[[str], str]
NO_SCRIPT: Final = "This part is drawn by the page's own script, which did not run."


def write_page(session: Session, root: Path, redact: Redact) -> str:
    """The report of a run as HTML, with what the ledger of the working folder `root` knows of it.

    Raises QrprofError where the run cannot be read.
    """
    ranking = session.ranking
    hues = hues_of(ranking)
    data = data_of(session, hues, redact)
    sections = [one for one in all_sections(session, root, hues, data) if one is not None]
    writer = Writer(redact)
    style, script = source("report.css"), source("report.js")
    return Template(source("report.html")).substitute(
        policy=f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        title=writer.text(f"{shlex.join(ranking.run.command)}: {units.time(step_ns(ranking))} a step"),
        heading=writer.text(shlex.join(ranking.run.command)),
        origin=writer.text(origin(ranking.run)),
        figures="".join(
            f"<div><b>{writer.text(value)}</b><span>{writer.text(label)}</span></div>"
            for value, label in figures(ranking)
        ),
        links=links(sections, writer),
        sections="\n".join(map(writer.section, sections)),
        version=writer.text(__version__),
        data=embedded(data),
        style=style,
        script=script,
    )


def source(name: str) -> str:
    return (files("qrprof.tui.report") / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def redactor_of(session: Session, wanted: bool) -> Redact:
    """What leaves out paths, users, hosts and what looks like a secret; without `wanted` all stays."""
    if not wanted:
        return lambda text: text
    run = session.run
    names = [str(name) for name in session.trace.events["name"].cat.categories]
    return redactor([*names, *run.command, run.cwd, *run.notes], names_here())


# --- the data


def data_of(session: Session, hues: Hues, redact: Redact) -> dict[str, Any]:
    """What the page's script reads, and whoever else opens the file: the ranking as `qrprof rank --json` prints it."""
    found = {
        "schema": SCHEMA,
        "rank": {"schema": SCHEMA, **record(session.ranking)},
        "timeline": timeline_record(session, hues, redact),
        "whatif": grid_record(session, hues),
    }
    redacted: dict[str, Any] = mapped(found, redact)
    return redacted


# --- the sections


def all_sections(session: Session, root: Path, hues: Hues, data: dict[str, Any]) -> Sequence[Section | None]:
    return [
        told.summary(session, hues),
        told.ranking_section(session, hues),
        whatif_section(session, data["whatif"]),
        told.path_section(session, hues),
        timeline_section(data["timeline"]),
        told.gaps_section(session, hues),
        told.launches_section(session, hues),
        told.panels_section(session, hues),
        ranks_section(session),
        *evidence_sections(root, session.run),
        about_section(session),
    ]


def whatif_section(session: Session, grid: dict[str, Any]) -> Section:
    title = "What if"
    if grid["withheld"]:
        return Section("whatif", title, [Fields([("withheld", grid["withheld"])])])
    lead = (
        "The step if these rows took less time. Each alone and each two together were replayed at "
        + ", ".join(f"{100 * level:.0f}" for level in grid["levels"])
        + " % of their time; values between these points are interpolated. An op goes with all that it calls, its "
        "launches too, as in qrprof whatif; the ranking's ceiling leaves its launches."
    )
    if grid["several_off"] is not None:
        lead += (
            " Of more than two rows the gains are added up from the pairs, which with all rows alike is off by up to "
            f"{units.share(grid['several_off'])} of the step."
        )
    return Section("whatif", title, [Slot("sliders", NO_SCRIPT)], lead)


def timeline_section(timeline: dict[str, Any]) -> Section:
    lead = (
        "The recorded steps: idle time of the device, the critical path, streams, host threads (the innermost op or "
        "call). Colours are those of the ranking. "
    )
    if timeline["quantum"]:
        lead += (
            f"Of {timeline['spans']:,} spans, those shorter than {units.time(timeline['quantum'])} are drawn together "
            "where they lie closer than that; the line below the picture says how many. "
        )
    if timeline["left_out"]:
        lead += f"Left out: {len(timeline['left_out'])} lanes, from {timeline['left_out'][0]} on. "
    keys = "Keys, once it has the focus: + and - zoom, arrows move, [ and ] go from span to span, 0 shows all."
    return Section("timeline", "Timeline", [Slot("lanes", NO_SCRIPT)], lead + keys)


def about_section(session: Session) -> Section:
    run = session.run
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    devices = [
        f"{one.name} ({one.kind} {one.index}, {units.size(one.memory_bytes)})" if one.memory_bytes else one.name
        for one in run.devices
    ]
    pairs = [
        ("run", run_line(run)),
        ("recorded", run.created),
        ("steps", run.step_source),
        *(("device", one) for one in devices),
        ("threads", str(run.threads)),
        ("versions", versions or units.MISSING),
        ("qrprof", __version__),
    ]
    blocks: list[Block] = [Fields(pairs)]
    if notes := rank.footnotes(session.ranking):
        blocks.insert(0, Items("", notes))
    return Section("about", "Notes", blocks)


# --- the head


def origin(run: RunInfo) -> str:
    process = f"rank {run.rank} of {run.world_size}" if run.world_size > 1 else ""
    device = next((one.name for one in run.devices if one.kind != "cpu"), "")
    return ", ".join(text for text in (run.id, run.created[:16].replace("T", " "), device, process) if text)


def figures(ranking: Ranking) -> list[tuple[str, str]]:
    """What is read first: the step, how much of it the trace covers, and the best that could be done."""
    found = ranking.partition
    measured = found.step_ns is not None
    shown = [
        (units.time(step_ns(ranking)), "mean step, unprofiled" if measured else "mean step, as recorded"),
        (found.coverage.verdict.value, "coverage"),
    ]
    if found.on_device:
        shown.append((units.share(found.busy_ns / found.recorded_ns), "of the recorded step the device is busy"))
    best = ranking.targets[0] if ranking.targets else None
    if best and best.gain_ns and not best.dont_bother:
        shown.append((f"{rank.gain(best)} ms", f"gain by {rank.label(best)}"))
    return shown


def step_ns(ranking: Ranking) -> float:
    found = ranking.partition
    return found.recorded_ns if found.step_ns is None else found.step_ns
