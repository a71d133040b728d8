"""Anomalies of transactions planted into a copy of a valid history; `table.py` lists them.

A plant changes rows of `transaction_events`. Indexes of events are made four times as large first, so that there
is room for a row between any two.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
SPREAD = 4
INDEXES = ("event_index", "transaction", "value")


class NothingToChangeError(Exception):
    """The history has nothing that a plant could change; the message says what is missing."""


class Transactions:
    """The transactions of a copy. Mutable: its rows.

    Args:
        rows: Rows of `transaction_events`; changed in place.
        clock_error_ns: Largest difference between two clocks of the run.
    """

    def __init__(self, rows: list[Row], *, clock_error_ns: int = 0) -> None:
        self._rows = rows
        self.clock_error_ns = clock_error_ns
        for row in rows:
            for name in INDEXES:
                if row[name] >= 0:
                    row[name] *= SPREAD
        self._of: dict[int, list[Row]] = {}
        for row in sorted(rows, key=lambda row: int(row["event_index"])):
            self._of.setdefault(row["transaction"], []).append(row)

    def rows(self, number: int, event: str) -> list[Row]:
        """Returns the rows of a transaction with an event."""
        return [row for row in self._of[number] if row["event"] == event]

    def committed(self, *needed: str) -> Iterator[int]:
        """Returns the committed transactions that have certain events."""
        for number, rows in self._of.items():
            events = {row["event"] for row in rows}
            if number >= 0 and {"committed", *needed} <= events:
                yield number

    def readers(self) -> Iterator[int]:
        """Returns the polls of readers with read_committed before the final phase, in their order."""
        for number in self.committed("poll"):
            begin = self._of[number][0]
            is_reader = not begin["transactional_id"] and not begin["final"]
            if is_reader and begin["isolation"] == "read_committed":
                yield number

    def dependents(self, *, in_process_order: bool) -> dict[int, set[int]]:
        """Returns which transactions received a record of each transaction.

        Args:
            in_process_order: Whether the next one of its process counts, too.
        """
        writer_of = {
            row["value"]: row["transaction"] for row in self._rows if row["event"] == "send"
        }
        next_of: dict[int, set[int]] = {}
        last_of: dict[int, int] = {}
        for reader, rows in self._of.items():
            for row in rows:
                if row["event"] == "poll" and row["value"] in writer_of:
                    next_of.setdefault(writer_of[row["value"]], set()).add(reader)
            if in_process_order and reader >= 0:
                process = rows[0]["process"]
                if process in last_of:
                    next_of.setdefault(last_of[process], set()).add(reader)
                last_of[process] = reader
        return next_of

    def writer_of(self, row: Row) -> int:
        """Returns the transaction that sent a polled record."""
        return next(
            (one["transaction"] for one in self._rows if self._is_send(one, row["value"])), -1
        )

    @staticmethod
    def _is_send(row: Row, value: int) -> bool:
        return bool(row["event"] == "send" and row["value"] == value)

    def insert_after(self, row: Row, new: Row, **changes: Any) -> None:
        """Inserts a row directly behind another one, as part of its transaction and at its time."""
        if new["event"] == "poll":
            begin = self._of[row["transaction"]][0]
            begin["isolation"] = begin["isolation"] or "read_committed"
        self._rows.append(
            {
                **new,
                "event_index": row["event_index"] + 1,
                "at_ns": row["at_ns"],
                "transaction": row["transaction"],
                "process": row["process"],
                **changes,
            }
        )

    def drop(self, row: Row) -> None:
        """Removes a row."""
        self._rows.remove(row)


def _one(candidates: Iterator[Any], what: str) -> Any:
    found = next(candidates, None)
    if found is None:
        raise NothingToChangeError(f"it has no {what}")
    return found


def _read_records(t: Transactions) -> Iterator[tuple[Row, int, int]]:
    """Returns polled records, who polled them, and who sent them."""
    for reader in t.readers():
        for row in t.rows(reader, "poll"):
            writer = t.writer_of(row)
            if writer in set(t.committed("commit-asked")):
                yield row, reader, writer


def _abort(t: Transactions) -> tuple[int, int]:
    _, reader, writer = _one(_read_records(t), "record that a reader received")
    t.rows(writer, "committed")[0]["event"] = "aborted"
    return reader, writer


def _abort_reader_too(t: Transactions) -> None:
    reader, _ = _abort(t)
    for number in [*t.readers(), reader]:
        for row in t.rows(number, "committed"):
            row["event"] = "aborted"


def _read_early(t: Transactions) -> None:
    row, _, writer = _one(_read_records(t), "record that a reader received")
    t.insert_after(t.rows(writer, "sent")[-1], row, number=10**6)


def _tear(t: Transactions) -> None:
    for writer in t.committed("commit-asked", "send"):
        values = {row["value"] for row in t.rows(writer, "send")}
        finals = [
            row
            for number in t.committed("poll")
            for row in t.rows(number, "poll")
            if row["final"] and row["value"] in values
        ]
        if len(finals) > 1:
            t.drop(finals[-1])
            return
    raise NothingToChangeError("it has no transaction of two records that the final reads returned")


def _polls_of_three(t: Transactions) -> Iterator[list[Row]]:
    for reader in t.readers():
        rows = t.rows(reader, "poll")
        if len(rows) > 2:
            yield rows


def _skip(t: Transactions) -> None:
    rows = _one(_polls_of_three(t), "poll of three records")
    t.drop(rows[1])


def _again(t: Transactions) -> None:
    reader = _one(t.readers(), "record that a reader received")
    row = t.rows(reader, "poll")[-1]
    t.insert_after(row, row)


def _consecutive(t: Transactions) -> Iterator[tuple[list[Row], list[Row]]]:
    """Returns the records of two polls of one reader and one partition, one directly after the other."""
    last: dict[tuple[int, str, int], list[Row]] = {}
    for reader in t.readers():
        rows = t.rows(reader, "poll")
        key = (rows[0]["process"], rows[0]["topic"], rows[0]["partition"])
        if key in last:
            yield last[key], rows
        last[key] = rows


def _skip_between(t: Transactions) -> None:
    pairs = (pair for pair in _consecutive(t) if len(pair[1]) > 1)
    _, later = _one(pairs, "second poll of two records of a reader")
    t.drop(later[0])


def _go_back(t: Transactions) -> None:
    earlier, later = _one(_consecutive(t), "second poll of a reader")
    for name in ("offset", "value"):
        later[0][name] = earlier[0][name]


def _processors(t: Transactions) -> Iterator[int]:
    return t.committed("poll", "offset", "commit-asked")


def _process_twice(t: Transactions) -> None:
    seen: dict[tuple[str, int], Row] = {}
    for number in _processors(t):
        first = t.rows(number, "poll")[0]
        earlier = seen.setdefault((first["topic"], first["partition"]), first)
        if earlier is not first:
            t.insert_after(first, earlier, number=first["number"])
            return
    raise NothingToChangeError("it has no two transactions of a group that consumed one partition")


def _skip_input(t: Transactions) -> None:
    for number in _processors(t):
        rows = t.rows(number, "poll")
        if len(rows) > 1:
            t.drop(rows[-1])
            return
    raise NothingToChangeError("it has no transaction that consumed two records")


def _commit_as_zombie(t: Transactions) -> None:
    number = _one(t.committed("commit-asked", "send"), "transaction that committed")
    begin = t.rows(number, "begin")[0]
    t.insert_after(
        t.rows(number, "sent")[-1],
        {**begin, "event": "initialised", "group": "", "isolation": ""},
        transaction=-1,
        process=10**6,
    )


def _circle(t: Transactions) -> None:
    for number in _processors(t):
        polled = t.rows(number, "poll")[0]
        writer = t.writer_of(polled)
        mine = t.rows(number, "sent")
        if writer >= 0 and mine and mine[0]["offset"] is not None:
            t.insert_after(t.rows(writer, "sent")[-1], {**mine[0], "event": "poll", "status": "ok"})
            return
    raise NothingToChangeError("it has no transaction that consumed and sent a record")


def _reached_from(number: int, next_of: Mapping[int, set[int]]) -> set[int]:
    """Returns a transaction and all that depend on it, directly or through others."""
    found, waiting = {number}, [number]
    while waiting:
        new = next_of.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def _in_turn(t: Transactions, *, same_process: bool) -> tuple[int, int]:
    """Returns a transaction that sent something, and a later one of its process, or of another one.

    Only this order connects them: if the later one depended on the earlier one otherwise, a record that is read
    too early would be an anomaly of another name.
    """
    next_of = t.dependents(in_process_order=not same_process)
    ended: list[tuple[int, int, int]] = []
    for number in sorted(t.committed("commit-asked", "sent")):
        begin = t.rows(number, "begin")[0]
        for earlier, process, at_ns in ended:
            if (process == begin["process"]) != same_process:
                continue
            error_ns = 0 if same_process else t.clock_error_ns
            is_before = at_ns + error_ns < begin["at_ns"]
            if is_before and number not in _reached_from(earlier, next_of):
                return earlier, number
        ended.append((number, begin["process"], t.rows(number, "committed")[0]["at_ns"]))
    raise NothingToChangeError(
        f"it has no two transactions of {'one process' if same_process else 'two processes'}, one after the other,"
        " that nothing else connects"
    )


def _read_ahead(t: Transactions, *, same_process: bool) -> None:
    earlier, later = _in_turn(t, same_process=same_process)
    sent = t.rows(later, "sent")[0]
    t.insert_after(t.rows(earlier, "sent")[-1], {**sent, "event": "poll", "status": "ok"})


def _swap_sends(t: Transactions) -> None:
    for number in t.committed("commit-asked", "sent"):
        rows = t.rows(number, "sent")
        for one, other in pairwise(rows):
            if (one["topic"], one["partition"]) == (other["topic"], other["partition"]):
                one["offset"], other["offset"] = other["offset"], one["offset"]
                return
    raise NothingToChangeError("it has no transaction that sent two records to one partition")


CHANGES: tuple[tuple[str, str, Callable[[Transactions], object]], ...] = (
    ("G1a", "a transaction whose record was read aborted", _abort),
    ("aborted-record-visible", "likewise, and no poll counts as committed", _abort_reader_too),
    ("precommitted-read", "a transaction receives its own record", _read_early),
    ("torn-transaction", "the final reads lack a record of a transaction", _tear),
    ("int-poll-skip", "a poll lacks a record between two others", _skip),
    ("int-nonmonotonic-poll", "a poll returns a record twice", _again),
    ("session-poll-skip", "a poll lacks its first record", _skip_between),
    ("session-nonmonotonic-poll", "a poll returns a record of an earlier one", _go_back),
    ("input-processed-twice", "a transaction consumes a record of an earlier one", _process_twice),
    ("input-skipped", "a transaction did not consume the last record", _skip_input),
    ("zombie-commit", "another producer takes an id over before a commit", _commit_as_zombie),
    ("circular-reads", "two transactions receive records of each other", _circle),
    (
        "circular-reads-process",
        "a transaction receives a record that its process sends later",
        partial(_read_ahead, same_process=True),
    ),
    (
        "circular-reads-realtime",
        "a transaction receives a record that another process sends later",
        partial(_read_ahead, same_process=False),
    ),
    ("int-nonmonotonic-send", "two acknowledgements change places", _swap_sends),
)
"""Anomaly, what is changed, and the function that changes it."""
