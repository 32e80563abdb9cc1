"""The QR ops as swaps: what each takes, what it calls instead, and how a result is checked."""

from typing import Final

from torch import Tensor

from qrprof.kernels.guard import Swap
from qrprof.kernels.qr import lanes, postcheck, stock


def decline(op: str, A: Tensor) -> str:
    """Why the stock kernel serves this call: "" if it does not."""
    return "shape or dtype" if lanes.lane_of(op, A) == "torch" else ""


def decline_qr(A: Tensor, mode: str = "reduced") -> str:
    if mode not in lanes.MODES or lanes.lane_of_qr(A, mode) != lanes.lane_of("linalg_qr", A):
        return "mode"
    return decline("linalg_qr", A)


def decline_geqrf(A: Tensor) -> str:
    return decline("geqrf", A)


def decline_orgqr(H: Tensor, tau: Tensor) -> str:
    return decline("linalg_householder_product", H) if lanes.reflectors(H, tau) else "not reflectors"


def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    return lanes.qr(A, mode)


def stock_orgqr(H: Tensor, tau: Tensor) -> Tensor:
    return stock.orgqr(H, tau)[0]


# linalg.qr does not call the other two through the dispatcher: each is an op of its own. The out= overloads stay stock:
# through them the stock kernels are reached without holding the GIL.
SWAPS: Final = (
    Swap("linalg_qr", qr, decline_qr, postcheck.qr, stock.qr, name="qr"),
    Swap("geqrf", lanes.geqrf, decline_geqrf, postcheck.geqrf, stock.geqrf, name="qr"),
    Swap("linalg_householder_product", lanes.orgqr, decline_orgqr, postcheck.orgqr, stock_orgqr, name="qr"),
)
