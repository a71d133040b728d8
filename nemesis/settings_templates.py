"""Templates about min ISR, replica sets and shutdowns, in which one replica is alone in the ISR.

In most of them the leader loses its links to other brokers, so that the followers lag, leave the ISR and become
eligible leaders, although they are alive. Then a setting, the replicas or a directory change, or brokers stop; and
the leader loses data or goes away. What stays random is which partition, which variant, and the times between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nemesis.drawing import (
    LONG,
    MIN_ISRS,
    Drawing,
    Template,
    at_event,
    chance,
    held,
    loses_unflushed,
    min_isr_set,
    short_ms,
    until_event,
    up_to,
)
from nemesis.fault import Fault

VERY_SHORT_MS = (0, 1, 3, 10, 30)
"""As `nemesis.drawing.SHORT_MS`, but before what `_moment_ms` waits for."""
_NAMING = frozenset({"reassign", "alter_config", "elect_leader"})
"""The actions with which a partition gets named replicas and a named leader."""
REPLICA_COUNT = 3
"""How many replicas a partition gets whose replicas are named: there are so many brokers at least."""


def _held(draw: Drawing, at_ms: int, messages: str) -> Fault:
    """Returns a fault by which messages wait."""
    return draw.fault(at_ms, "hold_messages", (), LONG * draw.hold_ms(), messages=messages)


def _no_copies(draw: Drawing, at_ms: int, partition: str, nth: int = 1) -> Fault:
    """Returns a fault by which followers get no records until another leader is elected; controllers reach all."""
    cut = draw.fault(at_ms, "isolate", (f"leader:{partition}",), 1, planes=("inter-broker",))
    return until_event(draw, cut, f"election of {partition}", nth)


def _goes(draw: Drawing, at_ms: int, target: str) -> Fault:
    """Returns a fault by which a broker is away for controllers and other brokers."""
    family = draw.pick(("kill", "kill", "pause", "isolate"))
    return replace(draw.fault(at_ms, family, (target,), 1), for_ms=2 * draw.hold_ms())


def _loses_power(draw: Drawing, at_ms: int, target: str) -> Fault:
    """Returns a power cut that mostly takes all that was not synced; the broker is back soon."""
    lost = loses_unflushed(draw, at_ms, target)
    return replace(lost, for_ms=up_to(draw, 100))


def _loses_data(draw: Drawing, at_ms: int, target: str) -> Fault:
    """Returns a fault by which a broker loses what was not synced, or all that it has; it is back soon."""
    if chance(draw, 0.5):
        return _loses_power(draw, at_ms, target)
    return replace(draw.on_node(at_ms, "wipe", (target,)), for_ms=up_to(draw, 100))


def _last(draw: Drawing, at_ms: int, partition: str) -> Fault:
    """Returns a fault long after a time, which also keeps the next burst out of the way of what waits."""
    return _goes(draw, at_ms + 2 * draw.hold_ms() + 2 * draw.step_ms(), f"leader:{partition}")


def _moment_ms(draw: Drawing) -> int:
    """Returns a time after an event in which a change reaches a leader, and clients get responses."""
    return 40 + int(draw.stream.random() * draw.step_ms() / 2)


def _alone(draw: Drawing, at_ms: int) -> list[Fault]:
    """A leader that is alone in the ISR goes away: what is left where a system serves no such action."""
    partition = draw.partition()
    left = _goes(draw, at_ms, f"leader:{partition}")
    shrinks = f"isr-shrink of {partition}"
    return [_no_copies(draw, at_ms, partition), at_event(left, shrinks, 1, _moment_ms(draw))]


def _late_settings(draw: Drawing, at_ms: int) -> list[Fault]:
    """Min ISR is raised before the leader is alone, and it does not know; or it is lowered afterwards."""
    if "alter_config" not in draw.actions:
        return _alone(draw, at_ms)
    partition = draw.partition()
    leader, shrinks = f"leader:{partition}", f"isr-shrink of {partition}"
    is_behind = draw.observes_nodes and chance(draw, 0.5)
    before, after = (1, 2) if is_behind else (2, 1)
    faults = [min_isr_set(draw, at_ms, partition, before)]
    at_ms += 50 + draw.step_ms() // 4
    faults.append(_no_copies(draw, at_ms, partition))
    changed = min_isr_set(draw, at_ms + up_to(draw, 30), partition, after)
    if is_behind:
        stalled = draw.fault(at_ms, "stall_metadata", (leader,), 1)
        faults += [until_event(draw, stalled, f"election of {partition}"), changed]
        moment = shrinks
    else:
        moment = f"elr-change of {partition}"
        faults.append(at_event(changed, moment, delay_ms=draw.pick(VERY_SHORT_MS)))
    left = at_event(_goes(draw, at_ms, leader), moment, 1, 60 + _moment_ms(draw))
    return [*faults, left, _last(draw, at_ms, partition)]


def _one_publish(draw: Drawing, at_ms: int) -> list[Fault]:
    """A leader learns at once that min ISR is larger and that its ISR is smaller."""
    if "alter_config" not in draw.actions:
        return _alone(draw, at_ms)
    partition = draw.partition()
    leader, eligible = f"leader:{partition}", f"elr-change of {partition}"
    faults = [min_isr_set(draw, at_ms, partition, 1)]
    at_ms += 50 + draw.step_ms() // 4
    stalled = draw.fault(at_ms, "stall_metadata", (leader,), 1)
    # The controller fences the followers, and the leader learns of it when one of them is back.
    fenced = held(draw, at_ms, f"BrokerHeartbeat from follower:{partition}", eligible)
    return [
        *faults,
        _no_copies(draw, at_ms, partition),
        fenced,
        until_event(draw, stalled, "unfencing"),
        min_isr_set(draw, at_ms + up_to(draw, 30), partition, 2),
        at_event(_goes(draw, at_ms, leader), "unfencing", 1, _moment_ms(draw)),
        _last(draw, at_ms, partition),
    ]


def _deposed_in_one_publish(draw: Drawing, at_ms: int) -> list[Fault]:
    """A leader that is alone in the ISR learns at once that min ISR is smaller and that another one leads."""
    if "alter_config" not in draw.actions:
        return _alone(draw, at_ms)
    partition = draw.partition()
    leader, eligible = f"leader:{partition}", f"elr-change of {partition}"
    faults = [min_isr_set(draw, at_ms, partition, 2)]
    at_ms += 50 + draw.step_ms() // 4
    # It is fenced, and hears of nothing until another broker leads.
    parted = draw.fault(at_ms, "isolate", (leader,), 1, planes=("controller",))
    parted = replace(parted, for_ms=draw.hold_ms() + draw.step_ms())
    changed = min_isr_set(draw, at_ms, partition, 1)
    return [
        *faults,
        _no_copies(draw, at_ms, partition),
        at_event(parted, eligible, 1, _moment_ms(draw)),
        at_event(changed, f"leader-change of {partition}", delay_ms=draw.pick(VERY_SHORT_MS)),
        _last(draw, at_ms, partition),
    ]


def _nobody_leads(draw: Drawing, at_ms: int) -> list[Fault]:
    """A partition loses its leader while its replicas are away; min ISR may change meanwhile."""
    partition = draw.partition()
    leader, lost = f"leader:{partition}", f"leader-loss of {partition}"
    faults = []
    if draw.observes_nodes and chance(draw, 0.6):
        # All of them are fenced, and still serve administrative requests.
        silent = _held(draw, at_ms, "BrokerHeartbeat from broker")
        faults.append(replace(silent, for_ms=3 * draw.hold_ms()))
    else:
        long_ms = LONG * draw.hold_ms()
        faults.append(draw.fault(at_ms, "isolate", (f"followers:{partition}",), long_ms))
        struck = draw.pick(("kill", "isolate", "pause", "power"))
        event = draw.pick((f"isr-shrink of {partition}", f"elr-change of {partition}"))
        left = draw.on_node(at_ms + draw.hold_ms(), struck, (leader,))
        faults.append(at_event(left, event, draw.pick((1, 2, 2)), draw.step_ms()))
    if "alter_config" in draw.actions:
        changed = min_isr_set(draw, at_ms, partition, draw.pick(MIN_ISRS))
        faults.append(at_event(changed, lost, delay_ms=draw.pick(VERY_SHORT_MS)))
    return [*sorted(faults, key=lambda fault: fault.at_ms), _last(draw, at_ms, partition)]


def _last_member_loses_data(draw: Drawing, at_ms: int) -> list[Fault]:
    """The last member of the ISR loses power, after a neighbour got one replica or followers moved."""
    # Min ISR stays what it is: a loss after another value may be lawful.
    partition = draw.partition()
    if partition.endswith("-0"):
        partition = draw.partition()
    leader, first = f"leader:{partition}", f"{partition.rpartition('-')[0]}-0"
    moves = draw.log_dirs > 1 and "move_replica" in draw.actions
    faults = []
    event = f"elr-change of {partition}"
    if partition != first and "reassign" in draw.actions and not (moves and chance(draw, 0.3)):
        lone = (draw.pick(range(1, len(draw.brokers) + 1)),)
        faults.append(draw.fault(at_ms, "reassign", (), 0, partition=first, replicas=lone))
        event = f"isr-shrink of {partition}"
    elif moves:
        followers = (f"followers:{partition}",)
        moved = draw.fault(at_ms, "move_replica", followers, 0, partition=partition)
        faults.append(at_event(moved, event, delay_ms=draw.pick(VERY_SHORT_MS)))
        event = "received:AssignReplicasToDirs" if draw.observes_nodes else event
    at_ms += 50 + draw.step_ms() // 2
    faults.append(_no_copies(draw, at_ms, partition))
    # A wiped disk would have another directory, and its broker is not elected for long.
    lost = _loses_power(draw, at_ms, leader)
    return [*faults, at_event(lost, event, 1, _moment_ms(draw)), _last(draw, at_ms, partition)]


def _stopped_while_starting(draw: Drawing, at_ms: int) -> list[Fault]:
    """Eligible leaders are stopped, and again while they start; the last member of the ISR loses power."""
    partition = draw.partition()
    leader, eligible = f"leader:{partition}", f"elr-change of {partition}"
    faults = [_no_copies(draw, at_ms, partition)]
    stopped = draw.fault(at_ms, "stop", (f"followers:{partition}",), up_to(draw, 100))
    faults.append(at_event(stopped, eligible, delay_ms=draw.pick(VERY_SHORT_MS)))
    for broker in draw.brokers:
        again = draw.fault(at_ms, "stop", (broker,), up_to(draw, 50))
        faults.append(
            at_event(again, f"registration at {broker}", delay_ms=draw.pick((0, 1, 3, 10)))
        )
    lost = replace(_loses_power(draw, at_ms, leader), for_ms=draw.step_ms())
    faults.append(at_event(lost, eligible, 1, _moment_ms(draw)))
    return [*faults, _last(draw, at_ms, partition)]


def _stopped_before(draw: Drawing, at_ms: int) -> list[Fault]:
    """A leader stops cleanly and leads again; when it is alone in the ISR, it loses power."""
    partition = draw.partition()
    leader, joins = f"leader:{partition}", f"isr-expand of {partition}"
    faults = [draw.fault(at_ms, "stop", (leader,), up_to(draw, 100))]
    if "elect_leader" in draw.actions:
        preferred = draw.fault(at_ms, "elect_leader", (), 0, partition=partition)
        faults.append(at_event(preferred, joins, delay_ms=draw.pick(VERY_SHORT_MS)))
    away = draw.fault(at_ms, "isolate", (f"followers:{partition}",), 1)
    away = until_event(draw, away, f"election of {partition}")
    faults.append(at_event(away, joins, 1, 100 + 2 * _moment_ms(draw)))
    # The first broker that leaves the ISR is the one that is stopped.
    lost = _loses_power(draw, at_ms, leader)
    faults.append(at_event(lost, f"isr-shrink of {partition}", 2, _moment_ms(draw)))
    return [*faults, _last(draw, at_ms, partition)]


def _fenced_in_the_isr(draw: Drawing, at_ms: int) -> list[Fault]:
    """A broker that reaches no controller catches up and loses its log; the others leave when it is back."""
    partition, broker = draw.partition(), draw.pick(draw.brokers)
    faults = []
    if _NAMING.issubset(draw.actions):
        # It has to follow: it does not hear of another leader.
        first, second, third = _drawn_replicas(draw)
        faults = _named(draw, at_ms, partition, (first, second, third))
        at_ms = faults[-1].at_ms + _moment_ms(draw)
        broker = draw.brokers[second - 1]
    leader, joins = f"leader:{partition}", f"isr-expand of {partition}"
    fenced = draw.fault(at_ms, "isolate", (broker,), 1, planes=("controller",))
    lags = draw.fault(at_ms, "isolate", (broker,), 1, planes=("inter-broker",))
    copies, elected = f"FetchResponse from {leader} to {broker}", f"election of {partition}"
    silent = held(draw, at_ms, copies, elected)
    others = tuple(one for one in draw.brokers if one != broker)
    left = draw.fault(at_ms, draw.pick(("kill", "pause")), others, 2 * draw.hold_ms())
    return [
        *faults,
        until_event(draw, fenced, joins),
        until_event(draw, lags, f"isr-shrink of {partition}"),
        at_event(_loses_data(draw, at_ms, broker), joins),
        at_event(silent, f"registration at {broker}"),
        at_event(left, f"unfencing at {broker}", 1, short_ms(draw)),
        _last(draw, at_ms, partition),
    ]


def _named(draw: Drawing, at_ms: int, partition: str, replicas: Sequence[int]) -> list[Fault]:
    """Returns faults that give a partition replicas in an order, and the first of them as its leader."""
    faults = [
        min_isr_set(draw, at_ms, partition, 2),
        draw.fault(at_ms, "reassign", (), 0, partition=partition, replicas=tuple(replicas)),
    ]
    # Replicas that are added catch up first.
    at_ms += draw.pick((50, 150, 250))
    return [*faults, draw.fault(at_ms, "elect_leader", (), 0, partition=partition)]


def _drawn_replicas(draw: Drawing) -> list[int]:
    ids = list(range(1, len(draw.brokers) + 1))
    return [ids.pop(int(draw.stream.random() * len(ids))) for _ in range(REPLICA_COUNT)]


def _moved_to_who_is_away(draw: Drawing, at_ms: int) -> list[Fault]:
    if not _NAMING.issubset(draw.actions):
        return _alone(draw, at_ms)
    partition = draw.partition()
    kept, absent, third = _drawn_replicas(draw)
    faults = _named(
        draw, at_ms, partition, draw.pick(((kept, absent, third), (third, absent, kept)))
    )
    at_ms = faults[-1].at_ms + _moment_ms(draw)
    name = draw.brokers[absent - 1]
    faults.append(draw.fault(at_ms, "isolate", (name,), LONG * draw.hold_ms()))
    moved = draw.fault(at_ms, "reassign", (), 0, partition=partition, replicas=(kept, absent))
    faults.append(at_event(moved, f"fencing at {name}", 1, draw.pick(VERY_SHORT_MS)))
    lost = _loses_data(draw, at_ms, draw.brokers[kept - 1])
    faults.append(at_event(lost, f"replicas-change of {partition}", 1, _moment_ms(draw)))
    return [*faults, _last(draw, at_ms, partition)]


def _removed_and_added(draw: Drawing, at_ms: int) -> list[Fault]:
    """A replica is added and becomes eligible; it is removed by a cancellation, and added again without a log."""
    if not _NAMING.issubset(draw.actions):
        return _alone(draw, at_ms)
    partition = draw.partition()
    first, absent, added = _drawn_replicas(draw)
    changed, shrinks = f"replicas-change of {partition}", f"isr-shrink of {partition}"
    faults = _named(draw, at_ms, partition, (first, absent))
    at_ms = faults[-1].at_ms + _moment_ms(draw)
    name = draw.brokers[absent - 1]
    faults.append(draw.fault(at_ms, "isolate", (name,), LONG * draw.hold_ms()))
    # It is not complete as long as that broker is away.
    grows = draw.fault(
        at_ms, "reassign", (), 0, partition=partition, replicas=(first, absent, added)
    )
    faults.append(at_event(grows, f"fencing at {name}"))
    # The cancellation begins a leader epoch, too.
    cut = _no_copies(draw, at_ms, partition, 2)
    faults.append(at_event(cut, f"isr-expand of {partition}", 1, draw.pick((30, 100, 200))))
    cancelled = replace(grows, params={**grows.params, "replicas": ()})
    faults.append(at_event(cancelled, shrinks, 2, draw.pick(VERY_SHORT_MS)))
    faults.append(at_event(grows, changed, 2, _moment_ms(draw)))
    faults.append(
        at_event(_goes(draw, at_ms, f"leader:{partition}"), changed, 3, draw.pick(VERY_SHORT_MS))
    )
    return [*faults, _last(draw, at_ms, partition)]


def _removed_and_added_unnoticed(draw: Drawing, at_ms: int) -> list[Fault]:
    """A replica is removed and added again, without a log, before its leader hears of either."""
    if not _NAMING.issubset(draw.actions):
        return _alone(draw, at_ms)
    partition = draw.partition()
    kept, removed, third = _drawn_replicas(draw)
    leader, changed = f"leader:{partition}", f"replicas-change of {partition}"
    faults = _named(draw, at_ms, partition, (kept, removed, third))
    at_ms = faults[-1].at_ms + _moment_ms(draw)
    # Nobody appends, so that what the leader knows of the replica suffices for the ISR.
    quiet = _held(draw, at_ms, f"Produce from client to {leader}")
    # For longer than a fetch of metadata waits: its response would have a part of the changes only.
    stalled = draw.fault(at_ms, "stall_metadata", (leader,), 2 * draw.hold_ms())
    cut = draw.fault(at_ms, "cut", (leader, draw.brokers[removed - 1]), 1, planes=("inter-broker",))
    smaller = draw.fault(at_ms + 1, "reassign", (), 0, partition=partition, replicas=(kept, third))
    added = {**smaller.params, "replicas": (kept, removed, third)}
    whole = replace(smaller, at_ms=at_ms, params=added)
    gone = _goes(draw, at_ms, leader)
    return [
        *faults,
        quiet,
        stalled,
        until_event(draw, cut, f"election of {partition}", 2),
        at_event(whole, changed, 1, draw.pick((30, 100, 200))),
        smaller,
        at_event(gone, f"isr-expand of {partition}", 1, _moment_ms(draw)),
        _last(draw, at_ms, partition),
    ]


def _prefers_a_lagging_replica(draw: Drawing, at_ms: int) -> list[Fault]:
    """A follower lags and becomes the first replica; its election is requested."""
    if not _NAMING.issubset(draw.actions):
        return _alone(draw, at_ms)
    partition = draw.partition()
    first, second, third = _drawn_replicas(draw)
    faults = _named(draw, at_ms, partition, (first, second, third))
    at_ms = faults[-1].at_ms + _moment_ms(draw)
    pair = (draw.brokers[first - 1], draw.brokers[second - 1])
    lags = draw.fault(at_ms, "cut", pair, 1, planes=("inter-broker",))
    faults.append(until_event(draw, lags, f"election of {partition}"))
    preferred = draw.fault(
        at_ms, "reassign", (), 0, partition=partition, replicas=(second, first, third)
    )
    faults.append(at_event(preferred, f"isr-shrink of {partition}", 1, _moment_ms(draw)))
    elect = draw.fault(at_ms, "elect_leader", (), 0, partition=partition)
    faults.append(at_event(elect, f"replicas-change of {partition}", 1, draw.pick(VERY_SHORT_MS)))
    return [*faults, _last(draw, at_ms, partition)]


SETTINGS_TEMPLATES: Mapping[str, Template] = {
    "late-settings": Template(
        about="Min ISR is raised behind a leader, or lowered when it is alone in the ISR; then it goes away.",
        draw=_late_settings,
    ),
    "one-publish": Template(
        about="A leader learns at once that min ISR is larger and that its ISR is smaller.",
        draw=_one_publish,
        needs_simulation=True,
    ),
    "deposed-in-one-publish": Template(
        about="A leader that is alone in the ISR learns at once that min ISR is smaller and that another one "
        "leads.",
        draw=_deposed_in_one_publish,
        needs_simulation=True,
    ),
    "nobody-leads": Template(
        about="A partition loses its leader while its replicas are away; min ISR may change meanwhile.",
        draw=_nobody_leads,
    ),
    "last-member-loses-data": Template(
        about="The last member of an ISR loses power, after the first partition of its topic got one replica or "
        "followers moved to another log directory.",
        draw=_last_member_loses_data,
    ),
    "stopped-while-starting": Template(
        about="Eligible leaders are stopped, and again while they start; then the last member of the ISR loses "
        "power.",
        draw=_stopped_while_starting,
        needs_simulation=True,
    ),
    "unnoticed-loss": Template(
        about="Brokers stop cleanly; then the last member of the ISR loses power.",
        draw=_stopped_before,
        needs_simulation=True,
    ),
    "fenced-in-the-isr": Template(
        about="A broker that reaches no controller catches up, joins the ISR and loses its log; the others go "
        "away when it is back.",
        draw=_fenced_in_the_isr,
        needs_simulation=True,
    ),
    "moves-to-who-is-away": Template(
        about="A partition moves to a broker that is away, and the only replica that has its records loses data.",
        draw=_moved_to_who_is_away,
    ),
    "replica-sets": Template(
        about="A replica is added, becomes eligible, and is removed and added again with an empty log; then the "
        "leader goes away.",
        draw=_removed_and_added,
    ),
    "removed-unnoticed": Template(
        about="A replica is removed and added again with an empty log before its leader hears of it.",
        draw=_removed_and_added_unnoticed,
        needs_simulation=True,
    ),
    "prefers-a-lagging-replica": Template(
        about="A follower lags and becomes the preferred leader, and its election is requested.",
        draw=_prefers_a_lagging_replica,
    ),
}
"""Every template of this module by name."""
