"""Members of a consumer group on confluent-kafka: they subscribe, process, commit, join and leave.

Several members of one group read topics with confluent-kafka as its users do: subscribe, poll, process, commit
what was processed (synchronously), and rebalance. From time to time a member leaves, or crashes without leaving
the group so that the coordinator has to notice. Another workload appends meanwhile.

What members read goes to the same tables as every poll, and so to the same checkers. A row of kind `poll`
lasts from when the member was ready for the next records of a partition (assigned, or done with the ones before)
until they came. It claims that the records existed when it completed and that nothing is between the position
and the first of them; it never claims a log end. librdkafka fetches ahead, so it may have had the records before
the row began, and it does not say in which leader epoch: `leader_epoch` is `FETCHED_AHEAD`.

Assignments, commits and committed offsets go to the table `group_events`; `checkers.kernels.consumer_group` judges
the group's own promises from it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar

from harness.contracts.host import RandomStream
from harness.contracts.recorder import Recorder
from harness.contracts.workload import Task
from harness.history.op import FETCHED_AHEAD, Completion, OpKind, Outcome, ReadRecord
from workloads.append import ProcessIds
from workloads.clients.confluent import ConfluentClient, LibraryRecord
from workloads.clients.confluent_library import common_settings, library
from workloads.group import CommittedOffsets, GroupWorkloadConfig, Key, MemberEvents
from workloads.values import read_record

POLL_S = 0.2
MESSAGES_MAX = 10_000
DRAIN_LIFE_NS = 15_000_000_000
HANDOVER_S = 10.0
"""How long a member's thread waits for the event loop to handle an event."""

_T = TypeVar("_T")


class GroupMember:
    """One member of the group at a time, with its thread. Mutable: it is the member.

    Args:
        bootstrap: Addresses of brokers.
        config: Settings.
        recorder: Where the history goes.
        committed: Shared by all members of the group.
        run_id: Stands in every payload.
        topics: What to subscribe to.
        ids: Process numbers, shared by all places of the run.
        random: Decides how long a member stays and how it ends.
        settings: Further librdkafka settings; they win.

    Raises:
        UsageError: confluent-kafka is not installed.
    """

    def __init__(
        self,
        bootstrap: tuple[str, ...],
        config: GroupWorkloadConfig,
        recorder: Recorder,
        committed: CommittedOffsets,
        *,
        run_id: int,
        topics: Sequence[str],
        ids: ProcessIds,
        random: RandomStream,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._kafka = library()
        self._config = config
        self._recorder = recorder
        self._committed = committed
        self._run_id = run_id
        self._topics = list(topics)
        self._ids = ids
        self._random = random
        self._settings = _member_settings(bootstrap, config) | (settings or {})
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="member")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = -1
        self._events = self._events_of(self._process)
        self._polls: dict[Key, int] = {}
        """The open poll of every assigned partition."""
        self._positions: dict[Key, int] = {}
        """Its position in every assigned partition, -1 if unknown."""
        self._consumer: Any = None

    async def run(self, keep_going: Callable[[], bool]) -> None:
        """Runs one member after the other until `keep_going()` is false."""
        config = self._config
        try:
            while keep_going():
                life_ns = int(2 * config.mean_life_s * self._random.random() * 1e9)
                crashes = self._random.random() < config.crash_share
                await self._live(keep_going, self._recorder.now_ns() + life_ns, crashes=crashes)
        finally:
            self._thread.shutdown(wait=False)

    async def drain(self, ends: Mapping[Key, int], keep_going: Callable[[], bool]) -> bool:
        """Runs a last member until everything below the given log ends is processed and committed.

        Returns:
            False when `keep_going()` turned false before that.
        """
        committed = self._committed

        def is_drained() -> bool:
            return all(committed.acknowledged(key) >= end for key, end in ends.items() if end > 0)

        try:
            while keep_going() and not is_drained():
                life_end_ns = self._recorder.now_ns() + DRAIN_LIFE_NS
                await self._live(
                    lambda: keep_going() and not is_drained(), life_end_ns, crashes=False
                )
        finally:
            self._thread.shutdown(wait=False)
        return is_drained()

    async def _live(self, keep_going: Callable[[], bool], until_ns: int, *, crashes: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = self._ids.take()
        self._events = self._events_of(self._process)
        error = "member-left"
        await self._call(self._be_born)
        try:
            while keep_going() and self._recorder.now_ns() < until_ns:
                messages = await self._call(self._receive)
                progress = self._process_messages(messages)
                if progress:
                    await self._commit(progress)
            if crashes and keep_going():
                error = "member-crashed"
                await self._call(self._die)
        finally:
            await self._call(self._leave)
            self._end_polls(error, tuple(self._polls))
            self._positions.clear()

    async def _call(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _events_of(self, process: int) -> MemberEvents:
        return MemberEvents(
            self._recorder, self._committed, group=self._config.group, process=process
        )

    # -- on the event loop

    def _process_messages(self, messages: list[Any]) -> dict[Key, int]:
        """Records what was received; returns the position to commit for every owned partition that moved."""
        progress = {}
        for key, run in groupby(sorted(messages, key=_key_of), key=_key_of):  # the sort is stable
            for is_error, part in groupby(run, key=lambda message: message.error() is not None):
                if is_error:
                    self._end_polls(next(part).error().name(), (key,))
                else:
                    self._deliver(key, list(part))
                    progress[key] = self._positions.get(key, -1)
            if key in self._positions and key not in self._polls:
                self._begin_poll(key)
        return {key: offset for key, offset in progress.items() if offset >= 0}

    def _deliver(self, key: Key, messages: list[Any]) -> None:
        if key not in self._polls or messages[0].offset() < self._positions.get(key, -1):
            # After an error or a revocation, or librdkafka moved by itself because the log was cut: there is no
            # position that this row could name.
            self._end_polls("position-reset", (key,))
            self._begin_poll(key, position=-1)
        read = [self._read_record(key, message) for message in messages]
        completion = Completion(outcome=Outcome.OK, leader_epoch=FETCHED_AHEAD)
        self._recorder.complete(self._polls.pop(key), completion, read)
        if key in self._positions:
            self._positions[key] = read[-1].offset + 1

    def _read_record(self, key: Key, message: Any) -> ReadRecord:
        record = LibraryRecord(message.offset(), message.key(), message.value())
        return read_record(
            record,
            run_id=self._run_id,
            topic=key[0],
            partition=key[1],
            leader_epoch=_epoch_of(message),
        )

    async def _commit(self, progress: dict[Key, int]) -> None:
        for key, offset in progress.items():
            self._events.commit_sent(key, offset)
        begin_ns = self._recorder.now_ns()
        wanted = [self._kafka.TopicPartition(*key, offset) for key, offset in progress.items()]
        try:
            committed = await self._call(
                lambda: self._consumer.commit(offsets=wanted, asynchronous=False)
            )
        except self._kafka.KafkaException:
            return  # they stay unresolved
        if self._recorder.now_ns() - begin_ns >= self._config.request_timeout_ms * 1_000_000:
            # librdkafka repeats a request that had no response in time, and the first one may arrive after the
            # second one, on the connection that was closed.
            for key, offset in progress.items():
                self._events.commit_sent(key, offset)
        for place in committed or ():
            if place.error is None:
                key = (place.topic, place.partition)
                self._events.commit_acknowledged(key, place.offset)

    def _begin_poll(self, key: Key, position: int | None = None) -> None:
        self._polls[key] = self._recorder.invoke(
            process=self._process,
            kind=OpKind.POLL,
            topic=key[0],
            partition=key[1],
            position=self._positions[key] if position is None else position,
        )

    def _end_polls(self, error: str, keys: tuple[Key, ...]) -> None:
        for key in keys:
            op_index = self._polls.pop(key, None)
            if op_index is not None:
                completion = Completion(outcome=Outcome.FAIL, error_code=None, error=error)
                self._recorder.complete(op_index, completion)

    def _assigned(self, places: list[Any]) -> None:
        for place in places:
            key = (place.topic, place.partition)
            self._events.assigned(key, place.offset)
            self._end_polls("reassigned", (key,))
            self._positions[key] = place.offset if place.offset >= 0 else -1
            self._begin_poll(key)

    def _revoked(self, keys: tuple[Key, ...]) -> None:
        self._end_polls("revoked", keys)
        for key in keys:
            self._events.revoked(key)
            self._positions.pop(key, None)

    # -- on the member's thread

    def _be_born(self) -> None:
        self._consumer = self._kafka.Consumer(self._settings)
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def _receive(self) -> list[Any]:
        first = self._consumer.poll(POLL_S)
        messages = [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        # Errors without a partition (all brokers down, for example) do not concern any poll.
        return [m for m in messages if m.error() is None or m.topic() is not None]

    def _die(self) -> None:
        # A consumer that is dropped without `close` sends no LeaveGroup: its session has to time out.
        self._consumer = None

    def _leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # -- callbacks: on the member's thread, inside poll, consume or close

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        keys = [(place.topic, place.partition) for place in places]
        requests = self._on_loop(lambda: {key: self._events.committed_asked(key) for key in keys})
        try:
            places = consumer.committed(places, timeout=self._config.request_timeout_ms / 1e3)
        except self._kafka.KafkaException:
            pass  # librdkafka retries by itself; until then the positions are unknown
        else:
            self._on_loop(lambda: self._note_committed(places, requests or {}))
        self._on_loop(lambda: self._assigned(places))
        consumer.assign(places)

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        keys = tuple((place.topic, place.partition) for place in places)
        self._on_loop(lambda: self._revoked(keys))
        consumer.unassign()

    def _note_committed(self, places: list[Any], requests: dict[Key, int]) -> None:
        for place in places:
            if place.error is None:
                key = (place.topic, place.partition)
                self._events.committed_seen(key, place.offset, requests.get(key, -1))

    def _on_loop(self, work: Callable[[], _T]) -> _T | None:
        """Does something on the event loop, which waits for this thread without being blocked."""
        done: Future[_T] = Future()

        def do() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop was closed: the run is over
            self._loop.call_soon_threadsafe(do)
            return done.result(HANDOVER_S)
        return None


class ConsumerGroup:
    """All members of one group. Mutable.

    Args:
        bootstrap: Addresses of brokers.
        config: Settings.
        recorder: Where the history goes.
        run_id: Stands in every payload.
        topic_partitions: Partitions of the topics that all members subscribe to.
        ids: Process numbers, shared by all places of the run.
        random: Decides how long members stay and how they end.
        host: The client host on whose event loop they run.

    Raises:
        UsageError: confluent-kafka is not installed.
    """

    def __init__(
        self,
        bootstrap: tuple[str, ...],
        config: GroupWorkloadConfig,
        recorder: Recorder,
        *,
        run_id: int,
        topic_partitions: Sequence[Key],
        ids: ProcessIds,
        random: RandomStream,
        host: str = "",
    ) -> None:
        committed = CommittedOffsets()
        self._host = host
        self._bootstrap = bootstrap
        self._config = config
        self._topic_partitions = tuple(topic_partitions)

        def member() -> GroupMember:
            return GroupMember(
                bootstrap,
                config,
                recorder,
                committed,
                run_id=run_id,
                topics=tuple(dict.fromkeys(topic for topic, _ in self._topic_partitions)),
                ids=ids,
                random=random,
            )

        self._member = member

    def tasks(self) -> Sequence[Task]:
        """Makes the one task that runs all members."""
        return [Task(host=self._host, run=self.run)]

    def counters(self) -> Mapping[str, int]:
        """Counts nothing: librdkafka handles the coordinator's errors by itself."""
        return {}

    async def run(self, keep_going: Callable[[], bool]) -> None:
        """Runs all members until `keep_going()` is false; they join and leave meanwhile."""
        async with asyncio.TaskGroup() as members:
            for _ in range(self._config.members):
                members.create_task(self._member().run(keep_going))

    async def drain(self, keep_going: Callable[[], bool]) -> bool:
        """Lets one more member read and commit everything that is there now; the end of the final phase.

        Returns:
            False when `keep_going()` turned false before that.
        """
        client = ConfluentClient(
            None,
            self._bootstrap,
            request_timeout_ms=self._config.request_timeout_ms,
            connect_timeout_ms=self._config.connect_timeout_ms,
        )
        ends: dict[Key, int] = {}
        try:
            while keep_going() and len(ends) < len(self._topic_partitions):
                for key in self._topic_partitions:
                    end = await client.latest(*key)
                    if end.outcome == Outcome.OK and end.offset is not None:
                        ends[key] = end.offset
        finally:
            client.close()
        return await self._member().drain(ends, keep_going)


def _member_settings(bootstrap: tuple[str, ...], config: GroupWorkloadConfig) -> dict[str, Any]:
    common = common_settings(
        bootstrap,
        request_timeout_ms=config.request_timeout_ms,
        connect_timeout_ms=config.connect_timeout_ms,
    )
    return common | {
        "group.id": config.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "partition.assignment.strategy": config.assignor,
        "session.timeout.ms": config.session_timeout_ms,
        "heartbeat.interval.ms": config.heartbeat_interval_ms,
        "max.poll.interval.ms": max(config.session_timeout_ms, 30_000),
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 20,
    }


def _key_of(message: Any) -> Key:
    return message.topic(), message.partition()


def _epoch_of(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)
