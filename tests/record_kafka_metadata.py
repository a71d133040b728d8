"""Records metadata logs of Apache Kafka for `tests/data/kafka_metadata`.

    .venv/bin/python -m tests.record_kafka_metadata VERSION --lib DIRECTORY [--java JAVA] [--into DIRECTORY]

DIRECTORY has the jars of `org.apache.kafka:kafka_2.13:VERSION` and of a logging backend. Three controllers and
three brokers run on loopback addresses of their own for about a minute. Meanwhile the reader of committed metadata
follows them, and at the end what it read is compared with the logs of all controllers.
"""

import argparse
import asyncio
import base64
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import Node, RunningNodes
from harness.environments.local.cluster import _LocalNodeFiles
from harness.environments.observation.event_tail import EventTail
from harness.systems.apache_kafka.controller_logs import METADATA_DIRECTORY, compare_logs
from harness.systems.apache_kafka.events import KafkaEvents
from harness.systems.apache_kafka.observation import KafkaObservation
from system_under_test.protocol import messages as m
from system_under_test.protocol.versions import converter, message_type
from system_under_test.real.host import ClientHost

CONTROLLERS, BROKERS = (11, 12, 13), (1, 2, 3)
PORT = 19092
CLUSTER_ID = base64.urlsafe_b64encode(b"laststand-record").decode().rstrip("=")
WAIT_S = 240.0
INTO = Path(__file__).parent / "data" / "kafka_metadata"
LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d{ISO8601}] %p %m (%c)%n
"""
LOG4J2 = """status=warn
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d{ISO8601}] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.c.ref=c
"""
JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Cluster:
    """Processes of one version. Mutable.

    Args:
        root: Where their files are.
        version: Of Kafka.
        lib: The jars.
        java: The Java launcher.
        network: The first three numbers of the nodes' addresses.
    """

    def __init__(self, root: Path, version: str, lib: Path, java: str, network: str) -> None:
        self.root, self.java, self.network = root, java, network
        self.is_4 = int(version.split(".")[0]) >= 4
        self.class_path = ":".join(str(jar) for jar in sorted(lib.resolve().glob("*.jar")))
        name = "log4j2.properties" if self.is_4 else "log4j.properties"
        (root / name).write_text(LOG4J2 if self.is_4 else LOG4J)
        option = "log4j2.configurationFile" if self.is_4 else "log4j.configuration"
        self.flags = (*JVM, f"-D{option}=file:{root / name}")
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes = [
            Node(name=f"c{i}", role="controller", node_id=i, address=self.address(i))
            for i in CONTROLLERS
        ] + [Node(name=f"b{i}", role="broker", node_id=i, address=self.address(i)) for i in BROKERS]

    def address(self, node: int) -> str:
        """Returns where a node listens."""
        return f"{self.network}.{node}:{PORT + (node > 10)}"

    def data(self, node: int) -> Path:
        """Returns the data directory of a node."""
        return self.root / f"n{node}" / "data"

    def format(self, node: int) -> None:
        """Writes the files of a node, and formats its directory; Kafka's tool does it once per role."""
        role = "controller" if node > 10 else "broker"
        listener = "CONTROLLER" if node > 10 else "INTERNAL"
        values = {
            "process.roles": role,
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{i}@{self.address(i)}" for i in CONTROLLERS),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
            "listeners": f"{listener}://{self.address(node)}",
            "log.dirs": self.data(node),
            "broker.session.timeout.ms": 9000,
            "broker.heartbeat.interval.ms": 400,
            "controller.quorum.election.timeout.ms": 3000,
            "controller.quorum.fetch.timeout.ms": 5000,
            "metadata.log.max.record.bytes.between.snapshots": 4000,
            "auto.leader.rebalance.enable": "false",
            "replica.lag.time.max.ms": 5000,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "offsets.topic.num.partitions": 1,
        }
        if role == "broker":
            values["inter.broker.listener.name"] = "INTERNAL"
        folder = self.root / f"n{node}"
        folder.mkdir()
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        first = CONTROLLERS[0] if node > 10 else BROKERS[0]
        if node == first:
            release = () if self.is_4 else ("--release-version", "3.5")
            tool = "kafka.tools.StorageTool"
            self._tool(tool, "format", "-t", CLUSTER_ID, "-c", str(file), *release)
            return
        shutil.copytree(self.data(first), self.data(node))
        directory = base64.urlsafe_b64encode(b"laststand-node%02d" % node).decode().rstrip("=")
        meta = self.data(node) / "meta.properties"
        lines = meta.read_text().splitlines()
        known = {line.partition("=")[0]: line for line in lines if not line.startswith("#")}
        known["node.id"] = f"node.id={node}"
        if "directory.id" in known:
            known["directory.id"] = f"directory.id={directory}"
        meta.write_text("".join(f"{line}\n" for line in known.values()))

    def _tool(self, *arguments: str) -> None:
        command = [self.java, *self.flags, "-cp", self.class_path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)

    def start(self, node: int) -> None:
        """Starts a node."""
        folder = self.root / f"n{node}"
        with open(folder / "node.log", "ab") as log:
            self.processes[node] = subprocess.Popen(
                [
                    self.java,
                    *self.flags,
                    "-cp",
                    self.class_path,
                    "kafka.Kafka",
                    "server.properties",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, node: int, number: int) -> None:
        """Ends a node by a signal."""
        process = self.processes.pop(node, None)
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def runs(self, name: str) -> bool:
        """Whether a node runs."""
        process = self.processes.get(int(name[1:]))
        return process is not None and process.poll() is None


class Follower:
    """Follows a cluster as a run does. Mutable: what was observed."""

    def __init__(self, cluster: Cluster) -> None:
        self.host = ClientHost("recorder")
        running = RunningNodes(
            nodes=cluster.nodes,
            files_of=lambda name: _LocalNodeFiles(cluster.data(int(name[1:]))),
            runs=cluster.runs,
        )
        self.view = CommittedMetadata()
        self.rows: list[tuple[str, tuple[Any, ...]]] = []
        self.problems: list[Any] = []
        self.observation = KafkaObservation(
            cluster.nodes,
            self.view,
            lambda table, row: self.rows.append((table, row)),
            self.problems.append,
        )
        self.events = KafkaEvents(running, self.host)
        self.tail = EventTail(self.events, self.observation.parse)

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Follows until a condition on committed metadata holds."""
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline_s or self.problems:
                raise TimeoutError(f"{what}: {self.problems}")
            await asyncio.sleep(0.02)
            for event in await self.tail.read(time.monotonic_ns()):
                if event.event == "unobserved":
                    self.problems.append(event.fields["reason"])
                self.observation.take(event, event.at_ns)
        print(f"{what}: offset {self.view.offset}", flush=True)

    async def request(self, address: str, request: Any) -> Any:
        """Sends one request to a node; tries again while it cannot respond."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                connection = await self.host.network.connect(address, 5000)
                try:
                    return await connection.request(request, 40_000)
                finally:
                    connection.close()
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise
                print(f"again: {type(request).__name__}: {error}", flush=True)


def _create_topic(name: str, *assignments: tuple[int, ...]) -> Any:
    types: Any = m.create_topics_request
    return types.CreateTopicsRequest(
        topics=(
            types.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=tuple(
                    types.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                    for index, brokers in enumerate(assignments)
                ),
                configs=(
                    types.CreatableTopicConfig(
                        name="min.insync.replicas", value=str(len(assignments[0]))
                    ),
                ),
            ),
        ),
        timeout=m.millis(10_000),
        validate_only=False,
    )


def _set_config(kind: int, resource: str, name: str, value: str) -> Any:
    types: Any = m.incremental_alter_configs_request
    return types.IncrementalAlterConfigsRequest(
        resources=(
            types.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=(types.AlterableConfig(name=name, config_operation=0, value=value),),
            ),
        ),
        validate_only=False,
    )


def _set_feature(name: str, level: int, upgrade_type: int) -> Any:
    request = message_type("update_features", 1, "request")
    types: Any = sys.modules[request.__module__]
    return request(
        timeout=m.millis(10_000),
        feature_updates=(
            types.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=upgrade_type
            ),
        ),
        validate_only=False,
    )


def _older(api: str, version: int, request: Any) -> Any:
    """Returns a request in an older version, which all recorded releases know."""
    return converter(type(request), message_type(api, version, "request"))(request)


async def story(cluster: Cluster) -> Follower:
    """Runs what the logs are to contain."""
    follower = Follower(cluster)
    view = follower.view

    def unfenced(*brokers: int) -> bool:
        return all(not view.is_fenced(broker) for broker in brokers)

    async def at_broker(request: Any) -> Any:
        return await follower.request(cluster.address(2), request)

    for node in (*CONTROLLERS, *BROKERS):
        cluster.start(node)
    await follower.until("brokers are unfenced", lambda: unfenced(*BROKERS))
    await at_broker(_older("create_topics", 5, _create_topic("t", (1, 2, 3))))
    await at_broker(_older("create_topics", 5, _create_topic("u", (2, 3), (3, 1))))
    await follower.until("topics exist", lambda: {"t-0", "u-0", "u-1"} <= set(view.partitions))
    types: Any = m.init_producer_id_request
    await at_broker(
        types.InitProducerIdRequest(transactional_id=None, transaction_timeout=m.millis(60_000))
    )
    produced = await _produce(follower, cluster.address(1))
    print(f"produced: error {produced}", flush=True)
    if cluster.is_4:
        await at_broker(_set_feature("eligible.leader.replicas.version", 0, 3))
        await at_broker(_set_feature("eligible.leader.replicas.version", 1, 1))
    else:
        await at_broker(_set_feature("metadata.version", 14, 1))
    cluster.end(1, signal.SIGKILL)
    follower.observation.node_went_down("b1", time.monotonic_ns())
    await follower.until("broker 1 is fenced", lambda: view.is_fenced(1))
    cluster.start(1)
    follower.observation.node_started("b1", time.monotonic_ns())
    await follower.until(
        "broker 1 is back", lambda: unfenced(1) and 1 in view.partitions["t-0"].isr
    )
    await at_broker(_set_config(2, "t", "min.insync.replicas", "1"))
    await at_broker(_set_config(4, "", "min.insync.replicas", "2"))
    await at_broker(_set_config(2, "t", "min.insync.replicas", "2"))
    active = view.active_controller
    cluster.end(active, signal.SIGKILL)
    await follower.until("fail-over", lambda: view.active_controller not in (-1, active))
    cluster.start(active)
    types = m.delete_topics_request
    await at_broker(
        types.DeleteTopicsRequest(
            topics=(types.DeleteTopicState(name="u", topic_id=None),), timeout=m.millis(10_000)
        )
    )
    offset = view.offset
    await follower.until("more records", lambda: view.offset > offset + 8)
    cluster.end(3, signal.SIGTERM)
    await follower.until("broker 3 is stopped", lambda: view.is_fenced(3))
    return follower


async def _produce(follower: Follower, address: str) -> int:
    from system_under_test.protocol.entities import produce_of
    from system_under_test.protocol.record_batch import encode_batch

    records = encode_batch([(None, b"v")] * 5, timestamp_ms=int(time.time() * 1000))
    request = _older("produce", 9, produce_of("t", 0, records, -1, m.millis(10_000)))
    response = await follower.request(address, request)
    return int(response.responses[0].partition_responses[0].error_code)


async def record(version: str, lib: Path, java: str, network: str, into: Path) -> None:
    """Records the log of one version."""
    root = Path(tempfile.mkdtemp(prefix="record-kafka-"))
    cluster = Cluster(root, version, lib, java, network)
    follower: Follower | None = None
    try:
        for node in (*CONTROLLERS, *BROKERS):
            cluster.format(node)
        follower = await story(cluster)
        end = follower.events.batches.end
        controllers = {f"c{i}": _LocalNodeFiles(cluster.data(i)) for i in CONTROLLERS}
        compared = compare_logs(controllers, follower.events.batches)
        print(f"read {end} records; {compared}; problems: {follower.problems}")
        for table, row in follower.rows:
            print(table, row)
        _keep(cluster, follower, version, into / version)
    finally:
        if follower is not None:
            follower.tail.close()
            follower.host.close()
        for node in (*BROKERS, *CONTROLLERS):
            cluster.end(node, signal.SIGKILL)
        if follower is not None and not follower.problems:
            shutil.rmtree(root)


def _keep(cluster: Cluster, follower: Follower, version: str, into: Path) -> None:
    """Copies the log and the newest snapshot of the active controller."""
    source = cluster.data(follower.view.active_controller) / METADATA_DIRECTORY
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for file in source.glob("*.log"):
        shutil.copyfile(file, into / file.name)
    snapshots = sorted(source.glob("*.checkpoint"))
    for file in snapshots[-1:]:
        shutil.copyfile(file, into / file.name)
    kinds = Counter(
        type(each).__name__
        for batch in follower.events.batches.batches.values()
        for each in batch.records
    )
    facts = {
        "version": version,
        "high_watermark": follower.events.batches.end,
        "features": follower.observation.features,
        "records": dict(sorted(kinds.items())),
    }
    (into / "facts.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("version")
    parser.add_argument("--lib", type=Path, required=True)
    parser.add_argument("--java", default="java")
    parser.add_argument("--network", default="127.0.91")
    parser.add_argument("--into", type=Path, default=INTO)
    a = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("interrupted"))
    asyncio.run(record(a.version, a.lib, a.java, a.network, a.into))


if __name__ == "__main__":
    main()
