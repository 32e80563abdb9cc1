"""`qrprof bench`: the included kernels against the libraries', on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from qrprof.profiler import units
from qrprof.profiler.devices import cpu_name, kept_peaks
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.recording.runrecord import versions
from qrprof.tui.output import Cell, Column, field, name, save_json, say, table, write, write_json

if TYPE_CHECKING:  # torch is imported once the command runs
    from rich.console import RenderableType

    from qrprof.kernels.bench import Result, Setup
    from qrprof.kernels.bench_cases import Case

SECONDS, QUICK_SECONDS = 15.0, 1.0  # of readings a case
STDOUT: Final = Path("-")
HEADERS: Final = {"torch": "torch", "multistream": "streams", "cpu": "1 cpu"}
COLUMNS: Final = (
    Column("case", wraps=True),
    Column("lane", wraps=True),
    Column("device", right=True),
    Column("call", right=True),
    Column("GFLOP/s", right=True),
    Column("floor", right=True),
)
CHECKED: Final = (Column("error", right=True), Column("check"))


class Job(NamedTuple):
    """What is run; `cases` of the set or file `name`, of whose `total` cases a CPU leaves some out."""

    name: str
    cases: "tuple[Case, ...]"
    total: int
    contest: bool
    setup: "Setup"
    device: str
    load: float  # of the machine at the start
    notes: list[str]


@click.command(epilog="Example: qrprof bench qr --cases contest --json qr.json")
@click.argument("what", metavar="WHAT", type=click.Choice(["qr"]))
@click.option("--cases", metavar="SET", default="contest", show_default=True, help="contest, tests, sweep, or a file.")
@click.option("--against", metavar="PEERS", help="torch, multistream, cpu; several with commas.")
@click.option("--quick", is_flag=True, help=f"{QUICK_SECONDS:.0f} s of readings a case, not {SECONDS:.0f} s.")
@click.option("--json", "target", metavar="FILE", type=click.Path(path_type=Path), help="Write JSON; - prints it.")
def command(what: str, cases: str, against: str | None, quick: bool, target: Path | None) -> int:
    """Time the included kernels against the libraries'.

    WHAT is qr: geqrf of batches of float32 matrices, on the first GPU or, without one, on the CPU, where large cases
    are left out. Each result is checked in float64. The exit code is 1 where a case failed or a result is wrong.

    \b
    contest      the 12 cases that GPU MODE's contest qr_v2 ranks by
    tests        its 22 cases that are checked
    sweep        1 to 640 matrices of 64 to 512, and a few tall and wide ones
    FILE         a JSON list of {batch, n}, with m, case, cond, seed if wanted

    \b
    torch        torch.geqrf on the same device
    multistream  the same over 16 CUDA streams, a matrix at a time
    cpu          torch.geqrf on the CPU with one thread
    """
    job = prepare(cases, against, QUICK_SECONDS if quick else SECONDS)
    results: list[Result] = []
    save(target, job, results)
    for number, case in enumerate(job.cases, 1):
        say(f"{number} of {len(job.cases)}: {case.label}")
        results.append(measured(case, job.setup))
        save(target, job, results)  # after each: a machine may be taken away
    if target == STDOUT:
        write_json(record(job, results))
    else:
        write(page(job, results))
    return Exit.OK if all(result.right for result in results) else Exit.FAILED


def prepare(cases: str, against: str | None, seconds: float) -> Job:
    """Raises QrprofError (exit code 2 or 3) for a set or a peer that there is not, on this machine or at all."""
    import torch

    from qrprof.kernels.bench import Setup
    from qrprof.kernels.bench_cases import CONTEST, SETS, read_cases, small
    from qrprof.kernels.timing import HostClock, clock_of

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peers = chosen_peers(against, device.type)
    if cases not in SETS and not Path(cases).exists():
        raise QrprofError(f"no set and no file {cases!r}; sets are {', '.join(SETS)}", Exit.USAGE)
    wanted = SETS.get(cases) or read_cases(Path(cases))
    kept = small(wanted) if device.type == "cpu" and cases in SETS else wanted
    model = cpu_name() if device.type == "cpu" else torch.cuda.get_device_name(device)
    peaks = kept_peaks(device.type, model, torch.get_num_threads())
    load_now = os.getloadavg()[0]
    notes = notes_of(device.type, len(wanted) - len(kept), load_now)
    if peaks is None:
        notes.append(f"floor is not known: the peaks of {model} are not measured; run `qrprof doctor --measure`")
    described = model if device.type == "cuda" else f"{model}, {torch.get_num_threads()} threads"
    setup = Setup(device, peers, seconds, clock_of(device), HostClock(), peaks)
    return Job(cases, kept, len(wanted), cases == CONTEST, setup, described, load_now, notes)


def chosen_peers(against: str | None, kind: str) -> tuple[str, ...]:
    from qrprof.kernels.bench import DEFAULT_PEERS, PEERS

    if against is None:
        return DEFAULT_PEERS[kind]
    peers = tuple(dict.fromkeys(word.strip() for word in against.split(",") if word.strip()))
    known = PEERS["cuda"]
    if unknown := [peer for peer in peers if peer not in known]:
        raise QrprofError(f"no peer {unknown[0]!r}; there are {', '.join(known)}", Exit.USAGE)
    if missing := [peer for peer in peers if peer not in PEERS[kind]]:
        raise QrprofError(f"{missing[0]} needs a CUDA device, and torch sees none", Exit.NO_DEVICE)
    return peers


def notes_of(kind: str, left_out: int, load_now: float) -> list[str]:
    from qrprof.kernels.qr.dispatch import RULES

    notes = []
    if kind == "cpu":
        lanes = ", ".join(dict.fromkeys(rule.lane for rule in RULES if rule.device == "cuda"))
        notes.append(f"no CUDA device: the CUDA lanes ({lanes}) were not run")
    if left_out:
        notes.append(f"{left_out} cases that take a CPU long were left out; a file of cases runs whole")
    cores = os.cpu_count() or 1
    if kind == "cpu" and load_now > cores / 2:
        busy = f"load {load_now:.1f} on {cores} cores at the start"
        notes.append(
            f"{busy}: other programs ran, and threads of a library that wait for each other take too long then"
        )
    return notes


def measured(case: "Case", setup: "Setup") -> "Result":
    from qrprof.kernels.bench import bench

    return bench(case, setup)


# --- the record


def record(job: Job, results: "Sequence[Result]") -> dict[str, Any]:
    from qrprof.kernels.bench_report import report

    return {"load": job.load} | report(
        results,
        device=job.device,
        versions=versions(),
        cases=job.name,
        wanted=len(job.cases),
        peers=job.setup.peers,
        contest=job.contest,
        notes=job.notes,
    )


def save(target: Path | None, job: Job, results: "Sequence[Result]") -> None:
    """Raises QrprofError where the file cannot be written."""
    if target is not None and target != STDOUT:
        save_json(target, record(job, results))


# --- the page


def page(job: Job, results: "Sequence[Result]") -> "list[RenderableType]":
    columns = (*COLUMNS, *(Column(HEADERS[peer], right=True) for peer in job.setup.peers), *CHECKED)
    packages = ", ".join(f"{package} {version}" for package, version in versions().items() if package != "numpy")
    return [
        field("device", f"{job.device}; {packages}"),
        field("cases", f"{len(results)} of the {job.total} of {job.name}: geqrf, float32"),
        field("times", "ms, medians; of peers how many times ours their device time is"),
        *(field(kind, text) for kind, text in clocks(results).items()),
        "",
        table(columns, [row(result, job.setup.peers) for result in results]),
        "",
        *(field("sums", line) for line in sums_lines(job, results)),
        *(field("geomean", line) for line in mean_lines(job, results)),
        *(field(label, text) for label, text in faults(results)),
        *(field("note", note) for note in job.notes),
    ]


def clocks(results: "Sequence[Result]") -> dict[str, str]:
    """How our times were taken: both kinds, and what is apart from them."""
    ours = [result.ours for result in results if result.ours]
    found = {}
    for kind in ("device", "call") if ours else ():
        taken = [getattr(one, kind) for one in ours]
        how = "; ".join(dict.fromkeys(f"{one.how} ({one.clock})" for one in taken))
        n, calls = (between([getattr(one, what) for one in taken]) for what in ("n", "calls"))
        spread = max((one.p95_ns - one.p05_ns) / one.median_ns for one in taken)
        several = "" if calls == "1" else f", of {calls} calls each"
        found[kind] = f"{how}; n = {n}{several}; p05 to p95 at most {100 * spread:.0f} % of the median"
    if ours:
        found["first"] = (
            f"{units.time(max(one.first_ns for one in ours))} at most for the first call, which is not among these"
        )
        if peaks := [one.peak_bytes for one in ours if one.peak_bytes is not None]:
            found["memory"] = f"{units.size(max(peaks))} beside the input at most, with the result"
    return found


def between(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low}..{high}"


def row(result: "Result", peers: Sequence[str]) -> list[Cell]:
    ours = result.ours
    rate = result.flops_per_s
    error = result.check and result.check.own.spread("column").worst
    return [
        name(result.case.label),
        name(short(result.lane) + "*" * bool(result.fallback)),
        in_ms(ours.device.median_ns if ours else None),
        in_ms(ours.call.median_ns if ours else None),
        units.MISSING if rate is None else units.digits(rate / 1e9),
        units.MISSING if result.floor_share is None else f"{100 * result.floor_share:.0f} %",
        *(units.ratio(times_as_long(result, peer)) for peer in peers),
        units.MISSING if error is None else f"{error:.2g}",
        "failed" if result.failed else "ok" if result.right else "WRONG",
    ]


def short(lane: str) -> str:
    """Without the language, which goes by the device."""
    return lane.rpartition("-")[2]


def in_ms(ns: float | None) -> str:
    return units.MISSING if ns is None else units.digits(ns / 1e6)


def times_as_long(result: "Result", peer: str) -> float | None:
    theirs = result.peers.get(peer)
    if result.ours is None or theirs is None or isinstance(theirs, str):
        return None
    return theirs.device.median_ns / result.ours.device.median_ns


def sums_lines(job: Job, results: "Sequence[Result]") -> list[str]:
    """The ratio of sums, of both kinds of time, for each peer."""
    from qrprof.kernels.bench_report import KINDS, sums

    lines = []
    for peer in job.setup.peers:
        found = {kind: sums(results, peer, kind) for kind in KINDS}
        parts = [
            f"{kind} {units.time(one.theirs_ns)} to our {units.time(one.ours_ns)}, {units.ratio(one.ratio)}"
            for kind, one in found.items()
            if one.cases
        ]
        if parts:
            lines.append(f"{peer}, {found['device'].cases} of {len(results)} cases: {'; '.join(parts)}")
    return lines


def mean_lines(job: Job, results: "Sequence[Result]") -> list[str]:
    from qrprof.kernels.bench import OURS
    from qrprof.kernels.bench_report import KINDS, geometric_means

    lines = []
    for kind in KINDS if job.contest else ():
        count, means = geometric_means(results, [OURS, *job.setup.peers], kind)
        if count:
            listed = ", ".join(f"{who} {units.time(ns)}" for who, ns in means.items())
            lines.append(f"{kind}, {count} of {job.total} cases: {listed}")
    return lines


def faults(results: "Sequence[Result]") -> list[tuple[str, str]]:
    found = []
    for result in results:
        label, check = result.case.label, result.check
        if result.failed:
            found.append(("failed", f"{label}: {result.failed}"))
        elif check and not result.right:
            found.append(("wrong", f"{label}: strict {check.strict}; contest {check.contest}"))
        found += [
            ("no times", f"{peer} on {label}: {why}") for peer, why in result.peers.items() if isinstance(why, str)
        ]
    fallbacks = dict.fromkeys(f"{short(result.lane)}*: {result.fallback}" for result in results if result.fallback)
    return found + [("fallback", text) for text in fallbacks]
