"""A small cluster in the simulated world, and one client: the vocabulary of the smoke tests."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from harness.environments.simulated.world import reference_world
from harness.simulation.weather import CALM, Weather
from system_under_test.config import (
    FAST_TIMINGS,
    LOG_DIR_NAMES,
    GroupConfig,
    MetadataLogConfig,
    NodeConfig,
    Voter,
    profile_features,
)
from system_under_test.metadata.image import BrokerRegistration, PartitionRegistration
from system_under_test.properties import configured
from system_under_test.protocol.messages import (
    create_topics_request,
    fetch_request,
    metadata_request,
    millis,
    produce_request,
)
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import ALL_RULES, Rules
from system_under_test.runtime import Connection, Host, SilentObserver
from system_under_test.server import build_node

SECOND_NS = 1_000_000_000
CONTROLLERS = (11, 12, 13)
REQUEST_TIMEOUT_MS = 2000
TOPIC = "events"


class MarkBook(SilentObserver):
    """Keeps the marks of one node, all incarnations together."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, dict[str, Any]]] = []

    def mark(self, name: str, **details: Any) -> None:
        self.marks.append((name, details))


class Cluster:
    """Three controllers, some brokers and a client, with short words for what happens to them."""

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: int = 3,
        min_isr: int = 2,
        profile: str = "kafka-4.1",
        weather: Weather = CALM,
        rules: Rules = ALL_RULES,
        metadata_log: MetadataLogConfig | None = None,
        log_dirs: int = 1,
        sim_wire: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.world = reference_world(seed, weather=weather, sim_wire=sim_wire)
        self.brokers = tuple(range(1, brokers + 1))
        self.books: dict[str, MarkBook] = {}
        self.acked: list[bytes] = []
        self._connections: dict[int, Connection] = {}
        voters = tuple(Voter(node_id=n, address=f"c{n}:9093") for n in CONTROLLERS)
        for node_id in (*CONTROLLERS, *self.brokers):
            is_broker = node_id in self.brokers
            name = f"b{node_id}" if is_broker else f"c{node_id}"
            config = NodeConfig(
                node_id=node_id,
                role="broker" if is_broker else "controller",
                address=f"{name}:{9092 if is_broker else 9093}",
                cluster_id="story",
                voters=voters,
                features=profile_features(profile),
                timings=FAST_TIMINGS,
                min_insync_replicas=min_isr,
                group=GroupConfig(group_initial_rebalance_delay_ms=0),
                rules=rules,
                log_dirs=LOG_DIR_NAMES[: log_dirs if is_broker else 1],
                metadata_log=metadata_log or MetadataLogConfig(),
            )
            config = configured(config, properties or {})
            self.books[name] = MarkBook()
            self.world.add_node(
                name,
                kind=config.role,
                address=config.address,
                main=partial(build_node, config),
                observer=self.books[name],
            )
        self.world.add_node("client", kind="client", address="client:0")

    # --- running --------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        for node in self.world.nodes.values():
            node.start()
        self.run_until(lambda: all(self.is_running(broker) for broker in self.brokers))
        return self

    def run_until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        self.world.run(condition, limit_ns=int(seconds * SECOND_NS))

    def run_for(self, seconds: float) -> None:
        self.world.run_for(int(seconds * SECOND_NS))

    def do(self, coroutine: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
        task = self.world.spawn("client", coroutine)
        self.run_until(task.done, seconds)
        return task.result()

    # --- inspection -----------------------------------------------------------------------------------

    def node(self, broker: int) -> Any:
        return self.world.nodes[f"b{broker}"]

    def is_running(self, broker: int) -> bool:
        process = self.node(broker).process
        return process is not None and process.state.value == "running"

    def active_controller(self) -> Any:
        for node_id in CONTROLLERS:
            node = self.world.nodes[f"c{node_id}"]
            if node.state == "running" and node.process.controller.is_active:
                return node.process.controller
        return None

    def partition(self) -> PartitionRegistration | None:
        controller = self.active_controller()
        found: PartitionRegistration | None = (
            None if controller is None else controller.image.partition(TOPIC, 0)
        )
        return found

    def registration(self, broker: int) -> BrokerRegistration:
        found: BrokerRegistration = self.active_controller().image.brokers[broker]
        return found

    def await_partition(
        self, condition: Callable[[PartitionRegistration], bool], seconds: float = 30
    ) -> PartitionRegistration:
        def met() -> bool:
            partition = self.partition()
            return partition is not None and condition(partition)

        self.run_until(met, seconds)
        partition = self.partition()
        assert partition is not None
        return partition

    def await_isr(self, *members: int) -> None:
        self.await_partition(lambda partition: set(partition.isr) == set(members))

    def leader(self) -> int:
        return self.await_partition(lambda partition: partition.leader >= 0).leader

    def marks(self, name: str) -> list[dict[str, Any]]:
        return [details for book in self.books.values() for n, details in book.marks if n == name]

    def log_of(self, broker: int) -> bytes:
        log = self.node(broker).process.replica_manager.partitions[TOPIC, 0].log
        data: bytes = log.read(0, 1 << 20, log.log_end_offset)
        return data

    # --- the client -----------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        host: Host = self.world.nodes["client"].host
        return host

    async def _ask(self, broker: int, message: Any) -> Any:
        connection = self._connections.get(broker)
        if connection is None or not connection.is_open:
            connection = await self.host.network.connect(f"b{broker}:9092", REQUEST_TIMEOUT_MS)
            self._connections[broker] = connection
        return await connection.request(message, REQUEST_TIMEOUT_MS)

    def create_topic(self, min_isr: int | None = None) -> None:
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=TOPIC,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=(
                        create_topics_request.CreatableReplicaAssignment(
                            partition_index=0, broker_ids=self.brokers
                        ),
                    ),
                    configs=()
                    if min_isr is None
                    else (
                        create_topics_request.CreatableTopicConfig(
                            name="min.insync.replicas", value=str(min_isr)
                        ),
                    ),
                ),
            ),
            timeout=millis(10_000),
        )
        response = self.do(self._ask(self.brokers[0], request))
        assert [topic.error_code for topic in response.topics] == [0], response
        self.await_isr(*self.brokers)

    def all_in_sync(self) -> bool:
        """Whether every partition has all of its replicas in the ISR."""
        controller = self.active_controller()
        return controller is not None and all(
            set(one.isr) == set(one.replicas) for one in controller.image.partitions.values()
        )

    def metadata(self, broker: int) -> Any:
        request = metadata_request.MetadataRequest(
            topics=None, include_topic_authorized_operations=False
        )
        return self.do(self._ask(broker, request))

    def produce(self, *values: bytes, acks: int = -1, broker: int | None = None) -> list[int]:
        """Produces values one by one and returns their error codes; acknowledged ones are kept."""
        leader = self.leader() if broker is None else broker
        return [self.do(self._produce(leader, value, acks)) for value in values]

    async def _produce(self, leader: int, value: bytes, acks: int) -> int:
        request = produce_request.ProduceRequest(
            acks=acks,
            timeout=millis(1500),
            topic_data=(
                produce_request.TopicProduceData(
                    name=TOPIC,
                    partition_data=(
                        produce_request.PartitionProduceData(
                            index=0, records=encode_batch([(None, value)], timestamp_ms=0)
                        ),
                    ),
                ),
            ),
        )
        response = await self._ask(leader, request)
        error = int(response.responses[0].partition_responses[0].error_code)
        if error == 0 and acks == -1:
            self.acked.append(value)
        return error

    def produce_eventually(self, *values: bytes) -> None:
        """Produces as a client with retries does: after an error it searches for the leader again."""
        for value in values:
            for _ in range(100):
                try:
                    if self.produce(value) == [0]:
                        break
                except (ConnectionError, TimeoutError):
                    pass
                self.run_for(0.05)
            else:
                raise AssertionError(f"{value!r} was not acknowledged in 100 attempts")

    def read_all(self) -> list[bytes]:
        """Reads as a consumer does, up to the leader's high watermark."""
        partition = self.await_partition(lambda one: one.leader >= 0)
        return self.do(self._read_all(partition.leader, partition.topic_id))

    async def _read_all(self, leader: int, topic_id: UUID) -> list[bytes]:
        values: list[bytes] = []
        offset = 0
        while True:
            request = fetch_request.FetchRequest(
                max_wait=millis(100),
                min_bytes=1,
                max_bytes=1 << 20,
                topics=(
                    fetch_request.FetchTopic(
                        topic_id=topic_id,
                        partitions=(
                            fetch_request.FetchPartition(
                                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                            ),
                        ),
                    ),
                ),
                forgotten_topics_data=(),
            )
            response = await self._ask(leader, request)
            data = response.responses[0].partitions[0]
            assert data.error_code == 0, data
            if not data.records:
                return values
            for header, records in decode_records(data.records):
                values += [record.value for record in records if record.offset >= offset]
                offset = header.last_offset + 1
