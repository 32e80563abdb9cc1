"""The ranks of a run side by side, where there are several."""

from qrprof.profiler import load
from qrprof.profiler.errors import QrprofError
from qrprof.profiler.ranks import Ranks, Seen, compare, look
from qrprof.tui.app.session import Session
from qrprof.tui.commands import ranks
from qrprof.tui.report.blocks import Block, Fields, Row, Section, Table
from qrprof.tui.report.sections import heads


def ranks_section(session: Session) -> Section | None:
    """None for a run of one rank."""
    numbers = load.ranks(session.folder)
    if len(numbers) < 2 and session.run.world_size < 2:
        return None
    blocks: list[Block]
    try:
        blocks = told(session, compare([seen(session, number) for number in numbers]))
    except QrprofError as error:
        blocks = [Fields([("withheld", str(error))])]
    lead = (
        f"All other sections are of rank {session.run.rank}. waits: what a rank waits in collectives for others; "
        "causes: what others wait for it."
    )
    return Section("ranks", "Ranks", blocks, lead)


def seen(session: Session, number: int) -> Seen:
    info, trace = load.load_run(session.folder, number)
    return look(number, trace, info)


def told(session: Session, found: Ranks) -> list[Block]:
    there, of = len(found.coverage), session.run.world_size
    several = len(found.times) > 1
    clocks = [("clocks", ranks.clock_line(found.collectives.clock))] if several else []
    pairs = [
        ("ranks", f"{there} of {of} are in the run" if there != of else f"all {of}"),
        ("coverage", ranks.coverage_line(found.coverage)),
        *clocks,
        ("straggler", found.why),
    ]
    met = {(one.rank, one.device): one for one in found.arrivals}
    rows = [Row(ranks.times_row(found, one, met.get((one.rank, one.device)))) for one in found.times]
    blocks: list[Block] = [
        Fields(pairs),
        Table("A mean recorded step, ms", heads(ranks.TIMES, "unprof.", "compute", "exposed"), rows),
    ]
    if groups := ranks.by_name(found):
        collectives = [Row(ranks.collective_row(found, what, own)) for what, own in groups]
        blocks.append(Table("Collectives of a mean step, ms", heads(ranks.COLLECTIVES, "latency"), collectives))
    return blocks
