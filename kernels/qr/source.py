"""A CUDA C++ file of this folder as one text, which is what a compiler at run time takes. Without torch."""

import re
from importlib.resources import files
from typing import Final

INCLUDED: Final = re.compile(r'#include "(\w+\.cuh)"\n')


def source(name: str) -> str:
    """A .cu file with the .cuh files that it includes, which include none, in their places."""
    folder = files("qrprof.kernels.qr")

    def text(of: str) -> str:
        return folder.joinpath(of).read_text(encoding="utf-8")

    return INCLUDED.sub(lambda line: text(line[1]), text(name))
