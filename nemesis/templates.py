"""Templates: bursts of faults that aim at one kind of moment, beside the siege of `nemesis.schedule`.

The windows in which a replicated log goes wrong are short. A template brings the cluster close to one of them and
lets a second fault wait for its event (`nemesis.trigger`) instead of for a time. They are drawn only where
`[nemesis] templates` names them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from nemesis.fault import Fault
from nemesis.sizes import log_uniform
from nemesis.trigger import parse_trigger

DELAYS_MS = (0, 0, 1, 5, 20, 100)
"""Times between an event and the fault that waits for it: mostly shorter than a round trip."""

_LEAVES = ("kill", "isolate", "pause", "power")
_STRIKES = ("kill", "power", "isolate", "pause")

_SLOW: Mapping[str, Mapping[str, int]] = {
    "slow_disk": {"ms": 60},
    "delay": {"ms": 80, "jitter_ms": 40},
    "slow_cpu": {"percent": 3},
}
"""What makes a majority slow, and how slow."""


class Drawing(Protocol):
    """What templates use of a schedule that is being drawn.

    Attributes:
        stream: The random stream.
        families: The families that the seed uses.
        actions: The administrative actions that may be drawn.
        brokers: The names of all brokers.
        controllers: The names of all controllers; none if the system has none.
        observes_nodes: Whether faults may wait for what happens inside of nodes, and act on messages.
    """

    stream: Random
    families: Sequence[str]
    actions: Sequence[str]
    brokers: Sequence[str]
    controllers: Sequence[str]
    observes_nodes: bool

    def pick(self, items: Sequence[str], /) -> str:
        """Returns one of several words."""
        ...

    def partition(self) -> str:
        """Returns the name of a partition."""
        ...

    def step_ms(self) -> int:
        """Returns a time between two faults of a burst."""
        ...

    def hold_ms(self) -> int:
        """Returns how long a fault lasts."""
        ...

    def on_node(self, at_ms: int, family: str, targets: tuple[str, ...]) -> Fault:
        """Returns a fault of a family, with its parameters drawn."""
        ...

    def action(self, at_ms: int, partition: str) -> Fault:
        """Returns an administrative action."""
        ...

    def fault(
        self, at_ms: int, fault: str, targets: tuple[str, ...], for_ms: int, **params: object
    ) -> Fault:
        """Returns a fault."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template.

    Attributes:
        about: What it does, for the documents.
        draw: Returns its faults from a time on.
        needs_controllers: Whether the system must have controllers.
        needs_simulation: Whether only the simulation can observe its events or inject its faults.
    """

    about: str
    draw: Callable[[Drawing, int], list[Fault]]
    needs_controllers: bool = False
    needs_simulation: bool = False


def _one_of(draw: Drawing, wanted: Sequence[str]) -> str:
    """Returns one of several families, one that the seed uses if there is one."""
    return draw.pick([one for one in wanted if one in draw.families] or list(wanted))


def _strike(draw: Drawing, at_ms: int, on: Sequence[str], targets: Sequence[str]) -> Fault:
    """Returns a fault for one of several targets that waits for one of several events."""
    fault = draw.on_node(at_ms, _one_of(draw, _STRIKES), (draw.pick(targets),))
    return _waiting(draw, fault, on)


def _waiting(draw: Drawing, fault: Fault, on: Sequence[str], nth: int = 0) -> Fault:
    """Returns a fault that waits for one of several events that can be observed; `nth` 0: drawn."""
    usable = [text for text in on if draw.observes_nodes or parse_trigger(text).kind.is_committed]
    delay_ms = DELAYS_MS[int(draw.stream.random() * len(DELAYS_MS))]
    nth = nth or (2 if draw.stream.random() < 0.2 else 1)
    return replace(fault, on=draw.pick(usable), nth=nth, delay_ms=delay_ms)


def _controller_siege(draw: Drawing, at_ms: int) -> list[Fault]:
    faults = []
    partition = draw.partition()
    hold_ms = 2 * draw.hold_ms()
    for target in ("one_controller", "active_controller"):
        family = _one_of(draw, ("pause", "kill", "isolate"))
        faults.append(replace(draw.on_node(at_ms, family, (target,)), for_ms=hold_ms))
        at_ms += draw.step_ms()
        if draw.actions:
            faults.append(draw.action(at_ms, partition))
            at_ms += draw.step_ms()
    target = draw.pick(("active_controller", "majority_controllers", "controllers"))
    faults.append(draw.on_node(at_ms, _one_of(draw, ("power", "kill")), (target,)))
    return faults


def _quorum_election(draw: Drawing, at_ms: int) -> list[Fault]:
    name = draw.pick(("slow_disk", "slow_disk", *_SLOW))
    slow = draw.pick(("majority_controllers", "majority_controllers", "controllers"))
    faults = [
        draw.fault(at_ms, name, (slow,), 4 * draw.hold_ms(), **_SLOW[name]),
        _away(draw, at_ms, "active_controller"),
    ]
    if draw.stream.random() < 0.5:
        return [*faults, _together(draw, at_ms)]
    event = "mark:quorum-leader-elected" if draw.observes_nodes else "controller-election"
    # A slow controller leads for some time before another disk has a record of its epoch.
    for controller in draw.controllers:
        for nth in range(1, 2 + int(draw.stream.random() * 3)):
            fault = _away(draw, at_ms, controller)
            waiting = _waiting(draw, fault, (f"{event} at {controller}",), nth)
            faults.append(replace(waiting, delay_ms=1 + int(draw.stream.random() * 60)))
    return faults


def _away(draw: Drawing, at_ms: int, controller: str) -> Fault:
    """Returns a fault that takes a controller away for about as long as an election takes."""
    fault = draw.on_node(at_ms, _one_of(draw, _LEAVES), (controller,))
    params = {} if fault.fault == "isolate" else fault.params  # a controller has one plane
    return replace(fault, params=params, for_ms=draw.step_ms())


def _together(draw: Drawing, at_ms: int) -> Fault:
    """Returns a fault that takes several controllers down at once, when they vote or one is elected."""
    events = ("controller-election", "mark:quorum-leader-elected", "sent:VoteResponse")
    target = draw.pick(("majority_controllers", "controllers", "controllers"))
    fault = draw.on_node(at_ms, _one_of(draw, ("power", "power", "power", "kill")), (target,))
    return _waiting(draw, fault, events, 1 + int(draw.stream.random() * 3))


def _catch_up(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, follower = draw.partition(), draw.pick(draw.brokers)
    events = (
        f"unfencing at {follower}",
        f"isr-expand of {partition}",
        f"received:Fetch from {follower} to leader:{partition}",
        f"sent:AlterPartition from leader:{partition}",
        f"sent:AlterPartitionResponse to leader:{partition}",
        "mark:isr-expand-proposed",
    )
    targets = (f"leader:{partition}", follower, f"last_in_isr:{partition}", "active_controller")
    return [
        draw.on_node(at_ms, _one_of(draw, _LEAVES), (follower,)),
        _strike(draw, at_ms + draw.step_ms(), events, targets),
    ]


def _recovery(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    events = (f"registration at {broker}", f"unfencing at {broker}", f"fsync at {broker}")
    return [
        draw.on_node(at_ms, _one_of(draw, ("power", "kill")), (broker,)),
        _strike(draw, at_ms + draw.step_ms(), events, (broker, broker, "one")),
    ]


def _controller_fail_over(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    events = (
        "controller-election",
        "mark:quorum-leader-elected",
        "mark:controller-activated",
        "sent:BeginQuorumEpoch",
    )
    targets = (f"leader:{partition}", "active_controller", f"isr_follower:{partition}")
    return [
        draw.on_node(at_ms, _one_of(draw, _LEAVES), ("active_controller",)),
        _strike(draw, at_ms, events, targets),
    ]


def _reassignment(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    if "reassign" not in draw.actions:
        return _election(draw, at_ms)
    events = (
        f"replicas-change of {partition}",
        f"isr-expand of {partition}",
        f"isr-shrink of {partition}",
        f"sent:AlterPartition from leader:{partition}",
    )
    targets = (f"leader:{partition}", f"follower:{partition}", "active_controller")
    return [
        _strike(draw, at_ms, events, targets),
        draw.fault(at_ms + draw.step_ms(), "reassign", (), 0, partition=partition),
    ]


def _election(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    events = (
        f"election of {partition}",
        f"leader-change of {partition}",
        f"isr-shrink of {partition}",
        f"elr-change of {partition}",
        f"mark:became-leader at leader:{partition}",
        f"received:Fetch from follower:{partition} to leader:{partition}",
    )
    targets = (
        f"leader:{partition}",
        f"isr_follower:{partition}",
        f"last_in_isr:{partition}",
        f"elr_member:{partition}",
    )
    return [
        draw.on_node(at_ms, _one_of(draw, _LEAVES), (f"leader:{partition}",)),
        _strike(draw, at_ms, events, targets),
    ]


def _configuration(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    if not draw.actions:
        return _election(draw, at_ms)
    action = replace(draw.action(at_ms, partition), on=f"isr-shrink of {partition}")
    targets = (f"leader:{partition}", f"last_in_isr:{partition}")
    return [
        action,
        _strike(draw, at_ms, (f"isr-shrink of {partition}",), targets),
        draw.on_node(at_ms, _one_of(draw, _LEAVES), (f"isr_follower:{partition}",)),
    ]


def _flapping(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    target = draw.pick((f"follower:{partition}", f"leader:{partition}", *draw.brokers))
    away_ms = max(draw.hold_ms() // 6, 1)
    faults = []
    for _ in range(4 + int(draw.stream.random() * 5)):
        faults.append(draw.fault(at_ms, "isolate", (target,), away_ms, planes=("inter-broker",)))
        at_ms += 2 * away_ms
    return faults


def _slow_majority(draw: Drawing, at_ms: int) -> list[Fault]:
    hold_ms = 2 * draw.hold_ms()
    name = draw.pick(tuple(_SLOW))
    partition = draw.partition()
    return [
        draw.fault(at_ms, name, ("majority",), hold_ms, **_SLOW[name]),
        draw.on_node(at_ms + draw.step_ms(), _one_of(draw, _STRIKES), (f"leader:{partition}",)),
    ]


def _rolling_restart(draw: Drawing, at_ms: int) -> list[Fault]:
    restarts = []
    family = draw.pick(("restart", "stop"))
    for broker in draw.brokers:
        restart = draw.on_node(at_ms, family, (broker,))
        restarts.append(
            restart if restart.for_ms is None else replace(restart, for_ms=draw.step_ms())
        )
        at_ms += draw.step_ms()
    return restarts


def _late_messages(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, follower = f"leader:{partition}", f"follower:{partition}"
    messages = draw.pick(
        (
            f"AlterPartition from {leader}",
            f"AlterPartitionResponse to {leader}",
            f"Fetch from {follower} to {leader}",
            f"FetchResponse from {leader} to {follower}",
            "FetchResponse from controller to broker",
            "BrokerHeartbeat from broker",
        )
    )
    name = draw.pick(("hold_messages", "delay_messages", "drop_messages", "duplicate_messages"))
    is_request = not messages.partition(" ")[0].endswith("Response")
    if name == "duplicate_messages" and not is_request:
        name = "hold_messages"
    more: dict[str, object] = {}
    if name in ("delay_messages", "duplicate_messages"):
        more["ms"] = 20 + int(draw.stream.random() * 400)
    if name in ("drop_messages", "duplicate_messages"):
        more["count"] = 1 + int(draw.stream.random() * 3)
    events = (f"isr-shrink of {partition}", f"leader-change of {partition}", "unfencing")
    targets = (leader, follower, "active_controller")
    return [
        draw.fault(at_ms, name, (), draw.hold_ms(), messages=messages, **more),
        draw.on_node(at_ms + draw.step_ms(), _one_of(draw, _LEAVES), (draw.pick(targets),)),
        _strike(draw, at_ms, events, targets),
    ]


def _late_requests(draw: Drawing, at_ms: int) -> list[Fault]:
    leader = f"leader:{draw.partition()}"
    ms = log_uniform(draw.stream, 300, 3000)
    jitter_ms = int(draw.stream.random() * (ms + 1))
    planes = draw.pick(("client", "inter-broker"))
    return [
        draw.fault(
            at_ms,
            "delay",
            (leader,),
            2 * draw.hold_ms(),
            ms=ms,
            jitter_ms=jitter_ms,
            planes=(planes,),
        ),
        draw.on_node(
            at_ms + draw.step_ms(),
            _one_of(draw, ("restart", "stop", *_LEAVES)),
            (draw.pick(draw.brokers),),
        ),
    ]


def _late_markers(draw: Drawing, at_ms: int) -> list[Fault]:
    leader, coordinator = f"leader:{draw.partition()}", draw.pick(draw.brokers)
    messages = f"WriteTxnMarkers from {coordinator} to {leader}"
    hold_ms = 2 * draw.hold_ms()
    leaves = draw.on_node(at_ms, _one_of(draw, ("isolate", "pause")), (coordinator,))
    if leaves.fault == "isolate":
        # Its requests to other brokers are on their way; only the controllers do not hear of it.
        leaves = replace(leaves, params={"planes": ("controller",)})
    count = 1 + int(draw.stream.random() * 3)
    return [
        draw.fault(at_ms, "hold_messages", (), hold_ms, messages=messages, count=count),
        _waiting(draw, leaves, (f"sent:{messages}",), 1),
    ]


TEMPLATES: Mapping[str, Template] = {
    "controller-siege": Template(
        about="Controllers go away one after the other, with administrative actions in between; then several or "
        "the active one lose power or are killed.",
        draw=_controller_siege,
        needs_controllers=True,
    ),
    "catch-up": Template(
        about="A broker goes away; when it comes back and catches up, another fault strikes.",
        draw=_catch_up,
    ),
    "recovery": Template(
        about="A broker ends uncleanly, and again while it recovers.", draw=_recovery
    ),
    "controller-fail-over": Template(
        about="The active controller goes away; when another one is elected, a fault strikes.",
        draw=_controller_fail_over,
        needs_controllers=True,
    ),
    "quorum-election": Template(
        about="The active controller goes away; when controllers vote or are elected, they lose power together, "
        "or each goes away for a short time, again and again. Some are slow.",
        draw=_quorum_election,
        needs_controllers=True,
    ),
    "reassignment": Template(
        about="A partition is reassigned; a fault strikes at one of the changes that follow.",
        draw=_reassignment,
    ),
    "election": Template(
        about="A leader goes away; a fault strikes at the election of another one.", draw=_election
    ),
    "configuration": Template(
        about="The ISR shrinks, which starts an administrative action, and a fault strikes.",
        draw=_configuration,
    ),
    "flapping": Template(about="One broker is cut off and back again, many times.", draw=_flapping),
    "slow-majority": Template(
        about="The disks, network or CPUs of a majority are slow, and a fault strikes a leader.",
        draw=_slow_majority,
    ),
    "rolling-restart": Template(
        about="Every broker is restarted or stopped, one after the other.", draw=_rolling_restart
    ),
    "late-messages": Template(
        about="Messages between servers wait, are lost or are processed twice, while brokers go away.",
        draw=_late_messages,
        needs_simulation=True,
    ),
    "late-requests": Template(
        about="What clients or brokers send to a leader is late, often longer than they wait for a response, "
        "while a broker goes away.",
        draw=_late_requests,
    ),
    "late-markers": Template(
        about="Transaction markers of a coordinator wait on their way to a leader, while another broker "
        "replaces that coordinator.",
        draw=_late_markers,
        needs_simulation=True,
    ),
}
"""Every template by name."""
