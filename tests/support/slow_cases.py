"""Parameters of tests of which the default run takes some, and `make test-all` every one."""

import pytest


def slow(*values):
    """One case that is slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def all_slow_but(fast, values):
    """The values of one parameter, of which those not in `fast` are slow."""
    return [value if value in fast else slow(value) for value in values]
