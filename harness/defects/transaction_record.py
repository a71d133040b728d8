"""Records the transactions of a story as the workload `transactions` does, so its checker judges them.

Payloads of records name their transaction, as in every run; a story calls each record by a word.
"""

from collections.abc import Iterable

from harness.contracts.client import FetchedBatch, PlainRecord, PollResult
from harness.contracts.recorder import Recorder
from harness.contracts.transactions import READ_COMMITTED, Key
from harness.history.op import Completion, Outcome, TransactionEvent
from workloads.append import ProcessIds
from workloads.transaction_log import RecordedTransaction

OK = Completion(outcome=Outcome.OK)


class TransactionRecord:
    """Records the transactions of one story. Mutable: which words the payloads stand for.

    Args:
        recorder: Where the rows go.
        run_id: Part of every payload.
        ids: Process numbers, shared by the whole run.

    Attributes:
        transactional_ids: Of the producers so far, in the order of their first use.
    """

    def __init__(self, recorder: Recorder, *, run_id: int, ids: ProcessIds) -> None:
        self._recorder = recorder
        self._run_id = run_id
        self._ids = ids
        self._words: dict[bytes, bytes] = {}
        self.transactional_ids: dict[str, None] = {}

    def initialised(self, transactional_id: str) -> int:
        """Records that a producer took a transactional id over; returns its process number."""
        process = self._ids.take()
        self.transactional_ids[transactional_id] = None
        self._recorder.transaction_event(
            transaction=-1,
            process=process,
            event=TransactionEvent.INITIALISED,
            transactional_id=transactional_id,
        )
        return process

    def begin(
        self, process: int, transactional_id: str, group: str = "", *, final: bool = False
    ) -> RecordedTransaction:
        """Records that a producer begins a transaction.

        Args:
            process: Of the producer.
            transactional_id: Of the producer.
            group: Whose positions the transaction commits; empty for none.
            final: Whether everything is healed.
        """
        return RecordedTransaction(
            self._recorder,
            run_id=self._run_id,
            process=process,
            transactional_id=transactional_id,
            group=group,
            isolation=READ_COMMITTED if group else "",
            final=final,
        )

    def begin_read(self, *, final: bool) -> RecordedTransaction:
        """Records that a new read_committed consumer polls.

        Args:
            final: Whether it is one of the closing reads.
        """
        return RecordedTransaction(
            self._recorder,
            run_id=self._run_id,
            process=self._ids.take(),
            isolation=READ_COMMITTED,
            final=final,
        )

    def payload(self, recorded: RecordedTransaction, key: Key, word: bytes) -> bytes:
        """Records that a transaction sends a record; returns the payload of the record."""
        ((_, payload),) = recorded.batches([(key, 1)])[0].records
        self._words[payload] = word
        return payload

    def polled(
        self, recorded: RecordedTransaction, key: Key, records: Iterable[tuple[int, bytes]]
    ) -> list[bytes]:
        """Records what a transaction polled; returns the words of the records.

        Args:
            recorded: The transaction.
            key: Topic and partition.
            records: Offsets and payloads.
        """
        found = tuple(PlainRecord(offset, None, payload) for offset, payload in records)
        batch = FetchedBatch(leader_epoch=-1, records=found)
        recorded.polled(key, PollResult(completion=OK, batches=(batch,)))
        return [self.word_of(record.value or b"") for record in found]

    def word_of(self, payload: bytes) -> bytes:
        """Returns the word of a payload; the payload itself if no transaction was recorded to have sent it."""
        return self._words.get(payload, payload)
