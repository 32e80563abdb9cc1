"""The Triton kernels without a GPU: their tests run in Triton's interpreter, in a process of their own."""

import in_interpreter
import pytest

pytest.importorskip("triton")


@pytest.mark.parametrize("part", ["not orgqr and not ormqr", "orgqr or ormqr"])
def test_in_the_interpreter(part: str) -> None:
    in_interpreter.passes("triton_interpreted.py", part)
