"""One operation of a history that a model judges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import HistoryError

OK = "ok"
FAIL = "fail"
INFO = "info"
OUTCOMES = (OK, FAIL, INFO)

SILENT = frozenset({"write", "put", "append", "cas", "add", "remove", "enqueue"})
"""Functions whose missing output is written as "ok" and not as "nil"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one process called, what it was told, and when.

    Attributes:
        process: Who called. A process calls one operation at a time: what it invokes at the very time at which an
            operation of it completes comes after that one.
        function: What was called, for example "read". The model defines the functions.
        input: The arguments, as the model defines them.
        output: The result of an `ok` operation. Models never look at the output of the others.
        invoked_ns: When the call began.
        completed_ns: When the result arrived; None while the operation is open. Ignored for `info`.
        outcome: "ok": it took effect once between the two times. "fail": it never took effect, and its result says
            nothing. "info": it may have taken effect, may do so at any later time, or may never do so.

    Units:
        Nanoseconds on one clock. Two operations of different processes are concurrent unless one completed
        strictly before the other began.
    """

    process: int | str
    function: str
    input: Any = None
    output: Any = None
    invoked_ns: int
    completed_ns: int | None = None
    outcome: str = OK

    def text(self) -> str:
        """Returns the operation as one line, without its times."""
        called = (
            self.function
            if self.input is None
            else f"{self.function} {self.value_text(self.input)}"
        )
        if self.outcome != OK:
            return f"process {self.process} {called} -> {self.outcome}"
        nothing = "ok" if self.function in SILENT else "nil"
        result = nothing if self.output is None else self.value_text(self.output)
        return f"process {self.process} {called} -> {result}"

    def value_text(self, value: Any) -> str:
        """Returns an argument or a result as text."""
        return repr(value)


def validate(operations: Sequence[Operation]) -> None:
    """Refuses operations whose times or outcomes contradict themselves.

    Raises:
        HistoryError: Names the first such operation by its index.
    """
    for index, operation in enumerate(operations):
        objection = _objection(operation)
        if objection:
            raise HistoryError(f"operation {index} ({operation.text()}) {objection}")


def _objection(operation: Operation) -> str:
    if operation.outcome not in OUTCOMES:
        return f"has the outcome {operation.outcome!r}; use ok, fail or info"
    if not _is_time(operation.invoked_ns):
        return f"has the invocation time {operation.invoked_ns!r}; use whole nanoseconds"
    if operation.completed_ns is None:
        if operation.outcome == OK:
            return "is ok without a completion time; an operation that is still open is info"
        return ""
    if not _is_time(operation.completed_ns):
        return f"has the completion time {operation.completed_ns!r}; use whole nanoseconds"
    if operation.completed_ns < operation.invoked_ns:
        return "completed before it was invoked; both times must come from one clock"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
