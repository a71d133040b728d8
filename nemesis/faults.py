"""The fault table: the parameters, targets, traits and texts of every fault.

The table describes faults and injects none: how a fault is injected is in `nemesis/simulated`, `nemesis/hosts` and
`nemesis/local`. Everything that differs between faults and is needed outside of those modules is a trait in this
table, so that no other module compares names of faults. `docs/faults.md` is generated from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nemesis.parameters import (
    DIRECTIONS,
    ELECTIONS,
    EVERY_MAX,
    IO_OPERATIONS,
    LARGEST_STEP_MS,
    LEVEL_MAX,
    LOG_DIRS_MAX,
    LONGEST_MS,
    PLACES,
    POWER_MODES,
    PPM_MAX,
    PPM_MIN,
    SHAPES,
    STOP_GRACE_MS,
    Parameter,
    broker_id,
    broker_ids,
    choice,
    count,
    counts_by_node,
    fault_ids,
    groups,
    non_zero,
    planes,
    setting,
    text,
    whole_number,
)


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


_PACKETS = {"planes": planes(), "at": choice("place to drop packets", PLACES)}
_GRACE = {"grace_ms": count(default=STOP_GRACE_MS)}
_PARTITION = {"partition": text(is_needed=True)}

_ROWS = (
    FaultType(
        name="cut",
        group=Group.NETWORK,
        targets=Targets.LINKS,
        about_targets="the first, from each of the others",
        packets=Packets.BETWEEN,
        parameters={**_PACKETS, "direction": choice("direction", DIRECTIONS)},
        sentence="Cut the network {who}",
        evidence="packets were dropped",
    ),
    FaultType(
        name="isolate",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="nodes, each from every other host, clients and the harness included",
        packets=Packets.TO_AND_FROM,
        parameters=_PACKETS,
        sentence="Isolated {who} from all others",
        evidence="packets were dropped",
    ),
    FaultType(
        name="partition",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="the nodes to split",
        packets=Packets.ACROSS,
        parameters={
            **_PACKETS,
            "shape": choice("shape of a partition", SHAPES),
            "groups": groups(),
        },
        is_split_by_draw=True,
        sentence="Split {groups}",
        evidence="packets were dropped",
    ),
    FaultType(
        name="reject",
        group=Group.NETWORK,
        targets=Targets.LINKS,
        about_targets="the first, from each of the others",
        packets=Packets.BETWEEN,
        parameters={"planes": planes()},
        sentence="Refused the packets {who} with resets",
        evidence="packets were refused with resets",
    ),
    FaultType(
        name="reset_connections",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="nodes",
        is_momentary=True,
        sentence="Reset every connection of {who}",
        evidence="there were connections",
    ),
    FaultType(
        name="loss",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="nodes, to and from every other host",
        packets=Packets.TO_AND_FROM,
        parameters={"planes": planes(), "percent": whole_number(1, 100, is_needed=True)},
        sentence="Lost {percent} % of the packets to and from {who}",
        evidence="packets were dropped",
    ),
    FaultType(
        name="delay",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="nodes, what arrives there",
        packets=Packets.TO,
        parameters={
            "planes": planes(),
            "ms": whole_number(1, LONGEST_MS, is_needed=True),
            "jitter_ms": whole_number(0, LONGEST_MS, default=0),
        },
        sentence="Delayed what arrives at {who} by {ms} ms",
        evidence="packets were late",
    ),
    FaultType(
        name="bandwidth",
        group=Group.NETWORK,
        targets=Targets.HOSTS,
        about_targets="nodes, what they send",
        packets=Packets.FROM,
        parameters={"rate_kib_s": whole_number(1, 1 << 30, is_needed=True)},
        exclusive="bandwidth",
        sentence="Throttled what {who} sends to {rate_kib_s} KiB/s",
        evidence="packets had to wait",
    ),
    FaultType(
        name="pause",
        group=Group.PROCESS,
        targets=Targets.HOSTS,
        about_targets="nodes (SIGSTOP)",
        sentence="Paused {who}",
        evidence="work had to wait",
    ),
    FaultType(
        name="stop",
        group=Group.PROCESS,
        targets=Targets.SERVERS,
        about_targets="nodes (SIGTERM)",
        parameters=_GRACE,
        is_outage=True,
        stops_cleanly=True,
        sentence="Stopped {who} cleanly (SIGTERM)",
        evidence="the process ended cleanly",
    ),
    FaultType(
        name="kill",
        group=Group.PROCESS,
        targets=Targets.SERVERS,
        about_targets="nodes (SIGKILL)",
        is_outage=True,
        ends_uncleanly=True,
        sentence="Killed {who} (SIGKILL)",
        evidence="the process is gone",
    ),
    FaultType(
        name="restart",
        group=Group.PROCESS,
        targets=Targets.SERVERS,
        about_targets="nodes (SIGTERM, then started)",
        parameters=_GRACE,
        is_momentary=True,
        stops_cleanly=True,
        sentence="Restarted {who} cleanly (SIGTERM)",
        evidence="there is a new incarnation",
    ),
    FaultType(
        name="oom",
        group=Group.PROCESS,
        targets=Targets.SERVERS,
        about_targets="nodes",
        is_outage=True,
        ends_uncleanly=True,
        sentence="Let the kernel kill {who}, out of memory",
        evidence="the kernel killed the process",
    ),
    FaultType(
        name="slow_cpu",
        group=Group.PROCESS,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={"percent": whole_number(1, 99, is_needed=True)},
        exclusive="slow_cpu",
        sentence="Left {who} {percent} % of a core",
        evidence="the process was throttled",
    ),
    FaultType(
        name="power",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes, at one instant",
        parameters={
            "mode": choice("power mode", POWER_MODES),
            "keep_records": counts_by_node(),
            "torn_bytes": count(),
        },
        is_outage=True,
        can_lose_data=True,
        ends_uncleanly=True,
        sentence="Cut the power of {who}",
        evidence="the process is gone; the bytes lost are listed",
    ),
    FaultType(
        name="clock_step",
        group=Group.CLOCK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={"ms": non_zero(-LARGEST_STEP_MS, LARGEST_STEP_MS)},
        exclusive="clock",
        sentence="Stepped the clock of {who} by {ms} ms",
        evidence="the node's own wall clock shows it",
    ),
    FaultType(
        name="clock_drift",
        group=Group.CLOCK,
        targets=Targets.SERVERS,
        about_targets="nodes, both clocks",
        parameters={"ppm": non_zero(PPM_MIN, PPM_MAX)},
        exclusive="clock",
        sentence="Made the clock of {who} drift by {ppm} ppm",
        evidence="the node's own clock shows the rate",
    ),
    FaultType(
        name="clock_strobe",
        group=Group.CLOCK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={
            "ms": non_zero(-LARGEST_STEP_MS, LARGEST_STEP_MS),
            "period_ms": whole_number(1, LONGEST_MS, is_needed=True),
        },
        exclusive="clock",
        sentence="Strobed the clock of {who} by {ms} ms every {period_ms} ms",
        evidence="the wall clock went back",
    ),
    FaultType(
        name="wipe",
        group=Group.DISK,
        targets=Targets.BROKERS,
        about_targets="brokers",
        is_outage=True,
        can_lose_data=True,
        ends_uncleanly=True,
        sentence="Wiped the disk of {who}",
        evidence="the disk held data, and it is gone",
    ),
    FaultType(
        name="wipe_log_dir",
        group=Group.DISK,
        targets=Targets.BROKERS,
        about_targets="brokers with so many log directories, which are killed if they run",
        parameters={"log_dir": whole_number(1, LOG_DIRS_MAX, default=2)},
        is_outage=True,
        can_lose_data=True,
        ends_uncleanly=True,
        sentence="Replaced log directory {log_dir} of {who} by an empty one",
        evidence="the directory held data, and it is gone",
    ),
    FaultType(
        name="disk_full",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={"free_bytes": count()},
        excuses_death=True,
        exclusive="disk_full",
        sentence="Filled the disk of {who}",
        evidence="a write was refused (ENOSPC)",
    ),
    FaultType(
        name="io_error",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={
            "op": choice("disk operation", IO_OPERATIONS),
            "every": whole_number(1, EVERY_MAX, default=1),
        },
        excuses_death=True,
        exclusive="io_error",
        sentence="Made the disk of {who} fail",
        evidence="a call failed (EIO)",
    ),
    FaultType(
        name="log_dir_error",
        group=Group.DISK,
        targets=Targets.BROKERS,
        about_targets="brokers with so many log directories, which are restarted when it is healed",
        parameters={"log_dir": whole_number(1, LOG_DIRS_MAX, default=2)},
        excuses_death=True,
        exclusive="io_error",
        sentence="Made log directory {log_dir} of {who} fail",
        evidence="a call failed (EIO)",
    ),
    FaultType(
        name="slow_disk",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        parameters={"ms": whole_number(1, LONGEST_MS, is_needed=True)},
        exclusive="slow_disk",
        sentence="Made each fsync of {who} {ms} ms slower",
        evidence="an fsync was late",
    ),
    FaultType(
        name="stuck_disk",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes",
        excuses_death=True,
        exclusive="stuck_disk",
        sentence="Made the disk of {who} hang",
        evidence="a call had to wait",
    ),
    FaultType(
        name="read_only",
        group=Group.DISK,
        targets=Targets.SERVERS,
        about_targets="nodes, which are restarted",
        is_outage=True,
        excuses_death=True,
        ends_uncleanly=True,
        exclusive="read_only",
        sentence="Restarted {who} with a read-only disk",
        evidence="a write was refused (EROFS)",
    ),
    FaultType(
        name="bit_flip",
        group=Group.DISK,
        targets=Targets.BROKERS,
        about_targets="brokers",
        is_outage=True,
        can_lose_data=True,
        ends_uncleanly=True,
        sentence="Flipped a bit of a log of {who}",
        evidence="a bit of a log was flipped where recovery has to check",
    ),
    FaultType(
        name="truncate_file",
        group=Group.DISK,
        targets=Targets.BROKERS,
        about_targets="brokers, which are killed if they run",
        parameters={"bytes": whole_number(1, 1 << 30, is_needed=True)},
        is_outage=True,
        can_lose_data=True,
        ends_uncleanly=True,
        sentence="Cut the last {bytes} bytes off a log of {who}",
        evidence="the newest segment of the largest partition log is shorter",
    ),
    FaultType(
        name="alter_config",
        group=Group.ADMIN,
        targets=Targets.CLUSTER,
        about_targets="",
        parameters={
            "topic": text(absent="the setting is that of brokers"),
            "broker": broker_id(absent="the setting is the default of all brokers"),
            "key": text(is_needed=True),
            "value": setting(),
        },
        is_momentary=True,
        sentence="Changed the setting {key} through {who}",
        evidence="the request was accepted",
    ),
    FaultType(
        name="alter_feature",
        group=Group.ADMIN,
        targets=Targets.CLUSTER,
        about_targets="",
        parameters={
            "feature": text(is_needed=True),
            "level": whole_number(0, LEVEL_MAX, is_needed=True),
        },
        is_momentary=True,
        sentence="Changed the feature {feature} to level {level} through {who}",
        evidence="the request was accepted",
    ),
    FaultType(
        name="reassign",
        group=Group.ADMIN,
        targets=Targets.CLUSTER,
        about_targets="",
        parameters={
            **_PARTITION,
            "replicas": broker_ids(
                absent="the first replica leaves for another broker, or becomes the last if there is none; "
                "[] cancels the reassignment that is under way"
            ),
        },
        is_momentary=True,
        sentence="Reassigned {partition} through {who}",
        evidence="the replicas in committed metadata changed",
    ),
    FaultType(
        name="move_replica",
        group=Group.ADMIN,
        targets=Targets.BROKERS,
        about_targets="brokers with two log directories or more",
        parameters=_PARTITION,
        is_momentary=True,
        sentence="Moved {partition} on {who} to the other log directory",
        evidence="the broker lists the replica in the other directory",
    ),
    FaultType(
        name="elect_leader",
        group=Group.ADMIN,
        targets=Targets.CLUSTER,
        about_targets="",
        parameters={**_PARTITION, "election": choice("election", ELECTIONS)},
        is_momentary=True,
        sentence="Requested the election of a leader of {partition} through {who}",
        evidence="the request was accepted and the leader epoch in committed metadata grew",
    ),
    FaultType(
        name="start",
        group=Group.REPAIR,
        targets=Targets.SERVERS,
        about_targets="nodes that are down",
        is_momentary=True,
        is_repair=True,
        ends_outages=True,
        sentence="Started {who}",
        evidence="there is a new incarnation",
    ),
    FaultType(
        name="heal",
        group=Group.REPAIR,
        targets=Targets.NONE,
        about_targets="",
        parameters={"faults": fault_ids()},
        is_momentary=True,
        is_repair=True,
        heals_others=True,
        sentence="Healed {faults}",
        evidence="always",
    ),
)

FAULTS: Mapping[str, FaultType] = {row.name: row for row in _ROWS}
"""Every fault by name."""

FAULT_NAMES = tuple(FAULTS)


def names(*, where: str) -> frozenset[str]:
    """Returns the names of the faults that have a trait.

    Args:
        where: The name of a boolean attribute of `FaultType`, for example "is_outage".
    """
    return frozenset(name for name, row in FAULTS.items() if getattr(row, where))
