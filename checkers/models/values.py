"""Values of histories as hashable values that are equal only if the original values are.

Readers deliver what a file contains: lists, maps, booleans. A state has to be hashable, and Python considers True,
1 and 1.0 equal, which would hide a read of `true` after a write of `1`. As in Clojure, an integer, a decimal
number and a floating-point number are never equal.
"""

import math
from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any


class Special(Enum):
    """Values that Python would compare in a way that is wrong here."""

    TRUE = "true"
    FALSE = "false"
    NAN = "nan"

    def __repr__(self) -> str:
        """Returns the value as a reader would write it."""
        return self.value

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Inexact:
    """A floating-point or decimal number; different from an integer, and from a number of the other type."""

    type: str
    number: float | Decimal

    def __repr__(self) -> str:
        """Returns the number as a reader would write it."""
        return repr(self.number) if isinstance(self.number, float) else f"{self.number}M"


@dataclass(frozen=True, slots=True)
class FrozenMap:
    """A map; different from a set of pairs."""

    items: frozenset[tuple[Hashable, Hashable]]


def frozen(value: Any) -> Hashable:
    """Returns a hashable equivalent: lists and tuples become tuples, sets and maps immutable.

    Raises:
        TypeError: The value contains something that cannot be hashed.
    """
    if value is True:
        return Special.TRUE
    if value is False:
        return Special.FALSE
    if isinstance(value, float) and math.isnan(value):
        return Special.NAN
    if isinstance(value, float | Decimal):
        return Inexact(type(value).__name__, value)
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, AbstractSet):
        return frozenset(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return FrozenMap(frozenset((frozen(key), frozen(item)) for key, item in value.items()))
    hash(value)
    hashable: Hashable = value
    return hashable


def text(value: Hashable) -> str:
    """Returns a frozen value as a reader would write it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(text(item) for item in value) + "]"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(text(item) for item in value)) + "}"
    if isinstance(value, FrozenMap):
        pairs = sorted(f"{text(key)}: {text(item)}" for key, item in value.items)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Fraction):
        return str(value)
    return "nil" if value is None else repr(value)
