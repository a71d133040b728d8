"""Templates about controllers: they forget, lead without a majority, or start again while the state is unusual."""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import (
    LONG,
    Drawing,
    Template,
    at_event,
    chance,
    held,
    short_ms,
    some_ms,
    until_event,
    up_to,
)
from nemesis.fault import Fault

ELECTED = "mark:quorum-leader-elected"


def _quorum_without_majority(draw: Drawing, at_ms: int) -> list[Fault]:
    active = "active_controller"
    answers = "FetchResponse from controller to controller"
    elected = "controller-election"
    long_ms = LONG * draw.hold_ms()
    faults = []
    if draw.actions:
        faults.append(draw.action(at_ms, draw.partition()))
    # Leaders of the quorum write records that nobody copies.
    faults.append(held(draw, at_ms, answers, elected, draw.pick((1, 2, 2))))
    at_ms += 1 + some_ms(draw)
    faults.append(until_event(draw, draw.fault(at_ms, "isolate", (active,), long_ms), elected))
    second = draw.on_node(at_ms, draw.pick(("kill", "power", "isolate")), (active,))
    if second.fault == "isolate":
        second = replace(second, params={})  # a controller has one plane
    faults.append(at_event(until_event(draw, second, elected), elected, 1, short_ms(draw)))
    at_ms += draw.hold_ms()
    third = replace(second, at_ms=at_ms, for_ms=draw.step_ms())
    return [*faults, at_event(third, elected, 2, short_ms(draw))]


def _controllers_start_again(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, eligible = f"leader:{partition}", f"elr-change of {partition}"
    long_ms = LONG * draw.hold_ms()
    faults = [draw.fault(at_ms, "isolate", (f"followers:{partition}",), long_ms)]
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
            (f"leader:{partition}", f"isr_follower:{partition}", "active_controller"),
            (f"leader:{partition}", f"isr_follower:{partition}"),
            (f"leader:{partition}", "active_controller"),
        )
    )
    struck = draw.on_node(at_ms, draw.pick(("kill", "kill", "power")), targets)
    return [replace(struck, for_ms=3 * draw.hold_ms())]


def _later(draw: Drawing, at_ms: int) -> Fault:
    """Returns a fault long after a time, which keeps the next burst out of the way of what waits."""
    at_ms += 2 * draw.hold_ms() + 2 * draw.step_ms()
    return replace(draw.fault(at_ms, "isolate", ("active_controller",), 1), for_ms=draw.step_ms())


def _quorum_forgets(draw: Drawing, at_ms: int) -> list[Fault]:
    faults = [until_event(draw, draw.fault(at_ms, "isolate", ("active_controller",), 1), ELECTED)]
    if chance(draw, 0.5):
        # What the leader and one follower have, the followers lose together.
        at_ms += short_ms(draw)
        lost = replace(draw.on_node(at_ms, "power", ("controllers",)), for_ms=up_to(draw, 100))
        return [*faults, lost, _later(draw, at_ms)]
    for controller in draw.controllers:
        # Nobody hears of the one that is elected; the others lose power, and elect again without it.
        elected = f"{ELECTED} at {controller}"
        parted = until_event(draw, draw.fault(at_ms, "isolate", (controller,), 1), ELECTED)
        others = tuple(other for other in draw.controllers if other != controller) or (controller,)
        lost = replace(draw.on_node(at_ms, "power", others), for_ms=up_to(draw, 100))
        faults.append(at_event(parted, elected, 1, draw.pick((0, 0, 1))))
        faults.append(at_event(lost, elected, 1, short_ms(draw)))
    return [*faults, _later(draw, at_ms)]


def _old_epoch_commits(draw: Drawing, at_ms: int) -> list[Fault]:
    active = "active_controller"  # nothing is committed, so it is the same one all the time
    answers = "FetchResponse from controller to controller"
    faults = [held(draw, at_ms, answers, f"{ELECTED} at {active}")]
    at_ms += 1 + up_to(draw, 20)
    if draw.actions:
        faults.append(draw.action(at_ms, draw.partition()))
    faults.append(draw.fault(at_ms, "isolate", ("one",), draw.hold_ms()))
    at_ms += 10 + up_to(draw, 60)
    faults.append(until_event(draw, draw.fault(at_ms, "isolate", (active,), 1), ELECTED))
    # It serves what it had, long before the record of its next epoch is durable.
    slow = draw.fault(
        at_ms, "slow_disk", (active,), LONG * draw.hold_ms(), ms=60 + up_to(draw, 100)
    )
    faults.append(slow)
    for controller in draw.controllers:
        fetched = f"received:Fetch from controller to {active}"
        parted = draw.fault(at_ms, "isolate", (controller,), 1)
        parted = until_event(draw, parted, fetched, draw.pick((2, 2, 3)))
        faults.append(at_event(parted, f"{ELECTED} at {controller}", 1, 15 + up_to(draw, 60)))
    return [*faults, _later(draw, at_ms + draw.hold_ms())]


CONTROLLER_TEMPLATES: Mapping[str, Template] = {
    "quorum-without-majority": Template(
        about="Leaders of the metadata quorum write what no other controller copies, and return.",
        draw=_quorum_without_majority,
        needs_controllers=True,
        needs_simulation=True,
    ),
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
    "quorum-forgets": Template(
        about="A controller is elected and nobody hears of it; the others lose power and elect again.",
        draw=_quorum_forgets,
        needs_controllers=True,
        needs_simulation=True,
    ),
    "old-epoch": Template(
        about="x.",
        draw=_old_epoch_commits,
        needs_controllers=True,
        needs_simulation=True,
    ),
}
"""Every template of this module by name."""
