"""EDN values that Python has no type for, and the text of any value.

What has a Python type is that type: nil is None, integers are int, ratios Fraction, `1.5M` Decimal, strings str,
vectors and lists tuple (EDN calls them equal), sets frozenset, maps `EdnMap`, which is a dict that can be a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword; `name` is without its colon."""

    name: str

    def __repr__(self) -> str:
        """Returns the text in EDN, for sentences."""
        return to_edn(self)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol."""

    name: str

    def __repr__(self) -> str:
        """Returns the text in EDN, for sentences."""
        return to_edn(self)


@dataclass(frozen=True, slots=True)
class Character:
    """A character."""

    text: str

    def __repr__(self) -> str:
        """Returns the text in EDN, for sentences."""
        return to_edn(self)


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    r"""A value with a tag: `#inst "1985"` has the tag "inst".

    Two are equal if their texts are: Python considers 1, 1.0 and true equal, also inside of other values.
    """

    tag: str
    value: Any

    def __eq__(self, other: object) -> bool:
        """Returns whether the other one has the same tag and an equal value."""
        return isinstance(other, Tagged) and to_edn(self) == to_edn(other)

    def __hash__(self) -> int:
        """Returns the hash of the text."""
        return hash(to_edn(self))

    def __repr__(self) -> str:
        """Returns the text in EDN, for sentences."""
        return to_edn(self)


class EdnMap(dict[Any, Any]):
    """A map. It can be a key or an element of a set, so do not change it."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        """Returns a hash that does not depend on the order of keys."""
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        """Returns the text in EDN, for sentences."""
        return to_edn(self)


NAMED_CHARACTERS = {
    "newline": "\n",
    "return": "\r",
    "space": " ",
    "tab": "\t",
    "formfeed": "\f",
    "backspace": "\b",
}
ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}

_NAME_OF_CHARACTER = {text: name for name, text in NAMED_CHARACTERS.items()}
_ESCAPE_OF = {text: f"\\{letter}" for letter, text in ESCAPES.items()}
_SYMBOLIC = {"inf": "##Inf", "-inf": "##-Inf", "nan": "##NaN"}
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds nothing."""
DIGITS_SHOWN_MAX = 30
"""Digits before the point of a decimal number that is written without an exponent."""


def to_edn(value: Any) -> str:
    """Returns the text of a value; equal values have equal texts.

    Args:
        value: Something that the reader returns; a dict and a list count as a map and a vector.

    Raises:
        TypeError: It is of another type.
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_ESCAPE_OF.get(letter, letter) for letter in value) + '"'
    if isinstance(value, Keyword):
        return f":{value.name}"
    return _rare_text(value)


def _rare_text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + " ".join(map(to_edn, value)) + "]"
    if isinstance(value, Mapping):
        pairs = sorted(f"{to_edn(key)} {to_edn(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, frozenset | set):
        return "#{" + " ".join(sorted(map(to_edn, value))) + "}"
    if isinstance(value, float):
        # The sum makes 0.0 of -0.0, which is equal.
        text = repr(value + 0.0)
        return _SYMBOLIC.get(text, text)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Character):
        return "\\" + _NAME_OF_CHARACTER.get(value.text, value.text)
    if isinstance(value, Tagged):
        return f"#{value.tag} {to_edn(value.value)}"
    raise TypeError(f"{type(value).__name__} is not a type of EDN")


def _decimal_text(value: Decimal) -> str:
    """Returns the text of a decimal number without zeros at its end: 1.0M and 1.00M are equal, as in Clojure."""
    if not value:
        return "0M"  # -0M, too
    shortest = _EXACT.normalize(value)
    # The zeros of a large number could fill the memory.
    return f"{shortest:f}M" if 0 < shortest.adjusted() < DIGITS_SHOWN_MAX else f"{shortest}M"
