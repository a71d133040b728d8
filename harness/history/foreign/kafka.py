"""Histories of Jepsen's Kafka workload as tables of logs.

A key is a partition; the topic gets its name. An operation has several sends and polls (micro-operations). Each
becomes one row per partition with the operation's interval: Kafka promises no atomicity across partitions outside
of transactions. Offsets may have gaps, because the markers of transactions take some.

The micro-operations of one operation happen in their order. Their common interval does not show that, so what
contradicts it is added to the tables as such: a poll of a value that the operation sends afterwards, and two sends
to one key whose offsets do not grow; reads show those that the response lacks. An operation of several sends is a
transaction, also if its function is `send`, and its producer is idempotent, so nothing reorders them.

- `send` and `txn`: `[:send k v]` is an append; completed, it is `[:send k [offset v]]`, or still `[:send k v]` if
  the offset is unknown. What an `info` operation learned counts only if one of its values was read by an
  operation that is `ok`, as in Jepsen.
- `poll` and `txn`: `[:poll {k [[offset v] ...]}]` is one poll per key.
- `assign` and `subscribe` say where a consumer is. After `assign` with `:seek-to-beginning?` it starts at offset
  0, and each poll begins where the last one ended. This is not known after `subscribe` (other members may have
  read), after an operation that is not `ok` (the client may have sought back), or for a new process. An operation
  may skip and repeat records of the keys in its `:rebalance-log`, of all keys if an entry of it names none.
- `crash` and `debug-topic-partitions` carry no facts about a log.

The final reads are polls of consumers that were assigned with `:seek-to-beginning?`, after the last append. If an
operation fails, it may have read records. Then polls are final only if they continue where the consumer was.

Source:
    Jepsen, `jepsen.tests.kafka`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from harness.history.foreign.edn_values import to_edn
from harness.history.foreign.events import (
    FAIL,
    INFO,
    OFFSET_MAX,
    OK,
    Problems,
    RecordedOperation,
    is_int64,
    name_of,
    shown,
)
from harness.history.foreign.log_tables import Call, Contradiction, LogTables

DATA_FUNCTIONS = frozenset({"send", "poll", "txn"})
CONSUMER_FUNCTIONS = frozenset({"assign", "subscribe"})
SILENT_FUNCTIONS = frozenset({"crash", "debug-topic-partitions"})
FUNCTIONS = DATA_FUNCTIONS | CONSUMER_FUNCTIONS | SILENT_FUNCTIONS


@dataclass(slots=True)
class _Consumer:
    """What is known of one process's consumer. Mutable.

    Attributes:
        next_offset: Where its next poll of a topic begins; only topics for which that is known.
        before_failure: Where it began before an operation failed, which may have read records; only topics that
            no poll has returned since without a gap.
        from_beginning: Whether it was assigned with `:seek-to-beginning?`.
        is_assigned: Whether its positions are its own; false under `subscribe`.
    """

    next_offset: dict[str, int] = field(default_factory=dict)
    before_failure: dict[str, int] = field(default_factory=dict)
    from_beginning: bool = False
    is_assigned: bool = False


@dataclass(slots=True)
class _Inside:
    """What the micro-operations of one operation have shown so far. Mutable.

    Attributes:
        next_offset: Where its next poll of a topic begins. This holds under `subscribe` too, unless partitions
            moved meanwhile.
        polled: The row and the offset of every record that it polled, by topic and value.
        sent: The rows of its sends, by topic.
    """

    next_offset: dict[str, int] = field(default_factory=dict)
    polled: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    sent: dict[str, list[int]] = field(default_factory=dict)


class KafkaConversion:
    """Adds operations of Jepsen's Kafka workload to tables. Mutable.

    Args:
        tables: Where the rows go.
        problems: Where what cannot be interpreted is added.
        acks: What the producers requested: 0, 1 or -1 (all).
        is_idempotent: Whether producers with transactions are idempotent, as Kafka's are.

    Attributes:
        silent: How many operations carry no facts, by function.
    """

    def __init__(
        self,
        tables: LogTables,
        problems: Problems,
        *,
        acks: int = -1,
        is_idempotent: bool = True,
    ) -> None:
        self._tables = tables
        self._problems = problems
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._consumers: dict[int, _Consumer] = {}
        self._group = 0
        self.silent: Counter[str] = Counter()

    def add(self, operation: RecordedOperation) -> None:
        """Adds one operation; of one process, in the order of its operations."""
        function = operation.function
        if function in DATA_FUNCTIONS:
            self._add_data(operation)
        elif function in CONSUMER_FUNCTIONS:
            self._move_consumer(operation)
        elif function in SILENT_FUNCTIONS:
            self.silent[function] += 1
        else:
            self._problems.add(operation.line, f"the Kafka workload has no function {function!r}")
        if operation.outcome == INFO or function == "crash":
            # The client is gone. The next process with this number has a new consumer.
            self._consumers.pop(operation.process, None)

    def _move_consumer(self, operation: RecordedOperation) -> None:
        if operation.outcome == FAIL:
            self._consumers.pop(operation.process, None)
            return
        keys = (
            operation.result if isinstance(operation.result, tuple | list) else operation.argument
        )
        if not isinstance(keys, tuple | list):
            self._problems.add(operation.line, f"{operation.function} names no list of keys")
            self._consumers.pop(operation.process, None)
            return
        if isinstance(operation.argument, tuple | list) and _names(keys) != _names(
            operation.argument
        ):
            self._problems.add(
                operation.completion_line,
                f"{operation.function} names other keys than on line {operation.line}",
            )
            self._consumers.pop(operation.process, None)
            return
        before = self._consumers.get(operation.process, _Consumer())
        if operation.function == "subscribe":
            self._consumers[operation.process] = _Consumer()
            return
        topics = _names(keys)
        if operation.extra.get("seek-to-beginning?") is True:
            kept = dict.fromkeys(topics, 0)
            from_beginning = True
        else:
            kept = {topic: at for topic, at in before.next_offset.items() if topic in topics}
            from_beginning = False
        self._consumers[operation.process] = _Consumer(
            next_offset=kept, from_beginning=from_beginning, is_assigned=True
        )

    def _add_data(self, operation: RecordedOperation) -> None:
        asked = _micro_operations(operation.argument)
        done = _micro_operations(operation.result)
        if asked is None and operation.argument is not None:
            self._problems.add(
                operation.line, f"{shown(operation.argument)} is no list of sends and polls"
            )
            return
        if done is None and operation.result is not None and operation.outcome == OK:
            self._problems.add(
                operation.completion_line,
                f"{shown(operation.result)} is no list of sends and polls",
            )
        if operation.result is None and operation.outcome == OK and asked != []:
            self._problems.add(
                operation.completion_line, "it is ok, but has no value, so what it did is not known"
            )
        if (
            asked is None
            and operation.outcome == INFO
            and not done
            and operation.function != "poll"
        ):
            self._problems.add(
                operation.line, "it has no value, so what it may have sent is not known"
            )
        if done is None or (asked is not None and not _same_shape(asked, done)):
            if done is not None:
                self._problems.add(
                    operation.completion_line,
                    "the sends and polls differ from those that were invoked on line"
                    f" {operation.line}",
                )
            done = asked or []
        self._group += 1
        inside = _Inside()
        for at, (name, arguments) in enumerate(done):
            if name == "send":
                self._send(operation, arguments, asked[at][1] if asked else None, inside)
            else:
                self._poll(operation, arguments, inside)
        if operation.outcome != FAIL and self._is_idempotent:
            for topic, rows in inside.sent.items():
                if len(rows) > 1:
                    self._tables.sent_in_order(topic, rows)
        self._leave(operation, inside.next_offset)

    def _send(
        self,
        operation: RecordedOperation,
        done: tuple[Any, ...],
        asked: tuple[Any, ...] | None,
        inside: _Inside,
    ) -> None:
        if len(done) != 2:
            self._problems.add(operation.completion_line, "a send needs a key and a value")
            return
        key, result = done
        sent = asked[1] if asked is not None and len(asked) == 2 else None
        if asked is None or sent is None:
            offset, value = result if _is_pair(result) else (None, result)
        elif to_edn(result) == to_edn(sent):
            offset, value = None, sent
        elif _is_pair(result) and to_edn(result[1]) == to_edn(sent):
            offset, value = result
        else:
            self._problems.add(
                operation.completion_line,
                f"a send of {shown(sent)} completes as {shown(result)}; expected [offset value]",
            )
            offset, value = None, sent
        if offset is not None and not _is_offset(offset):
            self._problems.add(operation.completion_line, f"{shown(offset)} is no offset of a send")
            offset = None
        call, text = _call(operation, to_edn(key)), to_edn(value)
        row = self._tables.append(call, text, offset=offset, acks=self._acks, group=self._group)
        inside.sent.setdefault(call.topic, []).append(row)
        if (call.topic, text) in inside.polled:
            first, at = inside.polled[call.topic, text]
            self._tables.contradict(
                Contradiction(
                    id="future-read",
                    topic=call.topic,
                    first=first,
                    second=row,
                    offset=at,
                    other=-1 if offset is None else offset,
                )
            )

    def _poll(
        self, operation: RecordedOperation, arguments: tuple[Any, ...], inside: _Inside
    ) -> None:
        if len(arguments) > 1:
            self._problems.add(
                operation.completion_line,
                "a poll has one map from keys to records, and nothing else",
            )
        polled = arguments[0] if arguments else None
        if polled is None:
            return
        if not isinstance(polled, Mapping):
            self._problems.add(
                operation.completion_line, f"{shown(polled)} is no map from keys to records"
            )
            return
        consumer = self._consumers.get(operation.process, _Consumer())
        for key, records in polled.items():
            pairs = _records(records)
            if pairs is None:
                self._problems.add(
                    operation.completion_line,
                    f"{shown(records)} is no list of records [offset value]",
                )
                continue
            topic = to_edn(key)
            is_final = (
                consumer.from_beginning
                and operation.outcome == OK
                and _continues(consumer, topic, pairs)
            )
            call = _call(operation, topic, final=is_final)
            if _moved(operation, topic):
                for run in _runs(pairs):
                    self._note(call, run, self._tables.poll(call, run), inside)
                continue
            position = inside.next_offset.get(topic, -1)
            if topic not in inside.next_offset and operation.outcome == OK:
                position = consumer.next_offset.get(topic, -1)
            self._note(call, pairs, self._tables.poll(call, pairs, position=position), inside)
            if pairs:
                last = max(offset for offset, _ in pairs)
                inside.next_offset[topic] = last + 1 if 0 <= last < OFFSET_MAX else -1

    @staticmethod
    def _note(call: Call, records: list[tuple[int, str]], row: int, inside: _Inside) -> None:
        for offset, value in records:
            inside.polled[call.topic, value] = row, offset

    def _leave(self, operation: RecordedOperation, inside: dict[Any, int]) -> None:
        """Moves the process's consumer past what the operation read."""
        consumer = self._consumers.get(operation.process)
        if consumer is None or not consumer.is_assigned:
            return
        if operation.outcome == OK:
            kept = {
                topic: at
                for topic, at in consumer.next_offset.items()
                if not _moved(operation, topic)
            }
            consumer.next_offset = kept | inside
        else:
            consumer.before_failure = consumer.next_offset | consumer.before_failure
            consumer.next_offset = {}


def _continues(consumer: _Consumer, topic: str, records: list[tuple[int, str]]) -> bool:
    """Returns whether a poll leaves out no record that a failed operation may have read."""
    if topic in consumer.before_failure:
        if not records or records[0][0] > consumer.before_failure[topic]:
            return False
        del consumer.before_failure[topic]
    return True


def _moved(operation: RecordedOperation, topic: str) -> bool:
    """Returns whether a topic was assigned anew meanwhile, so the operation may skip and repeat its records."""
    log = operation.extra.get("rebalance-log")
    if not isinstance(log, tuple | list):
        return bool(log)
    named = [_member(entry, "keys") for entry in log]
    return any(not isinstance(keys, tuple | list | Set) or topic in _names(keys) for keys in named)


def _member(entry: Any, name: str) -> Any:
    """Returns a member of a map whose keys are keywords or texts; None if it has none."""
    members = entry.items() if isinstance(entry, Mapping) else ()
    return next((value for key, value in members if name_of(key) == name), None)


def _runs(records: list[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Returns the longest parts of what was read in which each offset follows the one before."""
    runs: list[list[tuple[int, str]]] = []
    for record in records:
        if not runs or record[0] != runs[-1][-1][0] + 1:
            runs.append([])
        runs[-1].append(record)
    return runs


def _call(operation: RecordedOperation, topic: str, *, final: bool = False) -> Call:
    return Call(
        line=operation.line,
        process=operation.process,
        topic=topic,
        partition=0,
        invoked_ns=operation.invoked_ns,
        completed_ns=operation.completed_ns,
        outcome=operation.outcome,
        final=final,
    )


def _micro_operations(value: Any) -> list[tuple[str, tuple[Any, ...]]] | None:
    """Returns name and arguments of every micro-operation; None if the value is no list of them."""
    if not isinstance(value, tuple | list):
        return None
    found = []
    for item in value:
        name = name_of(item[0]) if isinstance(item, tuple | list) and item else None
        if name not in ("send", "poll"):
            return None
        found.append((name, tuple(item[1:])))
    return found


def _same_shape(
    asked: list[tuple[str, tuple[Any, ...]]], done: list[tuple[str, tuple[Any, ...]]]
) -> bool:
    return len(asked) == len(done) and all(
        before == after and (before == "poll" or to_edn(given[:1]) == to_edn(result[:1]))
        for (before, given), (after, result) in zip(asked, done, strict=True)
    )


def _names(keys: Iterable[Any]) -> set[str]:
    return {to_edn(key) for key in keys}


def _records(value: Any) -> list[tuple[int, str]] | None:
    if not isinstance(value, tuple | list):
        return None
    if not all(_is_pair(item) and is_int64(item[0]) for item in value):
        return None
    return [(item[0], to_edn(item[1])) for item in value]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _is_offset(value: Any) -> bool:
    """Returns whether a response may have had it, also one that cannot be; -1 states that none is known."""
    return is_int64(value) and value != -1
