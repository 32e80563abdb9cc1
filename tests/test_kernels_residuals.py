"""What is measured of a QR factorisation: units, places and Q itself."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from qr_cases import DTYPES, EPS, F64, Factored, made
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from qrprof.kernels import residuals as measures
from qrprof.kernels import signs
from qrprof.kernels.checks import residuals, residuals_qr, strict
from qrprof.kernels.structures import CASES, make


def test_strides_and_gradients_make_no_difference() -> None:
    square = Factored.of(made("dense", 4, 32, 32))
    own = residuals(square.a.mT.contiguous().mT.requires_grad_(), square.h.contiguous(), square.tau)
    assert all(torch.equal(x, y) for x, y in zip(own.each, square.geqrf.each, strict=True))


def test_batches_are_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Factored.of(made("mixed", 7, 20, 12))
    whole = (given.geqrf, given.qr)
    monkeypatch.setattr(measures, "CHUNK", 2 * 20 * 12)
    for once, parts in zip(whole, (given.geqrf, given.qr), strict=True):
        assert all(torch.allclose(x, y) for x, y in zip(once.each, parts.each, strict=True))


def test_units_of_the_measures() -> None:
    a = torch.eye(64).repeat(2, 1, 1)
    a[:, :, 3] *= 2
    h = a.clone()
    h[1, 2, 5] += 2**-10
    own = residuals(a, h, torch.zeros(2, 64))
    in_eps = 2**-10 / (64 * EPS)
    assert own.each.factor.tolist() == [0, in_eps / 2]
    assert own.each.column.tolist() == pytest.approx([0, in_eps])
    assert int(own.each.column_at[1]) == 5
    assert own.each.orthogonality.tolist() == [0, 0]
    q = torch.eye(64).repeat(2, 1, 1)
    q[0, 1, 0] = 2**-12
    expected = (2**-12 + 2**-24) / (64 * EPS)
    assert residuals_qr(a, q, a).each.orthogonality.tolist() == pytest.approx([expected, 0])


@pytest.mark.parametrize("exponent", [1020, -1060])
def test_the_ends_of_float64_are_measured_as_its_middle(exponent: int) -> None:
    a = torch.ones(16, 16, dtype=F64).triu() * 2.0**exponent
    h = a.clone()
    h[2, 5] *= 1 + 2.0**-10
    own = residuals(a, h, torch.zeros(16, dtype=F64))
    assert own.each.factor.item() == 2.0**-10 / (16 * 16 * 2.0**-52)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(50, 50), (60, 30), (30, 60), (5, 1), (1, 5)])
def test_q_is_what_the_reflectors_make(m: int, n: int, dtype: torch.dtype) -> None:
    h, tau = torch.geqrf(made("dense", 3, m, n, dtype=dtype).double())
    tau[:, ::3] = 0
    h = h[..., : min(m, n)]
    expected = torch.linalg.householder_product(h, tau)
    assert torch.allclose(measures.form_q(h, tau), expected, atol=1e-14)


def test_spread_and_place_of_the_worst() -> None:
    given = Factored.of(made("dense", 24, 20, 20).reshape(4, 6, 20, 20))
    given.h[2, 5, 3, 7] *= 1.01
    own = given.geqrf
    spread = own.spread("column")
    assert spread.at == (2, 5)
    assert spread.p50 <= spread.p90 < 1
    assert 50 < spread.p99 == spread.worst
    assert spread.worst == float(own.each.column.max())
    assert int(own.each.column_at[2 * 6 + 5]) == 7
    assert Factored.of(made("dense", 0, 4, 4)).geqrf.spread("column").at is None


def test_results_of_another_shape_or_dtype_are_refused() -> None:
    square, tall = (Factored.of(made("dense", 4, *shape)) for shape in ((32, 32), (48, 20)))
    a, h, tau, q, r = square.a, square.h, square.tau, square.q, square.r
    for wrong in ((h[:2], tau), (h[:, :9], tau), (h, tau[:, :9]), (h.double(), tau), (h, tau.to("meta"))):
        with pytest.raises(ValueError, match=r"(H|tau) is .* not \("):
            residuals(a, *wrong)
    with pytest.raises(ValueError, match="Q has 9 columns"):
        residuals_qr(a, q[..., :9], r[:, :9])
    with pytest.raises(ValueError, match=r"R is \(4, 20, 20\) torch.float64"):
        residuals_qr(tall.a, tall.q, tall.r.double())


def test_pivots_are_tau() -> None:
    h, tau = torch.geqrf(made("dense", 3, 80, 70, dtype=F64))
    q = torch.linalg.householder_product(h, tau)
    found = signs.pivots(torch.eye(70, dtype=F64) - q[:, :70])
    assert torch.allclose(found, tau, atol=1e-12)


class Computed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How many operations compute something: views do not."""

    count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += int(not func.is_view)
        return func(*args, **(kwargs or {}))


def computed(q: Tensor) -> int:
    mode = Computed()  # type: ignore[no-untyped-call]
    with mode:
        signs.has_lapack_signs(q)
    return mode.count


def of_case(case: str, n: int, batch: int = 1) -> Tensor:
    return Factored.of(made(case, batch, n, n, cond=0)).q.double()


CHANGED_THREADS = """
import torch
from qrprof.kernels.signs import has_lapack_signs
torch.set_num_threads(1)
torch.geqrf(torch.randn(300, 64, 64))
torch.set_num_threads(2)
q = torch.linalg.householder_product(*torch.geqrf(torch.randn(2, 150, 150, dtype=torch.float64)))
print(all(bool(has_lapack_signs(q).all()) for _ in range(50)))
"""


def test_signs_are_told_after_the_number_of_threads_was_changed() -> None:
    """MKL's LU of a batch of 2 then spins for ever, in most processes."""
    child = subprocess.run(
        [sys.executable, "-c", CHANGED_THREADS], check=True, capture_output=True, text=True, timeout=120
    )
    assert child.stdout == "True\n"


def test_signs_of_a_single_matrix_take_as_many_operations_at_every_size() -> None:
    assert computed(of_case("dense", 320)) == computed(of_case("dense", 64)) < 30


@pytest.mark.parametrize("q", [of_case("zero", 320), of_case("dense", 320, batch=signs.FEW + 1)])
def test_signs_take_few_operations_a_column_where_reflectors_are_identities_or_matrices_many(q: Tensor) -> None:
    assert 3 * 320 < computed(q) < 4 * 320


@pytest.mark.parametrize("case", CASES)
def test_signs_are_told_alike_of_one_matrix_and_of_many(case: str) -> None:
    batch = 2 * signs.FEW
    q = of_case(case, 70, batch)
    q = torch.where(q.isfinite().flatten(1).all(-1).view(-1, 1, 1), q, torch.eye(70, dtype=F64))
    q[::2, :, 0] *= -1
    alone = torch.cat([signs.has_lapack_signs(q[at : at + 1]) for at in range(batch)])
    assert torch.equal(signs.has_lapack_signs(q), alone)
    assert alone[1::2].all()


def test_signs_that_are_not_looked_at_count_as_lapacks() -> None:
    given = Factored.of(made("dense", 3, 20, 20))
    flipped = (given.a, -given.q, -given.r)
    assert not residuals_qr(*flipped).each.sign.any()
    assert residuals_qr(*flipped, signs=False).each.sign.all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_measures_what_the_cpu_measures(case: str) -> None:
    a = make(case, 6, 70, 70, cond=2, seed=11, device="cuda")
    assert torch.equal(a.nan_to_num(-1), make(case, 6, 70, 70, cond=2, seed=11, device="cuda").nan_to_num(-1))
    h, tau, q, r = (x.cuda() for x in (*torch.geqrf(a.cpu()), *torch.linalg.qr(a.cpu())))
    pairs = [
        (residuals(a, h, tau), residuals(a.cpu(), h.cpu(), tau.cpu())),
        *(
            (residuals_qr(a[:few], q[:few], r[:few]), residuals_qr(a[:few].cpu(), q[:few].cpu(), r[:few].cpu()))
            for few in (1, 6)
        ),
    ]
    for there, here in pairs:
        assert strict(there, here).passed
        for measure in ("factor", "column", "orthogonality"):
            assert torch.allclose(getattr(there.each, measure), getattr(here.each, measure), atol=1e-6)
