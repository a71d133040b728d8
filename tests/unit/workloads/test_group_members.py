"""What a native member of a consumer group does on each response of its coordinator."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.contracts.client import OFFSET_OUT_OF_RANGE, PollResult
from harness.contracts.host import ClientHost
from harness.errors import UsageError
from harness.history.op import Completion, Outcome
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from system_under_test.group.members import JoinResult, SyncResult
from system_under_test.group.records import CommittedOffset
from system_under_test.group.responses import (
    commit,
    coordinator,
    fetched,
    fetched_group,
    find_coordinator,
    heartbeat,
    leave,
    of_result,
)
from system_under_test.protocol.errors import ErrorCode
from workloads.clients.group_protocol import encode_assignment
from workloads.clients.native import NativeClient
from workloads.clients.native_group import GroupSetup, NativeMember, Place
from workloads.group import CommittedOffsets, GroupWorkloadConfig
from workloads.group_workload import ConsumerGroupConfig

KEY = ("t", 0)


@dataclass
class Coordinator:
    """A broker that responds to group requests as a script says, and refuses to serve anything else.

    Attributes:
        script: By short name of a request, the error codes of its next responses; NONE once they are used up.
        requests: Everything that was requested, in order: (short name, request, address).
    """

    script: dict[str, list[ErrorCode]] = field(default_factory=dict)
    requests: list[tuple[str, Any, str]] = field(default_factory=list)
    generation: int = 0
    committed: int = 3

    def names(self) -> list[str]:
        """Returns the short names of the requests, without heartbeats and metadata."""
        return [name for name, _, _ in self.requests if name not in ("Heartbeat", "Metadata")]

    def last(self, name: str) -> Any:
        return [request for known, request, _ in self.requests if known == name][-1]

    def respond(self, request: Any, address: str) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.requests.append((name, request, address))
        errors = self.script.get(name, [])
        error = errors.pop(0) if errors else ErrorCode.NONE
        respond: dict[str, Callable[[Any, ErrorCode], Any]] = {
            "FindCoordinator": self._on_find_coordinator,
            "JoinGroup": self._on_join_group,
            "SyncGroup": self._on_sync_group,
            "OffsetFetch": self._on_offset_fetch,
            "Heartbeat": self._on_heartbeat,
            "OffsetCommit": self._on_offset_commit,
            "LeaveGroup": self._on_leave_group,
            "Metadata": self._on_metadata,
        }
        return respond[name](request, error)

    def _on_find_coordinator(self, request: Any, error: ErrorCode) -> Any:
        return find_coordinator([coordinator("g", error, 1, "b1:1")])

    def _on_join_group(self, request: Any, error: ErrorCode) -> Any:
        if not request.member_id and error is ErrorCode.NONE:
            error = ErrorCode.MEMBER_ID_REQUIRED
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            return of_result(JoinResult(error=error, member_id=f"m{len(self.requests)}"))
        self.generation += 1
        return of_result(
            JoinResult(
                error=error,
                member_id=request.member_id,
                generation=self.generation,
                protocol_type="consumer",
                protocol_name="range",
                leader="another",
            )
        )

    def _on_sync_group(self, request: Any, error: ErrorCode) -> Any:
        return of_result(SyncResult(error=error, assignment=encode_assignment([KEY])))

    def _on_offset_fetch(self, request: Any, error: ErrorCode) -> Any:
        offsets = {KEY: CommittedOffset(offset=self.committed)}
        return fetched((fetched_group(request.groups[0], error, offsets),))

    def _on_heartbeat(self, request: Any, error: ErrorCode) -> Any:
        return heartbeat(error)

    def _on_offset_commit(self, request: Any, error: ErrorCode) -> Any:
        return commit(request, lambda *_: error)

    def _on_leave_group(self, request: Any, error: ErrorCode) -> Any:
        return leave([(one, error) for one in request.members])

    def _on_metadata(self, request: Any, error: ErrorCode) -> Any:
        return SimpleNamespace(brokers=(), topics=())  # no leader: polls fail at once


class FakeConnection:
    def __init__(self, coordinator: Coordinator, address: str) -> None:
        self.is_open = True
        self._coordinator = coordinator
        self._address = address

    def request(self, message: Any, timeout_ms: float) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response = self._coordinator.respond(message, self._address)
        if isinstance(response, OSError):
            future.set_exception(response)
        else:
            future.set_result(response)
        return future

    def close(self) -> None:
        self.is_open = False


class FakeHost:
    """Implements as much of `ClientHost` as a member needs."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.network = self
        self.clock = SimpleNamespace(monotonic_ns=time.monotonic_ns)
        self.coordinator = coordinator
        self.connections: list[FakeConnection] = []

    async def connect(self, address: str, timeout_ms: float) -> FakeConnection:
        self.connections.append(FakeConnection(self.coordinator, address))
        return self.connections[-1]


@dataclass
class Life:
    """What became of a member.

    Attributes:
        events: (event, offset, generation) of every row that it recorded.
    """

    events: list[tuple[str, int, int]]
    counters: Counter[str]
    has_open_connections: bool

    def of(self, event: str) -> list[tuple[int, int]]:
        return [(offset, generation) for name, offset, generation in self.events if name == event]


def live(
    broker: Coordinator,
    until: Callable[[], bool],
    *,
    crashes: bool = False,
    instance: str | None = None,
    place: Place | None = None,
    processed: int | None = None,
    then: dict[str, list[ErrorCode]] | None = None,
) -> Life:
    """Lets a member live until a condition on the broker holds.

    A member that crashes comes to the end of its life then; for another one the group ends. `processed` is a
    position that it has reached, and `then` what the broker responds from then on.
    """
    history = HistoryWriter(None)
    recorder = RunRecorder(lambda: 10 if crashes and until() else 0, history)
    host = FakeHost(broker)
    setup = GroupSetup(
        bootstrap=("b1:1", "b2:1"),
        config=GroupWorkloadConfig(
            group="g", heartbeat_interval_ms=1, session_timeout_ms=100, request_timeout_ms=100
        ),
        recorder=recorder,
        committed=CommittedOffsets(),
        run_id=1,
        partition_counts={"t": 1},
        counters=Counter(),
    )
    member = NativeMember(setup, cast(ClientHost, host), place or Place(instance), 7)

    async def main() -> None:
        life = asyncio.create_task(
            member.run(lambda: crashes or not until(), until_ns=5, crashes=crashes)
        )
        if processed is not None:
            while not member.started:
                await asyncio.sleep(0)
            member._processed[KEY] = processed
            broker.script.update(then or {})
        await life

    asyncio.run(asyncio.wait_for(main(), 60))
    events = history.close()["group_events"].to_pylist()
    assert all((row["process"], row["group"]) == (7, "g") for row in events)
    return Life(
        events=[(row["event"], row["offset"], row["generation"]) for row in events],
        counters=setup.counters,
        has_open_connections=any(one.is_open for one in host.connections),
    )


def rounds(broker: Coordinator, count: int) -> Callable[[], bool]:
    """Returns whether a member has joined so often and got its partitions."""
    return lambda: broker.names().count("OffsetFetch") >= count


def test_a_member_joins_starts_at_the_committed_offset_and_leaves() -> None:
    broker = Coordinator()
    life = live(broker, rounds(broker, 1))
    assert broker.names() == [
        "FindCoordinator",
        "JoinGroup",
        "JoinGroup",
        "SyncGroup",
        "OffsetFetch",
        "LeaveGroup",
    ]
    asked, joined = [r for name, r, _ in broker.requests if name == "JoinGroup"]
    assert (asked.member_id, joined.member_id) == ("", "m2")
    assert broker.last("LeaveGroup").members[0].member_id == "m2"
    assert life.of("assigned") == [(3, 1)]
    assert life.of("committed-seen") == [(3, -1)]
    assert [name for name, _, _ in life.events] == [
        "committed-asked",
        "committed-seen",
        "assigned",
        "revoked",
    ]
    assert not life.has_open_connections


def test_a_member_starts_at_0_if_nothing_is_committed() -> None:
    broker = Coordinator(committed=-1)
    life = live(broker, rounds(broker, 1))
    assert (life.of("committed-seen"), life.of("assigned")) == ([(-1, -1)], [(0, 1)])


def test_on_a_rebalance_a_member_commits_and_joins_again_with_its_id() -> None:
    broker = Coordinator()
    rebalance = {"Heartbeat": [ErrorCode.REBALANCE_IN_PROGRESS]}
    life = live(broker, rounds(broker, 2), processed=5, then=rebalance)
    names = broker.names()
    assert names.index("OffsetCommit") < len(names) - names[::-1].index("JoinGroup")
    assert life.of("commit-sent") == life.of("commit-acknowledged") == [(5, -1)]
    assert broker.last("JoinGroup").member_id == "m2"
    assert broker.last("OffsetCommit").generation_id_or_member_epoch == 1
    assert [generation for _, generation in life.of("assigned")] == [1, 2]
    assert life.counters == {"group_members_rejoin": 1}


def test_a_commit_without_an_acknowledgement_is_repeated() -> None:
    broker = Coordinator(script={"OffsetCommit": [ErrorCode.COORDINATOR_NOT_AVAILABLE]})
    life = live(broker, lambda: broker.names().count("OffsetCommit") >= 2, processed=5)
    assert life.of("commit-sent") == [(5, -1), (5, -1)]
    assert life.of("commit-acknowledged") == [(5, -1)]


@pytest.mark.parametrize(
    ("error", "member_id", "counter"),
    [
        (ErrorCode.ILLEGAL_GENERATION, "m2", "group_members_lost"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", "group_members_unknown"),
    ],
)
def test_a_member_that_lost_its_generation_joins_again_without_a_commit(
    error: ErrorCode, member_id: str, counter: str
) -> None:
    broker = Coordinator(script={"Heartbeat": [error]})
    life = live(broker, rounds(broker, 2))
    joins = [r.member_id for name, r, _ in broker.requests if name == "JoinGroup"]
    assert joins[2] == member_id
    assert life.of("commit-sent") == []
    assert len(life.of("revoked")) == 2
    assert life.counters == {counter: 1}


def test_what_was_processed_in_a_lost_generation_is_not_committed_in_the_next_one() -> None:
    broker = Coordinator()
    lost = {"OffsetCommit": [ErrorCode.ILLEGAL_GENERATION]}
    life = live(broker, rounds(broker, 2), processed=5, then=lost)
    assert life.of("commit-sent") == [(5, -1)]
    assert life.of("commit-acknowledged") == []


def test_a_fenced_member_ends_and_does_not_leave() -> None:
    broker = Coordinator(script={"Heartbeat": [ErrorCode.FENCED_INSTANCE_ID]})
    life = live(broker, lambda: False, instance="g-0")
    assert "LeaveGroup" not in broker.names()
    assert life.counters == {"group_members_fenced": 1}
    assert not life.has_open_connections


def test_a_static_member_names_its_instance_and_does_not_leave() -> None:
    broker = Coordinator()
    live(broker, rounds(broker, 1), instance="g-0")
    assert broker.last("JoinGroup").group_instance_id == "g-0"
    assert broker.last("SyncGroup").group_instance_id == "g-0"
    assert "LeaveGroup" not in broker.names()


@pytest.mark.parametrize(
    ("joined", "is_recorded"), [(1, False), (2, False), (3, True)], ids=["before", "last", "new"]
)
def test_a_static_member_in_a_generation_of_its_place_is_no_second_owner(
    joined: int, is_recorded: bool
) -> None:
    """The same instance is still the owner there; a row with the number would accuse it.

    A predecessor that was replaced may get its committed offsets when its successor is a generation further.
    """
    broker = Coordinator(generation=joined - 1)
    place = Place("g-0", generations={1, 2})
    life = live(broker, rounds(broker, 1), place=place)
    assert life.of("assigned") == [(3, joined if is_recorded else -1)]
    assert place.generations == {1, 2, joined}


def test_a_member_requests_only_stable_offsets() -> None:
    broker = Coordinator()
    live(broker, rounds(broker, 1))
    assert broker.last("OffsetFetch").require_stable


def test_a_member_that_crashes_sends_nothing_more() -> None:
    broker = Coordinator()
    life = live(broker, rounds(broker, 1), crashes=True)
    assert "LeaveGroup" not in broker.names()
    assert life.of("revoked") == []
    assert not life.has_open_connections


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup", "OffsetFetch", "Heartbeat"])
def test_a_coordinator_that_moved_is_found_again(error: ErrorCode, request_name: str) -> None:
    broker = Coordinator(script={request_name: [error]})
    life = live(
        broker,
        lambda: (
            broker.names().count("FindCoordinator") >= 2
            and bool(broker.names().count("OffsetFetch") > (request_name == "OffsetFetch"))
        ),
    )
    assert life.counters == {}
    assert [address for name, _, address in broker.requests if name == "FindCoordinator"][:2] == [
        "b1:1",
        "b2:1",
    ]


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup", "OffsetFetch"])
def test_a_coordinator_that_is_loading_is_asked_again(request_name: str) -> None:
    broker = Coordinator(script={request_name: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]})
    live(broker, lambda: broker.names().count("OffsetFetch") > (request_name == "OffsetFetch"))
    assert broker.names().count("FindCoordinator") == 1
    assert broker.names().count(request_name) >= 2


def test_a_committed_offset_that_was_asked_twice_refers_to_the_second_request() -> None:
    broker = Coordinator(script={"OffsetFetch": [ErrorCode.NOT_COORDINATOR]})
    life = live(broker, rounds(broker, 2))
    assert [name for name, _, _ in life.events[:4]] == [
        "committed-asked",
        "committed-asked",
        "committed-seen",
        "assigned",
    ]


def test_settings_of_a_group_that_make_no_sense_are_refused() -> None:
    for settings, problem in (
        ({"members": 0}, "workload.members is 0"),
        ({"static_members": 4}, "workload.static_members is 4; choose 0 to 3"),
        ({"static_members": 1, "client": "confluent"}, "needs the client 'native'"),
    ):
        with pytest.raises(UsageError, match=problem):
            ConsumerGroupConfig(**cast(Any, settings))
    assert ConsumerGroupConfig(processes=2, members=4).client_hosts == 6


def test_a_position_that_was_cut_off_is_not_committed() -> None:
    """The client has no leader to fetch from, so the poll is replaced by one that is out of range."""
    broker = Coordinator()
    polls = 0

    async def out_of_range(self: NativeClient, *_: Any, **__: Any) -> PollResult:
        nonlocal polls
        polls += 1
        await asyncio.sleep(0)
        error = OFFSET_OUT_OF_RANGE if polls >= 3 else "no-leader-known"
        return PollResult(completion=Completion(outcome=Outcome.FAIL, error=error))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeClient, "poll", out_of_range)
        refused = {"OffsetCommit": [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2}
        life = live(broker, lambda: polls >= 5, processed=5, then=refused)
    assert set(life.of("commit-sent")) <= {(5, -1)}
    assert life.of("commit-acknowledged") == []
