"""What the harness has to know about a system under test.

A system says what a node is: its files, its command, how to reach it, what it promises. An environment
(`harness/environments`) says where nodes live. A system is found by its name through `harness.systems.registry`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.cluster import AddRow, Topic
from harness.contracts.host import ClientHost
from harness.contracts.messages import NodeClock, NodeMessages
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.space import Space
from harness.contracts.violation import Violation

CLOCK_EVENT = "clock"
"""The event with which a node reports its own clocks: `wall_ms` and `monotonic_ns`."""
METRICS_EVENT = "metrics"
"""The event with which a node reports its metrics: `values` that changed, by series; series that are `gone`."""
UNREAD_EVENT = "unread"
"""The event with which a source of events reports a file that it could not read at the end: `what`, a sentence."""
UNOBSERVED_EVENT = "unobserved"
"""The event with which a source of events reports that it cannot continue: `reason`, a sentence."""
FAULT_POINT_EVENT = "fault-point"
"""The event with which a node reports that it has read the file of its fault point: `version`."""
ACTED_EVENT = "fault-acted"
"""The event with which a node reports what a rule of its fault point did: `rule`, `count` of messages so far."""
MESSAGE_EVENT = "message"
"""The event with which a node reports a message that it was asked for: `what` ("sent" or "received"), `name`,
`source`, `target`."""
FSYNC_EVENT = "fsync"
"""The event with which a node reports that an fsync begins, if it was asked for these."""
MARK_EVENT = "mark"
"""The event with which a node with a fault point reports that it took a rare branch: `name`."""
EVENTS_FILE = "events.jsonl"
"""Name of a node's event log, beside its files; systems without one write none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What a configuration of a system promises; the checkers judge by it.

    Attributes:
        elr_on: Whether committed records survive as long as one eligible leader replica (KIP-966) has them.
        outcome_family: The column of a scripted scenario's table of expected outcomes; empty if it has none.
    """

    elr_on: bool
    outcome_family: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a cluster, as an environment has placed it.

    Attributes:
        name: For example "b1" or "c11".
        role: "broker" or "controller".
        node_id: Unique in the cluster.
        address: Where it listens, "host:port".
        metrics: Where it serves its metrics over HTTP, "host:port", if its system can; "" if it does not.
    """

    name: str
    role: str
    node_id: int
    address: str
    metrics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all nodes of a cluster are configured with.

    Attributes:
        profile, timings: As in an experiment.
        disabled_rules: Protocol rules that are switched off on purpose.
        with_events: Whether nodes write an event log that the harness follows.
        with_messages: Whether nodes record the messages that matter; only with `RecordsMessages`.
        with_fault_point: Whether nodes have a fault point; only with `HasFaultPoint`.
        metrics_interval_ms: How often nodes write their metrics to that log, if they can; 0 for never.
        segment_bytes, flush_messages, unclean_leader_election: Kafka's settings of these names.
        log_dirs: How many log directories a broker has; more than one only with `SeveralLogDirs`.
        properties: Settings of the system under its own names, as the experiment has them.
        more: Further settings of the system itself, by table.
    """

    profile: str
    timings: str
    disabled_rules: tuple[str, ...] = ()
    with_events: bool = True
    with_messages: bool = False
    with_fault_point: bool = False
    metrics_interval_ms: int = 0
    segment_bytes: int = 1 << 30
    flush_messages: int = 2**53
    unclean_leader_election: bool = False
    log_dirs: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a node's event log.

    Attributes:
        at_ns: Time on the monotonic clock of the node's machine.
        node: The node's name.
        event: What kind of event it is.
        fields: Everything else.
    """

    at_ns: int
    node: str
    event: str
    fields: dict[str, Any]


class Observation(Protocol):
    """Turns what nodes report into committed metadata and history rows. Mutable; one per run.

    Attributes:
        doubt: Why the run cannot be judged, if nodes report other settings than they were given; empty otherwise.
    """

    doubt: str

    def parse(self, line: bytes) -> Event:
        """Reads one line of an event log.

        Raises:
            ValueError: The line is not an event.
        """
        ...

    def take(self, event: Event, at_ns: int) -> None:
        """Takes one event, in the order of time.

        Args:
            event: What a node reported.
            at_ns: When, in nanoseconds since the start of the run.
        """
        ...

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Notes that a topic was created."""
        ...

    def node_started(self, name: str, at_ns: int) -> None:
        """Notes that a node's process was started."""
        ...

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Notes that a node's process has ended."""
        ...


class StoredBatch(NamedTuple):
    """One batch of records in the log of a replica; `checksum` is that of its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    checksum: int


class NodeFiles(Protocol):
    """Read access to what a node keeps in its data directory; paths are relative to that, with "/" between parts.

    Every call may raise `OSError`.
    """

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory; empty if it does not exist."""
        ...

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        """Returns bytes of a file from an offset on, at most `length`."""
        ...


@runtime_checkable
class LogReader(Protocol):
    """What a system may have besides: it can read the logs that its nodes keep (table `replica_batches`)."""

    def stored_batches(
        self, files: NodeFiles, topic: str, partition: int, *, bytes_max: int
    ) -> list[StoredBatch]:
        """Returns the batches of a replica's log, from its start to the first one that is incomplete or damaged.

        Args:
            files: Of the node.
            topic: Which log.
            partition: Which log.
            bytes_max: How much of the log is read at most.

        Raises:
            OSError: A file cannot be read.
        """
        ...


@runtime_checkable
class RecordsMessages(Protocol):
    """What a system may have besides: its nodes record the messages that matter, for the space-time diagram.

    No verdict depends on them.

    Attributes:
        message_files: Names of the files beside a node's files in which it records them.
        records_messages_by_default: Whether runs record them if the experiment does not decide it. True only if
            it costs little.
    """

    message_files: Sequence[str]
    records_messages_by_default: bool

    def recorded_messages(
        self, node: Node, nodes: Sequence[Node], files: Mapping[str, bytes], clock: NodeClock
    ) -> NodeMessages:
        """Returns what a node recorded; damaged lines are left out.

        Args:
            node: Which one.
            nodes: All nodes of the cluster.
            files: Content of those of the `message_files` that exist, by name.
            clock: The clocks of the node.
        """
        ...


@runtime_checkable
class DiskFormatter(Protocol):
    """What a system may have besides: its nodes start only on a disk that was formatted for them."""

    def disk_files(self, node: Node, settings: Settings, generation: int) -> Mapping[str, bytes]:
        """Returns what a formatted data directory holds: relative path to content.

        The files are durable before the first start, and written again before a start on an empty disk.

        Args:
            node: Whose disk.
            settings: What all nodes are configured with.
            generation: How often this node's disk was formatted before.
        """
        ...


@runtime_checkable
class ProgramFiles(Protocol):
    """What a system may have besides: its nodes need files of the harness's machine, for example a runtime."""

    def program_paths(self) -> Sequence[str]:
        """Returns absolute paths of files and directories that a node's host must have, read-only.

        Where it has them elsewhere, the paths in the node's command are replaced.
        """
        ...


@runtime_checkable
class ExitDiagnosis(Protocol):
    """What a system may have besides: it finds in a node's output why the node ended."""

    def exit_reason(self, output: str) -> str:
        """Returns one line that names the reason; "" if there is none.

        Args:
            output: What the node wrote to standard output and error, of all its starts, or the end of that.
        """
        ...


@runtime_checkable
class FaultLimits(Protocol):
    """What a system may have besides: some faults cannot be injected into its nodes."""

    def impossible_faults(self) -> Mapping[str, str]:
        """Returns why faults cannot be injected, by fault, or by fault and parameter: "power.keep_records"."""
        ...


@runtime_checkable
class TargetLimits(Protocol):
    """What a system may have besides: some selectors can mean no node, because it has no such state."""

    def impossible_targets(self) -> Mapping[str, str]:
        """Returns why a selector never means a node, by selector without a partition: "last_in_isr"."""
        ...


@runtime_checkable
class RestartedAfter(Protocol):
    """What a system may have besides: a fault may disable a node for good although its process survives.

    Attributes:
        restarted_after: Names of such faults. When one is healed, the nodes that it affected are restarted, as an
            operator would do.
    """

    restarted_after: Collection[str]


@runtime_checkable
class FlushesInTime(Protocol):
    """What a system may have besides: it flushes a log that gets appends after a known time."""

    def flush_interval_ms(self, properties: Mapping[str, str]) -> float:
        """Returns after which time at most a replica that gets appends flushes them; 0 if before it acknowledges.

        Args:
            properties: What an experiment sets.
        """
        ...


@runtime_checkable
class HasLogFiles(Protocol):
    """What a system may have besides: its logs are in other files than Kafka's, and those can be damaged.

    Attributes:
        log_files: Which files are segments of logs, as a pattern of paths relative to a node's data directory. A
            log is a directory; the longest name is the newest segment, of equally long ones the last.
    """

    log_files: str


@runtime_checkable
class HasMetadataThread(Protocol):
    """What a system may have besides: brokers apply committed metadata in threads that do nothing else.

    Attributes:
        metadata_thread: Regular expression of their names, of which Linux keeps 15 characters.
    """

    metadata_thread: str


@runtime_checkable
class HasFaultPoint(Protocol):
    """What a system may have besides: its nodes report and change single messages as a file beside theirs says.

    `system_under_test.real.fault_point` describes the file. Nodes that know marks report them, asked or not.

    Attributes:
        fault_point_file: Name of the file.
        events_inside: For which events inside of nodes a fault can wait: of "sent", "received", "fsync", "mark".
        message_names: Every message: requests by their API, responses with "Response" after it.
        mark_names: Every mark.
        wholly_refusable: Class names of the requests that can be refused as a whole.
    """

    fault_point_file: str
    events_inside: Collection[str]
    message_names: Sequence[str]
    mark_names: Collection[str]
    wholly_refusable: Collection[str]

    def with_fault_point(self, command: list[str], directory: str, *, python: str) -> list[str]:
        """Returns the command that starts a node with its fault point.

        Args:
            command: The one of `System.command`.
            directory: The node's directory, with its files.
            python: The Python interpreter of the node's host; it finds the package `system_under_test`.
        """
        ...


class EventSource(Protocol):
    """Where event logs grow."""

    async def read(self) -> dict[str, bytes]:
        """Returns what was added to each node's log since the last call."""
        ...

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns a node's time on this machine's monotonic clock."""
        ...

    def close(self) -> None:
        """Lets go of the logs."""
        ...


@runtime_checkable
class ChecksAtEnd(Protocol):
    """What a source of events may have besides: it compares what it read with the files of the nodes."""

    async def check_at_end(self) -> None:
        """Adds what it finds to the events; called once, before the last `read`, while the hosts still exist."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNodes:
    """The nodes of a run, as a system's own source of events reaches them.

    Attributes:
        nodes: All of them.
        files_of: Returns access to the files of a node by its name.
        runs: Whether the process of a node runs, by its name; false also for a process that is being taken down.
    """

    nodes: Sequence[Node]
    files_of: Callable[[str], NodeFiles]
    runs: Callable[[str], bool]


@runtime_checkable
class HasEventSource(Protocol):
    """What a system may have besides: it makes events itself, because its nodes do not write them all.

    The events are lines that its observation parses, stamped with the monotonic clock of this machine.
    """

    def event_source(self, nodes: RunningNodes) -> EventSource:
        """Returns what is followed beside event files; nothing is read before its first `read`."""
        ...


class RealClientHost(ClientHost, Protocol):
    """A client host on a real machine."""

    def close(self) -> None:
        """Closes its connections."""
        ...


class System(Protocol):
    """A system under test.

    Attributes:
        name: As in an experiment.
        environments: Names of the environments in which it can live.
        default_client: Name of the kind of client that workloads use by default.
        has_controllers: Whether it has nodes with the role "controller".
        brokers_max: How many brokers a cluster can have.
        profiles: Promises by the name of a profile, the default first.
        timings: Names of its sets of timeouts, its own defaults last; "fast" is about a tenth of them.
        switchable_rules: Protocol rules that can be switched off.
    """

    name: str
    environments: frozenset[str]
    default_client: str
    has_controllers: bool
    brokers_max: int
    profiles: Mapping[str, Promises]
    timings: tuple[str, ...]
    switchable_rules: Collection[str]

    def node_files(
        self, node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str
    ) -> Mapping[str, str]:
        """Returns the text of a node's files by name.

        Args:
            node: Whose files.
            nodes: All nodes of the cluster, this one included.
            settings: What all nodes are configured with.
            data_dir: Where the node must keep what has to survive a crash; an absolute path.
        """
        ...

    def command(
        self, node: Node, directory: str, *, python: str, ends_with_stdin: bool
    ) -> list[str]:
        """Returns the command that starts a node.

        Args:
            node: Which one.
            directory: The node's directory.
            python: The Python interpreter of the node's host.
            ends_with_stdin: Whether the node ends when its standard input closes, so that it cannot outlive the
                harness.
        """
        ...

    def is_ready(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether a broker serves clients and knows all brokers; blocking, a second at most."""
        ...

    def client_host(self, name: str, *, source: str | None = None) -> RealClientHost:
        """Returns a client host on this machine; `source` is the address from which it connects."""
        ...

    def observation(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> Observation:
        """Returns what follows the nodes of one run.

        Args:
            nodes: All of them.
            view: Committed metadata, which the observation keeps up to date.
            add_row: Takes history rows.
            on_violation: Called when what nodes report contradicts an invariant of the system.
        """
        ...

    async def create_topic(self, host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
        """Creates a topic; returns when it exists. Tries again until then: the caller bounds the time."""
        ...


@runtime_checkable
class VersionedSystem(Protocol):
    """What a system may have besides: several versions of its program can be tested.

    Attributes:
        versions: Their names, oldest first.
        default_version: The one that is tested if an experiment names none.
    """

    versions: Sequence[str]
    default_version: str

    def of_version(self, version: str, features: Mapping[str, int]) -> System:
        """Returns the system that tests one version.

        Args:
            version: One of `versions`.
            features: Levels of the features that differ from the version's defaults, by name.

        Raises:
            UsageError: There is no such version, or it has no such feature or level.
        """
        ...


@runtime_checkable
class Paced(Protocol):
    """What a system may have besides: its nodes start and recover more slowly than those of the reference system.

    Attributes:
        time_scale: How many times longer a run's phases and faults have to be, so that they test the same.
    """

    time_scale: float


@runtime_checkable
class HasElectionTimeout(Protocol):
    """What a system may have besides: a promise to make progress while a majority is alive and connected."""

    def election_timeout_ms(self, timings: str, properties: Mapping[str, str]) -> float:
        """Returns the longest time after which a failed node is replaced, or an election or a retry begins.

        Args:
            timings: The set of timeouts.
            properties: What an experiment sets besides.
        """
        ...


@runtime_checkable
class PropertyTaker(Protocol):
    """What a system may have besides: an experiment can set its properties under the system's own names."""

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Raises `UsageError` if a property cannot be set by an experiment."""
        ...


@runtime_checkable
class HasRunProperties(Protocol):
    """What a `PropertyTaker` may have besides: properties that every run sets before those of the experiment.

    Attributes:
        run_properties: Values by name.
    """

    run_properties: Mapping[str, str]


@runtime_checkable
class HasSpace(Protocol):
    """What a system may have besides: settings of its own that every seed may draw (`harness.runs.space`)."""

    def space(self, timings: str) -> Space:
        """Returns what the default space adds for this system, by key of an experiment; most are properties.

        Every combination must be possible.

        Args:
            timings: The set of timeouts around which it draws.
        """
        ...


@runtime_checkable
class HasProfileVariants(Protocol):
    """What a system may have besides: profiles that differ from that of a release in a feature switch."""

    def profile_variants(self, profile: str) -> Sequence[str]:
        """Returns the profiles that the default space draws besides one; none if that one is a variant itself.

        The verdict follows the profile that was drawn. None may permit a loss that the given one does not permit.

        Args:
            profile: The profile of an experiment.
        """
        ...


@runtime_checkable
class SeveralLogDirs(Protocol):
    """What a system may have besides: its brokers can keep their logs in several directories.

    Attributes:
        log_dirs_max: How many a broker can have.
    """

    log_dirs_max: int


@runtime_checkable
class Administrable(Protocol):
    """What a system may have besides: its cluster can be administered while it runs.

    Attributes:
        actions: Names of the actions that it serves (`harness.contracts.administration`).
    """

    actions: Collection[str]

    def refusal(self, action: Action) -> str:
        """Returns why an action cannot be requested; "" if it can. Called before the run, too."""
        ...

    async def administer(
        self, host: ClientHost, brokers: Mapping[int, str], action: Action
    ) -> ActionOutcome:
        """Requests an action; returns what became of it after a limited time.

        Args:
            host: The host from which the requests are sent.
            brokers: Address of each broker, by node id.
            action: What is requested.
        """
        ...


@runtime_checkable
class ElrSwitch(Protocol):
    """What a system may have besides: eligible leader replicas (KIP-966) can be switched on and off."""

    def elr_keys(self, profile: str, *, is_on: bool) -> Mapping[str, Any]:
        """Returns the keys of an experiment that switch them, and nothing else if that is possible.

        Args:
            profile: The experiment's.
            is_on: Whether they are to be on.

        Raises:
            UsageError: The version or the profile has no such switch.
        """
        ...
