"""Templates in which a broker joins an ISR by messages that are older than its state.

As in `nemesis.window_templates`, each fault lasts until what the next step needs has happened. They name brokers
rather than partitions: all partitions that a broker follows go through the window together.
"""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import (
    LEAVES,
    LONG,
    Drawing,
    Template,
    at_event,
    chance,
    held,
    late_copy,
    leaves,
    loses_unflushed,
    one_of,
    short_ms,
    some_ms,
    until_event,
    until_fenced,
    up_to,
)
from nemesis.fault import Fault

PROPOSAL = "AlterPartition from broker"


def _loses_its_log(draw: Drawing, at_ms: int, broker: str) -> Fault:
    """Returns a fault after which a broker comes back soon, often without what it had not flushed."""
    lost = loses_unflushed(draw, at_ms, broker)
    return replace(lost, for_ms=max(draw.step_ms() // 4, 1))


def _joins_without_its_log(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    returned = f"unfencing at {broker}"
    # It comes back without its log while the request to add it is on its way.
    late = held(draw, at_ms, PROPOSAL, returned)
    lost = _loses_its_log(draw, at_ms, broker)
    return [
        until_fenced(draw, at_ms, broker),
        at_event(late, returned),
        at_event(lost, "mark:isr-expand-proposed", delay_ms=short_ms(draw)),
        _no_copies(draw, at_ms, broker),
        _others_leave(draw, at_ms, broker, 1),
    ]


def _joins_by_an_old_fetch(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    fetch = f"Fetch from {broker} to broker"
    # Nobody appends, so the offset of the late fetch is still the log end.
    quiet = draw.fault(at_ms, "isolate", ("all",), LONG * draw.hold_ms(), planes=("client",))
    at_ms += draw.step_ms()
    lost = _loses_its_log(draw, at_ms, broker)
    return [
        quiet,
        late_copy(draw, at_ms, fetch, f"unfencing at {broker}"),
        at_event(lost, f"received:{fetch}", 1 + up_to(draw, 9), short_ms(draw)),
        _no_copies(draw, at_ms, broker),
        _others_leave(draw, at_ms, broker, 1),
    ]


def _joins_by_a_copied_proposal(draw: Drawing, at_ms: int) -> list[Fault]:
    broker = draw.pick(draw.brokers)
    # The request that added it arrives once more, after it has left again.
    late = late_copy(draw, at_ms, PROPOSAL, "isr-shrink", up_to(draw, 2))
    lags = draw.fault(at_ms, "isolate", (broker,), 1, planes=("inter-broker",))
    return [
        until_fenced(draw, at_ms, broker),
        at_event(late, f"unfencing at {broker}"),
        at_event(until_event(draw, lags, "election"), "isr-expand", delay_ms=some_ms(draw)),
        _others_leave(draw, at_ms, broker, 1 + up_to(draw, 3)),
    ]


def _no_copies(draw: Drawing, at_ms: int, broker: str) -> Fault:
    """Returns a fault by which a broker that has registered gets no records until a leader is elected."""
    copies = held(draw, at_ms, f"FetchResponse from broker to {broker}", "election")
    return at_event(copies, f"registration at {broker}")


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
    gone = leaves(draw, at_ms, leader)
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
    "joins-without-its-log": Template(
        about="A broker comes back without its log while the request to add it to the ISR is on its way; then the "
        "others go away.",
        draw=_joins_without_its_log,
        needs_simulation=True,
    ),
    "joins-by-an-old-fetch": Template(
        about="A broker comes back without its log, and a fetch of its former incarnation arrives; then the "
        "others go away.",
        draw=_joins_by_an_old_fetch,
        needs_simulation=True,
    ),
    "joins-by-a-copied-proposal": Template(
        about="The request that added a broker to the ISR arrives once more after it has left; then the others go "
        "away.",
        draw=_joins_by_a_copied_proposal,
        needs_simulation=True,
    ),
    "late-watermark": Template(
        about="A follower does not learn that its last records are committed. It becomes the leader, and a "
        "replica that lacks them joins the ISR.",
        draw=_late_watermark,
        needs_simulation=True,
    ),
}
"""Every template of this module by name."""
