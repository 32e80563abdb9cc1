"""Imports a package that is not there."""

import no_such_package_of_mine

EXPECT = "build-error"
TASK = "softmax"
DEVICE = "cpu"
ROWS = (42,)


def candidate(x, dim, half_to_float):
    return no_such_package_of_mine.softmax(x, dim)
