"""One rule of the catalogue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One statement of the replication protocol.

    Attributes:
        id: Stable identifier, for example "HW-1".
        statement: What holds while the rule applies, as one or more sentences.
        source: KIP, KAFKA ticket, Kafka class or setting; empty if none is known.
        is_switchable: Whether `rules.Rules` can switch it off.
    """

    id: str
    statement: str
    source: str = ""
    is_switchable: bool = True


def switchable(rule_id: str, statement: str, source: str = "") -> Rule:
    """Returns a rule that a defect or a test may switch off."""
    return Rule(id=rule_id, statement=statement, source=source)


def always(rule_id: str, statement: str, source: str = "") -> Rule:
    """Returns a rule that always applies."""
    return Rule(id=rule_id, statement=statement, source=source, is_switchable=False)
