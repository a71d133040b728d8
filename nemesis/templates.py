"""Templates: bursts of faults that aim at one kind of moment, beside the siege of `nemesis.schedule`.

The windows in which a replicated log goes wrong are short. A template brings the cluster close to one of them and
lets a second fault wait for its event (`nemesis.trigger`) instead of for a time. They are drawn only where
`[nemesis] templates` names them. Those about the replicas of a partition are in `nemesis.replica_templates`, those
about settings, replica sets and shutdowns in `nemesis.settings_templates`, those in which messages are late in
`nemesis.message_templates`, those in which each fault lasts until the next event in `nemesis.window_templates` and
`nemesis.isr_templates`, and those about the quorum of controllers in `nemesis.controller_templates`.
"""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.controller_templates import CONTROLLER_TEMPLATES, SLOW
from nemesis.drawing import LEAVES, STRIKES, Drawing, Template, one_of, strike
from nemesis.fault import Fault
from nemesis.isr_templates import ISR_TEMPLATES
from nemesis.message_templates import MESSAGE_TEMPLATES
from nemesis.replica_templates import REPLICA_TEMPLATES
from nemesis.settings_templates import SETTINGS_TEMPLATES
from nemesis.window_templates import WINDOW_TEMPLATES


def _controller_siege(draw: Drawing, at_ms: int) -> list[Fault]:
    faults = []
    partition = draw.partition()
    hold_ms = 2 * draw.hold_ms()
    for target in ("one_controller", "active_controller"):
        family = one_of(draw, ("pause", "kill", "isolate"))
        faults.append(replace(draw.on_node(at_ms, family, (target,)), for_ms=hold_ms))
        at_ms += draw.step_ms()
        if draw.actions:
            faults.append(draw.action(at_ms, partition))
            at_ms += draw.step_ms()
    target = draw.pick(("active_controller", "majority_controllers", "controllers"))
    faults.append(draw.on_node(at_ms, one_of(draw, ("power", "kill")), (target,)))
    return faults


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
        draw.on_node(at_ms, one_of(draw, LEAVES), (follower,)),
        strike(draw, at_ms + draw.step_ms(), events, targets),
    ]


def _recovery(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    events = (f"registration at {broker}", f"unfencing at {broker}", f"fsync at {broker}")
    return [
        draw.on_node(at_ms, one_of(draw, ("power", "kill")), (broker,)),
        strike(draw, at_ms + draw.step_ms(), events, (broker, broker, "one")),
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
        draw.on_node(at_ms, one_of(draw, LEAVES), ("active_controller",)),
        strike(draw, at_ms, events, targets),
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
        strike(draw, at_ms, events, targets),
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
        draw.on_node(at_ms, one_of(draw, LEAVES), (f"leader:{partition}",)),
        strike(draw, at_ms, events, targets),
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
    name = draw.pick(tuple(SLOW))
    partition = draw.partition()
    return [
        draw.fault(at_ms, name, ("majority",), hold_ms, **SLOW[name]),
        draw.on_node(at_ms + draw.step_ms(), one_of(draw, STRIKES), (f"leader:{partition}",)),
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


WINDOWS: Mapping[str, Template] = {
    **WINDOW_TEMPLATES,
    **ISR_TEMPLATES,
    **CONTROLLER_TEMPLATES,
    **SETTINGS_TEMPLATES,
}
"""Those that bring the system into one narrow window by faults that wait for each other's events, by name."""

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
    "reassignment": Template(
        about="A partition is reassigned; a fault strikes at one of the changes that follow.",
        draw=_reassignment,
    ),
    "election": Template(
        about="A leader goes away; a fault strikes at the election of another one.", draw=_election
    ),
    "flapping": Template(about="One broker is cut off and back again, many times.", draw=_flapping),
    "slow-majority": Template(
        about="The disks, network or CPUs of a majority are slow, and a fault strikes a leader.",
        draw=_slow_majority,
    ),
    "rolling-restart": Template(
        about="Every broker is restarted or stopped, one after the other.", draw=_rolling_restart
    ),
    **MESSAGE_TEMPLATES,
    **REPLICA_TEMPLATES,
    **WINDOWS,
}
"""Every template by name."""
