"""What the model checker returns."""

from collections.abc import Hashable
from dataclasses import dataclass

from harness.contracts.verdict import Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialLinearization:
    """An order of operations that the model accepts, and that cannot be continued.

    Attributes:
        operations: Indices of operations, in the order in which they take effect.
        states: The state after each of them, as text.
    """

    operations: tuple[int, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What was found for one object, for example one key.

    Attributes:
        key: Which object; None if the history was not partitioned.
        validity: Whether its operations are linearizable.
        sentence: The reason in plain English.
        operations: Indices of its operations, without `fail` ones and without `info` observers.
        blocked: Indices of the operations that show why the object is invalid. The first one is the operation that
            has no place, or whose completion shows it. Empty unless invalid.
        partial_linearizations: The longest ones, at most five; empty if valid.
        completed_count: How many `ok` operations, in the order of their completion, could be linearized.
        ok_count: How many there are.
        configurations: How many configurations the search visited.
        initial_state: The state before the first operation, as text.
    """

    key: Hashable | None
    validity: Validity
    sentence: str
    operations: tuple[int, ...]
    blocked: tuple[int, ...] = ()
    partial_linearizations: tuple[PartialLinearization, ...] = ()
    completed_count: int
    ok_count: int
    configurations: int
    initial_state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """Whether a history is linearizable with respect to a model.

    Attributes:
        model: Name of the model.
        validity: Invalid if one object is, otherwise unknown if one object is, otherwise valid.
        sentence: The result in one sentence.
        operation_count: How many operations were given.
        partitions: Results that are not valid, worst first; objects in the order in which the history names them.
        partition_count: How many objects there are.
        configurations: How many configurations were visited in total.
    """

    model: str
    validity: Validity
    sentence: str
    operation_count: int
    partitions: tuple[PartitionResult, ...]
    partition_count: int
    configurations: int
