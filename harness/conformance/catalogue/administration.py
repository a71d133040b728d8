"""Elections, reassignments and new partitions: requests of administrators that change nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.conformance.probe import READ_TOPIC, Case, Probe


def _reassign(topic: str, partition: int, replicas: list[int] | None) -> tuple[str, int, Any]:
    wanted = {"partition_index": partition, "replicas": replicas}
    topics = [{"name": topic, "partitions": [wanted]}]
    return "alter_partition_reassignments", 0, {"timeout": 2000, "topics": topics}


def _elect(topic: str, partition: int, kind: int) -> tuple[str, int, Any]:
    topics = [{"topic": topic, "partitions": [partition]}]
    return "elect_leaders", 2, {"election_type": kind, "topic_partitions": topics, "timeout": 2000}


def _create_partitions(
    topic: str, count: int, assignments: list[list[int]] | None
) -> tuple[str, int, Any]:
    replicas = None if assignments is None else [{"broker_ids": one} for one in assignments]
    topics = [{"name": topic, "count": count, "assignments": replicas}]
    return "create_partitions", 3, {"topics": topics, "timeout": 2000, "validate_only": True}


def _move(topic: str, partition: int, path: str) -> tuple[str, int, Any]:
    topics = [{"name": topic, "partitions": [partition]}]
    return "alter_replica_log_dirs", 2, {"dirs": [{"path": path, "topics": topics}]}


def _log_dirs(topics: list[dict[str, Any]]) -> tuple[str, int, Any]:
    return "describe_log_dirs", 4, {"topics": topics}


ADMINISTRATION: Mapping[str, tuple[str, int, Any]] = {
    "elect the preferred leader that leads": _elect(READ_TOPIC, 0, 0),
    "elect uncleanly although there is a leader": _elect(READ_TOPIC, 0, 1),
    "elect with an unknown type": _elect(READ_TOPIC, 0, 7),
    "elect in an unknown topic": _elect("nope", 0, 0),
    "elect in an unknown partition": _elect(READ_TOPIC, 99, 0),
    "reassign an unknown topic": _reassign("nope", 0, [1]),
    "reassign an unknown partition": _reassign(READ_TOPIC, 99, [1]),
    "reassign to no broker": _reassign(READ_TOPIC, 0, []),
    "reassign to a broker twice": _reassign(READ_TOPIC, 0, [1, 1]),
    "reassign to an unknown broker": _reassign(READ_TOPIC, 0, [77]),
    "cancel no reassignment": _reassign(READ_TOPIC, 0, None),
    "list reassignments": ("list_partition_reassignments", 0, {"timeout": 2000, "topics": None}),
    "create no more partitions": _create_partitions(READ_TOPIC, 1, None),
    "create negative partitions": _create_partitions(READ_TOPIC, -1, None),
    "create partitions of an unknown topic": _create_partitions("nope", 3, None),
    "create partitions with too few assignments": _create_partitions(READ_TOPIC, 90, [[1]]),
    "move a replica to a directory that does not exist": _move(READ_TOPIC, 0, "/nowhere"),
    "move a replica of an unknown topic": _move("nope", 0, "/nowhere"),
    "move a replica to a directory without a name": _move(READ_TOPIC, 0, ""),
    "describe the log directories of no topic": _log_dirs([]),
    "describe the log directories of an unknown topic": _log_dirs(
        [{"topic": "nope", "partitions": [0]}]
    ),
    "describe the log directories of an unknown partition": _log_dirs(
        [{"topic": READ_TOPIC, "partitions": [99]}]
    ),
}
"""Requests of administrators, none of which changes anything."""


def _older_versions() -> Iterator[Case]:
    """Cases with every other version of these requests."""
    for (api, _, values), versions in (
        (_create_partitions(READ_TOPIC, 1, None), (0, 1, 2)),
        (_elect(READ_TOPIC, 0, 0), (0, 1)),
        (_reassign(READ_TOPIC, 0, None), (1,)),
        (_move(READ_TOPIC, 0, "/nowhere"), (1,)),
        (_log_dirs([]), (1, 2, 3)),
    ):
        for version in versions:

            def ask(probe: Probe, api: str = api, version: int = version, v: Any = values) -> None:
                probe.ask(api, version, v, drops_unknown=True)

            yield Case(id=f"administration/{api}, version {version}", run=ask)


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _older_versions()
    for name, (api, version, values) in ADMINISTRATION.items():

        def ask(probe: Probe, api: str = api, version: int = version, values: Any = values) -> None:
            probe.ask(api, version, values)

        yield Case(id=f"administration/{name}", run=ask)
