"""What a workload writes its history to."""

from collections.abc import Sequence
from typing import Protocol

from harness.history.op import Completion, OffsetQuery, ReadRecord


class Recorder(Protocol):
    """Takes invocations and completions, stamped with the one clock of the run."""

    def now_ns(self) -> int:
        """Returns nanoseconds since the start of the run."""
        ...

    def invoke(
        self,
        *,
        process: int,
        kind: str,
        topic: str,
        partition: int,
        acks: int = 0,
        sequence: int = -1,
        key: str = "",
        position: int = -1,
        final: bool = False,
        batch: int | None = None,
    ) -> int:
        """Records that an operation is about to leave the process; returns its op index.

        The arguments are columns of the table `operations`.
        """
        ...

    def complete(
        self, op_index: int, completion: Completion, records: Sequence[ReadRecord] = ()
    ) -> None:
        """Records how it ended."""
        ...

    def offset_query(self, query: OffsetQuery, *, process: int, invoked_ns: int) -> None:
        """Records a question about offsets (table `offset_queries`), which ends now."""
        ...

    def group_event(
        self,
        *,
        group: str,
        process: int,
        topic: str,
        partition: int,
        event: str,
        offset: int = -1,
        refers_to: int = -1,
        generation: int = -1,
    ) -> int:
        """Records an event of a consumer group (table `group_events`); returns its event index."""
        ...

    def transaction_event(
        self,
        *,
        transaction: int,
        process: int,
        event: str,
        number: int = -1,
        transactional_id: str = "",
        group: str = "",
        isolation: str = "",
        topic: str = "",
        partition: int = -1,
        offset: int | None = None,
        value: int = -1,
        status: str = "",
        error_code: int | None = 0,
        error: str = "",
        final: bool = False,
    ) -> int:
        """Records an event of a transaction (table `transaction_events`).

        Returns:
            Its event index: the number of the transaction for a begin, the value of the record for a send.
        """
        ...
