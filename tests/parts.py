"""Tests that judge many random cases come in parts: a few run each time, all in the long suite."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pytest


def shares(values: Sequence[Any], *, quick_of: int) -> list[Any]:
    """Returns parameters of a test, of which one of every few runs with `make test`.

    Args:
        values: What the test is called with; neighbours are alike.
        quick_of: Of so many neighbours one runs each time.
    """
    return [
        pytest.param(value, marks=() if not number % quick_of else pytest.mark.long)
        for number, value in enumerate(values)
    ]


def parts(values: Iterable[Any], *, quick: int) -> list[Any]:
    """Returns parameters of a test, of which only the first ones run with `make test`.

    Args:
        values: What the test is called with.
        quick: How many of them run each time.
    """
    rest = iter(values)
    return [
        *islice(rest, quick),
        *(pytest.param(value, marks=pytest.mark.long) for value in rest),
    ]
