"""A story: a cluster in the simulated world to which a schedule lets things happen, one after the other.

Clients append and read as those of any run do, and the run has a final phase, so that the same kernels judge it
that judge every run. Brokers are 1, 2, 3, the partition is "t-0" with the replicas 1, 2, 3 in this order and
broker 1 as its first leader. Nothing is fsynced unless something is stopped cleanly.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

from harness.contracts.metadata import PartitionState
from harness.defects.requests import elect_request, min_isr_request, reassign_request
from harness.defects.transaction_record import TransactionRecord
from harness.history.op import Completion, Outcome, QueryKind
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.runs.phases import RunRecorder
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun
from harness.scenarios.steps import Wait
from nemesis.fault import Fault
from nemesis.shapes import plane_of
from nemesis.simulated.processes import kept_bytes
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.messages import (
    alter_partition_request,
    fetch_request,
    millis,
)
from workloads.append import AppendProcess, AppendWorkload
from workloads.append_config import AppendConfig

TOPIC = "t"
PARTITION = "t-0"
SERVER_PLANES = ("inter-broker", "controller")
WAIT_LIMIT_S = 15
ACKS_ALL = -1
Plot = Callable[["Story"], None]
"""What happens in a story."""


class Story:
    """A run whose main phase is a plot. Mutable: it is the run.

    Attributes:
        producer, consumer: A client each; both remember the leader that they learned last.
        complaints: What the schedule itself found unavailable or too late.
        codes: Letters of `defects.LETTERS` for the complaints.
        loses_unsynced_only: Whether a power cut takes only what was not synced, whatever the plot requests.
        transactions: Records the transactions of the story.
        transaction_history: What it recorded.
        closing_reads: Reads what transactions wrote when everything is healed; returns whether it reached the end.
            None if the story has no transactions.
    """

    def __init__(self, plot: Plot, experiment: Experiment, *, is_watched: bool) -> None:
        self.run = SimulatedRun(experiment, 1, HistoryWriter(None))
        self.experiment = experiment
        self.world = self.run.world
        self.cluster = self.run.cluster
        self.nemesis = self.run.nemesis
        self.result = self.run.result
        workload = self.run.phases.workload
        assert isinstance(experiment.workload, AppendConfig)
        self._append_config = experiment.workload
        assert isinstance(workload, AppendWorkload)
        self.ids = workload.process_ids
        # A history of its own, because no workload records both operations and transactions.
        self.transaction_history = HistoryWriter(None)
        self.transactions = TransactionRecord(
            RunRecorder(self.cluster.now_ns, self.transaction_history),
            run_id=self.run.seed,
            ids=self.ids,
        )
        self.closing_reads: Callable[[], bool] | None = None
        self._plot = plot
        self._is_watched = is_watched
        self._fault_count = 0
        self._client_count = 0
        self.complaints: list[str] = []
        self.codes: set[str] = set()
        self.loses_unsynced_only = False
        self.producer: AppendProcess
        self.consumer: AppendProcess
        self._home: dict[AppendProcess, str] = {}

    def to_its_end(self) -> RunResult:
        """Plays the plot and the final phase, and returns what came of them."""
        return self.run.run(self._play)

    def _play(self) -> None:
        self.cluster.start()
        if self._is_watched:
            self.run.monitor.start()
        self.do(self.run.phases.start())
        self.producer = self.new_client()
        self.consumer = self.new_client()
        self._plot(self)
        self.run.drive(self.run.phases.final(), self.experiment.final_phase_ms)
        self.result.final_phase_complete = self.closing_reads is None or self.closing_reads()

    def complain(self, sentence: str, code: str = "L") -> None:
        """Notes what a client would complain about, with its letter of `defects.LETTERS`."""
        self.complaints.append(sentence)
        self.codes.add(code)

    # -- time

    def do(self, work: Coroutine[Any, Any, Any], limit_s: float = WAIT_LIMIT_S) -> Any:
        """Runs something on the harness host to its end."""
        task = self.cluster.spawn("harness", work)
        self.world.run(until=task.done, limit_ns=int(limit_s * 1e9))
        return task.result()

    def until(self, condition: Callable[[], bool], limit_s: float = WAIT_LIMIT_S) -> None:
        """Lets the world run until a condition is true."""
        self.world.run(until=condition, limit_ns=int(limit_s * 1e9))

    def run_ms(self, ms: float) -> None:
        """Lets the world run for a while."""
        self.world.run_for(int(ms * 1e6))

    def wait(self, **conditions: Any) -> None:
        """Waits until committed metadata is as described; see `harness.scenarios.steps.Wait`."""
        wait = Wait(**conditions)
        self.until(lambda: wait.holds(self.cluster.metadata, PARTITION))

    # -- clients

    def new_client(self, *, asks: int | None = None) -> AppendProcess:
        """Returns a process on its own client host, which knows no leader yet.

        Args:
            asks: The only broker that it queries for the leader; None for any.
        """
        host = self.cluster.clients[self._client_count]
        self._client_count += 1
        bootstrap = self.cluster.bootstrap
        process = AppendProcess(
            self.cluster.client_host(host),
            self._append_config,
            RunRecorder(self.cluster.now_ns, self.run.history),
            run_id=self.run.seed,
            topic_partitions=self.experiment.topic.topic_partitions(),
            bootstrap=bootstrap if asks is None else bootstrap[asks - 1 : asks],
            ids=self.ids,
        )
        self._home[process] = host
        return process

    def append(
        self, count: int = 1, *, acks: int = -1, client: AppendProcess | None = None
    ) -> list[Completion]:
        """Appends records one after the other and returns what came of them."""
        client = client or self.producer
        return [self._on(client, client.append(TOPIC, 0, acks)) for _ in range(count)]

    def append_ok(
        self, count: int = 1, *, acks: int = -1, client: AppendProcess | None = None
    ) -> None:
        """Appends until so many records were acknowledged, as a client with retries does."""
        for _ in range(count):
            for _ in range(100):
                (completion,) = self.append(acks=acks, client=client)
                if completion.outcome is Outcome.OK:
                    break
                self.run_ms(20)
            else:
                raise AssertionError("no append was acknowledged in 100 attempts")

    def append_both(self, *partitions: int) -> None:
        """Appends a record to each partition, in one request per leader."""
        keys = [(TOPIC, partition) for partition in partitions]
        self._on(self.producer, self.producer.append_to(keys, ACKS_ALL))

    def begin_append(self, *, acks: int = -1, leader: int = 1) -> Any:
        """Starts an append of a new client at a broker and returns its task once the record is in the log."""
        client = self.new_client(asks=leader)
        end = self.log_end(leader)
        task = self.cluster.spawn(self._home[client], client.append(TOPIC, 0, acks))
        self.until(lambda: self.log_end(leader) > end)
        return task

    def read(self, client: AppendProcess | None = None) -> None:
        """Lets a consumer read to the log end that it learns."""
        client = client or self.consumer
        self._on(client, client.read_to_end(TOPIC, 0, lambda: True, final=False))

    def poll(self, client: AppendProcess | None = None) -> Completion:
        """Lets a consumer poll once."""
        client = client or self.consumer
        completion: Completion = self._on(client, client.poll(TOPIC, 0))
        return completion

    def latest(self, client: AppendProcess | None = None) -> Completion:
        """Queries the log end."""
        client = client or self.consumer
        completion: Completion = self._on(client, client.latest(TOPIC, 0))
        return completion

    def ask_about_newest(self, kind: QueryKind, client: AppendProcess | None = None) -> Completion:
        """Asks about the record that a consumer has remembered last; the clients need `queries_per_s`."""
        client = client or self.consumer
        completion: Completion = self._on(client, client.ask_about_newest(kind, TOPIC, 0))
        return completion

    def begin(self, client: AppendProcess | None = None) -> None:
        """The usual beginning: ten records are acknowledged, read, and on all replicas."""
        self.append_ok(10, client=client)
        self.until(lambda: all(self.log_end(broker) == 10 for broker in (1, 2, 3)))
        self.until(lambda: all(self.partition(b).high_watermark == 10 for b in (1, 2, 3)))
        self.read(client)

    def is_unacked(self, task: Any) -> bool:
        """Whether an append of `begin_append` ended without an acknowledgement."""
        completion: Completion = task.result()
        return completion.outcome is not Outcome.OK

    def pending_proposal(self, leader: int) -> Any:
        """Returns a copy of the AlterPartition request whose response a leader waits for."""
        partition, broker = self.partition(leader), self.broker(leader)
        return alter_partition_request.AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=broker.broker_epoch,
            topics=(
                alter_partition_request.TopicData(
                    topic_id=partition.topic_id,
                    partitions=(
                        alter_partition_request.PartitionData(
                            partition_index=0,
                            leader_epoch=partition.leader_epoch,
                            new_isr_with_epochs=tuple(
                                alter_partition_request.BrokerState(
                                    broker_id=member,
                                    broker_epoch=self.cluster.metadata.brokers[member].broker_epoch,
                                )
                                for member in partition.leadership.state.proposed_isr
                            ),
                            leader_recovery_state=0,
                            partition_epoch=partition.replica.partition_epoch,
                        ),
                    ),
                ),
            ),
        )

    def fetch_of(self, follower: int, leader: int) -> Any:
        """Returns the fetch that a follower with its present log would send to its leader now."""
        replica = self.partition(follower).replica
        offset, last_epoch, start = replica.fetch_position()
        wanted = fetch_partition(
            0,
            self.partition(leader).leader_epoch,
            offset,
            1 << 20,
            last_fetched_epoch=last_epoch,
            log_start_offset=start,
        )
        return fetch_of(
            (fetch_topic(replica.topic_id, (wanted,)),),
            millis(0),
            1 << 20,
            fetch_request.ReplicaState(
                replica_id=follower, replica_epoch=self.broker(follower).broker_epoch
            ),
        )

    def deliver_late(self, message: Any, broker: int) -> Any:
        """Delivers a request that was on its way to a broker for a long time."""

        async def deliver() -> Any:
            network = self.cluster.client_host("harness").network
            connection = await network.connect(f"{node_name(broker)}:9092", 500)
            return await connection.request(message, 1000)

        return self.do(deliver())

    def send_to_controller(self, message: Any) -> Any:
        """Delivers a message to the active controller."""

        async def deliver() -> Any:
            network = self.cluster.client_host("harness").network
            controller = self.cluster.metadata.active_controller
            connection = await network.connect(f"c{controller}:9093", 500)
            return await connection.request(message, 1000)

        return self.do(deliver())

    # -- administration

    def reassign(self, *replicas: int) -> None:
        """Gives the partition other replicas; the controller must accept that."""
        self._reassign(replicas)

    def cancel_reassignment(self) -> None:
        """Cancels the reassignment of the partition; the controller must accept that."""
        self._reassign(None)

    def _reassign(self, replicas: tuple[int, ...] | None) -> None:
        response = self.send_to_controller(reassign_request((TOPIC, 0, replicas)))
        (one,) = response.responses[0].partitions
        assert one.error_code == 0, one

    def prefer(self) -> int:
        """Requests the election of the preferred leader; returns the error."""
        response = self.send_to_controller(elect_request((TOPIC, 0)))
        error: int = response.replica_election_results[0].partition_result[0].error_code
        return error

    def send_to_broker(self, broker: int, message: Any) -> Any:
        """Delivers a message to a broker."""

        async def deliver() -> Any:
            network = self.cluster.client_host("harness").network
            connection = await network.connect(f"b{broker}:9092", 500)
            return await connection.request(message, 1000)

        return self.do(deliver())

    def _on(self, client: AppendProcess, work: Coroutine[Any, Any, Any]) -> Any:
        task = self.cluster.spawn(self._home[client], work)
        self.world.run(until=task.done, limit_ns=WAIT_LIMIT_S * 1_000_000_000)
        return task.result()

    # -- faults

    def kill(self, *nodes: int) -> None:
        """Ends processes (SIGKILL); the page cache stays."""
        self._fault("kill", nodes)

    def power(self, node: int, *, keep_records: int | None = None) -> None:
        """Takes the power of a node.

        Args:
            node: A broker or controller.
            keep_records: How many records its partition log keeps; without it, everything that was synced.
        """
        if keep_records is None or self.loses_unsynced_only:
            self._fault("power", (node,))
        else:
            self._fault("power", (node,), keep_records=keep_records)

    def power_keeping_metadata(self, node: int, *, keep_records: int) -> None:
        """As `power`; the broker's copy of the metadata survives as well."""
        disk = self.world.nodes[node_name(node)].disk
        keep = kept_bytes(self.world.nodes[node_name(node)], {"keep_records": keep_records}) or {}
        for path in disk.files:
            if "__cluster_metadata" in path:
                keep[path] = len(disk.read(path))
        self.world.nodes[node_name(node)].power_off("lose_all", keep=keep)

    def delay_fencing(self) -> None:
        """Lets controllers act upon the end of a session later than they could."""
        for name in self.cluster.controllers:
            self.world.nodes[name].host.random.always.add("late-fencing")

    def merge_metadata(self, broker: int) -> None:
        """From now on a broker applies all metadata that it has got as one change (META-3)."""
        node = self.world.nodes[node_name(broker)]
        node.host.random.always.add("metadata-batch")

    def apply_metadata_at_once(self, broker: int) -> None:
        """Ends `merge_metadata`."""
        self.world.nodes[node_name(broker)].host.random.always.discard("metadata-batch")

    def set_min_isr(self, min_isr: int) -> None:
        """Sets `min.insync.replicas` of the topic."""
        response = self.send_to_controller(min_isr_request(TOPIC, min_isr))
        assert response.responses[0].error_code == 0, response

    def fence_in_time(self) -> None:
        """Ends `delay_fencing`."""
        for name in self.cluster.controllers:
            self.world.nodes[name].host.random.always.discard("late-fencing")

    def stop(self, *nodes: int) -> None:
        """Stops cleanly, one after the other."""
        for node in nodes:
            self._fault("stop", (node,))

    def start(self, *nodes: int) -> None:
        """Starts what is down."""
        self._fault("start", nodes)

    def _fault(self, name: str, nodes: Iterable[int], **params: Any) -> None:
        self._fault_count += 1
        fault = Fault(
            id=f"f{self._fault_count}",
            fault=name,
            targets=tuple(node_name(node) for node in nodes),
            params=params,
        )
        self.do(self.nemesis.inject(fault))

    def flip_bit_of_last_record(self, broker: int) -> None:
        """Flips one bit in the value of the last record of a broker's partition log."""
        disk = self.world.nodes[node_name(broker)].disk
        path = f"data/{PARTITION}/{0:020d}.log"
        disk.bit_flip(path, len(disk.read(path)) - 10)

    def move(self, *brokers: int) -> None:
        """Moves the replicas of brokers to the second log directory, or back to the first."""
        for broker in brokers:
            self._move(broker)

    def _move(self, broker: int) -> None:
        before = self.directory(broker)
        self._fault("move_replica", (broker,), partition=PARTITION)
        self.until(lambda: self.directory(broker) != before)

    def directory(self, broker: int) -> str:
        """Returns the log directory in which a running broker has its replica."""
        name: str = self.broker(broker).logs.directory_name(TOPIC, 0)
        return name

    def break_directory(self, broker: int, name: str = "data2") -> Any:
        """Makes every operation in one log directory of a broker fail."""
        disk = self.world.nodes[node_name(broker)].disk
        return disk.io_error("any", f"{name}/")

    def repair_directory(self, broker: int, fault: Any) -> None:
        """Repairs a directory; the broker is started again, because it does not look at the directory before."""
        self.world.nodes[node_name(broker)].disk.heal(fault)
        self.kill(broker)
        self.start(broker)

    def replace_directory(self, broker: int, name: str = "data2") -> None:
        """Replaces the disk of one log directory of a broker that is down by an empty one."""
        self.world.nodes[node_name(broker)].disk.wipe(f"{name}/")

    def isolate(self, node: int, planes: Collection[str] = SERVER_PLANES) -> Any:
        """Cuts a node off from the other servers; clients still reach it."""
        name = node_name(node)
        kinds = {each: one.kind for each, one in self.world.nodes.items()}
        pairs = [
            pair
            for other, kind in kinds.items()
            if other != name and plane_of(kinds[name], kind) in planes
            for pair in ((name, other), (other, name))
        ]
        return self.world.network.stall(f"isolate {name}", pairs)

    def cut(self, a: int, b: int) -> Any:
        """Cuts the link between two nodes."""
        one, other = node_name(a), node_name(b)
        return self.world.network.stall(f"cut {one} {other}", ((one, other), (other, one)))

    def cut_from_controllers(self, node: int) -> Any:
        """Cuts a broker off from all controllers; it is fenced soon."""
        return self.isolate(node, planes=("controller",))

    def hold(self, message: str, source: int | None, target: int | None) -> Any:
        """Holds messages of one type between two nodes, or from or to anybody, until `release`."""
        return self.world.network.hold(
            None if source is None else node_name(source),
            None if target is None else node_name(target),
            message,
        )

    def drop(self, message: str, source: int | None, target: int | None, count: int = 1) -> Any:
        """Lets the next messages of one type vanish, each with its connection."""
        return self.world.network.drop(
            None if source is None else node_name(source),
            None if target is None else node_name(target),
            message,
            count=count,
        )

    def stall_metadata(self, broker: int) -> list[Any]:
        """Holds the metadata on their way to a broker; its heartbeats and AlterPartitions pass."""
        return [
            self.hold("FetchResponse", controller, broker)
            for controller in self.cluster.controllers.values()
        ]

    def hold_metadata(self, broker: int) -> None:
        """Lets a broker collect committed metadata, until `release_metadata`."""
        self.cluster.hold_metadata(node_name(broker))

    def release_metadata(self, broker: int) -> None:
        """Lets a broker apply what it collected as one change, of which its replicas see the end points."""
        self.cluster.release_metadata(node_name(broker))

    def heal(self, *tokens: Any) -> None:
        """Ends cuts and holds."""
        for token in tokens:
            for one in token if isinstance(token, list) else (token,):
                self.world.network.heal(one)

    # -- inspection

    @property
    def state(self) -> PartitionState:
        """The partition in committed metadata."""
        return self.cluster.metadata.partitions[PARTITION]

    def broker(self, node: int) -> Any:
        """Returns a running broker."""
        return self.cluster.running_broker(node_name(node))

    def partition(self, node: int) -> Any:
        """Returns a running broker's replica."""
        return self.broker(node).replica_manager.partitions[TOPIC, 0]

    def has_replica(self, node: int) -> bool:
        """Whether a broker runs and has loaded its replica."""
        broker = self.broker(node)
        return (
            broker is not None
            and (TOPIC, 0) in broker.replica_manager.partitions
            and self.partition(node).log is not None
        )

    def log_end(self, node: int) -> int:
        """Returns the log end of a running broker's replica, -1 if there is none."""
        end: int = self.partition(node).replica.log_end_offset if self.has_replica(node) else -1
        return end

    def is_running(self, broker: int) -> bool:
        """Whether a broker with this id runs; -1 for no broker."""
        return broker != -1 and self.broker(broker) is not None

    def quorum(self, controller: int) -> Any:
        """Returns a running controller's member of the metadata quorum."""
        node: Any = self.world.nodes[node_name(controller)]
        return node.process.raft

    def leads_quorum(self, controller: int) -> bool:
        """Whether a running controller leads the metadata quorum, as far as it knows."""
        is_alive = self.world.nodes[node_name(controller)].is_alive
        return is_alive and bool(self.quorum(controller).is_leader)

    def knows_active(self, broker: int, other: int) -> bool:
        """Whether a running broker has heard that another one may join ISRs."""
        return bool(self.broker(broker).metadata.is_isr_eligible(other))

    def knows_isr(self, broker: int) -> tuple[int, ...]:
        """Returns the ISR in the metadata that a running broker has applied."""
        isr: tuple[int, ...] = self.broker(broker).metadata.image.partition(TOPIC, 0).isr
        return isr


def node_name(node: int) -> str:
    """Returns the name of a broker (1 ...) or controller (11 ...)."""
    return f"c{node}" if node > 10 else f"b{node}"
