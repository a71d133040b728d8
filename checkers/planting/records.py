"""Plants in what was acknowledged and read: records that are lost, doubled, foreign, or without a place."""

from collections.abc import Callable

from checkers.planting.cleaner import Cleaner, some_kept
from checkers.planting.copy import Copy, Row, end_ns, fail, forget, neighbours

BEYOND_ALL_OFFSETS = 2**62 + 5


def _lose(copy: Copy) -> Row:
    """Removes an acknowledged record, not the last one, from all that was read."""
    append: Row = some_kept(
        copy, copy.acked()[:-1], "acknowledged record that the final reads returned"
    )
    copy.drop_record(append["op_index"], copy.polls())
    return append


def _lost_acks_1(copy: Copy) -> None:
    _lose(copy)["acks"] = 1


def _unseen(copy: Copy) -> None:
    last = copy.some(copy.acked()[-1:], "acknowledged record that the final reads returned")
    for poll in copy.polls(final=True):
        rows = copy.read(poll)
        rows[:] = [row for row in rows if row["offset"] < last["offset"]]


def _visible_regress(copy: Copy) -> None:
    early = {row["value"] for poll in copy.polls(final=False) for row in copy.read(poll)}
    seen = [append for append in copy.acked()[:-1] if append["op_index"] in early]
    append = some_kept(copy, seen, "record that was read before the final phase")
    copy.drop_record(append["op_index"], copy.polls(final=True))


def _reuse(copy: Copy) -> None:
    first, second = neighbours(copy)
    second["offset"] = first["offset"]


def _diverge(copy: Copy) -> None:
    acked = copy.acked()
    values = {append["op_index"] for append in acked}
    polls = [[row for row in copy.read(poll) if row["value"] in values] for poll in copy.polls()]
    rows = copy.some([rows for rows in polls if rows], "poll that returned an acknowledged record")
    record = copy.some(rows, "record")
    others = [append for append in acked if append["op_index"] != record["value"]]
    copy.set_value(record, copy.some(others, "second acknowledged record"))


def _duplicate(copy: Copy) -> None:
    first, second = neighbours(copy)
    for poll in copy.polls():
        for record in copy.read(poll):
            if record["value"] == second["op_index"]:
                copy.set_value(record, first)


def _failed_visible(copy: Copy) -> None:
    fail(copy.some(copy.acked(), "acknowledged record that the final reads returned"))


def _record(copy: Copy) -> Row:
    polls = copy.polls(count_min=1)
    record: Row = copy.some(copy.read(copy.some(polls, "poll that returned a record")), "record")
    return record


def _phantom(copy: Copy) -> None:
    _record(copy)["value"] = max(copy.operations) + 1000


def _corrupt(copy: Copy) -> None:
    _record(copy).update(status="corrupt", value=-1, process=-1, sequence=-1, key="")


def _misplaced(copy: Copy) -> None:
    _record(copy).update(status="foreign", value=-1)


def _impossible(copy: Copy) -> None:
    copy.some(copy.acked(), "acknowledged append")["offset"] = BEYOND_ALL_OFFSETS


def _skip_known(copy: Copy) -> None:
    acked = {append["op_index"]: append for append in copy.acked()}
    cleaner = Cleaner(copy)
    polls = []
    for poll in copy.polls(count_min=3):
        append = acked.get(copy.read(poll)[len(copy.read(poll)) // 2]["value"])
        if append is not None and cleaner.keeps(append, poll["completed_ns"]):
            polls.append(poll)
    poll = copy.some(polls, "poll that returned an acknowledged record between two others")
    del copy.read(poll)[len(copy.read(poll)) // 2]


def _skip_unknown(copy: Copy) -> None:
    forget(_lose(copy))


def _tear(copy: Copy) -> None:
    polls = [poll for poll in copy.polls(count_min=1) if poll["end_offset"] is not None]
    poll = copy.some(polls, "poll that returned records and a log end")
    copy.set_end(poll, max(row["offset"] for row in copy.read(poll)))


def _only_known_appends(copy: Copy) -> None:
    """Makes appends of unknown outcome that no poll returned certain failures, so that none can fill a hole."""
    read = {row["value"] for rows in copy.records.values() for row in rows}
    for row in copy.operations.values():
        is_free = row["outcome"] == "info" or (row["outcome"] == "ok" and row["offset"] is None)
        if row["kind"] == "append" and is_free and row["op_index"] not in read:
            row["completed_ns"] = row["completed_ns"] or row["invoked_ns"] + 1
            fail(row)


def _hole(copy: Copy) -> None:
    _only_known_appends(copy)
    fail(_lose(copy))


def _late_filler(copy: Copy) -> None:
    _only_known_appends(copy)
    append = _lose(copy)
    forget(append)
    append["invoked_ns"] = end_ns(copy) + 1 + copy.clock_error_ns
    append["completed_ns"] = None


def _without_place(copy: Copy) -> None:
    _only_known_appends(copy)
    first, _ = neighbours(copy)
    copy.add_append(first, invoked_ns=first["invoked_ns"], completed_ns=first["completed_ns"])


def _without_place_below_end(copy: Copy) -> None:
    _only_known_appends(copy)
    appends = [row for row in copy.operations.values() if row["kind"] == "append"]
    last_ns = max((row["invoked_ns"] for row in appends), default=0)
    later = [row for row in copy.latest() if row["invoked_ns"] > last_ns + 1 + copy.clock_error_ns]
    copy.some(later, "observation of the log end after the last append")
    copy.add_append(
        copy.some(copy.acked(), "acknowledged append"), invoked_ns=last_ns, completed_ns=last_ns + 1
    )


WITHOUT_PLACE = frozenset({"unplaced-append", "unplaced-below-end"})
OF_HOLES = frozenset({"unfilled-hole", "hole-before-append"})
CHANGES: tuple[tuple[str, str, Callable[[Copy], object]], ...] = (
    ("lost-acked-write", "an acknowledged record is in no read", _lose),
    ("lost-acked-write-acks1", "a record acknowledged with acks=1 is in no read", _lost_acks_1),
    ("unseen", "the final reads end before the last record", _unseen),
    ("offset-reused", "an append is acknowledged at the offset of another one", _reuse),
    ("visible-regress", "a record that was read is not in the final reads", _visible_regress),
    ("two-acks-one-offset", "two appends are acknowledged at one offset", _reuse),
    ("divergent-value", "one poll returns another record at an offset", _diverge),
    ("duplicate", "one record is also where the next one was", _duplicate),
    ("failed-append-visible", "an append whose record was read failed", _failed_visible),
    ("phantom-value", "a record has a value that no append wrote", _phantom),
    ("corrupt-record", "a record has a wrong checksum", _corrupt),
    ("misplaced-record", "a record is of another run", _misplaced),
    ("impossible-offset", "an append is acknowledged beyond all offsets", _impossible),
    ("lost-record", "a poll lacks a record between two others", _skip_known),
    ("skipped-offset", "all polls lack a record of unknown outcome", _skip_unknown),
    ("torn-fetch", "a poll returns a record beyond its log end", _tear),
    ("unfilled-hole", "an offset exists that no append can have filled", _hole),
    ("hole-before-append", "an offset exists before its only append began", _late_filler),
    ("unplaced-append", "an append without an offset finds no place", _without_place),
    (
        "unplaced-below-end",
        "an append without an offset has no place below a log end",
        _without_place_below_end,
    ),
)
