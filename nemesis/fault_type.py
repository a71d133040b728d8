"""What a row of the fault table says: the group, targets and traits of one kind of fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nemesis.parameters import Parameter


class Group(StrEnum):
    """The part of the world that a fault is about; the report colours faults by it."""

    NETWORK = "network"
    PROCESS = "process"
    CLOCK = "clock"
    DISK = "disk"
    ADMIN = "admin"
    REPAIR = "repair"


class Targets(StrEnum):
    """Which hosts a fault can be injected on."""

    HOSTS = "hosts"
    """Brokers, controllers and clients."""
    LINKS = "links"
    """Two hosts or more: the fault lies between the first and each of the others."""
    SERVERS = "servers"
    """Brokers and controllers. Clients are excluded: a dead client reports nothing and is not started again."""
    BROKERS = "brokers"
    """Controllers are excluded: Raft promises nothing if a voter forgets its vote."""
    CLUSTER = "cluster"
    """The cluster as a whole: no targets are named. The nodes are the broker that did what was requested."""
    MESSAGES = "messages"
    """No targets are named. The nodes are those that send or receive the messages of the parameter `messages`."""
    NONE = "none"


class Packets(StrEnum):
    """Which packets a fault is about, in terms of its nodes (`nemesis.shapes.affected_pairs`)."""

    NONE = "none"
    BETWEEN = "between"
    """Those between the first node and each of the others; the parameter `direction` may restrict it."""
    TO_AND_FROM = "to and from"
    TO = "to"
    FROM = "from"
    ACROSS = "across"
    """Those between nodes of different groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultType:
    """One row of the table.

    Attributes:
        name: As in a schedule.
        group: What part of the world it is about.
        targets: Which hosts it can be injected on.
        parameters: By name.
        packets: Which packets it is about, if it is about the packets between pairs of hosts.
        is_momentary: It is over as soon as it has happened. Other faults last until they are healed.
        is_outage: It takes the node down, and starting the node heals it.
        excuses_death: If a node ends by itself while this fault is in force, the fault is the cause; the death is
            not a finding.
        can_lose_data: It may destroy what a node had written.
        may_fail_directory: A broker with several log directories may survive it without one of them, which it does
            not use again before it is restarted.
        ends_uncleanly: A node that it takes down cannot stop cleanly.
        stops_cleanly: It gives a process time to stop cleanly, which may not be enough.
        exclusive: Of the faults with the same value here, a node has one at a time; empty: no limit.
        is_repair: It repairs something. It opens no fault window and needs no evidence.
        ends_outages: It starts nodes, which heals the outages that took them down.
        heals_others: The driver heals the faults that it names, or all; no mechanism injects it.
        is_split_by_draw: The driver draws which nodes are separated, and adds the parameter `groups`.
        sentence: Text for the report; `{who}` are the nodes, `{groups}` the sides of a partition, other names are
            parameters.
        evidence: What shows that it took effect, as in "took effect if ...".
        about_targets: What the targets mean, for the documents.
    """

    name: str
    group: Group
    targets: Targets
    sentence: str
    evidence: str
    about_targets: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    packets: Packets = Packets.NONE
    is_momentary: bool = False
    is_outage: bool = False
    excuses_death: bool = False
    can_lose_data: bool = False
    may_fail_directory: bool = False
    ends_uncleanly: bool = False
    stops_cleanly: bool = False
    exclusive: str = ""
    is_repair: bool = False
    ends_outages: bool = False
    heals_others: bool = False
    is_split_by_draw: bool = False

    @property
    def is_administrative(self) -> bool:
        """Whether it is a request of an administrator; what verdicts need of it is in its evidence."""
        return self.group is Group.ADMIN
