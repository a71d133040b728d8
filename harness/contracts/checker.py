"""What a checker is: tables in, findings out.

Checkers are found by name (`checkers.registry`), the built-in ones in the same way as third-party ones. A checker
must be a pure function of its arguments: the same tables give the same report on any machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerFinding:
    """One anomaly that a checker found, with what it means for the verdict.

    Attributes:
        id: Stable identifier of the anomaly.
        level: Weakest promise that it breaks: "durability", "integrity", "order" or "fresh".
        count: How many operations or records are involved.
        judgement: FORBIDDEN makes the run invalid, every other judgement only reports.
        rule: Why it is judged so, as a sentence.
        sentence: What a reader can verify with no tool, for the worst example.
        witnesses: At most three operations, for the worst example.
        details: Further facts, JSON-compatible.
    """

    id: str
    level: str
    count: int
    judgement: Judgement
    rule: str
    sentence: str
    witnesses: tuple[Witness, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerReport:
    """What a checker returns for one partition, or for the whole run.

    Attributes:
        findings: Everything found.
        unknown_reasons: Why the verdict cannot be better than unknown, one sentence each; usually empty.
        coverage: Numbers that show how much was tested, JSON-compatible; integers are summed over partitions.
    """

    findings: tuple[CheckerFinding, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    coverage: dict[str, Any] = field(default_factory=dict)


class Checker(Protocol):
    """A checker, as the registry returns it."""

    @property
    def name(self) -> str:
        """The name under which a workload lists it."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables it reads (`harness.history.schema.TABLES`), and gets; `marks` is not allowed."""
        ...

    @property
    def per_partition(self) -> bool:
        """Whether it is called once per topic-partition with that partition's rows, or once per run."""
        ...

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks what it was given.

        Args:
            tables: The tables that it named. Those that are stored per partition hold one partition's rows if
                `per_partition` is true, the others all rows of the run.
            context: What the run declares about itself.
        """
        ...
