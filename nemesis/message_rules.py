"""What faults on single messages are, in every world: their rules, and which messages they can be about."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata
from harness.errors import UsageError, usage_errors_of
from nemesis.fault import Fault
from nemesis.targets import has_role, kinds_of
from nemesis.trigger import Trigger, check_message


class Rule(NamedTuple):
    """What a fault does to a message: the kind of its rule, and what counts as evidence."""

    kind: str
    counted_as: str


HOLD, LATE, DROP, DUPLICATE, REORDER, REFUSE = (
    "hold",
    "late",
    "drop",
    "duplicate",
    "reorder",
    "refuse",
)
"""Kinds of rules, as the simulated network and the fault points of nodes call them."""

RULES: Mapping[str, Rule] = {
    "hold_messages": Rule(HOLD, "messages_held"),
    "delay_messages": Rule(LATE, "messages_delayed"),
    "drop_messages": Rule(DROP, "messages_dropped"),
    "duplicate_messages": Rule(DUPLICATE, "copies_delivered"),
    "reorder_messages": Rule(REORDER, "messages_overtaken"),
    "refuse_messages": Rule(REFUSE, "requests_refused"),
}
"""By fault."""

OF_MESSAGES = frozenset(RULES)
"""The faults on messages."""

_OF_REQUESTS = (DUPLICATE, REFUSE)


def check_message_fault(
    fault: Fault, names: Collection[str], wholly_refusable: Collection[str]
) -> None:
    """Raises `UsageError` if a fault is about messages that do not exist, or that it cannot be about.

    Args:
        fault: Any fault.
        names: What messages are called: requests by their API, responses with the word after it.
        wholly_refusable: Class names of the requests that can be refused as a whole.
    """
    pattern = fault.messages
    if pattern is None:
        return
    with usage_errors_of(fault.place):
        check_message(pattern.name, names)
    kind = RULES[fault.fault].kind
    if kind in _OF_REQUESTS and pattern.name.endswith("Response"):
        raise UsageError(f"fault {fault.id}: {fault.fault!r} is about requests; name the API alone")
    if kind == REFUSE and pattern.message not in wholly_refusable:
        known = ", ".join(name.removesuffix("Request") for name in wholly_refusable)
        raise UsageError(
            f"fault {fault.id}: a {pattern.name} cannot be refused as a whole; these can: {known}"
        )


def affected_nodes(
    pattern: Trigger, population: Population, metadata: CommittedMetadata
) -> tuple[str, ...]:
    """Returns the nodes that a fault on messages is about now: those with its roles; without roles all servers."""
    if not pattern.roles:
        return tuple(name for name, _ in (*population.brokers, *population.controllers))
    return tuple(
        node
        for node in kinds_of(population)
        if any(has_role(node, role, population, metadata) for role in pattern.roles)
    )


def needs_fault_point(schedule: Sequence[Fault]) -> bool:
    """Whether nodes need a fault point: a fault is on messages, or waits for an event that only nodes see."""
    return any(
        fault.fault in OF_MESSAGES or any(not one.kind.is_committed for one in fault.triggers)
        for fault in schedule
    )
