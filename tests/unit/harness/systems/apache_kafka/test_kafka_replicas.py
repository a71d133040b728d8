"""Log ends from segment files, and the states of replicas on a broker that may end at any moment."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.systems.apache_kafka.replicas import BrokerReplicas, Leadership, ReplicaState
from harness.systems.apache_kafka.segments import CHUNK_BYTES, LogState, LogTail
from harness.systems.apache_kafka.stored_logs import stored_batches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_by_name_response, millis
from system_under_test.protocol.record_batch import encode_batch


def batch(offset: int, epoch: int, count: int = 1, size: int = 10) -> bytes:
    records = [(None, b"v" * size)] * count
    return encode_batch(records, timestamp_ms=1, base_offset=offset, leader_epoch=epoch)


@dataclass
class Files:
    """Implements `NodeFiles` in memory. Mutable."""

    data: dict[str, bytes] = field(default_factory=dict)
    bytes_read: int = 0
    reads: int = 0
    fails: bool = False

    def list(self, directory: str) -> list[str]:
        if self.fails:
            raise OSError("the disk is gone")
        prefix = f"{directory}/"
        return sorted(path[len(prefix) :] for path in self.data if path.startswith(prefix))

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        found = self.data[path][offset : offset + length]
        self.bytes_read += len(found)
        self.reads += 1
        return found


def segment(base: int, *batches: bytes, topic: str = "t-0") -> dict[str, bytes]:
    return {f"{topic}/{base:020}.log": b"".join(batches), f"{topic}/{base:020}.index": b"\0" * 99}


# --- the end of a log ---


def test_the_log_end_is_that_of_the_last_whole_batch() -> None:
    files = Files(segment(0, batch(0, 0, 3), batch(3, 0), batch(4, 0)[:-1]))
    tail = LogTail("t-0")
    assert tail.read(files) == LogState(end=4, kept=4)
    files.data = segment(0, batch(0, 0, 3), batch(3, 0), batch(4, 0), b"\0" * 200)
    assert tail.read(files) == LogState(end=5, kept=4)
    assert LogTail("t-0").read(Files()) is None
    assert LogTail("t-0").read(Files(segment(7))) == LogState(end=7, kept=7)


def test_only_new_headers_of_the_last_segment_are_read() -> None:
    first = b"".join(batch(n, 0) for n in range(100))
    files = Files({**segment(0, first), **segment(100, *(batch(n, 0) for n in range(100, 900)))})
    tail = LogTail("t-0")
    assert tail.read(files) == LogState(end=900, kept=900)
    assert files.bytes_read < 2 * CHUNK_BYTES
    files.bytes_read = 0
    files.data[f"t-0/{100:020}.log"] += batch(900, 0)
    assert tail.read(files) == LogState(end=901, kept=900)
    assert files.bytes_read < 300


def test_a_batch_longer_than_a_chunk_counts_once_it_is_whole() -> None:
    big = batch(1, 0, size=3 * CHUNK_BYTES)
    files = Files(segment(0, batch(0, 0), big[:-1]))
    tail = LogTail("t-0")
    assert tail.read(files) == LogState(end=1, kept=1)
    files.data = segment(0, batch(0, 0), big, batch(2, 0))
    assert tail.read(files) == LogState(end=3, kept=1)


def test_a_truncation_shows_although_the_log_has_grown_again() -> None:
    files = Files(segment(0, *(batch(n, 0) for n in range(10))))
    tail = LogTail("t-0")
    tail.read(files)
    files.data = segment(0, *(batch(n, 0 if n < 5 else 2) for n in range(10)))
    assert tail.read(files) == LogState(end=10, kept=5)
    files.data = segment(0, *(batch(n, 0) for n in range(4)))
    assert tail.read(files) == LogState(end=4, kept=4)


def test_a_new_segment_is_not_a_truncation() -> None:
    files = Files(segment(0, batch(0, 0), batch(1, 0)))
    tail = LogTail("t-0")
    tail.read(files)
    files.data |= {**segment(0, batch(0, 0), batch(1, 0), batch(2, 0)), **segment(3, batch(3, 0))}
    assert tail.read(files) == LogState(end=4, kept=2)
    del files.data[f"t-0/{3:020}.log"]
    assert tail.read(files) == LogState(end=3, kept=0), "what lies below the segment is certain"


def test_a_log_that_was_deleted_and_made_again_keeps_nothing() -> None:
    files = Files(segment(0, batch(0, 0)))
    tail = LogTail("t-0")
    tail.read(files)
    files.data = {}
    assert tail.read(files) is None
    files.data = segment(0, batch(0, 0), batch(1, 0))
    assert tail.read(files) == LogState(end=2, kept=0)


def test_after_a_restart_damaged_batches_do_not_count() -> None:
    torn = bytearray(batch(1, 0))
    torn[-3:] = b"\0\0\0"
    files = Files(segment(0, batch(0, 0), batch(1, 0)))
    tail = LogTail("t-0")
    assert tail.read(files) == LogState(end=2, kept=2)
    files.data = segment(0, batch(0, 0), bytes(torn))
    tail.restarted()
    assert tail.read(files) == LogState(end=1, kept=1)
    files.data = segment(0, batch(0, 0), batch(1, 4))
    assert tail.read(files) == LogState(end=2, kept=1)
    tail.served()
    torn = bytearray(batch(1, 4))
    torn[-3:] = b"\0\0\0"
    files.data = segment(0, batch(0, 0), bytes(torn))
    assert tail.read(files) == LogState(end=2, kept=2), (
        "only headers are compared while the process runs"
    )
    tail.restarted()
    assert tail.read(files) == LogState(end=1, kept=1), "and again after another restart"


def test_after_a_restart_a_log_is_verified_with_few_reads() -> None:
    """Each read of a node's files asks the agent of its host; one for each batch took ten seconds in a run."""
    files = Files(segment(0, *(batch(n, 0) for n in range(3000)), batch(3000, 0, size=CHUNK_BYTES)))
    tail = LogTail("t-0")
    tail.restarted()
    assert tail.read(files) == LogState(end=3001, kept=3001)
    size = len(files.data[f"t-0/{0:020}.log"])
    assert size > 3 * CHUNK_BYTES
    assert files.reads <= 6 * (size // CHUNK_BYTES + 1)
    damaged = bytearray(files.data[f"t-0/{0:020}.log"])
    damaged[len(b"".join(batch(n, 0) for n in range(1500))) - 1] ^= 1
    files.data[f"t-0/{0:020}.log"] = bytes(damaged)
    tail.restarted()
    assert tail.read(files) == LogState(end=1499, kept=1499)


@pytest.mark.parametrize(
    "junk", [b"\0" * 500, b"\xff" * 500, batch(5, 0)[:-1]], ids=["zeros", "ones", "half"]
)
def test_anything_after_the_last_batch_is_ignored(junk: bytes) -> None:
    files = Files(segment(0, batch(0, 0), junk))
    assert LogTail("t-0").read(files) == LogState(end=1, kept=1)


def test_several_log_directories_are_searched() -> None:
    files = Files({f"d2/{path}": data for path, data in segment(0, batch(0, 0)).items()})
    assert LogTail("t-0", ("d1", "d2")).read(files) == LogState(end=1, kept=1)
    found = stored_batches(files, "t", 0, bytes_max=1 << 20, log_directories=("d1", "d2"))
    assert [(each.base_offset, each.last_offset, each.leader_epoch) for each in found] == [
        (0, 0, 0)
    ]


def test_stored_batches_end_at_the_first_damaged_one() -> None:
    torn = bytearray(batch(4, 1))
    torn[-1] ^= 1
    files = Files(
        {**segment(0, batch(0, 0, 3), batch(3, 1)), **segment(4, bytes(torn), batch(5, 1))}
    )
    found = stored_batches(files, "t", 0, bytes_max=1 << 20)
    assert [(each.base_offset, each.last_offset, each.leader_epoch) for each in found] == [
        (0, 2, 0),
        (3, 3, 1),
    ]
    assert stored_batches(files, "u", 0, bytes_max=1 << 20) == []


# --- the replicas of a broker ---


@dataclass
class Broker:
    """A fake broker and its network. Mutable."""

    files: Files
    epoch: int = 0
    high_watermark: int = 0
    is_up: bool = True
    runs: bool = True
    error: ErrorCode = ErrorCode.NONE
    connections: int = 0

    async def connect(self, address: str, timeout_ms: float) -> Any:
        if not self.is_up:
            raise ConnectionRefusedError(address)
        self.connections += 1
        return _Connection(self)

    def replicas(self) -> BrokerReplicas:
        return BrokerReplicas(
            broker=1, address="b1:9092", network=self, files=self.files, runs=lambda: self.runs
        )


class _Connection:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.is_open = True

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        broker = self._broker
        if not broker.is_up:
            self.is_open = False
            future.set_exception(ConnectionResetError())
            return future
        assert message.replica_id == -1
        types: Any = fetch_by_name_response
        topics = []
        for topic in message.topics:
            partitions = []
            for wanted in topic.partitions:
                error = broker.error
                if wanted.current_leader_epoch < broker.epoch:
                    error = ErrorCode.FENCED_LEADER_EPOCH
                elif wanted.current_leader_epoch > broker.epoch:
                    error = ErrorCode.UNKNOWN_LEADER_EPOCH
                elif wanted.fetch_offset > broker.high_watermark:
                    error = ErrorCode.OFFSET_OUT_OF_RANGE
                partitions.append(
                    types.PartitionData(
                        partition_index=wanted.partition,
                        error_code=error,
                        high_watermark=-1 if error else broker.high_watermark,
                        log_start_offset=-1 if error else 0,
                        aborted_transactions=None,
                        records=b"",
                    )
                )
            topics.append(
                types.FetchableTopicResponse(topic=topic.topic, partitions=tuple(partitions))
            )
        future.set_result(
            types.FetchResponse(throttle_time=millis(0), error_code=0, responses=tuple(topics))
        )
        return future

    def close(self) -> None:
        self.is_open = False


def look(replicas: BrokerReplicas, leadership: Leadership, times: int = 1) -> list[ReplicaState]:
    async def run() -> list[ReplicaState]:
        return [
            state for _ in range(times) for state in await replicas.look({("t", 0): leadership})
        ]

    return asyncio.run(run())


def words(states: list[ReplicaState]) -> list[tuple[int, int, int, str, str]]:
    return [(s.log_end_offset, s.high_watermark, s.leader_epoch, s.role, s.cause) for s in states]


def log_of(*epochs: int) -> dict[str, bytes]:
    return segment(0, *(batch(offset, epoch) for offset, epoch in enumerate(epochs)))


LEADER = Leadership(epoch=3, leaders={3: 1, 2: 2})
FOLLOWER = Leadership(epoch=3, leaders={3: 2, 2: 1})


def test_a_leader_and_its_high_watermark_are_seen() -> None:
    broker = Broker(Files(log_of(0, 0, 3)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    assert look(replicas, LEADER) == [], "one request proves nothing"
    assert words(look(replicas, LEADER)) == [(3, 2, 3, "leader", "load")]
    assert look(replicas, LEADER, 3) == [], "nothing has changed"
    broker.high_watermark = 3
    assert words(look(replicas, LEADER, 2)) == [(3, 3, 3, "leader", "high-watermark")]
    broker.files.data = log_of(0, 0, 3, 3)
    assert words(look(replicas, LEADER)) == [(4, 3, 3, "leader", "observed")]
    assert broker.connections == 1


def test_a_follower_that_stays_in_its_epoch_replicates() -> None:
    broker = Broker(Files(log_of(0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    assert words(look(replicas, FOLLOWER, 2)) == [(2, 2, 3, "follower", "load")]
    broker.files.data = log_of(0, 0, 3)
    assert words(look(replicas, FOLLOWER)) == [(3, 2, 3, "follower", "replicate")]
    broker.epoch = 4
    broker.files.data = log_of(0, 0, 3, 4)
    later = Leadership(epoch=4, leaders={4: 2, 3: 2})
    states = look(replicas, later, 3)
    assert words(states) == [(4, 2, 4, "follower", "observed")], "part of it may be of epoch 3"


def test_a_broker_that_has_not_heard_of_an_election_is_in_the_epoch_before() -> None:
    broker = Broker(Files(log_of(0, 0)), epoch=2, high_watermark=2)
    assert words(look(broker.replicas(), FOLLOWER, 3)) == [(2, 2, 2, "leader", "load")]


def test_a_truncation_is_reported_before_what_came_after_it() -> None:
    broker = Broker(Files(log_of(0, 0, 0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    look(replicas, FOLLOWER, 2)
    broker.files.data = log_of(0, 0, 3, 3)
    assert words(look(replicas, FOLLOWER)) == [
        (2, 2, 3, "follower", "truncate"),
        (4, 2, 3, "follower", "replicate"),
    ]


def test_a_truncation_counts_although_its_reading_was_not_reported() -> None:
    broker = Broker(Files(log_of(0, 0, 0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    look(replicas, FOLLOWER, 2)
    broker.files.data = log_of(0, 0, 3, 3)
    broker.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert look(replicas, FOLLOWER) == []
    broker.error = ErrorCode.NONE
    assert words(look(replicas, FOLLOWER, 2)) == [
        (2, 2, 3, "follower", "truncate"),
        (4, 2, 3, "follower", "replicate"),
    ]


@pytest.mark.parametrize("runs", [True, False])
def test_a_dead_broker_has_no_log_end(runs: bool) -> None:
    """It dies with four records. What its disk holds later must not be reported."""
    broker = Broker(Files(log_of(0, 0, 0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    look(replicas, LEADER, 2)
    broker.is_up, broker.runs = False, runs
    broker.files.data = log_of(0)
    assert look(replicas, LEADER) == [], "the connection has just broken"
    broker.runs = False
    assert look(replicas, LEADER, 3) == []


def test_a_broker_that_starts_shows_its_log_before_it_serves_clients() -> None:
    """It has lost two of four records, and it is elected before it accepts a connection."""
    broker = Broker(Files(log_of(0, 0, 0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    look(replicas, LEADER, 2)
    broker.is_up = False
    broker.files.data = log_of(0, 0)
    look(replicas, LEADER)
    replicas.restarted()
    leaderless = Leadership(epoch=4, leaders={4: -1, 3: 1})
    assert words(look(replicas, leaderless)) == [(2, 0, 4, "follower", "load")]
    broker.is_up, broker.epoch = True, 5
    elected = Leadership(epoch=5, leaders={5: 1, 4: -1})
    assert words(look(replicas, elected, 2)) == [(2, 2, 5, "leader", "role")]


def test_a_log_that_was_cut_and_grew_while_the_broker_started_shows_where() -> None:
    broker = Broker(Files(log_of(0, 0, 0, 0)), epoch=3, high_watermark=2)
    replicas = broker.replicas()
    look(replicas, LEADER, 2)
    broker.is_up = False
    look(replicas, LEADER)
    broker.is_up, broker.epoch = True, 5
    broker.files.data = log_of(0, 0, 5, 5, 5)
    replicas.restarted()
    later = Leadership(epoch=5, leaders={5: 2})
    assert words(look(replicas, later, 2)) == [
        (2, 2, 5, "follower", "load"),
        (5, 2, 5, "follower", "replicate"),
    ]


def test_a_broker_that_cannot_be_observed_has_no_rows() -> None:
    broker = Broker(Files(log_of(0), fails=True), epoch=3)
    assert look(broker.replicas(), LEADER, 3) == []
    assert look(Broker(Files(), epoch=3).replicas(), LEADER, 3) == [], "there is no log"
    frozen = Broker(Files(log_of(0)), epoch=3, runs=False)
    assert look(frozen.replicas(), LEADER, 3) == []
    assert not frozen.connections


def test_a_lower_high_watermark_is_found_again() -> None:
    broker = Broker(Files(log_of(0, 0, 0)), epoch=3, high_watermark=3)
    replicas = broker.replicas()
    look(replicas, FOLLOWER, 2)
    broker.high_watermark = 1
    assert words(look(replicas, FOLLOWER, 4)) == [(3, 1, 3, "follower", "high-watermark")]
