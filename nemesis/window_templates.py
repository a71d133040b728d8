"""Templates that bring a partition into one narrow window: each fault lasts until another event has happened.

A window is a row of states that follow each other. With drawn times each step is reached with some chance only.
Here a broker stays away, and a message waits, until the step after it has happened (`Fault.until`). What stays
random is which partition, which variant, and how long after an event the next fault strikes.
"""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import (
    LONG,
    Drawing,
    Template,
    at_event,
    chance,
    held,
    late_copy,
    leaves,
    loses_unflushed,
    short_ms,
    some_ms,
    until_event,
    until_fenced,
    up_to,
)
from nemesis.fault import Fault


def _joins_unknown_to_its_leader(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, broker = draw.partition(), draw.pick(draw.brokers)
    leader = f"leader:{partition}"
    joins, elected = f"isr-expand of {partition}", f"election of {partition}"
    returned, response = f"unfencing at {broker}", f"AlterPartitionResponse to {leader}"
    stalled = draw.fault(at_ms, "stall_metadata", (leader,), 1)
    # The leader has to know that the broker is back before it adds it.
    moment = draw.pick((returned, "mark:isr-expand-proposed"))
    faults = [
        until_fenced(draw, at_ms, broker),
        at_event(until_event(draw, stalled, elected), moment, delay_ms=short_ms(draw)),
    ]
    if chance(draw, 0.5):
        faults.append(at_event(held(draw, at_ms, response, elected), returned))
    else:
        lost = draw.fault(at_ms, "drop_messages", (), draw.hold_ms(), messages=response, count=1)
        faults.append(at_event(lost, returned))
    lags = draw.fault(at_ms, "cut", (leader, broker), 1, planes=("inter-broker",))
    faults.append(at_event(until_event(draw, lags, elected), joins, delay_ms=some_ms(draw)))
    # Its lag limit passes first: until then the leader waits for it anyway.
    delay_ms = 2 * draw.step_ms() + some_ms(draw)
    faults.append(at_event(leaves(draw, at_ms, leader), joins, 1, delay_ms))
    return faults


def _leads_again(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, third = draw.partition(), draw.pick(draw.brokers)
    leader, follower = f"leader:{partition}", f"isr_follower:{partition}"
    elected, lost = f"election of {partition}", f"leader-loss of {partition}"
    shrinks = f"isr-shrink of {partition}"
    answer = f"FetchResponse from {leader} to follower:{partition}"
    if chance(draw, 0.6):
        away = until_event(draw, draw.fault(at_ms, "isolate", (follower,), 1), elected, 2)
    else:
        # It copies what leaders write, and cannot be elected.
        away = held(draw, at_ms, f"BrokerHeartbeat from {third}", elected, 2)
    faults = [away]
    if chance(draw, 0.5):
        # What the first leader writes from here on, the second one does not have.
        parted = draw.fault(at_ms, "cut", (leader, follower), 1, planes=("inter-broker",))
        faults.append(at_event(until_event(draw, parted, elected, 2), shrinks))
    else:
        # The second one has everything, and does not know that it is committed.
        faults.append(at_event(held(draw, at_ms, answer, elected), shrinks, delay_ms=some_ms(draw)))
    if chance(draw, 0.6):
        stalled = draw.fault(at_ms, "stall_metadata", (draw.pick((leader, third)),), 1)
        faults.append(at_event(until_event(draw, stalled, elected, 2), shrinks))
    if chance(draw, 0.6):
        fetch = f"Fetch from follower:{partition} to {leader}"
        late = late_copy(draw, at_ms, fetch, elected, 2)
        faults.append(at_event(late, shrinks, delay_ms=some_ms(draw)))
    planes = draw.pick(((), ("controller",)))
    first = draw.fault(at_ms, "isolate", (leader,), 1, **({"planes": planes} if planes else {}))
    first = until_event(draw, first, draw.pick((lost, lost, elected)))
    second = until_event(draw, draw.fault(at_ms, "isolate", (leader,), 1), elected)
    faults.append(at_event(first, shrinks, delay_ms=some_ms(draw) // 4))
    faults.append(at_event(second, elected, 1, some_ms(draw) // 2))
    if chance(draw, 0.4):
        faults.append(at_event(held(draw, at_ms, answer, elected), elected, 2))
    left = leaves(draw, at_ms, leader)
    if chance(draw, 0.5):
        faults.append(at_event(left, f"isr-expand of {partition}", 1, draw.step_ms()))
    else:
        faults.append(at_event(left, elected, 2, some_ms(draw)))
    return faults


def _silent_followers(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, elected = f"leader:{partition}", f"election of {partition}"
    silent = draw.pick((f"follower:{partition}", draw.pick(draw.brokers)))
    answers = f"FetchResponse from {leader} to {silent}"
    faults = [held(draw, at_ms, answers, elected, draw.pick((1, 1, 2)))]
    at_ms += some_ms(draw)
    if chance(draw, 0.5):
        # It is deposed while appends wait for its followers.
        unseen = draw.fault(at_ms, "isolate", (leader,), 1, planes=("controller",))
        faults.append(until_event(draw, unseen, elected))
    else:
        faults.append(leaves(draw, at_ms, leader))
    if chance(draw, 0.5):
        # The next leader goes away, before all followers have its log.
        faults.append(at_event(held(draw, at_ms, answers, elected), elected))
        faults.append(at_event(leaves(draw, at_ms, leader), elected, 1, some_ms(draw)))
    return faults


def _quick_return(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, shrinks = f"leader:{partition}", f"isr-shrink of {partition}"
    lost = draw.on_node(at_ms, draw.pick(("power", "power", "wipe")), (leader,))
    lost = replace(lost, for_ms=up_to(draw, 150))
    if chance(draw, 0.5):
        return [lost]
    # The controller is late as well, so that the old session ends while the broker returns.
    slow = draw.fault(at_ms, "pause", ("active_controller",), draw.hold_ms())
    alone = draw.fault(at_ms, "isolate", (f"followers:{partition}",), 3 * draw.hold_ms())
    at_ms += draw.step_ms()
    return [slow, alone, at_event(lost, shrinks, draw.pick((1, 2)), some_ms(draw))]


def _moves_between_elections(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, elected = f"leader:{partition}", f"election of {partition}"
    if "move_replica" not in draw.actions:
        return _leads_again(draw, at_ms)
    others = draw.pick((1, 2, 2, 2))
    is_moved = f"received:AssignReplicasToDirsResponse to {leader}"
    faults = [held(draw, at_ms, "Produce from client to broker", is_moved)]
    at_ms += draw.step_ms() // 2
    first = draw.fault(at_ms, draw.pick(("kill", "isolate")), (leader,), 1)
    faults.append(until_event(draw, first, elected, others))
    # Each of the others leads without records, and is away until the first one has moved.
    gone = until_event(draw, draw.fault(at_ms, "isolate", (leader,), 1), is_moved)
    if others == 2:
        faults.append(at_event(gone, elected, 1, some_ms(draw) // 2))
    faults.append(at_event(gone, f"isr-expand of {partition}", 1, some_ms(draw) // 2))
    moved = draw.fault(at_ms, "move_replica", (leader,), 0, partition=partition)
    faults.append(at_event(moved, elected, 1 + others, short_ms(draw)))
    return faults


def _proposal_is_lost(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, broker = draw.partition(), draw.pick(draw.brokers)
    leader = f"leader:{partition}"
    messages = draw.pick((f"AlterPartition from {leader}", f"AlterPartitionResponse to {leader}"))
    if chance(draw, 0.3):
        name, more = "refuse_messages", {"messages": f"AlterPartition from {leader}"}
    else:
        name, more = "drop_messages", {"messages": messages}
    count = draw.pick((1, 1, 1, 2, 4))
    lost = draw.fault(at_ms, name, (), LONG * draw.hold_ms(), count=count, **more)
    lags = draw.fault(at_ms, "isolate", (broker,), 2 * draw.hold_ms(), planes=("inter-broker",))
    return [lost, lags]


def _corrupt_copy(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader = f"leader:{partition}"
    shrinks = f"isr-shrink of {partition}"
    away = draw.fault(at_ms, "isolate", (f"isr_follower:{partition}",), draw.hold_ms())
    flipped = draw.fault(at_ms, "bit_flip", (leader,), max(draw.step_ms() // 4, 1))
    return [away, at_event(flipped, shrinks, 1, draw.step_ms())]


def _power_while_down(draw: Drawing, at_ms: int) -> list[Fault]:
    """A broker whose process ended before it flushed loses its page cache, often with others at once."""
    partition = draw.partition()
    leader, shrinks = f"leader:{partition}", f"isr-shrink of {partition}"
    target = draw.pick((leader, leader, f"isr_follower:{partition}"))
    long_ms = LONG * draw.hold_ms()
    with_it = draw.pick(((), (), (leader,), ("majority",), ("majority", "majority_controllers")))
    with_it = with_it if draw.controllers else with_it[:1]
    if chance(draw, 0.2):
        return [loses_unflushed(draw, at_ms, *(with_it or ("majority",)))]
    if chance(draw, 0.4):
        # Its data is not flushed, and it ends for that: what the disk has is not known.
        ended = draw.fault(at_ms, "io_error", (target,), long_ms, op="fsync")
    else:
        family = draw.pick(("kill", "kill", "oom", "stop"))
        ended = replace(draw.on_node(at_ms, family, (target,)), for_ms=long_ms)
    faults = [ended]
    if chance(draw, 0.4):
        # Another one leaves the ISR first, so that the one that ends is the last one.
        away = draw.fault(at_ms, "isolate", (f"isr_follower:{partition}",), long_ms)
        faults = [away, at_event(faults[0], shrinks, 1, some_ms(draw))]
    lost = loses_unflushed(draw, at_ms, "down", *with_it)
    moment = draw.pick((f"leader-change of {partition}", f"leader-loss of {partition}"))
    if target != leader:
        moment = shrinks
    return [*faults, at_event(lost, moment, 1, some_ms(draw))]


def _late_batch(draw: Drawing, at_ms: int) -> list[Fault]:
    leader = f"leader:{draw.partition()}"
    marker = f"received:WriteTxnMarkers to {leader}"
    nth = up_to(draw, 4)
    late = held(draw, at_ms, f"Produce from client to {leader}", marker, nth)
    return [at_event(late, f"received:Produce from client to {leader}", up_to(draw, 9))]


def _marker_in_another_transaction(draw: Drawing, at_ms: int) -> list[Fault]:
    leader, coordinator = f"leader:{draw.partition()}", draw.pick(draw.brokers)
    marker = f"WriteTxnMarkers from {coordinator} to {leader}"
    # The copies arrive when its successor has ended transactions of the same producers.
    late_ms, count = draw.hold_ms() + 2 * draw.step_ms(), up_to(draw, 4)
    late = draw.fault(
        at_ms, "duplicate_messages", (), 2 * late_ms, messages=marker, ms=late_ms, count=count
    )
    gone = draw.fault(at_ms, "isolate", (coordinator,), 1, planes=("controller",))
    gone = until_event(draw, gone, f"fencing at {coordinator}")
    return [late, at_event(gone, f"sent:{marker}", count, short_ms(draw))]


WINDOW_TEMPLATES: Mapping[str, Template] = {
    "joins-unknown-to-its-leader": Template(
        about="A broker has joined the ISR and lags again, and its leader does not know of it; then the leader "
        "goes away.",
        draw=_joins_unknown_to_its_leader,
        needs_simulation=True,
    ),
    "leads-again": Template(
        about="A leader is deposed and leads again when the next one has gone; others learn of that late, or "
        "never.",
        draw=_leads_again,
        needs_simulation=True,
    ),
    "silent-followers": Template(
        about="Followers get nothing from their leader, which is deposed or goes away, and often the next one "
        "too.",
        draw=_silent_followers,
        needs_simulation=True,
    ),
    "quick-return": Template(
        about="A leader loses power or its data, and is back before the controller has noticed.",
        draw=_quick_return,
    ),
    "moves-between-elections": Template(
        about="Leaders follow each other without records, and one of them moves to another log directory.",
        draw=_moves_between_elections,
        needs_simulation=True,
    ),
    "lost-proposals": Template(
        about="A proposal for another ISR is lost or refused, while a follower lags.",
        draw=_proposal_is_lost,
        needs_simulation=True,
    ),
    "corrupt-copy": Template(
        about="A bit of the leader's log flips while a follower has to catch up.",
        draw=_corrupt_copy,
    ),
    "power-while-down": Template(
        about="A broker is killed or stopped, or cannot flush; while it is down it loses power, often with "
        "others, or a majority of the brokers loses power at once.",
        draw=_power_while_down,
    ),
    "late-batch": Template(
        about="A batch of a transaction arrives after the marker that ended it.",
        draw=_late_batch,
        needs_simulation=True,
    ),
    "marker-in-another-transaction": Template(
        about="A marker arrives once more, in a later transaction, when its coordinator has been replaced.",
        draw=_marker_in_another_transaction,
        needs_simulation=True,
    ),
}
"""Every template of this module by name."""
