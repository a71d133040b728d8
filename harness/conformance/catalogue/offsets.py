"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.conformance.probe import EMPTY_TOPIC, READ_TOPIC, Case, Probe

LIST_NEWEST, EPOCH_NEWEST, DELETE_NEWEST = 10, 4, 2
SPECIAL = (-1, -2, -3, -4, -5, -6, -7)
"""Timestamps with a meaning: latest, earliest, largest timestamp, earliest local, latest tiered; two without."""
_FIRST_WITH: Mapping[int, int] = {-3: 7, -4: 8, -5: 9, -6: 10}


def list_offsets(
    probe: Probe,
    timestamp: int,
    *,
    version: int = LIST_NEWEST,
    topic: str = READ_TOPIC,
    to: str | None = None,
    partition: Mapping[str, Any] | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> None:
    """Lists an offset of one partition, by default partition 0 of the topic that is only read."""
    wanted = {"partition_index": 0, "timestamp": timestamp, **(partition or {})}
    values = {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": [wanted, *more]}],
        **fields,
    }
    probe.ask(
        "list_offsets", version, values, to=to or probe.leader(READ_TOPIC), drops_unknown=True
    )


def _list(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(
        id=f"list offsets/{case}", run=lambda probe: list_offsets(probe, *arguments, **options)
    )


def _lists() -> Iterator[Case]:
    for version in range(1, LIST_NEWEST + 1):
        for timestamp in (-1, -2):
            yield _list(f"timestamp {timestamp}, version {version}", timestamp, version=version)
    for timestamp in SPECIAL[2:]:
        yield _list(f"timestamp {timestamp}", timestamp)
        first = _FIRST_WITH.get(timestamp)
        if first is not None and 1 < first <= LIST_NEWEST:
            yield _list(f"timestamp {timestamp}, version {first - 1}", timestamp, version=first - 1)
        yield _list(f"empty partition, timestamp {timestamp}", timestamp, topic=EMPTY_TOPIC)
    for timestamp in (-1, -2, 0):
        yield _list(f"empty partition, timestamp {timestamp}", timestamp, topic=EMPTY_TOPIC)
    for timestamp in (0, 1, 2**62):
        yield _list(f"timestamp {timestamp}", timestamp)
    for level in (1, 7, -1):
        yield _list(f"isolation level {level}", -1, isolation_level=level)
    for epoch in (5, 0):
        yield Case(
            id=f"list offsets/current epoch + {epoch}",
            run=lambda p, epoch=epoch: list_offsets(
                p, -1, partition={"current_leader_epoch": p.leader_epoch() + epoch}
            ),
        )
    yield _list("unknown topic", -1, topic="nope")
    yield _list("empty topic name", -1, topic="")
    yield _list("partition 99", -1, partition={"partition_index": 99})
    yield _list("partition -1", -1, partition={"partition_index": -1})
    yield _list("metadata log", -1, topic="__cluster_metadata")
    twice = {"partition_index": 0, "timestamp": -2}
    for version in (1, LIST_NEWEST):
        yield _list(f"same partition twice, version {version}", -1, version=version, more=[twice])
    for replica in (2, 9, -2):
        yield _list(f"as replica {replica}", -1, replica_id=replica)
    for version in (1, 4, LIST_NEWEST):
        yield Case(
            id=f"list offsets/at a follower, version {version}",
            run=lambda p, version=version: list_offsets(
                p, -1, version=version, to=p.follower(READ_TOPIC)
            ),
        )
    yield _list("no topics", -1, topics=[])


def epoch_end(
    probe: Probe,
    leader_epoch: int,
    *,
    current: int = -1,
    version: int = EPOCH_NEWEST,
    topic: str = READ_TOPIC,
    partition: int = 0,
    to: str | None = None,
    replica: int = -1,
) -> None:
    """Asks for the end of a leader epoch."""
    wanted = {"partition": partition, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    values = {"replica_id": replica, "topics": [{"topic": topic, "partitions": [wanted]}]}
    probe.ask(
        "offset_for_leader_epoch",
        version,
        values,
        to=to or probe.leader(READ_TOPIC),
        drops_unknown=True,
    )


def _epoch(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(
        id=f"leader epoch/{case}", run=lambda probe: epoch_end(probe, *arguments, **options)
    )


def _epochs() -> Iterator[Case]:
    for version in range(2, EPOCH_NEWEST + 1):
        yield _epoch(f"version {version}", 0, version=version)
    for epoch in (-1, -2, 50):
        yield _epoch(f"epoch {epoch}", epoch)
    yield _epoch("empty partition", 0, topic=EMPTY_TOPIC)
    yield _epoch("current epoch newer", 0, current=50)
    yield _epoch("partition 99", 0, partition=99)
    yield _epoch("unknown topic", 0, topic="nope")
    yield _epoch("as replica 2", 0, replica=2)
    yield _epoch("as replica 9", 0, replica=9)
    yield _epoch("as replica -2", 0, replica=-2)
    yield Case(
        id="leader epoch/at a follower",
        run=lambda p: epoch_end(p, 0, to=p.follower(READ_TOPIC)),
    )


def delete_records(
    probe: Probe,
    offset: int,
    *,
    version: int = DELETE_NEWEST,
    topic: str = READ_TOPIC,
    partition: int = 0,
    to: str | None = None,
) -> None:
    """Deletes records before an offset; no case deletes any, because others read them."""
    wanted = {"partition_index": partition, "offset": offset}
    values = {"topics": [{"name": topic, "partitions": [wanted]}], "timeout": 2000}
    probe.ask("delete_records", version, values, to=to or probe.leader(READ_TOPIC))


def _delete(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(
        id=f"delete records/{case}", run=lambda probe: delete_records(probe, *arguments, **options)
    )


def _deletions() -> Iterator[Case]:
    for version in range(DELETE_NEWEST + 1):
        yield _delete(f"version {version}", 0, version=version)
    for offset in (-2, 2**62):
        yield _delete(f"offset {offset}", offset)
    yield _delete("partition 99", 0, partition=99)
    yield _delete("unknown topic", 0, topic="nope")
    yield _delete("offsets topic", 0, topic="__consumer_offsets")
    yield Case(
        id="delete records/at a follower",
        run=lambda p: delete_records(p, 0, to=p.follower(READ_TOPIC)),
    )


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _lists()
    yield from _epochs()
    yield from _deletions()
