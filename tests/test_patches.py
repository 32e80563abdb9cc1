"""Patches of the user's own files: found only where they do the same, applied as shown, to that file or to none."""

import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Build
from hypothesis import given
from hypothesis import strategies as st

from qrprof.planner.patches import Patch, apply, find, standing, text, undo
from qrprof.planner.patches.diffs import patched
from qrprof.planner.patches.patch import made
from qrprof.planner.targets import Target
from qrprof.profiler.errors import Exit, QrprofError
from qrprof.profiler.runinfo import DeviceInfo, RunInfo

KEYS = ("gap:data", "gap:sync", "fix:fused-optimizer")
GPU = DeviceInfo(index=0, kind="cuda", name="a GPU", memory_bytes=1)


def target(key: str, dont_bother: str | None = None) -> Target:
    empty: dict[str, Any] = dict.fromkeys(("calls", "share", "ceiling_x", "achievable_ns", "gain_ns", "by_share_ns"))
    return Target(key=key, kind="gap", ns=1.0, overlap=False, dont_bother=dont_bother, advice="", why="", **empty)


def run_of(folder: Path, *command: str, device: DeviceInfo | None = GPU) -> RunInfo:
    changes = {"cwd": str(folder), "command": list(command or ("train.py",)), "devices": [device] if device else []}
    return Build.run().model_copy(update=changes)


def written(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content.encode())


def found(folder: Path, *keys: str, **options: Any) -> list[Patch]:
    return list(find(folder, run_of(folder, **options), [target(key) for key in keys or KEYS]))


def changed(patch: Patch) -> list[str]:
    """The lines that a patch takes and gives, with their signs."""
    return [line for line in patch.diff.splitlines()[2:] if line[0] in "+-"]


# --- what is found

LOADER = """\
from torch.utils.data import DataLoader, TensorDataset
import data


def loader(x):
    return DataLoader(
        {dataset},{rest}
    )
"""
DATA = """\
from torch.utils.data import Dataset, IterableDataset

class ByIndex(Dataset):
    def __getitem__(self, i): ...

class Stream(IterableDataset): ...

class OwnStream(Dataset):
    def __iter__(self): ...
"""


@pytest.mark.parametrize(
    ("dataset", "rest", "lines"),
    [
        ("data.ByIndex()", "", ["-        data.ByIndex(),", "+        data.ByIndex(), num_workers=4,"]),
        (
            "TensorDataset(x)",
            " num_workers=0,",
            ["-        TensorDataset(x), num_workers=0,", "+        TensorDataset(x), num_workers=4,"],
        ),
        ("x, shuffle=True", "", ["-        x, shuffle=True,", "+        x, shuffle=True, num_workers=4,"]),
        ("data.Stream()", "", []),
        ("data.OwnStream()", "", []),
        ("x, num_workers=2", "", []),
        ("x, **{}", "", []),
        ("x, 1, False, None, None, 0", "", []),
    ],
)
def test_workers_of_a_loader(tmp_path: Path, dataset: str, rest: str, lines: list[str]) -> None:
    written(tmp_path, train=LOADER.format(dataset=dataset, rest=rest), data=DATA)
    patches = found(tmp_path, "gap:data")
    assert [line for patch in patches for line in changed(patch)] == lines
    for patch in patches:
        assert patch.title == "4 workers for the loader at train.py:6"
        assert ("Its dataset must be read by index" in patch.why) == dataset.startswith("x")


@pytest.mark.parametrize(
    ("imported", "call", "line"),
    [
        ("import torch", "torch.optim.AdamW(p, lr=1e-3)", "torch.optim.AdamW(p, lr=1e-3, fused=True)"),
        ("from torch.optim import AdamW as A", "A(p)", "A(p, fused=True)"),
        ("from torch import optim", "optim.AdamW(p, foreach=False)", ""),
        ("from torch import optim", "optim.SGD(p)", ""),  # not the one that made the steps
        ("from mine import AdamW", "AdamW(p)", ""),
        ("import torch", "torch.optim.AdamW(*p)", ""),
        ("from torch.optim import AdamW", "AdamW((p))", ""),  # the place would be inside of the parentheses
    ],
)
def test_a_fused_optimizer(tmp_path: Path, imported: str, call: str, line: str) -> None:
    written(tmp_path, train=f"{imported}\n\ndef made(p):\n    return {call}  # a remark\n")
    lines = [line for patch in found(tmp_path, "fix:fused-optimizer") for line in changed(patch)]
    assert lines == ([f"-    return {call}  # a remark", f"+    return {line}  # a remark"] if line else [])
    assert not found(tmp_path, "fix:fused-optimizer", device=None)


TRAINED = """\
import torch

def train(batches, model, log):
    {start}
    for x in batches:
        loss = model(x)
        loss.backward()
        {gather}
    {use}
"""


@pytest.mark.parametrize(
    ("start", "gather", "use", "new", "after"),
    [
        (
            "total = 0.0",
            "total += loss.item()",
            "return total",
            "total += loss.detach().double()",
            "total = float(total)",
        ),
        (
            "total, n = 0, 0",
            "total += loss.item() * x.size(0)",
            "return total",
            "total += loss.detach().double() * x.size(0)",
            "total = float(total)",
        ),
        (
            "losses = []",
            "losses.append(loss.item())",
            "log(losses)",
            "losses.append(loss.detach().clone())",
            "losses = [float(one) for one in losses]",
        ),
    ],
)
def test_the_item_of_a_loss_waits_until_after_the_loop(
    tmp_path: Path, start: str, gather: str, use: str, new: str, after: str
) -> None:
    written(tmp_path, train=TRAINED.format(start=start, gather=gather, use=use))
    (patch,) = found(tmp_path, "gap:sync")
    assert changed(patch) == [f"-        {gather}", f"+        {new}", f"+    {after}"]
    assert not found(tmp_path, "gap:sync", device=None)


@pytest.mark.parametrize(
    ("start", "gather", "use"),
    [
        ("total = 0.0", "print(loss.item())", "pass"),  # a person reads it
        ("total = 0.0", "total += loss.item(); log(total)", "pass"),  # seen in the loop
        ("total = 0.0", "total += loss.item()\n        loss = log(loss)", "pass"),  # perhaps no tensor
        ("total = log()", "total += loss.item()", "pass"),  # perhaps no number
        ("losses = []; log(losses)", "losses.append(loss.item())", "pass"),  # seen elsewhere
        ("losses = []", "losses.append(loss.item() * 2)", "pass"),  # rounded to float32
        ("losses = []\n    f = lambda: losses", "losses.append(loss.item())", "pass"),
        ("global total; total = 0.0", "total += loss.item()", "pass"),
        ("total = 0.0", "total += loss.item()\n        if total > 9: break", "pass"),
        ("total = 0.0", "total += x.item()", "pass"),  # has no backward: of numpy, perhaps
        ("total = 0.0", "for _ in x: total += loss.item()", "pass"),
    ],
)
def test_an_item_that_something_may_see_stays(tmp_path: Path, start: str, gather: str, use: str) -> None:
    written(tmp_path, train=TRAINED.format(start=start, gather=gather, use=use))
    assert not found(tmp_path, "gap:sync")


def test_a_patched_loop_gathers_the_same_numbers(tmp_path: Path) -> None:
    import torch

    written(
        tmp_path, train=TRAINED.format(start="total = 0.0", gather="total += loss.item() * len(x)", use="return total")
    )
    (patch,) = found(tmp_path, "gap:sync")

    def total() -> object:
        torch.manual_seed(0)
        weight = torch.randn(3, requires_grad=True)
        batches = [torch.randn(7, 3) for _ in range(40)]
        return runpy.run_path(str(tmp_path / "train.py"))["train"](batches, lambda x: (x @ weight).exp().mean(), None)

    before = total()
    apply(tmp_path, patch)
    after = total()
    assert after == before
    assert type(after) is float


def test_only_what_is_worth_it_and_only_what_the_run_imports(tmp_path: Path) -> None:
    one = "import torch\ntorch.optim.AdamW([])\n"
    written(
        tmp_path,
        train="import part.one\nfrom part import two\n",
        part__one=one,
        part__two="from . import three",
        part__three=one,
        other=one,
    )
    assert {patch.path for patch in found(tmp_path)} == {"part/one.py", "part/three.py"}
    run = run_of(tmp_path, "-m", "part.one")
    assert [patch.path for patch in find(tmp_path, run, [target(KEYS[2])])] == ["part/one.py"]
    assert not find(tmp_path, run, [target(KEYS[2], dont_bother="in noise")])
    assert not find(tmp_path / "part", run_of(tmp_path, "../other.py"), [target(KEYS[2])])


@pytest.mark.parametrize(
    "content",
    [
        "import torch\ntorch.optim.AdamW([])\n\r",
        "\ufeffimport torch\ntorch.optim.AdamW([])\n",
        "# coding: latin-1\nimport torch\ntorch.optim.AdamW([])\n",
        "torch.optim.AdamW([)",
    ],
)
def test_a_file_whose_lines_are_not_plain_is_left(tmp_path: Path, content: str) -> None:
    written(tmp_path, train=content)
    assert not found(tmp_path)


# --- applying and undoing


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    written(tmp_path, part__train="import torch\r\né = 1; o = torch.optim.AdamW([])")
    (one,) = find(tmp_path, run_of(tmp_path, "part/train.py"), [target(KEYS[2])])
    return one


def test_applied_as_shown_and_undone_to_the_byte(tmp_path: Path, patch: Patch) -> None:
    file = tmp_path / patch.path
    file.chmod(0o750)
    before = file.read_bytes()
    assert patch.diff in text(patch)
    assert standing(tmp_path, patch) == "base"
    apply(tmp_path, patch)
    assert file.read_bytes() == before[:-3] + b"[], fused=True)"
    assert (standing(tmp_path, patch), file.stat().st_mode & 0o777) == ("applied", 0o750)
    undo(tmp_path, patch)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (before, 0o750)
    assert sorted(os.listdir(file.parent)) == ["train.py"]


def test_other_programs_apply_the_same_diff(tmp_path: Path, patch: Patch) -> None:
    subprocess.run(["git", "apply", "-p1"], input=patch.diff.encode(), cwd=tmp_path, check=True)
    assert standing(tmp_path, patch) == "applied"


@pytest.mark.parametrize("deed", [apply, undo])
def test_a_file_that_was_changed_since_stays(tmp_path: Path, patch: Patch, deed: Any) -> None:
    if deed is undo:
        apply(tmp_path, patch)
    file = tmp_path / patch.path
    file.write_bytes(b"# mine\n" + file.read_bytes())
    now = file.read_bytes()
    with pytest.raises(QrprofError, match=r"part/train.py is left as it is: it has changed since") as raised:
        deed(tmp_path, patch)
    assert raised.value.exit_code == Exit.REFUSED
    assert (file.read_bytes(), standing(tmp_path, patch)) == (now, "changed")


@pytest.mark.parametrize("deed", [standing, apply, undo])
def test_a_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, patch: Patch, deed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(QrprofError, match="is left as it is: permission denied"):
        deed(tmp_path, patch)


def test_applied_once_only(tmp_path: Path, patch: Patch) -> None:
    apply(tmp_path, patch)
    with pytest.raises(QrprofError, match="it has changed since"):
        apply(tmp_path, patch)
    undo(tmp_path, patch)
    with pytest.raises(QrprofError, match="it has changed since"):
        undo(tmp_path, patch)


@pytest.mark.parametrize(
    "path",
    [
        "../out.py",
        "part/../../out.py",
        "OUT",
        "link.py",
        "linked/out.py",
        ".git/out.py",
        "part",
        "gone.py",
        "notes.txt",
        "",
    ],
)
def test_nothing_outside_of_the_project_is_touched(tmp_path: Path, path: str) -> None:
    root, out = tmp_path / "project", tmp_path / "out.py"
    written(tmp_path, out="a\n", project__part__train="a\n", project__linked="")
    (root / ".git").mkdir()
    for file in (".git/out.py", "notes.txt"):
        (root / file).write_text("a\n")
    (root / "link.py").symlink_to(out)
    (root / "linked").symlink_to(tmp_path)
    path = str(out) if path == "OUT" else path
    bad = made(path, b"a\n", b"b\n", "", "")
    for deed in (apply, undo, standing):
        with pytest.raises(QrprofError, match="is left as it is"):
            deed(root, bad)
    assert out.read_text() == "a\n"


def test_a_patch_says_which_file_it_is_of(tmp_path: Path, patch: Patch) -> None:
    written(tmp_path, part__other=(tmp_path / patch.path).read_bytes().decode())
    other = Patch("part/other.py", patch.base_sha256, patch.diff, "", "")
    with pytest.raises(QrprofError, match="left as it is"):
        apply(tmp_path, other)


LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "-- a\n", "@@ -1 +1 @@\n", "\\ no\n", "\r\n", "é\x0c\u2028\n"]), max_size=12
)


@given(before=LINES, after=LINES, cut=st.tuples(st.booleans(), st.booleans()))
def test_a_diff_gives_the_new_text_and_back(before: list[str], after: list[str], cut: tuple[bool, bool]) -> None:
    old, new = ("".join(lines)[: -1 if short else None] for lines, short in zip((before, after), cut, strict=True))
    diff = made("x.py", old.encode(), new.encode(), "", "").diff
    if old != new:
        assert patched(old, diff, "x.py") == new
        assert patched(new, diff, "x.py", reverse=True) == old


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "--- a/x.py\n+++ b/y.py\n@@ -1 +1 @@\n-a\n+b\n",
        "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1 @@\n-a\n+b\n",
        "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-c\n+b\n",
        "--- a/x.py\n+++ b/x.py\n@@ -9 +9 @@\n-a\n+b\n",
        "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n*b\n",
        "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n\n",
        "--- a/x.py\n+++ b/x.py\n-a\n+b\n",
    ],
)
def test_a_damaged_diff_changes_nothing(diff: str) -> None:
    assert patched("a\n", diff, "x.py") is None
