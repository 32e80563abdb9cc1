"""SOAP's adapter: the package's training to the last bit, in fewer calls, and stock again once it is taken off."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from conftest import Workshop
from run_swaps import INCLUDED, accept
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from qrprof import kernels
from qrprof.kernels import adapters, replicas, swap
from qrprof.kernels.adapters import soap
from qrprof.kernels.guard import Guard
from qrprof.kernels.loading import load, placed
from qrprof.kernels.modes import Mode
from qrprof.kernels.sources import own_sha256
from qrprof.kernels.swapfile import Entry
from qrprof.profiler.errors import QrprofError

SOAP: Any = pytest.importorskip("pytorch_optimizer").SOAP
ADAPTER = adapters.find("soap")
pytestmark = pytest.mark.skipif(bool(adapters.unfit(ADAPTER)), reason="a version of the package that it does not know")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With one thread the batched lane of a CPU has the bits of torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def attached() -> Iterator[adapters.Attached]:
    on = adapters.install("soap")
    yield on
    on()


def hits(on: adapters.Attached) -> int:
    return sum(guard.report().hits for guard in on.guards)


@dataclass(frozen=True)
class Training:
    """Some steps of SOAP on layers with 32 matrices of one shape among others."""

    options: dict[str, Any]
    dtype: torch.dtype = torch.float32
    groups: int = 1
    closure: bool = False
    conv: bool = False
    late: int = 0  # the step from which on the last layer has gradients
    optimizer: Any = SOAP

    def net(self) -> nn.Sequential:
        first: list[nn.Module] = [nn.Conv2d(4, 64, (1, 2), bias=False), nn.Flatten()] if self.conv else []
        layers = [nn.Linear(64, 64, not self.conv) for _ in range(16)]
        return nn.Sequential(*first, *layers, nn.Linear(64, 8, False)).to(self.dtype)

    def run(self, steps: int = 6) -> list[Any]:
        """Parameters and the optimizer's state after each step."""
        torch.manual_seed(0)
        net = self.net()
        parameters = list(net.parameters())
        parts = [{"params": parameters[i :: self.groups]} for i in range(self.groups)]
        optimizer = self.optimizer(parts, **self.options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        seen = []
        for step in range(steps):
            net[-1].requires_grad_(step >= self.late)
            self.step(optimizer, net, torch.randn(16, *((4, 1, 2) if self.conv else (64,)), dtype=self.dtype))
            scheduler.step()
            seen.append(snapshot([parameters, optimizer.state_dict()]))
        return seen

    def step(self, optimizer: Any, net: nn.Module, x: Tensor) -> None:
        def loss() -> Tensor:
            optimizer.zero_grad()
            value: Tensor = net(x).square().mean()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        if self.closure:
            assert optimizer.step(loss) > 0
        else:
            loss()
            optimizer.step()


def snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone(), value.stride()
    if isinstance(value, dict):
        return {key: snapshot(one) for key, one in value.items()}
    return [snapshot(one) for one in value] if isinstance(value, list | tuple) else value


def same(a: Any, b: Any) -> bool:
    """Keys, types, strides and bits."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


TRAININGS = {
    "each-step": (Training({"precondition_frequency": 1}), 5),
    "each-second": (Training({"precondition_frequency": 2}), 2),
    "closure": (Training({"precondition_frequency": 1}, closure=True), 5),
    "groups": (Training({"precondition_frequency": 1, "normalize_gradient": True}, groups=3), 5),
    "vectors": (Training({"precondition_frequency": 1, "precondition_1d": True}), 5),
    "float64": (Training({"precondition_frequency": 1}, dtype=torch.float64), 5),
    "merged": (
        Training(
            {
                "precondition_frequency": 1,
                "merge_dims": True,
                "max_precondition_dim": 64,
                "data_format": "channels_last",
            },
            conv=True,
        ),
        5,
    ),
    "late": (Training({"precondition_frequency": 2, "max_precondition_dim": 64}, late=4), 2),
}


@pytest.mark.parametrize(("training", "calls"), TRAININGS.values(), ids=TRAININGS)
def test_training_is_that_of_the_package(training: Training, calls: int) -> None:
    stock = training.run()
    on = adapters.install("soap")
    grouped = training.run()
    on()
    assert same(grouped, stock)
    assert hits(on) == calls
    assert same(training.run(), stock)
    assert hits(on) == calls


def test_each_basis_has_memory_of_its_own(attached: adapters.Attached) -> None:
    _, state = Training({"precondition_frequency": 1}).run(3)[-1]
    bases = [tensor for one in state["state"].values() for tensor, _ in filter(len, one["Q"])]
    assert len({basis.data_ptr() for basis in bases}) == len(bases)
    assert all(basis.untyped_storage().nbytes() == basis.nbytes for basis in bases)


def test_hooks_after_the_step_see_the_new_bases() -> None:
    def seen(optimizer: Any) -> list[Any]:
        bases: list[Any] = []
        parameter = nn.Parameter(torch.eye(4))
        made = optimizer([parameter], precondition_frequency=1)
        made.register_step_post_hook(lambda *_: bases.append(snapshot(made.state[parameter]["Q"])))
        for _ in range(4):
            parameter.grad = torch.arange(16.0).view(4, 4).sin() + parameter.detach()
            made.step()
        return bases

    stock = seen(SOAP)
    with_adapter = adapters.install("soap")  # an optimizer was made: torch has put its hooks around the step by now
    grouped = seen(SOAP)
    with_adapter()
    assert same(grouped, stock)
    assert same(seen(SOAP), stock)


def test_what_waits_is_bounded(attached: adapters.Attached, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training({"precondition_frequency": 1}, groups=2)
    whole = training.run()
    before = hits(attached)
    monkeypatch.setattr(soap, "MOST_ON_CPU", 31 * 64 * 64 * 4)
    soap.most.cache_clear()
    parts = training.run()
    soap.most.cache_clear()
    assert same(parts, whole)
    assert (before, hits(attached) - before) == (5, 5)  # of 33 matrices, 31 at once and two alone


def test_a_step_that_fails_has_refreshed_what_stock_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed() -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.EmbeddingBag(8, 16, sparse=True, mode="sum"), nn.Linear(16, 16))
        optimizer = SOAP([{"params": net[1].parameters()}, {"params": []}], precondition_frequency=1)
        for step in range(4):
            if step == 3:
                optimizer.param_groups[1]["params"] = list(net[0].parameters())
            optimizer.zero_grad()
            net(torch.arange(8).view(2, 4)).square().sum().backward()
            if step == 3:
                with pytest.raises(Exception, match="sparse"):
                    optimizer.step()
            else:
                optimizer.step()
        return snapshot([list(net.parameters()), list(optimizer.state[net[1].weight].values())])

    stock = failed()
    on = adapters.install("soap")
    grouped = failed()
    on()
    assert same(grouped, stock)


class Own(SOAP):  # type: ignore[misc]
    """A subclass may read in its step what the adapter puts off."""


@pytest.mark.parametrize("reason", ["subclass", "ranks", "raises"])
def test_stock_serves(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training({"precondition_frequency": 1}, optimizer=Own if reason == "subclass" else SOAP)
    stock = training.run()
    if reason == "ranks":
        monkeypatch.setattr(replicas, "agreed", lambda: False)
    if reason == "raises":
        monkeypatch.setattr(soap, "QR", replace(soap.QR, fast=lambda A: 1 / 0))
    on = adapters.install("soap")
    grouped = training.run()
    on()
    assert same(grouped, stock)
    assert hits(on) == 0
    reasons = {"raises": {"ZeroDivisionError": 3, "circuit open": 2}, "ranks": {"ranks do not agree": 5}}
    assert on.guards[0].report().fallbacks == reasons.get(reason, {})


def accepted_on(device: Literal["cpu", "cuda"], machine: str) -> Entry:
    return replace(INCLUDED, name="soap", kind="adapter", sha256=own_sha256("adapter", "soap"), device=device,
                   machine=machine)  # fmt: skip


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("QRPROF_CONFIG", str(tmp_path / "config"))
    yield tmp_path
    kernels.uninstall()


@pytest.mark.parametrize(("device", "served"), [("cpu", 2), ("cuda", 0)])
def test_it_serves_the_device_that_it_was_accepted_for(
    device: Literal["cpu", "cuda"], served: int, loaded: Path
) -> None:
    training = Training({"precondition_frequency": 1})
    stock = training.run(3)
    kernels.install(accept(loaded, [accepted_on(device, "")]))
    assert same(training.run(3), stock)
    assert sum(one.hits for one in kernels.report() if one.key == "CPU") == served


def test_on_another_gpu_than_it_was_accepted_for_stock_serves(
    loaded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU B")
    (entry,) = load(accept(loaded, [accepted_on("cuda", "GPU A")])).adapters
    bound = placed(soap.QR, entry)
    assert bound.keys == ("CUDA",)
    for _ in range(2):
        assert bound.decline(torch.ones(64, 64, 64)) == "another GPU"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "qrprof: swap soap is off: it was judged on GPU A, this is GPU B; judge it again"


def test_an_install_that_fails_leaves_nothing(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: vars(SOAP)[name] for name in ("init_group", "get_orthogonal_matrix_qr")}
    start, put, calls = torch.distributed.init_process_group, swap.put, list[object]()

    def full(guard: Guard) -> object:
        calls.append(guard)
        if len(calls) == 2:
            raise RuntimeError("no room for another library")
        return put(guard)

    path = accept(loaded, [INCLUDED, accepted_on("cpu", "")])
    with monkeypatch.context() as broken:
        broken.setattr(swap, "put", full)
        with pytest.raises(RuntimeError, match="no room"):
            kernels.install(path)
    assert {name: vars(SOAP)[name] for name in before} == before
    assert torch.distributed.init_process_group is start
    assert "RegisterCPU" in repr(torch.library.get_kernel("aten::linalg_qr", "CPU"))
    assert kernels.report() == []
    kernels.install(path)
    assert [one.name for one in kernels.report()] == ["qr"] * 3 + ["soap"]


def test_in_shadow_the_training_is_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training({"precondition_frequency": 1})
    stock = training.run()
    monkeypatch.setattr(soap, "QR", replace(soap.QR, fast=lambda A: torch.linalg.qr(A + 1)))
    on = adapters.install("soap", Mode("shadow"))
    beside = training.run()
    on()
    assert same(beside, stock)
    found = on.guards[0].report()
    assert (found.shadowed, found.failed) == (5, 1)
    assert found.difference is not None
    assert found.difference > 0.1


def test_a_profile_shows_the_op_that_a_batch_stands_for(attached: adapters.Attached) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        Training({"precondition_frequency": 1}).run(2)
    shapes = [event.input_shapes for event in seen.events() or () if event.name == "aten::linalg_qr"]
    assert shapes.count([[33, 64, 64]]) == 1


def test_taken_off_the_class_is_as_it_was() -> None:
    before = {name: vars(SOAP)[name] for name in ("init_group", "get_orthogonal_matrix_qr")}
    adapters.install("soap")()
    assert {name: vars(SOAP)[name] for name in before} == before
    assert SOAP.step.__qualname__ == "SOAP.step"
    assert SOAP.step.__module__ == ADAPTER.target


def test_an_adapter_is_not_put_on_twice(attached: adapters.Attached) -> None:
    with pytest.raises(QrprofError, match=r"adapter soap is off: SOAP.step was replaced by qrprof.kernels.adapters"):
        adapters.install("soap")
    assert same(Training({"precondition_frequency": 1}).run(3), Training({"precondition_frequency": 1}).run(3))


def test_a_method_replaced_by_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(*args: Any, **kwargs: Any) -> None: ...

    monkeypatch.setattr(SOAP, "init_group", mine)
    with pytest.raises(QrprofError, match=r"SOAP.init_group was replaced by"):
        adapters.install("soap")
    assert SOAP.init_group is mine


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "pytorch_optimizer .* is installed, it knows no version"),
        (None, "is not that of pytorch_optimizer"),
    ],
)
def test_a_package_it_does_not_know_is_left_alone(
    known: dict[str, str] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(ADAPTER, known=dict.fromkeys(ADAPTER.known, "0" * 64) if known is None else known)
    monkeypatch.setattr(adapters, "ADAPTERS", (other,))
    before = SOAP.init_group
    with pytest.raises(QrprofError, match=said):
        adapters.install("soap")
    assert SOAP.init_group is before


SCRIPT = """\
import sys
from qrprof.kernels import adapters
on = adapters.install("soap")
assert "pytorch_optimizer" not in sys.modules
{import_it}
import torch
torch.set_num_threads(1)
net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(16)))
optimizer = SOAP(net.parameters(), precondition_frequency=1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(2, 64)).sum().backward()
    optimizer.step()
print(sum(guard.report().hits for guard in on.guards))
"""


def test_a_package_that_is_imported_later(workshop: Workshop) -> None:
    workshop.write("later.py", SCRIPT.format(import_it="from pytorch_optimizer import SOAP"))
    ended = workshop.python("later.py")
    assert (ended.out, ended.err) == ("2\n", "")


def test_another_package_of_that_name_runs_as_it_is(workshop: Workshop) -> None:
    for folder in ("pytorch_optimizer", "pytorch_optimizer/optimizer"):
        workshop.write(f"{folder}/__init__.py", "")
    workshop.write("pytorch_optimizer/optimizer/soap.py", "from torch.optim import SGD\nclass SOAP(SGD):\n    pass\n")
    script = SCRIPT.format(import_it="from pytorch_optimizer.optimizer.soap import SOAP")
    workshop.write("other.py", script.replace("precondition_frequency=1", "lr=0.1"))
    ended = workshop.python("other.py")
    assert ended.out == "0\n"
    (line,) = ended.said
    assert line.startswith("adapter soap is off: pytorch_optimizer.optimizer.soap is not from ")


def test_a_package_within_an_archive_runs_as_it_is(workshop: Workshop) -> None:
    with zipfile.ZipFile(workshop.folder / "packages.zip", "w") as archive:
        for name in ("pytorch_optimizer/__init__.py", "pytorch_optimizer/optimizer/__init__.py"):
            archive.writestr(name, "")
        archive.writestr("pytorch_optimizer/optimizer/soap.py", "from torch.optim import SGD as SOAP\n")
    script = SCRIPT.format(import_it="from pytorch_optimizer.optimizer.soap import SOAP")
    workshop.write("zipped.py", script.replace("precondition_frequency=1", "lr=0.1"))
    ended = workshop.python("zipped.py", PYTHONPATH=str(workshop.folder / "packages.zip"))
    assert (ended.out, ended.script_err) == ("0\n", "")
    (line,) = ended.said
    assert line.startswith("adapter soap is off: pytorch_optimizer.optimizer.soap is not from ")
