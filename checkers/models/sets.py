"""A set of elements. Without reads of the whole set, histories are checked per element."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from checkers.models.model import Decision
from checkers.models.operation import INFO, OK, Operation
from checkers.models.set_decision import decide_set
from checkers.models.values import frozen, text

FUNCTIONS = ("add", "remove", "contains", "read")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetModel:
    """A set, initially empty.

    | function | input | output | meaning |
    |---|---|---|---|
    | add | element | None | the set contains the element afterwards |
    | add | element | True, False | the same, and it was absent (True) or present (False) before |
    | remove | element | None | the set does not contain the element afterwards |
    | remove | element | True, False | the same, and it was present (True) or absent (False) before |
    | contains | element | True, False | whether the set contains the element |
    | read | none | collection | the set contains exactly these elements |
    """

    name: str = "set"

    def initial_state(self) -> Hashable:
        """Returns the empty set."""
        return frozenset()

    def objection(self, operation: Operation) -> str:
        """Returns why the operation is none of a set; empty if it is one."""
        function, output = operation.function, operation.output
        if function not in FUNCTIONS:
            return f"has the function {function!r}; a set has {', '.join(FUNCTIONS)}"
        if operation.outcome != OK:
            return ""
        if function == "read":
            if not isinstance(output, Collection) or isinstance(output, str | bytes | Mapping):
                return f"has the output {output!r}; a read of a set returns a list of elements"
            return ""
        if isinstance(output, bool) or (output is None and function != "contains"):
            return ""
        return f"has the output {output!r}; {function} returns True or False"

    def partition_key(self, operation: Operation) -> Hashable | None:
        """Returns the element, in a tuple; None for a read, which concerns all elements."""
        return None if operation.function == "read" else (frozen(operation.input),)

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the set."""
        assert isinstance(state, frozenset)
        is_info = operation.outcome == INFO
        if operation.function == "read":
            if is_info:
                return state
            elements = frozenset(map(frozen, operation.output))
            # No set returns an element twice.
            return state if elements == state and len(elements) == len(operation.output) else None
        element = frozen(operation.input)
        is_member = element in state
        if operation.function == "contains":
            return state if is_info or operation.output == is_member else None
        is_add = operation.function == "add"
        if (
            not is_info
            and operation.output is not None
            and operation.output != (is_member != is_add)
        ):
            return None
        return state | {element} if is_add else state - {element}

    def signature(self, operation: Operation) -> Hashable:
        """Returns the same value for operations that have the same effect."""
        if operation.function == "read":
            return "read", frozenset(map(frozen, operation.output)), len(operation.output)
        output = None if operation.outcome == INFO else frozen(operation.output)
        return operation.function, frozen(operation.input), output

    def is_observer(self, operation: Operation) -> bool:
        """Returns true for contains, read, and for an add or remove that changed nothing."""
        if operation.function in ("contains", "read"):
            return True
        return operation.outcome == OK and operation.output is False

    def decide(self, operations: Sequence[Operation]) -> Decision | None:
        """Decides histories in which no element is added twice, and none that is added is removed."""
        return decide_set(operations)

    def describe(self, state: Hashable) -> str:
        """Returns the elements."""
        return text(state)


SET = SetModel()

__all__ = ["SET", "SetModel"]
