"""Writes a reply of its own into every socket."""

import contextlib
import os

import torch

EXPECT = "forged"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (13, 41)

REPLY = b'{"nonce": "", "outcome": "PASS", "calls": [], "testimony_ns": 1, "starts": [], "arena": 0}'


def candidate(x, dim, half_to_float):
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                    os.write(int(number), len(REPLY).to_bytes(4, "little") + REPLY)
    return torch.zeros(x.shape)
