"""Templates about controllers: they forget, lead without a majority, or start again while the state is unusual."""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import (
    LEAVES,
    LONG,
    Drawing,
    Template,
    at_event,
    held,
    loses_unflushed,
    one_of,
    short_ms,
    some_ms,
    until_event,
    up_to,
)
from nemesis.fault import Fault

ELECTED = "mark:quorum-leader-elected"
ACTIVE = "active_controller"
SLOW: Mapping[str, Mapping[str, int]] = {
    "slow_disk": {"ms": 60},
    "delay": {"ms": 80, "jitter_ms": 40},
    "slow_cpu": {"percent": 3},
}
"""What makes a majority slow, and how slow."""


def _controllers_start_again(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, eligible = f"leader:{partition}", f"elr-change of {partition}"
    long_ms = LONG * draw.hold_ms()
    faults = [draw.fault(at_ms, "isolate", (f"followers:{partition}",), long_ms)]
    if draw.actions:
        # There are records enough for another snapshot.
        changes = [draw.action(at_ms, draw.partition()) for _ in range(up_to(draw, 4))]
        faults += [at_event(change, eligible, 1, some_ms(draw)) for change in changes]
    restarted = draw.on_node(at_ms, draw.pick(("kill", "kill", "power")), ("controllers",))
    restarted = replace(restarted, for_ms=draw.step_ms())
    delay_ms = 2 * draw.step_ms() + some_ms(draw)
    faults.append(at_event(restarted, eligible, draw.pick((1, 2)), delay_ms))
    at_ms += draw.hold_ms()
    family = draw.pick(("power", "power", "kill"))
    lost = replace(draw.on_node(at_ms, family, (leader,)), for_ms=draw.step_ms())
    return [*faults, at_event(lost, "controller-election", 1, 50 + some_ms(draw))]


def _at_once(draw: Drawing, at_ms: int) -> list[Fault]:
    """Members of the ISR end at the same moment as the controller that would notice it."""
    partition = draw.partition()
    targets = draw.pick(
        (
            (f"leader:{partition}", f"isr_follower:{partition}", ACTIVE),
            (f"leader:{partition}", f"isr_follower:{partition}"),
            (f"leader:{partition}", ACTIVE),
        )
    )
    struck = draw.on_node(at_ms, draw.pick(("kill", "kill", "power")), targets)
    return [replace(struck, for_ms=3 * draw.hold_ms())]


def _later(draw: Drawing, at_ms: int) -> Fault:
    """Returns a fault long after a time, which keeps the next burst out of the way of what waits."""
    at_ms += 2 * draw.hold_ms() + 2 * draw.step_ms()
    return replace(draw.fault(at_ms, "isolate", (ACTIVE,), 1), for_ms=draw.step_ms())


def _away(draw: Drawing, at_ms: int, controller: str) -> Fault:
    """Returns a fault that takes a controller away for about as long as an election takes."""
    fault = draw.on_node(at_ms, one_of(draw, LEAVES), (controller,))
    params = {} if fault.fault == "isolate" else fault.params  # a controller has one plane
    return replace(fault, params=params, for_ms=draw.step_ms())


def _lose_power(draw: Drawing, at_ms: int, targets: tuple[str, ...]) -> Fault:
    """Returns a fault by which nodes lose power and are back before they are missed."""
    return replace(draw.on_node(at_ms, "power", targets), for_ms=up_to(draw, 100))


def _election_event(draw: Drawing) -> str:
    return ELECTED if draw.observes_nodes else "controller-election"


def _quorum_loses_power(draw: Drawing, at_ms: int) -> list[Fault]:
    parted = draw.fault(at_ms, "isolate", (ACTIVE,), 1)
    # What the leader and some followers have, the followers lose together.
    lost = _lose_power(draw, at_ms + short_ms(draw), ("controllers",))
    return [until_event(draw, parted, _election_event(draw)), lost, _later(draw, at_ms)]


def _quorum_election(draw: Drawing, at_ms: int) -> list[Fault]:
    event = _election_event(draw)
    faults = [until_event(draw, draw.fault(at_ms, "isolate", (ACTIVE,), 1), event)]
    for controller in draw.controllers:
        # Nobody hears of the one that is elected; the others lose power, and elect again without it.
        elected = f"{event} at {controller}"
        parted = until_event(draw, draw.fault(at_ms, "isolate", (controller,), 1), event)
        others = tuple(other for other in draw.controllers if other != controller) or (controller,)
        faults.append(at_event(parted, elected, 1, draw.pick((0, 0, 1))))
        faults.append(at_event(_lose_power(draw, at_ms, others), elected, 1, short_ms(draw)))
    return [*faults, _later(draw, at_ms)]


def _slow_controllers(draw: Drawing, at_ms: int) -> list[Fault]:
    event = _election_event(draw)
    name = draw.pick(("slow_disk", "slow_disk", *SLOW))
    slow = draw.pick(("majority_controllers", "majority_controllers", "controllers"))
    faults = [
        draw.fault(at_ms, name, (slow,), 4 * draw.hold_ms(), **SLOW[name]),
        _away(draw, at_ms, ACTIVE),
    ]
    # A slow controller leads for some time before another disk has a record of its epoch.
    for controller in draw.controllers:
        for nth in range(1, 2 + int(draw.stream.random() * 3)):
            fault = _away(draw, at_ms, controller)
            faults.append(at_event(fault, f"{event} at {controller}", nth, up_to(draw, 60)))
    return faults


def _quorum_without_majority(draw: Drawing, at_ms: int) -> list[Fault]:
    # Nothing is committed, so the active controller is the same one all the time.
    answers = "FetchResponse from controller to controller"
    faults = [held(draw, at_ms, answers, f"{ELECTED} at {ACTIVE}")]
    at_ms += 1 + up_to(draw, 20)
    if draw.actions:
        faults.append(draw.action(at_ms, draw.partition()))
    faults.append(draw.fault(at_ms, "isolate", ("one",), draw.hold_ms()))
    at_ms += 10 + up_to(draw, 60)
    faults.append(until_event(draw, draw.fault(at_ms, "isolate", (ACTIVE,), 1), ELECTED))
    # It serves what it had, long before the record of its next epoch is durable: first its state is.
    slow_ms = 20 + up_to(draw, 40)
    faults.append(draw.fault(at_ms, "slow_disk", (ACTIVE,), LONG * draw.hold_ms(), ms=slow_ms))
    for controller in draw.controllers:
        fetched = f"received:Fetch from controller to {ACTIVE}"
        parted = draw.fault(at_ms, "isolate", (controller,), 1)
        parted = until_event(draw, parted, fetched, draw.pick((2, 2, 3)))
        delay_ms = 4 * slow_ms + up_to(draw, slow_ms)
        faults.append(at_event(parted, f"{ELECTED} at {controller}", 1, delay_ms))
    return [*faults, _later(draw, at_ms + draw.hold_ms())]


def _failed_fsyncs(draw: Drawing, at_ms: int) -> list[Fault]:
    """What controllers could not flush is in their page caches when they start again, and then it is gone."""
    failing = draw.pick(("controllers", "controllers", "majority_controllers"))
    failed = draw.fault(at_ms, "io_error", (failing,), 20 + up_to(draw, 200), op="fsync")
    lost = loses_unflushed(draw, at_ms, "controllers")
    lost = at_event(
        replace(lost, for_ms=up_to(draw, 100)),
        _election_event(draw),
        draw.pick((1, 1, 2)),
        50 + draw.step_ms() + some_ms(draw),
    )
    return [failed, lost, _later(draw, at_ms)]


CONTROLLER_TEMPLATES: Mapping[str, Template] = {
    "controllers-start-again": Template(
        about="All controllers start again while replicas are eligible leaders; then the leader goes away.",
        draw=_controllers_start_again,
        needs_controllers=True,
    ),
    "at-once": Template(
        about="Members of an ISR end at the same moment, often with the active controller.",
        draw=_at_once,
        needs_controllers=True,
    ),
    "quorum-election": Template(
        about="The active controller goes away. Nobody hears of the next one, and the others lose power and elect "
        "again.",
        draw=_quorum_election,
        needs_controllers=True,
    ),
    "quorum-loses-power": Template(
        about="The active controller goes away, and the others lose power together.",
        draw=_quorum_loses_power,
        needs_controllers=True,
    ),
    "failed-fsyncs": Template(
        about="Controllers cannot flush, and end for that; when they have started again, their power is cut.",
        draw=_failed_fsyncs,
        needs_controllers=True,
    ),
    "slow-controllers": Template(
        about="Some controllers are slow, and each goes away for a short time whenever it is elected.",
        draw=_slow_controllers,
        needs_controllers=True,
    ),
    "quorum-without-majority": Template(
        about="The active controller writes what no other one copies. It leads again after another one that does "
        "the same, and goes away when only its older record is copied.",
        draw=_quorum_without_majority,
        needs_controllers=True,
        needs_simulation=True,
    ),
}
"""Every template of this module by name."""
