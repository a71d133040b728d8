"""The Kafka messages that the reference system speaks, one version of each.

Every request and response is a frozen `kio` entity, immutable all the way down, which is why the
simulation may pass it by reference. Nested types repeat names across APIs (`PartitionData`), so the schema
modules are exported rather than their classes: `fetch_request.FetchPartition(...)`. Durations are
`datetime.timedelta`; `millis` makes them, records are opaque `bytes`, uuids are `uuid.UUID`.
"""

import io
from datetime import timedelta
from functools import lru_cache
from typing import Any

from kio.schema.alter_partition.v3 import request as alter_partition_request
from kio.schema.alter_partition.v3 import response as alter_partition_response
from kio.schema.begin_quorum_epoch.v1 import request as begin_quorum_epoch_request
from kio.schema.begin_quorum_epoch.v1 import response as begin_quorum_epoch_response
from kio.schema.broker_heartbeat.v1 import request as broker_heartbeat_request
from kio.schema.broker_heartbeat.v1 import response as broker_heartbeat_response
from kio.schema.broker_registration.v4 import request as broker_registration_request
from kio.schema.broker_registration.v4 import response as broker_registration_response
from kio.schema.create_topics.v7 import request as create_topics_request
from kio.schema.create_topics.v7 import response as create_topics_response
from kio.schema.end_quorum_epoch.v1 import request as end_quorum_epoch_request
from kio.schema.end_quorum_epoch.v1 import response as end_quorum_epoch_response
from kio.schema.fetch.v17 import request as fetch_request
from kio.schema.fetch.v17 import response as fetch_response
from kio.schema.list_offsets.v9 import request as list_offsets_request
from kio.schema.list_offsets.v9 import response as list_offsets_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response
from kio.schema.offset_for_leader_epoch.v4 import request as offset_for_leader_epoch_request
from kio.schema.offset_for_leader_epoch.v4 import response as offset_for_leader_epoch_response
from kio.schema.produce.v11 import request as produce_request
from kio.schema.produce.v11 import response as produce_response
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response
from kio.serial import entity_reader, entity_writer

__all__ = [
    "alter_partition_request",
    "alter_partition_response",
    "begin_quorum_epoch_request",
    "begin_quorum_epoch_response",
    "broker_heartbeat_request",
    "broker_heartbeat_response",
    "broker_registration_request",
    "broker_registration_response",
    "create_topics_request",
    "create_topics_response",
    "decode",
    "encode",
    "end_quorum_epoch_request",
    "end_quorum_epoch_response",
    "fetch_request",
    "fetch_response",
    "list_offsets_request",
    "list_offsets_response",
    "message_name",
    "metadata_request",
    "metadata_response",
    "millis",
    "offset_for_leader_epoch_request",
    "offset_for_leader_epoch_response",
    "produce_request",
    "produce_response",
    "to_millis",
    "vote_request",
    "vote_response",
]

NO_THROTTLE = timedelta(0)


@lru_cache(maxsize=256)
def millis(value: int) -> timedelta:
    """Returns a duration of whole milliseconds as the entities want it."""
    return timedelta(milliseconds=value)


def to_millis(value: timedelta) -> float:
    """Returns a duration of an entity in milliseconds."""
    return value / timedelta(milliseconds=1)


def message_name(message: Any) -> str:
    """Returns a short name for traces, for example "FetchRequest"."""
    return type(message).__name__


def encode(message: Any) -> bytes:
    """Encodes a message body (no header) with the codec of its own schema version."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def decode(message_type: type[Any], data: bytes) -> Any:
    """Decodes a message body.

    Raises:
        ValueError: The bytes are not such a message, or bytes are left over.
    """
    entity, size = entity_reader(message_type)(data, 0)
    if size != len(data):
        raise ValueError(f"{message_type.__name__}: {len(data) - size} bytes left over")
    return entity
