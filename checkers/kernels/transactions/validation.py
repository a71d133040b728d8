"""What the table `transaction_events` must hold before it is judged; `checkers.kernels.validation` calls it.

A system can lose, repeat and invent records, and acknowledge what it likes. It cannot make the harness record an
event of a transaction that did not begin, a second end, or a time before that of the event before it.
"""

import numpy as np
import pyarrow as pa

from checkers.kernels.history import ABSENT, I64, OFFSET_MAX, Bools, lookup
from checkers.kernels.refusals import (
    check_times,
    check_words,
    int_column,
    refuse,
    refuse_back_in_time,
    refuse_below,
    refuse_beyond,
    refuse_repeated,
    text_column,
)
from harness.history.op import TransactionEvent

ISOLATIONS = ("", "read_committed", "read_uncommitted")
STATUSES = ("", "ok", "corrupt", "foreign")
OF_NO_TRANSACTION = (TransactionEvent.INITIALISED, TransactionEvent.NOT_INITIALISED)
ENDS = (TransactionEvent.COMMITTED, TransactionEvent.ABORTED, TransactionEvent.UNKNOWN)


def check_transaction_events(events: pa.Table, where: str) -> None:
    """Checks the rows of `transaction_events`.

    Args:
        events: All rows of a run, in any order.
        where: What the table is called.

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    index = int_column(events, "event_index")
    refuse_beyond(events, "event_index", 0, OFFSET_MAX, where)
    refuse_repeated(index, "event_index", where)
    check_times(events, "at_ns", where)
    check_words(events, "event", tuple(TransactionEvent), where)
    check_words(events, "isolation", ISOLATIONS, where)
    check_words(events, "status", STATUSES, where)
    refuse_below(events, "partition", -1, where)
    word = np.array(text_column(events, "event").to_pylist(), dtype=object)
    order = np.argsort(index, kind="stable")
    refuse_back_in_time(index, int_column(events, "at_ns"), where)
    _check_membership(events, index, word, where)
    _check_begins(events, word, where)
    _check_values(events, index, word, where)
    transaction = int_column(events, "transaction")
    _check_ends(transaction, word, order, where)
    _check_acknowledgements(events, word, order, where)
    _check_requests(events, transaction, word, order, where)


def _check_membership(events: pa.Table, index: I64, word: I64, where: str) -> None:
    """Checks that every event belongs to a transaction of its process that began before."""
    transaction, process = int_column(events, "transaction"), int_column(events, "process")
    begins = np.flatnonzero(word == TransactionEvent.BEGIN)
    begins = begins[np.argsort(index[begins], kind="stable")]
    at = lookup(index[begins])(transaction)
    process_of = np.append(process[begins], -1)[at]
    is_bad = (at < 0) | (process_of != process) | (transaction > index)
    is_bad |= (word == TransactionEvent.BEGIN) & (transaction != index)
    is_none = np.isin(word, OF_NO_TRANSACTION)
    is_bad = np.where(is_none, transaction != -1, is_bad)
    refuse(
        is_bad,
        where,
        lambda row: (
            f"transaction is {transaction[row]}; it is the event_index of an earlier begin of process"
            f" {process[row]}, or -1 for initialised and not-initialised"
        ),
    )


def _check_begins(events: pa.Table, word: I64, where: str) -> None:
    """Checks that transactions that write have an id, and that those that receive records have an isolation."""
    transaction = int_column(events, "transaction")
    identifier, isolation = (
        np.array(text_column(events, name).to_pylist(), dtype=object)
        for name in ("transactional_id", "isolation")
    )
    begins = word == TransactionEvent.BEGIN
    without_id = transaction[begins & (identifier == "")]
    without_level = transaction[begins & (isolation == "")]
    writes = np.isin(word, (TransactionEvent.SEND, TransactionEvent.OFFSET))
    refuse(
        writes & np.isin(transaction, without_id),
        where,
        lambda row: (
            f"{word[row]} belongs to transaction {transaction[row]}, which began without a transactional_id"
        ),
    )
    refuse(
        (word == TransactionEvent.POLL) & np.isin(transaction, without_level),
        where,
        lambda row: (
            f"poll belongs to transaction {transaction[row]}, which began without an isolation"
        ),
    )


def _check_values(events: pa.Table, index: I64, word: I64, where: str) -> None:
    """Checks the values and offsets of records, and that an acknowledgement has its send."""
    value, transaction = int_column(events, "value"), int_column(events, "transaction")
    sends = np.flatnonzero(word == TransactionEvent.SEND)
    sends = sends[np.argsort(index[sends], kind="stable")]
    at = lookup(index[sends])(value)
    of_send = np.append(transaction[sends], -1)[at]
    is_bad = (word == TransactionEvent.SEND) & (value != index)
    is_bad |= (word == TransactionEvent.SENT) & (
        (at < 0) | (of_send != transaction) | (value > index)
    )
    status = np.array(text_column(events, "status").to_pylist(), dtype=object)
    is_bad |= (word == TransactionEvent.POLL) & ((status == "ok") != (value >= 0))
    refuse(
        is_bad,
        where,
        lambda row: (
            f"value is {value[row]}; that of a send is its event_index, that of sent an earlier send of the"
            " transaction, and that of a poll is not negative exactly if its status is ok"
        ),
    )
    is_known = events.column("offset").is_valid().to_numpy()
    offset: I64 = events.column("offset").fill_null(0).to_numpy()
    is_position: Bools = word == TransactionEvent.OFFSET
    needs: Bools = (word == TransactionEvent.POLL) | is_position
    # A broker may report any offset of a record; positions are what a client asked to commit.
    is_bad = (needs & ~is_known) | (is_position & ((offset < 0) | (offset > OFFSET_MAX)))
    # Where no offset is known it is null.
    is_bad |= (word == TransactionEvent.SENT) & (offset == ABSENT)
    refuse(
        is_bad,
        where,
        lambda row: f"offset of {word[row]} is {offset[row] if is_known[row] else 'null'}",
    )


def _check_acknowledgements(events: pa.Table, word: I64, order: I64, where: str) -> None:
    """Checks that a send is acknowledged once, in the partition that it named."""
    value, partition = int_column(events, "value"), int_column(events, "partition")
    topic = np.array(text_column(events, "topic").to_pylist(), dtype=object)
    sends = order[word[order] == TransactionEvent.SEND]
    acknowledged = order[word[order] == TransactionEvent.SENT]
    send = sends[lookup(value[sends])(value[acknowledged])]
    is_bad = np.zeros(len(word), dtype=np.bool_)
    is_bad[acknowledged] = (topic[send] != topic[acknowledged]) | (
        partition[send] != partition[acknowledged]
    )
    _, first = np.unique(value[acknowledged], return_index=True)
    is_bad[np.delete(acknowledged, first)] = True
    refuse(
        is_bad,
        where,
        lambda row: (
            f"sent of value {value[row]} in {topic[row]}-{partition[row]} is a second one, or names another"
            " partition than its send"
        ),
    )


def _check_requests(events: pa.Table, transaction: I64, word: I64, order: I64, where: str) -> None:
    """Checks that producers commit what they asked to commit, and send nothing after they asked."""
    asked: dict[int, str] = {}
    identifier = text_column(events, "transactional_id").to_pylist()
    producers = {
        number for number, name in zip(transaction.tolist(), identifier, strict=True) if name
    }
    is_bad = np.zeros(len(word), dtype=np.bool_)
    for row in order.tolist():
        number, event = int(transaction[row]), word[row]
        if event in (TransactionEvent.COMMIT_ASKED, TransactionEvent.ABORT_ASKED):
            asked.setdefault(number, event)
        elif event == TransactionEvent.SEND:
            is_bad[row] = number in asked
        elif event == TransactionEvent.COMMITTED and number in producers:
            is_bad[row] = asked.get(number) != TransactionEvent.COMMIT_ASKED
    refuse(
        is_bad,
        where,
        lambda row: (
            f"{word[row]} of transaction {transaction[row]}: a producer sends before it asks for the end, and"
            " only a commit that was asked for can succeed"
        ),
    )


def _check_ends(transaction: I64, word: I64, order: I64, where: str) -> None:
    """Checks that nothing belongs to a transaction after its end."""
    rows = order[~np.isin(word[order], OF_NO_TRANSACTION)]
    rows = rows[np.argsort(transaction[rows], kind="stable")]
    is_late = np.zeros(len(word), dtype=np.bool_)
    follows = np.diff(transaction[rows]) == 0
    is_late[rows[1:]] = follows & np.isin(word[rows[:-1]], ENDS)
    refuse(
        is_late,
        where,
        lambda row: f"transaction {transaction[row]} had ended before this event",
    )
