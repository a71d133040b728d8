"""What one process records of its transactions in the table `transaction_events`."""

from collections.abc import Sequence

from harness.contracts.client import PollResult, ProducedBatch
from harness.contracts.recorder import Recorder
from harness.contracts.transactions import Key, Offsets
from harness.history.op import Completion, ReadRecord, TransactionEvent
from workloads.values import encode_value, records_of


class RecordedTransaction:
    """One transaction while it goes on. Mutable: how many micro-operations it has.

    Making it records its begin.

    Args:
        recorder: Where the rows go.
        run_id: Part of every payload.
        process: Who runs it.
        transactional_id: Of its producer; empty if it only polls.
        group: Whose positions it commits; empty for none.
        isolation: Of its polls.
        final: Whether it belongs to the final phase.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        run_id: int,
        process: int,
        transactional_id: str = "",
        group: str = "",
        isolation: str = "",
        final: bool = False,
    ) -> None:
        self._recorder = recorder
        self._run_id = run_id
        self._process = process
        self._final = final
        self._number = 0
        self._sequence = 0
        self._sent: dict[int, list[tuple[Key, int, int]]] = {}
        self.last_offsets: dict[Key, int] = {}
        """The largest offset that was acknowledged, by partition."""
        self._transaction = recorder.transaction_event(
            transaction=-1,
            process=process,
            event=TransactionEvent.BEGIN,
            transactional_id=transactional_id,
            group=group,
            isolation=isolation,
            final=final,
        )

    def batches(self, counts: Sequence[tuple[Key, int]]) -> list[ProducedBatch]:
        """Returns batches of new records and records their sends; to be called before they can leave.

        Args:
            counts: Partitions, and how many records each is sent.
        """
        self._sent = {}
        return [self._batch(index, key, count) for index, (key, count) in enumerate(counts)]

    def _batch(self, index: int, key: Key, count: int) -> ProducedBatch:
        topic, partition = key
        records = []
        for _ in range(count):
            number = self._next_number()
            value = self._note(
                TransactionEvent.SEND, number=number, topic=topic, partition=partition
            )
            self._sent.setdefault(index, []).append((key, number, value))
            payload = encode_value(
                run_id=self._run_id,
                process=self._process,
                sequence=number,
                op_index=value,
                topic=topic,
                partition=partition,
            )
            records.append((f"k{value % 16}".encode(), payload))
        return ProducedBatch(topic=topic, partition=partition, records=tuple(records))

    def delivered(self, index: int, offsets: Offsets) -> None:
        """Records which records of a batch were acknowledged, and where they are."""
        for place, offset in sorted(offsets.items()):
            (topic, partition), number, value = self._sent[index][place]
            if offset is not None:
                self.last_offsets[(topic, partition)] = offset
            self._note(
                TransactionEvent.SENT,
                number=number,
                topic=topic,
                partition=partition,
                offset=offset,
                value=value,
            )

    def polled(self, key: Key, result: PollResult) -> list[ReadRecord]:
        """Records what a poll returned, and returns it."""
        topic, partition = key
        records = records_of(result, run_id=self._run_id, topic=topic, partition=partition)
        number = self._next_number()
        for record in records:
            self._note(
                TransactionEvent.POLL,
                number=number,
                topic=topic,
                partition=partition,
                offset=record.offset,
                value=record.value,
                status=record.status,
            )
        return records

    def position(self, key: Key, offset: int) -> None:
        """Records that a position is about to become part of the transaction."""
        topic, partition = key
        self._note(
            TransactionEvent.OFFSET,
            number=self._next_number(),
            topic=topic,
            partition=partition,
            offset=offset,
        )

    def commit_asked(self) -> None:
        """Records that the commit is about to be requested."""
        self._note(TransactionEvent.COMMIT_ASKED)

    def abort_asked(self) -> None:
        """Records that the abort is about to be requested."""
        self._note(TransactionEvent.ABORT_ASKED)

    def end(self, event: TransactionEvent, completion: Completion | None = None) -> None:
        """Records how it ended; `completion` has the error, if there was one."""
        if completion is None:
            self._note(event)
        else:
            self._note(event, error_code=completion.error_code, error=completion.error)

    def _next_number(self) -> int:
        self._number += 1
        return self._number - 1

    def _note(
        self,
        event: TransactionEvent,
        *,
        number: int = -1,
        topic: str = "",
        partition: int = -1,
        offset: int | None = None,
        value: int = -1,
        status: str = "",
        error_code: int | None = 0,
        error: str = "",
    ) -> int:
        return self._recorder.transaction_event(
            transaction=self._transaction,
            process=self._process,
            event=event,
            number=number,
            topic=topic,
            partition=partition,
            offset=offset,
            value=value,
            status=status,
            error_code=error_code,
            error=error,
            final=self._final,
        )
