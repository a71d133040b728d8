"""The assignors `uniform` and `range`: complete, legal, balanced, sticky, and functions of their arguments."""

import itertools
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.group.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSpec,
    assign_ranges,
    assign_uniformly,
)

TOPICS = [UUID(int=number) for number in range(1, 5)]
A, B, C, _ = TOPICS


def member(name: str, *topics: UUID, instance_id: str | None = None, **more: object) -> MemberSpec:
    return MemberSpec(
        member_id=name,
        instance_id=instance_id,
        topics=frozenset(topics),
        **more,  # type: ignore[arg-type]
    )


def after(members: list[MemberSpec], assignment: Assignment) -> list[MemberSpec]:
    """Returns the members with an assignment as their current one."""
    return [
        member(one.member_id, *one.topics, current=assignment.get(one.member_id, frozenset()))
        for one in members
    ]


def indexes(assignment: Assignment, topic: UUID) -> dict[str, list[int]]:
    return {
        name: sorted(index for of, index in partitions if of == topic)
        for name, partitions in sorted(assignment.items())
    }


COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[MemberSpec], dict[UUID, int]]:
    """Draws topics, members with subscriptions to them, and what the members had before."""
    counts = draw(COUNTS)
    free = [(topic, index) for topic, count in sorted(counts.items()) for index in range(count + 1)]
    members = []
    for number in range(draw(st.integers(1, 6))):
        topics = draw(st.sets(st.sampled_from(sorted(counts))))
        current = frozenset(draw(st.sets(st.sampled_from(free)))) if free else frozenset()
        free = [one for one in free if one not in current]
        instance_id = draw(st.none() | st.just(f"static-{9 - number}"))
        members.append(
            member(f"m{number}", *topics, instance_id=instance_id, current=frozenset(current))
        )
    return members, counts


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(case=groups(), data=st.data())
def test_every_partition_with_a_subscriber_has_exactly_one_whatever_the_order(
    name: str, case: tuple[list[MemberSpec], dict[UUID, int]], data: st.DataObject
) -> None:
    members, counts = case
    found = ASSIGNORS[name](members, counts)
    assert found.keys() == {one.member_id for one in members}
    given_out = list(itertools.chain.from_iterable(found.values()))
    subscribed = {topic for one in members for topic in one.topics}
    expected = {
        (t, index) for t, count in counts.items() if t in subscribed for index in range(count)
    }
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == expected
    for one in members:
        assert {topic for topic, _ in found[one.member_id]} <= one.topics
    shuffled = data.draw(st.permutations(members))
    reordered = dict(data.draw(st.permutations(sorted(counts.items()))))
    assert ASSIGNORS[name](shuffled, reordered) == found


def smallest_squares(members: list[MemberSpec], counts: Mapping[UUID, int]) -> int:
    """Returns the smallest sum of squared loads of any assignment, by trying how many each member gets."""
    best = {tuple(0 for _ in members)}
    for topic, count in counts.items():
        places = [place for place, one in enumerate(members) if topic in one.topics]
        if not places:
            continue
        for _ in range(count):
            best = {
                (*loads[:place], loads[place] + 1, *loads[place + 1 :])
                for loads in best
                for place in places
            }
    return min(sum(load * load for load in loads) for loads in best)


@given(groups())
def test_uniform_is_as_balanced_as_the_subscriptions_allow(
    case: tuple[list[MemberSpec], dict[UUID, int]],
) -> None:
    members, counts = case
    members = members[:4]
    found = assign_uniformly(members, counts)
    squares = sum(len(partitions) ** 2 for partitions in found.values())
    assert squares == smallest_squares(members, counts)


@given(groups())
def test_uniform_moves_nothing_of_an_assignment_that_is_its_own(
    case: tuple[list[MemberSpec], dict[UUID, int]],
) -> None:
    members, counts = case
    first = assign_uniformly(members, counts)
    assert assign_uniformly(after(members, first), counts) == first


@given(count=st.integers(1, 30), size=st.integers(1, 7), joins=st.booleans())
def test_with_equal_subscriptions_uniform_moves_only_what_balance_needs(
    count: int, size: int, joins: bool
) -> None:
    members = [member(f"m{number}", A) for number in range(size + 1)]
    before, now = (members[:size], members) if joins else (members, members[:size])
    old = assign_uniformly(before, {A: count})
    new = assign_uniformly(after(now, old), {A: count})
    kept = sum(len(old[one.member_id] & new[one.member_id]) for one in now if one.member_id in old)
    shares = sorted((len(partitions) for partitions in new.values()), reverse=True)
    olds = sorted((len(old.get(one.member_id, ())) for one in now), reverse=True)
    assert kept == sum(min(had, share) for had, share in zip(olds, shares, strict=True))
    assert shares[0] - shares[-1] <= 1


def test_uniform_balances_through_a_member_between_two_others() -> None:
    """`b` can take nothing of `a` itself; `c` takes from `a` and gives to `b`."""
    everything = frozenset((A, index) for index in range(4))
    middle = frozenset((B, index) for index in range(2))
    members = [
        member("a", A, current=everything),
        member("b", B),
        member("c", A, B, current=middle),
    ]
    found = assign_uniformly(members, {A: 4, B: 2})
    assert {name: len(of) for name, of in found.items()} == {"a": 2, "b": 2, "c": 2}


def test_range_gives_contiguous_ranges_and_equal_indexes_of_topics_to_one_member() -> None:
    members = [member("b", A, B), member("a", A, B), member("c", A, B)]
    found = assign_ranges(members, {A: 7, B: 7})
    assert indexes(found, A) == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}
    assert indexes(found, B) == indexes(found, A)


def test_range_divides_a_topic_among_its_subscribers_and_static_members_come_first() -> None:
    members = [
        member("a", A),
        member("x", A, B, instance_id="2"),
        member("y", A, instance_id="1"),
        member("b", B),
    ]
    found = assign_ranges(members, {A: 4, B: 1, C: 3})
    assert indexes(found, A) == {"a": [3], "b": [], "x": [2], "y": [0, 1]}
    assert indexes(found, B) == {"a": [], "b": [], "x": [0], "y": []}


def test_more_members_than_partitions_leaves_some_without() -> None:
    members = [member(name, A) for name in "abc"]
    for assign in ASSIGNORS.values():
        assert sorted(len(of) for of in assign(members, {A: 2}).values()) == [0, 1, 1]


def test_what_a_member_had_of_topics_that_are_gone_or_smaller_is_not_kept() -> None:
    current = frozenset({(A, 0), (A, 9), (B, 0), (C, 0)})
    found = assign_uniformly([member("a", A, B, current=current), member("b", A)], {A: 1, C: 1})
    assert found == {"a": frozenset({(A, 0)}), "b": frozenset()}
