"""Templates in which messages between servers are late, so that a server acts on what is no longer true.

Knowledge is stale for a round trip only. These templates make it last longer: messages wait or arrive a second
time, metadata are late, or a copy of the log does not progress. The servers that are concerned go away meanwhile.
"""

from collections.abc import Mapping
from dataclasses import replace

from nemesis.drawing import LEAVES, Drawing, Template, one_of, strike, waiting
from nemesis.fault import Fault
from nemesis.sizes import log_uniform


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
        draw.on_node(at_ms + draw.step_ms(), one_of(draw, LEAVES), (draw.pick(targets),)),
        strike(draw, at_ms, events, targets),
    ]


def _late_by(draw: Drawing, at_ms: int, messages: str) -> Fault:
    """Returns a fault by which messages wait, or by which one arrives again later."""
    if draw.stream.random() < 0.5:
        return draw.fault(at_ms, "hold_messages", (), draw.hold_ms(), messages=messages)
    more = {"ms": 2 * draw.hold_ms(), "count": 1 + int(draw.stream.random() * 2)}
    return draw.fault(at_ms, "duplicate_messages", (), draw.hold_ms(), messages=messages, **more)


def _copying_waits(draw: Drawing, at_ms: int, leader: str, follower: str) -> Fault:
    """Returns a fault by which a follower gets nothing that it asks its leader for."""
    messages = f"FetchResponse from {leader} to {follower}"
    return draw.fault(at_ms, "hold_messages", (), draw.hold_ms(), messages=messages)


def _stale_join(draw: Drawing, at_ms: int) -> list[Fault]:
    partition, broker = draw.partition(), draw.pick(draw.brokers)
    leader = f"leader:{partition}"
    returns, joins = f"unfencing at {broker}", f"isr-expand of {partition}"
    # A broker that reaches no controller is fenced, and still copies the log.
    planes = {"planes": ("controller",)} if draw.stream.random() < 0.3 else {}
    messages = draw.pick((f"AlterPartition from {leader}", f"Fetch from {broker} to {leader}"))
    away = draw.fault(at_ms, "isolate", (broker,), draw.hold_ms(), **planes)
    at_ms += draw.step_ms()
    late = _late_by(draw, at_ms, messages)
    ends = draw.on_node(at_ms, one_of(draw, ("power", "wipe", "kill")), (broker,))
    moments = (returns, joins, "mark:isr-expand-proposed", f"sent:AlterPartition from {leader}")
    copies = _copying_waits(draw, at_ms, leader, broker)
    # The next burst begins after the last time here: it would be in the way of what waits.
    at_ms += (away.for_ms or 0) + draw.step_ms()
    struck = draw.on_node(at_ms, one_of(draw, LEAVES), (leader,))
    return [
        away,
        replace(late, on=draw.pick((returns, returns, joins))),
        replace(ends, on=draw.pick(moments), for_ms=draw.step_ms() // 2),
        replace(copies, on=f"registration at {broker}"),
        replace(struck, on=joins, delay_ms=int(draw.stream.random() * draw.step_ms())),
    ]


def _leader_returns(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, follower = f"leader:{partition}", f"follower:{partition}"
    elected = f"election of {partition}"
    faults = [
        draw.fault(
            at_ms,
            "cut",
            (leader, f"isr_follower:{partition}"),
            2 * draw.hold_ms(),
            planes=("inter-broker",),
        )
    ]
    at_ms += draw.step_ms()
    if draw.stream.random() < 0.5:
        faults.append(_late_by(draw, at_ms, f"Fetch from {follower} to {leader}"))
    if draw.stream.random() < 0.5:
        target = draw.pick((leader, follower))
        faults.append(draw.fault(at_ms, "stall_metadata", (target,), draw.hold_ms()))
    faults.append(draw.fault(at_ms, "isolate", (leader,), draw.hold_ms(), planes=("controller",)))
    for nth in (1, 2):
        leaves = draw.on_node(at_ms, one_of(draw, LEAVES), (leader,))
        delay_ms = int(draw.stream.random() * nth * draw.step_ms())
        faults.append(replace(leaves, on=elected, nth=nth, delay_ms=delay_ms))
    # The next burst begins after the last time here: it would be in the way of what waits.
    at_ms += draw.hold_ms() + draw.step_ms()
    faults.append(draw.on_node(at_ms, one_of(draw, LEAVES), (leader,)))
    return faults


def _late_watermark(draw: Drawing, at_ms: int) -> list[Fault]:
    partition = draw.partition()
    leader, follower = f"leader:{partition}", f"isr_follower:{partition}"
    others = draw.fault(at_ms, "isolate", (follower,), draw.hold_ms() + draw.step_ms())
    at_ms += draw.step_ms()
    # What it has fetched is committed when it fetches again, and only the next response says so.
    silence = replace(
        _copying_waits(draw, at_ms, leader, follower),
        on=f"received:Fetch from {follower} to {leader}",
        nth=1 + int(draw.stream.random() * 20),
    )
    at_ms += draw.step_ms()
    slow = _copying_waits(draw, at_ms, leader, f"follower:{partition}")
    leaves = draw.on_node(at_ms, one_of(draw, LEAVES), (leader,))
    # The next burst begins after the last time here: it would be in the way of what waits.
    struck = draw.on_node(at_ms + draw.hold_ms(), one_of(draw, LEAVES), (leader,))
    delay_ms = int(draw.stream.random() * draw.step_ms())
    return [
        others,
        silence,
        leaves,
        replace(slow, on=f"election of {partition}"),
        replace(struck, on=f"isr-expand of {partition}", delay_ms=delay_ms),
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
            one_of(draw, ("restart", "stop", *LEAVES)),
            (draw.pick(draw.brokers),),
        ),
    ]


def _late_markers(draw: Drawing, at_ms: int) -> list[Fault]:
    leader, coordinator = f"leader:{draw.partition()}", draw.pick(draw.brokers)
    messages = f"WriteTxnMarkers from {coordinator} to {leader}"
    hold_ms = 2 * draw.hold_ms()
    leaves = draw.on_node(at_ms, one_of(draw, ("isolate", "pause")), (coordinator,))
    if leaves.fault == "isolate":
        # Its requests to other brokers are on their way; only the controllers do not hear of it.
        leaves = replace(leaves, params={"planes": ("controller",)})
    count = 1 + int(draw.stream.random() * 3)
    return [
        draw.fault(at_ms, "hold_messages", (), hold_ms, messages=messages, count=count),
        waiting(draw, leaves, (f"sent:{messages}",), 1),
    ]


MESSAGE_TEMPLATES: Mapping[str, Template] = {
    "late-messages": Template(
        about="Messages between servers wait, are lost or are processed twice, while brokers go away.",
        draw=_late_messages,
        needs_simulation=True,
    ),
    "stale-join": Template(
        about="A broker loses data while it joins the ISR; messages about its former state are late, and its "
        "leader goes away.",
        draw=_stale_join,
        needs_simulation=True,
    ),
    "leader-returns": Template(
        about="A leader is deposed and elected again, and a follower or the leader itself learns late of what was "
        "between.",
        draw=_leader_returns,
        needs_simulation=True,
    ),
    "late-watermark": Template(
        about="A follower does not learn that its last records are committed; it becomes the leader, and another "
        "replica joins the ISR.",
        draw=_late_watermark,
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
"""Every template of this module by name."""
