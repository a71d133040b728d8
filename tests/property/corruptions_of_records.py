"""Corruptions of the table `records_read` and of the events of a consumer group."""

from tests.property.stored_corruption import (
    GROUP,
    Corruption,
    Row,
    Tables,
    acked,
    anomaly,
    count_records,
    drop,
    drop_operations,
    drop_records,
    final_record,
    harmless,
    operations,
    polls,
    records,
    refused,
    set_all,
    unknown,
)
from tests.spark.stored_runs import MEMBER

LARGEST = 2**63 - 1
SMALLEST = -(2**63)
CLAIMS = ("value", "process", "sequence", "key")


def _poll_of(t: Tables, record: Row) -> Row:
    (poll,) = (row for row in t["operations"] if row["op_index"] == record["op_index"])
    return poll


def _repeat(t: Tables) -> None:
    record = final_record(t, 3)
    t["records_read"].insert(t["records_read"].index(record), dict(record))
    count_records(t)


def _exchange(t: Tables, columns: tuple[str, ...]) -> None:
    one, other = final_record(t, 3), final_record(t, 4)
    for column in columns:
        one[column], other[column] = other[column], one[column]


def _replace_everywhere(t: Tables) -> None:
    lost, other = acked(t, 3)["op_index"], dict(records(t, value=acked(t, 4)["op_index"])[0])
    for row in records(t, value=lost):
        row.update({column: other[column] for column in CLAIMS})


def _event(t: Tables, event: str) -> Row:
    return next(row for row in t["group_events"] if row["event"] == event)


REFUSED = [
    refused(
        "record dropped",
        lambda t: drop(t, "records_read", [final_record(t, 3)]),
        "but records_read has",
    ),
    refused(
        "record twice",
        lambda t: t["records_read"].insert(0, dict(final_record(t, 3))),
        "but records_read has",
    ),
    refused("all records dropped", lambda t: t["records_read"].clear(), "records_read has 0"),
    refused(
        "unknown status", lambda t: final_record(t, 3).update(status="banana"), "status is 'banana'"
    ),
    refused("empty status", lambda t: final_record(t, 3).update(status=""), "status is ''"),
    refused(
        "status corrupted, a long word",
        lambda t: final_record(t, 3).update(status="corrupted"),
        "status is 'corrupted'",
    ),
    refused("value -1", lambda t: final_record(t, 3).update(value=-1), "value is -1"),
    refused("largest value", lambda t: final_record(t, 3).update(value=LARGEST), "value is 92"),
    refused("smallest value", lambda t: final_record(t, 3).update(value=SMALLEST), "value is -92"),
    refused(
        "record of an unknown poll",
        lambda t: final_record(t, 3).update(op_index=9999),
        "the record belongs to op_index 9999",
    ),
    refused(
        "record of an append",
        lambda t: final_record(t, 3).update(op_index=acked(t, 3)["op_index"]),
        "which is no poll",
    ),
    refused(
        "record of another poll",
        lambda t: final_record(t, 3).update(op_index=polls(t, final=False)[0]["op_index"]),
        "but records_read has",
    ),
    refused(
        "record of a poll of the other partition",
        lambda t: final_record(t, 3).update(op_index=polls(t, 1, final=True)[0]["op_index"]),
        "which is no poll of the partition",
    ),
    refused(
        "record in the other partition",
        lambda t: final_record(t, 3).update(partition=1),
        "but records_read has",
    ),
    refused(
        "record in another topic",
        lambda t: final_record(t, 3).update(topic="other"),
        "which is no poll of the partition",
    ),
    refused(
        "unknown event",
        lambda t: _event(t, "committed-seen").update(event="committed-response"),
        "event is 'committed-response'",
        GROUP,
    ),
    refused(
        "event_index twice",
        lambda t: t["group_events"][1].update(event_index=0),
        "event_index 0 is in row",
        GROUP,
    ),
    refused(
        "a group event before the one before it",
        lambda t: t["group_events"][-1].update(at_ns=t["group_events"][0]["at_ns"] - 1),
        "before that of the event before event_index",
        GROUP,
    ),
    refused(
        "negative event_index",
        lambda t: t["group_events"][0].update(event_index=-1),
        "event_index is -1",
        GROUP,
    ),
    refused(
        "response to an unknown request",
        lambda t: _event(t, "committed-seen").update(refers_to=999),
        "refers_to is 999",
        GROUP,
    ),
    refused(
        "response to a commit",
        lambda t: _event(t, "committed-seen").update(
            refers_to=_event(t, "commit-sent")["event_index"]
        ),
        "refers_to is",
        GROUP,
    ),
    refused(
        "event after every run",
        lambda t: t["group_events"][0].update(at_ns=2**61),
        "at_ns is 23",
        GROUP,
    ),
    refused(
        "request dropped, its response kept",
        lambda t: drop(t, "group_events", [_event(t, "committed-asked")]),
        "refers_to is",
        GROUP,
    ),
]

FOUND = [
    anomaly("record twice in one poll", _repeat, "nonmonotonic-poll"),
    anomaly(
        "record missing from the final reads",
        lambda t: drop_records(t, [final_record(t, 3)]),
        "lost-acked-write",
    ),
    anomaly(
        "record missing from every read",
        lambda t: drop_records(t, records(t, value=acked(t, 3)["op_index"])),
        "lost-acked-write",
    ),
    anomaly(
        "first record missing from the final reads",
        lambda t: drop_records(t, [final_record(t, 0)]),
        "lost-acked-write",
    ),
    anomaly(
        "half of the final reads missing",
        lambda t: drop_records(t, [final_record(t, number) for number in range(0, 24, 2)]),
        "lost-acked-write",
    ),
    anomaly(
        "value that nobody wrote",
        lambda t: final_record(t, 3).update(value=7777),
        "phantom-value",
    ),
    anomaly(
        "value of an append to the other partition",
        lambda t: final_record(t, 3).update(value=acked(t, 3, 1)["op_index"]),
        "phantom-value",
    ),
    anomaly(
        "value of a poll",
        lambda t: final_record(t, 3).update(value=polls(t, final=False)[0]["op_index"]),
        "phantom-value",
    ),
    anomaly(
        "value of another append",
        lambda t: final_record(t, 3).update(value=final_record(t, 9)["value"]),
        "corrupt-record",
    ),
    anomaly("two values swapped", lambda t: _exchange(t, CLAIMS), "divergent-value"),
    anomaly("two offsets swapped", lambda t: _exchange(t, ("offset",)), "divergent-value"),
    anomaly("one append replaced by another in every read", _replace_everywhere, "duplicate"),
    anomaly(
        "offset of a record one larger",
        lambda t: final_record(t, 3).update(offset=final_record(t, 3)["offset"] + 1),
        "lost-record",
    ),
    anomaly(
        "offset of a record far beyond the end",
        lambda t: final_record(t, 3).update(offset=10**6),
        "duplicate",
    ),
    anomaly(
        "offset of a record is negative",
        lambda t: final_record(t, 3).update(offset=-5),
        "impossible-offset",
    ),
    anomaly(
        "offset of a record is -1",
        lambda t: final_record(t, 3).update(offset=-1),
        "impossible-offset",
    ),
    anomaly(
        "offset of a record is the largest number",
        lambda t: final_record(t, 3).update(offset=LARGEST),
        "impossible-offset",
    ),
    anomaly(
        "offset of a record is the smallest number",
        lambda t: final_record(t, 3).update(offset=SMALLEST),
        "impossible-offset",
    ),
    anomaly(
        "record is corrupt",
        lambda t: final_record(t, 3).update(status="corrupt", value=-1, process=-1, sequence=-1),
        "corrupt-record",
    ),
    anomaly(
        "record is foreign",
        lambda t: final_record(t, 3).update(status="foreign", value=-1),
        "misplaced-record",
    ),
    anomaly("record's process", lambda t: final_record(t, 3).update(process=77), "corrupt-record"),
    anomaly(
        "record's sequence", lambda t: final_record(t, 3).update(sequence=77), "corrupt-record"
    ),
    anomaly("record's key", lambda t: final_record(t, 3).update(key="other"), "corrupt-record"),
    anomaly(
        "key of every record",
        lambda t: set_all(t["records_read"], key="a key of more than eight bytes"),
        "corrupt-record",
    ),
    anomaly(
        "committed offset regressed",
        lambda t: _event(t, "committed-seen").update(offset=3),
        "committed-offset-regressed",
        GROUP,
    ),
    anomaly(
        "committed offset forgotten",
        lambda t: _event(t, "committed-seen").update(offset=-1001),
        "committed-offset-regressed",
        GROUP,
    ),
    anomaly(
        "deliveries to the group missing",
        lambda t: drop_operations(t, operations(t, process=MEMBER)),
        "group-skipped-record",
        GROUP,
    ),
    anomaly(
        "one delivery to the group missing",
        lambda t: drop_records(
            t, records(t, op_index=operations(t, process=MEMBER)[0]["op_index"])[:1]
        ),
        "group-skipped-record",
        GROUP,
    ),
    anomaly(
        "the group has another member",
        lambda t: set_all(t["group_events"], process=5555),
        "group-skipped-record",
        GROUP,
    ),
]

UNKNOWN = [
    unknown(
        "no poll returned anything",
        lambda t: drop_records(t, list(t["records_read"])),
        "the final reads do not show what became of",
    ),
    unknown(
        "last record missing from every read",
        lambda t: drop_records(t, records(t, value=acked(t, -1)["op_index"])),
        "the final reads do not show what became of",
    ),
]

HARMLESS = [
    harmless(
        "no event of the group",
        lambda t: t["group_events"].clear(),
        "a partition that no member was assigned has none",
        GROUP,
    ),
    harmless(
        "commit without a response",
        lambda t: drop(t, "group_events", [_event(t, "commit-acknowledged")]),
        "an unresolved commit promises nothing",
        GROUP,
    ),
    harmless(
        "response without its request",
        lambda t: _event(t, "committed-seen").update(refers_to=-1),
        "without its request it proves nothing, and it is what was committed",
        GROUP,
    ),
]

CORRUPTIONS: list[Corruption] = [*REFUSED, *FOUND, *UNKNOWN, *HARMLESS]
