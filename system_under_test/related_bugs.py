"""Known replication bugs that cannot be switched on as a defect (`defects.py`), but that code or tests mention."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedBug:
    """A known bug without a defect of its own, which code or tests mention.

    Attributes:
        id: Stable identifier, for example "B-47".
        name: Short name.
        origin: As for a defect.
        rule: Identifier of the rule that prevents it.
        sentence: What goes wrong where the bug exists.
        reason: Why it is not a defect here.
    """

    id: str
    name: str
    origin: str
    rule: str
    sentence: str
    reason: str


_RELATED: tuple[RelatedBug, ...] = (
    RelatedBug(
        id="B-39",
        name="epoch-kept-for-the-same-leader",
        origin="plausible",
        rule="META-1",
        sentence="The leader epoch does not grow when the last leader is elected again.",
        reason="Everybody who reads the metadata log computes leader epochs from it. A node that counted otherwise"
        " would disagree with all others about everything that follows.",
    ),
    RelatedBug(
        id="B-47",
        name="no-leader-as-last-known-leader",
        origin="Apache Kafka 4.1.2 and 4.4.0",
        rule="ELR-8",
        sentence="-1 is stored as the last-known leader, after which no broker can be elected.",
        reason="It needs eligible.leader.replicas.version switched on while a partition has no leader, and the"
        " reference system serves no UpdateFeatures. A missing leader is never stored.",
    ),
)

RELATED_BUGS: dict[str, RelatedBug] = {bug.id: bug for bug in _RELATED}
"""Bugs that code or tests mention and that are not defects, by identifier."""
