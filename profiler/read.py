"""Read traces of any kind: torch.profiler's JSON of any age and device, Nsight Systems' SQLite, ranks of a job.

trace = read(Path("trace.json.gz"))
for rank, source in ranked(read_all([Path("ranks.tar.gz")])): ...
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Final

from qrprof.profiler.errors import QrprofError
from qrprof.profiler.readers.chrome import Progress
from qrprof.profiler.readers.ranks import sources_of
from qrprof.profiler.readers.source import Source
from qrprof.profiler.trace import Trace

RANK: Final = re.compile(r"(?<![a-z])(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
ONE_BY_ONE: Final = "import each on its own"


def read(path: Path, progress: Progress | None = None) -> Trace:
    """Read a trace, known by its content: Chrome JSON (plain or gzip, whole or broken off), or an SQLite export.

    Of several processes (an export of a job, an archive or a folder of ranks) it is the first, and the trace's
    warnings say so. Times are integer ns from the trace's own zero. `progress` is told the bytes read and all.
    Raises QrprofError where the file cannot be read or is no trace.
    """
    first, *others = islice(sources_of(path, progress), 2)
    if not others:
        return first.trace
    remark = f"{path} holds several processes: this is {first.part or first.path.name}; `qrprof import` takes all"
    return replace(first.trace, warnings=(*first.trace.warnings, remark))


def read_all(paths: Iterable[Path], progress: Progress | None = None) -> Iterator[Source]:
    """The processes in all of the files, folders and archives, one in memory at a time. Raises as `read` does."""
    for path in paths:
        yield from sources_of(path, progress)


def ranked(sources: Iterable[Source]) -> Iterator[tuple[int, Source]]:
    """Number the processes of one job by rank: as the file says, else as its name does.

    The name of a single one is not asked (lora_rank16.json): it is rank 0 where the file does not say.

    Raises QrprofError where they cannot be of one job: a rank is there twice or unknown, or the world sizes differ.
    """
    seen: dict[int, Source] = {}
    for source in single_as_0(iter(sources)):
        rank = rank_of(source)
        if seen and (rank is None or None in map(rank_of, seen.values())):
            nameless = source if rank is None else next(iter(seen.values()))
            raise QrprofError(
                f"{nameless.origin} does not say which rank it is; put rank0, rank1, ... into names, or {ONE_BY_ONE}"
            )
        number = rank or 0
        if number in seen:
            raise QrprofError(
                f"{seen[number].origin} and {source.origin} are both rank {number}, so of two jobs; {ONE_BY_ONE}"
            )
        for other in seen.values():
            if None not in (other.world_size, source.world_size) and other.world_size != source.world_size:
                raise QrprofError(
                    f"{other.origin} is of a job of {other.world_size} ranks, {source.origin} of one of "
                    f"{source.world_size}; {ONE_BY_ONE}"
                )
        seen[number] = source.without_events()
        yield number, source


def single_as_0(sources: Iterator[Source]) -> Iterator[Source]:
    """The sources as they are, but rank 0 for a single one that only its name gives another rank.

    Two are in memory at once only where that has to be found out.
    """
    for first in islice(sources, 1):
        ahead = list(islice(sources, 1)) if first.rank is None and rank_of(first) else None
        yield first if ahead != [] else replace(first, rank=0)
        yield from chain(ahead or (), sources)


def rank_of(source: Source) -> int | None:
    if source.rank is not None:
        return source.rank
    named = RANK.search(source.part) or RANK.search(source.path.name)
    return int(named[1]) if named else None


def of_rank(path: Path, rank: int, progress: Progress | None = None) -> Trace:
    """The trace of one rank of what `path` holds; a single process is meant whatever its rank.

    `progress` is told as by `read`. Raises QrprofError as `read` does, and where none of several processes has that
    rank.
    """
    others = []
    for source in sources_of(path, progress):
        if rank_of(source) == rank:
            return source.trace
        others.append(source)
    if len(others) == 1:
        return others[0].trace
    raise QrprofError(f"{path} holds no rank {rank} any more; import it again")
