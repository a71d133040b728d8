"""Questions about offsets that a process of the `append` workload asks about records that it has read.

A record that a poll returned was committed, so a leader of the same or a later epoch knows it. Asked for the
timestamp of that record, it names no later offset; asked for the end of the record's epoch, it names a larger
offset. The checker `offset-queries` judges the answers.
"""

from dataclasses import dataclass

from harness.contracts.client import FindsOffsets, PollResult
from harness.contracts.host import RandomStream
from harness.contracts.recorder import Recorder
from harness.history.op import Completion, OffsetQuery, QueryKind, ReadRecord

REMEMBERED = 64
"""How many records a process remembers per partition: enough for all epochs of a short run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A record that a poll returned.

    Attributes:
        op_index: The poll.
        offset, value: The record; `value` is the op index of its append.
        timestamp_ms: Its timestamp.
        batch_epoch: Leader epoch stamped on its batch.
        known_epoch: Leader epoch in which the poll was served.
    """

    op_index: int
    offset: int
    value: int
    timestamp_ms: int
    batch_epoch: int
    known_epoch: int


class OffsetQueries:
    """Remembers records and asks about them. Mutable.

    Args:
        client: The client of the process.
        recorder: Where the answers go.
        random: Draws what is remembered and asked.
    """

    def __init__(self, client: FindsOffsets, recorder: Recorder, random: RandomStream) -> None:
        self._client = client
        self._recorder = recorder
        self._random = random
        self._seen: dict[tuple[str, int], list[Seen]] = {}

    def remember(
        self, key: tuple[str, int], op_index: int, result: PollResult, read: list[ReadRecord]
    ) -> None:
        """Remembers one of the records that a fetch from a leader returned.

        Args:
            key: Topic and partition.
            op_index: The poll.
            result: What was fetched.
            read: The same records, as the history has them.
        """
        epoch = result.completion.leader_epoch
        fetched = [record for batch in result.batches for record in batch.records]
        if epoch < 0 or not fetched:
            return
        place = int(self._random.random() * len(fetched))
        record, known = fetched[place], read[place]
        timestamp_ms = getattr(record, "timestamp_ms", -1)
        if known.status != "ok" or timestamp_ms < 0 or known.leader_epoch < 0:
            return
        seen = Seen(
            op_index=op_index,
            offset=known.offset,
            value=known.value,
            timestamp_ms=timestamp_ms,
            batch_epoch=known.leader_epoch,
            known_epoch=epoch,
        )
        kept = self._seen.setdefault(key, [])
        if len(kept) < REMEMBERED:
            kept.append(seen)
        else:
            kept[int(self._random.random() * REMEMBERED)] = seen

    async def ask(self, key: tuple[str, int], process: int) -> None:
        """Asks about one of the records of a partition; does nothing if none is known."""
        kept = self._seen.get(key)
        if not kept:
            return
        seen = kept[int(self._random.random() * len(kept))]
        is_timestamp = self._random.random() < 0.5
        kind = QueryKind.TIMESTAMP if is_timestamp else QueryKind.LEADER_EPOCH
        await self._ask_about(seen, kind, key, process)

    async def ask_about_newest(
        self, kind: QueryKind, key: tuple[str, int], process: int
    ) -> Completion:
        """Asks about the record of a partition that was remembered last.

        Args:
            kind: What is asked.
            key: Topic and partition, of which a record is known.
            process: Who asks.
        """
        return await self._ask_about(self._seen[key][-1], kind, key, process)

    async def _ask_about(
        self, seen: Seen, kind: QueryKind, key: tuple[str, int], process: int
    ) -> Completion:
        topic, partition = key
        invoked_ns = self._recorder.now_ns()
        if kind is QueryKind.TIMESTAMP:
            asked = seen.timestamp_ms
            answer = await self._client.offset_of_timestamp(topic, partition, asked)
        else:
            asked = seen.batch_epoch
            answer = await self._client.end_of_epoch(topic, partition, asked)
        query = OffsetQuery(
            kind=kind,
            topic=topic,
            partition=partition,
            op_index=seen.op_index,
            record_offset=seen.offset,
            record_value=seen.value,
            known_epoch=seen.known_epoch,
            asked=asked,
            found=answer.found,
            completion=answer.completion,
        )
        self._recorder.offset_query(query, process=process, invoked_ns=invoked_ns)
        return answer.completion
