"""Templates about the replicas of a partition: who may lead it, its settings, where its replicas are.

In most of them followers stop receiving records, so that the ISR shrinks and replicas become eligible leaders. An
administrative action or a fault of a log directory follows, and then the members of the ISR leave. Followers often
lose only their links to other brokers: controllers still take them for alive, and may elect them at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nemesis.drawing import (
    DELAYS_MS,
    LEAVES,
    MIN_ISRS,
    STRIKES,
    Drawing,
    Template,
    chance,
    min_isr_set,
    one_of,
    strike,
)
from nemesis.fault import Fault

AWAY = 3
"""Followers are away for so many drawn times: leaders remove them only after their lag limit."""
ALIVE_SHARE = 0.75
"""This share of the followers that receive no records are alive for the controllers."""


def _waiting(draw: Drawing, fault: Fault, events: Sequence[str]) -> Fault:
    """Returns a fault that waits for one of several events, and some time longer: at most one step."""
    delay_ms = draw.pick(DELAYS_MS)
    if chance(draw, 0.3):
        delay_ms = draw.step_ms()
    return replace(fault, on=draw.pick(events), delay_ms=delay_ms)


def _leave(draw: Drawing, at_ms: int, targets: tuple[str, ...], for_ms: int) -> Fault:
    """Returns a fault that takes brokers away for a given time."""
    return replace(draw.on_node(at_ms, one_of(draw, LEAVES), targets), for_ms=for_ms)


def _lag(draw: Drawing, at_ms: int, targets: tuple[str, ...], for_ms: int) -> Fault:
    """Returns a fault with which brokers receive no records; controllers often take them for alive."""
    if chance(draw, ALIVE_SHARE):
        return draw.fault(at_ms, "isolate", targets, for_ms, planes=("inter-broker",))
    return _leave(draw, at_ms, targets, for_ms)


def _followers(draw: Drawing, partition: str) -> tuple[str, ...]:
    """Returns one follower, or all of them more often."""
    return (
        draw.pick(
            (f"followers:{partition}", f"followers:{partition}", f"isr_follower:{partition}")
        ),
    )


def _last_members(draw: Drawing, partition: str) -> tuple[str, ...]:
    """Returns members of the ISR that leave together."""
    leader, follower = f"leader:{partition}", f"isr_follower:{partition}"
    return (leader, follower) if chance(draw, 0.5) else (leader,)


def _eligible_leaders(draw: Drawing, at_ms: int) -> list[Fault]:
    """The members of the ISR leave when another replica came back, or when min ISR has changed."""
    partition = draw.partition()
    shrinks, becomes_eligible = f"isr-shrink of {partition}", f"elr-change of {partition}"
    for_ms = AWAY * draw.hold_ms()
    faults = [_lag(draw, at_ms, _followers(draw, partition), for_ms)]
    if chance(draw, 0.6):
        # One stays away for longer; it is still in the ELR when another one is back in the ISR.
        longer = _lag(draw, at_ms, (f"elr_member:{partition}",), 2 * for_ms)
        faults.append(replace(longer, on=becomes_eligible))
    if "alter_config" in draw.actions and chance(draw, 0.5):
        changed = min_isr_set(draw, at_ms, partition, draw.pick(MIN_ISRS))
        faults.append(_waiting(draw, changed, (becomes_eligible,)))
    left = _leave(draw, at_ms + draw.step_ms(), _last_members(draw, partition), 2 * for_ms)
    event = draw.pick((f"isr-expand of {partition}", shrinks, becomes_eligible))
    return [*faults, replace(left, on=event, delay_ms=draw.step_ms())]


def _configuration(draw: Drawing, at_ms: int) -> list[Fault]:
    """An action at a change of the ISR or ELR, or when there is no leader any more."""
    partition = draw.partition()
    if not draw.actions:
        return _eligible_leaders(draw, at_ms)
    action = draw.action(at_ms, partition)
    if "alter_config" in draw.actions and chance(draw, 0.5):
        action = min_isr_set(draw, at_ms, partition, draw.pick(MIN_ISRS))
    moments = (f"isr-shrink of {partition}", f"elr-change of {partition}")
    events = (*moments, f"leader-loss of {partition}")
    for_ms = AWAY * draw.hold_ms()
    targets = (f"leader:{partition}", f"last_in_isr:{partition}")
    return [
        replace(action, on=draw.pick(events)),
        strike(draw, at_ms, moments, targets),
        _leave(draw, at_ms, _followers(draw, partition), for_ms),
    ]


def _move(draw: Drawing, at_ms: int, partition: str, targets: tuple[str, ...]) -> list[Fault]:
    """Returns the move of replicas to another log directory; none where replicas do not move."""
    if "move_replica" not in draw.actions:
        return []
    return [draw.fault(at_ms, "move_replica", targets, 0, partition=partition)]


def _moving_replicas(draw: Drawing, at_ms: int) -> list[Fault]:
    """Replicas move while the ISR shrinks, or between elections, at times without appends."""
    partition = draw.partition()
    leader, followers = f"leader:{partition}", f"followers:{partition}"
    for_ms = AWAY * draw.hold_ms()
    nth = 1
    faults = []
    if chance(draw, 0.5):
        faults.append(_lag(draw, at_ms, _followers(draw, partition), for_ms))
        events = [f"isr-shrink of {partition}", f"elr-change of {partition}"]
    else:
        if chance(draw, 0.6):
            faults.append(draw.fault(at_ms, "isolate", ("all",), 3 * for_ms, planes=("client",)))
        faults.append(_leave(draw, at_ms, (leader,), draw.hold_ms()))
        events = [f"election of {partition}"]
        nth = 2 if chance(draw, 0.5) else 1
    target = draw.pick((leader, leader, followers, f"isr_member:{partition}"))
    moves = _move(draw, at_ms, partition, (target,))
    faults += [replace(_waiting(draw, move, events), nth=nth) for move in moves]
    struck = draw.on_node(at_ms + draw.step_ms() // 4, one_of(draw, STRIKES), (leader,))
    return [*faults, replace(_waiting(draw, struck, events), delay_ms=draw.step_ms())]


def _replaced_directory(draw: Drawing, at_ms: int) -> list[Fault]:
    """The last members of the ISR stop or lose a log directory; an empty one may replace it meanwhile."""
    if draw.log_dirs == 1 or not draw.observes_nodes:
        return _moving_replicas(draw, at_ms)
    partition = draw.partition()
    leader = f"leader:{partition}"
    moved = _move(draw, at_ms, partition, (leader,)) if chance(draw, 0.7) else []
    faults = list(moved)
    at_ms += draw.step_ms()
    for_ms = AWAY * draw.hold_ms()
    lagging = draw.fault(at_ms, "isolate", (f"followers:{partition}",), 2 * for_ms)
    if chance(draw, 0.2):
        lagging = _leave(draw, at_ms, _followers(draw, partition), for_ms)
    faults.append(lagging)
    # Mostly the one with the replica: it begins in the first one, if the topic has few partitions.
    log_dir = 1 + int(draw.stream.random() * draw.log_dirs)
    if chance(draw, 0.6):
        log_dir = 2 if moved else 1
    shrinks = f"isr-shrink of {partition}"
    if chance(draw, 0.2):
        last = (draw.pick((leader, f"last_in_isr:{partition}")),)
        failed = draw.fault(at_ms, "log_dir_error", last, draw.hold_ms(), log_dir=log_dir)
        return [*faults, _waiting(draw, failed, (shrinks, f"elr-change of {partition}"))]
    stopped = draw.on_node(at_ms, draw.pick((*("stop",) * 5, "kill")), (leader,))
    stopped = replace(stopped, for_ms=2 * draw.step_ms())
    replaced = draw.fault(at_ms, "wipe_log_dir", ("down",), draw.hold_ms(), log_dir=log_dir)
    # The next burst begins after the last time here: it would be in the way of what waits.
    back = _leave(draw, at_ms + 2 * draw.hold_ms() + 2 * draw.step_ms(), (leader,), for_ms)
    return [
        *faults,
        replace(stopped, on=shrinks, nth=draw.pick((1, 2)), delay_ms=draw.step_ms() // 2),
        # The leader changes when a broker begins to stop, a little before its process has ended.
        replace(replaced, on=f"leader-change of {partition}", delay_ms=draw.step_ms() // 2),
        back,
    ]


REPLICA_TEMPLATES: Mapping[str, Template] = {
    "configuration": Template(
        about="An administrative action and a fault come when the ISR shrinks, when eligible leader replicas "
        "change, or when there is no leader any more.",
        draw=_configuration,
    ),
    "eligible-leaders": Template(
        about="Followers lag and become eligible leaders; when one is back, or min ISR has changed, the members "
        "of the ISR leave.",
        draw=_eligible_leaders,
    ),
    "moving-replicas": Template(
        about="Replicas move to another log directory while followers lag, or between elections, with or without "
        "appends. Then a fault strikes the leader.",
        draw=_moving_replicas,
    ),
    "replaced-directory": Template(
        about="Followers leave; the last member of the ISR stops, and one of its log directories is replaced by "
        "an empty one, or the directory fails while the broker runs.",
        draw=_replaced_directory,
    ),
}
"""The templates about replicas by name."""
