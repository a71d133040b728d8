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
    name = draw.pick(
        (
            *("hold_messages", "delay_messages", "drop_messages", "duplicate_messages"),
            "reorder_messages",
        )
    )
    is_request = not messages.partition(" ")[0].endswith("Response")
    if name == "duplicate_messages" and not is_request:
        name = "hold_messages"
    more: dict[str, object] = {}
    if name in ("delay_messages", "duplicate_messages", "reorder_messages"):
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
        about="Messages between servers wait, are lost, overtaken or processed twice, while brokers go away.",
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
"""Every template of this module by name."""
