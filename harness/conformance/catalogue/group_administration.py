"""ListGroups, DescribeGroups, DeleteGroups, OffsetDelete and DescribeProducers.

Apache Kafka lists and describes groups as of the last committed record of their partition. A group whose first
generation has no assignment yet has no record, so whether it is listed is a matter of time; no case is about that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.conformance.catalogue.batches import batch
from harness.conformance.catalogue.groups import (
    LIKE_THE_EMPTY_GROUP,
    Member,
    commit,
    leave,
    offsets,
)
from harness.conformance.catalogue.produce import produce
from harness.conformance.probe import READ_TOPIC, WRITE_TOPIC, Case, Probe

LIST_NEWEST, DESCRIBE_NEWEST, DELETE_NEWEST = 5, 6, 2
STATES = ("Stable", "stable", " Stable ", "Empty", "Dead", "other")
TYPES = ("classic", "Classic", "consumer", "other")


def _own(probe: Probe) -> Callable[[Any], Any]:
    """Returns what leaves only the case's own group in a list of groups: a broker has those of other cases too."""

    def reduce(response: Any) -> Any:
        kept = tuple(one for one in response.groups if one.group_id == probe.group())
        return replace(response, groups=kept)

    return reduce


def list_groups(probe: Probe, to: str, *, version: int = LIST_NEWEST, **fields: Any) -> None:
    """Lists the groups of a broker."""
    values = {"states_filter": [], "types_filter": [], **fields}
    probe.ask("list_groups", version, values, to=to, drops_unknown=True, reduce=_own(probe))


def describe(
    probe: Probe, groups: Sequence[str], to: str, *, version: int = DESCRIBE_NEWEST, **fields: Any
) -> None:
    """Describes groups."""
    values = {"groups": list(groups), **fields}
    probe.ask("describe_groups", version, values, to=to, drops_unknown=True)


def delete(probe: Probe, groups: Sequence[str], to: str, *, version: int = DELETE_NEWEST) -> None:
    """Deletes groups."""
    probe.ask("delete_groups", version, {"groups_names": list(groups)}, to=to)


def delete_offsets(
    probe: Probe, group: str, to: str, topics: Mapping[str, Sequence[int]] | None = None
) -> None:
    """Deletes offsets of a group."""
    wanted = {READ_TOPIC: [0]} if topics is None else topics
    values = {
        "group_id": group,
        "topics": [
            {"name": name, "partitions": [{"partition_index": one} for one in partitions]}
            for name, partitions in wanted.items()
        ],
    }
    probe.ask("offset_delete", 0, values, to=to)


def _read_back(probe: Probe, group: str, to: str) -> None:
    offsets(probe, group, to, [{"name": READ_TOPIC, "partition_indexes": [0]}])


def _simple(case: str, run: Callable[..., Any], group: str | None = None) -> Case:
    """A case about a group that has committed an offset and never had a member."""

    def prepared(probe: Probe) -> None:
        name = probe.group() if group is None else group
        to = probe.coordinator(name or LIKE_THE_EMPTY_GROUP)
        commit(probe, name, to)
        run(probe, name, to)

    return Case(id=case, run=prepared)


def _unknown(case: str, run: Callable[..., Any]) -> Case:
    def prepared(probe: Probe) -> None:
        run(probe, probe.group(), probe.coordinator(probe.group()))

    return Case(id=case, run=prepared)


def _of_member(case: str, run: Callable[..., Any], **options: Any) -> Case:
    return Case(id=case, run=lambda probe: run(Member(probe, **options)))


def _emptied(case: str, run: Callable[..., Any]) -> Case:
    """A case about a group whose member has committed and left."""

    def prepared(probe: Probe) -> None:
        member = Member(probe, synced=True)
        member.commit()
        leave(probe, member.group, member.to, [{"member_id": member.id}])
        run(probe, member.group, member.to)

    return Case(id=case, run=prepared)


def _lists() -> Iterator[Case]:
    for version in range(LIST_NEWEST + 1):
        yield _of_member(
            f"list groups/stable group, version {version}",
            lambda m, v=version: list_groups(m.probe, m.to, version=v),
            synced=True,
        )
    yield _simple("list groups/offsets only", lambda p, _, to: list_groups(p, to))
    yield _emptied("list groups/without members", lambda p, _, to: list_groups(p, to))
    yield _unknown("list groups/unknown group", lambda p, _, to: list_groups(p, to))
    for state in STATES:
        yield _of_member(
            f"list groups/state {state!r}",
            lambda m, state=state: list_groups(m.probe, m.to, states_filter=[state]),
            synced=True,
        )
    for kind in TYPES:
        yield _of_member(
            f"list groups/type {kind!r}",
            lambda m, kind=kind: list_groups(m.probe, m.to, types_filter=[kind]),
            synced=True,
        )


def _descriptions() -> Iterator[Case]:
    for version in range(DESCRIBE_NEWEST + 1):
        yield _of_member(
            f"describe groups/stable group, version {version}",
            lambda m, v=version: describe(m.probe, [m.group], m.to, version=v),
            synced=True,
        )
        yield _unknown(
            f"describe groups/unknown group, version {version}",
            lambda p, g, to, v=version: describe(p, [g], to, version=v),
        )
    yield _of_member(
        "describe groups/static member",
        lambda m: describe(m.probe, [m.group], m.to),
        synced=True,
        instance="i1",
    )
    yield _of_member(
        "describe groups/twice, and operations",
        lambda m: describe(m.probe, [m.group, m.group], m.to, include_authorized_operations=True),
        synced=True,
    )
    yield _simple("describe groups/offsets only", lambda p, g, to: describe(p, [g], to))
    yield _simple("describe groups/empty id", lambda p, g, to: describe(p, [g], to), "")
    yield _emptied("describe groups/without members", lambda p, g, to: describe(p, [g], to))
    yield _unknown("describe groups/none", lambda p, _, to: describe(p, [], to))


def _deletions() -> Iterator[Case]:
    def deleted(probe: Probe, group: str, to: str, version: int = DELETE_NEWEST) -> None:
        delete(probe, [group], to, version=version)
        _read_back(probe, group, to)
        describe(probe, [group], to)

    for version in range(DELETE_NEWEST + 1):
        yield _simple(
            f"delete groups/offsets only, version {version}",
            lambda p, g, to, v=version: deleted(p, g, to, v),
        )
    yield _emptied("delete groups/without members", deleted)
    yield _simple("delete groups/empty id", deleted, "")
    yield _of_member(
        "delete groups/stable group", lambda m: deleted(m.probe, m.group, m.to), synced=True
    )
    yield _of_member(
        "delete groups/before the assignment", lambda m: deleted(m.probe, m.group, m.to)
    )
    yield _unknown("delete groups/unknown group", lambda p, g, to: delete(p, [g], to))
    yield _unknown("delete groups/none", lambda p, _, to: delete(p, [], to))
    yield _simple("delete groups/twice in a request", lambda p, g, to: delete(p, [g, g], to))


def _offset_deletions() -> Iterator[Case]:
    def removed(topics: Mapping[str, Sequence[int]] | None = None) -> Callable[..., None]:
        def run(probe: Probe, group: str, to: str) -> None:
            delete_offsets(probe, group, to, topics)
            _read_back(probe, group, to)

        return run

    yield _simple("offset delete/offsets only", removed())
    yield _emptied("offset delete/without members", removed())
    yield _simple("offset delete/empty id", removed(), "")
    yield _simple("offset delete/nothing committed", removed({READ_TOPIC: [1]}))
    yield _simple("offset delete/unknown topic", removed({"nope": [0]}))
    yield _simple("offset delete/partition 99", removed({READ_TOPIC: [0, 99]}))
    yield _simple("offset delete/no topics", removed({}))
    yield _simple("offset delete/no partitions", removed({READ_TOPIC: []}))
    yield _unknown("offset delete/unknown group", removed())
    yield _unknown("offset delete/unknown group and topic", removed({"nope": [0]}))

    def by_member(member: Member, topics: Mapping[str, Sequence[int]] | None = None) -> None:
        member.commit()
        removed(topics)(member.probe, member.group, member.to)

    yield _of_member("offset delete/subscribed topic", by_member, synced=True)
    yield _of_member(
        "offset delete/subscribed and unknown topic",
        lambda m: by_member(m, {READ_TOPIC: [0], "nope": [0]}),
        synced=True,
    )
    yield _of_member(
        "offset delete/topic without a subscription",
        lambda m: by_member(m, {"e": [0]}),
        synced=True,
    )
    yield _of_member("offset delete/before the assignment", by_member)


def _producers() -> Iterator[Case]:
    def ask(probe: Probe, topic: str, partitions: Sequence[int], to: str) -> None:
        topics = [{"name": topic, "partition_indexes": list(partitions)}]
        probe.ask("describe_producers", 0, {"topics": topics}, to=to)

    def case(name: str, topic: str, *partitions: int) -> Case:
        return Case(
            id=f"describe producers/{name}",
            run=lambda p: ask(p, topic, partitions, p.leader(READ_TOPIC)),
        )

    yield case("no producer", READ_TOPIC, 0)
    yield case("partition 99", READ_TOPIC, 99)
    yield case("unknown topic", "nope", 0)
    yield case("illegal name", "no/topic", 0)
    yield case("empty name", "", 0)
    yield case("no partitions", READ_TOPIC)

    def idempotent(probe: Probe, *, at_leader: bool) -> None:
        producer_id, epoch = probe.new_producer()
        for sequence in (0, 2):
            records = batch(
                probe.target.now_ms,
                2,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            produce(probe, records)
        where = probe.leader if at_leader else probe.follower
        ask(probe, WRITE_TOPIC, [probe.partition], where(WRITE_TOPIC, probe.partition))

    for at_leader in (True, False):
        yield Case(
            id=f"describe producers/two batches, at {'the leader' if at_leader else 'a follower'}",
            run=lambda p, at_leader=at_leader: idempotent(p, at_leader=at_leader),
            writes=True,
        )


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _lists()
    yield from _descriptions()
    yield from _deletions()
    yield from _offset_deletions()
    yield from _producers()
