"""The system adapter: what laststand has to know about NATS JetStream.

A partition is a stream, `t-0`, whose subjects are `t-0.KEY`. The offset of a record is its sequence less one.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.cluster import AddRow, Topic
from harness.contracts.host import ClientHost
from harness.contracts.launcher import tied_to_parent
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.polling import ASK_LIMIT_S, PolledObservation, json_over_http
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
from harness.environments.client_host import PlainClientHost
from harness.errors import UsageError
from laststand_nats import administration, program, store
from laststand_nats.client import NatsClient
from laststand_nats.observation import (
    MONITOR,
    ServerReports,
    further_address,
)

CONFIG_FILE = "nats.json"
REQUEST_MS = 2000
ROUTES = 1
"""Where a server expects the others (`further_address`)."""
OWN = ("server_name", "listen", "host", "port", "http", "jetstream.store_dir", "cluster.name")
OWN_PREFIXES = ("cluster.listen", "cluster.routes", "accounts")
NO_CLOCK = "nats-server reads the clock without the C library, so no preloaded library can move it"
NO_ISR = "JetStream has no ISR: a majority of a stream's servers commits; use leader_or_replica or follower"
SYNC_INTERVAL, SYNC_DEFAULT = "jetstream.sync_interval", "2m"
UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
ELECTION_MS = 9000
"""A follower waits 4 to 9 seconds for its leader before it elects another."""
KAFKA_FILES = "it counts Kafka's record batches, and JetStream keeps blocks of its own"


class NatsJetStream:
    """One version of the server. Implements `System` and, of what a system may have besides, most.

    Args:
        version: Of all nodes.
    """

    name = program.NAME
    environments = frozenset({"local", "docker"})
    default_client = program.NAME
    has_controllers = False
    brokers_max = 5
    profiles: Mapping[str, Promises] = {program.NAME: Promises(elr_on=False)}
    timings = ("fast",)
    switchable_rules = ()
    time_scale = 4.0
    versions = program.KNOWN
    default_version = program.DEFAULT
    actions = administration.ACTIONS
    restarted_after = ("disk_full", "io_error")
    """A failed write disables JetStream on a server until it is restarted."""
    log_files = f"{store.ACCOUNT}/*/msgs/*.blk"

    def __init__(self, version: str) -> None:
        self.version = version

    # -- the program

    def of_version(self, version: str, features: Mapping[str, int]) -> "NatsJetStream":
        """Returns the system that tests one version."""
        if features:
            raise UsageError(f"nats-server has no feature {next(iter(features))!r}; leave it out")
        return NatsJetStream(program.check_version(version))

    def fetch(self, request: FetchRequest) -> FetchReport:
        """Builds the server, or takes it from a file."""
        return program.fetch_server(request)

    def programs(self, cache: Path) -> Sequence[Program]:
        """Returns the versions that are known or fetched."""
        return program.SERVER.programs(cache)

    def program_paths(self) -> Sequence[str]:
        """Returns the server."""
        return [str(program.SERVER.path_of_fetched(self.version))]

    # -- a node

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Raises `UsageError` for what the harness itself has to set."""
        for name in properties:
            if name in OWN or name.startswith(OWN_PREFIXES):
                raise UsageError(f"the property {name!r} is set by laststand; leave it out")

    def node_files(
        self, node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str
    ) -> Mapping[str, str]:
        """Returns the server's configuration, as JSON, which it reads too."""
        config: dict[str, Any] = {
            "server_name": node.name,
            "listen": node.address,
            "http": further_address(node, MONITOR),
            "jetstream": {"store_dir": data_dir},
            "cluster": {
                "name": "laststand",
                "listen": further_address(node, ROUTES),
                "routes": [
                    f"nats://{further_address(other, ROUTES)}" for other in nodes if other != node
                ],
            },
        }
        for name, value in settings.properties.items():
            *tables, key = name.split(".")
            table = config
            for part in tables:
                table = table.setdefault(part, {})
            table[key] = _value(value)
        return {CONFIG_FILE: json.dumps(config, indent=2)}

    def command(
        self, node: Node, directory: str, *, python: str, ends_with_stdin: bool
    ) -> list[str]:
        """Returns the command that starts the server."""
        command = [*self.program_paths(), "--config", f"{directory}/{CONFIG_FILE}"]
        return tied_to_parent(command, python) if ends_with_stdin else command

    def is_ready(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether the server says that its part of JetStream works."""
        report = json_over_http(further_address(node, MONITOR), "/healthz?js-server-only=true")
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            return bool(asyncio.run(asyncio.wait_for(report, ASK_LIMIT_S))["status"] == "ok")
        return False

    def exit_reason(self, output: str) -> str:
        """Returns the last fatal line or panic."""
        lines = [
            line for line in output.splitlines() if re.search(r"\[FTL\]|^(panic|fatal):", line)
        ]
        return lines[-1] if lines else ""

    def impossible_faults(self) -> Mapping[str, str]:
        """Returns what cannot be expressed for this system."""
        clocks = ("clock_step", "clock_drift", "clock_strobe")
        kafka = ("power.keep_records", "power.torn_bytes")
        return dict.fromkeys(clocks, NO_CLOCK) | dict.fromkeys(kafka, KAFKA_FILES)

    def election_timeout_ms(self, timings: str, properties: Mapping[str, str]) -> float:
        """Returns the longest time without a leader before an election, which no property changes."""
        return ELECTION_MS

    def impossible_targets(self) -> Mapping[str, str]:
        """Returns which states of Kafka's partitions a stream never has."""
        isr = dict.fromkeys(("isr_member", "isr_follower", "last_in_isr"), NO_ISR)
        return {**isr, "elr_member": "JetStream has no eligible leader replicas"}

    def flush_interval_ms(self, properties: Mapping[str, str]) -> float:
        """Returns `sync_interval`; the server knows durations such as 1h, 2m, 10s and 100ms."""
        interval = properties.get(SYNC_INTERVAL, SYNC_DEFAULT)
        found = re.fullmatch(r"(\d+)(h|m|s|ms)", interval)
        return int(found[1]) * UNITS_MS[found[2]] if found else 0

    # -- what the harness reads and requests

    def client_host(self, name: str, *, source: str | None = None) -> RealClientHost:
        """Returns a client host; the client opens sockets of its own."""
        return PlainClientHost(name)

    def observation(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> Observation:
        """Returns what follows the servers of one run."""
        return PolledObservation(nodes, view, add_row, on_violation)

    def event_source(self, nodes: RunningNodes) -> EventSource:
        """Returns what asks the servers."""
        return ServerReports(nodes)

    def stored_batches(
        self, files: NodeFiles, topic: str, partition: int, *, bytes_max: int
    ) -> list[StoredBatch]:
        """Returns the records that a server keeps."""
        return store.read_records(files, f"{topic}-{partition}", bytes_max=bytes_max)

    def refusal(self, action: Action) -> str:
        """Returns why JetStream cannot do what an action requests."""
        return administration.refusal(action)

    async def administer(
        self, host: ClientHost, brokers: Mapping[int, str], action: Action
    ) -> ActionOutcome:
        """Requests an action."""
        return await administration.administer(host, brokers, action)

    async def create_topic(self, host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
        """Creates a stream per partition; tries until each exists."""
        client = NatsClient(
            host, tuple(bootstrap), request_timeout_ms=REQUEST_MS, connect_timeout_ms=REQUEST_MS
        )
        for index, replicas in enumerate(topic.assignments):
            while not await client.create(f"{topic.name}-{index}", len(replicas)):
                pass
        await client.disconnect()


def _value(text: str) -> Any:
    """Returns a property as the server's configuration has it: numbers and booleans are no text."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


SYSTEM = NatsJetStream(program.DEFAULT)
