"""What a swaps.json loads: only what this user accepted, whose source is unchanged, and which was judged here."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_swaps import INCLUDED, ROWS, SOFTMAX, accept, candidate, write

from qrprof import kernels
from qrprof.kernels.loading import load
from qrprof.kernels.swap import SwapError
from qrprof.kernels.swapfile import Case, same_torch


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    yield
    kernels.uninstall()


def served(name: str) -> int:
    return sum(report.hits for report in kernels.report() if report.name == name)


def test_what_was_accepted_is_swapped(tmp_path: Path) -> None:
    found = load(accept(tmp_path, [INCLUDED, candidate(SOFTMAX)], [SOFTMAX]))
    assert found.refused == ()
    assert [swap.op for swap in found.swaps] == ["_softmax", "linalg_qr", "geqrf", "linalg_householder_product"]
    assert {swap.keys for swap in found.swaps} == {("CPU",)}  # where it was judged


def test_a_path_is_installed_and_taken_off_again(tmp_path: Path) -> None:
    entry = candidate(SOFTMAX)
    x = torch.randn(32, 10)
    expected = x.softmax(1)
    kernels.install(accept(tmp_path, [entry], [SOFTMAX]))
    torch.testing.assert_close(x.softmax(1), expected)
    assert served(entry.name) == 1
    kernels.uninstall()
    assert torch.equal(x.softmax(1), expected)
    assert kernels.report() == []


def test_a_candidate_runs_without_the_programs_autocast(tmp_path: Path) -> None:
    """As it was judged: of its own ops autocast would make bfloat16."""
    source = SOFTMAX.replace("shifted.sum(dim, keepdim=True)", "(shifted @ torch.ones(10, 1))")
    kernels.install(accept(tmp_path, [candidate(source)], [source]))
    x = torch.randn(32, 10)
    with torch.autocast("cpu"):
        found = torch._softmax(x, 1, False)
        assert torch.is_autocast_enabled("cpu")
        assert (x @ x.T).dtype == torch.bfloat16
    torch.testing.assert_close(found, x.double().softmax(1).float())
    assert kernels.report()[0].hits == 1


def test_inside_a_candidate_its_op_is_stock(tmp_path: Path) -> None:
    source = (
        "import torch\ndef candidate(x, *how):\n    return torch.cat([torch._softmax(y, *how) for y in x.chunk(4)])\n"
    )
    x = torch.randn(32, 10)
    expected = x.softmax(1)
    kernels.install(accept(tmp_path, [candidate(source)], [source]))
    for _ in range(2):
        torch.testing.assert_close(x.softmax(1), expected)
    (report,) = kernels.report()
    assert (report.hits, report.errors, report.open) == (2, 0, False)
    assert report.fallbacks == {"called by the candidate itself": 8}


def test_inputs_on_several_devices_are_no_candidates(tmp_path: Path) -> None:
    source = "import torch\ndef candidate(a, b):\n    return a * b\n"
    case = Case((((4, 4),), ((4, 4),)), ("float32", "float32"), (), "tt", False)
    (swap,) = load(accept(tmp_path, [candidate(source, case, op="mul.Tensor")], [source])).swaps
    assert swap.decline(torch.ones(4), torch.ones(4)) == ""
    assert swap.decline(torch.ones(4), torch.ones(4, device="meta")) == "its inputs are on several devices"


def test_a_planted_file_loads_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    planted = "open('planted', 'w')\n" + SOFTMAX
    kernels.install(write(tmp_path, [INCLUDED, candidate(planted)], [planted]))
    assert kernels.report() == []
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    sentence = "you have not accepted it on this machine for this folder; see `qrprof swaps show"
    assert all(sentence in line for line in said)


def test_what_was_accepted_in_another_folder_is_not_accepted_here(tmp_path: Path) -> None:
    accept(tmp_path, [INCLUDED])
    (tmp_path / "clone").mkdir()
    assert load(write(tmp_path / "clone", [INCLUDED])).swaps == ()


@pytest.mark.parametrize("fields", [{"op": "_log_softmax"}, {"device": "cuda"}, {"cases": ()}, {"torch": "1.0"}])
def test_an_entry_that_was_edited_is_not_the_accepted_one(tmp_path: Path, fields: dict[str, Any]) -> None:
    entry = candidate(SOFTMAX)
    accept(tmp_path, [entry], [SOFTMAX])
    (reason,) = load(write(tmp_path, [replace(entry, **fields)])).refused
    assert "not accepted" in reason


def test_a_candidate_whose_file_changed_is_off(tmp_path: Path) -> None:
    path = accept(tmp_path, [candidate(SOFTMAX)], [SOFTMAX])
    (file,) = (path.parent / "candidates").iterdir()
    file.write_text(SOFTMAX + "\n")
    (reason,) = load(path).refused
    assert reason.endswith(f"{file} has changed since it was accepted; accept it again")
    file.unlink()
    (reason,) = load(path).refused
    assert "cannot read" in reason


def test_a_change_of_our_own_source_takes_an_included_swap_off(tmp_path: Path) -> None:
    (reason,) = load(accept(tmp_path, [replace(INCLUDED, sha256="0" * 64)])).refused
    assert "qrprof's own source has changed" in reason
    (reason,) = load(accept(tmp_path, [replace(INCLUDED, kind="adapter", name="no_such")])).refused
    assert reason.startswith("swap no_such is off")


def test_what_was_judged_elsewhere_is_off(tmp_path: Path) -> None:
    other_torch, other_cpu = replace(INCLUDED, torch="2.0.1"), replace(INCLUDED, name="q", machine="Some CPU")
    first, second = load(accept(tmp_path, [other_torch, other_cpu])).refused
    assert f"it was judged with torch 2.0.1, this is {torch.__version__}" in first
    assert "it was judged on Some CPU, this is " in second


def test_a_version_of_the_package_without_the_build_is_the_same_torch() -> None:
    assert same_torch("2.11.0", "2.11.0+cu130")
    assert same_torch("2.11.0+cpu", "2.11.0")
    assert not same_torch("2.11.0+cpu", "2.11.0+cu130")
    assert not same_torch("2.11.0", "2.11.1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise OSError('no disk')", "OSError: no disk"),
        ("import sys; sys.exit()", "SystemExit"),
        ("def candidate(:", "SyntaxError"),
        ("x = 1", "AttributeError"),
    ],
)
def test_a_file_that_does_not_run_is_off(tmp_path: Path, text: str, why: str) -> None:
    found = load(accept(tmp_path, [candidate(text)], [text]))
    assert found.swaps == ()
    assert f"cannot be loaded: {why}" in found.refused[0]


@pytest.mark.parametrize("op", ["softmax.int", "add_", "rand", "no_such_op"])
def test_an_op_that_cannot_be_swapped_is_off(tmp_path: Path, op: str) -> None:
    entry = replace(candidate(SOFTMAX, op=op), name="named")
    found = load(accept(tmp_path, [entry], [SOFTMAX]))
    assert found.swaps == ()
    assert found.refused[0].startswith("swap named is off: ")


@pytest.mark.parametrize("damage", ["", "{", '{"schema": 9, "swaps": []}', '{"schema": 1, "swaps": [{}]}', "[1]"])
def test_a_damaged_file_is_one_line_and_stock(tmp_path: Path, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = accept(tmp_path, [INCLUDED])
    path.write_text(damage)
    kernels.install(path)
    assert kernels.report() == []
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"qrprof: {path} ")
    assert line.endswith("; the program runs on stock kernels")


def test_no_file_is_one_line_and_stock(tmp_path: Path) -> None:
    assert len(load(tmp_path / "swaps.json").refused) == 1


def test_the_source_is_known_to_who_asks_for_it(tmp_path: Path) -> None:
    """Triton compiles what `inspect` gives, which must not be what the file holds by now."""
    text = (
        SOFTMAX
        + "import inspect, pathlib\npathlib.Path(__file__).write_text('other')\nX = inspect.getsource(candidate)\n"
    )
    entry = candidate(text + "class Shown:\n    text = X\n")
    found = load(accept(tmp_path, [entry], [text + "class Shown:\n    text = X\n"]))
    assert found.refused == ()
    fast = inspect.getclosurevars(found.swaps[0].fast).nonlocals["candidate"]
    assert inspect.getsource(fast) == fast.__globals__["X"] == SOFTMAX.partition("\n")[2]


def test_a_candidate_comes_before_what_serves_its_op_in_general(tmp_path: Path) -> None:
    text = "import torch\ndef candidate(A, mode): return torch.linalg.qr(A.double(), mode)\n"
    case = Case((((64, 64),) * 3,), ("float32",), ("reduced",), "", False)
    entry = candidate(text, case, op="linalg_qr")
    found = load(accept(tmp_path, [INCLUDED, entry], [text]))
    assert [(swap.name, swap.op) for swap in found.swaps] == [
        (entry.name, "linalg_qr"),
        ("qr", "geqrf"),
        ("qr", "linalg_householder_product"),
    ]


# --- the calls a candidate serves


def hits(tmp_path: Path, case: Case, *calls: torch.Tensor, dim: int = 1) -> list[int]:
    """How many of these calls of softmax a candidate served."""
    entry = candidate(SOFTMAX, case)
    kernels.install(accept(tmp_path, [entry], [SOFTMAX]))
    counts = []
    for x in calls:
        before = served(entry.name)
        torch.testing.assert_close(x.softmax(dim), x.double().softmax(dim).to(x.dtype))
        counts.append(served(entry.name) - before)
    kernels.uninstall()
    return counts


def test_only_calls_like_those_it_was_judged_on_are_served(tmp_path: Path) -> None:
    rows, inside = ROWS, torch.randn(64, 10)
    outside = [torch.randn(65, 10), torch.randn(64, 9), torch.randn(2, 64, 10), torch.randn(64, 10).double()]
    assert hits(tmp_path, rows, inside, inside[:1], *outside) == [1, 1, 0, 0, 0, 0]
    assert hits(tmp_path, rows, torch.randn(10, 10), dim=0) == [0]
    strided = torch.randn(10, 64).T
    assert hits(tmp_path, rows, strided) == [0]
    assert hits(tmp_path, replace(rows, strided=True), strided) == [1]
    assert hits(tmp_path, replace(rows, layout="tpp"), inside) == [1]
    assert hits(tmp_path, replace(rows, layout="ptp"), inside) == [0]


def test_sizes_that_may_vary_vary_together(tmp_path: Path) -> None:
    text = "import torch\ndef candidate(x, y): return torch.div(x, y.reciprocal())\n"
    case = Case((((1, 4), (3, 3)),) * 2, ("float32", "float32"), (), "", False)
    entry = candidate(text, case, op="mul.Tensor")
    kernels.install(accept(tmp_path, [entry], [text]))
    x = torch.rand(4, 3) + 1
    torch.mul(x[:2], x[:2])
    assert served(entry.name) == 1
    torch.mul(x, x[:1])  # broadcast: it was judged on no such call
    torch.mul(x[:1], x)
    assert served(entry.name) == 1


def test_equal_numbers_of_another_type_are_another_call(tmp_path: Path) -> None:
    text = "import torch\ndef candidate(x, y, alpha): return torch.add(x, y, alpha=-alpha)\n"
    case = Case((((4, 4),), ((4, 4),)), ("int64", "int64"), (1,), "", False)
    entry = candidate(text, case, op="sub.Tensor")
    kernels.install(accept(tmp_path, [entry], [text]))
    x = torch.arange(4)
    torch.sub(x, x)  # alpha=1
    assert served(entry.name) == 1
    with pytest.raises(RuntimeError, match="alpha"):
        torch.sub(x, x, alpha=1.0)


def test_dtypes_are_handed_over_by_name_and_defaults_are_filled_in(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "def candidate(x, dim, keepdim, dtype):\n"
        "    assert (dim, keepdim) == ((1,), False)\n"
        "    return torch.ops.aten.mul.Tensor(x, 1).to(getattr(torch, dtype)).cumsum(1)[:, -1].contiguous()\n"
    )
    case = Case((((4, 4), (5, 5)),), ("float32",), ((1,), False, "float64"), "", False)
    entry = candidate(text, case, op="sum.dim_IntList")
    kernels.install(accept(tmp_path, [entry], [text]))
    x = torch.randn(4, 5)
    torch.testing.assert_close(torch.sum(x, 1, dtype=torch.float64), x.double() @ torch.ones(5).double())
    (report,) = kernels.report()
    assert (report.hits, report.errors, report.failed, report.checked) == (1, 0, 0, 1)


def test_a_wrong_result_is_found_beside_the_stock_kernels(tmp_path: Path) -> None:
    text = SOFTMAX.replace("(x - x.amax", "(1.001 * x - x.amax")
    entry = candidate(text)
    kernels.install(accept(tmp_path, [entry], [text]), kernels.Mode(check_every=1))
    for _ in range(4):
        torch.randn(64, 10).softmax(1)
    (report,) = kernels.report()
    assert (report.failed, report.open, report.fallbacks) == (3, True, {"circuit open": 1})


def test_installed_twice_is_an_error(tmp_path: Path) -> None:
    path = accept(tmp_path, [INCLUDED])
    kernels.install(path)
    with pytest.raises(SwapError):
        kernels.install(path)


def test_swaps_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRPROF_SWAPS", "off")
    kernels.install(accept(tmp_path, [INCLUDED]))
    assert kernels.report() == []
