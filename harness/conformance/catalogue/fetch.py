"""Fetch by consumers, from leaders and followers, and by replicas."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from harness.conformance.probe import EMPTY_TOPIC, READ_RECORDS, READ_TOPIC, Case, Probe

OLDEST, LAST_BY_NAME, NEWEST = 4, 12, 18
FIRST_FROM_FOLLOWER = 11
"""The version since which consumers may read from followers (KIP-392)."""
UNKNOWN_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
_BYTES = 100_000


def fetch(
    probe: Probe,
    offset: int,
    *,
    version: int = LAST_BY_NAME,
    topic: str = READ_TOPIC,
    topic_id: uuid.UUID | None = None,
    to: str | None = None,
    replica: int = -1,
    partition: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Fetches one partition, by default partition 0 of the topic that is only read, from its leader."""
    wanted = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": _BYTES,
        **(partition or {}),
    }
    named: dict[str, Any] = {"partitions": [wanted], "topic": topic}
    if version > LAST_BY_NAME:
        named["topic_id"] = topic_id or probe.topic_id(topic)
        if topic_id is not None:
            probe.symbols.sent.add(str(topic_id))
    values = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": _BYTES,
        "topics": [named],
        "replica_id": replica,
        "replica_state": {"replica_id": replica},
        **fields,
    }
    return probe.ask(
        "fetch", version, values, to=to or probe.leader(READ_TOPIC), drops_unknown=True
    )


def _case(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(id=f"fetch/{case}", run=lambda probe: fetch(probe, *arguments, **options))


def _versions() -> Iterator[Case]:
    for version in range(OLDEST, NEWEST + 1):
        yield _case(f"version {version}", 0, version=version)
        yield _case(f"offset out of range, version {version}", 10**9, version=version)
    for version in (LAST_BY_NAME, NEWEST):
        yield _case(f"at the log end, version {version}", READ_RECORDS, version=version)


def _partitions() -> Iterator[Case]:
    yield _case("offset 1", 1)
    yield _case("offset -5", -5)
    yield _case("offset one beyond the end", READ_RECORDS + 1)
    yield _case("empty partition", 0, topic=EMPTY_TOPIC)
    yield _case("partition 99", 0, partition={"partition": 99})
    yield _case("partition -1", 0, partition={"partition": -1})
    yield _case("unknown topic", 0, topic="nope")
    yield _case("empty topic name", 0, topic="")
    for version in (13, NEWEST):
        yield _case(f"unknown id, version {version}", 0, version=version, topic_id=UNKNOWN_ID)
        yield _case(f"id 0, version {version}", 0, version=version, topic_id=uuid.UUID(int=0))
        yield _case(
            f"id of the metadata log, version {version}",
            0,
            version=version,
            topic_id=uuid.UUID(int=1),
        )
        yield _case(
            f"partition 99, version {version}", 0, version=version, partition={"partition": 99}
        )
    yield _case("metadata log by name", 0, topic="__cluster_metadata")
    for limit in (1, 0, -1):
        yield _case(
            f"max bytes {limit}",
            0,
            max_bytes=limit,
            partition={"partition_max_bytes": limit},
        )
        yield _case(f"partition max bytes {limit}", 0, partition={"partition_max_bytes": limit})
    for level in (1, 7, -1):
        yield _case(f"isolation level {level}", 0, isolation_level=level)
    yield _case("unknown rack", 0, rack_id="nowhere")
    yield _case("min bytes 0, max wait -1", READ_RECORDS, max_wait=-1)
    yield _case("min bytes 1, max wait 50 ms", READ_RECORDS, min_bytes=1, max_wait=50)
    yield _case("log start offset 7", 0, partition={"log_start_offset": 7})


def _epochs() -> Iterator[Case]:
    for name, delta in (("right", 0), ("newer", 5)):
        for version in (LAST_BY_NAME, NEWEST):
            yield Case(
                id=f"fetch/current epoch {name}, version {version}",
                run=lambda p, delta=delta, version=version: fetch(
                    p,
                    0,
                    version=version,
                    partition={"current_leader_epoch": p.leader_epoch() + delta},
                ),
            )
    for name, offset, delta in (
        ("newer", 0, 5),
        ("right, offset 1", 1, 0),
        ("right, beyond the end", 9, 0),
    ):
        yield Case(
            id=f"fetch/last fetched epoch {name}",
            run=lambda p, offset=offset, delta=delta: fetch(
                p, offset, partition={"last_fetched_epoch": p.leader_epoch() + delta}
            ),
        )
    yield _case("current epoch -2", 0, partition={"current_leader_epoch": -2})
    yield _case("last fetched epoch -2", 0, partition={"last_fetched_epoch": -2})


def _from_follower(
    probe: Probe, offset: int, *, epoch_delta: int | None = None, **options: Any
) -> None:
    """Fetches from a follower once it knows the high watermark, which it learns with its next fetch."""
    to = probe.follower(READ_TOPIC)

    def is_known() -> bool:
        values = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": _BYTES,
            "topics": [
                {
                    "topic": READ_TOPIC,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": _BYTES}
                    ],
                }
            ],
        }
        part = probe.prepare("fetch", LAST_BY_NAME, values, to=to).responses[0].partitions[0]
        return bool(part.error_code != 0 or part.high_watermark == READ_RECORDS)

    probe.wait("high watermark at the follower", is_known)
    partition = dict(options.pop("partition", {}))
    if epoch_delta is not None:
        partition["current_leader_epoch"] = probe.leader_epoch() + epoch_delta
    fetch(probe, offset, to=to, partition=partition, **options)


def _followers() -> Iterator[Case]:
    def case(name: str, *arguments: Any, **options: Any) -> Case:
        return Case(
            id=f"fetch from a follower/{name}",
            run=lambda probe: _from_follower(probe, *arguments, **options),
        )

    for version in range(OLDEST, NEWEST + 1):
        yield case(f"version {version}", 0, version=version)
    for version in (FIRST_FROM_FOLLOWER, NEWEST):
        yield case(f"right epoch, version {version}", 1, version=version, epoch_delta=0)
        yield case(f"newer epoch, version {version}", 0, version=version, epoch_delta=5)
        yield case(f"at the log end, version {version}", READ_RECORDS, version=version)
        yield case(f"out of range, version {version}", 10**9, version=version)
        yield case(f"offset -1, version {version}", -1, version=version)
    yield case("empty partition", 0, topic=EMPTY_TOPIC)
    yield case("rack", 0, rack_id="nowhere")
    yield case("last fetched epoch newer", 0, partition={"last_fetched_epoch": 99})
    yield case("as replica 3", 0, replica=3)
    yield case("as replica 9", 0, replica=9)


def _session(
    name: str, session_id: int, epoch: int, *, version: int, names_topics: bool = True
) -> Case:
    def run(probe: Probe) -> None:
        options: dict[str, Any] = {} if names_topics else {"topics": []}
        fetch(probe, 0, version=version, session_id=session_id, session_epoch=epoch, **options)

    return Case(id=f"fetch session/{name}, version {version}", run=run)


def _sessions() -> Iterator[Case]:
    for version in (7, LAST_BY_NAME, NEWEST):
        yield _session("new", 0, 0, version=version)
        yield _session("new, no topics", 0, 0, version=version, names_topics=False)
        yield _session("unknown", 4711, 1, version=version)
        yield _session("unknown, full fetch", 4711, 0, version=version)
        yield _session("unknown, closed", 4711, -1, version=version)
        yield _session("id 0, epoch 3", 0, 3, version=version)


def _replicas() -> Iterator[Case]:
    """Only such fetches as do not change what the leader knows of its followers."""
    for version in (LAST_BY_NAME, NEWEST):
        yield _case(
            f"as replica 2, beyond the end, version {version}", 10**9, version=version, replica=2
        )
        yield _case(f"as replica 9, no epoch, version {version}", 0, version=version, replica=9)
        yield Case(
            id=f"fetch/as replica 9, right epoch, version {version}",
            run=lambda p, version=version: fetch(
                p,
                0,
                version=version,
                replica=9,
                partition={"current_leader_epoch": p.leader_epoch()},
            ),
        )
        yield _case(f"as replica -2, version {version}", 0, version=version, replica=-2)
        yield _case(f"as replica -3, version {version}", 0, version=version, replica=-3)


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _versions()
    yield from _partitions()
    yield from _epochs()
    yield from _followers()
    yield from _sessions()
    yield from _replicas()
