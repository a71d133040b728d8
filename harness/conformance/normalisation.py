"""Turns a response into plain values in which only behaviour is left.

Two clusters differ in ids, ports, clocks and texts, whatever they do. Such a value is replaced by a symbol that
states what it is: `<id of topic d>`, `<member 1>`, `<time>`. The position of a symbol is still compared. Lists
whose elements have a name or a number become mappings, because Kafka promises no order for them; a list in which
one occurs twice stays a list.
"""

import datetime
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from system_under_test.protocol.record_batch import CorruptBatchError, read_headers

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"
"""A response as plain values: what JSON can hold."""

LEFT_OUT = frozenset({"throttle_time", "error_message", "cluster_id"})
"""Fields that are never compared: load, wording and identity of a cluster."""
KEYS = ("api_key", "name", "topic", "topic_name", "topic_id", "group_id", "key", "partition_index", "partition",
        "index", "broker_id", "node_id", "replica_id", "resource_name", "member_id")  # fmt: skip
"""Fields that identify an element of a list, the first that it has."""
PARTITION_FIELDS = frozenset({"partition_index", "partition", "index"})
MEMBER_FIELDS = frozenset({"member_id", "leader"})
TIME_FIELDS = frozenset(
    {"timestamp", "log_append_time", "last_fetch_timestamp", "last_caught_up_timestamp"}
)
EPOCH_FIELDS = frozenset({"leader_epoch", "epoch", "committed_leader_epoch"})
VOLATILE: Mapping[str, frozenset[str]] = {
    # Which broker coordinates a group, and which one is named as controller, is drawn at random.
    "find_coordinator": frozenset({"node_id", "host", "port"}),
    "metadata": frozenset({"controller_id"}),
    "describe_cluster": frozenset({"controller_id"}),
    # Who leads the quorum, since when, and how long its log is.
    "describe_quorum": frozenset(
        {"leader_id", "leader_epoch", "high_watermark", "log_end_offset", "replica_directory_id"}
    ),
    # Paths of this cluster, and sizes of the disk that all clusters share.
    "describe_log_dirs": frozenset({"log_dir", "total_bytes", "usable_bytes"}),
    "api_versions": frozenset({"finalized_features_epoch"}),
    "vote": frozenset({"leader_id", "leader_epoch"}),
    "begin_quorum_epoch": frozenset({"leader_id", "leader_epoch"}),
    "end_quorum_epoch": frozenset({"leader_id", "leader_epoch"}),
    "controller_fetch": frozenset(
        {"leader_id", "leader_epoch", "high_watermark", "last_stable_offset", "records"}
    ),
}
"""Fields by API whose values depend on the run; only whether they are negative is compared."""


@dataclass(slots=True, kw_only=True)
class Symbols:
    """What the values of one cluster stand for. Mutable: members and producers are added as they appear.

    Attributes:
        topics: Name by topic id.
        ports: Node id by port.
        leader_epochs: Current leader epochs of the topics that requests are about; they are 0 unless a broker
            was fenced during the run.
        own: Symbols by the beginning of names that belong to the case.
        own_partition: Number of the partition that belongs to the case, -1 for none.
        sent: Strings and numbers that the requests of this case contained; they stay as they are.
        members, producers: Symbols by value.
    """

    topics: Mapping[uuid.UUID, str] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    leader_epoch: int = 0
    own: Mapping[str, str] = field(default_factory=dict)
    own_partition: int = -1
    sent: set[str | int] = field(default_factory=set)
    members: dict[str, str] = field(default_factory=dict)
    producers: dict[int, str] = field(default_factory=dict)

    def record_sent(self, values: Any) -> None:
        """Remembers every string and number of a request."""
        if isinstance(values, Mapping):
            for one in values.values():
                self.record_sent(one)
        elif isinstance(values, list | tuple):
            for one in values:
                self.record_sent(one)
        elif isinstance(values, str | int) and values not in self.members:
            self.sent.add(values)

    def member(self, value: str) -> str:
        """Returns the symbol of a member id that a coordinator has drawn."""
        if not value or (value in self.sent and value not in self.members):
            return value
        return self.members.setdefault(value, f"<member {len(self.members) + 1}>")

    def add_producer(self, value: int) -> None:
        """Adds a producer id that a broker has assigned."""
        self.producers.setdefault(value, f"<producer {len(self.producers) + 1}>")

    def producer(self, value: int) -> int | str:
        """Returns the symbol of a producer id that a broker has assigned; others stay as they are."""
        return self.producers.get(value, value)

    def name(self, value: str) -> str:
        """Returns a name in which a part that belongs to the case is replaced by its symbol."""
        for prefix, symbol in self.own.items():
            if value.startswith(prefix):
                return symbol + value.removeprefix(prefix)
        return value

    def topic_id(self, value: uuid.UUID) -> str:
        """Returns the symbol of a topic id; one that no topic has stays as it is if it was sent."""
        if value in self.topics:
            return f"<id of topic {self.topics[value]}>"
        return str(value) if str(value) in self.sent else "<id>"


def normalised(api: str, entity: Any, symbols: Symbols) -> Tree:
    """Returns a response as plain values.

    Args:
        api: Of the request; "controller_fetch" for the metadata log, whose content differs.
        entity: The response.
        symbols: Of the cluster that responded.
    """
    return _Normaliser(VOLATILE.get(api, frozenset()), symbols).value("", entity)


@dataclass(frozen=True, slots=True)
class _Normaliser:
    volatile: Collection[str]
    symbols: Symbols

    def value(self, name: str, value: Any) -> Tree:
        """Returns the plain value of a field."""
        if name in self.volatile:
            return _sign(value)
        if is_dataclass(value):
            return {
                item.name: self.value(item.name, getattr(value, item.name))
                for item in fields(value)
                if item.name not in LEFT_OUT
            }
        if isinstance(value, tuple | list):
            return self._sequence(name, value)
        return self._scalar(name, value)

    def _sequence(self, name: str, values: Sequence[Any]) -> Tree:
        if not values or not is_dataclass(values[0]):
            return [self.value(name, one) for one in values]
        names = [item.name for item in fields(values[0])]
        identity = next((key for key in KEYS if key in names), None)
        made = [self.value(name, one) for one in values]
        if identity is None:
            return made
        if identity in self.volatile:
            return made
        keys = [_key(self.value(identity, getattr(one, identity))) for one in values]
        if len(set(keys)) < len(keys):
            return made
        return {
            key: {inner: one[inner] for inner in one if inner != identity}
            for key, one in sorted(zip(keys, made, strict=True))
            if isinstance(one, dict)
        }

    def _scalar(self, name: str, value: Any) -> Tree:
        symbols = self.symbols
        if isinstance(value, IntEnum):
            return value.name.upper()
        if isinstance(value, uuid.UUID):
            return symbols.topic_id(value)
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            return self._batches(data) if name == "records" else data.hex()
        if isinstance(value, str):
            return symbols.member(value) if name in MEMBER_FIELDS else symbols.name(value)
        if isinstance(value, datetime.timedelta):
            value = round(value.total_seconds() * 1000)
        if isinstance(value, datetime.datetime):
            value = round(value.timestamp() * 1000)
        if value is None or isinstance(value, bool | float):
            return value
        return self._number(name, int(value))

    def _number(self, name: str, value: int) -> Tree:
        symbols = self.symbols
        if name in PARTITION_FIELDS and value == symbols.own_partition >= 0:
            return "<own partition>"
        if name == "port" and value in symbols.ports:
            return f"<port of node {symbols.ports[value]}>"
        if name in TIME_FIELDS and value > 0 and value not in symbols.sent:
            return "<time>"
        if name == "producer_id" and value >= 0:
            symbols.add_producer(value)
            return symbols.producer(value)
        if name == "session_id" and value and value not in symbols.sent:
            return "<session>"
        if name in EPOCH_FIELDS and value >= 0 and symbols.leader_epoch:
            # A broker was fenced during the run: what counts is the distance to the current epoch.
            return value - symbols.leader_epoch
        return value

    def _batches(self, data: bytes) -> Tree:
        """Returns what the headers of record batches contain; a batch that was cut at the end is counted."""
        found: list[Tree] = []
        try:
            for _, header in read_headers(data):
                found.append(
                    {
                        "base_offset": header.base_offset,
                        "record_count": header.record_count,
                        "attributes": header.attributes,
                        "leader_epoch": header.leader_epoch - self.symbols.leader_epoch,
                        "producer_id": self.symbols.producer(header.producer_id),
                        "base_sequence": header.base_sequence,
                    }
                )
        except CorruptBatchError:
            found.append("<incomplete batch>")
        return found


def _key(value: Tree) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sign(value: Any) -> Tree:
    if isinstance(value, int) and not isinstance(value, bool):
        return "<negative>" if value < 0 else "<any>"
    return None if value is None else "<any>"
