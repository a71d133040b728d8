"""Stories about defects: a real cluster in the simulated world, directed faults, a history, and a verdict.

A plot is a function that gets a `Story` and lets things happen, one after the other. `play` runs it between the
start and the final phase of an ordinary run, so that the same kernels judge it that judge every run. A plot is
played three times: with all rules (it must end well), without the rule and with the invariant monitor (which must
object), and without either (the clients must see the harm).

Brokers are 1, 2, 3, the partition is "t-0" with the replicas 1, 2, 3 in this order and broker 1 as its first
leader. Nothing is fsynced unless something is stopped cleanly.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from checkers.examples import PRODUCED_BY
from checkers.kernels.compose import judge_run
from harness.contracts.metadata import PartitionState
from harness.contracts.run_context import context_from_facts
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.history.op import Completion, Outcome
from harness.history.writer import HistoryWriter
from harness.runs.experiment import ClusterConfig, Experiment, TopicConfig
from harness.runs.phases import RunRecorder
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun
from harness.scenarios.steps import Wait
from nemesis.fault import Fault
from nemesis.simulated.processes import kept_bytes
from system_under_test.config import DEFAULT_PROFILE
from system_under_test.controller.configs import SET
from system_under_test.defects import DEFECTS, Defect
from system_under_test.metadata.image import MIN_ISR_CONFIG, TOPIC_RESOURCE
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.messages import (
    alter_partition_request,
    fetch_request,
    incremental_alter_configs_request,
    millis,
)
from tests.controller_story import elect_request, reassign_request
from tests.simulation.network_helpers import around, between, on_planes
from workloads.append import AppendConfig, AppendProcess, AppendWorkload

TOPIC = "t"
PARTITION = "t-0"
SERVER_PLANES = ("inter-broker", "controller")
WAIT_LIMIT_S = 15
CODE_OF = {
    "lost-acked-write": "A",
    "visible-regress": "V",
    "divergent-value": "D",
    "corrupt-record": "C",
}
"""Letters of `defects.LETTERS` for what checkers call by name."""

Plot = Callable[["Story"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a plot came to.

    Attributes:
        verdict: As of any run.
        complaints: What the plot itself found unavailable or too late.
    """

    result: RunResult
    verdict: Verdict
    complaints: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether the run has no problem."""
        return self.verdict.validity is Validity.VALID and not self.complaints

    @property
    def forbidden(self) -> frozenset[str]:
        """Identifiers of the anomalies that break a promise."""
        return frozenset(
            anomaly.id
            for anomaly in self.verdict.anomalies
            if anomaly.judgement is Judgement.FORBIDDEN
        )

    @property
    def invariants(self) -> frozenset[str]:
        """Identifiers of the invariants that were found broken."""
        return frozenset(
            word.rstrip(":")
            for text in self.result.violations
            for word in text.split()
            if word.startswith("INV-")
        )

    @property
    def codes(self) -> frozenset[str]:
        """Letters of `defects.LETTERS` for what clients saw."""
        seen = {CODE_OF[identifier] for identifier in self.forbidden if identifier in CODE_OF}
        if self.result.stuck or self.complaints:
            seen.add("L")
        return frozenset(seen)

    def marks(self, name: str) -> int:
        """Returns how often a rare branch was taken."""
        count: int = self.result.tables["marks"].column("mark").to_pylist().count(name)
        return count

    def __str__(self) -> str:
        return "; ".join(
            [
                str(self.verdict.validity),
                *self.verdict.reasons,
                *self.result.violations,
                *self.complaints,
            ]
        )


class Story:
    """A run whose main phase is a plot. Mutable: it is the run.

    Attributes:
        producer, consumer: A client each; both remember the leader that they learned last.
        complaints: See `Ending`.
        loses_unsynced_only: Whether a power cut takes only what was not synced, whatever the plot requests.
    """

    def __init__(self, plot: Plot, experiment: Experiment, *, is_watched: bool) -> None:
        self.run = SimulatedRun(experiment, 1, HistoryWriter(None))
        self.experiment = experiment
        self.world = self.run.world
        self.cluster = self.run.cluster
        self.nemesis = self.run.nemesis
        self.result = self.run.result
        workload = self.run.phases.workload
        assert isinstance(workload, AppendWorkload)
        self.ids = workload.process_ids
        self._plot = plot
        self._is_watched = is_watched
        self._fault_count = 0
        self._client_count = 0
        self.complaints: list[str] = []
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
        self.result.final_phase_complete = True

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
            self.experiment.workload,
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
            self.world.nodes[name].host.random.buggify = lambda point: point == "late-fencing"

    def merge_metadata(self, broker: int) -> None:
        """Lets a broker apply all metadata that it has got as one change (META-3)."""
        node = self.world.nodes[node_name(broker)]
        node.host.random.buggify = lambda point: point == "metadata-batch"

    def set_min_isr(self, min_isr: int) -> None:
        """Sets `min.insync.replicas` of the topic."""
        change = incremental_alter_configs_request
        response = self.send_to_controller(
            change.IncrementalAlterConfigsRequest(
                validate_only=False,
                resources=(
                    change.AlterConfigsResource(
                        resource_type=TOPIC_RESOURCE,
                        resource_name=TOPIC,
                        configs=(
                            change.AlterableConfig(
                                name=MIN_ISR_CONFIG, config_operation=SET, value=str(min_isr)
                            ),
                        ),
                    ),
                ),
            )
        )
        assert response.responses[0].error_code == 0, response

    def fence_in_time(self) -> None:
        """Ends `delay_fencing`."""
        for name in self.cluster.controllers:
            del self.world.nodes[name].host.random.buggify

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
            before = self.directory(broker)
            self._fault("move_replica", (broker,), partition=PARTITION)
            self.until(lambda broker=broker, before=before: self.directory(broker) != before)

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
        pairs = on_planes(self.world, planes, around(self.world, name))
        return self.world.network.stall(f"isolate {name}", pairs)

    def cut(self, a: int, b: int) -> Any:
        """Cuts the link between two nodes."""
        ends = node_name(a), node_name(b)
        return self.world.network.stall(f"cut {' '.join(ends)}", between(*ends))

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

    def leads_quorum(self, controller: int) -> bool:
        """Whether a running controller leads the metadata quorum, as far as it knows."""
        node = self.world.nodes[node_name(controller)]
        return bool(node.is_alive and node.process.raft.is_leader)

    def knows_active(self, broker: int, other: int) -> bool:
        """Whether a running broker has heard that another one may join ISRs."""
        return bool(self.broker(broker).metadata.is_isr_eligible(other))


def node_name(node: int) -> str:
    """Returns the name of a broker (1 ...) or controller (11 ...)."""
    return f"c{node}" if node > 10 else f"b{node}"


def play(
    plot: Plot,
    *off: str,
    profile: str = DEFAULT_PROFILE,
    min_isr: int = 2,
    brokers: int = 3,
    log_dirs: int = 1,
    is_watched: bool = True,
    final_phase_ms: int = 8000,
    properties: Mapping[str, str] | None = None,
) -> Ending:
    """Plays a plot and judges it.

    Args:
        plot: What happens.
        off: Rules that are switched off.
        profile: Of the cluster.
        min_isr: Of the topic.
        brokers: How many there are; the partition begins on the first three.
        log_dirs: Of each broker.
        is_watched: Whether the invariant monitor is active; a violation ends the run.
        final_phase_ms: Bound on healing and catching up.
        properties: Kafka's properties of the nodes.
    """
    experiment = Experiment(
        name="mutation",
        profile=profile,
        weather="calm",
        final_phase_ms=final_phase_ms,
        cluster=ClusterConfig(brokers=brokers, log_dirs=log_dirs),
        topic=TopicConfig(name=TOPIC, min_insync_replicas=min_isr),
        workload=AppendConfig(processes=12, request_timeout_ms=4000),
        disabled_rules=tuple(off),
        properties=properties or {},
    )
    story = Story(plot, experiment, is_watched=is_watched)
    result = story.to_its_end()
    recorded = context_from_facts(result.tables["run_facts"])
    assert recorded is not None
    context = replace(recorded, acked_during_faults_min=0)
    verdict = judge_run(result.tables, context)
    return Ending(result=result, verdict=verdict, complaints=tuple(story.complaints))


def expect_defect(
    defect_id: str,
    plot: Plot,
    *,
    min_isr: int = 2,
    brokers: int = 3,
    log_dirs: int = 1,
    properties: Mapping[str, str] | None = None,
) -> Ending:
    """Plays a plot with and without a defect of the table, and compares it with the table.

    With all rules the run is clean. With the defect the monitor finds the documented invariant violation, if the
    table has one; without the monitor, clients see all documented anomalies.

    Returns:
        What clients saw.
    """
    defect: Defect = DEFECTS[defect_id]
    played = partial(
        play,
        plot,
        profile=defect.profile,
        min_isr=min_isr,
        brokers=brokers,
        log_dirs=log_dirs,
        properties=properties,
    )
    if defect.rules:
        control = played()
        assert control.is_clean, f"all rules apply, yet: {control}"
    if defect.invariants:
        watched = played(*defect.rules)
        assert watched.invariants & set(defect.invariants), f"the monitor found only: {watched}"
    unwatched = played(*defect.rules, is_watched=False)
    named = {name for name, producers in PRODUCED_BY.items() if defect_id in producers}
    shown = {anomaly.id for anomaly in unwatched.verdict.anomalies}
    assert named <= shown, f"docs/anomalies.md names it for {named - shown}, which are not there"
    if defect.anomalies:
        assert unwatched.codes >= set(defect.anomalies), f"clients saw only: {unwatched}"
    return unwatched
