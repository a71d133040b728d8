"""What a native client knows of its cluster: connections to its nodes, and the leaders of partitions."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from harness.contracts.host import ClientHost, Connection
from harness.history.op import Completion, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import metadata_request
from workloads.clients.connections import Connections

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which a client requests metadata again."""

METADATA_BACKOFF_MS = 100
"""After a Metadata request of a topic, a client makes no other one for so long; the default of `retry.backoff.ms`,
which Kafka's clients use for this. Otherwise every operation makes one until a dead leader is replaced: under
Kafka's timings that was an eighth of all messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A partition's leader as the client believes it to be.

    Attributes:
        node_id, address, host: The broker.
        leader_epoch: In which it leads.
        topic_id: Of the topic.
        followers: Addresses and hosts of the other replicas that are online.
    """

    node_id: int
    address: str
    leader_epoch: int
    topic_id: UUID
    host: str
    followers: tuple[tuple[str, str], ...] = ()


def never_sent(leader: Leader | None) -> Completion:
    """Returns the end of an operation for which no leader is known, or none could be reached."""
    error, node = ("no-leader-known", "") if leader is None else ("connect-failed", leader.host)
    return Completion(outcome=Outcome.FAIL, error_code=None, error=error, node=node)


def failed(leader: Leader, response: Any) -> Completion:
    """Returns the end of an operation after a word for what went wrong, or a response with an error."""
    if isinstance(response, str):
        return Completion(outcome=Outcome.FAIL, error_code=None, error=response, node=leader.host)
    return refused(leader, ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))


def refused(leader: Leader, code: ErrorCode) -> Completion:
    """Returns the end of an operation that a broker refused."""
    return Completion(outcome=Outcome.FAIL, error_code=int(code), error=code.name, node=leader.host)


class ClusterClient:
    """The connections of one client and what it knows of leaders. Mutable: both.

    Args:
        host: The client host it runs on.
        bootstrap: Addresses of brokers to query for metadata, in turn.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which a connection attempt is given up.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self.host = host
        self.request_timeout_ms = request_timeout_ms
        self._connections = Connections(host, bootstrap, connect_timeout_ms)
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._newest: dict[tuple[UUID, int], Leader] = {}
        self._metadata_from_ns: dict[str, float] = {}

    async def leader(
        self, topic: str, partition: int, *, never_older: bool = False
    ) -> Leader | None:
        """Returns a partition's leader, after a Metadata request if it is not known.

        None if that did not help, or if there was another one a short time ago.

        Args:
            topic: Name of the topic.
            partition: Index of the partition.
            never_older: Whether to ignore metadata with an older leader epoch than the newest one that this client
                has seen, as Kafka's clients do (KIP-320): a deposed leader may lack what its successor has.
        """
        key = (topic, partition)
        leader = self._leaders.get(key)
        now_ns = self.host.clock.monotonic_ns()
        if leader is None and now_ns >= self._metadata_from_ns.get(topic, 0):
            self._metadata_from_ns[topic] = now_ns + METADATA_BACKOFF_MS * 1e6
            await self._refresh(topic)
            leader = self._leaders.get(key)
        if leader is None or not never_older:
            return leader
        newest = self._newest.setdefault((leader.topic_id, partition), leader)
        if leader.leader_epoch < newest.leader_epoch:
            return newest
        self._newest[(leader.topic_id, partition)] = leader
        return leader

    def forget_leader(self, topic: str, partition: int) -> None:
        """Forgets a partition's leader, so that the next operation requests metadata."""
        self._leaders.pop((topic, partition), None)

    def next_broker(self) -> str:
        """Returns the address of a broker, of the next one in turn."""
        return self._connections.next_broker()

    async def open(self, address: str) -> Connection | None:
        """Returns the connection to a node; see `Connections`."""
        return await self._connections.open(address)

    async def request(
        self, connection: Connection, address: str, request: Any, timeout_ms: float
    ) -> Any:
        """Returns the response, or a short word for what went wrong with the connection."""
        return await self._connections.request(address, connection, request, timeout_ms)

    def close(self) -> None:
        """Closes all connections."""
        self._connections.close()

    async def _refresh(self, topic: str) -> None:
        """Requests the topic's metadata from one broker, the next in turn."""
        address = self.next_broker()
        connection = await self.open(address)
        if connection is None:
            return
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(topic_id=None, name=topic),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        response = await self.request(connection, address, request, self.request_timeout_ms)
        if isinstance(response, str):
            return
        hosts = {broker.node_id: broker.host for broker in response.brokers}
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in response.brokers}
        for described in response.topics:
            for item in described.partitions:
                if item.leader_id in addresses:
                    self._leaders[(topic, item.partition_index)] = Leader(
                        node_id=item.leader_id,
                        address=addresses[item.leader_id],
                        leader_epoch=item.leader_epoch,
                        topic_id=described.topic_id,
                        host=hosts[item.leader_id],
                        followers=tuple(
                            (addresses[replica], hosts[replica])
                            for replica in item.replica_nodes
                            if replica in addresses
                            and replica != item.leader_id
                            and replica not in item.offline_replicas
                        ),
                    )
