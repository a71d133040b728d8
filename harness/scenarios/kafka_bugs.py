"""Bugs of released versions of Apache Kafka, each in the fewest steps that show it.

`docs/findings` explains them. Brokers are 1, 2 and 3, and the partition is led by broker 1. Ten records are
acknowledged by all replicas first, and nothing is fsynced; a power cut keeps the first five. What a scenario needs
an administrator for is a fault of the group "admin", which the reference system serves in part.

Outcome words as in `last_replica_standing`, and "stuck": the partition has no leader although every broker is up,
or the cluster has no active controller although a majority of the controllers is up.
"""

from dataclasses import dataclass

from harness.scenarios.common import (
    ALONE_BY_CUTS,
    KAFKA,
    LOSES_ITS_TAIL_AND_RETURNS,
    OFF,
    OFF_NO_GATE,
    ON,
    RETURN_2_1_3,
    TEN_RECORDS,
    alone_by_isolation,
    cut_off,
    heal,
    inject,
    isolate,
    power,
    start,
)
from harness.scenarios.steps import (
    Append,
    Join,
    Observe,
    Scenario,
    Step,
    VersionOutcome,
    Wait,
)

ELR_FEATURE = "eligible.leader.replicas.version"
ELR_ON, ELR_OFF = {ELR_FEATURE: 1}, {ELR_FEATURE: 0}
MIN_ISR = "min.insync.replicas"
TOPIC = "t"

RESIGNED_MS = 20_000
"""How long it may take until a controller whose clock was stepped has resigned and another one is active."""
OBSERVED_MS = 10_000
"""How long a partition may stay without a leader; an election takes less than a second."""
PROPOSED_MS = 30_000
"""How long a leader may take to remove a replica that no longer fetches, if it is not refused."""
NEVER = Wait(leader=9)
"""No broker has this number."""
APPLIED_MS = 2_000
"""How long a broker may take to apply metadata or to send a request that it has reason for."""
ANSWERED_MS = 200
"""How long a response may take that the controller has sent."""
LAG_MS = 30_000
"""`replica.lag.time.max.ms`, as it is by default. Twice in this time a leader looks for followers that lag."""
ASSIGNED_MS = 5_000
"""How long a broker may take to report the new directory of a replica and the controller to commit it."""


_BY_PROFILE = {OFF_NO_GATE: "loss", OFF: "loss", ON: "ok"}
"""With ELR off broker 1 is the only member of the ISR, so it leads when it returns, whatever it lost."""


def _expect(
    first: str, last: str, outcome: str, *watched: str
) -> tuple[str, tuple[VersionOutcome, ...]]:
    row = VersionOutcome(first=first, last=last, outcome=outcome, watched=watched)
    return KAFKA, (row,)


def _scenario(variant: str, title: str, steps: tuple[Step, ...], **more: object) -> Scenario:
    values: dict[str, object] = {
        "expected": {},
        "features": ELR_ON,
        "min_insync_replicas": 2,
        **more,
    }
    return Scenario(
        name=f"kafka-bug:{variant}",
        title=title,
        replication_factor=3,
        steps=steps,
        **values,  # type: ignore[arg-type]
    )


def _b28() -> Scenario:
    moves: list[Step] = []
    for broker in (2, 3):
        moves += [
            inject(f"move-b{broker}", "move_replica", f"b{broker}", partition=f"{TOPIC}-0"),
            # A version without the bug keeps the ELR, so this must be able to stay false.
            Observe(until=Wait(elr=()), limit_ms=ASSIGNED_MS),
        ]
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        *ALONE_BY_CUTS,
        *moves,
        *LOSES_ITS_TAIL_AND_RETURNS,
    )
    kafka = (
        VersionOutcome(first="4.0.0", last="4.2.1", outcome="loss", watched=("4.1.0", "4.1.2")),
        VersionOutcome(first="4.3.0", last="4.4.0", outcome="ok", watched=("4.3.1", "4.4.0")),
    )
    title = "followers move their replicas to another log directory, which erases the ELR"
    return _scenario(
        "B-28", title, steps, versions={KAFKA: kafka}, expected=_BY_PROFILE, log_dirs=2
    )


def _b29() -> Scenario:
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        isolate(3),
        Wait(fenced=(3,), isr=(1, 2)),
        # It is acknowledged once broker 1 knows that 3 has left, so its later proposal is not refused as outdated.
        Append(count=1),
        inject("stall-b1", "stall_metadata", "b1"),
        inject("min-isr", "alter_config", topic=TOPIC, key=MIN_ISR, value="2"),
        cut_off(2),
        # Broker 1, which still knows min ISR 1, continues alone and acknowledges.
        Append(count=1, until_ok=False, in_background=True),
        Observe(until=Wait(isr=(1,)), limit_ms=PROPOSED_MS),
        Join(),
        heal("stall-b1"),
        inject("kill-b1", "kill", "b1"),
        Wait(fenced=(1,)),
        heal("cut-12"),
        Observe(until=Wait(leader=2), limit_ms=OBSERVED_MS),
        heal("isolate-b3"),
        start(1),
        Wait(unfenced=(1, 2, 3), has_leader=True),
        Append(count=5),
    )
    return _scenario(
        "B-29",
        "min ISR is raised while the leader does not apply committed metadata",
        steps,
        versions=dict(
            [_expect("4.0.0", "4.4.0", "loss", "4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0")]
        ),
        expected=dict.fromkeys((OFF_NO_GATE, OFF, ON), "ok"),
        min_insync_replicas=1,
    )


def _b31() -> Scenario:
    steps: tuple[Step, ...] = (
        # A topic cannot be created with different replication factors; reassignments make it so.
        inject("shrink-t-0", "reassign", partition=f"{TOPIC}-0", replicas=(3,)),
        Wait(partition=0, isr=(3,), leader=3),
        inject("reorder-t-1", "reassign", partition=f"{TOPIC}-1", replicas=(1, 2, 3)),
        Wait(isr=(1, 2, 3)),
        inject("prefer-b1", "elect_leader", partition=f"{TOPIC}-1"),
        Wait(isr=(1, 2, 3), leader=1),
        *TEN_RECORDS,
        *alone_by_isolation(),
        Append(count=1, until_ok=False),
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        *RETURN_2_1_3,
        Append(count=5),
    )
    return _scenario(
        "B-31",
        "partition 0 has one replica, so the ELR of partition 1 stays empty",
        steps,
        versions=dict([_expect("4.0.0", "4.4.0", "loss", "4.0.2", "4.1.2", "4.3.1", "4.4.0")]),
        expected=_BY_PROFILE,
        partitions=2,
        partition=1,
    )


def _b34() -> Scenario:
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        # Broker 5 is away, so that the reassignment, which adds 4 and 5, is not completed.
        isolate(5),
        Wait(fenced=(5,)),
        inject("add-4", "reassign", partition=f"{TOPIC}-0", replicas=(1, 4, 5)),
        Wait(isr=(1, 2, 3, 4)),
        isolate(2),
        Wait(fenced=(2,), isr=(1, 3, 4)),
        isolate(3),
        Wait(fenced=(3,), isr=(1, 4)),
        inject("stop-b4", "stop", "b4"),
        Wait(fenced=(4,), isr=(1,)),
        inject("cancel", "reassign", partition=f"{TOPIC}-0", replicas=()),
        # Its registration is clean. It is no replica any more, so it moves its log aside.
        start(4),
        Wait(unfenced=(4,)),
        cut_off(4),
        inject("add-4-again", "reassign", partition=f"{TOPIC}-0", replicas=(1, 4, 5)),
        inject("kill-b1", "kill", "b1"),
        Wait(fenced=(1,)),
        # Without the bug nobody can lead until broker 1 returns.
        Observe(until=Wait(has_leader=True), limit_ms=OBSERVED_MS),
        heal("isolate-b2", "isolate-b3", "isolate-b5", "cut-14"),
        start(1),
        Wait(unfenced=(1, 2, 3, 4, 5), has_leader=True),
        Append(count=5),
    )
    return _scenario(
        "B-34",
        "a replica that was removed stays in the ELR, and leads when it is added again, empty",
        steps,
        versions=dict([_expect("4.0.0", "4.4.0", "loss", "4.0.2", "4.1.2", "4.3.1", "4.4.0")]),
        expected=dict.fromkeys((OFF_NO_GATE, OFF, ON), "ok"),
        brokers=5,
    )


def _b47() -> Scenario:
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        *alone_by_isolation(),
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        heal("isolate-b2"),
        Wait(unfenced=(2,)),
        heal("isolate-b3"),
        Wait(unfenced=(3,)),
        inject("elr-on", "alter_feature", feature=ELR_FEATURE, level=1),
        start(1),
        Wait(unfenced=(1,)),
        Observe(until=Wait(has_leader=True), limit_ms=OBSERVED_MS),
    )
    return _scenario(
        "B-47",
        "ELR is switched on while the partition has no leader",
        steps,
        versions=dict([_expect("4.1.0", "4.4.0", "stuck", "4.1.2", "4.4.0")]),
        features=ELR_OFF,
    )


def _b68() -> Scenario:
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        inject("stop-b3", "stop", "b3"),
        Wait(fenced=(3,), isr=(1, 2)),
        inject("stop-b2", "stop", "b2"),
        Wait(fenced=(2,), isr=(1,)),
        # It is stopped again before it is in service; a start takes a while on a busy host.
        start(2),
        inject("slow-b2", "slow_cpu", "b2", percent=30),
        Wait(registered=(2,)),
        inject("stop-b2-again", "stop", "b2"),
        heal("slow-b2"),
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        start(1),
        Wait(unfenced=(1,)),
        inject("start-b2-again", "start", "b2"),
        Wait(unfenced=(2,), has_leader=True),
        start(3),
        Wait(unfenced=(1, 2, 3)),
        Append(count=5),
    )
    return _scenario(
        "B-68",
        "a member of the ELR is stopped while it starts, which counts as unclean",
        steps,
        versions=dict([_expect("4.0.0", "4.4.0", "loss", "4.0.2", "4.1.2", "4.4.0")]),
        expected=_BY_PROFILE,
    )


def _b69() -> Scenario:
    held = {follower: (f"ask-b{follower}", f"copy-b{follower}") for follower in (2, 3)}
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        isolate(2),
        isolate(3),
        # It is only in the log of broker 1. The high watermark stays at ten, so that 2 and 3 may join without it.
        Append(count=1, until_ok=False, in_background=True),
        Wait(fenced=(2, 3), isr=(1,)),
        Join(),
        # For so long the high watermark would wait for a follower that was caught up without a proposal (HW-4).
        # The rest leads to the middle between two looks of broker 1 for followers that lag.
        Observe(until=NEVER, limit_ms=LAG_MS + LAG_MS // 4),
        *(
            inject(name, "hold_messages", messages=messages)
            for follower, (asks, copies) in held.items()
            for name, messages in (
                (asks, f"Fetch from b{follower} to b1"),
                (copies, f"FetchResponse from b1 to b{follower}"),
            )
        ),
        heal("isolate-b2", "isolate-b3"),
        Wait(unfenced=(2, 3)),
        Observe(until=NEVER, limit_ms=APPLIED_MS),
        inject("stall-b1", "stall_metadata", "b1"),
        heal("ask-b3"),
        Wait(isr=(1, 3)),
        # Broker 1 proposes to add 2, before it finds that 3 lags, and then the metadata tell it that 3 was added.
        inject("propose", "hold_messages", messages="AlterPartition from b1"),
        Observe(until=NEVER, limit_ms=ANSWERED_MS),
        heal("ask-b2"),
        Observe(until=NEVER, limit_ms=APPLIED_MS),
        heal("stall-b1"),
        Observe(until=NEVER, limit_ms=APPLIED_MS),
        inject("stall-b1-again", "stall_metadata", "b1"),
        inject("respond", "hold_messages", messages="AlterPartitionResponse to b1"),
        heal("propose"),
        Wait(isr=(1, 2, 3)),
        Append(count=1, until_ok=False, in_background=True),
        heal("copy-b3"),
        Join(),
        inject("kill-b1", "kill", "b1"),
        Wait(fenced=(1,)),
        heal("copy-b2", "respond", "stall-b1-again"),
        start(1),
        Wait(unfenced=(1, 2, 3), has_leader=True),
        Append(count=5),
    )
    return _scenario(
        "B-69",
        "news of an ISR change arrive after the leader has proposed the next one, which it forgets",
        steps,
        versions=dict([_expect("4.0.0", "4.4.0", "loss", "4.0.2", "4.1.2", "4.4.0")]),
        expected=dict.fromkeys((OFF_NO_GATE, OFF, ON), "ok"),
        properties={"replica.lag.time.max.ms": str(LAG_MS)},
    )


def _raft_timers() -> Scenario:
    hour_ms = 3_600_000
    steps: tuple[Step, ...] = (
        *TEN_RECORDS,
        inject("ahead", "clock_step", "active_controller", ms=hour_ms),
        # Kafka's active controller resigns, because its check of the quorum uses the wall clock.
        Observe(until=Wait(new_controller=True), limit_ms=RESIGNED_MS),
        heal("ahead"),
        inject("kill-active", "kill", "active_controller"),
        Wait(new_controller=True),
        inject("start-killed", "start", "down"),
        Append(count=5),
    )
    return _scenario(
        "raft-timers",
        "the clock of a controller steps back, and its timers stand still",
        steps,
        versions=dict([_expect("4.0.0", "4.4.0", "stuck", "4.1.2", "4.4.0")]),
        expected=dict.fromkeys((OFF_NO_GATE, OFF, ON), "ok"),
    )


def _leaderless_min_isr(value: int, end: tuple[Step, ...] = ()) -> tuple[Step, ...]:
    """An administrator sets min ISR while only broker 2, which left the ISR first, is up."""
    return (
        *TEN_RECORDS,
        *alone_by_isolation(),
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        heal("isolate-b2"),
        Wait(unfenced=(2,)),
        inject("min-isr", "alter_config", topic=TOPIC, key=MIN_ISR, value=str(value)),
        heal("isolate-b3"),
        Wait(unfenced=(3,)),
        Observe(until=Wait(has_leader=True), limit_ms=OBSERVED_MS),
        start(1),
        Wait(unfenced=(1,)),
        Observe(until=Wait(has_leader=True), limit_ms=OBSERVED_MS),
        *end,
    )


VARIANTS: dict[str, Scenario] = {
    "B-28": _b28(),
    "B-29": _b29(),
    "B-31": _b31(),
    "B-34": _b34(),
    "B-47": _b47(),
    "B-68": _b68(),
    "B-69": _b69(),
    "raft-timers": _raft_timers(),
    "B-48": _scenario(
        "B-48",
        "min ISR is lowered while the partition has no leader, which erases the ELR",
        _leaderless_min_isr(1),
        versions=dict([_expect("4.1.0", "4.4.0", "stuck", "4.1.2", "4.4.0")]),
        expected=_BY_PROFILE,
    ),
    "B-48r": _scenario(
        "B-48r",
        "as B-48, but min ISR is set to the value that it has",
        _leaderless_min_isr(2),
        versions=dict([_expect("4.1.0", "4.4.0", "ok", "4.1.2")]),
        expected=_BY_PROFILE,
    ),
    "B-48u": _scenario(
        "B-48u",
        "as B-48, and the administrator ends it with an unclean election",
        _leaderless_min_isr(
            1,
            (
                inject("unclean", "elect_leader", partition=f"{TOPIC}-0", election="unclean"),
                Wait(has_leader=True),
                Append(count=5),
            ),
        ),
        versions=dict([_expect("4.1.0", "4.4.0", "loss(f)", "4.1.2")]),
    ),
}
"""Every variant that is a scenario, by its name, which is that of the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBug:
    """A bug that a single request shows, sent to processes of this machine.

    Attributes:
        title: One line.
        request: Id of the request in `laststand conformance --list`.
        versions: "blocked" where the request is never answered, "ok" where it is.
    """

    title: str
    request: str
    versions: tuple[VersionOutcome, ...]

    def predicted(self, version: str) -> str:
        """Returns the outcome word for a version; "" if the table has none."""
        return next((row.outcome for row in self.versions if row.covers(version)), "")


REQUESTS: dict[str, RequestBug] = {
    "null-records": RequestBug(
        title="a Produce request with null records is never answered",
        request="produce/null records",
        versions=(
            VersionOutcome(
                first="4.0.0", last="4.4.0", outcome="blocked", watched=("4.1.2", "4.4.0")
            ),
        ),
    )
}
"""Every variant that is a single request, by its name."""
