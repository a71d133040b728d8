"""The events of a cluster of Apache Kafka, which writes no event log: committed metadata and states of replicas.

{"at_ns": 1, "node": "c11", "event": "committed", "first": 0, "end": 9, "after_ns": 0, "data": "<batches in hex>"}
{"at_ns": 2, "node": "c11", "event": "snapshot", "end_offset": 9, "epoch": 2, "leader": 11, "data": "..."}
{"at_ns": 3, "node": "b1", "event": "replica", "topic": "t", "partition": 0, "log_end_offset": 9, ...}
{"at_ns": 4, "node": "c11", "event": "violation", "invariant": "INV-5", "sentence": "..."}
{"at_ns": 5, "node": "c11", "event": "unobserved", "reason": "..."}
{"at_ns": 6, "node": "c11", "event": "unread", "what": "..."}
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from harness.contracts.system import UNOBSERVED_EVENT, UNREAD_EVENT, Node, RunningNodes
from harness.systems.apache_kafka.controller_logs import ReadBatches, compare_logs
from harness.systems.apache_kafka.metadata_reader import (
    Committed,
    MetadataError,
    MetadataReader,
    Snapshot,
)
from harness.systems.apache_kafka.observation import (
    COMMITTED_EVENT,
    REPLICA_EVENT,
    SNAPSHOT_EVENT,
    VIOLATION_EVENT,
    TransactionFilter,
    image_of_snapshot,
)
from harness.systems.apache_kafka.quorum import Connector
from harness.systems.apache_kafka.records import OtherRecord
from harness.systems.apache_kafka.replicas import BrokerReplicas, Leadership, PartitionName
from harness.systems.apache_kafka.segments import LOG_DIRECTORIES
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    PartitionChangeRecord,
    PartitionRecord,
)
from system_under_test.real.events import format_event

LOOK_EVERY_S = 0.05
CHECK_LIMIT_S = 60
INTERNAL = "__"
"""How the names of Kafka's own topics begin."""


class Leaders:
    """Follows who leads which partition. Mutable."""

    def __init__(self) -> None:
        self._image = ClusterImage(clears_leaderless_elr=True)
        self._transactions = TransactionFilter()
        self._leaders: dict[PartitionName, dict[int, int]] = {}

    def committed(self, part: Committed) -> None:
        """Takes committed records."""
        for batch in part.batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                if part.first <= offset < part.end:
                    for at, applied in self._transactions.take(offset, record):
                        self._apply(at, applied)

    def snapshot(self, part: Snapshot) -> None:
        """Takes a snapshot."""
        self._image = image_of_snapshot(part.end.end_offset, part.batches)
        for registration in self._image.partitions.values():
            self._note(registration.topic, registration)

    def of_broker(self, broker: int) -> dict[PartitionName, Leadership]:
        """Returns the partitions that a broker has replicas of, without Kafka's own."""
        found = {}
        for registration in self._image.partitions.values():
            if broker in registration.replicas and not registration.topic.startswith(INTERNAL):
                name = (registration.topic, registration.partition)
                found[name] = Leadership(
                    epoch=registration.leader_epoch, leaders=self._leaders[name]
                )
        return found

    def _apply(self, offset: int, record: Any) -> None:
        self._image.replay(offset, record)
        is_election = isinstance(record, PartitionRecord) or (
            isinstance(record, PartitionChangeRecord) and record.leader != LEADER_UNCHANGED
        )
        if is_election:
            registration = self._image.partitions[(record.topic_id, record.partition_id)]
            if isinstance(record, PartitionRecord):
                # A topic of this name may have existed before; its epochs were others.
                self._leaders.pop((registration.topic, registration.partition), None)
            self._note(registration.topic, registration)

    def _note(self, topic: str, registration: Any) -> None:
        known = self._leaders.setdefault((topic, registration.partition), {})
        known[registration.leader_epoch] = registration.leader


class EventsHost(Protocol):
    """What connections are opened from."""

    @property
    def network(self) -> Connector:
        """Its network."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class KafkaEvents:
    """Implements `EventSource` and `ChecksAtEnd`. Mutable; its tasks begin with the first `read`.

    Args:
        running: The nodes.
        host: Opens connections; closed with this object.
        log_directories: Where brokers keep their logs, relative to their files.

    Attributes:
        batches: What was read of the metadata log.
    """

    def __init__(
        self,
        running: RunningNodes,
        host: EventsHost,
        *,
        log_directories: Sequence[str] = LOG_DIRECTORIES,
    ) -> None:
        self._running = running
        self._host = host
        network = host.network
        self._names = {node.node_id: node.name for node in running.nodes}
        controllers = [node for node in running.nodes if node.role == "controller"]
        self._reader = MetadataReader({node.node_id: node.address for node in controllers}, network)
        self._brokers = [
            (node, self._replicas_of(node, network, log_directories))
            for node in running.nodes
            if node.role == "broker"
        ]
        self._leaders = Leaders()
        self._lines: dict[str, bytearray] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.batches = ReadBatches()

    async def read(self) -> dict[str, bytes]:
        """Returns the events since the last call, as lines by node; never waits."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._follow_metadata(), name="metadata-reader")]
            self._tasks += [
                loop.create_task(
                    self._follow_replicas(node, replicas), name=f"replicas-{node.name}"
                )
                for node, replicas in self._brokers
            ]
        lines, self._lines = self._lines, {}
        return {name: bytes(data) for name, data in lines.items()}

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns the time unchanged: it is this machine's."""
        return at_ns

    async def check_at_end(self) -> None:
        """Compares the logs of all controllers with what was read (INV-5)."""
        for task in self._tasks:
            task.cancel()
        controllers = [node.name for node in self._running.nodes if node.role == "controller"]
        files = {name: self._running.files_of(name) for name in controllers}
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                found = await asyncio.to_thread(compare_logs, files, self.batches)
        except TimeoutError:
            what = f"the logs of the controllers were not read within {CHECK_LIMIT_S} s"
            self._add(controllers[0], UNREAD_EVENT, what=what)
            return
        for name, sentence in found.differences:
            self._add(name or controllers[0], VIOLATION_EVENT, invariant="INV-5", sentence=sentence)
        for what in found.unread:
            self._add(controllers[0], UNREAD_EVENT, what=what)

    def close(self) -> None:
        """Ends all tasks and closes all connections."""
        for task in self._tasks:
            task.cancel()
        self._reader.close()
        for _, replicas in self._brokers:
            replicas.forget()
        self._host.close()

    # -- committed metadata

    async def _follow_metadata(self) -> None:
        try:
            while True:
                part = await self._reader.read()
                if part is not None:
                    self._take(part)
        except MetadataError as error:
            name = self._names[error.node_id]
            if error.invariant:
                self._add(name, VIOLATION_EVENT, invariant=error.invariant, sentence=str(error))
            else:
                self._add(name, UNOBSERVED_EVENT, reason=str(error))
        except InvariantViolation:
            # The observation reports the same violation, from the same records.
            return
        except Exception as error:
            # A task has no caller. Without this event the run would go on as if metadata did not change.
            reason = f"committed metadata cannot be followed: {type(error).__name__}: {error}"
            self._add(self._names[self._reader.leader_id], UNOBSERVED_EVENT, reason=reason)

    def _take(self, part: Committed | Snapshot) -> None:
        name = self._names[part.node_id]
        if isinstance(part, Snapshot):
            if self.batches.end:
                raise MetadataError(
                    f"the metadata log was cut at offset {part.end.end_offset} when it had been read up to offset"
                    f" {self.batches.end}: what happened between them is not known",
                    node_id=part.node_id,
                    invariant="",
                )
            _require_known(part, first=0, end=1 << 62)
            self.batches.snapshot(part)
            self._add(
                name,
                SNAPSHOT_EVENT,
                end_offset=part.end.end_offset,
                epoch=part.end.epoch,
                leader=part.node_id,
                data=part.data.hex(),
            )
            self._leaders.snapshot(part)
            return
        _require_known(part, first=part.first, end=part.end)
        self.batches.committed(part)
        after_ns = int(part.after_s * 1e9)
        self._add(
            name,
            COMMITTED_EVENT,
            first=part.first,
            end=part.end,
            after_ns=after_ns,
            data=part.data.hex(),
        )
        self._leaders.committed(part)

    # -- replicas

    def _replicas_of(
        self, node: Node, network: Connector, log_directories: Sequence[str]
    ) -> BrokerReplicas:
        def runs() -> bool:
            return self._running.runs(node.name)

        return BrokerReplicas(
            broker=node.node_id,
            address=node.address,
            network=network,
            files=self._running.files_of(node.name),
            runs=runs,
            log_directories=log_directories,
        )

    async def _follow_replicas(self, node: Node, replicas: BrokerReplicas) -> None:
        was_running = False
        try:
            while True:
                is_running = self._running.runs(node.name)
                if is_running and not was_running:
                    replicas.restarted()
                was_running = is_running
                for state in await replicas.look(self._leaders.of_broker(node.node_id)):
                    self._add(node.name, REPLICA_EVENT, **asdict(state))
                await asyncio.sleep(LOOK_EVERY_S)
        except Exception as error:
            reason = (
                f"the replicas on {node.name} cannot be followed: {type(error).__name__}: {error}"
            )
            self._add(node.name, UNOBSERVED_EVENT, reason=reason)

    def _add(self, name: str, event: str, **fields: Any) -> None:
        line = format_event(time.monotonic_ns(), name, event, fields)
        self._lines.setdefault(name, bytearray()).extend(line)


def _require_known(part: Committed | Snapshot, *, first: int, end: int) -> None:
    """Refuses records that change partitions or brokers in a way that is not known.

    Raises:
        MetadataError: There is one.
    """
    for batch in part.batches:
        for offset, record in enumerate(batch.records, batch.base_offset):
            if first <= offset < end and isinstance(record, OtherRecord) and record.is_of_image:
                raise MetadataError(
                    f"the metadata log has a {record.name} of version {record.version} at offset {offset}, which"
                    " this version of laststand cannot read",
                    node_id=part.node_id,
                    invariant="",
                )
