"""ApiVersions, DescribeCluster, DescribeQuorum, and what controllers serve.

Controllers get only such requests as cannot change a cluster: about brokers and voters that do not exist, in old
epochs, or as validation.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from harness.conformance.probe import READ_TOPIC, Case, Probe

UNKNOWN_BROKER = 99
UNKNOWN_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
METADATA_LOG = "__cluster_metadata"
METADATA_LOG_ID = uuid.UUID(int=1)


def _broker(case: str, api: str, version: int, values: Mapping[str, Any]) -> Case:
    return Case(id=case, run=lambda p: p.ask(api, version, values, drops_unknown=True))


def _versions() -> Iterator[Case]:
    software = {"client_software_name": "laststand", "client_software_version": "1.0"}
    for version in range(5):
        yield _broker(f"api versions/version {version}", "api_versions", version, software)
    for name in ("-bad-", "", "a b"):
        values = {**software, "client_software_name": name}
        yield _broker(f"api versions/software name {name!r}", "api_versions", 3, values)
        values = {**software, "client_software_version": name}
        yield _broker(f"api versions/software version {name!r}", "api_versions", 3, values)
    yield Case(
        id="api versions/of a controller",
        run=lambda p: p.ask("api_versions", 3, software, to=p.controller()),
    )


def _describe_cluster() -> Iterator[Case]:
    for version in range(3):
        yield _broker(
            f"describe cluster/version {version}", "describe_cluster", version, {"endpoint_type": 1}
        )
    for kind in (2, 3, 0, -1):
        yield _broker(
            f"describe cluster/endpoint type {kind}", "describe_cluster", 2, {"endpoint_type": kind}
        )
    fenced = {"endpoint_type": 1, "include_fenced_brokers": True}
    yield _broker("describe cluster/fenced brokers", "describe_cluster", 2, fenced)
    operations = {"endpoint_type": 1, "include_cluster_authorized_operations": True}
    yield _broker("describe cluster/authorized operations", "describe_cluster", 2, operations)


def _quorum(topic: str = METADATA_LOG, partition: int = 0) -> dict[str, Any]:
    return {"topics": [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]}


def _describe_quorum() -> Iterator[Case]:
    for version in range(3):
        yield _broker(f"describe quorum/version {version}", "describe_quorum", version, _quorum())
    yield _broker("describe quorum/another topic", "describe_quorum", 2, _quorum(READ_TOPIC))
    yield _broker("describe quorum/partition 1", "describe_quorum", 2, _quorum(partition=1))
    yield _broker("describe quorum/no topics", "describe_quorum", 2, {"topics": []})
    for is_active in (True, False):
        where = "active" if is_active else "inactive"
        yield Case(
            id=f"describe quorum/at the {where} controller",
            run=lambda p, is_active=is_active: p.ask(
                "describe_quorum", 2, _quorum(), to=p.controller(is_active=is_active)
            ),
        )


def _controller(
    case: str,
    api: str,
    version: int,
    values: Mapping[str, Any],
    *,
    is_active: bool = True,
    read_as: str = "",
) -> Case:
    def run(probe: Probe) -> None:
        to = probe.controller(is_active=is_active)
        probe.ask(api, version, values, to=to, drops_unknown=True, read_as=read_as)

    return Case(id=f"controller/{case}", run=run)


REGISTRATION: Mapping[str, Any] = {
    "broker_id": UNKNOWN_BROKER,
    "cluster_id": "not this cluster",
    "incarnation_id": UNKNOWN_ID,
    "listeners": [{"name": "BROKER", "host": "127.0.0.1", "port": 1, "security_protocol": 0}],
}
HEARTBEAT: Mapping[str, Any] = {"broker_id": UNKNOWN_BROKER, "broker_epoch": 1, "want_fence": True}
BLOCK: Mapping[str, Any] = {"broker_id": 1, "broker_epoch": 0}


def _brokers_of_controllers() -> Iterator[Case]:
    yield _controller("registration, another cluster", "broker_registration", 4, REGISTRATION)
    yield _controller("heartbeat, unknown broker", "broker_heartbeat", 1, HEARTBEAT)
    yield _controller(
        "heartbeat, old epoch",
        "broker_heartbeat",
        1,
        {**HEARTBEAT, "broker_id": 1, "broker_epoch": -5},
    )
    yield _controller(
        "log directories, unknown broker",
        "assign_replicas_to_dirs",
        0,
        {"broker_id": UNKNOWN_BROKER, "broker_epoch": 1, "directories": []},
    )
    yield _controller(
        "log directories, old epoch",
        "assign_replicas_to_dirs",
        0,
        {"broker_id": 1, "broker_epoch": -5, "directories": []},
    )
    yield _controller("producer ids, old epoch", "allocate_producer_ids", 0, BLOCK)
    yield _controller(
        "producer ids, unknown broker",
        "allocate_producer_ids",
        0,
        {"broker_id": UNKNOWN_BROKER, "broker_epoch": 1},
    )
    for is_active in (False,):
        yield _controller(
            "heartbeat, inactive controller", "broker_heartbeat", 1, HEARTBEAT, is_active=is_active
        )
        yield _controller(
            "producer ids, inactive controller",
            "allocate_producer_ids",
            0,
            BLOCK,
            is_active=is_active,
        )
        yield _controller(
            "registration, inactive controller",
            "broker_registration",
            4,
            REGISTRATION,
            is_active=is_active,
        )


def _isr_changes() -> Iterator[Case]:
    def change(topic_id: uuid.UUID, broker: int, epoch: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": -1}],
        }
        topics = [{"topic_id": topic_id, "partitions": [partition]}]
        return {"broker_id": broker, "broker_epoch": epoch, "topics": topics}

    yield _controller(
        "alter partition, unknown broker",
        "alter_partition",
        3,
        change(UNKNOWN_ID, UNKNOWN_BROKER, 1),
    )
    yield _controller("alter partition, old epoch", "alter_partition", 3, change(UNKNOWN_ID, 1, -5))
    yield _controller(
        "alter partition, inactive controller",
        "alter_partition",
        3,
        change(UNKNOWN_ID, 1, -5),
        is_active=False,
    )


def _raft() -> Iterator[Case]:
    def voting(**fields: Any) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "replica_epoch": 0,
            "replica_id": UNKNOWN_BROKER,
            "last_offset_epoch": 0,
            "last_offset": 0,
            "pre_vote": True,
            **fields,
        }
        topics = [{"topic_name": METADATA_LOG, "partitions": [partition]}]
        return {"cluster_id": None, "voter_id": -1, "topics": topics}

    yield _controller("vote, unknown candidate in an old epoch", "vote", 2, voting())
    yield _controller("vote, partition 1", "vote", 2, voting(partition_index=1))
    yield _controller("vote, another cluster", "vote", 2, {**voting(), "cluster_id": "other"})
    yield _controller("vote, another voter", "vote", 2, {**voting(), "voter_id": UNKNOWN_BROKER})
    epoch = {"partition_index": 0, "leader_id": 11, "leader_epoch": 0}
    topics = [{"topic_name": METADATA_LOG, "partitions": [epoch]}]
    yield _controller("begin quorum epoch, old epoch", "begin_quorum_epoch", 1, {"topics": topics})
    yield _controller("end quorum epoch, old epoch", "end_quorum_epoch", 1, {"topics": topics})
    yield from _snapshots()


def _snapshots() -> Iterator[Case]:
    def snapshot(**fields: Any) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "current_leader_epoch": 0,
            "snapshot_id": {"end_offset": 1, "epoch": 1},
            "position": 0,
            **fields,
        }
        topics = [{"name": METADATA_LOG, "partitions": [partition]}]
        return {"cluster_id": None, "replica_id": -1, "max_bytes": 1 << 20, "topics": topics}

    for name, values in (
        ("old epoch", snapshot()),
        ("partition 1", snapshot(partition=1)),
        ("another cluster", {**snapshot(), "cluster_id": "other"}),
    ):
        yield _controller(f"fetch snapshot, {name}", "fetch_snapshot", 0, values)


def _metadata_log() -> Iterator[Case]:
    def fetch(topic_id: uuid.UUID, **fields: Any) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "fetch_offset": 0,
            "current_leader_epoch": -1,
            "last_fetched_epoch": 0,
            "partition_max_bytes": 1000,
            **fields,
        }
        topics = [{"topic_id": topic_id, "partitions": [partition]}]
        return {"max_wait": 0, "min_bytes": 0, "topics": topics}

    for version in (13, 15, 17):
        yield _controller(
            f"fetch without an epoch, version {version}",
            "fetch",
            version,
            fetch(METADATA_LOG_ID),
            read_as="controller_fetch",
        )
    yield _controller(
        "fetch in epoch 0",
        "fetch",
        17,
        fetch(METADATA_LOG_ID, current_leader_epoch=0),
        read_as="controller_fetch",
    )
    yield _controller(
        "fetch of an unknown topic", "fetch", 17, fetch(UNKNOWN_ID), read_as="controller_fetch"
    )
    yield _controller(
        "fetch of partition 1",
        "fetch",
        17,
        fetch(METADATA_LOG_ID, partition=1),
        read_as="controller_fetch",
    )
    yield _controller(
        "fetch, another cluster",
        "fetch",
        17,
        {**fetch(METADATA_LOG_ID), "cluster_id": "other"},
        read_as="controller_fetch",
    )


def _topics_at_controllers() -> Iterator[Case]:
    for is_active in (True, False):
        where = "active" if is_active else "inactive"

        def create(probe: Probe, is_active: bool = is_active) -> None:
            topic = {"name": probe.topic(), "num_partitions": 1, "replication_factor": 3}
            values = {"topics": [topic], "timeout": 20_000, "validate_only": True}
            probe.ask("create_topics", 7, values, to=probe.controller(is_active=is_active))

        yield Case(id=f"controller/create topics, {where} controller", run=create)
        yield _controller(
            f"delete topics, {where} controller",
            "delete_topics",
            6,
            {"topics": [{"name": "nope", "topic_id": None}], "timeout": 20_000},
            is_active=is_active,
        )
        change = {"name": "min.insync.replicas", "config_operation": 0, "value": "2"}
        resource = {"resource_type": 2, "resource_name": READ_TOPIC, "configs": [change]}
        yield _controller(
            f"alter configs, {where} controller",
            "incremental_alter_configs",
            1,
            {"resources": [resource], "validate_only": True},
            is_active=is_active,
        )


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _versions()
    yield from _describe_cluster()
    yield from _describe_quorum()
    yield from _brokers_of_controllers()
    yield from _isr_changes()
    yield from _raft()
    yield from _metadata_log()
    yield from _topics_at_controllers()
