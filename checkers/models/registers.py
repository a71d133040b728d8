"""Registers: one value that is read, written, and compared and set; alone, or one per key."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.models.model import CanReach
from checkers.models.operation import INFO, Operation
from checkers.models.values import frozen, text


@dataclass(frozen=True, slots=True, kw_only=True)
class CasRegister:
    """A register with compare-and-set.

    | function | input | output | meaning |
    |---|---|---|---|
    | read | none | value | the register has this value |
    | write | value | any | the register gets this value |
    | cas | (old, new) | None or True | the value was `old` and becomes `new` |
    | cas | (old, new) | False | the value was not `old`; nothing changes |

    An unsuccessful cas with the outcome `fail` states nothing about the value.

    Attributes:
        name: "cas-register", or "register" without cas.
        initial: The value before the first operation.
        has_cas: Whether histories may contain cas.
    """

    name: str = "cas-register"
    initial: Any = None
    has_cas: bool = True

    def initial_state(self) -> Hashable:
        """Returns the initial value, in a tuple: None is a value, too."""
        return (frozen(self.initial),)

    def objection(self, operation: Operation) -> str:
        """Returns why the operation is none of a register; empty if it is one."""
        functions = ("read", "write", "cas") if self.has_cas else ("read", "write")
        if operation.function not in functions:
            return (
                f"has the function {operation.function!r}; a {self.name} has {', '.join(functions)}"
            )
        if operation.function != "cas":
            return ""
        return cas_objection(operation, operation.input, "(old, new)", 2)

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the value."""
        if operation.function == "read":
            return read(state, operation)
        if operation.function == "write":
            return (frozen(operation.input),)
        old, new = operation.input
        return compare_and_set(state, operation, old, new)

    def signature(self, operation: Operation) -> Hashable:
        """Returns the same value for operations that have the same effect, whichever process called them."""
        return effect(operation, operation.input)

    def is_observer(self, operation: Operation) -> bool:
        """Returns true for reads, for a cas that found another value, and for a cas to the same value."""
        return observes(operation, operation.input)

    def is_overwrite(self, operation: Operation) -> bool:
        """Returns true for writes."""
        return operation.function == "write"

    def describe(self, state: Hashable) -> str:
        """Returns the value."""
        return describe_value(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """Independent registers, one per key. Histories are checked per key.

    | function | input | output | meaning |
    |---|---|---|---|
    | get | key | value | the key has this value |
    | put | (key, value) | any | the key gets this value |
    | append | (key, text) | any | the key's text gets this text at its end; no value counts as empty text |
    | cas | (key, old, new) | None or True | the value was `old` and becomes `new` |
    | cas | (key, old, new) | False | the value was not `old`; nothing changes |

    Attributes:
        name: "key-value".
        initial: The value of a key before its first operation.
    """

    name: str = "key-value"
    initial: Any = None

    def initial_state(self) -> Hashable:
        """Returns the initial value of every key, in a tuple: None is a value, too."""
        return (frozen(self.initial),)

    def objection(self, operation: Operation) -> str:
        """Returns why the operation is none of a key-value store; empty if it is one."""
        function, given = operation.function, operation.input
        if function == "get":
            return ""
        if function in ("put", "append"):
            if not _has_length(given, 2):
                return f"needs the input (key, value), not {given!r}"
            if function == "append" and not isinstance(given[1], str):
                return f"appends {given[1]!r}; only text can be appended"
            return ""
        if function == "cas":
            return cas_objection(operation, given, "(key, old, new)", 3)
        return f"has the function {function!r}; a key-value store has get, put, append, cas"

    def partition_key(self, operation: Operation) -> Hashable:
        """Returns the key, in a tuple: None is a key, too."""
        given = operation.input
        return (frozen(given if operation.function == "get" else given[0]),)

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the value of its key."""
        if operation.function == "get":
            return read(state, operation)
        if operation.function == "put":
            return (frozen(operation.input[1]),)
        if operation.function == "append":
            return _append(state, operation.input[1])
        _, old, new = operation.input
        return compare_and_set(state, operation, old, new)

    def foresee(self, operations: Sequence[Operation]) -> CanReach | None:
        """Returns whether a value is the beginning of what a get returned: by append it can only grow."""
        if any(one.function == "cas" for one in operations):
            return None
        return _is_beginning

    def signature(self, operation: Operation) -> Hashable:
        """Returns the same value for operations of one key that have the same effect."""
        return effect(operation, None if operation.function == "get" else operation.input[1:])

    def is_observer(self, operation: Operation) -> bool:
        """Returns true for get, for a cas that found another value, and for a cas to the same value."""
        return operation.function == "get" or observes(operation, operation.input[1:])

    def is_overwrite(self, operation: Operation) -> bool:
        """Returns true for put."""
        return operation.function == "put"

    def describe(self, state: Hashable) -> str:
        """Returns the value."""
        return describe_value(state)


_ANYTHING = ()
"""State of a key to which text was appended although it held no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LenientKeyValue(KeyValue):
    """The same, except that a key may hold anything after text was appended to something else, until the next put.

    It allows every history that a meaning of such an append could allow, so it decides only whether the verdict
    rests on one.
    """

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the value of its key."""
        if state == _ANYTHING and operation.function != "put":
            return state
        after = KeyValue.step(self, state, operation)
        return _ANYTHING if after is None and operation.function == "append" else after

    def foresee(self, operations: Sequence[Operation]) -> CanReach | None:
        """Returns nothing: any value may follow from any other."""
        return None

    def describe(self, state: Hashable) -> str:
        """Returns the value."""
        return "anything" if state == _ANYTHING else describe_value(state)


def read(state: Hashable, operation: Operation) -> Hashable | None:
    """Returns the state if the read returned its value, or may have."""
    if operation.outcome == INFO or (frozen(operation.output),) == state:
        return state
    return None


def compare_and_set(state: Hashable, operation: Operation, old: Any, new: Any) -> Hashable | None:
    """Returns the state after a compare-and-set with the recorded result; None if the result is impossible."""
    is_equal = (frozen(old),) == state
    if operation.outcome == INFO:
        return (frozen(new),) if is_equal else state
    if operation.output is False:
        return None if is_equal else state
    return (frozen(new),) if is_equal else None


def cas_objection(operation: Operation, given: Any, shape: str, length: int) -> str:
    """Returns what is wrong with the input or output of a cas; empty if nothing is."""
    if not _has_length(given, length):
        return f"needs the input {shape}, not {given!r}"
    if operation.outcome != "ok" or operation.output is None or isinstance(operation.output, bool):
        return ""
    return f"has the output {operation.output!r}; an ok cas returns None, True or False"


def effect(operation: Operation, given: Any) -> Hashable:
    """Returns what determines the effect of an operation of a register."""
    if operation.function in ("write", "put", "append"):
        # The output of a write says nothing, so that an info write is the same as an ok one without a deadline.
        return operation.function, frozen(given)
    if operation.outcome == INFO:
        return operation.function, frozen(given), INFO
    if operation.function == "cas":
        return operation.function, frozen(given), operation.output is not False
    return operation.function, frozen(given), frozen(operation.output)


def observes(operation: Operation, given: Any) -> bool:
    """Returns whether an operation of a register never changes the value."""
    if operation.function == "read":
        return True
    if operation.function != "cas":
        return False
    if operation.outcome != INFO and operation.output is False:
        return True
    old, new = given
    return frozen(old) == frozen(new)


def describe_value(state: Hashable) -> str:
    """Returns the value of a register as text."""
    assert isinstance(state, tuple)
    return text(state[0])


def _append(state: Hashable, suffix: str) -> Hashable | None:
    assert isinstance(state, tuple)
    (value,) = state
    if value is None:
        return (suffix,)
    return (value + suffix,) if isinstance(value, str) else None


def _is_beginning(state: Hashable, operation: Operation) -> bool:
    assert isinstance(state, tuple)
    value, output = state[0], operation.output
    if value is None:
        return True
    if isinstance(value, str) and isinstance(output, str):
        return output.startswith(value)
    return bool(value == frozen(output))  # nothing can be appended to it


def _has_length(given: Any, length: int) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and len(given) == length


REGISTER = CasRegister(name="register", has_cas=False)
CAS_REGISTER = CasRegister()
KEY_VALUE = KeyValue()

__all__ = ["CAS_REGISTER", "KEY_VALUE", "REGISTER", "CasRegister", "KeyValue", "LenientKeyValue"]
