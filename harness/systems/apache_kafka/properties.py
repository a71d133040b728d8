"""The text of a node's files: `server.properties` and the configuration of its logging.

What a run needs is set always: where nodes listen, small thread pools, and nothing that moves leaders or
creates topics by itself. The timings "kafka" leave every timeout as it is; "fast" shortens those that decide
how long a run waits.
"""

from collections.abc import Mapping, Sequence

from harness.contracts.system import Node, Settings
from harness.errors import UsageError
from harness.systems.apache_kafka import proxy
from harness.systems.apache_kafka.versions import Version

CLUSTER_ID = "bGFzdHN0YW5kLWthZmthMQ"
"""16 bytes in the URL-safe base64 that Kafka uses for identifiers."""
PROPERTIES_FILE = "server.properties"
MESSAGES_PROPERTY = "laststand.messages"
"""System property of a node's JVM: path of its request log, if it writes one."""
REPLICATION_FACTOR_MAX = 3
CLEANER_BUFFER_BYTES = str(4 << 20)
"""For keys while a log is compacted; Kafka requires more than 1 MiB."""
SEGMENT_BYTES_MIN = 1 << 20
"""The least that 4.0 and newer accept (KIP-1030); older versions accept 14."""
KAFKA_SEGMENT_BYTES = 1 << 30
"""Kafka's own default, which is not set."""
FLUSH_MESSAGES_NEVER = 2**53
"""From this number on nothing is set: Kafka's own default is never."""

OWN_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
        "zookeeper.connect",
    }
)
"""What an experiment cannot set: the harness would no longer find the node, its disk or its log."""

_CLUSTER = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "background.threads": "2",
    # Kafka's 128 MiB would fill the heap of a small JVM, and the broker would end when it starts.
    "log.cleaner.dedupe.buffer.size": CLEANER_BUFFER_BYTES,
    "num.io.threads": "4",
    "num.network.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
    "num.replica.fetchers": "1",
    "offsets.topic.num.partitions": "4",
    "queued.max.requests": "50",
    "transaction.state.log.num.partitions": "4",
}
"""A small cluster in which nothing happens that no fault and no client caused."""

_FAST = {
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.backoff.max.ms": "400",
    "controller.quorum.election.timeout.ms": "800",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.request.timeout.ms": "1500",
    "controller.socket.timeout.ms": "3000",
    # A broker gives up when it cannot register for this long; a fault at its start may take longer than a
    # minute.
    "initial.broker.registration.timeout.ms": "600000",
    # With Kafka's 1 s, a follower whose first fetch fails delays the first acknowledgement of a topic by a
    # second.
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "socket.connection.setup.timeout.ms": "1000",
    # Kafka reserves 10 MiB for each index of each segment, which every power cut would have to read. This is
    # enough for 40 MiB of records per segment.
    "log.index.size.max.bytes": "131072",
}
_FAST_GROUPS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
}
_FAST_UNCLEAN = {"unclean.leader.election.interval.ms": "1000"}
"""Since 4.0, which looks for partitions that only an unclean election helps every five minutes."""

TIMINGS: Mapping[str, Mapping[str, str]] = {"fast": {**_FAST, **_FAST_GROUPS}, "kafka": {}}
"""Properties by the name of the timings, Kafka's defaults last."""


ELECTION_TIMEOUTS_MS: Mapping[str, str] = {
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.fetch.backoff.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.retry.backoff.ms": "20",
}
"""After these a failed node is replaced, a new election begins, or something is tried again; Kafka's defaults."""


def election_timeout_ms(timings: str, given: Mapping[str, str]) -> float:
    """Returns the longest of `ELECTION_TIMEOUTS_MS`.

    Args:
        timings: A key of `TIMINGS`.
        given: Properties that an experiment sets.
    """
    chosen = {**ELECTION_TIMEOUTS_MS, **TIMINGS[timings], **given}
    # Kafka itself refuses to start with what is no number.
    values = [chosen[name].strip() for name in ELECTION_TIMEOUTS_MS]
    return float(max((int(value) for value in values if value.isdecimal()), default=0))


def server_properties(
    version: Version,
    node: Node,
    nodes: Sequence[Node],
    settings: Settings,
    *,
    log_dirs: Sequence[str],
    extra: Mapping[str, str] | None = None,
) -> str:
    """Returns the text of `server.properties`.

    Args:
        version: Of the node.
        node: Whose file.
        nodes: All nodes of the cluster, this one included.
        settings: What all nodes are configured with.
        log_dirs: Absolute paths of its log directories, the one with the metadata log first.
        extra: Further properties by name; they replace those that are set here.

    Raises:
        UsageError: A property cannot be set by an experiment, or this version does not accept a setting.
    """
    extra = extra or {}
    refuse_own_properties(extra)
    properties = {
        **_identity(node, nodes, log_dirs),
        **(_behind_proxy(version, node) if settings.with_fault_point else {}),
        **_CLUSTER,
        **_factors(nodes),
        **TIMINGS[settings.timings],
        **(_FAST_UNCLEAN if settings.timings == "fast" and version.has_elr else {}),
        **_from_settings(version, settings),
        **extra,
    }
    return f"# {node.name}\n{properties_text(properties)}"


def refuse_own_properties(given: Mapping[str, str]) -> None:
    """Raises `UsageError` if one of these properties cannot be set by an experiment."""
    for name in sorted(OWN_PROPERTIES & given.keys()):
        raise UsageError(f"{name} cannot be set in an experiment: laststand places the nodes")


def _identity(node: Node, nodes: Sequence[Node], log_dirs: Sequence[str]) -> dict[str, str]:
    voters = [f"{other.node_id}@{other.address}" for other in nodes if other.role == "controller"]
    listener = "CONTROLLER" if node.role == "controller" else "BROKER"
    return {
        "process.roles": node.role,
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
        "listeners": f"{listener}://{node.address}",
        "log.dirs": ",".join(log_dirs),
    }


def _behind_proxy(version: Version, node: Node) -> dict[str, str]:
    listener = "CONTROLLER" if node.role == "controller" else "BROKER"
    properties = {"listeners": f"{listener}://{proxy.program_address(node)}"}
    if node.role == "broker" or version.has_controller_endpoints:
        properties["advertised.listeners"] = f"{listener}://{node.address}"
    return properties


def _factors(nodes: Sequence[Node]) -> dict[str, str]:
    brokers = sum(other.role == "broker" for other in nodes)
    factor = max(1, min(brokers, REPLICATION_FACTOR_MAX))
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(min(factor, 2)),
    }


def _from_settings(version: Version, settings: Settings) -> dict[str, str]:
    if version.major >= 4 and settings.segment_bytes < SEGMENT_BYTES_MIN:
        raise UsageError(
            f"segment_bytes is {settings.segment_bytes}; the least that Apache Kafka {version} accepts is "
            f"{SEGMENT_BYTES_MIN}"
        )
    values = {}
    if settings.segment_bytes != KAFKA_SEGMENT_BYTES:
        values["log.segment.bytes"] = str(settings.segment_bytes)
    if settings.flush_messages < FLUSH_MESSAGES_NEVER:
        values["log.flush.interval.messages"] = str(settings.flush_messages)
    if settings.unclean_leader_election:
        values["unclean.leader.election.enable"] = "true"
    return values


def properties_text(properties: Mapping[str, str]) -> str:
    """Returns properties as Java reads them, sorted by name."""
    lines = (f"{_escaped(key, is_key=True)}={_escaped(properties[key])}" for key in properties)
    return "".join(f"{line}\n" for line in sorted(lines))


def _escaped(text: str, *, is_key: bool = False) -> str:
    """Escapes what has a meaning in a file of Java properties."""
    special = "\\:=#! " if is_key else "\\"
    units = []
    for place, character in enumerate(text):
        if character in special or (place == 0 and character == " "):
            units.append("\\" + character)
        elif " " <= character <= "~":
            units.append(character)
        else:
            encoded = character.encode("utf-16-be")
            units += [f"\\u{encoded[i : i + 2].hex()}" for i in range(0, len(encoded), 2)]
    return "".join(units)


_RELOAD4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_RELOAD4J_MESSAGES = """\
log4j.logger.kafka.request.logger=DEBUG, messages
log4j.additivity.kafka.request.logger=false
log4j.appender.messages=org.apache.log4j.RollingFileAppender
log4j.appender.messages.File=${laststand.messages}
log4j.appender.messages.MaxFileSize=32MB
log4j.appender.messages.MaxBackupIndex=1
log4j.appender.messages.layout=org.apache.log4j.EnhancedPatternLayout
log4j.appender.messages.layout.ConversionPattern=%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC} %m%n
"""
_LOG4J2 = """\
status=warn
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.stdout.ref=stdout
"""
_LOG4J2_MESSAGES = """\
appender.messages.type=RollingFile
appender.messages.name=messages
appender.messages.fileName=${sys:laststand.messages}
appender.messages.filePattern=${sys:laststand.messages}.%i
appender.messages.layout.type=PatternLayout
appender.messages.layout.pattern=%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC} %m%n
appender.messages.policy.type=SizeBasedTriggeringPolicy
appender.messages.policy.size=32MB
appender.messages.strategy.type=DefaultRolloverStrategy
appender.messages.strategy.max=1
logger.messages.name=kafka.request.logger
logger.messages.level=debug
logger.messages.additivity=false
logger.messages.appenderRef.messages.ref=messages
"""


def node_files(
    version: Version,
    node: Node,
    nodes: Sequence[Node],
    settings: Settings,
    *,
    log_dirs: Sequence[str],
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the text of all files of a node, by name; the arguments are those of `server_properties`."""
    properties = server_properties(version, node, nodes, settings, log_dirs=log_dirs, extra=extra)
    logging = logging_text(version, with_messages=settings.with_messages)
    return {PROPERTIES_FILE: properties, logging_file(version): logging}


def logging_file(version: Version) -> str:
    """Returns the name of the configuration of a node's logging."""
    return "log4j2.properties" if version.uses_log4j2 else "log4j.properties"


def logging_text(version: Version, *, with_messages: bool = False) -> str:
    """Returns the configuration of a node's logging: everything from INFO on, to standard output.

    Args:
        version: Of the node.
        with_messages: Whether it writes a request log, to the file that `MESSAGES_PROPERTY` names: requests with
            their responses as JSON, when they are completed.
    """
    if version.uses_log4j2:
        return _LOG4J2 + (_LOG4J2_MESSAGES if with_messages else "")
    return _RELOAD4J + (_RELOAD4J_MESSAGES if with_messages else "")
