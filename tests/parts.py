"""Tests that judge many random cases come in parts: a few run each time, all in the long suite."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest


def parts(numbers: Iterable[int], *, quick: int) -> list[Any]:
    """Returns parameters of a test, of which only the first ones run with `make test`.

    Args:
        numbers: What the test is called with.
        quick: How many of them run each time.
    """
    rest = iter(numbers)
    return [
        *islice(rest, quick),
        *(pytest.param(number, marks=pytest.mark.long) for number in rest),
    ]
