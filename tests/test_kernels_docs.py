"""docs/kernels.md names the kernels and files that there are, and its figures are those of the benchmark's record."""

import json
import re
from pathlib import Path

from qrprof.profiler import units

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
SOURCES = [path for pattern in ("*.py", "*.cu", "*.cuh") for path in (ROOT / "kernels" / "qr").glob(pattern)]


def rows(head: str) -> list[list[str]]:
    """The cells of the table whose first line begins with `head`, without its rule."""
    lines = TEXT[TEXT.index(f"\n| {head} |") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def kernels_of_geqrf() -> set[str]:
    """Those of the blocked factorisation with a CUDA compiler."""
    names = {name for path in SOURCES for name in re.findall(r"\bqrprof_(\w+)\(", path.read_text(encoding="utf-8"))}
    apart = {"geqr2_tiny", "geqr2_larft_larfb_whole", "geqr2_small", "geqr2_larft_leaf", "orgqr_update", "ormqr_update"}
    apart |= {"copy_tall", "orgqr_tall", "orgqr_signs"}
    assert apart < names
    return names - apart


def test_every_kernel_of_a_factorisation_stands_in_the_table() -> None:
    named = set()
    for _, _, kernels, _ in rows("when")[1:]:
        first, *others = re.findall(r"`(\w+)`", kernels)
        named |= {first, *(first.partition("_")[0] + other for other in others)}
    assert named == kernels_of_geqrf()


def test_files_that_it_names_are_there() -> None:
    named = set(re.findall(r"`(\w+\.(?:py|cuh?))`", TEXT))
    assert len(named) > 5
    assert named <= {path.name for path in SOURCES}


def test_figures_are_those_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "h200-qr.json").read_text(encoding="utf-8"))
    cases = {f"{case['batch']} x {case['n']}": case for case in record["cases"] if case["case"] == "dense"}
    (_, *heads), stock, streams, included = rows("geqrf, ms")
    assert heads == list(cases)
    assert stock == ["torch", *(units.digits(case["peers"]["torch"]) for case in cases.values())]
    assert streams == ["torch, streams", *(units.digits(case["peers"]["multistream"]) for case in cases.values())]
    assert included == ["included", *(units.digits(case["device_ms"]) for case in cases.values())]
