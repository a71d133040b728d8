"""Follows the event logs of real nodes of the reference system."""

from collections.abc import Callable, Sequence

from harness.contracts.cluster import AddRow, Topic
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import Event, Node
from harness.contracts.violation import Violation
from harness.systems.reference.states import MetadataWitness, NodeObserver
from system_under_test.invariants import InvariantViolation
from system_under_test.real.events import parse_event, record_from_text

MISSING_NS_MAX = 5_000_000_000
"""How long the report of a record may arrive after those of later ones; nodes report within milliseconds."""


class EventObservation:
    """Implements `Observation`. Mutable: the newest committed metadata.

    Args:
        nodes: All nodes of the run.
        view: Committed metadata, kept up to date.
        add_row: Takes history rows.
        on_violation: Called when nodes contradict an invariant.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> None:
        self.doubt = ""
        self._now_ns = 0
        self._on_violation = on_violation
        self._is_broken = False
        self._witness = witness = MetadataWitness(view, add_row, self._now)
        self._observers = {
            node.name: NodeObserver(node.name, node.node_id, witness, add_row, self._now)
            for node in nodes
        }

    def parse(self, line: bytes) -> Event:
        """Reads one line of an event log."""
        event = parse_event(line)
        return Event(at_ns=event.at_ns, node=event.node, event=event.event, fields=event.fields)

    def take(self, event: Event, at_ns: int) -> None:
        """Takes one event; after a violation no event counts, because no later state can be trusted."""
        if self._is_broken:
            return
        self._now_ns = at_ns
        try:
            self._take(event)
            self._note_missing()
        except InvariantViolation as violation:
            self._is_broken = True
            self._on_violation(
                Violation(
                    at_ns=at_ns,
                    node=event.node,
                    invariant=violation.invariant_id,
                    sentence=f"{event.node}: {violation}",
                )
            )

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Ignores the topic: the controllers report it."""

    def node_started(self, name: str, at_ns: int) -> None:
        """Ignores the start: the node reports its replicas by itself."""

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Records that the node's replicas are offline."""
        self._now_ns = at_ns
        self._observers[name].node_went_down()

    def _take(self, event: Event) -> None:
        observer = self._observers[event.node]
        fields = event.fields
        if event.event == "metadata":
            offset, quorum_epoch, record = record_from_text(fields["record"])
            observer.metadata_committed(offset, quorum_epoch, record)
        elif event.event == "replica":
            observer.replica_changed(**fields)
        elif event.event == "mark":
            observer.mark(fields["name"], **fields["details"])

    def _note_missing(self) -> None:
        """Doubts the run if controllers continue from a snapshot whose records nobody reported."""
        missing = self._witness.missing
        if missing is not None and self._now_ns - missing.since_ns > MISSING_NS_MAX:
            self.doubt = (
                f"no controller reported the metadata record at offset {missing.offset}, "
                "although later ones were reported"
            )

    def _now(self) -> int:
        return self._now_ns
