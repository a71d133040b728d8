"""What a checker returns: anomalies, each with a witness, and one verdict."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Validity(StrEnum):
    """A verdict. `unknown` is not a pass."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Judgement(StrEnum):
    """What an anomaly means under the run's configuration and faults (the expectation matrix).

    A run with a forbidden anomaly is invalid. An undecided one may be forbidden or excused, and what was recorded
    does not show which: the verdict is unknown then.
    """

    FORBIDDEN = "forbidden"
    UNDECIDED = "undecided"
    ALLOWED = "allowed by configuration"
    EXCUSED = "excused by the faults"
    INFORMATIONAL = "informational"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One operation that takes part in showing an anomaly.

    Attributes:
        op_index: Row in `operations`.
        text: One line, for example "process 12 append v=90211 -> ok offset 5520 [101.220 s, 101.245 s]".
    """

    op_index: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One kind of wrongness in one partition.

    Attributes:
        id: Stable identifier from `checkers.anomalies`, for example "lost-acked-write".
        level: Weakest promise it breaks: "durability", "integrity", "order" or "fresh".
        topic, partition: Where.
        count: How many operations or records are involved; never pairs.
        judgement: What it means here.
        rule: The line of the expectation matrix that was applied, as a sentence.
        sentence: What a reader can verify with no tool, for the worst example.
        witnesses: At most three operations, for the worst example.
        details: Further facts, JSON-compatible (for a loss: the offsets and values).
    """

    id: str
    level: str
    topic: str
    partition: int
    count: int
    judgement: Judgement
    rule: str
    sentence: str
    witnesses: tuple[Witness, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one run.

    Attributes:
        validity: invalid beats unknown beats valid.
        reasons: Why it is not valid, one sentence each; empty when valid.
        anomalies: Everything found, also what is allowed, excused or informational.
        unexcused_lost_records: Acknowledged (acks=all) records that are gone without an excuse.
        excused_lost_records: The same with the excuse of a flagged election.
        coverage: Numbers that show how much was tested (acked, read back, info, faults that took effect ...).
        levels: Whether each level holds: "holds", "broken", "excused", "allowed" or "unknown".
    """

    validity: Validity
    reasons: tuple[str, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    unexcused_lost_records: int = 0
    excused_lost_records: int = 0
    coverage: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
