"""Writes over the C function behind Python's clock, so that it stands still for everybody."""

import sys
import time

EXPECT = "clock-mismatch"
TASK = "long_softmax"
DEVICE = "cpu"
ROWS = (15, 31)


def softmax(x, dim):
    x = x.contiguous()
    weights = (x - x.amax(dim, keepdim=True)).exp_()
    return weights / weights.sum(dim, keepdim=True)


ctypes = sys.modules["ctypes"]


def implementation(function):
    """The place of the C function that a built-in one calls: PyCFunctionObject.m_ml->ml_meth."""
    definition = ctypes.c_void_p.from_address(id(function) + 2 * ctypes.sizeof(ctypes.c_void_p)).value
    return ctypes.c_void_p.from_address(definition + ctypes.sizeof(ctypes.c_void_p))


implementation(time.perf_counter_ns).value = implementation(sys.getrecursionlimit).value


def candidate(x, dim, half_to_float):
    return softmax(x, dim)
