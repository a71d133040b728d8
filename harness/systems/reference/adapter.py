"""The reference system as the harness sees it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.contracts.administration import (
    Action,
    ActionOutcome,
    AlterConfig,
    ElectLeader,
    MoveReplica,
    Reassign,
)
from harness.contracts.cluster import AddRow, Topic
from harness.contracts.host import ClientHost
from harness.contracts.messages import NodeClock, NodeMessages
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.space import Draws, Range, Space
from harness.contracts.system import (
    Node,
    NodeFiles,
    Observation,
    Promises,
    RealClientHost,
    Settings,
    StoredBatch,
)
from harness.contracts.violation import Violation
from harness.errors import UsageError
from harness.systems.properties import (
    RUN_PROPERTIES,
    impossible_setting,
    refuse_impossible_values,
    refuse_misleading_properties,
)
from harness.systems.reference.message_log import MESSAGE_FILES
from harness.systems.reference.node_files import FAULT_POINT_FILE, NODE_FILE, node_toml
from system_under_test.config import (
    ALL_PROFILES,
    DEFAULT_PROFILE,
    DERIVED_PROFILES,
    LOG_DIR_NAMES,
    TIMINGS,
    Features,
    NodeConfig,
    switches,
)
from system_under_test.metadata.image import MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG
from system_under_test.properties import PropertyError, configured
from system_under_test.protocol.apis import MESSAGE_NAMES
from system_under_test.rules import SWITCHABLE_RULES
from system_under_test.runtime.marks import MARKS
from system_under_test.whole_refusals import WHOLLY_REFUSABLE

CONFIG_KEYS = (MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG)
"""The settings that a running cluster can change."""


DRAWN_TIMEOUTS = (
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
    "replica.fetch.backoff.ms",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
)
"""Timeouts that the default space draws around their values, up to `DRAWN_FACTOR` shorter or longer.

The ratios between them are so large that every combination works: the shortest session still has two heartbeats.
"""
DRAWN_FACTOR = 1.6
DRAWN_SIZES: Mapping[str, Draws] = {
    "properties.replica.fetch.max.bytes": (1 << 20, 1 << 20, 4096, 500),
    "properties.replica.fetch.response.max.bytes": (10 << 20, 10 << 20, 8192, 500),
    "properties.metadata.log.max.record.bytes.between.snapshots": (20 << 20, 20 << 20, 2000),
    "properties.controller.quorum.fetch.snapshot.max.bytes": (8 << 20, 8 << 20, 300),
    "properties.log.index.interval.bytes": (4096, 4096, 4096, 100),
    "properties.log.index.size.max.bytes": (10 << 20, 10 << 20, 10 << 20, 96, 36),
    "cluster.log_dirs": (1, 1, 1, 2),
}
"""Sizes that the default space draws; one that is as small as a few records is exceeded in a short run."""


class ReferenceSystem:
    """The reference system.

    Implements `System`, `LogReader`, `RecordsMessages`, `Administrable`, `PropertyTaker`, `HasRunProperties`,
    `SeveralLogDirs`, `HasSpace`, `HasProfileVariants`, `HasFaultPoint` and `ElrSwitch`.
    """

    name = "reference"
    environments = frozenset({"simulation", "local", "docker", "ssh"})
    default_client = "native"
    has_controllers = True
    brokers_max = 10
    log_dirs_max = len(LOG_DIR_NAMES)
    timings = tuple(TIMINGS)
    switchable_rules = tuple(SWITCHABLE_RULES)
    actions = (AlterConfig.name, Reassign.name, ElectLeader.name, MoveReplica.name)
    run_properties = RUN_PROPERTIES
    message_files = MESSAGE_FILES
    records_messages_by_default = True
    fault_point_file = FAULT_POINT_FILE
    events_inside: Collection[str] = ("sent", "received", "fsync", "mark")
    message_names: Sequence[str] = MESSAGE_NAMES
    mark_names: Collection[str] = tuple(MARKS)
    wholly_refusable: Collection[str] = WHOLLY_REFUSABLE

    def __init__(self) -> None:
        self.profiles: Mapping[str, Promises] = {
            name: _promises(ALL_PROFILES[name]) for name in (DEFAULT_PROFILE, *ALL_PROFILES)
        }

    def elr_keys(self, profile: str, *, is_on: bool) -> Mapping[str, Any]:
        """Returns the profile that differs from the given one in eligible leader replicas only.

        Raises:
            UsageError: There is none: the releases before 4.0 have no eligible leader replicas, and those since
                4.3 complete reassignments in another way than any without them.
        """
        if ALL_PROFILES[profile].elr_on == is_on:
            return {"profile": profile}
        wanted = replace(ALL_PROFILES[profile], elr_version=int(is_on))
        for name, features in ALL_PROFILES.items():
            # The limits of what topics may set make no difference to an experiment.
            alike = replace(features, segment_bytes_min=wanted.segment_bytes_min)
            if switches(alike) == switches(wanted):
                return {"profile": name}
        raise UsageError(
            f"no profile is {profile!r} with eligible leader replicas {'on' if is_on else 'off'}; "
            "use kafka-4.0, kafka-4.1 or kafka-4.2"
        )

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Raises `UsageError` if a property cannot be set by an experiment."""
        refuse_misleading_properties(properties)
        try:
            configured(_ANY_NODE, properties)
        except PropertyError as error:
            raise UsageError(f"properties: {error}") from None
        refuse_impossible_values(properties)

    def election_timeout_ms(self, timings: str, properties: Mapping[str, str]) -> float:
        """Returns the longest of the timeouts of sessions, elections and fetches of the quorum, and of pauses.

        After a pause something is tried again: in short ones recovery does not notice them, and what sets a long
        one must wait for it.
        """
        found = configured(replace(_ANY_NODE, timings=TIMINGS[timings]), properties).timings
        return max(
            found.broker_session_timeout_ms,
            found.controller_quorum_election_timeout_ms,
            found.controller_quorum_fetch_timeout_ms,
            found.broker_heartbeat_interval_ms,
            found.replica_fetch_backoff_ms,
            found.alter_partition_retry_ms,
            found.controller_quorum_election_backoff_max_ms,
            found.controller_quorum_retry_backoff_ms,
            found.reconnect_backoff_max_ms,
        )

    def space(self, timings: str) -> Space:
        """Returns timeouts around those of a set, and sizes; see `HasSpace`."""
        found: dict[str, Draws] = dict(DRAWN_SIZES)
        for name in DRAWN_TIMEOUTS:
            usual_ms = getattr(TIMINGS[timings], name.replace(".", "_"))
            found[f"properties.{name}"] = Range(
                least=round(usual_ms / DRAWN_FACTOR), most=round(usual_ms * DRAWN_FACTOR)
            )
        return found

    def profile_variants(self, profile: str) -> tuple[str, ...]:
        """Returns the derived profiles of a release that keep its promises; see `HasProfileVariants`.

        Without eligible leader replicas a last replica standing loses acknowledged records, and the verdict on
        that is invalid. A campaign whose runs should all be valid must not draw that.
        """
        return tuple(
            name
            for name, features in DERIVED_PROFILES.items()
            if name.startswith(f"{profile}-") and features.elr_on >= ALL_PROFILES[profile].elr_on
        )

    def node_files(
        self, node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str
    ) -> Mapping[str, str]:
        """Returns `node.toml`."""
        return {NODE_FILE: node_toml(node, nodes, settings, data_dir=data_dir)}

    def command(
        self, node: Node, directory: str, *, python: str, ends_with_stdin: bool
    ) -> list[str]:
        """Returns the command that starts a node."""
        command = [python, "-m", "system_under_test", "--config", f"{directory}/{NODE_FILE}"]
        return [*command, "--until-stdin-closes"] if ends_with_stdin else command

    def with_fault_point(self, command: list[str], directory: str, *, python: str) -> list[str]:
        """Returns the same command: a node's own file names its fault point."""
        return command

    def is_ready(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether a broker reports all brokers to clients."""
        from harness.systems.reference.status import knows_all_brokers

        return knows_all_brokers(node, nodes)

    def client_host(self, name: str, *, source: str | None = None) -> RealClientHost:
        """Returns a client host on this machine."""
        from system_under_test.real.host import ClientHost as Host

        return Host(name, source=source)

    def observation(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> Observation:
        """Returns what follows the event logs of one run."""
        from harness.systems.reference.observation import EventObservation

        return EventObservation(nodes, view, add_row, on_violation)

    async def create_topic(self, host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
        """Creates a topic; returns when it exists."""
        from harness.systems.reference import topics

        await topics.create_topic(host, bootstrap, topic)

    def refusal(self, action: Action) -> str:
        """Returns why the reference system does not serve an action; "" if it does."""
        if action.name not in self.actions:
            served = ", ".join(self.actions)
            return f"the reference system does not serve {action.name}, only {served}"
        if not isinstance(action, AlterConfig):
            return ""
        if action.key not in CONFIG_KEYS:
            return (
                f"the reference system can alter {' and '.join(CONFIG_KEYS)} only, not {action.key}"
            )
        if not action.topic and action.broker is not None:
            return "the reference system can alter the default of all brokers only, not that of one broker"
        return impossible_setting(action)

    async def administer(
        self, host: ClientHost, brokers: Mapping[int, str], action: Action
    ) -> ActionOutcome:
        """Requests an action; returns what became of it."""
        from harness.systems import administration

        return await administration.administer(host, brokers, action)

    def stored_batches(
        self, files: NodeFiles, topic: str, partition: int, *, bytes_max: int
    ) -> list[StoredBatch]:
        """Returns the batches of a replica's log."""
        from harness.systems.reference import stored_logs

        return stored_logs.stored_batches(files, topic, partition, bytes_max=bytes_max)

    def recorded_messages(
        self, node: Node, nodes: Sequence[Node], files: Mapping[str, bytes], clock: NodeClock
    ) -> NodeMessages:
        """Returns what a node recorded in its message log."""
        from harness.systems.reference import message_log

        return message_log.recorded_messages(node, nodes, files, clock)


_ANY_NODE = NodeConfig(node_id=0, role="broker", address="", cluster_id="", voters=())


def _promises(features: Features) -> Promises:
    without_elr = "elr-off" if features.hw_min_isr_gate else "elr-off-no-gate"
    return Promises(
        elr_on=features.elr_on, outcome_family="elr-on" if features.elr_on else without_elr
    )


SYSTEM = ReferenceSystem()


def run_node(config: Path, *, ends_with_stdin: bool) -> int:
    """Runs one node in this process until SIGTERM; returns the exit code.

    Args:
        config: The node's `node.toml`.
        ends_with_stdin: Whether it ends when standard input closes.
    """
    from system_under_test.process import run_file

    return run_file(config, ends_with_stdin=ends_with_stdin)
