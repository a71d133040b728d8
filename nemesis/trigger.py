"""Triggers: the events for which a fault can wait, and how they are written.

A fault with the key `on` begins at an event instead of at a time. A trigger is one line of text:

    on = "isr-shrink of t-0"
    on = "mark:elected-from-elr at b2"
    on = "sent:AlterPartition from leader:t-0 to active_controller"

It is a kind of event, for some kinds followed by a colon and a name, and then qualifiers, each a word and what it
must be. Without a qualifier the event may happen anywhere. `EVENTS` lists the kinds.

Nodes in qualifiers are names or roles (`nemesis.targets.ROLES`). A role is looked up in committed metadata each
time, so `leader:t-0` is the broker that leads at that moment.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata
from harness.errors import UsageError
from harness.names import unknown_name
from nemesis.targets import BROKER, CLIENT, CONTROLLER, has_role


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """One kind of event.

    Attributes:
        name: As in a trigger.
        about: When it happens, for the documents.
        qualifiers: The words that may follow: "of" a partition, "at" a node, "from" and "to" a node.
        names: What must follow the colon, for messages; empty if the kind stands alone.
        is_committed: Whether committed metadata shows it, so that every environment can observe it. Otherwise
            only the simulation can, and nodes with a fault point.
        at: The kinds of nodes at which it happens; for messages, those that send and receive them.
    """

    name: str
    about: str
    qualifiers: tuple[str, ...]
    names: str = ""
    is_committed: bool = False
    at: tuple[str, ...] = (BROKER, CONTROLLER, CLIENT)


_ROWS = (
    EventKind(
        name="leader-change",
        about="a partition gets another leader, or loses its leader",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="leader-loss",
        about="a partition loses its leader and gets no other",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="election",
        about="a partition has a leader of a new leader epoch, possibly the same broker",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="isr-shrink",
        about="a broker leaves the ISR",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="isr-expand",
        about="a broker joins the ISR",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="elr-change",
        about="the eligible leader replicas change",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="replicas-change",
        about="the assigned replicas change, as at both ends of a reassignment",
        qualifiers=("of",),
        is_committed=True,
    ),
    EventKind(
        name="registration",
        about="a broker has a new broker epoch",
        qualifiers=("at",),
        is_committed=True,
        at=(BROKER,),
    ),
    EventKind(
        name="fencing",
        about="a registered broker becomes fenced",
        qualifiers=("at",),
        is_committed=True,
        at=(BROKER,),
    ),
    EventKind(
        name="unfencing",
        about="a registered broker is fenced no longer",
        qualifiers=("at",),
        is_committed=True,
        at=(BROKER,),
    ),
    EventKind(
        name="controller-election",
        about="another controller leads the metadata quorum",
        qualifiers=("at",),
        is_committed=True,
        at=(CONTROLLER,),
    ),
    EventKind(
        name="mark",
        about="a node takes a rare branch",
        qualifiers=("at",),
        names="a mark",
        at=(BROKER, CONTROLLER),
    ),
    EventKind(
        name="fsync",
        about="an fsync of a node begins",
        qualifiers=("at",),
        at=(BROKER, CONTROLLER),
    ),
    EventKind(
        name="sent",
        about="a message leaves its sender",
        qualifiers=("from", "to"),
        names="an API, or an API and `Response`",
    ),
    EventKind(
        name="received",
        about="a message arrives, and its receiver has not processed it yet",
        qualifiers=("from", "to"),
        names="an API, or an API and `Response`",
    ),
)

EVENTS: Mapping[str, EventKind] = {row.name: row for row in _ROWS}
"""Every kind of event by name."""

COMMITTED_EVENTS = tuple(row.name for row in _ROWS if row.is_committed)
"""The kinds that every environment observes."""

MARK, FSYNC, SENT, RECEIVED = "mark", "fsync", "sent", "received"
"""The kinds that only the simulation and fault points observe."""

_TEXT = re.compile(r"([A-Za-z-]+)(?::([A-Za-z][A-Za-z0-9-]*))?((?: (?:of|at|from|to) \S+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        kind: Its name in `EVENTS`.
        name: The mark, or the class name of the message.
        nodes: The node where it happened, or sender and receiver of a message; empty for changes of a partition.
        partition: The partition that changed, for example "t-0"; empty for other events.
    """

    kind: str
    name: str = ""
    nodes: tuple[str, ...] = ()
    partition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Which events a fault waits for.

    Attributes:
        kind: The kind of event.
        name: What follows the colon: a mark or a message; empty for other kinds.
        qualifiers: What must be true besides, by word, in the order in which they were written.
    """

    kind: EventKind
    name: str
    qualifiers: Mapping[str, str]

    @property
    def message(self) -> str:
        """The class name of its messages; empty if it waits for no message."""
        return message_type(self.name) if self.kind.name in (SENT, RECEIVED) else ""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it names."""
        named = [self.qualifiers["of"]] if "of" in self.qualifiers else []
        named += [role.partition(":")[2] for role in self.roles if ":" in role]
        return tuple(named)

    @property
    def roles(self) -> tuple[str, ...]:
        """The nodes or roles that it names."""
        return tuple(value for word, value in self.qualifiers.items() if word != "of")

    def text(self) -> str:
        """Returns the trigger as it is written."""
        name = f":{self.name}" if self.name else ""
        words = "".join(f" {word} {value}" for word, value in self.qualifiers.items())
        return f"{self.kind.name}{name}{words}"

    def matches(self, event: Event, population: Population, metadata: CommittedMetadata) -> bool:
        """Whether an event is one of those; roles are those of committed metadata now."""
        if event.kind != self.kind.name or event.name != (self.message or self.name):
            return False
        if event.partition:
            return self.qualifiers.get("of", event.partition) == event.partition
        return self.is_between(*event.nodes, population=population, metadata=metadata)

    def is_between(self, *nodes: str, population: Population, metadata: CommittedMetadata) -> bool:
        """Whether nodes have the roles that are named, in the order of the qualifiers of its kind."""
        ends = dict(zip(self.kind.qualifiers, nodes, strict=True))
        return all(
            has_role(ends[word], role, population, metadata)
            for word, role in self.qualifiers.items()
        )


def check_message(name: str, messages: Collection[str]) -> None:
    """Raises `UsageError` if no message is called that."""
    if name not in messages:
        raise UsageError(unknown_name("message", name, messages, listed_in="docs/protocol.md"))


def check_mark(name: str, marks: Collection[str]) -> None:
    """Raises `UsageError` if no node reports a mark of that name."""
    if name not in marks:
        raise UsageError(unknown_name("mark", name, marks, listed_in="docs/marks.md"))


def check_names(trigger: Trigger, *, messages: Collection[str], marks: Collection[str]) -> None:
    """Raises `UsageError` if a trigger names a message or a mark that does not exist."""
    if trigger.message:
        check_message(trigger.name, messages)
    if trigger.kind.name == MARK:
        check_mark(trigger.name, marks)


def message_type(name: str) -> str:
    """Returns the class name of the messages that a schedule calls "Fetch" or "FetchResponse"."""
    return name if name.endswith("Response") else f"{name}Request"


def parse_trigger(text: str) -> Trigger:
    """Reads a trigger.

    Raises:
        UsageError: It is not written like one; the sentence states what is possible.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise UsageError(
            f"the trigger {text!r} cannot be read; write an event and its qualifiers, "
            "for example 'isr-shrink of t-0' or 'sent:Fetch from follower:t-0 to leader:t-0'"
        )
    word, name, rest = found[1], found[2] or "", found[3].split()
    if word not in EVENTS:
        raise UsageError(unknown_name("event", word, EVENTS))
    kind = EVENTS[word]
    if bool(name) != bool(kind.names):
        what = f"needs {kind.names} after a colon" if kind.names else "takes nothing after a colon"
        raise UsageError(f"the trigger {text!r}: {word!r} {what}")
    qualifiers: dict[str, str] = {}
    for qualifier, value in zip(rest[::2], rest[1::2], strict=True):
        if qualifier not in kind.qualifiers or qualifier in qualifiers:
            words = " and ".join(map(repr, kind.qualifiers))
            raise UsageError(
                f"the trigger {text!r}: {word!r} takes {words}, each once at most, and nothing else"
            )
        qualifiers[qualifier] = value
    return Trigger(kind=kind, name=name, qualifiers=qualifiers)


def parse_messages(text: str) -> Trigger:
    """Reads which messages a fault is about, as the trigger of their arrival.

    Raises:
        UsageError: The text does not name messages; the sentence states what is possible.
    """
    word, colon, rest = text.partition(":")
    if colon and word in (SENT, RECEIVED):
        raise UsageError(
            f"messages is {text!r}; name the message without '{word}:', as in {rest!r}"
        )
    try:
        return parse_trigger(f"{RECEIVED}:{text}")
    except UsageError:
        raise UsageError(
            f"messages is {text!r}; write the name of a message, and then 'from' and 'to', each once at most, "
            "for example 'Fetch from follower:t-0 to leader:t-0'"
        ) from None
