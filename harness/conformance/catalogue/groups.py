"""Classic consumer groups: coordinator, membership and offsets."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.conformance.probe import READ_TOPIC, Case, Probe

COORDINATOR_NEWEST, JOIN_NEWEST, SYNC_NEWEST, HEARTBEAT_NEWEST = 6, 9, 5, 4
LEAVE_NEWEST, COMMIT_NEWEST, OFFSETS_NEWEST = 5, 9, 9
OFFSETS_BY_ID = 10
"""The first version of OffsetCommit and OffsetFetch that identifies topics by id."""
UNKNOWN_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1d\xff\xff\xff\xff"
"""Version 0, one topic "d", no user data; both coordinators take it as it is."""
METADATA_MAX_BYTES = 4096
LIKE_THE_EMPTY_GROUP = "h"
"""A group in the same partition of the offsets topic, the first of four, as the group with an empty id."""


# -- coordinator


def _coordinators() -> Iterator[Case]:
    def find(case: str, version: int, **values: Any) -> Case:
        values.setdefault("key_type", 0)

        def run(probe: Probe) -> None:
            probe.coordinator("g")
            probe.ask("find_coordinator", version, values, drops_unknown=True)

        return Case(id=f"find coordinator/{case}", run=run)

    for version in range(COORDINATOR_NEWEST + 1):
        yield find(f"version {version}", version, key="g", coordinator_keys=["g"])
        yield find(f"empty key, version {version}", version, key="", coordinator_keys=[""])
    yield find("no keys", COORDINATOR_NEWEST, coordinator_keys=[])
    yield find("two keys", COORDINATOR_NEWEST, coordinator_keys=["g", "h"])
    yield find("same key twice", COORDINATOR_NEWEST, coordinator_keys=["g", "g"])
    for kind, key in ((1, "transaction"), (2, "g:x:0"), (9, "g"), (-1, "g")):
        yield find(f"key type {kind}", COORDINATOR_NEWEST, key_type=kind, coordinator_keys=[key])
        yield find(f"key type {kind}, version 3", 3, key_type=kind, key=key)


# -- requests about one group


def join(
    probe: Probe,
    group: str,
    to: str,
    *,
    version: int = JOIN_NEWEST,
    compares: bool = True,
    **fields: Any,
) -> Any:
    """Joins a group; the response is compared unless it only prepares."""
    values = {
        "group_id": group,
        "session_timeout": 20_000,
        "rebalance_timeout": 20_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        **fields,
    }
    if compares:
        return probe.ask("join_group", version, values, to=to, drops_unknown=True)
    return probe.prepare("join_group", version, values, to=to)


class Member:
    """The only member of a group of its own. Mutable: its generation.

    Args:
        probe: The cluster.
        synced: Whether it has got its assignment.
        instance: Its static id, if it has one.
    """

    def __init__(self, probe: Probe, *, synced: bool = False, instance: str | None = None) -> None:
        self.probe = probe
        self.group = probe.group()
        self.to = probe.coordinator(self.group)
        fields: dict[str, Any] = {"group_instance_id": instance}
        joined = join(probe, self.group, self.to, compares=False, **fields)
        if joined.error_code.name.upper() == "MEMBER_ID_REQUIRED":
            fields["member_id"] = joined.member_id
            joined = join(probe, self.group, self.to, compares=False, **fields)
        self.id = str(joined.member_id)
        self.generation = int(joined.generation_id)
        probe.symbols.member(self.id)
        if synced:
            self._sync()

    def _sync(self) -> None:
        values = {**self._named(), "assignments": [{"member_id": self.id, "assignment": b"\1"}]}
        self.probe.prepare("sync_group", SYNC_NEWEST, values, to=self.to)

    def _named(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }

    def sync(self, *, version: int = SYNC_NEWEST, **fields: Any) -> None:
        """Gets the assignment."""
        values = {**self._named(), **fields}
        self.probe.ask("sync_group", version, values, to=self.to, drops_unknown=True)

    def heartbeat(self, *, version: int = HEARTBEAT_NEWEST, **fields: Any) -> None:
        """Sends a heartbeat."""
        values = {**self._named(), **fields}
        self.probe.ask("heartbeat", version, values, to=self.to, drops_unknown=True)

    def commit(self, *, version: int = COMMIT_NEWEST, **fields: Any) -> None:
        """Commits an offset as this member."""
        named = {
            "member_id": self.id,
            "generation_id_or_member_epoch": self.generation,
            "generation_id": self.generation,
            **fields,
        }
        commit(self.probe, self.group, self.to, version=version, **named)

    def leave(self, members: Sequence[Mapping[str, Any]], *, version: int = LEAVE_NEWEST) -> None:
        """Removes members from the group."""
        leave(self.probe, self.group, self.to, members, version=version)


def leave(
    probe: Probe,
    group: str,
    to: str,
    members: Sequence[Mapping[str, Any]],
    *,
    version: int = LEAVE_NEWEST,
) -> None:
    """Removes members from a group; before version 3 there is one, by its id."""
    values: dict[str, Any] = {"group_id": group, "members": members}
    if members:
        values["member_id"] = members[0]["member_id"]
    probe.ask("leave_group", version, values, to=to, drops_unknown=True)


def commit(
    probe: Probe,
    group: str,
    to: str,
    *,
    version: int = COMMIT_NEWEST,
    topic: str = READ_TOPIC,
    partition: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Commits one offset."""
    one = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
        **(partition or {}),
    }
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": [{"name": topic, "topic_id": _id_of(probe, topic), "partitions": [one]}],
        **fields,
    }
    probe.ask("offset_commit", version, values, to=to, drops_unknown=True)


def _id_of(probe: Probe, topic: str) -> Any:
    """Returns the id of a topic, or one that no topic has."""
    try:
        return probe.topic_id(topic)
    except KeyError:
        probe.symbols.sent.add(str(UNKNOWN_ID))
        return UNKNOWN_ID


def offsets(
    probe: Probe,
    group: str,
    to: str,
    topics: Sequence[Mapping[str, Any]] | None,
    *,
    version: int = OFFSETS_NEWEST,
) -> None:
    """Reads committed offsets of one group; all of them if `topics` is None."""
    if topics is not None:
        topics = [{**topic, "topic_id": _id_of(probe, topic["name"])} for topic in topics]
    values = {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": topics}],
        "require_stable": False,
    }
    probe.ask("offset_fetch", version, values, to=to, drops_unknown=True)


# -- cases


def _of_group(case: str, run: Callable[..., Any], group: str | None = None) -> Case:
    """A case about a group that has no members: the case's own, or one with this id."""

    def prepared(probe: Probe) -> None:
        name = probe.group() if group is None else group
        run(probe, name, probe.coordinator(name or LIKE_THE_EMPTY_GROUP))

    return Case(id=case, run=prepared)


def _of_member(case: str, run: Callable[..., Any], **options: Any) -> Case:
    return Case(id=case, run=lambda probe: run(Member(probe, **options)))


JOINS: Mapping[str, dict[str, Any]] = {
    "unknown member": {"member_id": "who"},
    "session timeout 1": {"session_timeout": 1},
    "session timeout 2^30": {"session_timeout": 2**30},
    "session timeout -1": {"session_timeout": -1},
    "rebalance timeout -1": {"rebalance_timeout": -1, "member_id": "who"},
    "no protocols": {"protocols": []},
    "empty protocol type": {"protocol_type": ""},
    "empty protocol name": {"protocols": [{"name": "", "metadata": b""}], "member_id": "who"},
    "protocol twice": {
        "protocols": [{"name": "range", "metadata": b""}, {"name": "range", "metadata": b""}],
        "member_id": "who",
    },
    "static, unknown member": {"member_id": "who", "group_instance_id": "i1"},
    "static, illegal instance id": {"group_instance_id": "a b"},
    "static, empty instance id": {"group_instance_id": ""},
    "static": {"group_instance_id": "i1"},
}


def _joins() -> Iterator[Case]:
    for version in range(JOIN_NEWEST + 1):
        yield _of_group(
            f"join group/no member, version {version}",
            lambda p, g, to, version=version: join(p, g, to, version=version),
        )
    for group in ("", "a b"):
        yield _of_group(f"join group/group {group!r}", join, group)
    for name, fields in JOINS.items():
        yield _of_group(
            f"join group/{name}", lambda p, g, to, fields=fields: join(p, g, to, **fields)
        )
    other = [{"name": "other", "metadata": b""}]
    yield _of_member(
        "join group/other protocol", lambda m: join(m.probe, m.group, m.to, protocols=other)
    )
    yield _of_member(
        "join group/other protocol type",
        lambda m: join(m.probe, m.group, m.to, protocol_type="connect"),
    )
    yield _of_member(
        "join group/again", lambda m: join(m.probe, m.group, m.to, member_id=m.id), synced=True
    )
    yield _of_member(
        "join group/static member again",
        lambda m: join(m.probe, m.group, m.to, group_instance_id="i1"),
        synced=True,
        instance="i1",
    )
    yield _of_member(
        "join group/static member, wrong member id",
        lambda m: join(m.probe, m.group, m.to, group_instance_id="i1", member_id="who"),
        synced=True,
        instance="i1",
    )


def _syncs() -> Iterator[Case]:
    for version in range(SYNC_NEWEST + 1):
        yield _of_member(f"sync group/version {version}", lambda m, v=version: m.sync(version=v))
    yield _of_member(
        "sync group/with an assignment",
        lambda m: m.sync(assignments=[{"member_id": m.id, "assignment": b"\1\2"}]),
    )
    yield _of_member(
        "sync group/assignment of an unknown member",
        lambda m: m.sync(assignments=[{"member_id": "who", "assignment": b"\1\2"}]),
    )
    yield _of_member("sync group/again", lambda m: m.sync(), synced=True)
    for name, change in (("older", -1), ("newer", 1)):
        yield _of_member(
            f"sync group/{name} generation",
            lambda m, change=change: m.sync(generation_id=m.generation + change),
        )
    yield _of_member("sync group/unknown member", lambda m: m.sync(member_id="who"))
    yield _of_member("sync group/empty member", lambda m: m.sync(member_id=""))
    yield _of_member("sync group/other protocol", lambda m: m.sync(protocol_name="other"))
    yield _of_member("sync group/other type", lambda m: m.sync(protocol_type="connect"))
    yield _of_member("sync group/unknown instance", lambda m: m.sync(group_instance_id="i9"))
    for group in (None, ""):
        name = "unknown group" if group is None else "empty group"
        yield _of_group(
            f"sync group/{name}",
            lambda p, g, to: p.ask(
                "sync_group",
                SYNC_NEWEST,
                {
                    "group_id": g,
                    "generation_id": 1,
                    "member_id": "m",
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                },
                to=to,
            ),
            group,
        )


def _heartbeats() -> Iterator[Case]:
    for version in range(HEARTBEAT_NEWEST + 1):
        yield _of_member(
            f"heartbeat/version {version}", lambda m, v=version: m.heartbeat(version=v), synced=True
        )
    yield _of_member("heartbeat/before the assignment", lambda m: m.heartbeat())
    for name, change in (("older", -1), ("newer", 1)):
        yield _of_member(
            f"heartbeat/{name} generation",
            lambda m, change=change: m.heartbeat(generation_id=m.generation + change),
            synced=True,
        )
    yield _of_member(
        "heartbeat/unknown member", lambda m: m.heartbeat(member_id="who"), synced=True
    )
    yield _of_member(
        "heartbeat/unknown instance", lambda m: m.heartbeat(group_instance_id="i9"), synced=True
    )
    for group, member in ((None, "m"), ("", "m"), (None, "")):
        name = f"{'unknown' if group is None else 'empty'} group, member {member!r}"
        yield _of_group(
            f"heartbeat/{name}",
            lambda p, g, to, member=member: p.ask(
                "heartbeat",
                HEARTBEAT_NEWEST,
                {"group_id": g, "generation_id": 1, "member_id": member},
                to=to,
            ),
            group,
        )


def _leaves() -> Iterator[Case]:
    unknown = {"member_id": "who"}
    for version in range(LEAVE_NEWEST + 1):
        yield _of_member(
            f"leave group/version {version}",
            lambda m, v=version: m.leave([{"member_id": m.id}], version=v),
            synced=True,
        )
        yield _of_group(
            f"leave group/unknown group, version {version}",
            lambda p, g, to, v=version: leave(p, g, to, [unknown], version=v),
        )
        yield _of_member(
            f"leave group/unknown member, version {version}",
            lambda m, v=version: m.leave([unknown], version=v),
        )
    yield _of_group("leave group/empty group", lambda p, g, to: leave(p, g, to, [unknown]), "")
    yield _of_group("leave group/nobody", lambda p, g, to: leave(p, g, to, []))
    yield _of_member("leave group/nobody of a group", lambda m: m.leave([]))
    yield _of_member(
        "leave group/twice in a request",
        lambda m: m.leave([{"member_id": m.id}, {"member_id": m.id}]),
    )
    yield _of_member(
        "leave group/unknown instance",
        lambda m: m.leave([{"member_id": "", "group_instance_id": "i9"}]),
    )
    yield _of_member(
        "leave group/by instance",
        lambda m: m.leave([{"member_id": "", "group_instance_id": "i1"}]),
        synced=True,
        instance="i1",
    )
    yield _of_member(
        "leave group/instance of another member",
        lambda m: m.leave([{"member_id": "who", "group_instance_id": "i1"}]),
        synced=True,
        instance="i1",
    )


def _read_back(probe: Probe, group: str, to: str) -> None:
    offsets(probe, group, to, [{"name": READ_TOPIC, "partition_indexes": [0, 1]}])


def _committed(case: str, group: str | None = None, **options: Any) -> Case:
    """Commits without a membership and reads back."""

    def run(probe: Probe, name: str, to: str) -> None:
        commit(probe, name, to, **options)
        _read_back(probe, name, to)

    return _of_group(f"offset commit/{case}", run, group)


def _commits() -> Iterator[Case]:
    for version in range(2, OFFSETS_BY_ID + 1):
        yield _committed(f"no member, version {version}", version=version)
    for version in (8, COMMIT_NEWEST, OFFSETS_BY_ID):
        yield _committed(
            f"generation 5, no group, version {version}",
            version=version,
            generation_id_or_member_epoch=5,
        )
    yield _committed("unknown topic by id", version=OFFSETS_BY_ID, topic="nope")
    yield _committed("partition 99 by id", version=OFFSETS_BY_ID, partition={"partition_index": 99})
    yield _committed("unknown member", member_id="who", generation_id_or_member_epoch=1)
    yield _committed("generation 5, no group", generation_id_or_member_epoch=5)
    yield _committed("generation -2", generation_id_or_member_epoch=-2)
    yield _committed("unknown topic", topic="nope")
    yield _committed("empty topic name", topic="")
    yield _committed("partition 99", partition={"partition_index": 99})
    for offset in (-1, -5, 2**62):
        yield _committed(f"offset {offset}", partition={"committed_offset": offset})
    yield _committed("leader epoch 7", partition={"committed_leader_epoch": 7})
    yield _committed("null metadata", partition={"committed_metadata": None})
    for size in (METADATA_MAX_BYTES, METADATA_MAX_BYTES + 1):
        yield _committed(f"{size} bytes of metadata", partition={"committed_metadata": "m" * size})
    yield _committed("empty group", "")
    yield _committed("empty group, unknown member", "", member_id="who")

    def in_empty_group(probe: Probe, group: str, to: str) -> None:
        commit(probe, group, to)  # from here on the group exists
        commit(probe, group, to, generation_id_or_member_epoch=3)

    yield _of_group("offset commit/empty group, generation 3", in_empty_group, "")
    yield _committed("no topics", topics=[])
    yield _committed("unknown instance", group_instance_id="i9")

    def by_member(case: str, synced: bool = True, **fields: Any) -> Case:
        def run(member: Member) -> None:
            member.commit(**fields)
            _read_back(member.probe, member.group, member.to)

        return _of_member(f"offset commit/by a member{case}", run, synced=synced)

    yield by_member("")
    yield by_member(", before the assignment", synced=False)
    yield by_member(", generation 99", generation_id_or_member_epoch=99)
    yield by_member(", generation -1", generation_id_or_member_epoch=-1)
    yield by_member(", without a name", member_id="", generation_id_or_member_epoch=-1)
    yield by_member(", unknown member", member_id="who")


def _offset_fetches() -> Iterator[Case]:
    one = [{"name": READ_TOPIC, "partition_indexes": [0]}]
    for version in range(1, OFFSETS_BY_ID + 1):

        def committed(probe: Probe, group: str, to: str, version: int = version) -> None:
            commit(probe, group, to)
            offsets(probe, group, to, one, version=version)

        yield _of_group(f"offset fetch/version {version}", committed)
        if version > 1:
            yield _of_group(
                f"offset fetch/all of an unknown group, version {version}",
                lambda p, g, to, v=version: offsets(p, g, to, None, version=v),
            )
    for name, topics in {
        "nothing committed": one,
        "unknown topic": [{"name": "nope", "partition_indexes": [0]}],
        "partition 99": [{"name": READ_TOPIC, "partition_indexes": [99]}],
        "no topics": [],
        "no partitions": [{"name": READ_TOPIC, "partition_indexes": []}],
        "same partition twice": [{"name": READ_TOPIC, "partition_indexes": [0, 0]}],
    }.items():
        yield _of_group(
            f"offset fetch/{name}", lambda p, g, to, topics=topics: offsets(p, g, to, topics)
        )
        yield _of_group(
            f"offset fetch/{name}, by id",
            lambda p, g, to, topics=topics: offsets(p, g, to, topics, version=OFFSETS_BY_ID),
        )
    for version in (1, 7, OFFSETS_NEWEST, OFFSETS_BY_ID):

        def of_empty_group(probe: Probe, group: str, to: str, version: int = version) -> None:
            commit(probe, group, to)
            offsets(probe, group, to, one, version=version)

        yield _of_group(f"offset fetch/empty group, version {version}", of_empty_group, "")

    def as_member(probe: Probe, group: str, to: str) -> None:
        named = {"group_id": group, "topics": one, "member_id": "who", "member_epoch": 3}
        probe.ask("offset_fetch", 9, {"groups": [named]}, to=to)

    def two_groups(probe: Probe, group: str, to: str) -> None:
        groups = [{"group_id": group, "topics": one}, {"group_id": group, "topics": None}]
        probe.ask("offset_fetch", OFFSETS_NEWEST, {"groups": groups}, to=to, drops_unknown=True)

    yield _of_group("offset fetch/as a member, version 9", as_member)
    yield _of_group("offset fetch/same group twice", two_groups)
    yield _of_group(
        "offset fetch/no groups",
        lambda p, g, to: p.ask("offset_fetch", OFFSETS_NEWEST, {"groups": []}, to=to),
    )


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _coordinators()
    yield from _joins()
    yield from _syncs()
    yield from _heartbeats()
    yield from _leaves()
    yield from _commits()
    yield from _offset_fetches()
