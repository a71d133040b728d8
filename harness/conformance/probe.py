"""One case on one cluster: sends requests, and records what came back.

A case is a function of a probe. It gets topics, partitions and groups of its own, so that cases do not influence
one another and any selection of them gives the same result.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.conformance.comparison import Observation
from harness.conformance.connection import RESPONSE, RESPONSE_LIMIT_S, Reply, exchange
from harness.conformance.normalisation import Symbols, normalised
from harness.conformance.wire import read_response, request_frame

READ_TOPIC = "d"
"""Two partitions; the first has `READ_RECORDS` batches of one record. No case writes to it."""
EMPTY_TOPIC = "e"
WRITE_TOPIC = "w"
"""One partition for each case that writes."""
READ_RECORDS = 3
PREPARE_LIMIT_S = 60.0
POLL_S = 0.05
_KEY_TYPES = ("group", "transactional id")
"""What FindCoordinator finds a coordinator of, by key type."""
_COORDINATOR_BUSY = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)


class PreparationError(Exception):
    """What a case needs before its requests could not be had; the message states what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One entry of the catalogue.

    Attributes:
        id: Unique, "family/what is special": "produce/acks 2".
        run: Sends the requests; called with a `Probe`.
        writes: Whether it needs a partition of its own to write to.
    """

    id: str
    run: Callable[..., Any]
    writes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster as cases see it.

    Attributes:
        name: As in `Difference`: "apache_kafka" or "reference".
        brokers, controllers: Address by node id.
        now_ms: One time for all records of a run, the same for both clusters.
    """

    name: str
    brokers: Mapping[int, str]
    controllers: Mapping[int, str]
    now_ms: int

    @property
    def ports(self) -> dict[int, int]:
        """Node id by port."""
        return {
            int(address.rpartition(":")[2]): node_id
            for nodes in (self.brokers, self.controllers)
            for node_id, address in nodes.items()
        }


class Probe:
    """Runs one case on one cluster. Mutable: collects observations.

    Args:
        target: The cluster.
        number: Of the case in the catalogue; it makes names unique.
        partition: The partition of `WRITE_TOPIC` that belongs to the case, -1 if it does not write.

    Attributes:
        observations: One per request that was recorded, in order.
    """

    def __init__(self, target: Target, number: int, partition: int = -1) -> None:
        self.target = target
        self.number = number
        self.partition = partition
        self.observations: list[Observation] = []
        self.symbols = Symbols(
            ports=target.ports,
            own={self.group(): "<own group>", self.topic(): "<own topic>"},
            own_partition=partition,
        )
        self._topics: dict[str, Any] = {}
        self.refresh()

    # -- sending

    def ask(
        self,
        api: str,
        version: int,
        values: Mapping[str, Any],
        *,
        to: str | None = None,
        limit_s: float = RESPONSE_LIMIT_S,
        drops_unknown: bool = False,
        read_as: str = "",
        reduce: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Sends a request and records what comes back.

        Args:
            api: Name of the API, as in `harness.conformance.wire`.
            version: Its version.
            values: Fields of the request.
            to: Address of the node; broker 1 if None.
            limit_s: Time for the response.
            drops_unknown: Whether fields that this version does not have are left out.
            read_as: How to normalise the response if not by the name of the API.
            reduce: Returns the part of a response that is compared; all of it if None.

        Returns:
            The response, None if there is none.
        """
        self.symbols.record_sent(values)
        frame = request_frame(api, version, values, drops_unknown=drops_unknown)
        label = f"{api} v{version}"
        reply = self._exchange(frame, to, limit_s)
        return self._record(label, api, version, reply, read_as or api, reduce)

    def send_bytes(
        self, label: str, data: bytes, *, to: str | None = None, limit_s: float = RESPONSE_LIMIT_S
    ) -> None:
        """Sends bytes that are no request of the schemas; records only whether and how many bytes come back.

        Args:
            label: What is sent, in a few words.
            data: The bytes, the size included if there is one.
            to: Address of the node; broker 1 if None.
            limit_s: Time for the response.
        """
        reply = self._exchange(data, to, limit_s)
        self.observations.append(Observation(request=label, outcome=reply.outcome))

    def prepare(
        self, api: str, version: int, values: Mapping[str, Any], *, to: str | None = None
    ) -> Any:
        """Sends a request that is not compared; returns its response.

        Raises:
            PreparationError: There is no response.
        """
        reply = self._exchange(request_frame(api, version, values), to, RESPONSE_LIMIT_S)
        if reply.outcome != RESPONSE:
            raise PreparationError(f"{api} v{version}: {reply.outcome}")
        return read_response(api, version, reply.body)

    def _exchange(self, frame: bytes, to: str | None, limit_s: float) -> Reply:
        address = to or self.target.brokers[1]
        try:
            return exchange(address, frame, limit_s=limit_s)
        except OSError as error:
            raise PreparationError(f"no connection to {address}: {error.strerror}") from error

    def _record(
        self,
        label: str,
        api: str,
        version: int,
        reply: Reply,
        read_as: str,
        reduce: Callable[[Any], Any] | None,
    ) -> Any:
        if reply.outcome != RESPONSE:
            self.observations.append(Observation(request=label, outcome=reply.outcome))
            return None
        try:
            entity = read_response(api, version, reply.body)
        except ValueError as error:
            outcome = f"a response that cannot be read: {error}"
            self.observations.append(Observation(request=label, outcome=outcome))
            return None
        compared = entity if reduce is None else reduce(entity)
        tree = normalised(read_as, compared, self.symbols)
        self.observations.append(Observation(request=label, outcome=RESPONSE, response=tree))
        return entity

    # -- the cluster

    def refresh(self) -> None:
        """Reads the topics of the cluster anew."""
        response = self.prepare("metadata", 12, {"topics": None})
        self._topics = {topic.name: topic for topic in response.topics}
        self.symbols.topics = {topic.topic_id: name for name, topic in self._topics.items()}
        self.symbols.leader_epoch = (
            self.leader_epoch(READ_TOPIC) if READ_TOPIC in self._topics else 0
        )

    def topic_id(self, topic: str = READ_TOPIC) -> Any:
        """Returns the id of a topic."""
        return self._topics[topic].topic_id

    def _partition(self, topic: str, partition: int) -> Any:
        for one in self._topics[topic].partitions if topic in self._topics else ():
            if one.partition_index == partition:
                return one
        raise PreparationError(f"there is no partition {topic}-{partition}")

    def leader(self, topic: str = READ_TOPIC, partition: int = 0) -> str:
        """Returns the address of a partition's leader."""
        return self.target.brokers[self._partition(topic, partition).leader_id]

    def follower(self, topic: str = READ_TOPIC, partition: int = 0) -> str:
        """Returns the address of a partition's first follower."""
        found = self._partition(topic, partition)
        return self.target.brokers[
            next(one for one in found.replica_nodes if one != found.leader_id)
        ]

    def leader_epoch(self, topic: str = READ_TOPIC, partition: int = 0) -> int:
        """Returns the leader epoch of a partition."""
        return int(self._partition(topic, partition).leader_epoch)

    def controller(self, *, is_active: bool = True) -> str:
        """Returns the address of the active controller, or of another one."""
        response = self.prepare(
            "describe_quorum",
            2,
            {
                "topics": [
                    {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
                ]
            },
        )
        leader = response.topics[0].partitions[0].leader_id
        return next(
            address
            for node_id, address in sorted(self.target.controllers.items())
            if (node_id == leader) is is_active
        )

    # -- what belongs to the case

    def new_producer(self) -> tuple[int, int]:
        """Returns a producer id that a broker has just assigned, and its epoch."""
        values = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}

        def assigned() -> Any:
            made = self.prepare("init_producer_id", 4, values)
            return None if made.error_code else made

        made = self.wait("producer id", assigned)
        self.symbols.add_producer(made.producer_id)
        return int(made.producer_id), int(made.producer_epoch)

    def group(self, name: str = "") -> str:
        """Returns the id of a group that belongs to this case."""
        return f"group-{self.number}{name}"

    def topic(self, name: str = "") -> str:
        """Returns the name of a topic that belongs to this case; it does not exist yet."""
        return f"topic-{self.number}{name}"

    def coordinator(self, group: str) -> str:
        """Returns the address of a group's coordinator once it has loaded the group.

        Raises:
            PreparationError: There is none within a minute.
        """
        values = {"groups": [{"group_id": group, "topics": None}]}

        def error_at(address: str) -> Any:
            return self.prepare("offset_fetch", 8, values, to=address).groups[0].error_code

        return self._coordinator(0, group, error_at)

    def transaction_coordinator(self, transactional_id: str) -> str:
        """Returns the address of a transactional id's coordinator once it has loaded its transactions.

        Raises:
            PreparationError: There is none within a minute.
        """
        values = {"transactional_ids": [transactional_id]}

        def error_at(address: str) -> Any:
            described = self.prepare("describe_transactions", 0, values, to=address)
            return described.transaction_states[0].error_code

        return self._coordinator(1, transactional_id, error_at)

    def _coordinator(self, key_type: int, key: str, error_at: Callable[[str], Any]) -> str:
        """Returns the address of the coordinator of a key once a request to it does not end in a busy error."""
        keys = {"key_type": key_type, "coordinator_keys": [key]}

        def find() -> str | None:
            found = self.prepare("find_coordinator", 4, keys).coordinators[0]
            if found.error_code or found.node_id not in self.target.brokers:
                return None
            address = self.target.brokers[found.node_id]
            return None if error_at(address).name.upper() in _COORDINATOR_BUSY else address

        return str(self.wait(f"coordinator of {_KEY_TYPES[key_type]} {key!r}", find))

    def wait(self, what: str, find: Callable[[], Any]) -> Any:
        """Repeats until `find` returns something true, and returns it.

        Raises:
            PreparationError: Time is up.
        """
        deadline_s = time.monotonic() + PREPARE_LIMIT_S
        while True:
            if found := find():
                return found
            if time.monotonic() > deadline_s:
                raise PreparationError(f"after {PREPARE_LIMIT_S:g} s: no {what}")
            time.sleep(POLL_S)


def run_case(case: Case, probe: Probe) -> Sequence[Observation]:
    """Runs a case and returns what it observed; a case that cannot be prepared is an observation too."""
    try:
        case.run(probe)
    except PreparationError as error:
        probe.observations.append(Observation(request="preparation", outcome=f"failed: {error}"))
    return probe.observations
