"""Events in the simulated world: committed changes, and what happens inside of nodes and between them.

An event is reported at its virtual time, within the callback in which it happens. What waits for it runs on the
host of the harness at the same virtual time, after that callback. So a power cut `on` an fsync finds the fsync in
flight, and a cut `on` a message that was sent finds the message on its way.
"""

from collections.abc import Callable, Sequence

from nemesis.events import CommittedEvents, Happened, Watches
from nemesis.fault import Fault
from nemesis.simulated.mechanism import SimulatedNodes
from nemesis.trigger import FSYNC, MARK, RECEIVED, SENT, Event, Trigger, check_names
from system_under_test.protocol.apis import MESSAGE_NAMES
from system_under_test.runtime.marks import MARKS


def needs_messages(schedule: Sequence[Fault]) -> bool:
    """Whether a fault of a schedule waits for a message."""
    return any(trigger.message for fault in schedule for trigger in fault.triggers)


class SimulatedEvents:
    """Observes all events. Implements `EventSource` and `harness.simulation.timeline.WorldListener`. Mutable.

    Args:
        nodes: The cluster whose events it observes.
        hears_messages: Whether it observes messages. It is decided before the first connection, because a
            connection either reports its messages or does not.

    Attributes:
        orders: Every mark with the class name of the message that had arrived last at its node; in the order in
            which the pairs were first seen.
    """

    def __init__(self, nodes: SimulatedNodes, *, hears_messages: bool) -> None:
        self.hears_messages = hears_messages
        self.orders: dict[tuple[str, str], None] = {}
        self._last_arrived = nodes.world.last_arrived
        self._committed = CommittedEvents(nodes)
        self._watches = Watches(nodes)
        nodes.world.listener = self
        nodes.mark_listeners.append(self._marked)

    def check(self, trigger: Trigger) -> None:
        """Raises `UsageError` if a trigger names a node, a message or a mark that does not exist."""
        check_names(trigger, messages=MESSAGE_NAMES, marks=MARKS)
        self._committed.check_names(trigger)

    def watch(self, trigger: Trigger, happened: Happened) -> Callable[[], None]:
        """Calls `happened` at each such event from now on, until the function that it returns is called."""
        if trigger.kind.is_committed:
            return self._committed.watch(trigger, happened)
        if trigger.message and not self.hears_messages:
            raise ValueError("the connections of this world do not report their messages")
        watch = self._watches.add(trigger, happened)
        return lambda: self._watches.end(watch)

    def _marked(self, node: str, mark: str) -> None:
        if node in self._last_arrived:
            self.orders[(mark, self._last_arrived[node].__name__)] = None
        if self._watches:
            self._watches.deliver(Event(kind=MARK, name=mark, nodes=(node,)))

    def sync_began(self, node: str) -> None:
        """Takes an fsync that began."""
        if self._watches:
            self._watches.deliver(Event(kind=FSYNC, nodes=(node,)))

    def message_sent(self, source: str, target: str, message: object) -> None:
        """Takes a message that left its sender."""
        if self._watches:
            name = type(message).__name__
            self._watches.deliver(Event(kind=SENT, name=name, nodes=(source, target)))

    def message_received(self, source: str, target: str, message: object) -> None:
        """Takes a message that arrived."""
        if self._watches:
            name = type(message).__name__
            self._watches.deliver(Event(kind=RECEIVED, name=name, nodes=(source, target)))
