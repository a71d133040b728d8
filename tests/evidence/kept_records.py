"""What the last leaders' disks hold at the end of a simulated run: the truth about records that were lost."""

import re

from harness.runs.simulated import SimulatedRun
from harness.simulation.node import SimNode
from system_under_test.config import LOG_DIR_NAMES
from system_under_test.protocol.record_batch import CorruptBatchError, decode_records
from workloads.values import read_record

_SEGMENT = re.compile(rf"(?:{'|'.join(LOG_DIR_NAMES)})/(?P<topic>.+)-(?P<index>\d+)/\d{{20}}\.log")
ALL = -1
"""What a row of `operations` has as `acks` if all in-sync replicas had to have the record."""


def missing_records(run: SimulatedRun) -> int | None:
    """Returns how many records that were acknowledged with acks=all the last leaders do not have on their disks.

    Returns:
        None if that cannot be said: a partition has no leader in the end, or a log is damaged.
    """
    acknowledged: dict[tuple[str, int], set[int]] = {}
    for row in run.result.tables["operations"].to_pylist():
        if row["kind"] == "append" and row["outcome"] == "ok" and row["acks"] == ALL:
            acknowledged.setdefault((row["topic"], row["partition"]), set()).add(row["op_index"])
    leaders = {
        (row["topic"], row["partition"]): row["leader"]
        for row in run.result.tables["partition_states"].to_pylist()
    }
    missing = 0
    for partition, operations in acknowledged.items():
        node = run.world.nodes.get(f"b{leaders[partition]}")
        if node is None:
            return None
        try:
            missing += len(operations - _on_disk(node, run.seed, *partition))
        except CorruptBatchError:
            return None
    return missing


def _on_disk(node: SimNode, run_id: int, topic: str, index: int) -> set[int]:
    """Returns the op indexes of the records in a partition's log."""
    found: set[int] = set()
    for path in node.disk.files:
        match = _SEGMENT.fullmatch(path)
        if match is None or (match["topic"], int(match["index"])) != (topic, index):
            continue
        for _, records in decode_records(node.disk.peek(path)):
            for record in records:
                read = read_record(
                    record, run_id=run_id, topic=topic, partition=index, leader_epoch=0
                )
                found.add(read.value)
    return found
