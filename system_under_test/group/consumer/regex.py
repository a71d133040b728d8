"""Regular expressions of subscriptions, matched in time proportional to their size.

Kafka matches them with RE2/J, which has no references to groups and no look-around. The pattern of a client must
not keep the coordinator busy, so what Python's parser makes of it becomes a nondeterministic automaton, and all of
its states are followed at once. Patterns that RE2 cannot express are refused.

Source:
    KIP-848; the syntax of RE2; Thompson, "Regular expression search algorithm" (1968).
"""

import re
from collections.abc import Callable, Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

REPEAT_MAX = 1000
"""As in RE2."""
STATES_MAX = 20_000
"""Bounds the work: a topic name has at most 249 characters."""
UNLIMITED = 2**31

Test = Callable[[str], bool]


class RegexError(ValueError):
    """A pattern is malformed, or needs what RE2 does not have; the message says which."""


class TopicRegex:
    """A pattern that whole names of topics match or do not.

    Args:
        pattern: The regular expression.

    Raises:
        RegexError: It is malformed, too large, or needs what RE2 does not have.
    """

    def __init__(self, pattern: str) -> None:
        try:
            parsed = parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise RegexError(str(error)) from None
        self._ignores_case = bool(parsed.state.flags & re.IGNORECASE)
        # Of every state: the test of its next character and where that leads, or where it leads without one.
        self._tests: list[Test | None] = []
        self._next: list[list[int]] = []
        self._start, self._end = self._state(), self._state()
        try:
            self._connect(parsed, self._start, self._end)
        except RecursionError:
            raise RegexError("it is nested too deeply") from None

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        current = self._reachable([self._start], at_start=True, at_end=not name)
        for place, character in enumerate(name):
            after = [
                target
                for state in current
                if (test := self._tests[state]) is not None and test(character)
                for target in self._next[state]
            ]
            current = self._reachable(after, at_start=False, at_end=place == len(name) - 1)
        return self._end in current

    def _reachable(self, states: Iterable[int], *, at_start: bool, at_end: bool) -> list[int]:
        """Returns the states and all that they lead to without a character, each once."""
        found = dict.fromkeys(states)
        queue = list(found)
        while queue:
            state = queue.pop()
            if self._tests[state] is not None:
                continue
            for target in self._next[state]:
                if target == _ONLY_AT_START:
                    if not at_start:
                        break
                elif target == _ONLY_AT_END:
                    if not at_end:
                        break
                elif target not in found:
                    found[target] = None
                    queue.append(target)
        return list(found)

    # --- building ----------------------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._tests) >= STATES_MAX:
            raise RegexError("it is too large")
        self._tests.append(None)
        self._next.append([])
        return len(self._tests) - 1

    def _connect(self, items: Any, start: int, end: int) -> None:
        """Adds states such that `end` is reached from `start` by what matches a sequence."""
        here = start
        for code, argument in items:
            after = self._state()
            self._connect_item(code, argument, here, after)
            here = after
        self._next[here].append(end)

    def _connect_item(self, code: Any, argument: Any, start: int, end: int) -> None:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            # A state of its own, because other items may begin in `start`.
            reader = self._state()
            self._next[start].append(reader)
            self._tests[reader] = self._test(code, argument)
            self._next[reader].append(end)
        elif code is codes.SUBPATTERN:
            _, added, removed, items = argument
            before = self._ignores_case
            self._ignores_case = (before or bool(added & re.I)) and not removed & re.I
            self._connect(items, start, end)
            self._ignores_case = before
        elif code is codes.BRANCH:
            for items in argument[1]:
                self._connect(items, start, end)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, repeated = argument
            self._connect_repeat(least, most, repeated, start, end)
        elif code is codes.AT and argument in _PLACES:
            gate = self._state()
            self._next[start].append(gate)
            self._next[gate] += [_PLACES[argument], end]
        else:
            raise RegexError(f"{str(code).lower().replace('_', ' ')} is not supported")

    def _connect_repeat(self, least: int, most: int, items: Any, start: int, end: int) -> None:
        is_unlimited = most == codes.MAXREPEAT
        if least > REPEAT_MAX or (most > REPEAT_MAX and not is_unlimited):
            raise RegexError(f"it repeats something more than {REPEAT_MAX} times")
        here = start
        for _ in range(least):
            after = self._state()
            self._connect(items, here, after)
            here = after
        if is_unlimited:
            loop = self._state()
            self._next[here].append(loop)
            self._connect(items, loop, loop)
            here = loop
        else:
            for _ in range(most - least):
                after = self._state()
                self._next[here].append(end)
                self._connect(items, here, after)
                here = after
        self._next[here].append(end)

    def _test(self, code: Any, argument: Any) -> Test:
        plain = _plain_test(code, argument)
        if not self._ignores_case:
            return plain
        return lambda one: plain(one.lower()) or plain(one.upper())


_ONLY_AT_START, _ONLY_AT_END = -1, -2
_PLACES = {
    codes.AT_BEGINNING: _ONLY_AT_START,
    codes.AT_BEGINNING_STRING: _ONLY_AT_START,
    codes.AT_END: _ONLY_AT_END,
    codes.AT_END_STRING: _ONLY_AT_END,
}
_CLASSES: dict[Any, Test] = {
    codes.CATEGORY_DIGIT: lambda one: "0" <= one <= "9",
    codes.CATEGORY_SPACE: lambda one: one in "\t\n\f\r ",
    codes.CATEGORY_WORD: lambda one: one.isascii() and (one.isalnum() or one == "_"),
}
_NEGATED = {
    codes.CATEGORY_NOT_DIGIT: codes.CATEGORY_DIGIT,
    codes.CATEGORY_NOT_SPACE: codes.CATEGORY_SPACE,
    codes.CATEGORY_NOT_WORD: codes.CATEGORY_WORD,
}


def _plain_test(code: Any, argument: Any) -> Test:
    if code is codes.LITERAL:
        return lambda one: ord(one) == argument
    if code is codes.NOT_LITERAL:
        return lambda one: ord(one) != argument
    if code is codes.ANY:
        return lambda one: one != "\n"
    if code is codes.RANGE:
        low, high = argument
        return lambda one: low <= ord(one) <= high
    if code is codes.CATEGORY:
        if argument in _NEGATED:
            test = _CLASSES[_NEGATED[argument]]
            return lambda one: not test(one)
        return _CLASSES[argument]
    parts = list(argument)
    is_negated = parts[0][0] is codes.NEGATE
    tests = [_plain_test(*part) for part in parts[is_negated:]]
    return lambda one: any(test(one) for test in tests) is not is_negated
