"""The table `transaction_events` as transactions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    MicroOperation,
    Poll,
    Transaction,
)
from harness.history.op import TransactionEvent

READ_UNCOMMITTED = "read_uncommitted"
TRUSTED = "ok"


@dataclass(slots=True, kw_only=True)
class Recorded:
    """One transaction as it was recorded. Mutable while the events are read.

    Attributes:
        begin: Row of its begin.
        sends: Rows of its sends, by value.
        acknowledged: Rows of acknowledgements, by value.
        polls: Rows of polled records.
        positions: Rows of committed positions.
        asked: Row of the request to commit, if there is one.
        end: Row of its end, if there is one.
    """

    begin: Mapping[str, Any]
    sends: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    acknowledged: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    polls: list[Mapping[str, Any]] = field(default_factory=list)
    positions: list[Mapping[str, Any]] = field(default_factory=list)
    asked: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None

    @property
    def outcome(self) -> str:
        """How it ended, as `columns.OUTCOMES` names it; unknown if it did not."""
        return "unknown" if self.end is None else str(self.end["event"])

    @property
    def is_uncommitted_read(self) -> bool:
        """Whether it polls with isolation.level=read_uncommitted."""
        return bool(self.begin["isolation"] == READ_UNCOMMITTED)

    @property
    def is_write(self) -> bool:
        """Whether it sent records or positions; all others only polled."""
        return bool(self.sends or self.positions)

    def offset_of(self, value: int) -> int | None:
        """Returns the offset with which a send was acknowledged; None if there is none."""
        row = self.acknowledged.get(value)
        return None if row is None else row["offset"]


def recorded_transactions(events: pa.Table) -> list[Recorded]:
    """Returns the transactions of a run in the order in which they began.

    Args:
        events: Valid rows of `transaction_events`, in any order.
    """
    found: dict[int, Recorded] = {}
    for row in sorted(events.to_pylist(), key=lambda row: int(row["event_index"])):
        event = row["event"]
        if event == TransactionEvent.BEGIN:
            found[row["transaction"]] = Recorded(begin=row)
            continue
        one = found.get(row["transaction"])
        if one is None:
            continue  # it belongs to none
        if event == TransactionEvent.SEND:
            one.sends[row["value"]] = row
        elif event == TransactionEvent.SENT:
            one.acknowledged[row["value"]] = row
        elif event == TransactionEvent.POLL:
            one.polls.append(row)
        elif event == TransactionEvent.OFFSET:
            one.positions.append(row)
        elif event == TransactionEvent.COMMIT_ASKED:
            one.asked = row
        elif event != TransactionEvent.ABORT_ASKED:
            one.end = row
    return list(found.values())


def as_transactions(recorded: Iterable[Recorded], *, has_final_reads: bool) -> list[Transaction]:
    """Returns recorded transactions as those that the kernels judge.

    Args:
        recorded: The transactions.
        has_final_reads: Whether the reads of the final phase are complete. If not, they are reads like others.
    """
    recorded = list(recorded)
    groups = sorted({str(one.begin["group"]) for one in recorded})
    number_of = {group: number for number, group in enumerate(groups)}
    return [
        _transaction(one, number_of[one.begin["group"]], has_final_reads=has_final_reads)
        for one in recorded
    ]


def _transaction(one: Recorded, group: int, *, has_final_reads: bool) -> Transaction:
    begin = one.begin
    return Transaction(
        id=begin["transaction"],
        ops=_micro_operations(one),
        process=begin["process"],
        invoked_ns=begin["at_ns"],
        completed_ns=None if one.end is None else one.end["at_ns"],
        commit_invoked_ns=None if one.asked is None else one.asked["at_ns"],
        ended_event=None if one.end is None else one.end["event_index"],
        outcome=one.outcome,
        group=group if begin["group"] else None,
        is_final=(
            bool(begin["final"])
            and has_final_reads
            and not (one.is_write or one.is_uncommitted_read)
        ),
    )


def _micro_operations(one: Recorded) -> tuple[MicroOperation, ...]:
    parts: list[tuple[int, MicroOperation]] = [
        (row["number"], Append(_key(row), value, one.offset_of(value)))
        for value, row in one.sends.items()
    ]
    parts += [(row["number"], CommitOffset(_key(row), row["offset"])) for row in one.positions]
    polled: dict[int, list[tuple[int | str, int, int | str]]] = {}
    for row in one.polls:
        polled.setdefault(row["number"], []).append((_key(row), row["offset"], _value(row)))
    parts += [(number, Poll(tuple(records))) for number, records in polled.items()]
    return tuple(part for _, part in sorted(parts, key=lambda part: part[0]))


def records_from(recorded: Sequence[Recorded], first: int) -> list[Recorded]:
    """Returns what was recorded of records at an offset, and at those after it.

    What is known of a record at an earlier offset, or at an unknown one, is left out.

    Args:
        recorded: All transactions of a run.
        first: The offset.
    """
    lowest: dict[int, int] = {}
    for one in recorded:
        for row in (*one.acknowledged.values(), *one.polls):
            if row["offset"] is not None:
                lowest[row["value"]] = min(row["offset"], lowest.get(row["value"], row["offset"]))
    return [
        replace(
            one,
            sends={
                value: row for value, row in one.sends.items() if lowest.get(value, -1) >= first
            },
            polls=[row for row in one.polls if row["offset"] >= first],
        )
        for one in recorded
    ]


def without_polls(transaction: Transaction) -> Transaction:
    """Returns a transaction with what it wrote only."""
    return replace(
        transaction, ops=tuple(op for op in transaction.ops if isinstance(op, Append)), group=None
    )


def _key(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def _value(row: Mapping[str, Any]) -> int | str:
    # What no transaction wrote must not look like the value of one.
    return row["value"] if row["status"] == TRUSTED else f"a {row['status']} record"
