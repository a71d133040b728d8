"""Corruptions of the tables `operations` and `end_offsets_seen`."""

from tests.property.stored_corruption import (
    Corruption,
    Tables,
    acked,
    anomaly,
    drop,
    drop_operations,
    harmless,
    latests,
    noted,
    operations,
    polls,
    refused,
    set_all,
    unknown,
)

TOO_LARGE = 2**62 + 1
LARGEST = 2**63 - 1
SMALLEST = -(2**63)


def _swap(t: Tables, column: str) -> None:
    one, other = acked(t, 3), acked(t, 9)
    one[column], other[column] = other[column], one[column]


def _swap_times(t: Tables) -> None:
    for column in ("invoked_ns", "completed_ns"):
        _swap(t, column)


def _into_other_partition(t: Tables) -> None:
    acked(t, 3)["op_index"] = acked(t, 3, 1)["op_index"]


REFUSED = [
    refused("unknown kind", lambda t: acked(t, 3).update(kind="write"), "kind is 'write'"),
    refused("empty kind", lambda t: acked(t, 3).update(kind=""), "kind is ''"),
    refused("kind in capitals", lambda t: acked(t, 3).update(kind="Append"), "kind is 'Append'"),
    refused("kind with a zero byte", lambda t: acked(t, 3).update(kind="poll\0"), "kind is"),
    refused("unknown outcome", lambda t: acked(t, 3).update(outcome="okay"), "outcome is 'okay'"),
    refused("empty outcome", lambda t: acked(t, 3).update(outcome=""), "outcome is ''"),
    refused("outcome lost", lambda t: acked(t, 3).update(outcome="lost"), "outcome is 'lost'"),
    refused("acks 2", lambda t: acked(t, 3).update(acks=2), "acks is 2"),
    refused("acks -2", lambda t: acked(t, 3).update(acks=-2), "acks is -2"),
    refused("poll with acks", lambda t: polls(t, final=True)[0].update(acks=-1), "acks is -1"),
    refused("negative op_index", lambda t: operations(t)[3].update(op_index=-4), "op_index is -4"),
    refused("op_index too large", lambda t: operations(t)[3].update(op_index=TOO_LARGE), "is 46"),
    refused(
        "smallest op_index", lambda t: operations(t)[3].update(op_index=SMALLEST), "op_index is -92"
    ),
    refused(
        "op_index twice",
        lambda t: acked(t, 3).update(op_index=acked(t, 4)["op_index"]),
        "row",
    ),
    refused("op_index in two partitions", _into_other_partition, "an operation has one partition"),
    refused(
        "acknowledged offset -1",
        lambda t: acked(t, 3).update(offset=-1),
        "the acknowledged offset is -1",
    ),
    refused("position -2", lambda t: polls(t, final=True)[0].update(position=-2), "position is -2"),
    refused(
        "position too large",
        lambda t: polls(t, final=True)[0].update(position=TOO_LARGE),
        "position is 46",
    ),
    refused(
        "record_count too large",
        lambda t: polls(t, final=True)[0].update(record_count=99),
        "record_count is 99",
    ),
    refused(
        "record_count zero",
        lambda t: polls(t, final=True)[0].update(record_count=0),
        "record_count is 0",
    ),
    refused(
        "record_count negative",
        lambda t: polls(t, final=True)[0].update(record_count=-1),
        "record_count is -1",
    ),
    refused(
        "append with records", lambda t: acked(t, 3).update(record_count=1), "record_count is 1"
    ),
    refused(
        "ok without a time",
        lambda t: acked(t, 3).update(completed_ns=None),
        "completed_ns is null, but the outcome is known",
    ),
    refused(
        "fail without a time",
        lambda t: acked(t, 3).update(completed_ns=None, outcome="fail"),
        "completed_ns is null, but the outcome is known",
    ),
    refused(
        "poll without a time",
        lambda t: polls(t, final=True)[0].update(completed_ns=None),
        "completed_ns is null, but the outcome is known",
    ),
    refused(
        "latest without a time",
        lambda t: latests(t, final=True)[0].update(completed_ns=None),
        "completed_ns is null, but the outcome is known",
    ),
    refused(
        "completed before invoked",
        lambda t: acked(t, 3).update(completed_ns=acked(t, 3)["invoked_ns"] - 1),
        "which is before invoked_ns",
    ),
    refused("completed at zero", lambda t: acked(t, 3).update(completed_ns=0), "completed_ns is 0"),
    refused(
        "completed at the sentinel",
        lambda t: acked(t, 3).update(completed_ns=2**61),
        "or after every run",
    ),
    refused(
        "completed at the largest number",
        lambda t: acked(t, 3).update(completed_ns=LARGEST),
        "or after every run",
    ),
    refused("invoked at -1", lambda t: acked(t, 3).update(invoked_ns=-1), "invoked_ns is -1"),
    refused(
        "invoked at the smallest number",
        lambda t: acked(t, 3).update(invoked_ns=SMALLEST),
        "invoked_ns is -92",
    ),
    refused(
        "invoked at the sentinel",
        lambda t: acked(t, 3).update(invoked_ns=2**61),
        "invoked_ns is 23",
    ),
    refused("append turned into a poll", lambda t: acked(t, 3).update(kind="poll"), "acks is -1"),
    refused(
        "poll turned into an append",
        lambda t: polls(t, final=True)[0].update(kind="append"),
        "which is no poll",
    ),
    refused(
        "poll turned into a latest",
        lambda t: polls(t, final=True)[0].update(kind="latest"),
        "which is no poll",
    ),
    refused(
        "latest turned into an append",
        lambda t: latests(t, final=False)[0].update(kind="append", acks=-1),
        "which is no poll or latest",
    ),
    refused(
        "poll dropped, its records kept",
        lambda t: drop(t, "operations", polls(t, final=False)[:1]),
        "which is no poll",
    ),
    refused(
        "latest dropped, its log end kept",
        lambda t: drop(t, "operations", latests(t, final=False)[:1]),
        "which is no poll or latest",
    ),
    refused("all operations dropped", lambda t: t["operations"].clear(), "which is no poll"),
    refused(
        "operations of one partition dropped",
        lambda t: drop(t, "operations", operations(t, 1)),
        "which is no poll",
    ),
    refused(
        "one operation in another topic",
        lambda t: polls(t, final=True)[0].update(topic="other"),
        "but records_read has 0",
    ),
    refused(
        "log end of an unknown operation",
        lambda t: t["end_offsets_seen"][0].update(op_index=9999),
        "the log end belongs to op_index 9999",
    ),
    refused(
        "log end of an append",
        lambda t: t["end_offsets_seen"][0].update(op_index=acked(t, 3)["op_index"]),
        "which is no poll or latest",
    ),
    refused(
        "log end of a negative operation",
        lambda t: t["end_offsets_seen"][0].update(op_index=-1),
        "the log end belongs to op_index -1",
    ),
]

FOUND = [
    anomaly("two acknowledged offsets swapped", lambda t: _swap(t, "offset"), "divergent-value"),
    anomaly(
        "acknowledged one offset later",
        lambda t: acked(t, 3).update(offset=acked(t, 4)["offset"]),
        "two-acks-one-offset",
    ),
    anomaly(
        "acknowledged far beyond the end",
        lambda t: acked(t, 3).update(offset=10**6),
        "duplicate",
    ),
    anomaly(
        "acknowledged at a negative offset",
        lambda t: acked(t, 3).update(offset=-5),
        "impossible-offset",
    ),
    anomaly(
        "acknowledged beyond the largest offset",
        lambda t: acked(t, 3).update(offset=TOO_LARGE),
        "impossible-offset",
    ),
    anomaly(
        "acknowledged at the largest number",
        lambda t: acked(t, 3).update(offset=LARGEST),
        "impossible-offset",
    ),
    anomaly(
        "acknowledged at the smallest number",
        lambda t: acked(t, 3).update(offset=SMALLEST),
        "impossible-offset",
    ),
    anomaly(
        "append that was read fails",
        lambda t: acked(t, 3).update(outcome="fail"),
        "failed-append-visible",
    ),
    anomaly("append dropped", lambda t: drop(t, "operations", [acked(t, 3)]), "phantom-value"),
    anomaly(
        "all appends dropped",
        lambda t: drop(t, "operations", operations(t, kind="append")),
        "phantom-value",
    ),
    anomaly(
        "append moved to the other partition",
        lambda t: acked(t, 3).update(partition=1),
        "phantom-value",
    ),
    anomaly(
        "append invoked long after it was read",
        lambda t: acked(t, 3).update(invoked_ns=2**59, completed_ns=2**59),
        "late-insert",
    ),
    anomaly("times of two appends swapped", _swap_times, "order-inversion"),
    anomaly("writer's process", lambda t: acked(t, 3).update(process=77), "corrupt-record"),
    anomaly("writer's sequence", lambda t: acked(t, 3).update(sequence=77), "corrupt-record"),
    anomaly("writer's key", lambda t: acked(t, 3).update(key="other"), "corrupt-record"),
    anomaly(
        "writer's long key", lambda t: acked(t, 3).update(key="a longer key"), "corrupt-record"
    ),
    anomaly(
        "log end below a record of the same response",
        lambda t: polls(t, final=True)[0].update(end_offset=1),
        "torn-fetch",
    ),
    anomaly(
        "log end of a poll is negative",
        lambda t: polls(t, final=True)[0].update(end_offset=-7),
        "impossible-offset",
    ),
    anomaly(
        "log end of a poll is -1",
        lambda t: polls(t, final=False)[0].update(end_offset=-1),
        "impossible-offset",
    ),
    anomaly(
        "log end of a poll is the largest number",
        lambda t: polls(t, final=True)[0].update(end_offset=LARGEST),
        "impossible-offset",
    ),
    anomaly(
        "log end of a poll is the smallest number",
        lambda t: polls(t, final=True)[0].update(end_offset=SMALLEST),
        "impossible-offset",
    ),
    anomaly(
        "requested log end is -1",
        lambda t: latests(t, final=False)[0].update(offset=-1),
        "impossible-offset",
    ),
    anomaly(
        "requested log end is far too high",
        lambda t: latests(t, final=False)[0].update(offset=1000),
        "unfilled-hole",
    ),
    anomaly(
        "requested log end beyond the largest offset",
        lambda t: latests(t, final=False)[0].update(offset=TOO_LARGE),
        "impossible-offset",
    ),
    anomaly(
        "log end seen is negative",
        lambda t: t["end_offsets_seen"][0].update(end_offset=-3),
        "impossible-offset",
    ),
    anomaly(
        "log end seen is -1",
        lambda t: t["end_offsets_seen"][0].update(end_offset=-1),
        "impossible-offset",
    ),
    anomaly(
        "log end seen is far too high",
        lambda t: t["end_offsets_seen"][0].update(end_offset=5000),
        "unfilled-hole",
    ),
    anomaly(
        "log end seen is the largest number",
        lambda t: t["end_offsets_seen"][0].update(end_offset=LARGEST),
        "impossible-offset",
    ),
    anomaly(
        "final read from an earlier position",
        lambda t: polls(t, final=False)[-1].update(
            position=polls(t, final=False)[-1]["position"] - 1
        ),
        "lost-record",
    ),
    anomaly(
        "position beyond the first record",
        lambda t: polls(t, final=True)[0].update(position=2),
        "nonmonotonic-poll",
    ),
    noted(
        "requested log end is 0 at the end",
        lambda t: latests(t, final=False)[-1].update(offset=0),
        "stale-end",
    ),
]

UNKNOWN = [
    unknown(
        "no operation is final",
        lambda t: set_all(t["operations"], final=False),
        "the final reads do not show what became of",
    ),
    unknown(
        "final reads dropped",
        lambda t: drop_operations(t, polls(t, final=True)),
        "the final reads do not show what became of",
    ),
    unknown(
        "all final operations dropped",
        lambda t: drop_operations(t, operations(t, final=True)),
        "t-0: ",
    ),
    unknown(
        "all polls dropped",
        lambda t: drop_operations(t, operations(t, kind="poll")),
        "the final reads do not show what became of",
    ),
    unknown(
        "final reads of unknown outcome",
        lambda t: set_all(polls(t, final=True), outcome="info"),
        "the final reads do not show what became of",
    ),
    unknown(
        "partition without operations",
        lambda t: drop_operations(t, operations(t, 1)),
        "t-1: the final phase ended as planned, but no client touched the partition",
    ),
    unknown(
        "nothing is acknowledged",
        lambda t: set_all(
            operations(t, kind="append") + operations(t, 1, kind="append"), outcome="info"
        ),
        "no append was acknowledged in the whole run",
    ),
    unknown(
        "only acknowledgements without faults",
        lambda t: set_all(t["operations"], final=True),
        "were acknowledged while a fault was in force",
    ),
]

HARMLESS = [
    harmless(
        "acknowledgement of a read append forgotten",
        lambda t: acked(t, 3).update(outcome="info"),
        "an append of unknown outcome may have happened, and its record is there",
    ),
    harmless(
        "offset of a read append forgotten",
        lambda t: acked(t, 3).update(offset=None),
        "the reads show where the record is",
    ),
    harmless(
        "acks=1 for a record that stayed",
        lambda t: acked(t, 3).update(acks=1),
        "the promise is weaker, and was kept",
    ),
    harmless(
        "acks=0 for a record that stayed",
        lambda t: acked(t, 3).update(acks=0),
        "nothing was promised, and the record is there",
    ),
    harmless(
        "node and error of an operation",
        lambda t: acked(t, 3).update(node="b99", error="odd", error_code=7),
        "they are for the report",
    ),
    harmless(
        "poll of the main phase forgotten",
        lambda t: drop_operations(t, polls(t, final=False)[:1]),
        "nothing shows that the poll was ever made",
    ),
    harmless(
        "poll of the main phase of unknown outcome",
        lambda t: polls(t, final=False)[0].update(outcome="info"),
        "its records are those of the log all the same",
    ),
    harmless(
        "latest of the main phase forgotten",
        lambda t: drop_operations(t, latests(t, final=False)[:1]),
        "nothing shows that it was ever requested",
    ),
    harmless(
        "no log ends seen",
        lambda t: t["end_offsets_seen"].clear(),
        "the operations hold the same log ends",
    ),
    harmless(
        "one log end seen twice",
        lambda t: t["end_offsets_seen"].insert(0, dict(t["end_offsets_seen"][0])),
        "an observation that is repeated proves nothing new",
    ),
    harmless(
        "all times one second later",
        lambda t: [
            row.update(
                invoked_ns=row["invoked_ns"] + 10**9, completed_ns=row["completed_ns"] + 10**9
            )
            for row in t["operations"]
            if row["final"]
        ],
        "only differences of times count, and the final phase still follows the main one",
    ),
]

CORRUPTIONS: list[Corruption] = [*REFUSED, *FOUND, *UNKNOWN, *HARMLESS]
