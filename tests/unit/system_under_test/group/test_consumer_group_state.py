"""Consumer groups: who gets which partitions when, and who is refused."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from system_under_test.group.consumer import heartbeat
from system_under_test.group.consumer.members import MemberState, Progress
from system_under_test.group.consumer.records import Kind, RecordKey
from system_under_test.group.consumer.requests import (
    GroupError,
    HeartbeatRequest,
    check_heartbeat,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from tests.unit.system_under_test.group.consumer_group_world import Client, World, settle


def world(partitions: int = 4, **more: object) -> World:
    made = World(**more)  # type: ignore[arg-type]
    made.create_topic(partitions=partitions)
    return made


def refused(client: Client, **changes: object) -> ErrorCode:
    with pytest.raises(GroupError) as caught:
        client.send(**changes)
    return caught.value.code


# --- following the target -------------------------------------------------------------------------------


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    a = Client(world(), "a")
    assert a.work().epoch == 1
    assert a.indexes == [0, 1, 2, 3]
    assert a.world.group.state == "Stable"
    assert a.work().assigned is None, "nothing changed"


def test_a_group_that_reads_nothing_begins_with_epoch_one_too() -> None:
    a = Client(world(), "a", topics=())
    assert a.work().epoch == 1
    assert a.world.group.state == "Stable"


def test_a_second_member_gets_partitions_only_when_the_first_has_given_them_up() -> None:
    a, b = (Client(of := world(), "a"), Client(of, "b"))
    a.work()
    b.work()
    assert (b.epoch, b.indexes) == (2, [])
    assert of.group.members["b"].progress.state is MemberState.UNRELEASED_PARTITIONS
    # The first member learns that it loses two, and stays in its epoch while it has them.
    assert a.send().epoch == 1
    assert len(a.assigned) == 2 and len(a.owned) == 4
    assert of.group.state == "Reconciling"
    b.work()
    assert b.indexes == [], "a has not reported that it gave them up"
    a.follow()
    assert a.work().epoch == 2
    b.work()
    assert sorted(a.indexes + b.indexes) == [0, 1, 2, 3]
    assert of.group.state == "Stable"


def test_a_heartbeat_without_owned_partitions_gives_nothing_up() -> None:
    a, b = (Client(of := world(), "a"), Client(of, "b"))
    a.work()
    b.work()
    a.send()
    assert a.send(owned=None).epoch == 1
    assert a.send(owned=a.assigned).epoch == 2


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    a, b = (Client(of := world(), "a"), Client(of, "b"))
    settle(a, b)
    of.remove("b")
    assert of.group.state == "Assigning"
    assert a.work().epoch == 3
    assert a.indexes == [0, 1, 2, 3]
    of.remove("a")
    assert of.group.state == "Empty"
    assert of.group.targets == {}


def test_new_partitions_and_new_topics_begin_a_new_epoch() -> None:
    of = world(partitions=1)
    topic_id = of.image.topics_by_name["t"].topic_id
    a = Client(of, "a", topics=("t", "later"))
    a.work()
    of.add_partition(topic_id, 1)
    assert a.work().epoch == 2
    later = of.create_topic("later", partitions=1)
    assert a.work().epoch == 3
    assert a.owned == {(topic_id, 0), (topic_id, 1), (later, 0)}


@pytest.mark.parametrize("stores_hash", [True, False], ids=["hash", "topics"])
def test_the_next_coordinator_knows_for_which_topics_it_was_assigned(stores_hash: bool) -> None:
    of = world(stores_hash=stores_hash)
    a = Client(of, "a")
    a.work()
    of.group = of.reload()
    assert a.work().epoch == 1, "the topics are the same"
    # A release that stores topics otherwise begins a new epoch once, and replaces what the other stored.
    of.stores_hash = not stores_hash
    assert a.work().epoch == 2
    assert a.work().epoch == 2
    assert (of.reload().topics is None) is not stores_hash


def test_members_may_prefer_an_assignor_and_most_votes_count() -> None:
    of = world(assignors=("uniform", "range"), partitions=2)
    of.create_topic("u", partitions=2)
    names = ("t", "u")
    a, b, c = (
        Client(of, name, topics=names, assignor=wish)
        for name, wish in (("a", "range"), ("b", "range"), ("c", "uniform"))
    )
    settle(a, b, c)
    t, u = sorted(topic.topic_id for topic in of.image.topics.values())
    assert [sorted(one.owned) for one in (a, b, c)] == [[(t, 0), (u, 0)], [(t, 1), (u, 1)], []]
    of.remove("b")
    settle(a, c)
    assert of.group.targets["a"] == {(t, 0), (u, 0)}


def test_a_pattern_subscribes_to_new_topics_too() -> None:
    of = World()
    first = of.create_topic("logs-1", partitions=1)
    of.create_topic("other", partitions=1)
    a = Client(of, "a", topics=None, regex="logs-.*")
    a.work()
    assert a.owned == {(first, 0)}
    second = of.create_topic("logs-2", partitions=1)
    a.work()
    assert a.owned == {(first, 0)}, "patterns are looked up every 10 s"
    of.wall_ms += 10_000
    a.work()
    assert a.owned == {(first, 0), (second, 0)}
    assert of.reload().regexes["logs-.*"].topics == ("logs-1", "logs-2")
    of.remove("a")
    assert of.reload().regexes == {}


def test_a_bad_pattern_is_refused_and_changes_nothing() -> None:
    a = Client(World(), "a", topics=None, regex="(")
    assert refused(a) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert a.world.log == []


# --- epochs ---------------------------------------------------------------------------------------------


def test_a_member_of_another_epoch_is_fenced() -> None:
    a, b = (Client(of := world(), "a"), Client(of, "b"))
    settle(a, b)
    assert refused(a, epoch=a.epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(b, epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(Client(of, "c"), epoch=3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_response_was_lost_may_repeat_its_epoch_if_it_owns_nothing_else() -> None:
    a, b = (Client(of := world(), "a"), Client(of, "b"))
    settle(a, b)
    of.remove("b")
    before = a.request()
    of.heartbeat(before)
    a.is_unsure = True  # the response is lost
    extra = before.owned | {(UUID(int=7), 0)}
    assert refused(a, epoch=before.epoch, owned=extra) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(a, epoch=before.epoch, owned=None) is ErrorCode.FENCED_MEMBER_EPOCH
    assert of.heartbeat(before).epoch == 3


@pytest.mark.parametrize("may_rejoin", [True, False])
def test_a_fenced_member_may_join_again_at_once_or_when_its_session_is_over(
    may_rejoin: bool,
) -> None:
    """Until KAFKA-19233 a coordinator fenced the join of a member that it still knew in a later epoch."""
    of = world(fenced_may_rejoin=may_rejoin)
    a, b = Client(of, "a"), Client(of, "b")
    settle(a, b)
    of.remove("b")
    a.work()
    assert refused(a, epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    a.reset()
    if may_rejoin:
        assert a.work().epoch == 3
        assert a.indexes == [0, 1, 2, 3]
    else:
        assert refused(a) is ErrorCode.FENCED_MEMBER_EPOCH
        of.remove("a")
        assert a.work().epoch == 5


def test_a_join_whose_response_was_lost_may_be_repeated() -> None:
    a = Client(world(), "a")
    a.world.heartbeat(a.request())
    assert a.work().epoch == 1
    assert a.indexes == [0, 1, 2, 3]


def test_a_member_in_a_state_of_a_newer_release_has_to_join_again() -> None:
    a = Client(of := world(), "a")
    a.work()
    member = of.group.members["a"]
    progress = replace(member.progress, state=MemberState.UNKNOWN)
    of.group.members["a"] = replace(member, progress=progress)
    assert refused(a) is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(owned=frozenset()).assigned is None
    assert of.group.state == "Stable"


# --- static members -------------------------------------------------------------------------------------


def test_a_static_member_that_returns_keeps_its_partitions_and_disturbs_nobody() -> None:
    of = world()
    a, b = Client(of, "a", instance_id="one"), Client(of, "b", instance_id="two")
    settle(a, b)
    had, epoch = b.owned, of.group.epoch
    of.pause("b")
    assert of.group.members["b"].epoch == -2
    assert a.work().epoch == epoch, "its partitions are still its own"
    again = Client(of, "c", instance_id="two")
    again.work()
    assert (again.owned, again.epoch) == (had, epoch)
    assert "b" not in of.group.members
    assert refused(b) is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_given_away() -> None:
    of = world()
    Client(of, "a", instance_id="one").work()
    assert refused(Client(of, "b", instance_id="one")) is ErrorCode.UNRELEASED_INSTANCE_ID
    missing = Client(of, "b", instance_id="two", epoch=1)
    assert refused(missing) is ErrorCode.UNKNOWN_MEMBER_ID
    foreign = Client(of, "b", instance_id="one", epoch=1)
    assert refused(foreign) is ErrorCode.FENCED_INSTANCE_ID


def test_who_leaves_must_be_a_member() -> None:
    of = world()
    Client(of, "a", instance_id="one").work()
    for name, instance_id, code in (
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "two", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "one", ErrorCode.FENCED_INSTANCE_ID),
    ):
        request = HeartbeatRequest(group_id="g", member_id=name, instance_id=instance_id, epoch=-1)
        with pytest.raises(GroupError) as caught:
            heartbeat.leaver(of.group, request)
        assert caught.value.code is code


# --- requests -------------------------------------------------------------------------------------------

JOIN = HeartbeatRequest(
    group_id="g",
    member_id="m",
    epoch=0,
    rebalance_timeout_ms=1,
    topics=(),
    owned=frozenset(),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": " "}, "group id"),
        ({"instance_id": ""}, "instance id"),
        ({"rack_id": " "}, "rack id"),
        ({"member_id": ""}, "member id"),
        ({"epoch": -3}, "-3 is no member epoch"),
        ({"epoch": -2}, "needs its instance id"),
        ({"rebalance_timeout_ms": -1}, "rebalance timeout"),
        ({"owned": None}, "cannot own"),
        ({"owned": frozenset({(UUID(int=1), 0)})}, "cannot own"),
        ({"topics": None}, "topic names or a regular expression"),
    ],
)
def test_invalid_requests_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(GroupError, match=message) as caught:
        check_heartbeat(replace(JOIN, **changes), 1, ("uniform",))  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_valid_requests_are_accepted() -> None:
    for changes in ({}, {"topics": None, "regex": ""}, {"epoch": 7, "owned": None, "topics": None}):
        check_heartbeat(replace(JOIN, **changes), 1, ("uniform",))  # type: ignore[arg-type]
    check_heartbeat(replace(JOIN, member_id=""), 0, ("uniform",))
    with pytest.raises(GroupError, match="known: uniform, range") as caught:
        check_heartbeat(replace(JOIN, assignor="sticky"), 1, ("uniform", "range"))
    assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


# --- whatever happens -----------------------------------------------------------------------------------


class Groups(RuleBasedStateMachine):
    """Members join, work, lose responses, are fenced and leave; topics grow; coordinators fail over."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.count = 0

    @initialize(assignor=st.sampled_from(["uniform", "range"]), stores_hash=st.booleans())
    def begin(self, assignor: str, stores_hash: bool) -> None:
        self.world = World(assignors=(assignor,), stores_hash=stores_hash)
        for name in ("t", "u"):
            self.world.create_topic(name, partitions=3)

    @precondition(lambda self: len(self.clients) < 4)
    @rule(topics=st.sets(st.sampled_from(["t", "u"])))
    def join(self, topics: set[str]) -> None:
        self.count += 1
        client = Client(self.world, f"m{self.count}", topics=tuple(topics))
        client.send()
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(place=st.integers(0, 3), follows=st.booleans(), is_lost=st.booleans())
    def work(self, place: int, follows: bool, is_lost: bool) -> None:
        client = self.clients[place % len(self.clients)]
        try:
            result = self.world.heartbeat(client.request())
        except GroupError:
            client.reset()
            return
        if is_lost:
            client.is_unsure = True
            return
        client.take(result)
        if follows:
            client.follow()

    @precondition(lambda self: self.clients)
    @rule(place=st.integers(0, 3))
    def leave(self, place: int) -> None:
        client = self.clients.pop(place % len(self.clients))
        if client.name in self.world.group.members:
            self.world.remove(client.name)

    @precondition(lambda self: self.clients)
    @rule(place=st.integers(0, 3))
    def fence(self, place: int) -> None:
        """Its session is over; it gives everything up when it learns that, here at once."""
        client = self.clients[place % len(self.clients)]
        if client.name in self.world.group.members:
            self.world.remove(client.name)
        client.reset()

    @rule(index=st.integers(3, 5))
    def grow(self, index: int) -> None:
        topic_id = self.world.image.topics_by_name["t"].topic_id
        partitions = self.world.image.partitions
        if (topic_id, index - 1) in partitions and (topic_id, index) not in partitions:
            self.world.add_partition(topic_id, index)

    @rule()
    def fail_over(self) -> None:
        found = self.world.reload()
        assert found == self.world.group
        self.world.group = found

    @invariant()
    def nobody_owns_the_same(self) -> None:
        owned = [one for client in self.clients for one in client.owned]
        assert len(owned) == len(set(owned))
        held = [one for member in self.world_members() for one in member.progress.held]
        assert len(held) == len(set(held))

    def world_members(self) -> list[object]:
        return list(self.world.group.members.values()) if hasattr(self, "world") else []

    def teardown(self) -> None:
        """In the end the group is stable, and every partition with a subscriber has an owner."""
        for _ in range(12):
            for client in self.clients:
                try:
                    client.work()
                except GroupError:
                    client.reset()
        if not self.clients:
            return
        assert self.world.group.state == "Stable"
        wanted = {name for client in self.clients for name in client.topics or ()}
        image = self.world.image
        ids = {image.topics_by_name[name].topic_id for name in wanted}
        expected = {place for place in image.partitions if place[0] in ids}
        assert {one for client in self.clients for one in client.owned} == expected


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("without", ["GRP-7", "GRP-8"])
def test_without_these_rules_two_members_own_one_partition(without: str) -> None:
    of = world(rules=Rules([without]))
    a, b = Client(of, "a"), Client(of, "b")
    a.work()
    b.work()
    a.send()  # the first member has not given anything up yet
    b.work()
    assert a.owned & b.owned


def test_a_deletion_of_what_is_not_there_changes_nothing() -> None:
    of = world()
    key = RecordKey(kind=Kind.PROGRESS, group_id="g", name="gone")
    of.group.apply(key, None)
    assert of.group.members == {}
    of.group.apply(key, Progress(epoch=3))
    assert of.group.members["gone"].epoch == 3
