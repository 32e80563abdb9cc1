"""The cases of GPU MODE's contest problem qr_v2: batches of square float32 matrices for geqrf.

Source: gpu-mode/reference-kernels, problems/linalg/qr_v2/task.yml. The contest ranks by the geometric mean of the
times of BENCHMARKS. The inputs here have its structures (`structures`), not its bits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from qrprof.kernels import structures


@dataclass(frozen=True)
class Case:
    structure: str
    batch: int
    n: int
    cond: float
    seed: int

    @property
    def label(self) -> str:
        return f"{self.batch}x{self.n} {self.structure}"

    def make(self, device: torch.device | str, fresh: int = 0) -> Tensor:
        """(batch, n, n) float32; `fresh` is added to the seed."""
        return structures.make(
            self.structure, self.batch, self.n, self.n, cond=self.cond, seed=self.seed + fresh, device=device
        )


BENCHMARKS: tuple[Case, ...] = (
    Case("dense", 20, 32, 1, 43214),
    Case("dense", 40, 176, 1, 423011),
    Case("dense", 40, 352, 1, 123456),
    Case("dense", 640, 512, 2, 1029),
    Case("dense", 60, 1024, 2, 75342),
    Case("dense", 8, 2048, 1, 224466),
    Case("dense", 2, 4096, 1, 32412),
    Case("mixed", 640, 512, 2, 770001),
    Case("mixed", 60, 1024, 2, 770002),
    Case("rankdef", 640, 512, 0, 770003),
    Case("clustered", 640, 512, 0, 770004),
    Case("nearrank", 60, 1024, 0, 770005),
)

TESTS: tuple[Case, ...] = (
    Case("dense", 20, 32, 1, 53124),
    Case("dense", 40, 176, 1, 3321),
    Case("dense", 40, 352, 1, 1200),
    Case("dense", 16, 512, 2, 32523),
    Case("dense", 16, 512, 4, 32524),
    Case("rankdef", 16, 512, 0, 32525),
    Case("clustered", 16, 512, 0, 32526),
    Case("band", 16, 512, 0, 32527),
    Case("rowscale", 16, 512, 0, 32528),
    Case("nearcollinear", 16, 512, 0, 32529),
    Case("mixed", 16, 512, 2, 32530),
    Case("dense", 4, 1024, 2, 4327),
    Case("dense", 4, 1024, 4, 4328),
    Case("rankdef", 4, 1024, 0, 4329),
    Case("nearrank", 4, 1024, 0, 4330),
    Case("clustered", 4, 1024, 0, 4331),
    Case("mixed", 4, 1024, 2, 4332),
    Case("dense", 2, 2048, 2, 224466),
    Case("rankdef", 2, 2048, 0, 224467),
    Case("mixed", 2, 2048, 2, 224468),
    Case("dense", 1, 4096, 1, 75342),
    Case("upper", 1, 4096, 0, 75343),
)
