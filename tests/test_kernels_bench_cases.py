"""The cases of the QR benchmark."""

from pathlib import Path

import pytest
import torch

from qrprof.kernels import structures
from qrprof.kernels.bench_cases import CPU_FLOPS, SETS, Case, read_cases, small
from qrprof.profiler.errors import Exit, QrprofError

CPU = torch.device("cpu")


def test_the_sets_hold_what_they_promise() -> None:
    assert {name: len(cases) for name, cases in SETS.items()} == {"contest": 12, "tests": 22, "sweep": 26}
    sweep = SETS["sweep"]
    square = {(case.batch, case.n) for case in sweep if case.m == case.n}
    assert square == {(batch, n) for batch in (1, 8, 40, 160, 640) for n in (64, 128, 256, 512)}
    assert any(case.m > case.n for case in sweep)
    assert any(case.m < case.n for case in sweep)
    assert len({(case.batch, case.m, case.n, case.seed) for case in sweep}) == len(sweep)


def test_a_cpu_gets_the_small_cases_in_their_order() -> None:
    assert [case.label for case in small(SETS["contest"])] == ["20x32 dense", "40x176 dense", "40x352 dense"]
    assert all(0 < case.flops <= CPU_FLOPS for name in SETS for case in small(SETS[name]))


@pytest.mark.parametrize(
    ("case", "flops", "label"),
    [
        (Case(batch=2, m=30, n=30), 2 * 4 / 3 * 30**3, "2x30 dense"),
        (Case(batch=2, m=100, n=30), 2 * (2 * 100 * 30**2 - 2 / 3 * 30**3), "2x100x30 dense"),
        (Case(batch=2, m=30, n=100, case="band"), 2 * (2 * 100 * 30**2 - 2 / 3 * 30**3), "2x30x100 band"),
    ],
)
def test_flops_and_labels(case: Case, flops: float, label: str) -> None:
    assert case.flops == pytest.approx(flops, rel=1e-12)
    assert case.label == label


def test_a_case_makes_its_input_and_others_by_fresh_seeds() -> None:
    case = Case(batch=3, m=8, n=4, case="rowscale", cond=2, seed=9)
    made = case.make(CPU)
    assert (made.shape, made.dtype) == ((3, 8, 4), torch.float32)
    assert torch.equal(made, structures.make("rowscale", 3, 8, 4, cond=2, seed=9, device="cpu"))
    assert torch.equal(case.make(CPU, 1), replace_seed(case, 10).make(CPU))
    assert not torch.equal(made, case.make(CPU, 1))


def replace_seed(case: Case, seed: int) -> Case:
    return Case(**(case.model_dump() | {"seed": seed}))


def test_a_file_of_cases(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text('[{"batch": 2, "n": 5}, {"batch": 1, "m": 7, "n": 5, "case": "band", "cond": 2, "seed": 3}]')
    assert read_cases(path) == (
        Case(batch=2, m=5, n=5, case="dense", cond=0, seed=0),
        Case(batch=1, m=7, n=5, case="band", cond=2, seed=3),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "is no JSON"),
        ("[]", "holds no case"),
        ("{}", "tuple"),
        ("[3]", "0"),
        ('[{"batch": 1, "n": 4}, {"batch": 1}]', "1, "),
        ('[{"batch": 1, "n": 0}]', "greater than 0"),
        ('[{"batch": 1, "n": 4, "colour": 1}]', "colour"),
        ('[{"batch": 1, "n": 4, "cond": -1}]', "cond"),
        ('[{"batch": 1, "n": 4, "case": "dens"}]', "no structure 'dens': one of dense"),
    ],
)
def test_a_file_that_holds_something_else_is_a_usage_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(QrprofError) as raised:
        read_cases(path)
    assert raised.value.exit_code == Exit.USAGE
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(QrprofError, match="No such file"):
        read_cases(tmp_path / "none.json")
