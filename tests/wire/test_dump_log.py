"""`kafka-dump-log` reads every kind of file that a node of the reference system leaves after a clean stop."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from disk_exchange import (
    COMMITTED,
    GROUP,
    RECORDS,
    TRANSACTIONAL_ID,
    create_cluster,
    fill,
    start,
    stop,
    tools_for,
)
from kafka_tools import LIMIT_S, Tools

from harness.environments.local.standing import LocalCluster
from system_under_test.metadata.records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol.snapshot_codec import encode_snapshot

pytestmark = [pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 3)]
UNREADABLE = re.compile(r"isvalid: false|[Ee]xception|Mismatches|Could not|Found ")


def dump(tools: Tools, path: Path, *options: str) -> str:
    """Returns what the tool prints of a file; fails if it complains."""
    text = tools.run("dump-log", *options, "--files", str(path))
    assert UNREADABLE.search(text) is None, text[-2000:]
    return text


def file_of(cluster: LocalCluster, node: str, pattern: str) -> list[Path]:
    """Returns the files of a node whose paths match a pattern, sorted."""
    return sorted(cluster.nodes[node].directory.rglob(pattern))


@pytest.mark.long
def test_the_files_of_a_stopped_cluster_are_read(tmp_path: Path) -> None:
    cluster = create_cluster(tmp_path / "nodes", "reference", 1)
    tools = tools_for(cluster)
    with cluster:
        start(cluster)
        fill(tools, 1)
        stop(cluster)

        segments = file_of(cluster, "b1", "exchanged-*/*.log")
        assert len(segments) > 2
        dumped = "".join(dump(tools, path, "--print-data-log") for path in segments)
        # Aborted records and the markers of both transactions are in the log too.
        assert dumped.count("| offset: ") == 2 * RECORDS + 4 * COMMITTED
        assert dumped.count("endTxnMarker: COMMIT") == dumped.count("endTxnMarker: ABORT") == 2
        assert "compresscodec: gzip" in dumped
        only_batches = dump(tools, segments[0], "--print-data-log", "--skip-record-metadata")
        assert "| offset: " not in only_batches

        for node in ("b1", "c11"):
            (log,) = file_of(cluster, node, "__cluster_metadata-0/*.log")
            records = dump(tools, log, "--cluster-metadata-decoder")
            kinds = set(re.findall(r'"type":"(\w+)"', records))
            assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "CONFIG_RECORD"} <= kinds
            assert '"inControlledShutdown":1' in records
            assert "LeaderChange: " in records

        offsets = "".join(
            dump(tools, path, "--offsets-decoder")
            for path in file_of(cluster, "b1", "__consumer_offsets-*/*.log")
        )
        assert f'"group":"{GROUP}","topic":"exchanged"' in offsets

        transactions = "".join(
            dump(tools, path, "--transaction-log-decoder")
            for path in file_of(cluster, "b1", "__transaction_state-*/*.log")
        )
        assert f'"transactionalId":"{TRANSACTIONAL_ID}"' in transactions
        states = re.findall(r'"transactionStatus":(\d)', transactions)
        # From Empty to CompleteAbort, as Kafka numbers them.
        assert set(states) == set("012345")

        # Two producers with idempotence, one with transactions.
        snapshots = file_of(cluster, "b1", "exchanged-*/*.snapshot")
        assert len(snapshots) == 2
        for path in snapshots:
            assert dump(tools, path).count("producerId: ") == 3


def test_a_metadata_snapshot_is_read(tmp_path: Path) -> None:
    # No cluster: the tools need none to read a file.
    cluster = create_cluster(tmp_path / "nodes", "reference", 1)
    tools = tools_for(cluster)
    topic = UUID(int=77)
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=UUID(int=3),
            broker_epoch=5,
            address="127.0.0.1:9092",
            log_dirs=(UUID(int=101),),
        ),
        TopicRecord(name="t", topic_id=topic),
        PartitionRecord(
            topic_id=topic, partition_id=0, replicas=(1,), isr=(), leader=-1, last_known_elr=(1,)
        ),
    ]
    path = tmp_path / "00000000000000000042-0000000003.checkpoint"
    path.write_bytes(
        encode_snapshot(records, SnapshotId(end_offset=42, epoch=3), timestamp_ms=1000)
    )
    dumped = dump(tools, path, "--cluster-metadata-decoder")
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1000}' in dumped
    assert 'SnapshotFooter {"version":0}' in dumped
    assert '"lastKnownElr":[1]' in dumped
    assert dumped.count('"type":') == len(records)
