"""The election rules: which replica becomes the partition leader.

An election considers membership and liveness, never offsets. That is why it needs no round trip, and why all other
rules must keep ISR and ELR correct: every member of them is assumed to have all committed records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from system_under_test.config import Features
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.rules import Rules


class ElectedFrom(Enum):
    """Set that entitled a leader to lead."""

    NOTHING = "nothing"
    ISR = "isr"
    ELR = "elr"
    LAST_KNOWN_LEADER = "last-known-leader"
    UNCLEAN = "unclean"
    ANY_REPLICA = "any-replica"
    """Neither in the ISR nor in the ELR, and not flagged; only with rule EL-1 switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """The outcome of one election; `leader` may be `NO_LEADER`."""

    leader: int
    source: ElectedFrom

    @property
    def is_flagged(self) -> bool:
        """Whether the election may have lost committed records, which the metadata must record."""
        return self.source in (ElectedFrom.LAST_KNOWN_LEADER, ElectedFrom.UNCLEAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """Input of an election.

    Attributes:
        isr: The ISR as the change would leave it.
        elr: The ELR as the change would leave it.
        replicas: The replicas as the change would leave them, the preferred leader first.
        acceptable: Whether a broker is alive for this purpose.
        unclean_allowed: Whether the topic prefers availability to durability.
        prefers_first: Whether the preferred leader replaces a leader that could stay (EL-3).
    """

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    acceptable: Callable[[int], bool]
    elr_on: bool
    unclean_allowed: bool
    features: Features
    rules: Rules
    prefers_first: bool = False

    def source_of(self, broker_id: int) -> ElectedFrom:
        """Returns the set that entitles a broker to lead, `NOTHING` if none does."""
        if not self.acceptable(broker_id):
            return ElectedFrom.NOTHING
        if broker_id in self.isr:
            return ElectedFrom.ISR
        # [EL-1] The ELR counts only when the ISR is empty: while it has members, they may have committed
        # records (at min ISR 1) that the ELR does not have.
        if not self.isr and broker_id in self.elr:
            return ElectedFrom.ELR
        return ElectedFrom.NOTHING if self.rules("EL-1") else ElectedFrom.ANY_REPLICA

    def source_of_preferred(self) -> ElectedFrom:
        """Returns the set that entitles the preferred leader to lead, `NOTHING` if none does."""
        source = self.source_of(self.replicas[0])
        # [EL-3-ISR] That a broker is alive entitles it to nothing.
        if source is ElectedFrom.NOTHING and not self.rules("EL-3-ISR"):
            return ElectedFrom.ANY_REPLICA if self.acceptable(self.replicas[0]) else source
        return source


def elect_leader(registration: PartitionRegistration, electorate: Electorate) -> ElectionResult:
    """Chooses the leader of a partition.

    The current leader stays if it is entitled, unless the preferred one is requested and entitled as well.
    Otherwise the first entitled replica in assignment order (not in ISR order) is elected, otherwise the
    last-known leader (ELR-8), otherwise, if the topic allows it, the first live replica, otherwise none.
    """
    # [EL-3] The old leader stays in the ISR: this is the only way to change leaders without losing a member.
    if electorate.prefers_first and electorate.rules("EL-3"):
        source = electorate.source_of_preferred()
        if source is not ElectedFrom.NOTHING:
            return ElectionResult(leader=electorate.replicas[0], source=source)
    if registration.leader != NO_LEADER:
        source = electorate.source_of(registration.leader)
        if source is not ElectedFrom.NOTHING:
            return ElectionResult(leader=registration.leader, source=source)
    for replica in electorate.replicas:
        source = electorate.source_of(replica)
        if source is not ElectedFrom.NOTHING:
            return ElectionResult(leader=replica, source=source)
    last_known = _electable_last_known_leader(registration, electorate)
    if last_known != NO_LEADER:
        return ElectionResult(leader=last_known, source=ElectedFrom.LAST_KNOWN_LEADER)
    # [EL-2] Again in assignment order: logs are not compared, so a replica with more records may be passed over.
    if electorate.unclean_allowed:
        for replica in electorate.replicas:
            if electorate.acceptable(replica):
                return ElectionResult(leader=replica, source=ElectedFrom.UNCLEAN)
    return ElectionResult(leader=NO_LEADER, source=ElectedFrom.NOTHING)


def _electable_last_known_leader(
    registration: PartitionRegistration, electorate: Electorate
) -> int:
    if not electorate.elr_on or not electorate.features.last_known_leader:
        return NO_LEADER
    if electorate.isr or electorate.elr or len(registration.last_known_elr) != 1:
        return NO_LEADER
    candidate = registration.last_known_elr[0]
    # A broker that a cancelled reassignment removes has no log to lead with. Kafka does not check this.
    if candidate not in electorate.replicas:
        return NO_LEADER
    # [ELR-8] It must be alive. Kafka 4.0.0 did not check that and elected dead leaders (KAFKA-19522).
    checks_liveness = electorate.features.last_known_leader_must_be_alive
    if checks_liveness and electorate.rules("ELR-8") and not electorate.acceptable(candidate):
        return NO_LEADER
    return candidate
