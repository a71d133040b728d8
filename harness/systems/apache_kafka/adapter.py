"""Apache Kafka as the harness sees it: KRaft clusters of any supported version, from the published jars."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from harness.contracts.administration import (
    Action,
    ActionOutcome,
    AlterConfig,
    AlterFeature,
    ElectLeader,
    MoveReplica,
    Reassign,
)
from harness.contracts.cluster import AddRow, Topic
from harness.contracts.host import ClientHost
from harness.contracts.messages import NodeClock, NodeMessages
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.programs import FetchReport, FetchRequest, Program
from harness.contracts.system import (
    EventSource,
    Node,
    NodeFiles,
    Observation,
    Promises,
    RealClientHost,
    RunningNodes,
    Settings,
    StoredBatch,
)
from harness.contracts.violation import Violation
from harness.java import JavaRuntime
from harness.systems.apache_kafka import exits, program, properties, proxy, storage, versions
from harness.systems.apache_kafka.cache import VersionCache, fetch_command, version_cache
from harness.systems.apache_kafka.command import node_command
from harness.systems.apache_kafka.java import find_kafka_java, mounted_paths
from harness.systems.apache_kafka.request_log import MESSAGE_FILES, OBSERVER
from harness.systems.apache_kafka.versions import Version
from harness.systems.preload import library as preload
from harness.systems.properties import (
    RUN_PROPERTIES,
    impossible_setting,
    misleading_setting,
    refuse_impossible_values,
    refuse_misleading_properties,
)

LOG_DIRS = ("data", "data2", "data3", "data4")
"""Names of the log directories below a node's data directory; a broker has the first of them, a controller one."""


class ApacheKafka:
    """One version of Apache Kafka at certain feature levels.

    Implements `System` and, of what a system may have besides, everything.

    Args:
        version: Of all nodes.
        levels: Levels of the features that matter for what it promises.
    """

    name = versions.NAME
    # "kafka-1-metadata-loader-event-handler"
    metadata_thread = r"kafka-\d+-metada.*"
    environments = frozenset({"local", "docker", "ssh"})
    default_client = "native"
    has_controllers = True
    brokers_max = 10
    log_dirs_max = len(LOG_DIRS)
    time_scale = 4.0
    run_properties = RUN_PROPERTIES
    timings = tuple(properties.TIMINGS)
    message_files = MESSAGE_FILES
    records_messages_by_default = False
    switchable_rules: Collection[str] = ()
    actions = tuple(
        kind.name for kind in (AlterConfig, AlterFeature, Reassign, MoveReplica, ElectLeader)
    )
    default_version = str(versions.SUPPORTED[-1])
    versions = tuple(str(version) for version in versions.SUPPORTED)

    def __init__(self, version: Version, levels: Mapping[str, int]) -> None:
        self.version = version
        self.levels = levels
        self.profiles: Mapping[str, Promises] = {
            versions.profile_name(version, levels): versions.promises(version, levels)
        }

    # -- VersionedSystem, PropertyTaker

    def of_version(self, version: str, features: Mapping[str, int]) -> "ApacheKafka":
        """Returns the system that tests one version."""
        chosen = versions.parse_version(version)
        return _system(chosen, tuple(sorted(versions.feature_levels(chosen, features).items())))

    def check_properties(self, given: Mapping[str, str]) -> None:
        """Raises `UsageError` if a property cannot be set by an experiment."""
        properties.refuse_own_properties(given)
        refuse_misleading_properties(given)
        refuse_impossible_values(given)

    # -- HasElectionTimeout

    def election_timeout_ms(self, timings: str, given: Mapping[str, str]) -> float:
        """Returns the longest of the timeouts of sessions, elections and fetches of the quorum."""
        return properties.election_timeout_ms(timings, given)

    # -- Fetchable

    def fetch(self, request: FetchRequest) -> FetchReport:
        """Downloads a version, and makes what lets it start faster."""
        return program.fetch_program(request)

    def programs(self, cache: Path) -> Sequence[Program]:
        """Returns all supported versions."""
        return program.known_programs(cache)

    # -- HasFaultPoint

    fault_point_file = proxy.FAULT_POINT_FILE
    events_inside: Collection[str] = ("sent", "received")
    mark_names: Collection[str] = ()

    @property
    def message_names(self) -> Sequence[str]:
        """Every message of Kafka's protocol."""
        return proxy.message_names()

    @property
    def wholly_refusable(self) -> Collection[str]:
        """Class names of the requests whose response has an error of the whole."""
        return proxy.wholly_refusable()

    def with_fault_point(self, command: list[str], directory: str, *, python: str) -> list[str]:
        """Returns the command that also starts a proxy before the node's listener."""
        proxy_file = f"{directory}/{proxy.PROXY_FILE}"
        return [python, "-m", "system_under_test.real.beside", proxy_file, *command]

    # -- ElrSwitch

    def elr_keys(self, profile: str, *, is_on: bool) -> Mapping[str, Any]:
        """Returns the feature level."""
        return {"features": versions.elr_level(self.version, is_on=is_on)}

    # -- what a node is

    def node_files(
        self, node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str
    ) -> Mapping[str, str]:
        """Returns `server.properties` and the configuration of the node's logging."""
        files = properties.node_files(
            self.version,
            node,
            nodes,
            settings,
            log_dirs=[f"{data_dir}/{name}" for name in _log_dirs(node, settings)],
            extra=settings.properties,
        )
        if settings.with_fault_point:
            files[proxy.PROXY_FILE] = proxy.proxy_text(node, nodes)
        return files

    def disk_files(self, node: Node, settings: Settings, generation: int) -> Mapping[str, bytes]:
        """Returns what Kafka's storage tool writes for this node."""
        formatted = storage.formatted_files(self._cache, self._java, node.role, self.levels)
        return storage.disk_files(
            self.version,
            node,
            formatted,
            log_dirs=_log_dirs(node, settings),
            generation=generation,
        )

    def command(
        self, node: Node, directory: str, *, python: str, ends_with_stdin: bool
    ) -> list[str]:
        """Returns the command that starts a node."""
        self._cache.require()
        command = node_command(
            self._cache, self._java, directory, python=python if ends_with_stdin else ""
        )
        library = preload.find_library()
        if library is None:
            return command
        variables = preload.variables(library, directory, node.name, source=_source_of(node))
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *command]

    def program_paths(self) -> Sequence[str]:
        """Returns the jars with the class-data archive, and Java."""
        self._cache.require()
        paths = [self._cache.directory, *self._java_paths]
        if (library := preload.find_library()) is not None:
            paths.append(library)
        return [str(path) for path in paths]

    def impossible_faults(self) -> Mapping[str, str]:
        """Returns the clock faults if there is no library that moves a JVM's clock."""
        if preload.find_library() is not None:
            return {}
        reason = (
            "the library that moves the clock of a JVM was not built; install a C compiler, then run "
            f"`{fetch_command(self.version)}` again"
        )
        return dict.fromkeys(("clock_step", "clock_drift", "clock_strobe"), reason)

    def exit_reason(self, output: str) -> str:
        """Returns the first error that the node logged after its last start, with its exception."""
        return exits.exit_reason(output)

    @property
    def _cache(self) -> VersionCache:
        return version_cache(self.version)

    @cached_property
    def _java(self) -> JavaRuntime:
        return find_kafka_java(self.version)

    @cached_property
    def _java_paths(self) -> tuple[Path, ...]:
        # Once: it walks through the whole Java home, and every start of a node asks.
        return mounted_paths(self._java.home)

    # -- how it is reached: the protocol is the one of the reference system

    def is_ready(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether a broker reports all brokers to clients."""
        from harness.systems.reference.status import knows_all_brokers

        return knows_all_brokers(node, nodes)

    def client_host(self, name: str, *, source: str | None = None) -> RealClientHost:
        """Returns a client host on this machine."""
        from system_under_test.real.host import ClientHost as Host

        return Host(name, source=source, reads_end_before_records=True)

    async def create_topic(self, host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
        """Creates a topic; returns when it exists."""
        from harness.systems.reference import topics

        await topics.create_topic(host, bootstrap, topic)

    def refusal(self, action: Action) -> str:
        """Returns why a setting cannot be altered; other actions are served, and Kafka may refuse them."""
        if not isinstance(action, AlterConfig):
            return ""
        return misleading_setting(action) or impossible_setting(action)

    async def administer(
        self, host: ClientHost, brokers: Mapping[int, str], action: Action
    ) -> ActionOutcome:
        """Requests an action; returns what became of it."""
        from harness.systems import administration

        return await administration.administer(host, brokers, action)

    # -- what it reports

    def observation(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> Observation:
        """Returns what follows the committed metadata and the replicas of one run."""
        from harness.systems.apache_kafka.observation import KafkaObservation

        return KafkaObservation(nodes, view, add_row, on_violation, levels=self.levels)

    def event_source(self, nodes: RunningNodes) -> EventSource:
        """Returns what reads committed metadata from the active controller, and logs from living brokers."""
        from harness.systems.apache_kafka.events import KafkaEvents
        from system_under_test.real.host import ClientHost as Host

        return KafkaEvents(nodes, Host(OBSERVER), log_directories=LOG_DIRS)

    def stored_batches(
        self, files: NodeFiles, topic: str, partition: int, *, bytes_max: int
    ) -> list[StoredBatch]:
        """Returns the batches of a replica's log."""
        from harness.systems.apache_kafka import stored_logs

        return stored_logs.stored_batches(
            files, topic, partition, bytes_max=bytes_max, log_directories=LOG_DIRS
        )

    def recorded_messages(
        self, node: Node, nodes: Sequence[Node], files: Mapping[str, bytes], clock: NodeClock
    ) -> NodeMessages:
        """Returns what a node recorded in its request log."""
        from harness.systems.apache_kafka import request_log

        return request_log.recorded_messages(node, nodes, files, clock)


def _source_of(node: Node) -> str:
    """Returns the address from which a node connects; empty on loopback, which has one for all."""
    host = node.address.rpartition(":")[0]
    return "" if host.startswith("127.") else host


def _log_dirs(node: Node, settings: Settings) -> tuple[str, ...]:
    """Returns the names of a node's log directories."""
    return LOG_DIRS[: settings.log_dirs if node.role == "broker" else 1]


@cache
def _system(version: Version, levels: tuple[tuple[str, int], ...]) -> ApacheKafka:
    return ApacheKafka(version, dict(levels))


SYSTEM = ApacheKafka(versions.SUPPORTED[-1], versions.feature_levels(versions.SUPPORTED[-1]))
