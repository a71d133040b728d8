"""Templates in which a broker joins an ISR by messages that are older than its state.

As in `nemesis.window_templates`, each fault lasts until what the next step needs has happened. They name brokers
rather than partitions: all partitions that a broker follows go through the window together.
"""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import (
    ALONE_HOLDS,
    LEAVES,
    LONG,
    Drawing,
    Template,
    at_event,
    chance,
    held,
    late_copy,
    one_of,
    short_ms,
    some_ms,
    until_event,
    up_to,
)
from nemesis.fault import Fault


def _loses_its_log(draw: Drawing, at_ms: int, broker: str) -> Fault:
    """Returns a fault after which a broker comes back soon, often without what it had not flushed."""
    lost = draw.on_node(at_ms, "power", (broker,))
    if chance(draw, 0.7):
        lost = replace(lost, params={**lost.params, "mode": "lose_all"})
    return replace(lost, for_ms=max(draw.step_ms() // 4, 1))


def _joins_with_an_old_request(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    returned, left = f"unfencing at {broker}", f"fencing at {broker}"
    proposal, fetch = "AlterPartition from broker", f"Fetch from {broker} to broker"
    away = until_event(draw, draw.fault(at_ms, "isolate", (broker,), 1), left)
    lost = _loses_its_log(draw, at_ms, broker)
    copies = held(draw, at_ms, f"FetchResponse from broker to {broker}", "election")
    copies = at_event(copies, f"registration at {broker}")
    variant = draw.pick(("proposal", "fetch", "copy"))
    if variant == "proposal":
        # It comes back without its log while the request to add it is on its way.
        faults = [
            away,
            at_event(held(draw, at_ms, proposal, returned), returned),
            at_event(lost, "mark:isr-expand-proposed", delay_ms=short_ms(draw)),
            copies,
        ]
        return [*faults, _others_leave(draw, at_ms, broker, 1)]
    if variant == "fetch":
        # A fetch of its former life arrives when it is back. Nobody appends, so its offset is still the log end.
        quiet = draw.fault(at_ms, "isolate", ("all",), LONG * draw.hold_ms(), planes=("client",))
        at_ms += draw.step_ms()
        late = late_copy(draw, at_ms, fetch, returned)
        lost = replace(lost, at_ms=at_ms)
        lost = at_event(lost, f"received:{fetch}", 1 + up_to(draw, 9), short_ms(draw))
        return [quiet, late, lost, copies, _others_leave(draw, at_ms, broker, 1)]
    # The request that added it arrives once more, after it has left again.
    joins, shrinks = "isr-expand", "isr-shrink"
    late = at_event(late_copy(draw, at_ms, proposal, shrinks, up_to(draw, 2)), returned)
    lags = until_event(
        draw, draw.fault(at_ms, "isolate", (broker,), 1, planes=("inter-broker",)), "election"
    )
    lags = at_event(lags, joins, delay_ms=some_ms(draw))
    return [away, late, lags, _others_leave(draw, at_ms, broker, 1 + up_to(draw, 3))]


def _late_watermark(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, third = draw.partition(), draw.pick(draw.brokers)
    leader, elected = f"leader:{partition}", f"election of {partition}"
    follower = f"isr_follower:{partition}"
    fetched, nth = f"received:Fetch from {follower} to {leader}", up_to(draw, 6)
    copies = f"FetchResponse from {leader} to {third}"
    # The last records are committed when the third one, which lacks them, leaves the ISR. Nobody appends, so
    # the other one still has all; it does not hear of the high watermark.
    silence = held(draw, at_ms, f"FetchResponse from {leader} to {follower}", elected)
    quiet = draw.fault(at_ms, "isolate", ("all",), 1, planes=("client",))
    gone = draw.on_node(at_ms, one_of(draw, LEAVES), (leader,))
    return [
        held(draw, at_ms, copies, elected),
        at_event(silence, fetched, nth),
        at_event(until_event(draw, quiet, elected), fetched, nth, draw.pick((0, 0, 1, 3))),
        at_event(gone, f"isr-shrink of {partition}", 1, some_ms(draw)),
        at_event(held(draw, at_ms, copies, elected), elected),
        at_event(gone, f"isr-expand of {partition}", 1, some_ms(draw)),
    ]


def _others_leave(draw: Drawing, at_ms: int, broker: str, nth: int) -> Fault:
    """Returns a fault after which a broker that has just joined an ISR leads, or may."""
    others = tuple(one for one in draw.brokers if one != broker)
    if chance(draw, 0.3):
        others = (draw.pick(others),)
    left = draw.on_node(at_ms, one_of(draw, LEAVES), others)
    return at_event(left, "isr-expand", nth, some_ms(draw))


ISR_TEMPLATES: Mapping[str, Template] = {
    "joins-with-an-old-request": Template(
        about="A broker joins the ISR by a request or a fetch of its former incarnation, or by a copy of the "
        "request that added it before; then its leader goes away.",
        draw=_joins_with_an_old_request,
        alone_holds=ALONE_HOLDS,
        needs_simulation=True,
    ),
    "late-watermark": Template(
        about="A follower does not learn that its last records are committed. It becomes the leader, and a "
        "replica that lacks them joins the ISR.",
        draw=_late_watermark,
        alone_holds=ALONE_HOLDS,
        needs_simulation=True,
    ),
}
"""Every template of this module by name."""
