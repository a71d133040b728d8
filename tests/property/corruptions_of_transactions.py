"""Corruptions of the table `transaction_events`."""

from collections.abc import Callable
from dataclasses import replace

from tests.property.stored_corruption import (
    TRANSACTIONS,
    Corruption,
    Edit,
    Row,
    Rows,
    Tables,
    anomaly,
    drop,
    harmless,
    refused,
    set_all,
    unknown,
)

LARGEST = 2**63 - 1
SMALLEST = -(2**63)
FOREIGN_PROCESS = 777
Pick = Callable[[Tables], Row]


# --- transactions and their rows ---


def events(t: Tables, **columns: object) -> Rows:
    """Returns the events whose columns have the given values."""
    return [
        row for row in t["transaction_events"] if all(row[key] == columns[key] for key in columns)
    ]


def writers(t: Tables, end: str) -> list[int]:
    """Returns the transactions of the main phase that sent two records or more and ended like that."""
    return [
        row["transaction"]
        for row in events(t, event=end, final=False)
        if len(events(t, event="sent", transaction=row["transaction"])) > 1
    ]


def processors(t: Tables) -> list[int]:
    """Returns the transactions that committed positions of a group."""
    return sorted(
        {
            row["transaction"]
            for row in events(t, event="offset")
            if events(t, event="committed", transaction=row["transaction"])
        }
    )


def readers(t: Tables, isolation: str = "read_committed", *, final: bool = False) -> list[int]:
    """Returns the transactions in which consumers received two records or more without a group."""
    begins = events(t, event="begin", isolation=isolation, final=final, transactional_id="")
    numbers = [row["transaction"] for row in begins]
    return [one for one in numbers if len(events(t, event="poll", transaction=one)) > 1]


def of(t: Tables, number: int, event: str, at: int = 0) -> Row:
    """Returns one of the events of a transaction."""
    return events(t, event=event, transaction=number)[at]


def writer(t: Tables) -> int:
    """Returns a committed transaction; every record of it was read, and transactions follow."""
    return writers(t, "committed")[1]


def aborted(t: Tables) -> int:
    """Returns an aborted transaction."""
    return writers(t, "aborted")[0]


def reader(t: Tables) -> int:
    """Returns a poll of a consumer with read_committed in the main phase."""
    return readers(t)[2]


def polls_of(t: Tables, value: int, *, final: bool | None = None) -> Rows:
    """Returns the events in which a record was received, those of final reads or of others only."""
    rows = events(t, event="poll", value=value)
    return [row for row in rows if final is None or row["final"] == final]


def _received(t: Tables) -> Row:
    """Returns a record that a consumer with read_committed received."""
    return of(t, reader(t), "poll")


def _sent(t: Tables) -> Row:
    return of(t, writer(t), "sent")


def _begin(t: Tables) -> Row:
    return of(t, writer(t), "begin")


def setting(pick: Pick, **columns: object) -> Edit:
    """Returns the edit that sets columns of one event."""
    return lambda t: pick(t).update(columns)


def _insert(t: Tables, after: Row, new: Row, **columns: object) -> None:
    """Inserts an event directly behind another one, as part of its transaction and at its time."""
    place = after["event_index"] + 1
    for row in t["transaction_events"]:
        for name in ("event_index", "transaction", "value"):
            if row[name] >= place:
                row[name] += 1
    own = {name: after[name] for name in ("at_ns", "transaction", "process", "final")}
    t["transaction_events"].append({**new, **own, "event_index": place, **columns})


def _drop(t: Tables, *rows: Row) -> None:
    drop(t, "transaction_events", rows)


def _drop_transaction(t: Tables, number: int) -> None:
    _drop(t, *events(t, transaction=number))


def _replace_record(row: Row, other: Row) -> None:
    """Makes an event one about another record."""
    row.update({name: other[name] for name in ("topic", "partition", "offset", "value")})


# --- endings of transactions ---


def _abort(t: Tables) -> None:
    of(t, writer(t), "committed").update(event="aborted")


def _commit(t: Tables) -> None:
    """An aborted transaction is said to have asked for its commit, and to have committed."""
    number = aborted(t)
    of(t, number, "abort-asked").update(event="commit-asked")
    of(t, number, "aborted").update(event="committed")


def _swap_endings(t: Tables) -> None:
    one, other = writer(t), aborted(t)
    for number, asked, end in (
        (one, "abort-asked", "aborted"),
        (other, "commit-asked", "committed"),
    ):
        for row in events(t, transaction=number):
            if row["event"] in ("commit-asked", "abort-asked"):
                row["event"] = asked
            elif row["event"] in ("committed", "aborted"):
                row["event"] = end


# --- records that were read ---


def _lose_everywhere(t: Tables) -> None:
    _drop(t, *polls_of(t, _sent(t)["value"]))


def _lose_in_final_reads(t: Tables) -> None:
    _drop(t, *polls_of(t, _sent(t)["value"], final=True))


def _lose_transaction_in_final_reads(t: Tables) -> None:
    for row in events(t, event="sent", transaction=writer(t)):
        _drop(t, *polls_of(t, row["value"], final=True))


def _lose_transaction(t: Tables) -> None:
    for row in events(t, event="sent", transaction=writer(t)):
        _drop(t, *polls_of(t, row["value"]))


def _receive(t: Tables, number: int, sent: Row) -> None:
    """A transaction also received a record, directly after those that it received of smaller offsets."""
    rows = events(t, event="poll", transaction=number, partition=sent["partition"])
    before = [row for row in rows if row["offset"] < sent["offset"]]
    record = {name: sent[name] for name in ("topic", "partition", "offset", "value")}
    after = before[-1] if before else of(t, number, "begin")
    template = {**rows[0], **record, "status": "ok"}
    _insert(t, after, template)


def _receive_aborted(t: Tables, *, final: bool) -> None:
    """A poll that passed over the place of an aborted record, or began there, received it."""
    sent = next(
        row
        for row in events(t, event="sent")
        if row["transaction"] in writers(t, "aborted") and _later_reader(t, row, final=final) >= 0
    )
    _receive(t, _later_reader(t, sent, final=final), sent)


def _later_reader(t: Tables, sent: Row, *, final: bool) -> int:
    """Returns the first poll that received a record behind another one; -1 if there is none."""
    return next(
        (
            number
            for number in readers(t, final=final)
            for row in events(t, event="poll", transaction=number, partition=sent["partition"])
            if row["offset"] > sent["offset"]
        ),
        -1,
    )


def _receive_own(t: Tables) -> None:
    """A processor receives a record that it sends itself."""
    number = processors(t)[1]
    sent = of(t, number, "sent")
    _insert(t, sent, {**of(t, number, "poll"), **_record(sent)})


def _record(row: Row) -> Row:
    return {name: row[name] for name in ("topic", "partition", "offset", "value")}


def _repeat(t: Tables, row: Row) -> None:
    _insert(t, row, dict(row))


def _record_of_other_transaction(t: Tables) -> None:
    """A record that was read everywhere was another one, of the next transaction to the partition."""
    sent = _sent(t)
    other = next(
        row
        for row in events(t, event="sent", partition=sent["partition"])
        if row["transaction"] > sent["transaction"] and polls_of(t, row["value"])
    )
    for row in polls_of(t, sent["value"]):
        row["value"] = other["value"]


def _swap_values(t: Tables) -> None:
    one, other = events(t, event="poll", transaction=reader(t))[:2]
    one["value"], other["value"] = other["value"], one["value"]


def _swap_sent_offsets(t: Tables) -> None:
    """Two records of a transaction to one partition were acknowledged at each other's offsets."""
    one, other = next(
        (one, other)
        for number in writers(t, "committed")
        for one in events(t, event="sent", transaction=number)
        for other in events(t, event="sent", transaction=number, partition=one["partition"])
        if one["offset"] < other["offset"]
    )
    one["offset"], other["offset"] = other["offset"], one["offset"]


def _take_over(t: Tables, *, after: str, process: int = FOREIGN_PROCESS) -> None:
    """Another producer takes the transactional id of a committed transaction over."""
    begin = _begin(t)
    row = {**begin, "event": "initialised", "group": "", "isolation": ""}
    _insert(t, of(t, writer(t), after), row, transaction=-1, process=process)


def _position(t: Tables, by: int) -> None:
    of(t, processors(t)[1], "offset")["offset"] += by


def _begin_of(pick: Callable[[Tables], list[int]], **columns: object) -> Edit:
    """Returns the edit that sets columns of the begin of a transaction."""
    return lambda t: of(t, pick(t)[1], "begin").update(columns)


def _all_begins(t: Tables, **columns: object) -> Rows:
    return events(t, event="begin", **columns)


def _drop_final_reads(t: Tables) -> None:
    for row in _all_begins(t, final=True, transactional_id=""):
        _drop_transaction(t, row["transaction"])


def _never_commit(t: Tables) -> None:
    for row in _all_begins(t):
        if row["transactional_id"]:
            set_all(events(t, event="committed", transaction=row["transaction"]), event="unknown")


def _facts(t: Tables) -> Row:
    (row,) = t["run_facts"]
    return row


REFUSED = [
    refused("unknown event of a transaction", setting(_sent, event="ack"), "event is 'ack'"),
    refused("empty event of a transaction", setting(_sent, event=""), "event is ''"),
    refused("unknown isolation", setting(_begin, isolation="serializable"), "isolation is 'serial"),
    refused("unknown status of a polled record", setting(_received, status="good"), "status is"),
    refused("negative event index", setting(_sent, event_index=-1), "event_index is -1"),
    refused("event index too large", setting(_sent, event_index=LARGEST), "event_index is 92"),
    refused(
        "event index twice",
        lambda t: _sent(t).update(event_index=_begin(t)["event_index"]),
        "event_index",
    ),
    refused("event before the run", setting(_sent, at_ns=-1), "at_ns is -1"),
    refused("event of a transaction after every run", setting(_sent, at_ns=2**61), "at_ns is 23"),
    refused("event before the one before it", setting(_sent, at_ns=1), "before that of the event"),
    refused("partition of an event below -1", setting(_sent, partition=-2), "partition is -2"),
    refused(
        "event of another process", setting(_sent, process=FOREIGN_PROCESS), "earlier begin of"
    ),
    refused("event of no transaction", setting(_sent, transaction=-1), "transaction is -1"),
    refused(
        "event of an unknown transaction", setting(_sent, transaction=10**6), "transaction is 10"
    ),
    refused(
        "event of another transaction",
        lambda t: _sent(t).update(transaction=aborted(t)),
        "transaction is",
    ),
    refused(
        "begin with another number",
        lambda t: _begin(t).update(transaction=aborted(t)),
        "transaction is",
    ),
    refused("begin dropped", lambda t: _drop(t, _begin(t)), "earlier begin of process"),
    refused(
        "taken over within a transaction",
        lambda t: events(t, event="initialised")[0].update(transaction=writer(t)),
        "or -1 for initialised",
    ),
    refused("value of a send", lambda t: of(t, writer(t), "send").update(value=1), "value is 1"),
    refused(
        "acknowledgement of a record of another transaction",
        lambda t: _sent(t).update(value=of(t, aborted(t), "send")["value"]),
        "value is",
    ),
    refused(
        "acknowledgement of a later record",
        lambda t: _sent(t).update(value=t["transaction_events"][-1]["event_index"]),
        "value is",
    ),
    refused(
        "send dropped, its acknowledgement kept",
        lambda t: _drop(t, of(t, writer(t), "send")),
        "value is",
    ),
    refused("acknowledged twice", lambda t: _repeat(t, _sent(t)), "a second one"),
    refused(
        "acknowledged in another partition",
        lambda t: _sent(t).update(partition=1 - _sent(t)["partition"]),
        "names another partition",
    ),
    refused("acknowledged in another topic", setting(_sent, topic="u"), "names another partition"),
    refused("trusted record without a value", setting(_received, value=-1), "value is -1"),
    refused("corrupt record with a value", setting(_received, status="corrupt"), "value is"),
    refused(
        "received without an offset", setting(_received, offset=None), "offset of poll is null"
    ),
    refused("record acknowledged at -1", setting(_sent, offset=-1), "offset of sent is -1"),
    refused(
        "negative position",
        lambda t: of(t, processors(t)[1], "offset").update(offset=-7),
        "offset of offset is -7",
    ),
    refused(
        "records received without an isolation",
        lambda t: of(t, reader(t), "begin").update(isolation=""),
        "which began without an isolation",
    ),
    refused(
        "records sent without a transactional id",
        setting(_begin, transactional_id=""),
        "which began without a transactional_id",
    ),
    refused(
        "position without an offset",
        lambda t: of(t, processors(t)[0], "offset").update(offset=None),
        "offset of offset is null",
    ),
    refused(
        "two endings",
        lambda t: _repeat(t, of(t, writer(t), "committed")),
        "had ended before this event",
    ),
    refused(
        "received after the end of the transaction",
        lambda t: _insert(t, of(t, reader(t), "committed"), _received(t)),
        "had ended before this event",
    ),
    refused(
        "commit that was not asked for",
        lambda t: _drop(t, of(t, writer(t), "commit-asked")),
        "only a commit that was asked for",
    ),
    refused(
        "commit of a transaction that asked to abort",
        lambda t: of(t, aborted(t), "aborted").update(event="committed"),
        "only a commit that was asked for",
    ),
    refused(
        "aborted transaction turned into a committed one by its request alone",
        lambda t: of(t, writer(t), "commit-asked").update(event="abort-asked"),
        "only a commit that was asked for",
    ),
    refused(
        "sent after asking for the commit",
        lambda t: _insert(t, of(t, writer(t), "commit-asked"), of(t, writer(t), "send"), number=99),
        "value is",
    ),
]


FOUND = [
    anomaly("committed transaction aborted", _abort, "G1a"),
    anomaly(
        "request and end of a committed transaction dropped",
        lambda t: _drop(t, of(t, writer(t), "committed"), of(t, writer(t), "commit-asked")),
        "precommitted-read",
    ),
    anomaly("aborted transaction committed", _commit, "lost-acked-write"),
    anomaly("endings of two transactions swapped", _swap_endings, "G1a"),
    anomaly(
        "record of a transaction missing from every read", _lose_everywhere, "torn-transaction"
    ),
    anomaly(
        "record of a transaction missing from the final reads",
        _lose_in_final_reads,
        "torn-transaction",
    ),
    anomaly("transaction missing from every read", _lose_transaction, "lost-acked-write"),
    anomaly(
        "transaction missing from the final reads",
        _lose_transaction_in_final_reads,
        "lost-acked-write",
    ),
    anomaly(
        "aborted record received by read_committed",
        lambda t: _receive_aborted(t, final=False),
        "G1a",
    ),
    anomaly("aborted record in the final reads", lambda t: _receive_aborted(t, final=True), "G1a"),
    anomaly("own record received before the commit", _receive_own, "precommitted-read"),
    anomaly(
        "record received twice in one poll",
        lambda t: _repeat(t, _received(t)),
        "int-nonmonotonic-poll",
    ),
    anomaly("record of another transaction", _record_of_other_transaction, "divergent-value"),
    anomaly("values of two received records swapped", _swap_values, "divergent-value"),
    anomaly(
        "offsets of two records of a transaction swapped", _swap_sent_offsets, "divergent-value"
    ),
    anomaly(
        "record of a transaction acknowledged one offset later",
        lambda t: _sent(t).update(offset=_sent(t)["offset"] + 1),
        "duplicate",
    ),
    anomaly(
        "record of a transaction acknowledged far away",
        setting(_sent, offset=10**6),
        "duplicate",
    ),
    *(
        anomaly(
            f"record of a transaction {what} at {offset}",
            setting(pick, offset=offset),
            "impossible-offset",
        )
        for what, pick in (("acknowledged", _sent), ("received", _received))
        for offset in (-3, LARGEST, SMALLEST)
    ),
    anomaly(
        "transactional id taken over before the commit was asked for",
        lambda t: _take_over(t, after="sent"),
        "zombie-commit",
    ),
    anomaly("position far ahead", lambda t: _position(t, 10**6), "input-skipped"),
    anomaly(
        "position not committed",
        lambda t: _drop(t, of(t, processors(t)[1], "offset")),
        "input-skipped",
    ),
    anomaly(
        "position of the other partition",
        lambda t: of(t, processors(t)[1], "offset").update(partition=1),
        "input-skipped",
    ),
    anomaly(
        "consumed records dropped",
        lambda t: _drop(t, *events(t, event="poll", transaction=processors(t)[1])),
        "input-skipped",
    ),
    anomaly(
        "transaction of a processor dropped",
        lambda t: _drop_transaction(t, processors(t)[1]),
        "input-skipped",
    ),
    anomaly(
        "transaction of a processor aborted",
        lambda t: of(t, processors(t)[1], "committed").update(event="aborted"),
        "input-skipped",
    ),
    anomaly(
        "record of an earlier transaction consumed again",
        lambda t: _insert(
            t, of(t, processors(t)[1], "begin"), dict(of(t, processors(t)[0], "poll"))
        ),
        "input-processed-twice",
    ),
    anomaly("processor of another group", _begin_of(processors, group="other"), "input-skipped"),
    anomaly("transaction dropped", lambda t: _drop_transaction(t, writer(t)), "phantom-value"),
    anomaly(
        "aborted transaction dropped", lambda t: _drop_transaction(t, aborted(t)), "phantom-value"
    ),
    anomaly(
        "poll of a consumer dropped", lambda t: _drop_transaction(t, reader(t)), "session-poll-skip"
    ),
    anomaly(
        "readers of uncommitted records as readers of committed ones",
        lambda t: set_all(_all_begins(t, isolation="read_uncommitted"), isolation="read_committed"),
        "precommitted-read",
    ),
    anomaly(
        "record of a transaction received one offset later",
        lambda t: _received(t).update(offset=_received(t)["offset"] + 1),
        "divergent-value",
    ),
    anomaly(
        "record received in the other partition",
        lambda t: _received(t).update(partition=1 - _received(t)["partition"]),
        "phantom-value",
    ),
    anomaly("record received in another topic", setting(_received, topic="u"), "phantom-value"),
    anomaly("record received that nobody sent", setting(_received, value=10**7), "phantom-value"),
    anomaly(
        "received value of an event that is no send",
        lambda t: _received(t).update(value=_begin(t)["event_index"]),
        "phantom-value",
    ),
    anomaly(
        "received record is corrupt",
        setting(_received, status="corrupt", value=-1),
        "phantom-value",
    ),
    anomaly(
        "received record is foreign",
        setting(_received, status="foreign", value=-1),
        "phantom-value",
    ),
    anomaly(
        "first record of a poll dropped", lambda t: _drop(t, _received(t)), "session-poll-skip"
    ),
    anomaly(
        "record in the middle of a poll dropped",
        lambda t: _drop(t, of(t, reader(t), "poll", 1)),
        "int-poll-skip",
    ),
    anomaly(
        "last record of the final reads dropped",
        lambda t: _drop(t, of(t, readers(t, final=True)[-1], "poll", -1)),
        "torn-transaction",
    ),
    anomaly(
        "first record of the final reads dropped",
        lambda t: _drop(t, of(t, readers(t, final=True)[0], "poll")),
        "torn-transaction",
    ),
    anomaly(
        "all sends dropped",
        lambda t: _drop(t, *events(t, event="send"), *events(t, event="sent")),
        "phantom-value",
    ),
    anomaly(
        "all received records dropped",
        lambda t: _drop(t, *events(t, event="poll")),
        "lost-acked-write",
    ),
]

UNKNOWN = [
    unknown("final reads of transactions dropped", _drop_final_reads, "no closing read"),
    unknown(
        "no event is final",
        lambda t: set_all(t["transaction_events"], final=False),
        "no closing read",
    ),
    anomaly(
        "final reads with read_uncommitted",
        lambda t: set_all(_all_begins(t, final=True), isolation="read_uncommitted"),
        "int-poll-skip",
    ),
    unknown(
        "all events are final",
        lambda t: set_all(t["transaction_events"], final=True),
        "were acknowledged while a fault was in force",
    ),
    unknown("no transaction is known to have committed", _never_commit, "no transaction committed"),
    unknown(
        "all events dropped",
        lambda t: t["transaction_events"].clear(),
        "no transaction committed in the whole run",
    ),
    unknown(
        "final phase of transactions incomplete",
        lambda t: _facts(t).update(final_phase_complete=False),
        "the final phase did not end as planned",
    ),
    unknown(
        "clock error that hides the order of transactions",
        lambda t: _facts(t).update(clock_error_ns=10**10),
        "so their order cannot be judged",
    ),
    refused(
        "transactions judged as appends",
        lambda t: _facts(t).update(checkers=["linearizability"]),
        "leaves out the checkers transactions, replicas, which experiment.toml asks for",
    ),
    refused(
        "role that no replica has, beside transactions",
        lambda t: t["replica_states"][0].update(role="king"),
        "role is 'king'",
    ),
    refused(
        "batch that ends before it begins, beside transactions",
        lambda t: t["replica_batches"][0].update(base_offset=-5, last_offset=-9),
        "base_offset is -5",
    ),
    anomaly(
        "batch with other records at one replica, beside transactions",
        lambda t: t["replica_batches"][1].update(checksum=t["replica_batches"][1]["checksum"] ^ 1),
        "divergent-replicas",
    ),
]

HARMLESS = [
    harmless(
        "committed transaction of unknown outcome",
        lambda t: of(t, writer(t), "committed").update(event="unknown"),
        "its commit was asked for, and the reads show that it happened",
    ),
    harmless(
        "end of a committed transaction forgotten",
        lambda t: _drop(t, of(t, writer(t), "committed")),
        "as if its outcome were unknown",
    ),
    harmless(
        "aborted transaction of unknown outcome",
        lambda t: of(t, aborted(t), "aborted").update(event="unknown"),
        "only consumers with read_uncommitted received its records",
    ),
    harmless(
        "end of an aborted transaction forgotten",
        lambda t: _drop(t, of(t, aborted(t), "aborted")),
        "as if its outcome were unknown",
    ),
    harmless(
        "record of a transaction acknowledged without an offset",
        setting(_sent, offset=None),
        "the reads show where it is",
    ),
    harmless(
        "acknowledgement of a record of a transaction forgotten",
        lambda t: _drop(t, _sent(t)),
        "the commit was acknowledged, and the record is there",
    ),
    harmless(
        "transactional id taken over by its own producer",
        lambda t: _take_over(t, after="sent", process=_begin(t)["process"]),
        "a producer fences only others",
    ),
    harmless(
        "position of the marker behind the consumed records",
        lambda t: _position(t, 1),
        "no record is between both positions",
    ),
    harmless(
        "position before the last consumed record",
        lambda t: _position(t, -1),
        "the client chose it, and no consumer of the group began there",
    ),
    harmless(
        "commit at the time at which it was asked for",
        lambda t: of(t, writer(t), "committed").update(
            at_ns=of(t, writer(t), "commit-asked")["at_ns"]
        ),
        "nothing lies between both events",
    ),
    harmless(
        "rows of transactions in another order",
        lambda t: t["transaction_events"].reverse(),
        "events are in the order of their index",
    ),
]

CORRUPTIONS: list[Corruption] = [
    replace(corruption, run=TRANSACTIONS) for corruption in (*REFUSED, *FOUND, *UNKNOWN, *HARMLESS)
]
