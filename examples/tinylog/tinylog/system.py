"""The system adapter: what laststand has to know about tinylog.

tinylog has no metadata log and writes no event log. So its observation derives committed metadata from what the
harness does: a broker is up while its process runs, and the only broker leads every partition.
"""

import json
import socket
from collections.abc import Callable, Mapping, Sequence

from harness.contracts.cluster import AddRow, Topic
from harness.contracts.host import ClientHost
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from harness.contracts.system import Event, Node, Observation, Promises, RealClientHost, Settings
from harness.contracts.violation import Violation
from harness.environments.client_host import PlainClientHost
from tinylog.client import NotSent, RequestLost, TinyClient

CONFIG_FILE = "tinylog.json"
READY_TIMEOUT_S = 1.0
CREATE_TIMEOUT_MS = 1000
NO_LEADER = -1


class TinyLog:
    """Implements `System`."""

    name = "tinylog"
    environments = frozenset({"local"})
    default_client = "tinylog"
    has_controllers = False
    brokers_max = 1
    # What the promise is called has no meaning to the checkers; whether eligible leader replicas exist has.
    profiles: Mapping[str, Promises] = {
        "buffered": Promises(elr_on=False),
        "written": Promises(elr_on=False),
    }
    timings = ("fast",)
    switchable_rules = ()

    def node_files(
        self, node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str
    ) -> Mapping[str, str]:
        """Returns the server's configuration; the profile is its durability."""
        config = {"listen": node.address, "data_dir": data_dir, "durability": settings.profile}
        return {CONFIG_FILE: json.dumps(config, indent=2)}

    def command(
        self, node: Node, directory: str, *, python: str, ends_with_stdin: bool
    ) -> list[str]:
        """Returns the command that starts the server."""
        command = [python, "-m", "tinylog.server", f"{directory}/{CONFIG_FILE}"]
        return [*command, "--until-stdin-closes"] if ends_with_stdin else command

    def is_ready(self, node: Node, nodes: Sequence[Node]) -> bool:
        """Whether the server accepts connections."""
        host, _, port = node.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), READY_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def client_host(self, name: str, *, source: str | None = None) -> RealClientHost:
        """Returns a client host; tinylog's client opens sockets of its own."""
        return PlainClientHost(name)

    def observation(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> Observation:
        """Returns what follows the server of one run."""
        return TinyObservation(nodes, view)

    async def create_topic(self, host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
        """Creates a topic; tries until the server responds."""
        client = TinyClient(
            host,
            tuple(bootstrap),
            request_timeout_ms=CREATE_TIMEOUT_MS,
            connect_timeout_ms=CREATE_TIMEOUT_MS,
        )
        try:
            while not await _is_created(client, topic):
                pass
        finally:
            client.close()


async def _is_created(client: TinyClient, topic: Topic) -> bool:
    try:
        await client.create(topic.name, len(topic.assignments))
    except (NotSent, RequestLost):
        return False
    return True


class TinyObservation:
    """Implements `Observation`. Mutable: which nodes run, and which topics there are."""

    def __init__(self, nodes: Sequence[Node], view: CommittedMetadata) -> None:
        self.doubt = ""
        self._nodes = {node.name: node for node in nodes}
        self._view = view
        self._starts = 0

    def parse(self, line: bytes) -> Event:
        """Refuses every line: tinylog writes no event log."""
        raise ValueError("tinylog writes no event log")

    def take(self, event: Event, at_ns: int) -> None:
        """Never called."""

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Notes the partitions of a topic, led by their first replica."""
        for index, replicas in enumerate(topic.assignments):
            state = PartitionState(
                topic=topic.name,
                partition=index,
                replicas=replicas,
                leader=replicas[0],
                leader_epoch=self._starts,
                partition_epoch=0,
                isr=replicas,
            )
            self._view.partitions[state.name] = state
        self._view.changed()

    def node_started(self, name: str, at_ns: int) -> None:
        """Notes that the broker serves its partitions again."""
        self._starts += 1
        self._set(name, is_up=True)

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Notes that the broker's partitions have no leader."""
        self._set(name, is_up=False)

    def _set(self, name: str, *, is_up: bool) -> None:
        broker = self._nodes[name].node_id
        self._view.brokers[broker] = BrokerState(
            broker=broker,
            broker_epoch=self._starts,
            fenced=not is_up,
            in_controlled_shutdown=False,
        )
        for key, state in list(self._view.partitions.items()):
            if broker in state.replicas:
                self._view.partitions[key] = PartitionState(
                    topic=state.topic,
                    partition=state.partition,
                    replicas=state.replicas,
                    leader=broker if is_up else NO_LEADER,
                    leader_epoch=self._starts,
                    partition_epoch=state.partition_epoch + 1,
                    isr=state.isr,
                )
        self._view.changed()


SYSTEM = TinyLog()
