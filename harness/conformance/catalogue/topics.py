"""Metadata, CreateTopics, DeleteTopics and DescribeTopicPartitions."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.conformance.probe import READ_TOPIC, Case, Probe

METADATA_NEWEST, CREATE_NEWEST, DELETE_NEWEST = 13, 7, 6
UNKNOWN_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
LONGEST_NAME = 249
MIN_ISR = "min.insync.replicas"

ILLEGAL_NAMES: Mapping[str, str] = {
    "a slash": "a/b",
    "a space": "a b",
    "one dot": ".",
    "two dots": "..",
    "250 characters": "l" * (LONGEST_NAME + 1),
    "empty": "",
    "not ASCII": "näm",
    "a null byte": "a\0b",
}


def metadata(
    probe: Probe,
    topics: Sequence[Mapping[str, Any]] | None,
    *,
    version: int = METADATA_NEWEST,
    **fields: Any,
) -> None:
    """Requests metadata of topics; of all if None, except in version 0, where an empty list means all."""
    for topic in topics or ():
        if topic.get("topic_id") == UNKNOWN_ID:
            probe.symbols.sent.add(str(UNKNOWN_ID))
    values = {"topics": topics, "allow_auto_topic_creation": False, **fields}
    probe.ask("metadata", version, values, drops_unknown=True)


def _metadata(case: str, topics: Sequence[Mapping[str, Any]] | None, **options: Any) -> Case:
    return Case(id=f"metadata/{case}", run=lambda probe: metadata(probe, topics, **options))


def _metadata_cases() -> Iterator[Case]:
    for version in range(METADATA_NEWEST + 1):
        yield _metadata(f"version {version}", [{"name": READ_TOPIC}], version=version)
        yield _metadata(f"unknown topic, version {version}", [{"name": "nope"}], version=version)
    for name, illegal in ILLEGAL_NAMES.items():
        yield _metadata(f"illegal name, {name}", [{"name": illegal}])
    yield _metadata("longest name", [{"name": "l" * LONGEST_NAME}])
    yield _metadata("no topics", [])
    yield _metadata("unknown id", [{"topic_id": UNKNOWN_ID, "name": None}])
    yield _metadata("neither name nor id", [{"topic_id": None, "name": None}])
    yield _metadata("unknown id and a name", [{"topic_id": UNKNOWN_ID, "name": READ_TOPIC}])
    yield _metadata("same topic twice", [{"name": READ_TOPIC}, {"name": READ_TOPIC}])
    yield _metadata("unknown topic twice", [{"name": "nope"}, {"name": "nope"}])
    yield _metadata("a known and an unknown topic", [{"name": READ_TOPIC}, {"name": "nope"}])
    yield _metadata("creation allowed but off", [{"name": "auto"}], allow_auto_topic_creation=True)
    for operation in (
        "include_topic_authorized_operations",
        "include_cluster_authorized_operations",
    ):
        yield _metadata(
            operation.replace("_", " "), [{"name": READ_TOPIC}], version=9, **{operation: True}
        )
    yield Case(
        id="metadata/known id",
        run=lambda p: metadata(p, [{"topic_id": p.topic_id(), "name": None}]),
    )
    yield Case(
        id="metadata/known id and its name",
        run=lambda p: metadata(p, [{"topic_id": p.topic_id(), "name": READ_TOPIC}]),
    )


def create(
    probe: Probe,
    name: str | None = None,
    *,
    partitions: int = 1,
    factor: int = 3,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
    validates_only: bool = True,
    version: int = CREATE_NEWEST,
    to: str | None = None,
    topics: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Creates one topic, by default of the case's own name and only as validation."""
    topic = {
        "name": probe.topic() if name is None else name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": list(brokers)}
            for index, brokers in assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }
    values = {
        "topics": [topic] if topics is None else topics,
        "timeout": 20_000,
        "validate_only": validates_only,
    }
    probe.ask("create_topics", version, values, to=to, drops_unknown=True)


def _create(case: str, **options: Any) -> Case:
    return Case(id=f"create topics/{case}", run=lambda probe: create(probe, **options))


def _by_hand(*assignments: tuple[int, Sequence[int]], **options: Any) -> dict[str, Any]:
    return {"partitions": -1, "factor": -1, "assignments": assignments, **options}


CREATIONS: Mapping[str, dict[str, Any]] = {
    "defaults": {"partitions": -1, "factor": -1},
    "existing name": {"name": READ_TOPIC},
    "longest name": {"name": "l" * LONGEST_NAME},
    "internal name": {"name": "__consumer_offsets_x"},
    "__cluster_metadata": {"name": "__cluster_metadata"},
    "__consumer_offsets": {"name": "__consumer_offsets"},
    **{f"illegal name, {name}": {"name": illegal} for name, illegal in ILLEGAL_NAMES.items()},
    **{f"replication factor {factor}": {"factor": factor} for factor in (4, 5, 0, -2)},
    **{f"partitions {count}": {"partitions": count} for count in (0, -2, -5, 2, 20_000)},
    "unknown setting": {"configs": [("no.such", "1")]},
    "setting with an empty name": {"configs": [("", "1")]},
    **{
        f"min ISR {value!r}": {"configs": [(MIN_ISR, value)]}
        for value in ("0", "-1", "x", "", "7", "2", "1.5", " 2", "2147483648", None)
    },
    "min ISR twice": {"configs": [(MIN_ISR, "1"), (MIN_ISR, "2")]},
    "unclean election maybe": {"configs": [("unclean.leader.election.enable", "maybe")]},
    "unclean election TRUE": {"configs": [("unclean.leader.election.enable", "TRUE")]},
    "retention.ms": {"configs": [("retention.ms", "100000")]},
    "assignment": _by_hand((0, (1, 2, 3))),
    "assignment, unknown broker": _by_hand((0, (1, 99))),
    "assignment, broker -1": _by_hand((0, (-1,))),
    "assignment, gap": _by_hand((1, (1, 2))),
    "assignment, partition -1": _by_hand((-1, (1, 2))),
    "assignment, broker twice": _by_hand((0, (1, 1))),
    "assignment, partition twice": _by_hand((0, (1,)), (0, (2,))),
    "assignment, no brokers": _by_hand((0, ())),
    "assignment, uneven": _by_hand((0, (1,)), (1, (1, 2))),
    "assignment and counts": {"partitions": 1, "factor": 1, "assignments": [(0, (1,))]},
    "assignment and partitions": {"partitions": 1, "factor": -1, "assignments": [(0, (1,))]},
}


def _create_cases() -> Iterator[Case]:
    for version in range(2, CREATE_NEWEST + 1):
        yield _create(f"version {version}", version=version)
        yield _create(f"existing name, version {version}", version=version, name=READ_TOPIC)
        yield _create(f"defaults, version {version}", version=version, partitions=-1, factor=-1)
    for name, options in CREATIONS.items():
        yield _create(name, **options)
    yield _create("no topics", topics=[])

    def twice(probe: Probe) -> None:
        one = {"name": probe.topic(), "num_partitions": 1, "replication_factor": 1}
        create(probe, topics=[one, one])

    def collision(probe: Probe) -> None:
        create(probe, probe.topic(".x"), validates_only=False)
        create(probe, probe.topic("_x"))

    def validation_only(probe: Probe) -> None:
        create(probe)
        metadata(probe, [{"name": probe.topic()}])

    def twice_in_a_row(probe: Probe) -> None:
        create(probe, validates_only=False)
        create(probe, validates_only=False)

    yield Case(id="create topics/same name twice", run=twice)
    yield Case(id="create topics/names that collide", run=collision)
    yield Case(id="create topics/validation creates nothing", run=validation_only)
    yield Case(id="create topics/twice in a row", run=twice_in_a_row)


def delete(
    probe: Probe,
    states: Sequence[Mapping[str, Any]],
    *,
    version: int = DELETE_NEWEST,
    **fields: Any,
) -> None:
    """Deletes topics, by name or id."""
    for state in states:
        if state.get("topic_id") is not None:
            probe.symbols.sent.add(str(state["topic_id"]))
    values = {
        "topics": states,
        "topic_names": [state["name"] for state in states],
        "timeout": 20_000,
        **fields,
    }
    probe.ask("delete_topics", version, values, drops_unknown=True)


def _delete(case: str, *states: Mapping[str, Any], **options: Any) -> Case:
    return Case(id=f"delete topics/{case}", run=lambda probe: delete(probe, states, **options))


def _delete_cases() -> Iterator[Case]:
    for version in range(1, DELETE_NEWEST + 1):
        yield _delete(f"unknown name, version {version}", {"name": "nope"}, version=version)
    for name in ("a slash", "empty", "250 characters"):
        yield _delete(f"illegal name, {name}", {"name": ILLEGAL_NAMES[name]})
    yield _delete("unknown id", {"name": None, "topic_id": UNKNOWN_ID})
    yield _delete("name and id", {"name": "nope", "topic_id": UNKNOWN_ID})
    yield _delete("neither name nor id", {"name": None, "topic_id": None})
    yield _delete("same name twice", {"name": "nope"}, {"name": "nope"})
    yield _delete(
        "same id twice",
        {"name": None, "topic_id": UNKNOWN_ID},
        {"name": None, "topic_id": UNKNOWN_ID},
    )
    yield _delete("no topics")

    def created(probe: Probe) -> None:
        create(probe, validates_only=False)
        delete(probe, [{"name": probe.topic()}])
        delete(probe, [{"name": probe.topic()}])

    yield Case(id="delete topics/created before", run=created)


def describe(
    probe: Probe, names: Sequence[str], *, limit: int = 100, cursor: Mapping[str, Any] | None = None
) -> None:
    """Describes the partitions of topics."""
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor,
    }
    probe.ask("describe_topic_partitions", 0, values)


def _describe(case: str, names: Sequence[str], **options: Any) -> Case:
    return Case(
        id=f"describe topic partitions/{case}",
        run=lambda probe: describe(probe, names, **options),
    )


def _describe_cases() -> Iterator[Case]:
    yield _describe("one topic", [READ_TOPIC])
    yield _describe("two topics", [READ_TOPIC, "e"])
    yield _describe("unknown topic", ["nope"])
    for name, illegal in ILLEGAL_NAMES.items():
        yield _describe(f"illegal name, {name}", [illegal])
    for limit in (1, 0, -1):
        yield _describe(f"limit {limit}", [READ_TOPIC], limit=limit)
    for index in (1, 7, -1):
        cursor = {"topic_name": READ_TOPIC, "partition_index": index}
        yield _describe(f"cursor at partition {index}", [READ_TOPIC], cursor=cursor)
    yield _describe(
        "cursor at another topic", [READ_TOPIC], cursor={"topic_name": "zzz", "partition_index": 0}
    )
    yield _describe("same topic twice", [READ_TOPIC, READ_TOPIC])


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _metadata_cases()
    yield from _create_cases()
    yield from _delete_cases()
    yield from _describe_cases()
