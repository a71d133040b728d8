"""The Kafka messages that the reference system's handlers use, one version of each: the canonical one.

Every request and response is a frozen, deeply immutable `kio` entity, so the simulation may pass it by
reference. Nested types repeat names across APIs (`PartitionData`), so the schema modules are exported rather than
their classes: `fetch_request.FetchPartition(...)`. Durations are `datetime.timedelta`, made by `millis`; records
are opaque `bytes`, uuids are `uuid.UUID`.

Other versions exist on the wire only (`apis.py`). Produce, Fetch, OffsetCommit and OffsetFetch have two canonical
versions, because old clients identify topics by name and new ones by id.
"""

import io
from datetime import timedelta
from functools import lru_cache
from typing import Any

from kio.schema.add_offsets_to_txn.v4 import request as add_offsets_to_txn_request
from kio.schema.add_offsets_to_txn.v4 import response as add_offsets_to_txn_response
from kio.schema.add_partitions_to_txn.v3 import request as add_partitions_to_txn_request
from kio.schema.add_partitions_to_txn.v3 import response as add_partitions_to_txn_response
from kio.schema.add_partitions_to_txn.v5 import request as add_partitions_to_txns_request
from kio.schema.add_partitions_to_txn.v5 import response as add_partitions_to_txns_response
from kio.schema.allocate_producer_ids.v0 import request as allocate_producer_ids_request
from kio.schema.allocate_producer_ids.v0 import response as allocate_producer_ids_response
from kio.schema.alter_partition.v3 import request as alter_partition_request
from kio.schema.alter_partition.v3 import response as alter_partition_response
from kio.schema.alter_partition_reassignments.v1 import request as alter_reassignments_request
from kio.schema.alter_partition_reassignments.v1 import response as alter_reassignments_response
from kio.schema.alter_replica_log_dirs.v2 import request as alter_replica_log_dirs_request
from kio.schema.alter_replica_log_dirs.v2 import response as alter_replica_log_dirs_response
from kio.schema.api_versions.v4 import request as api_versions_request
from kio.schema.api_versions.v4 import response as api_versions_response
from kio.schema.assign_replicas_to_dirs.v0 import request as assign_replicas_to_dirs_request
from kio.schema.assign_replicas_to_dirs.v0 import response as assign_replicas_to_dirs_response
from kio.schema.begin_quorum_epoch.v1 import request as begin_quorum_epoch_request
from kio.schema.begin_quorum_epoch.v1 import response as begin_quorum_epoch_response
from kio.schema.broker_heartbeat.v1 import request as broker_heartbeat_request
from kio.schema.broker_heartbeat.v1 import response as broker_heartbeat_response
from kio.schema.broker_registration.v4 import request as broker_registration_request
from kio.schema.broker_registration.v4 import response as broker_registration_response
from kio.schema.consumer_group_describe.v1 import request as consumer_group_describe_request
from kio.schema.consumer_group_describe.v1 import response as consumer_group_describe_response
from kio.schema.consumer_group_heartbeat.v1 import request as consumer_group_heartbeat_request
from kio.schema.consumer_group_heartbeat.v1 import response as consumer_group_heartbeat_response
from kio.schema.create_partitions.v3 import request as create_partitions_request
from kio.schema.create_partitions.v3 import response as create_partitions_response
from kio.schema.create_topics.v7 import request as create_topics_request
from kio.schema.create_topics.v7 import response as create_topics_response
from kio.schema.delete_groups.v2 import request as delete_groups_request
from kio.schema.delete_groups.v2 import response as delete_groups_response
from kio.schema.delete_records.v2 import request as delete_records_request
from kio.schema.delete_records.v2 import response as delete_records_response
from kio.schema.delete_topics.v6 import request as delete_topics_request
from kio.schema.delete_topics.v6 import response as delete_topics_response
from kio.schema.describe_cluster.v2 import request as describe_cluster_request
from kio.schema.describe_cluster.v2 import response as describe_cluster_response
from kio.schema.describe_configs.v4 import request as describe_configs_request
from kio.schema.describe_configs.v4 import response as describe_configs_response
from kio.schema.describe_groups.v6 import request as describe_groups_request
from kio.schema.describe_groups.v6 import response as describe_groups_response
from kio.schema.describe_log_dirs.v4 import request as describe_log_dirs_request
from kio.schema.describe_log_dirs.v4 import response as describe_log_dirs_response
from kio.schema.describe_producers.v0 import request as describe_producers_request
from kio.schema.describe_producers.v0 import response as describe_producers_response
from kio.schema.describe_quorum.v2 import request as describe_quorum_request
from kio.schema.describe_quorum.v2 import response as describe_quorum_response
from kio.schema.describe_topic_partitions.v0 import request as describe_topic_partitions_request
from kio.schema.describe_topic_partitions.v0 import response as describe_topic_partitions_response
from kio.schema.describe_transactions.v0 import request as describe_transactions_request
from kio.schema.describe_transactions.v0 import response as describe_transactions_response
from kio.schema.elect_leaders.v2 import request as elect_leaders_request
from kio.schema.elect_leaders.v2 import response as elect_leaders_response
from kio.schema.end_quorum_epoch.v1 import request as end_quorum_epoch_request
from kio.schema.end_quorum_epoch.v1 import response as end_quorum_epoch_response
from kio.schema.end_txn.v5 import request as end_txn_request
from kio.schema.end_txn.v5 import response as end_txn_response
from kio.schema.fetch.v12 import request as fetch_by_name_request
from kio.schema.fetch.v12 import response as fetch_by_name_response
from kio.schema.fetch.v17 import request as fetch_request
from kio.schema.fetch.v17 import response as fetch_response
from kio.schema.fetch_snapshot.v0 import request as fetch_snapshot_request
from kio.schema.fetch_snapshot.v0 import response as fetch_snapshot_response
from kio.schema.find_coordinator.v4 import request as find_coordinator_request
from kio.schema.find_coordinator.v4 import response as find_coordinator_response
from kio.schema.heartbeat.v4 import request as heartbeat_request
from kio.schema.heartbeat.v4 import response as heartbeat_response
from kio.schema.incremental_alter_configs.v1 import request as incremental_alter_configs_request
from kio.schema.incremental_alter_configs.v1 import response as incremental_alter_configs_response
from kio.schema.init_producer_id.v4 import request as init_producer_id_request
from kio.schema.init_producer_id.v4 import response as init_producer_id_response
from kio.schema.join_group.v9 import request as join_group_request
from kio.schema.join_group.v9 import response as join_group_response
from kio.schema.leave_group.v5 import request as leave_group_request
from kio.schema.leave_group.v5 import response as leave_group_response
from kio.schema.list_groups.v5 import request as list_groups_request
from kio.schema.list_groups.v5 import response as list_groups_response
from kio.schema.list_offsets.v9 import request as list_offsets_request
from kio.schema.list_offsets.v9 import response as list_offsets_response
from kio.schema.list_partition_reassignments.v0 import request as list_reassignments_request
from kio.schema.list_partition_reassignments.v0 import response as list_reassignments_response
from kio.schema.list_transactions.v2 import request as list_transactions_request
from kio.schema.list_transactions.v2 import response as list_transactions_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response
from kio.schema.offset_commit.v8 import request as offset_commit_request
from kio.schema.offset_commit.v8 import response as offset_commit_response
from kio.schema.offset_commit.v10 import request as offset_commit_by_id_request
from kio.schema.offset_commit.v10 import response as offset_commit_by_id_response
from kio.schema.offset_delete.v0 import request as offset_delete_request
from kio.schema.offset_delete.v0 import response as offset_delete_response
from kio.schema.offset_fetch.v9 import request as offset_fetch_request
from kio.schema.offset_fetch.v9 import response as offset_fetch_response
from kio.schema.offset_fetch.v10 import request as offset_fetch_by_id_request
from kio.schema.offset_fetch.v10 import response as offset_fetch_by_id_response
from kio.schema.offset_for_leader_epoch.v4 import request as offset_for_leader_epoch_request
from kio.schema.offset_for_leader_epoch.v4 import response as offset_for_leader_epoch_response
from kio.schema.produce.v11 import request as produce_request
from kio.schema.produce.v11 import response as produce_response
from kio.schema.produce.v13 import request as produce_by_id_request
from kio.schema.produce.v13 import response as produce_by_id_response
from kio.schema.sync_group.v5 import request as sync_group_request
from kio.schema.sync_group.v5 import response as sync_group_response
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit_request
from kio.schema.txn_offset_commit.v5 import response as txn_offset_commit_response
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response
from kio.schema.write_txn_markers.v2 import request as write_txn_markers_request
from kio.schema.write_txn_markers.v2 import response as write_txn_markers_response
from kio.serial import entity_reader, entity_writer

__all__ = [
    "NO_THROTTLE",
    "add_offsets_to_txn_request",
    "add_offsets_to_txn_response",
    "add_partitions_to_txn_request",
    "add_partitions_to_txn_response",
    "add_partitions_to_txns_request",
    "add_partitions_to_txns_response",
    "allocate_producer_ids_request",
    "allocate_producer_ids_response",
    "alter_partition_request",
    "alter_partition_response",
    "alter_reassignments_request",
    "alter_reassignments_response",
    "alter_replica_log_dirs_request",
    "alter_replica_log_dirs_response",
    "api_versions_request",
    "api_versions_response",
    "assign_replicas_to_dirs_request",
    "assign_replicas_to_dirs_response",
    "begin_quorum_epoch_request",
    "begin_quorum_epoch_response",
    "broker_heartbeat_request",
    "broker_heartbeat_response",
    "broker_registration_request",
    "broker_registration_response",
    "consumer_group_describe_request",
    "consumer_group_describe_response",
    "consumer_group_heartbeat_request",
    "consumer_group_heartbeat_response",
    "create_partitions_request",
    "create_partitions_response",
    "create_topics_request",
    "create_topics_response",
    "decode",
    "delete_groups_request",
    "delete_groups_response",
    "delete_records_request",
    "delete_records_response",
    "delete_topics_request",
    "delete_topics_response",
    "describe_cluster_request",
    "describe_cluster_response",
    "describe_configs_request",
    "describe_configs_response",
    "describe_groups_request",
    "describe_groups_response",
    "describe_log_dirs_request",
    "describe_log_dirs_response",
    "describe_producers_request",
    "describe_producers_response",
    "describe_quorum_request",
    "describe_quorum_response",
    "describe_topic_partitions_request",
    "describe_topic_partitions_response",
    "describe_transactions_request",
    "describe_transactions_response",
    "elect_leaders_request",
    "elect_leaders_response",
    "encode",
    "end_quorum_epoch_request",
    "end_quorum_epoch_response",
    "end_txn_request",
    "end_txn_response",
    "fetch_by_name_request",
    "fetch_by_name_response",
    "fetch_request",
    "fetch_response",
    "fetch_snapshot_request",
    "fetch_snapshot_response",
    "find_coordinator_request",
    "find_coordinator_response",
    "heartbeat_request",
    "heartbeat_response",
    "incremental_alter_configs_request",
    "incremental_alter_configs_response",
    "init_producer_id_request",
    "init_producer_id_response",
    "join_group_request",
    "join_group_response",
    "leave_group_request",
    "leave_group_response",
    "list_groups_request",
    "list_groups_response",
    "list_offsets_request",
    "list_offsets_response",
    "list_reassignments_request",
    "list_reassignments_response",
    "list_transactions_request",
    "list_transactions_response",
    "message_name",
    "metadata_request",
    "metadata_response",
    "millis",
    "offset_commit_by_id_request",
    "offset_commit_by_id_response",
    "offset_commit_request",
    "offset_commit_response",
    "offset_delete_request",
    "offset_delete_response",
    "offset_fetch_by_id_request",
    "offset_fetch_by_id_response",
    "offset_fetch_request",
    "offset_fetch_response",
    "offset_for_leader_epoch_request",
    "offset_for_leader_epoch_response",
    "produce_by_id_request",
    "produce_by_id_response",
    "produce_request",
    "produce_response",
    "sync_group_request",
    "sync_group_response",
    "to_millis",
    "txn_offset_commit_request",
    "txn_offset_commit_response",
    "vote_request",
    "vote_response",
    "write_txn_markers_request",
    "write_txn_markers_response",
]

NO_THROTTLE = timedelta(0)


@lru_cache(maxsize=256)
def millis(value: int) -> timedelta:
    """Returns a duration of whole milliseconds in the type of the entities."""
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
        ValueError: The bytes are not such a message, or some are left over.
    """
    entity, size = entity_reader(message_type)(data, 0)
    if size != len(data):
        raise ValueError(f"{message_type.__name__}: {len(data) - size} bytes left over")
    return entity
