"""Multiplies the leading bfloat16 parts and one correction: about sixteen bits."""

EXPECT = "wrong"
TASK = "mm"
DEVICE = "cpu"
ROWS = (21,)


def candidate(a, b):
    high, rest = b.bfloat16().float(), b - b.bfloat16().float()
    return a.bfloat16().float() @ high + a.bfloat16().float() @ rest
