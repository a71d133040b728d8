"""The state machine of a classic group: what members receive, and when."""

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from system_under_test.config import GroupConfig
from system_under_test.group.members import NEVER_MS, JoinRequest, JoinResult, SyncResult
from system_under_test.group.state import Group
from system_under_test.group.transitions import GroupState
from system_under_test.protocol.errors import ErrorCode

SESSION_MS = 6000
REBALANCE_MS = 10_000


class Client:
    """A scripted member: joins, syncs, and keeps its responses."""

    def __init__(self, group: Group, name: str, instance_id: str | None = None) -> None:
        self.group = group
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.protocols: tuple[tuple[str, bytes], ...] = (("range", b"sub"), ("sticky", b"sub2"))

    def join(self, now_ms: int, **changes: Any) -> Any:
        waiter = object()
        values: dict[str, Any] = {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.name,
            "client_host": "/host",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": self.protocols,
            **changes,
        }
        self.group.join(JoinRequest(**values), waiter, now_ms)
        return waiter

    def sync(self, now_ms: int, generation: int, assignments: dict[str, bytes]) -> tuple[Any, bool]:
        waiter = object()
        stores = self.group.sync(
            self.member_id, self.instance_id, generation, (None, None), assignments, waiter, now_ms
        )
        return waiter, stores


def new_group(**settings_: int) -> Group:
    counter = itertools.count()
    values = {"group_initial_rebalance_delay_ms": 0, **settings_}
    return Group(
        group_id="g",
        config=GroupConfig(**values),
        new_member_id=lambda client: f"{client}-{next(counter)}",
    )


def answers(group: Group) -> dict[Any, Any]:
    return dict(group.take_results())


def joined(group: Group, *names: str, now_ms: int = 0) -> list[Client]:
    """Returns clients that are the members of a stable group."""
    clients = [Client(group, name) for name in names]
    for client in clients:
        first = answers(group) and None
        waiter = client.join(now_ms)
        first = answers(group)[waiter]
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        client.member_id = first.member_id
    waiters = {client.join(now_ms): client for client in clients}
    results = answers(group)
    # The first one was alone for a moment; members that joined after that started a new generation.
    while group.state is GroupState.PREPARING_REBALANCE:
        for client in clients:
            if group.members[client.member_id].join_waiter is None:
                waiters[client.join(now_ms)] = client
        results.update(answers(group))
    finish(group, clients, now_ms)
    return clients


def finish(group: Group, clients: list[Client], now_ms: int) -> dict[str, bytes]:
    """Lets all sync and stores the leader's assignment; returns the response of each."""
    shares = {client.member_id: client.name.encode() for client in clients}
    waiting = {}
    for client in clients:
        waiter, stores = client.sync(now_ms, group.generation, shares)
        waiting[waiter] = client
        if stores:
            group.assignment_stored(group.generation, ErrorCode.NONE, now_ms)
    reported = {}
    for waiter, result in answers(group).items():
        if waiter in waiting:
            assert isinstance(result, SyncResult)
            assert result.error is ErrorCode.NONE, result
            reported[waiting[waiter].member_id] = result.assignment
    return reported


def test_a_new_client_gets_a_member_id_first_and_then_joins() -> None:
    group = new_group()
    client = Client(group, "c")
    first = answers(group) or None
    waiter = client.join(0)
    first = answers(group)[waiter]
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    client.member_id = first.member_id
    second = answers_after(group, client.join(1))
    assert second.error is ErrorCode.NONE
    assert (second.generation, second.leader) == (1, client.member_id)
    assert second.members == ((client.member_id, None, b"sub"),)


def answers_after(group: Group, waiter: Any) -> Any:
    return answers(group)[waiter]


def test_a_client_of_an_old_version_joins_at_once() -> None:
    group = new_group()
    client = Client(group, "c")
    result = answers_after(group, client.join(0, needs_known_member_id=False))
    assert result.error is ErrorCode.NONE


def test_a_member_id_that_is_never_used_is_forgotten() -> None:
    group = new_group()
    client = Client(group, "c")
    waiter = client.join(0)
    client.member_id = answers_after(group, waiter).member_id
    assert group.next_deadline_ms() == SESSION_MS
    group.expire(SESSION_MS)
    assert answers_after(group, client.join(SESSION_MS)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_every_member_learns_the_generation_and_only_the_leader_learns_the_members() -> None:
    group = new_group()
    clients = joined(group, "a", "b", "c")
    assert group.state is GroupState.STABLE
    leaders = [client for client in clients if client.member_id == group.leader]
    assert len(leaders) == 1
    group.join(
        JoinRequest(
            member_id=leaders[0].member_id,
            instance_id=None,
            client_id="x",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=leaders[0].protocols,
        ),
        leader_waiter := object(),
        5,
    )
    others = {client.join(5): client for client in clients if client is not leaders[0]}
    results = answers(group)
    assert results[leader_waiter].generation == group.generation
    assert len(results[leader_waiter].members) == 3
    assert all(results[waiter].members == () for waiter in others)


def test_the_assignment_reaches_each_member_only_when_it_is_stored() -> None:
    group = new_group()
    clients = joined(group, "a", "b")
    for client in clients:
        client.join(10)
    group.join(
        JoinRequest(
            member_id=clients[0].member_id,
            instance_id=None,
            client_id="a",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", b"changed"),),
        ),
        object(),
        10,
    )
    answers(group)
    if group.state is GroupState.PREPARING_REBALANCE:
        for client in clients:
            client.join(11)
        answers(group)
    assert group.state is GroupState.COMPLETING_REBALANCE
    shares = {client.member_id: b"share of " + client.name.encode() for client in clients}
    waiters = {}
    stored = False
    for client in clients:
        waiter, stores = client.sync(12, group.generation, shares)
        waiters[waiter] = client
        stored = stored or stores
    assert stored
    assert answers(group) == {}
    group.assignment_stored(group.generation, ErrorCode.NONE, 13)
    reported = answers(group)
    assert {reported[waiter].assignment for waiter in waiters} == set(shares.values())


def test_an_assignment_that_cannot_be_stored_is_sent_to_no_member() -> None:
    group = new_group()
    clients = joined(group, "a")
    clients[0].join(5, protocols=(("range", b"new"),))
    answers(group)
    waiter, stores = clients[0].sync(6, group.generation, {clients[0].member_id: b"x"})
    assert stores
    group.assignment_stored(group.generation, ErrorCode.NOT_COORDINATOR, 7)
    assert answers(group)[waiter].error is ErrorCode.NOT_COORDINATOR


def test_a_silent_member_is_removed_and_the_others_learn_of_it_by_their_heartbeats() -> None:
    group = new_group()
    a, b = joined(group, "a", "b")
    assert group.heartbeat(a.member_id, None, group.generation, 5000) is ErrorCode.NONE
    assert group.next_deadline_ms() == SESSION_MS
    group.expire(SESSION_MS)
    assert list(group.members) == [a.member_id]
    assert b.member_id not in group.members
    assert (
        group.heartbeat(a.member_id, None, group.generation, 6001)
        is ErrorCode.REBALANCE_IN_PROGRESS
    )
    result = answers_after(group, a.join(6002))
    assert result.leader == a.member_id


def test_a_member_that_waits_for_others_is_not_removed() -> None:
    group = new_group()
    a, b = joined(group, "a", "b")
    a.join(100, protocols=(("range", b"new"),))
    group.heartbeat(b.member_id, None, group.generation, 5000)
    group.expire(SESSION_MS + 200)
    assert a.member_id in group.members


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    group = new_group()
    a, b = joined(group, "a", "b")
    waiter = a.join(100, protocols=(("range", b"new"),))
    for now_ms in range(1000, REBALANCE_MS + 100, 1000):
        group.heartbeat(b.member_id, None, group.generation, now_ms)
        group.expire(now_ms)
    group.expire(REBALANCE_MS + 100)
    assert answers(group)[waiter].error is ErrorCode.NONE
    assert list(group.members) == [a.member_id]


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    group = new_group()
    a, b = joined(group, "a", "b")
    generation = group.generation
    a.join(100, protocols=(("range", b"new"),))
    b.join(100)
    answers(group)
    assert group.generation == generation + 1
    a.sync(101, group.generation, {})
    for now_ms in range(1000, REBALANCE_MS, 1000):
        group.heartbeat(b.member_id, None, group.generation, now_ms)
    group.expire(100 + REBALANCE_MS)
    assert b.member_id not in group.members


@pytest.mark.parametrize("state", ["stable", "empty"])
def test_another_generation_is_refused(state: str) -> None:
    group = new_group()
    (a,) = joined(group, "a")
    old = group.generation - 1
    if state == "empty":
        group.leave(a.member_id, None, 5)
        assert group.heartbeat(a.member_id, None, old, 6) is ErrorCode.UNKNOWN_MEMBER_ID
        return
    assert group.heartbeat(a.member_id, None, old, 6) is ErrorCode.ILLEGAL_GENERATION
    assert group.commit_error(a.member_id, None, old, 6) is ErrorCode.ILLEGAL_GENERATION
    waiter, stores = a.sync(7, old, {})
    assert not stores
    assert answers(group)[waiter].error is ErrorCode.ILLEGAL_GENERATION


def test_commits_during_a_rebalance_are_refused() -> None:
    group = new_group()
    (a,) = joined(group, "a")
    assert group.commit_error(a.member_id, None, group.generation, 5) is ErrorCode.NONE
    a.join(6, protocols=(("range", b"new"),))
    answers(group)
    assert (
        group.commit_error(a.member_id, None, group.generation, 7)
        is ErrorCode.REBALANCE_IN_PROGRESS
    )


def test_a_consumer_without_membership_commits_only_while_the_group_is_empty() -> None:
    group = new_group()
    assert group.commit_error("", None, -1, 0) is ErrorCode.NONE
    joined(group, "a")
    assert group.commit_error("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_protocols_must_have_something_in_common() -> None:
    group = new_group()
    joined(group, "a")
    stranger = Client(group, "s")
    for changes in (
        {"protocols": (("mine", b""),)},
        {"protocol_type": "connect"},
        {"protocols": ()},
    ):
        result = answers_after(group, stranger.join(5, **changes))
        assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_all_support_and_most_prefer_wins() -> None:
    group = new_group()
    clients = [Client(group, name) for name in "abc"]
    clients[0].protocols = (("range", b""), ("sticky", b""), ("own", b""))
    clients[1].protocols = (("sticky", b""), ("range", b""))
    clients[2].protocols = (("sticky", b""), ("range", b""))
    for client in clients:
        waiter = client.join(0, needs_known_member_id=False)
        result = answers(group).get(waiter)
        if result is not None:
            client.member_id = result.member_id
        else:
            client.member_id = next(m for m in group.members if m.startswith(client.name))
    for client in clients:
        if group.members[client.member_id].join_waiter is None:
            client.join(1)
    assert group.protocol_name == "sticky"


def test_session_timeouts_have_bounds() -> None:
    group = new_group(group_min_session_timeout_ms=1000, group_max_session_timeout_ms=9000)
    for timeout_ms in (999, 9001):
        result = answers_after(group, Client(group, "c").join(0, session_timeout_ms=timeout_ms))
        assert result.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_largest_size() -> None:
    group = new_group(group_max_size=1)
    joined(group, "a")
    result = answers_after(group, Client(group, "b").join(0))
    assert result.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_first_rebalance_waits_for_more_members() -> None:
    group = new_group(group_initial_rebalance_delay_ms=3000)
    first = Client(group, "a").join(0, needs_known_member_id=False)
    assert group.next_deadline_ms() == 3000
    second = Client(group, "b").join(1000, needs_known_member_id=False)
    assert answers(group) == {}
    group.expire(3000)
    assert answers(group) == {}  # a member joined meanwhile
    group.expire(6000)
    results = answers(group)
    assert {results[first].generation, results[second].generation} == {1}


def test_a_returning_static_member_causes_no_rebalance_and_fences_its_former_self() -> None:
    group = new_group()
    old = Client(group, "s", instance_id="i")
    result = answers_after(group, old.join(0))
    old.member_id = result.member_id
    finish(group, [old], 1)
    generation = group.generation
    new = Client(group, "s", instance_id="i")
    result = answers_after(group, new.join(100))
    assert result.error is ErrorCode.NONE
    assert result.generation == generation
    assert result.skip_assignment
    assert result.member_id != old.member_id
    new.member_id = result.member_id
    assert group.heartbeat(old.member_id, "i", generation, 101) is ErrorCode.FENCED_INSTANCE_ID
    assert group.heartbeat(new.member_id, "i", generation, 101) is ErrorCode.NONE
    assert group.leave("", "i", 102) is ErrorCode.NONE
    assert group.state is GroupState.PREPARING_REBALANCE or not group.members


def test_a_group_without_members_is_empty() -> None:
    group = new_group()
    a, b = joined(group, "a", "b")
    assert group.leave(a.member_id, None, 5) is ErrorCode.NONE
    assert group.leave(b.member_id, None, 5) is ErrorCode.NONE
    assert group.leave(b.member_id, None, 5) is ErrorCode.UNKNOWN_MEMBER_ID
    group.expire(6)
    assert group.state is GroupState.EMPTY
    assert group.next_deadline_ms() == NEVER_MS


class GroupMachine(RuleBasedStateMachine):
    """Members join, leave, fall silent and respond late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.group = new_group()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.waiting: dict[Any, Client] = {}
        self.leaders: dict[int, str] = {}
        self.protocols: dict[int, str | None] = {}
        self.shares: dict[int, dict[str, bytes]] = {}

    def take(self) -> None:
        for waiter, result in self.group.take_results():
            client = self.waiting.pop(waiter, None)
            assert client is not None, "no member gets two responses"
            if isinstance(result, JoinResult):
                self._joined(client, result)
            elif result.error is ErrorCode.NONE:
                known = self.shares.get(self.group.generation, {})
                assert result.assignment == known.get(client.member_id, b"")

    def _joined(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif result.error is ErrorCode.NONE:
            # One leader and one protocol per generation, for every member.
            assert self.leaders.setdefault(result.generation, result.leader) == result.leader
            protocol = result.protocol_name
            assert self.protocols.setdefault(result.generation, protocol) == protocol
            assert bool(result.members) == (result.member_id == result.leader)
        elif result.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    @rule()
    def member_comes(self) -> None:
        if len(self.clients) < 5:
            self.clients.append(Client(self.group, f"c{len(self.clients)}"))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), protocol=st.sampled_from(["range", "sticky", "both"]))
    def member_joins(self, data: Any, protocol: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if protocol != "both":
            client.protocols = ((protocol, b"1"), ("both", b"2"))
        self.waiting[client.join(self.now_ms)] = client
        self.take()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), stale=st.booleans())
    def member_syncs(self, data: Any, stale: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        generation = self.group.generation - stale
        shares = {member: f"{generation} {member}".encode() for member in self.group.members}
        waiter, stores = client.sync(self.now_ms, generation, shares)
        self.waiting[waiter] = client
        if stores:
            self.shares[generation] = shares
            error = data.draw(
                st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
            )
            self.group.assignment_stored(generation, error, self.now_ms)
            if error is not ErrorCode.NONE:
                del self.shares[generation]
        self.take()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def member_beats(self, data: Any) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.group.heartbeat(client.member_id, None, self.group.generation, self.now_ms)
        self.take()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def member_leaves(self, data: Any) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.group.leave(client.member_id, None, self.now_ms)
        self.take()

    @rule(ms=st.integers(1, 12_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.group.expire(self.now_ms)
        self.take()

    @rule()
    def what_is_due_happens(self) -> None:
        deadline_ms = self.group.next_deadline_ms()
        if deadline_ms < NEVER_MS:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.expire(self.now_ms)
            self.take()

    @invariant()
    def what_is_due_was_done(self) -> None:
        self.group.expire(self.now_ms)
        self.take()
        assert self.group.next_deadline_ms() > self.now_ms

    @invariant()
    def members_and_state_fit(self) -> None:
        group = self.group
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.leader in group.members
            assert all(
                any(name == group.protocol_name for name, _ in member.protocols)
                for member in group.members.values()
            )
        if group.state is GroupState.STABLE:
            assert all(member.sync_waiter is None for member in group.members.values())


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
