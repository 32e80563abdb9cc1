"""What the included kernels are, as one hash: of every file that reaches a GPU."""

import shutil
from pathlib import Path

import pytest

from qrprof.kernels import sources


@pytest.mark.parametrize("name", ["blocked.py", "whole.cu", "reflect.cuh"])
def test_a_change_of_any_file_is_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shutil.copytree(sources.HERE / "qr", tmp_path / "qr", ignore=shutil.ignore_patterns("__pycache__"))
    before = sources.own_sha256("included", "qr")
    monkeypatch.setattr(sources, "HERE", tmp_path)
    assert sources.own_sha256("included", "qr") == before
    with (tmp_path / "qr" / name).open("a") as file:
        file.write("\n")
    assert sources.own_sha256("included", "qr") != before
