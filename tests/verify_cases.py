"""A small program and swaps of its ops, good and bad, as a person would have accepted them."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from qrprof.kernels.sources import own_sha256
from qrprof.kernels.swapfile import FILE, Case, Entry, candidate_file, write
from qrprof.kernels.trust import trust
from qrprof.planner.verify.processes import Program
from qrprof.planner.verify.records import Verification
from qrprof.planner.verify.verify import Task, verify
from qrprof.profiler.store import open_store

# Softmax in the forward, its own backward op in the backward, QR in the optimizer, which keeps Q. The step's time is
# mostly sleep: what a test's swap adds is seen on a busy machine too.
TRAIN = """
import sys, time, torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Softmax(-1), torch.nn.Linear(16, 4))
class Rotated(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim == 2 and p.grad is not None:
                    gram = p.grad.T @ p.grad + torch.diag(torch.arange(1.0, p.shape[1] + 1))
                    self.state[p]["basis"] = torch.linalg.qr(gram).Q
        super().step()
optimizer = Rotated(model.parameters(), lr=0.1)
for i in range(int(sys.argv[1]) if sys.argv[1:] else 1000):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(4, (32,)))
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""
QR, SOFTMAX, SOFTMAX_BACKWARD = "linalg_qr", "_softmax", "_softmax_backward_data"
SQUARE = ((1, 64), (1, 64))
CASES = {
    QR: Case((SQUARE,), ("float32",), ("reduced",), "tp", True),
    SOFTMAX: Case((SQUARE,), ("float32",), (-1, False), "tpp", True),
    SOFTMAX_BACKWARD: Case((SQUARE, SQUARE), ("float32", "float32"), (-1, "float32"), "ttpp", True),
}


@dataclass(frozen=True)
class Accepted:
    """A folder with the program, where these swaps are accepted."""

    folder: Path
    entries: tuple[Entry, ...]

    def verified(self, *args: str, steps: int = 4, rounds: int = 1) -> Verification:
        with TemporaryDirectory() as folder:
            program = Program(str(self.folder / "train.py"), args, module=False)
            return verify(
                Task(program, self.file, self.entries, 1, steps, rounds, None, Path(folder)), lambda sentence: None
            )

    @property
    def file(self) -> Path:
        return self.folder / ".qrprof" / FILE


def accepted(folder: Path, *sources: tuple[str, str], included: bool = False, case: Case | None = None) -> Accepted:
    """Accept candidates, each an op and the source of its file, and the included QR."""
    (folder / "train.py").write_text(TRAIN)
    file = open_store(folder) / FILE
    entries = [candidate(file, op, source, case or CASES[op]) for op, source in sources]
    if included:
        entries.append(Entry("qr", "included", "", own_sha256("included", "qr"), "", "cpu", "", "", ()))
    write(file, entries)
    for entry in entries:
        trust(folder.resolve(), entry, datetime.now(UTC))
    return Accepted(folder, tuple(entries))


def candidate(file: Path, op: str, source: str, case: Case) -> Entry:
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    path = candidate_file(file, sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return Entry(f"{op}-{sha256[:6]}", "candidate", op, sha256, "", "cpu", "", "", (case,))
