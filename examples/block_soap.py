"""Block-diagonal SOAP on a small character transformer: one batched torch.linalg.qr refreshes all eigenbases.

SOAP (Vyas et al., arXiv 2409.11321) runs Adam in the eigenbases of Shampoo's two statistics of a gradient G, the means
of G Gᵀ and of Gᵀ G. Here every matrix is cut into BLOCK x BLOCK tiles, and each tile has two statistics of its own.
"""

from collections.abc import Callable, Iterable
from typing import Any

import charlm
import torch
from torch import Tensor, nn

BLOCK = 64


def tiles(matrix: Tensor) -> Tensor:
    """(m BLOCK, n BLOCK) -> (m n, BLOCK, BLOCK)."""
    rows, columns = (side // BLOCK for side in matrix.shape)
    return matrix.view(rows, BLOCK, columns, BLOCK).transpose(1, 2).reshape(-1, BLOCK, BLOCK)


def untile(stack: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of tiles."""
    rows, columns = (side // BLOCK for side in shape)
    return stack.view(rows, columns, BLOCK, BLOCK).transpose(1, 2).reshape(shape)


def adam(state: dict[str, Any], gradient: Tensor, beta: float, rotate: Callable[[Tensor], Tensor]) -> Tensor:
    """Adam's direction in the basis that `rotate` goes to; one beta for both moments."""
    state["step"] += 1
    state["mean"].lerp_(gradient, 1 - beta)
    state["square"].lerp_(rotate(gradient).square(), 1 - beta)
    unbiased = 1 - beta ** state["step"]
    return rotate(state["mean"]) / unbiased / ((state["square"] / unbiased).sqrt() + 1e-8)


class BlockSOAP(torch.optim.Optimizer):
    """SOAP for the matrices, whose sides must be multiples of BLOCK, and Adam for the vectors, each as one stack."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 3e-3, beta: float = 0.95, precondition_frequency: int = 1
    ) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "precondition_frequency": precondition_frequency})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            self.step_matrices([p for p in group["params"] if p.ndim == 2], group)
            self.step_vectors([p for p in group["params"] if p.ndim == 1], group)

    def step_matrices(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        gradient = torch.cat([tiles(p.grad) for p in params])
        state = self.state[params[0]]
        if not state:
            bases = torch.eye(BLOCK, device=gradient.device).repeat(2 * len(gradient), 1, 1)
            state.update(moments(gradient), bases=bases, statistics=torch.zeros_like(bases))

        left, right = state["bases"].chunk(2)
        direction = left @ adam(state, gradient, group["beta"], lambda x: left.mT @ x @ right) @ right.mT
        for p, stack in zip(params, direction.split([p.numel() // BLOCK**2 for p in params]), strict=True):
            p.add_(untile(stack, p.shape), alpha=-group["lr"])

        products = torch.cat([gradient @ gradient.mT, gradient.mT @ gradient])
        state["statistics"].lerp_(products, 1 - group["beta"])
        if state["step"] % group["precondition_frequency"] == 0:
            # The statistics change slowly, so one power iteration from the last bases is enough.
            state["bases"] = torch.linalg.qr(state["statistics"] @ state["bases"]).Q

    def step_vectors(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        gradient = torch.cat([p.grad for p in params])
        state = self.state[params[0]]
        if not state:
            state.update(moments(gradient))
        direction = adam(state, gradient, group["beta"], lambda x: x)
        for p, part in zip(params, direction.split([len(p) for p in params]), strict=True):
            p.add_(part, alpha=-group["lr"])


def moments(gradient: Tensor) -> dict[str, Any]:
    return {"step": 0, "mean": torch.zeros_like(gradient), "square": torch.zeros_like(gradient)}


def main() -> None:
    parser = charlm.options(__doc__)
    parser.add_argument("--precondition-frequency", type=int, default=1, help="steps from one refresh to the next")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = charlm.CharLM().to(args.device)
    optimizer = BlockSOAP(model.parameters(), precondition_frequency=args.precondition_frequency)
    data = charlm.batches(size=16, context=64, device=args.device)
    charlm.train(model, optimizer, data, steps=args.steps, device=args.device)


if __name__ == "__main__":
    main()
