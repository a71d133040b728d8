"""The reader of committed metadata against fake controllers that serve recorded logs."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from harness.systems.apache_kafka.metadata_reader import (
    DAMAGED_S,
    STALLED_S,
    Committed,
    MetadataError,
    MetadataReader,
    Snapshot,
    read_snapshot,
)
from harness.systems.apache_kafka.records import DamagedRecordError, read_batches
from system_under_test.metadata.records import NoOpRecord
from system_under_test.protocol.metadata_codec import encode_metadata_batch
from tests.unit.harness.systems.apache_kafka.fake_quorum import (
    Controller,
    Quorum,
    whole_batches,
    with_epoch,
)
from tests.unit.harness.systems.apache_kafka.recorded import VERSIONS, recorded

ROUNDS_MAX = 2000


class Clock:
    """A clock that moves when it is told to. Mutable."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def last_epoch(log: bytes) -> int:
    return whole_batches(log)[-1][2]


def quorum_of(log: bytes, high_watermark: int) -> Quorum:
    """Three controllers with one log; the first one leads in the epoch of its last batch."""
    quorum = Quorum({n: Controller(log=log, high_watermark=high_watermark) for n in (11, 12, 13)})
    quorum.epoch = last_epoch(log)
    return quorum


def records_of(parts: list[Any]) -> list[tuple[int, int, Any]]:
    """Returns offset, epoch and record of everything new that was read."""
    return [
        (offset, batch.epoch, record)
        for part in parts
        if isinstance(part, Committed)
        for batch in part.batches
        for offset, record in enumerate(batch.records, batch.base_offset)
        if part.first <= offset < part.end
    ]


def expected_records(log: bytes, start: int, end: int) -> list[tuple[int, int, Any]]:
    return [
        (offset, batch.epoch, record)
        for batch in read_batches(log)
        for offset, record in enumerate(batch.records, batch.base_offset)
        if start <= offset < end
    ]


def read_until(
    quorum: Quorum,
    end: int,
    *,
    clock: Clock | None = None,
    each: Callable[[MetadataReader], None] = lambda _: None,
) -> list[Any]:
    """Reads until an offset; `each` is called before every round."""

    async def run() -> list[Any]:
        reader = MetadataReader(quorum.addresses, quorum, clock_s=clock or Clock())
        parts = []
        for _ in range(ROUNDS_MAX):
            if reader.offset >= end:
                break
            each(reader)
            part = await reader.read()
            if part is not None:
                parts.append(part)
        reader.close()
        assert reader.offset == end, f"read up to {reader.offset} of {end}"
        return parts

    return asyncio.run(run())


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_committed_record_is_read_once_and_in_order(version: str, bytes_max: int) -> None:
    log = recorded(version)
    quorum = quorum_of(log.log, log.end)
    quorum.leader = 13
    quorum.controllers[13].bytes_max = bytes_max
    parts = read_until(quorum, log.end)
    assert records_of(parts) == expected_records(log.log, 0, log.end)


def dates(committed: dict[float, int], *, elected_s: float) -> list[tuple[int, float]]:
    """Returns up to where the parts that were read go, and since when each may have been committed.

    Every read is a quarter of a second after the one before it.

    Args:
        committed: The high watermark from some moments on.
        elected_s: When another controller leads.
    """
    log = recorded("4.0.2")
    quorum, clock = quorum_of(log.log, 0), Clock()

    def later(_: MetadataReader) -> None:
        clock.now_s += 0.25
        for controller in quorum.controllers.values():
            controller.high_watermark = committed.get(clock.now_s, controller.high_watermark)
        if clock.now_s == elected_s:
            quorum.leader, quorum.epoch = 13, quorum.epoch + 1

    parts = read_until(quorum, log.end, clock=clock, each=later)
    return [(part.end, part.after_s) for part in parts if isinstance(part, Committed)]


def test_what_was_read_was_not_committed_when_the_log_ended_before_it() -> None:
    """What another controller commits, the reader hears later."""
    end = recorded("4.0.2").end
    found = dates({1.0: 2, 1.5: 4, 2.25: end}, elected_s=2.0)
    assert found == [(2, 0.75), (4, 1.25), (end, 1.25)]


def test_a_new_controller_that_does_not_know_what_is_committed_dates_nothing() -> None:
    """The old one committed the rest after 1.25, when the reader asked it for the last time."""
    end = recorded("4.0.2").end
    found = dates({1.0: 2, 1.5: -1, 2.0: end}, elected_s=1.5)
    assert found == [(2, 0.75), (end, 0.75)]


def test_nothing_is_known_of_when_the_first_records_were_committed() -> None:
    log = recorded("4.0.2")
    clock = Clock()
    clock.now_s = 7.0
    (part,) = read_until(quorum_of(log.log, log.end), log.end, clock=clock)
    assert isinstance(part, Committed)
    assert part.after_s == 0.0


@pytest.mark.parametrize(("served", "spoken"), [((0, 13), 13), ((0, 15), 15), ((4, 18), 17)])
def test_the_version_of_fetch_is_negotiated(served: tuple[int, int], spoken: int) -> None:
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, log.end)
    for controller in quorum.controllers.values():
        controller.versions = served
    read_until(quorum, log.end)
    versions = {
        type(r).__version__ for r in quorum.controllers[11].requests if type(r).__api_key__ == 1
    }
    assert versions == {spoken}


def test_records_above_the_high_watermark_are_not_committed() -> None:
    log = recorded("4.0.2")
    quorum = quorum_of(log.log, 0)

    def commit_one_more(reader: MetadataReader) -> None:
        assert reader.offset <= quorum.controllers[11].high_watermark
        quorum.controllers[11].high_watermark += 1

    parts = read_until(quorum, log.end, each=commit_one_more)
    assert len(parts) > log.end - 5
    assert records_of(parts) == expected_records(log.log, 0, log.end)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fail_over_leaves_no_gap_and_repeats_nothing(version: str) -> None:
    log = recorded(version)
    quorum = quorum_of(log.log, log.end)
    draw = random.Random(version)
    for controller in quorum.controllers.values():
        controller.bytes_max = 1

    def fail_over(_: MetadataReader) -> None:
        if draw.random() < 0.1:
            quorum.leader = draw.choice((11, 12, 13))
            quorum.epoch += 1
        for number, controller in quorum.controllers.items():
            controller.is_up = number == quorum.leader or draw.random() < 0.7
            controller.is_frozen = number != quorum.leader and draw.random() < 0.3

    parts = read_until(quorum, log.end, each=fail_over)
    assert records_of(parts) == expected_records(log.log, 0, log.end)
    assert quorum.epoch > last_epoch(log.log)


def test_a_leader_without_a_majority_is_left_for_one_of_a_newer_epoch() -> None:
    """Controller 11 believes that it leads and commits nothing; 12 leads in a newer epoch."""
    log = recorded("3.6.2")
    old = Quorum({11: Controller(log=log.log, high_watermark=10)})
    old.epoch = last_epoch(log.log)
    new = quorum_of(log.log, log.end)
    new.leader, new.epoch = 12, old.epoch + 1
    clock = Clock()

    class Divided:
        async def connect(self, address: str, timeout_ms: float) -> Any:
            return await (old if address.startswith("11:") else new).connect(address, timeout_ms)

    async def run() -> tuple[list[Any], int]:
        reader = MetadataReader(new.addresses, Divided(), clock_s=clock)
        parts: list[Any] = []
        for _ in range(ROUNDS_MAX):
            if reader.offset == log.end:
                break
            part = await reader.read()
            parts += [] if part is None else [part]
            clock.now_s += STALLED_S / 4
        reader.close()
        return parts, reader.leader_id

    parts, leader = asyncio.run(run())
    assert records_of(parts) == expected_records(log.log, 0, log.end)
    assert leader == 12


@pytest.mark.parametrize("bytes_max", [100, 1 << 20])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_was_cut_begins_with_its_snapshot(version: str, bytes_max: int) -> None:
    log = recorded(version)
    end, epoch, data = log.snapshot
    quorum = quorum_of(log.log, log.end)
    for controller in quorum.controllers.values():
        controller.start, controller.snapshot, controller.bytes_max = end, log.snapshot, bytes_max
    snapshot, *parts = read_until(quorum, log.end)
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.end.end_offset, snapshot.end.epoch, snapshot.data) == (end, epoch, data)
    assert records_of(parts) == expected_records(log.log, end, log.end)


def test_a_snapshot_that_is_deleted_meanwhile_is_read_again_from_another_controller() -> None:
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, log.end)
    for controller in quorum.controllers.values():
        controller.start, controller.bytes_max = log.snapshot[0], 100
    rounds = 0

    def appear(_: MetadataReader) -> None:
        nonlocal rounds
        rounds += 1
        for controller in quorum.controllers.values():
            controller.snapshot = log.snapshot if rounds > 3 else (log.snapshot[0], 1, b"")

    parts = read_until(quorum, log.end, each=appear)
    assert isinstance(parts[0], Snapshot)
    assert rounds > 3


def test_a_log_that_differs_below_what_was_committed_is_a_violation() -> None:
    log = recorded("4.1.2")
    batches = whole_batches(log.log)
    middle = len(batches) // 2
    quorum = quorum_of(log.log, batches[middle][0])

    def diverge(reader: MetadataReader) -> None:
        if reader.offset == batches[middle][0]:
            newer = [with_epoch(batch[3], 50) for batch in batches[middle - 1 :]]
            controller = quorum.controllers[12]
            controller.log = b"".join([*(batch[3] for batch in batches[: middle - 1]), *newer])
            controller.high_watermark = log.end
            quorum.leader, quorum.epoch = 12, 50

    with pytest.raises(MetadataError, match="differs from committed metadata") as caught:
        read_until(quorum, log.end, each=diverge)
    assert caught.value.invariant == "INV-5"
    assert caught.value.node_id == 12


def test_a_batch_that_is_not_the_next_one_is_refused() -> None:
    log = recorded("4.1.2")
    batches = whole_batches(log.log)
    without = b"".join(batch[3] for batch in [*batches[:5], *batches[6:]])
    quorum = quorum_of(without, log.end)
    clock = Clock()

    def wait(reader: MetadataReader) -> None:
        clock.now_s += STALLED_S / 2

    with pytest.raises(MetadataError, match=f"where offset {batches[5][0]} was expected") as caught:
        read_until(quorum, log.end, clock=clock, each=wait)
    assert not caught.value.invariant


def test_damaged_records_are_read_once_a_controller_sends_them_intact() -> None:
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, log.end)
    damaged = bytearray(log.log)
    damaged[len(damaged) // 2] ^= 4
    quorum.controllers[11].log = bytes(damaged)
    rounds = 0

    def fail_over(_: MetadataReader) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            quorum.leader, quorum.epoch = 12, quorum.epoch + 1

    parts = read_until(quorum, log.end, each=fail_over)
    assert records_of(parts) == expected_records(log.log, 0, log.end)


@pytest.mark.parametrize(
    "version",
    [*(pytest.param(one, marks=pytest.mark.long) for one in VERSIONS[:-1]), VERSIONS[-1]],
)
def test_a_flipped_bit_never_gives_other_offsets(version: str) -> None:
    """What is read is a prefix of the log, record by record; at most epochs of batches may be wrong."""
    log = recorded(version)
    expected = [(offset, record) for offset, _, record in expected_records(log.log, 0, log.end)]
    draw = random.Random(version)

    async def run(data: bytes) -> list[Any]:
        clock = Clock()
        quorum = quorum_of(log.log, log.end)
        quorum.controllers[11].log = data
        reader = MetadataReader({11: "11:1"}, quorum, clock_s=clock)
        parts: list[Any] = []
        with contextlib.suppress(MetadataError):
            while reader.offset < log.end:
                part = await reader.read()
                clock.now_s += DAMAGED_S / 4
                parts += [] if part is None else [part]
        return parts

    for _ in range(15):
        flipped = bytearray(log.log)
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        found = [
            (offset, record) for offset, _, record in records_of(asyncio.run(run(bytes(flipped))))
        ]
        assert found == expected[: len(found)]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_incomplete_snapshot_is_refused(version: str) -> None:
    data = recorded(version).snapshot[2]
    assert read_snapshot(data)
    for end in range(0, len(data) - 1, 13):
        with pytest.raises(DamagedRecordError):
            read_snapshot(data[:end])


def test_a_controller_that_commits_nothing_new_is_waited_for_without_requests_in_a_row() -> None:
    """Nothing is committed: every round is one request, and the pauses between rounds become longer."""
    log = encode_metadata_batch([NoOpRecord()], timestamp_ms=1, base_offset=0, quorum_epoch=1)
    quorum = quorum_of(log, 0)

    async def run() -> int:
        reader = MetadataReader(quorum.addresses, quorum, clock_s=Clock())
        for _ in range(6):
            assert await reader.read() is None
        return len(quorum.controllers[11].requests)

    assert asyncio.run(run()) == 7  # one of them is ApiVersions
