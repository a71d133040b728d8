"""A streaming reader of EDN, the notation in which Jepsen stores histories.

A history is one form per line, or one vector or list of forms, sometimes on a single line of gigabytes. The reader
takes text in pieces and returns one form at a time. Its memory is that of one form, and a form has limits.

Own code: `edn_format`, the reader on PyPI, needs the whole text and reads about 400 operations per second; this
one reads more than ten thousand.

Left out: metadata, `#::{...}`, and everything else that EDN does not have. Two keys or elements that Python
considers equal (1, 1.0 and true) are refused as duplicates.

Source:
    The EDN format, github.com/edn-format/edn; extended by what Clojure prints: ratios, `##Inf`, namespaced maps
    (`#:a{:b 1}` is `{:a/b 1}`), and objects (`#object[java.lang.Object 0x1b2c "..."]`) with hexadecimal numbers.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from typing import Any

from harness.errors import HistoryError
from harness.history.foreign.edn_values import (
    ESCAPES,
    NAMED_CHARACTERS,
    Character,
    EdnMap,
    Keyword,
    Symbol,
    Tagged,
    to_edn,
)

NESTING_MAX = 64
"""Levels of collections and tags in one form. Histories have six; hashing nested values recurses in C."""
FORM_CHARACTERS_MAX = 16 * 2**20
"""Characters of one form. A final read of a set of a million elements has about eight million."""
DIGITS_MAX = 1000
"""Digits of one number; Python needs quadratic time for long ones and refuses 4300."""
PIECE_CHARACTERS = 2**16
"""Characters that are read at once."""

_ATOMS_KEPT_MAX = 4096

# An atom ends where its characters end. A token that touches the end of the buffer may continue in the next piece.
_TOKEN = re.compile(
    r"""[\s,]*+(?:;[^\n]*+\n[\s,]*+)*+(?:
    (?P<atom>[^\s,;"()\[\]{}\\#][^\s,;"()\[\]{}\\]*+)
    |(?P<open>[\[({]|\#\{|\#:[^\s,;"()\[\]{}\\:]++[\s,]*+\{)
    |(?P<close>[\])}])
    |"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"
    |(?P<discard>\#_)
    |\#(?P<tag>[A-Za-z][^\s,;"()\[\]{}\\]*+)
    |(?P<symbolic>\#\#[A-Za-z-]+)
    |\\(?P<character>[^\s][^\s,;"()\[\]{}\\]*+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ATOM, _CLOSE = _TOKEN.groupindex["atom"], _TOKEN.groupindex["close"]
_OPENERS = frozenset(_TOKEN.groupindex[name] for name in ("open", "tag", "discard"))
_BLANK = re.compile(r"[\s,]*+(?:;[^\n]*+\n[\s,]*+)*+(?:;[^\n]*+\Z)?")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d*)N?", re.ASCII)
_HEXADECIMAL = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]+)N?", re.ASCII)
_REAL = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?M?", re.ASCII)
_RATIO = re.compile(r"[+-]?(?:0|[1-9]\d*)/[1-9]\d*", re.ASCII)
_SYMBOL = re.compile(r"(?:[^\W\d]|[.*+!\-_?$%&=<>|'/])[\w.*+!\-_?$%&=<>|:#'/]*")
_KEYWORD_NAME = re.compile(r"[\w.*+!\-_?$%&=<>|#'/][\w.*+!\-_?$%&=<>|:#'/]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-3]?[0-7]{1,2}|.)", re.DOTALL)
_SYMBOLIC = {"##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}
_WORDS: dict[str, Any] = {"nil": None, "true": True, "false": False}
_CLOSE_OF = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_SURROGATES = re.compile("[\ud800-\udfff]")


class EdnError(HistoryError):
    """Text is not EDN, or beyond the limits of the reader.

    Attributes:
        line, column: Where, counted from 1.
    """

    def __init__(self, origin: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"{origin}, line {line}, column {column}: {problem}")
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Form:
    """One form and the line on which it begins, counted from 1."""

    line: int
    value: Any


def read_forms(pieces: Iterable[str], *, origin: str, unwrap: bool = False) -> Iterator[Form]:
    """Reads forms from text.

    Args:
        pieces: The text, cut anywhere.
        origin: The name of the file, for errors.
        unwrap: Whether a vector or list at the beginning stands for its elements, which are then returned
            one at a time.

    Raises:
        EdnError: The text is not EDN, or beyond the limits of the reader.
    """
    return _Reader(iter(pieces), origin).forms(unwrap)


def read_one(text: str, *, origin: str = "text", real: Callable[[str], Any] = float) -> Any:
    """Returns the value of a text that is one form.

    Args:
        text: The text.
        origin: Where it is from, for errors.
        real: Returns the number that digits with a fraction or an exponent are, or raises ValueError.

    Raises:
        EdnError: It is not exactly one form.
    """
    forms = list(_Reader(iter([text]), origin, real).forms(False))
    if len(forms) != 1:
        raise EdnError(origin, 1, 1, f"expected one form and found {len(forms)}")
    return forms[0].value


class _Problem(Exception):  # noqa: N818 - becomes an EdnError with its place
    """What is wrong with a token."""


@dataclass(slots=True)
class _Level:
    """An open collection, or a tag or discard, which has no closer and ends after a value. Mutable while open."""

    opener: str
    closer: str
    items: list[Any] = field(default_factory=list)


class _Reader:
    """One pass over the text. Mutable: the buffer holds what was not consumed yet."""

    def __init__(
        self, pieces: Iterator[str], origin: str, real: Callable[[str], Any] = float
    ) -> None:
        self._pieces = pieces
        self._origin = origin
        self._atom = partial(_atom, real=real)
        self._buffer = ""
        self._at = 0
        self._at_end = False
        self._line = 1
        self._line_start = 0
        self._counted = 0
        self._form_start = 0
        self._form_line = 1
        self._atoms: dict[str, Any] = dict(_WORDS)
        self._prefixed: Any = None

    def forms(self, unwrap: bool) -> Iterator[Form]:
        wrapper = ""
        is_first = True
        while (match := self._next_token()) is not None:
            kind = match.lastgroup
            if unwrap and is_first and kind == "open" and match["open"] in "[(":
                wrapper, is_first = match["open"], False
                self._at = match.end()
                continue
            is_first = False
            if wrapper and kind == "close":
                self._require(match, match["close"] == _CLOSE_OF[wrapper], "does not close a list")
                self._at = match.end()
                self._refuse_rest()
                return
            start = match.start(kind or 0)
            self._form_start = start
            self._form_line = line = self._line_at(start)
            is_value, value = self._form(match)
            self._form_start = self._at
            if is_value:
                yield Form(line, value)
        if wrapper:
            raise self._error(
                self._at, f"the text ends before the {_CLOSE_OF[wrapper]!r} of its list"
            )

    def _form(self, match: "re.Match[str]") -> tuple[bool, Any]:
        """Reads one form whose first token is given; returns whether there is a value (false if discarded).

        This is the loop over all tokens of a history, so the frequent cases come first and call little.
        """
        stack: list[_Level] = []
        atoms, next_token = self._atoms, _TOKEN.match
        while True:
            kind, self._at = match.lastindex, match.end()
            if kind == _ATOM:
                text = match[_ATOM]
                value = atoms[text] if text in atoms else self._new_atom(match)
            elif kind == _CLOSE:
                fits = bool(stack) and stack[-1].closer == match[_CLOSE]
                self._require(match, fits, "closes nothing that is open")
                value = self._checked(match, _collection, stack.pop())
            elif kind in _OPENERS:
                self._require(match, len(stack) < NESTING_MAX, "is nested too deeply")
                stack.append(_opened(match))
                match = self._token_inside(stack)
                continue
            else:
                value = self._checked(match, _scalar, match)
            if not stack:
                return True, value
            if stack[-1].closer:
                stack[-1].items.append(value)
            elif not self._end_prefixes(stack, value):
                return False, None
            elif not stack:
                return True, self._prefixed
            match_or_none = next_token(self._buffer, self._at)
            if match_or_none is None or match_or_none.end() == len(self._buffer):
                match_or_none = self._token_inside(stack)
            match = match_or_none

    def _end_prefixes(self, stack: list[_Level], value: Any) -> bool:
        """Ends the tags and discards that wait for a value; returns false if it was discarded at the top."""
        while stack and not stack[-1].closer:
            opener = stack.pop().opener
            if opener == "#_":
                # A tag or another discard before it waits for the next value.
                return bool(stack)
            value = Tagged(opener[1:], value)
        self._prefixed = value
        if stack:
            stack[-1].items.append(value)
        return True

    def _new_atom(self, match: "re.Match[str]") -> Any:
        text = match[_ATOM]
        value = self._checked(match, self._atom, text)
        # Numbers are rarely the same again.
        if len(self._atoms) < _ATOMS_KEPT_MAX and text[-1] not in "0123456789":
            self._atoms[text] = value
        return value

    def _token_inside(self, stack: list[_Level]) -> "re.Match[str]":
        match = self._next_token()
        if match is None:
            ended = self._error(self._at, f"the text ends inside of {stack[-1].opener!r}")
            if ended.line > self._form_line:
                begun = f"the text ends inside of the form that begins on line {self._form_line}"
                raise self._error(self._at, begun)
            raise ended
        return match

    def _checked(self, match: "re.Match[str]", convert: Any, argument: Any) -> Any:
        try:
            return convert(argument)
        except _Problem as problem:
            raise self._error(match.start(match.lastgroup or 0), str(problem)) from None

    def _require(self, match: "re.Match[str]", condition: bool, problem: str) -> None:
        if not condition:
            kind = match.lastgroup or 0
            raise self._error(match.start(kind), f"{_excerpt(match[kind])} {problem}")

    def _next_token(self) -> "re.Match[str] | None":
        """Returns the next token, or None at the end of the text; does not move past it."""
        while True:
            match = _TOKEN.match(self._buffer, self._at)
            if match is not None and (match.end() < len(self._buffer) or self._at_end):
                return match
            if not self._at_end:
                self._refill()
                continue
            self._refuse_half_token()
            return None

    def _refuse_half_token(self) -> None:
        """Raises unless only blanks and comments are left."""
        blank = _BLANK.match(self._buffer, self._at)
        at = blank.end() if blank else self._at
        if at < len(self._buffer):
            raise self._error(at, _bad_token(self._buffer, at))
        self._at = at

    def _refill(self) -> None:
        if len(self._buffer) - self._form_start > FORM_CHARACTERS_MAX:
            megabytes = FORM_CHARACTERS_MAX >> 20
            raise self._error(
                self._form_start, f"a form has more than {megabytes} million characters"
            )
        # Pieces double while one token is incomplete, so that a long one is not scanned again for every piece.
        wanted = max(1, len(self._buffer) - self._at)
        pieces: list[str] = []
        while wanted > 0 and (piece := next(self._pieces, None)) is not None:
            pieces.append(piece)
            wanted -= len(piece)
        self._at_end = wanted > 0
        self._line_at(self._at)
        # What was consumed is dropped; the place of the last line start moves with it and may become negative.
        self._buffer = self._buffer[self._at :] + "".join(pieces)
        self._line_start -= self._at
        self._form_start = min(self._form_start - self._at, 0)
        self._counted = self._at = 0

    def _line_at(self, at: int) -> int:
        """Returns the line of a place at or after the last one that was asked for."""
        newlines = self._buffer.count("\n", self._counted, at)
        if newlines:
            self._line += newlines
            self._line_start = self._buffer.rindex("\n", self._counted, at) + 1
        self._counted = max(self._counted, at)
        return self._line

    def _refuse_rest(self) -> None:
        match = self._next_token()
        if match is not None:
            self._require(match, False, "comes after the end of the list of operations")

    def _error(self, at: int, problem: str) -> EdnError:
        line = self._line_at(max(at, self._counted))
        return EdnError(self._origin, line, max(at - self._line_start, 0) + 1, problem)


def _opened(match: "re.Match[str]") -> _Level:
    opener = match["open"]
    if opener:
        return _Level(opener, _CLOSE_OF.get(opener, "}"))
    return _Level("#_" if match["tag"] is None else f"#{match['tag']}", "")


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _bad_token(buffer: str, at: int) -> str:
    if buffer[at] == '"':
        return "the text ends inside of a string"
    return f"{_excerpt(buffer[at : at + 10])} is not EDN"


def _atom(text: str, real: Callable[[str], Any]) -> Any:
    if text[0] == ":":
        if not _KEYWORD_NAME.fullmatch(text, 1):
            raise _Problem(f"{_excerpt(text)} is not a keyword")
        return Keyword(text[1:])
    if text[0].isdigit() or (text[0] in "+-" and text[1:2].isdigit()):
        return _number(text, real)
    if not _SYMBOL.fullmatch(text):
        raise _Problem(f"{_excerpt(text)} is neither a number nor a symbol")
    return Symbol(text)


def _number(text: str, real: Callable[[str], Any]) -> Any:
    if len(text) > DIGITS_MAX:
        raise _Problem(f"{_excerpt(text)} has more than {DIGITS_MAX} digits")
    if _INTEGER.fullmatch(text):
        return int(text.rstrip("N"))
    if found := _HEXADECIMAL.fullmatch(text):
        return int(found[1] + found[2], 16)
    if _REAL.fullmatch(text):
        return _decimal(text[:-1]) if text[-1] == "M" else _real(text, real)
    if _RATIO.fullmatch(text):
        ratio = Fraction(text)
        # 4/2 is the integer 2, as Clojure reads it.
        return ratio.numerator if ratio.denominator == 1 else ratio
    raise _Problem(f"{_excerpt(text)} is not a number")


def _real(text: str, real: Callable[[str], Any]) -> Any:
    try:
        return real(text)
    except ValueError:
        raise _Problem(f"{_excerpt(text)} is out of range") from None


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _Problem(f"{_excerpt(text)} has too large an exponent") from None


def _scalar(match: "re.Match[str]") -> Any:
    kind = match.lastgroup
    text = match[kind or 0]
    if kind == "string":
        return _unescaped(text) if "\\" in text else _without_surrogates(text)
    if kind == "character":
        return _character(text)
    if text not in _SYMBOLIC:
        raise _Problem(f"{_excerpt(text)} is not one of ##Inf, ##-Inf and ##NaN")
    return _SYMBOLIC[text]


def _character(text: str) -> Character:
    if len(text) == 1:
        return Character(_without_surrogates(text))
    if text in NAMED_CHARACTERS:
        return Character(NAMED_CHARACTERS[text])
    if re.fullmatch("u[0-9a-fA-F]{4}", text):
        return Character(_without_surrogates(chr(int(text[1:], 16))))
    if re.fullmatch("o[0-3]?[0-7]{1,2}", text):
        return Character(chr(int(text[1:], 8)))
    raise _Problem(f"'\\{text[:40]}' is not a character")


def _unescaped(text: str) -> str:
    return _without_surrogates(_ESCAPE.sub(_escape, text))


def _escape(match: "re.Match[str]") -> str:
    code = match[1]
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code not in ESCAPES:
        shown = f"'\\{code}'" if code.isprintable() else f"a backslash before {code!r}"
        raise _Problem(f"{shown} is not an escape in a string")
    return ESCAPES[code]


def _without_surrogates(text: str) -> str:
    """Returns text in which pairs of surrogates, as Java writes them, are one character each."""
    if not _SURROGATES.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _Problem("a string holds half of a surrogate pair") from None


def _collection(level: _Level) -> Any:
    items = level.items
    if level.opener in "[(":
        return tuple(items)
    if level.opener == "#{":
        elements = frozenset(items)
        if len(elements) != len(items):
            if len(set(map(to_edn, items))) == len(items):
                raise _Problem("a set has two elements that are not told apart, such as 1 and 1.0")
            raise _Problem("a set has an element twice")
        return elements
    if len(items) % 2:
        raise _Problem("a map has a key without a value")
    keys = items[::2]
    if level.opener != "{":
        namespace = level.opener[2:-1].rstrip(" ,\t\r\n\f")
        if "/" in namespace or not _SYMBOL.fullmatch(namespace):
            raise _Problem(f"{_excerpt(namespace)} is not a namespace")
        keys = [_qualified(key, namespace) for key in keys]
    pairs = EdnMap(zip(keys, items[1::2], strict=True))
    if 2 * len(pairs) != len(items):
        raise _Problem("a map has a key twice")
    return pairs


def _qualified(key: Any, namespace: str) -> Any:
    """Returns a key of a namespaced map as it is without: `:b` in `#:a{...}` is `:a/b`, and `:_/b` is `:b`."""
    if not isinstance(key, Keyword | Symbol):
        return key
    if key.name.startswith("_/"):
        return type(key)(key.name[2:])
    return key if "/" in key.name else type(key)(f"{namespace}/{key.name}")
