"""Forbidden behaviour of a node: it broke an invariant, crashed, or ended without a fault."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One row of the table `violations`.

    Attributes:
        at_ns: When it was noticed, in nanoseconds since the start of the run.
        node: The node; empty if the violation belongs to no single node.
        invariant: Identifier of the broken invariant; empty for a crash or an unexpected end.
        sentence: What happened.
    """

    at_ns: int
    node: str
    invariant: str
    sentence: str

    def to_row(self) -> tuple[Any, ...]:
        """Returns the columns in the order of the schema."""
        return (self.at_ns, self.node, self.invariant, self.sentence)
