"""What the order of recorded events shows beyond the times of whole transactions.

The kernels know when a transaction began and ended. The table `transaction_events` also has when each record was
sent, acknowledged and received, and its numbers are in the order in which that happened, whatever the clocks show.

A log gives each record the next offset. So a record that was acknowledged or received before another one was sent
has the smaller offset (`order-inversion`), even if their transactions overlap.

Consumers with `read_committed` receive nothing behind the last stable offset, which is at most the first offset of
a transaction that is still open. Until its commit was requested, nothing behind its records was visible, either
(`precommitted-read`). Only a transaction that committed shows this: any other may have been aborted at any time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.anomalies import ANOMALIES
from checkers.kernels.evidence import seconds
from checkers.kernels.history import OFFSET_MAX
from checkers.kernels.transactions.events import TRUSTED, Recorded
from checkers.kernels.transactions.isolation import KAFKA_READ_COMMITTED
from harness.contracts.checker import CheckerFinding
from harness.contracts.verdict import Judgement, Witness

PRECOMMITTED = "precommitted-read"
OVERTAKEN = "order-inversion"

Row = Mapping[str, Any]
Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A record with one certain offset.

    Attributes:
        sender: Its transaction.
        send: Row of its send.
        offset: Where it is.
        shown: The first row that shows that it is in the log: its acknowledgement, or a poll that returned it.
    """

    sender: Recorded
    send: Row
    offset: int
    shown: Row


def order_of_events(
    recorded: Sequence[Recorded], log_start_offset: int
) -> tuple[CheckerFinding, ...]:
    """Returns what contradicts the order in which events happened.

    Args:
        recorded: All transactions of a run.
        log_start_offset: The first offset whose record was certainly not removed.
    """
    placed = _placed(recorded)
    return (*_received_early(recorded, placed, log_start_offset), *_overtaken(placed))


def _placed(recorded: Sequence[Recorded]) -> dict[Place, list[Placed]]:
    """Returns the records of each partition in the order of their offsets.

    An offset that held two values, or a value that was at two offsets, is another anomaly and has no place here.
    """
    sender_of = senders(recorded)
    rows = [row for one in recorded for row in (*one.acknowledged.values(), *one.polls)]
    values_at: dict[tuple[Place, int], set[int]] = defaultdict(set)
    offsets_of: dict[int, set[int]] = defaultdict(set)
    shown: dict[int, Row] = {}
    for row in sorted(rows, key=_index):
        value, offset = row["value"], row["offset"]
        if offset is not None and 0 <= offset <= OFFSET_MAX:
            values_at[_place(row), offset].add(value)
        if value in sender_of and _place(row) == _place(sender_of[value].sends[value]):
            shown.setdefault(value, row)
            offsets_of[value] |= set() if offset is None else {offset}
    found: dict[Place, list[Placed]] = defaultdict(list)
    for value, row in shown.items():
        place, sender = _place(row), sender_of[value]
        for offset in offsets_of[value]:
            if len(offsets_of[value]) == len(values_at[place, offset]) == 1:
                found[place].append(Placed(sender, sender.sends[value], offset, row))
    for records in found.values():
        records.sort(key=lambda one: one.offset)
    return found


def _overtaken(placed: Mapping[Place, Sequence[Placed]]) -> tuple[CheckerFinding, ...]:
    """Returns records that were sent when a record behind them was in the log already."""
    bad: list[tuple[Placed, Placed]] = []
    for records in placed.values():
        first: Placed | None = None
        for one in reversed(records):
            if first is not None and _index(first.shown) < _index(one.send):
                bad.append((one, first))
            if first is None or _index(one.shown) < _index(first.shown):
                first = one
    if not bad:
        return ()
    late, early = min(bad, key=lambda pair: _index(pair[0].send))
    how = "received" if early.shown["event"] == "poll" else "acknowledged"
    return (
        forbidden(
            OVERTAKEN,
            count=len(bad),
            sentence=(
                f"{_name(late.sender)} sent {late.send['value']} at {seconds(late.send['at_ns'])}, after"
                f" {early.send['value']} of {_name(early.sender)} had been {how} at"
                f" {seconds(early.shown['at_ns'])}, but in {_words(late.send)} it is at offset {late.offset},"
                f" before the other one at offset {early.offset}"
            ),
            witnesses=_witnesses(early.sender, late.sender),
        ),
    )


def _received_early(
    recorded: Sequence[Recorded], placed: Mapping[Place, Sequence[Placed]], log_start_offset: int
) -> tuple[CheckerFinding, ...]:
    """Returns records that a consumer received before the commit of their transaction was requested.

    The same holds for a record behind one of such a transaction. Records of aborted transactions are other
    anomalies.
    """
    sender_of = senders(recorded)
    stable = _Stable(placed, seen_committed(recorded), log_start_offset)
    bad: list[tuple[Recorded, Row, Recorded, Placed | None]] = []
    for reader in recorded:
        if reader.is_uncommitted_read:
            continue
        for row in reader.polls:
            sender = sender_of.get(row["value"]) if row["status"] == TRUSTED else None
            if sender is None or sender.outcome == "aborted":
                continue
            if _place(sender.sends[row["value"]]) != _place(row):
                continue  # a phantom
            before = stable.open_before(row)
            if _is_early(row, sender):
                bad.append((reader, row, sender, None))
            elif before is not None:
                bad.append((reader, row, before.sender, before))
    if not bad:
        return ()
    reader, row, sender, before = bad[0]
    when = "never requested its commit"
    if sender.asked is not None:
        when = f"requested its commit only at {seconds(sender.asked['at_ns'])}"
    which = (
        f"{_name(sender)}, which sent it,"
        if before is None
        else f"{_name(sender)}, which sent {before.send['value']} at offset {before.offset} before it,"
    )
    return (
        forbidden(
            PRECOMMITTED,
            count=len(bad),
            sentence=(
                f"{_name(reader)} received {row['value']} at offset {row['offset']} of {_words(row)} at"
                f" {seconds(row['at_ns'])}, but {which} {when}"
            ),
            witnesses=_witnesses(reader, sender),
        ),
    )


def _is_early(row: Row, sender: Recorded) -> bool:
    if sender.asked is None:
        return sender.outcome != "committed"
    return _index(row) < _index(sender.asked)


class _Stable:
    """Which transactions that committed were open when a record behind one of theirs was received.

    Args:
        placed: All records.
        seen: Numbers of transactions of unknown outcome that committed.
        log_start_offset: The first offset whose record was certainly not removed.
    """

    def __init__(
        self,
        placed: Mapping[Place, Sequence[Placed]],
        seen: Collection[int],
        log_start_offset: int,
    ) -> None:
        self._offsets: dict[Place, list[int]] = {}
        # Of the records up to each of these offsets, the one whose commit was requested last.
        self._last: dict[Place, list[Placed]] = {}
        for place, records in placed.items():
            for one in records:
                sender = one.sender
                is_committed = sender.outcome == "committed" or _number(sender) in seen
                if not is_committed or sender.asked is None or one.offset < log_start_offset:
                    continue
                last = self._last.setdefault(place, [])
                self._offsets.setdefault(place, []).append(one.offset)
                last.append(max([*last[-1:], one], key=_asked))

    def open_before(self, row: Row) -> Placed | None:
        """Returns a record before the polled one whose transaction was open; None if none is known."""
        at = bisect_left(self._offsets.get(_place(row), []), row["offset"])
        before = self._last[_place(row)][at - 1] if at else None
        return before if before is not None and _asked(before) > _index(row) else None


def seen_committed(recorded: Sequence[Recorded]) -> dict[int, str]:
    """Returns the transactions of unknown outcome that a read_committed consumer saw, and the words for it.

    A record that was received before the commit was requested is `precommitted-read` and shows no commit.
    """
    sender_of = senders(recorded)
    seen: dict[int, str] = {}
    for reader in recorded:
        if reader.is_uncommitted_read:
            continue
        for row in reader.polls:
            sender = sender_of.get(row["value"]) if row["status"] == TRUSTED else None
            if sender is None or sender.outcome != "unknown" or sender.asked is None:
                continue
            is_there = _place(sender.sends[row["value"]]) == _place(row)
            if is_there and _index(row) > _index(sender.asked):
                seen.setdefault(
                    _number(sender),
                    f"and {_name(reader)}, which reads committed records, received"
                    f" {row['value']} at offset {row['offset']} of {_words(row)}",
                )
    return seen


def senders(recorded: Iterable[Recorded]) -> dict[int, Recorded]:
    """Returns the transaction that sent each value."""
    return {value: one for one in recorded for value in one.sends}


def forbidden(
    identifier: str, *, count: int, sentence: str, witnesses: tuple[Witness, ...]
) -> CheckerFinding:
    """Returns an anomaly that Kafka forbids."""
    anomaly = ANOMALIES[identifier]
    return CheckerFinding(
        id=identifier,
        level=anomaly.level,
        count=count,
        judgement=Judgement.FORBIDDEN,
        rule=f"{KAFKA_READ_COMMITTED} forbids it: {anomaly.definition}",
        sentence=sentence,
        witnesses=witnesses,
    )


def _witnesses(*transactions: Recorded) -> tuple[Witness, ...]:
    return tuple(
        Witness(
            op_index=_number(one),
            text=f"process {one.begin['process']} {_name(one)} -> {one.outcome}",
        )
        for one in transactions
    )


def _index(row: Row) -> int:
    return int(row["event_index"])


def _asked(one: Placed) -> int:
    assert one.sender.asked is not None
    return _index(one.sender.asked)


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]


def _words(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _number(one: Recorded) -> int:
    return int(one.begin["transaction"])


def _name(one: Recorded) -> str:
    return f"T{_number(one)}"
