"""Who becomes leader: the election rules (replication-protocol section 16.6).

An election looks at membership and at liveness, never at offsets. That is its strength (no round trip) and the
reason why everything else must keep the ISR and the ELR true: whoever is in them is believed to be complete.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from system_under_test.config import Features
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.rules import Rules


class ElectedFrom(Enum):
    """Why a leader was allowed to lead."""

    NOBODY = "nobody"
    ISR = "isr"
    ELR = "elr"
    LAST_KNOWN_LEADER = "last-known-leader"
    UNCLEAN = "unclean"
    ANY_REPLICA = "any-replica"
    """Only with rule EL-1 switched off: neither in the ISR nor in the ELR, and not flagged either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """The outcome of one election; `leader` may be `NO_LEADER`."""

    leader: int
    source: ElectedFrom

    @property
    def is_flagged(self) -> bool:
        """Whether the election may have lost committed records and must say so in the metadata."""
        return self.source in (ElectedFrom.LAST_KNOWN_LEADER, ElectedFrom.UNCLEAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """What an election looks at.

    Attributes:
        isr: The ISR as the change would leave it.
        elr: The ELR as the change would leave it.
        acceptable: Whether a broker is alive for this purpose.
        unclean_allowed: Whether the topic gives up records for availability.
    """

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    acceptable: Callable[[int], bool]
    elr_on: bool
    unclean_allowed: bool
    features: Features
    rules: Rules

    def source_of(self, broker_id: int) -> ElectedFrom:
        """Returns the set that entitles a broker to lead, `NOBODY` when nothing does."""
        if not self.acceptable(broker_id):
            return ElectedFrom.NOBODY
        if broker_id in self.isr:
            return ElectedFrom.ISR
        # [EL-1] The ELR counts only when the ISR is empty: while it has members, they may have committed
        # records (at min ISR 1) that the ELR does not have.
        if not self.isr and broker_id in self.elr:
            return ElectedFrom.ELR
        return ElectedFrom.NOBODY if self.rules("EL-1") else ElectedFrom.ANY_REPLICA


def elect_leader(registration: PartitionRegistration, electorate: Electorate) -> ElectionResult:
    """Chooses the leader of a partition.

    The present leader stays if it is entitled; else the first entitled replica in assignment order (not in ISR
    order); else the last-known leader (ELR-8); else, if the topic allows it, the first live replica; else nobody.
    """
    if registration.leader != NO_LEADER:
        source = electorate.source_of(registration.leader)
        if source is not ElectedFrom.NOBODY:
            return ElectionResult(leader=registration.leader, source=source)
    for replica in registration.replicas:
        source = electorate.source_of(replica)
        if source is not ElectedFrom.NOBODY:
            return ElectionResult(leader=replica, source=source)
    last_known = _electable_last_known_leader(registration, electorate)
    if last_known != NO_LEADER:
        return ElectionResult(leader=last_known, source=ElectedFrom.LAST_KNOWN_LEADER)
    # [EL-2] Assignment order again: nobody compares logs, so a more complete replica may lose to the first.
    if electorate.unclean_allowed:
        for replica in registration.replicas:
            if electorate.acceptable(replica):
                return ElectionResult(leader=replica, source=ElectedFrom.UNCLEAN)
    return ElectionResult(leader=NO_LEADER, source=ElectedFrom.NOBODY)


def _electable_last_known_leader(
    registration: PartitionRegistration, electorate: Electorate
) -> int:
    if not electorate.elr_on or not electorate.features.last_known_leader:
        return NO_LEADER
    if electorate.isr or electorate.elr or len(registration.last_known_elr) != 1:
        return NO_LEADER
    candidate = registration.last_known_elr[0]
    # [ELR-8] It must be alive: 4.0.0 forgot to ask, and named dead leaders (KAFKA-19522).
    must_be_alive = electorate.features.last_known_leader_must_be_alive and electorate.rules(
        "ELR-8"
    )
    if must_be_alive and not electorate.acceptable(candidate):
        return NO_LEADER
    return candidate
