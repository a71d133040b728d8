"""Follows the replicas on one broker of Apache Kafka: log end, high watermark and leader epoch.

Log ends come from the headers in the segment files, and only while the process of the broker runs: what is on the
disk of a dead or frozen broker is not what the replica had when it was elected.

Leader epoch and high watermark come from Fetch as a consumer, which followers serve as well. The request names a
leader epoch and succeeds only if the broker is in that epoch. So two successful requests with one epoch, on one
connection, prove that the broker did not change the epoch while the files were read between them. A reading that
the second request contradicts is not reported.

A broker serves no client before it is unfenced, and by then it may have been elected. While nothing can be
fetched, its log ends are reported alone, as those of a follower. The row names the newest committed leader epoch,
because the log holds records of no newer one.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.system import NodeFiles
from harness.systems.apache_kafka.quorum import Connector
from harness.systems.apache_kafka.segments import LOG_DIRECTORIES, LogTail
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_by_name_request, millis
from system_under_test.runtime import Connection

FETCH_TIMEOUT_MS = 500

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The leaders of one partition in committed metadata.

    Attributes:
        epoch: The newest leader epoch.
        leaders: Broker id by leader epoch.
    """

    epoch: int
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """The state of a replica; the fields are those of `replica_states`."""

    topic: str
    partition: int
    log_end_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    role: str
    cause: str


@dataclass(slots=True, kw_only=True)
class _Followed:
    """What is known of one replica. Mutable.

    Attributes:
        tail: Its files.
        epoch: The leader epoch that the broker is believed to be in.
        fetch_offset: Where the next fetch begins; not above the broker's high watermark.
        newest: The newest leader epoch in committed metadata.
        proved: High watermark and log start of the last fetch; None if it failed or the epoch was wrong.
        kept: Up to which offset the log has not changed since the last reported state.
        last: The last reported state of this process.
    """

    tail: LogTail
    epoch: int
    newest: int
    fetch_offset: int = 0
    proved: tuple[int, int] | None = None
    kept: int | None = None
    last: ReplicaState | None = None


@dataclass(slots=True, kw_only=True)
class BrokerReplicas:
    """The replicas on one broker. Mutable.

    Attributes:
        broker: Its id.
        address: Where it listens.
        network: Opens connections.
        files: Its files.
        runs: Whether its process runs.
        log_directories: Where it keeps its logs.
    """

    broker: int
    address: str
    network: Connector
    files: NodeFiles
    runs: Callable[[], bool]
    log_directories: Sequence[str] = LOG_DIRECTORIES
    _followed: dict[PartitionName, _Followed] = field(default_factory=dict)
    _connection: Connection | None = None

    async def look(self, partitions: Mapping[PartitionName, Leadership]) -> list[ReplicaState]:
        """Looks once; returns the states that changed.

        Args:
            partitions: Those that committed metadata places on the broker.
        """
        self._follow(partitions)
        if not self._followed or not self.runs():
            self.forget()
            return []
        before = {name: followed.proved for name, followed in self._followed.items()}
        try:
            ends = await asyncio.to_thread(self._read_ends)
        except OSError:
            self.forget()
            return []
        try:
            await self._fetch()
            is_served = True
        except OSError:
            self.forget()
            is_served = False
        if not self.runs():
            return []
        states = []
        for name, end in ends.items():
            followed, proved = self._followed[name], before[name]
            if proved is not None and followed.proved is not None:
                leads = partitions[name].leaders.get(followed.epoch) == self.broker
                role = "leader" if leads else "follower"
                followed.tail.served()
                states += self._changes(name, followed, end, proved, followed.epoch, role)
            elif proved is None and not is_served and _has_changed(followed, end):
                known = (0, 0) if followed.last is None else _known(followed.last, end)
                states += self._changes(name, followed, end, known, followed.newest, "follower")
        return states

    def forget(self) -> None:
        """Closes the connection, and forgets what depends on the process that it led to."""
        connection, self._connection = self._connection, None
        for followed in self._followed.values():
            followed.proved = None
            if connection is not None:
                # The next connection may lead to another process, whose start may have cut the log.
                followed.tail.restarted()
        if connection is not None:
            connection.close()

    def restarted(self) -> None:
        """Forgets what the last process reported: the broker has a new one."""
        self.forget()
        for followed in self._followed.values():
            followed.last = None
            followed.tail.restarted()

    def _follow(self, partitions: Mapping[PartitionName, Leadership]) -> None:
        for name in [name for name in self._followed if name not in partitions]:
            del self._followed[name]
        for name, leadership in partitions.items():
            followed = self._followed.get(name)
            if followed is None:
                tail = LogTail(f"{name[0]}-{name[1]}", self.log_directories)
                self._followed[name] = _Followed(
                    tail=tail, epoch=leadership.epoch, newest=leadership.epoch
                )
            elif followed.newest != leadership.epoch:
                followed.newest = followed.epoch = leadership.epoch
                followed.proved = None

    def _read_ends(self) -> dict[PartitionName, int]:
        """Reads the files; blocking."""
        found = {}
        for name, followed in self._followed.items():
            state = followed.tail.read(self.files)
            if state is not None:
                # A truncation counts even if this reading is not reported.
                kept = state.kept if followed.kept is None else followed.kept
                followed.kept = min(kept, state.kept)
                found[name] = state.end
        return found

    async def _fetch(self) -> None:
        if self._connection is None or not self._connection.is_open:
            self.forget()
            self._connection = await self.network.connect(self.address, FETCH_TIMEOUT_MS)
        response = await self._connection.request(self._request(), FETCH_TIMEOUT_MS)
        seen = set()
        for topic in response.responses:
            for partition in topic.partitions:
                name = (topic.topic, int(partition.partition_index))
                followed = self._followed.get(name)
                if followed is not None:
                    seen.add(name)
                    _note(followed, partition)
        for name, followed in self._followed.items():
            if name not in seen:
                followed.proved = None

    def _request(self) -> Any:
        types: Any = fetch_by_name_request
        topics: dict[str, list[Any]] = {}
        for (topic, partition), followed in self._followed.items():
            topics.setdefault(topic, []).append(
                types.FetchPartition(
                    partition=partition,
                    current_leader_epoch=followed.epoch,
                    fetch_offset=followed.fetch_offset,
                    partition_max_bytes=1,
                )
            )
        return types.FetchRequest(
            max_wait=millis(0),
            min_bytes=0,
            max_bytes=1,
            topics=tuple(
                types.FetchTopic(topic=topic, partitions=tuple(partitions))
                for topic, partitions in topics.items()
            ),
            forgotten_topics_data=(),
        )

    def _changes(
        self,
        name: PartitionName,
        followed: _Followed,
        end: int,
        known: tuple[int, int],
        epoch: int,
        role: str,
    ) -> list[ReplicaState]:
        """Returns the states that lead from the last reported one to the present one."""

        def state(log_end_offset: int, cause: str) -> ReplicaState:
            return ReplicaState(
                topic=name[0],
                partition=name[1],
                log_end_offset=log_end_offset,
                high_watermark=min(known[0], log_end_offset),
                log_start_offset=min(known[1], log_end_offset),
                leader_epoch=epoch,
                role=role,
                cause=cause,
            )

        states = []
        last = followed.last
        kept = end if followed.kept is None else min(followed.kept, end)
        if last is None and kept < end:
            # The log may have been cut and have grown again since the process began.
            last = state(kept, "load")
            states.append(last)
        elif last is not None and kept < last.log_end_offset:
            last = state(kept, "truncate")
            states.append(last)
        present = state(end, _cause(last, end, epoch, role))
        if last is None or not _is_same(last, present):
            states.append(present)
        followed.kept = end
        if states:
            followed.last = states[-1]
        return states


def _has_changed(followed: _Followed, end: int) -> bool:
    """Whether a log differs from the last reported state. A paused leader goes on leading, as far as it knows."""
    last, kept = followed.last, followed.kept
    return (
        last is None
        or end != last.log_end_offset
        or (kept is not None and kept < last.log_end_offset)
    )


def _known(last: ReplicaState, end: int) -> tuple[int, int]:
    """Returns high watermark and log start of a state as far as they are still possible."""
    return min(last.high_watermark, end), min(last.log_start_offset, end)


def _note(followed: _Followed, partition: Any) -> None:
    """Takes one partition of a response: what it proves, or how the next request has to differ."""
    code = int(partition.error_code)
    followed.proved = None
    if code == ErrorCode.NONE:
        high_watermark = int(partition.high_watermark)
        if high_watermark >= 0:
            followed.proved = (high_watermark, max(int(partition.log_start_offset), 0))
            followed.fetch_offset = high_watermark
    elif code == ErrorCode.UNKNOWN_LEADER_EPOCH:
        followed.epoch = max(followed.epoch - 1, 0)
    elif code == ErrorCode.FENCED_LEADER_EPOCH:
        followed.epoch = min(followed.epoch + 1, followed.newest)
    elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
        followed.fetch_offset = max(int(partition.log_start_offset), 0)


def _cause(last: ReplicaState | None, end: int, epoch: int, role: str) -> str:
    if last is None:
        return "load"
    if end > last.log_end_offset:
        # A follower that stays in an epoch copies from the leader of that epoch. When a leader appended is not
        # known exactly enough to report more than that it did before.
        is_copy = role == last.role == "follower" and epoch == last.leader_epoch
        return "replicate" if is_copy else "observed"
    if (epoch, role) != (last.leader_epoch, last.role):
        return "role"
    return "high-watermark"


def _is_same(first: ReplicaState, second: ReplicaState) -> bool:
    return (
        first.log_end_offset,
        first.high_watermark,
        first.log_start_offset,
        first.leader_epoch,
        first.role,
    ) == (
        second.log_end_offset,
        second.high_watermark,
        second.log_start_offset,
        second.leader_epoch,
        second.role,
    )
