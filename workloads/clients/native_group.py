"""Members of a consumer group on the native client, for the simulated world and for real hosts.

A member is a classic Kafka consumer with the range assignor and the eager protocol (KIP-62). It sends the requests
that the Java consumer sends, in the same order:

1. *Join*: find the coordinator, JoinGroup (with the id that the first response gives, KIP-394), SyncGroup. The
   leader of the generation divides the partitions. Then OffsetFetch: a member starts at the committed offset, or
   at offset 0.
2. *Work*: fetch from one owned partition after the other, process, and commit after each round what was processed.
   Heartbeats go on meanwhile.
3. *End of a generation*: on REBALANCE_IN_PROGRESS the member commits, gives up its partitions and joins again. On
   ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID it has lost them, so it joins again without a commit. On
   FENCED_INSTANCE_ID it ends.
4. *End of a member*: it commits and leaves the group, or it crashes, so that the coordinator has to notice. A
   *static* member (KIP-345) that crashes may go on for a while beside its successor, which has the same instance
   id, until the coordinator fences it.

A coordinator that moved, is loading or does not respond only costs time: the member goes on fetching, as the Java
consumer does, and finds the coordinator again.

A commit without a clear response, and one that the coordinator refused, stay without an acknowledgement in
`group_events`. A position that the log does not have (OFFSET_OUT_OF_RANGE) becomes 0, where the logs of the
reference system begin: `auto.offset.reset=earliest`.

Times come from the event loop, and draws from the stream "group" of the member's client host, so a simulated run
is a function of its seed.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.contracts.client import OFFSET_OUT_OF_RANGE, KeepGoing
from harness.contracts.host import ClientHost
from harness.contracts.recorder import Recorder
from harness.contracts.workload import Task, WorkloadContext
from harness.history.op import OpKind, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    heartbeat_request,
    join_group_request,
    leave_group_request,
    millis,
    offset_commit_request,
    offset_fetch_request,
    sync_group_request,
)
from workloads.append import ProcessIds
from workloads.clients.group_coordinator import CoordinatorClient, Meaning
from workloads.clients.group_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    Subscriber,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    range_assignment,
)
from workloads.clients.native import NativeClient
from workloads.group import (
    UNKNOWN_GENERATION,
    CommittedOffsets,
    GroupWorkloadConfig,
    Key,
    MemberEvents,
)
from workloads.values import records_of

RETRY_S = 0.05
"""Between two attempts after an error; Kafka's retry.backoff.ms is 100."""
REBALANCE_SESSIONS = 2
"""The rebalance timeout in session timeouts: a member that is alive joins again within one of its rounds."""
LINGER_SHARE = 0.5
"""How many of the deaths of static members are none: the old member goes on beside its successor."""
LINGER_SESSIONS = 2
"""How long such a member goes on, in session timeouts."""
DRAIN_LIFE_NS = 15_000_000_000


@dataclass(slots=True)
class Place:
    """Where one member of the group after the other lives. Mutable.

    Attributes:
        instance_id: Of its members, if they are static.
        generations: Those in which members of this place started.
    """

    instance_id: str | None = None
    generations: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetup:
    """What all members of a group have in common."""

    bootstrap: tuple[str, ...]
    config: GroupWorkloadConfig
    recorder: Recorder
    committed: CommittedOffsets
    run_id: int
    partition_counts: Mapping[str, int]
    counters: Counter[str]
    """How often members learned that their generation had ended, or that they were fenced."""


class NativeMember:
    """One member, from its birth to its end. Mutable: it is the member.

    Args:
        setup: Common to all members.
        host: The client host it runs on.
        place: Its place in the group.
        process: Its number in the history.

    Attributes:
        started: Partitions that it got, and whose committed offset it received.
    """

    def __init__(self, setup: GroupSetup, host: ClientHost, place: Place, process: int) -> None:
        config = setup.config
        timeouts = {
            "request_timeout_ms": config.request_timeout_ms,
            "connect_timeout_ms": config.connect_timeout_ms,
        }
        self._setup = setup
        self._config = config
        self._place = place
        self._process = process
        self._recorder = setup.recorder
        self._events = MemberEvents(
            setup.recorder, setup.committed, group=config.group, process=process
        )
        self._client = NativeClient(host, setup.bootstrap, **timeouts)
        self._coordinator = CoordinatorClient(host, setup.bootstrap, config.group, **timeouts)
        self._rebalance_timeout_ms = REBALANCE_SESSIONS * config.session_timeout_ms
        self._member_id = ""
        self._generation = UNKNOWN_GENERATION
        self._positions: dict[Key, int] = {}
        """Its position in every partition that it owns."""
        self._epochs: dict[Key, int] = {}
        """Leader epoch of the last record before the position, where one was read."""
        self._processed: dict[Key, int] = {}
        """Positions that are not committed yet."""
        self._ends_generation = Meaning.DONE
        """What ended the generation; DONE while it lasts."""
        self.started: set[Key] = set()

    async def run(self, keep_going: KeepGoing, until_ns: int, *, crashes: bool) -> None:
        """Works until `keep_going()` is false, until a time, or until it is fenced.

        Args:
            keep_going: Whether the group should go on.
            until_ns: When the member leaves or crashes, in nanoseconds since the start of the run.
            crashes: Whether it then ends without another request.
        """

        def goes_on() -> bool:
            return (
                keep_going()
                and self._recorder.now_ns() < until_ns
                and self._ends_generation is not Meaning.FENCED
            )

        try:
            while goes_on():
                if await self._join() and await self._start(goes_on):
                    await self._work(goes_on)
                elif goes_on():
                    await asyncio.sleep(RETRY_S)
            if self._ends_generation is not Meaning.FENCED and not (crashes and keep_going()):
                await self._leave()
                self._give_up_partitions()
        finally:
            self._coordinator.close()
            self._client.close()

    # --- joining ---------------------------------------------------------------------------------------

    async def _join(self) -> bool:
        """Joins the next generation and gets a share of the partitions; false if that has to be tried again."""
        self._ends_generation = Meaning.DONE
        joined = await self._request_join()
        if joined is not None and joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._request_join()
        if joined is None or not self._accepts(joined.error_code):
            return False
        self._member_id = joined.member_id
        self._generation = joined.generation_id
        return await self._sync(joined)

    async def _request_join(self) -> Any:
        request = join_group_request.JoinGroupRequest(
            group_id=self._config.group,
            session_timeout=millis(self._config.session_timeout_ms),
            rebalance_timeout=millis(self._rebalance_timeout_ms),
            member_id=self._member_id,
            group_instance_id=self._place.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(
                join_group_request.JoinGroupRequestProtocol(
                    name=RANGE, metadata=encode_subscription(tuple(self._setup.partition_counts))
                ),
            ),
        )
        return await self._coordinator.request(request, wait_ms=self._rebalance_timeout_ms)

    async def _sync(self, joined: Any) -> bool:
        is_leader = joined.leader == self._member_id and not joined.skip_assignment
        request = sync_group_request.SyncGroupRequest(
            group_id=self._config.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._place.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=self._assignments(joined.members) if is_leader else (),
        )
        synced = await self._coordinator.request(request, wait_ms=self._rebalance_timeout_ms)
        if synced is None or not self._accepts(synced.error_code):
            return False
        self._positions = dict.fromkeys(decode_assignment(synced.assignment), 0)
        return True

    def _assignments(self, members: Sequence[Any]) -> tuple[Any, ...]:
        """Divides the partitions; the leader of the generation does."""
        shares = range_assignment(
            [
                Subscriber(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    topics=decode_subscription(bytes(member.metadata)),
                )
                for member in members
            ],
            self._setup.partition_counts,
        )
        return tuple(
            sync_group_request.SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in shares.items()
        )

    def _accepts(self, error_code: int) -> bool:
        """Whether a response is without error; otherwise the member draws the consequences."""
        meaning = self._coordinator.meaning_of(error_code)
        if meaning is Meaning.UNKNOWN:
            self._member_id = ""
        if meaning not in (Meaning.DONE, Meaning.RETRY):
            if self._ends_generation is Meaning.DONE:
                self._setup.counters[f"group_members_{meaning}"] += 1
            self._ends_generation = meaning
        return meaning is Meaning.DONE

    async def _start(self, goes_on: KeepGoing) -> bool:
        """Fetches the committed offsets and begins at them; false if generation or member ended before that."""
        with self._heartbeats():
            wanted = tuple(self._positions)
            while wanted and not await self._fetch_committed(wanted):
                if self._ends_generation is not Meaning.DONE or not goes_on():
                    self._positions.clear()
                    return False
                await asyncio.sleep(RETRY_S)
        generation = self._recorded_generation()
        self._place.generations.add(self._generation)
        for key, position in self._positions.items():
            self._events.assigned(key, position, generation)
            self.started.add(key)
        return True

    def _recorded_generation(self) -> int:
        """Returns the generation, or epoch; none if a member of this static place has started in it before.

        A static member took over the place of its predecessor: nothing was assigned again, and the owner is still
        the same instance. Or it is the predecessor, which learns late that it is fenced.
        """
        is_static = self._place.instance_id is not None
        is_same = is_static and self._generation in self._place.generations
        return UNKNOWN_GENERATION if is_same else self._generation

    async def _fetch_committed(self, keys: Sequence[Key]) -> bool:
        requests = {key: self._events.committed_asked(key) for key in keys}
        response = await self._coordinator.request(
            offset_fetch_request.OffsetFetchRequest(
                groups=(
                    offset_fetch_request.OffsetFetchRequestGroup(
                        group_id=self._config.group,
                        topics=tuple(
                            offset_fetch_request.OffsetFetchRequestTopics(
                                name=topic, partition_indexes=tuple(indexes)
                            )
                            for topic, indexes in _by_topic(keys).items()
                        ),
                    ),
                ),
                # As consumers do. A coordinator of Kafka 4.0 or later that was just elected answers other requests
                # without what its high watermark has not passed yet.
                require_stable=True,
            )
        )
        if response is None or not self._accepts(response.groups[0].error_code):
            return False
        found = {
            (topic.name, one.partition_index): one
            for topic in response.groups[0].topics
            for one in topic.partitions
        }
        if any(key not in found or found[key].error_code for key in keys):
            return False
        for key in keys:
            offset = found[key].committed_offset
            self._events.committed_seen(key, offset, requests[key])
            self._positions[key] = max(offset, 0)
        return True

    # --- working ---------------------------------------------------------------------------------------

    async def _work(self, goes_on: KeepGoing) -> None:
        """Fetches, processes and commits until the generation or the member ends."""
        with self._heartbeats():
            while goes_on() and self._ends_generation is Meaning.DONE:
                has_fetched = False
                for key in tuple(self._positions):
                    if self._ends_generation is Meaning.DONE and goes_on():
                        has_fetched |= await self._poll(key)
                if not has_fetched:
                    # Nothing owned, or no leader to fetch from: a fetch would have waited for records.
                    await asyncio.sleep(RETRY_S)
                if self._ends_generation is Meaning.DONE:
                    await self._commit()
            if self._ends_generation is Meaning.REJOIN:
                await self._commit()
        if self._ends_generation is not Meaning.DONE:
            self._give_up_partitions()

    async def _poll(self, key: Key) -> bool:
        """Fetches once from a partition; returns whether it succeeded."""
        topic, partition = key
        position = self._positions[key]
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.POLL,
            topic=topic,
            partition=partition,
            position=position,
        )
        result = await self._client.poll(
            topic,
            partition,
            position,
            max_bytes=self._config.poll_max_bytes,
            max_wait_ms=self._config.poll_max_wait_ms,
        )
        read = records_of(result, run_id=self._setup.run_id, topic=topic, partition=partition)
        self._recorder.complete(op_index, result.completion, read)
        if read:
            self._positions[key] = self._processed[key] = read[-1].offset + 1
            self._epochs[key] = read[-1].leader_epoch
        elif result.completion.error == OFFSET_OUT_OF_RANGE:
            # The log was cut, so a position that is not committed yet is of no use either.
            self._positions[key] = 0
            self._processed.pop(key, None)
            self._epochs.pop(key, None)
        return result.completion.outcome == Outcome.OK

    async def _commit(self) -> None:
        """Commits what was processed since the last commit; what gets no response is committed again later."""
        wanted = dict(self._processed)
        if not wanted:
            return
        for key, offset in wanted.items():
            self._events.commit_sent(key, offset)
        response = await self._coordinator.request(
            offset_commit_request.OffsetCommitRequest(
                group_id=self._config.group,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                group_instance_id=self._place.instance_id,
                topics=tuple(
                    offset_commit_request.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=tuple(
                            offset_commit_request.OffsetCommitRequestPartition(
                                partition_index=index,
                                committed_offset=wanted[(topic, index)],
                                committed_leader_epoch=self._epochs.get((topic, index), -1),
                                committed_metadata="",
                            )
                            for index in indexes
                        ),
                    )
                    for topic, indexes in _by_topic(wanted).items()
                ),
            )
        )
        if response is None:
            return
        for topic in response.topics:
            for one in topic.partitions:
                key = (topic.name, one.partition_index)
                if self._accepts(one.error_code):
                    self._events.commit_acknowledged(key, wanted[key])
                    self._processed.pop(key, None)

    @contextlib.contextmanager
    def _heartbeats(self) -> Iterator[None]:
        """Sends heartbeats meanwhile; their errors end the generation."""
        task = asyncio.get_running_loop().create_task(self._beat())
        try:
            yield
        finally:
            task.cancel()

    async def _beat(self) -> None:
        request = heartbeat_request.HeartbeatRequest(
            group_id=self._config.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._place.instance_id,
        )
        while self._ends_generation is Meaning.DONE:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1e3)
            response = await self._coordinator.request(request)
            if response is not None and self._ends_generation is Meaning.DONE:
                self._accepts(response.error_code)

    # --- the end ---------------------------------------------------------------------------------------

    def _give_up_partitions(self) -> None:
        for key in self._positions:
            self._events.revoked(key)
        self._positions.clear()
        self._processed.clear()
        self._epochs.clear()

    async def _leave(self) -> None:
        """Commits and leaves the group; one attempt, because the session ends by itself."""
        if self._positions:
            await self._commit()
        if not self._member_id or self._place.instance_id is not None:
            return  # A static member does not leave: its successor takes its place.
        await self._coordinator.request(
            leave_group_request.LeaveGroupRequest(
                group_id=self._config.group,
                members=(
                    leave_group_request.MemberIdentity(
                        member_id=self._member_id, group_instance_id=None
                    ),
                ),
            )
        )


class NativeGroup:
    """All members of one group on the native client. Mutable.

    Args:
        context: The run.
        config: Settings.
        hosts: Client hosts of the members, one each.
        ids: Process numbers, shared by all places of the run.
        member: What the members are: of the classic protocol, or a subclass.
    """

    def __init__(
        self,
        context: WorkloadContext,
        config: GroupWorkloadConfig,
        hosts: Sequence[str],
        ids: ProcessIds,
        member: type[NativeMember],
    ) -> None:
        self._context = context
        self._config = config
        self._member = member
        self._hosts = tuple(hosts)
        self._ids = ids
        self._setup = GroupSetup(
            bootstrap=context.bootstrap,
            config=config,
            recorder=context.recorder,
            committed=CommittedOffsets(),
            run_id=context.run_id,
            partition_counts=Counter(topic for topic, _ in context.topic_partitions),
            counters=Counter(),
        )

    def tasks(self) -> Sequence[Task]:
        """Makes the places of the main phase, each with one member after the other."""
        return [
            Task(host=host, run=partial(self._live, index))
            for index, host in enumerate(self._hosts)
        ]

    async def _live(self, index: int, keep_going: KeepGoing) -> None:
        """Runs one member after the other in one place."""
        config = self._config
        host = self._context.client_host(self._hosts[index])
        random = host.random.stream("group")
        is_static = index < config.static_members
        place = Place(f"{config.group}-{index}" if is_static else None)
        now_ns = self._context.recorder.now_ns
        lingering: list[asyncio.Task[None]] = []
        while keep_going():
            until_ns = now_ns() + int(2 * config.mean_life_s * random.random() * 1e9)
            crashes = random.random() < config.crash_share
            member = self._member(self._setup, host, place, self._ids.take())
            if crashes and is_static and random.random() < LINGER_SHARE:
                linger_ns = LINGER_SESSIONS * config.session_timeout_ms * 1_000_000
                life = member.run(keep_going, until_ns + linger_ns, crashes=True)
                lingering.append(_spawn(life))
                while keep_going() and now_ns() < until_ns and not lingering[-1].done():
                    await asyncio.sleep(RETRY_S)
            else:
                await member.run(keep_going, until_ns, crashes=crashes)
        for task in lingering:
            await task

    def counters(self) -> Mapping[str, int]:
        """Returns how often members had to join again, lost their generation or were fenced."""
        return dict(self._setup.counters)

    async def drain(self, keep_going: KeepGoing) -> bool:
        """Lets one more member read and commit everything that is there now; the end of the final phase.

        Returns:
            False when `keep_going()` turned false before that.
        """
        host = self._context.client_host(self._context.hosts[-1])
        ends = await self._log_ends(host, keep_going)
        committed = self._setup.committed
        is_drained = False
        while keep_going() and not is_drained:
            member = self._member(self._setup, host, Place(), self._ids.take())

            def goes_on(started: set[Key] = member.started) -> bool:
                # A commit that the coordinator forgot shows only when a member gets the partition once more.
                is_left = any(key not in started for key in ends) or any(
                    committed.acknowledged(key) < end for key, end in ends.items() if end > 0
                )
                return keep_going() and is_left

            until_ns = self._context.recorder.now_ns() + DRAIN_LIFE_NS
            await member.run(goes_on, until_ns, crashes=False)
            is_drained = keep_going() and not goes_on()
        return is_drained

    async def _log_ends(self, host: ClientHost, keep_going: KeepGoing) -> dict[Key, int]:
        client = NativeClient(
            host,
            self._context.bootstrap,
            request_timeout_ms=self._config.request_timeout_ms,
            connect_timeout_ms=self._config.connect_timeout_ms,
        )
        ends: dict[Key, int] = {}
        try:
            while keep_going() and len(ends) < len(self._context.topic_partitions):
                for key in self._context.topic_partitions:
                    end = await client.latest(*key)
                    if end.outcome == Outcome.OK and end.offset is not None:
                        ends[key] = end.offset
                if len(ends) < len(self._context.topic_partitions):
                    await asyncio.sleep(RETRY_S)
        finally:
            client.close()
        return ends


def _spawn(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(work)


def _by_topic(keys: Sequence[Key] | Mapping[Key, int]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in keys:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
