"""Compacted logs: the cleaner may remove what a later record of the same key replaces, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from checkers.final_reads import judge_with_final_reads
from checkers.removed_records import with_removed_records
from harness.contracts.run_context import (
    BATCH_CHECKER,
    LOG_CHECKERS,
    QUERY_CHECKER,
    SESSION_CHECKER,
    RunContext,
)
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.runs import (
    Call,
    append,
    heard,
    leads,
    offset_query,
    replica,
    run,
    state,
)
from tests.anomalies.test_group_anomalies import Group, delivery
from tests.parts import parts
from tests.property.brute_force import ends_table, operations_table, records_table
from tests.spark.stored_runs import with_column

CONTEXT = RunContext(compacted=True, enabled_faults=(), acked_during_faults_min=0)
IN_BATCHES = replace(CONTEXT, checkers=(*LOG_CHECKERS, BATCH_CHECKER))
OLD, NEW, OTHER = append(0, 0, at=1), append(1, 1, at=3), append(2, 2, at=5)
KEYS = {0: "a", 1: "a", 2: "b"}


def keyed(calls: list[Call], keys: Mapping[int, str]) -> dict[str, pa.Table]:
    """Returns the tables of a history whose appends have keys, by op index."""
    operations, records = operations_table(calls), records_table(calls)
    of_append = [keys.get(op, "") for op in operations.column("op_index").to_pylist()]
    of_record = [keys.get(value, "") for value in records.column("value").to_pylist()]
    return {
        "operations": with_column(operations, "key", of_append),
        "records_read": with_column(records, "key", of_record),
        "end_offsets_seen": ends_table(calls),
    }


def judged(
    calls: list[Call], keys: Mapping[int, str] = KEYS, context: RunContext = CONTEXT
) -> Verdict:
    return judge_with_final_reads(keyed(calls, keys), context)


def ids(verdict: Verdict) -> set[str]:
    return {anomaly.id for anomaly in verdict.anomalies}


def final(op: int, at: int, *records: tuple[int, int], position: int = 0, end: int = 3) -> Call:
    return Call(
        op=op,
        kind="poll",
        process=9,
        inv=at,
        res=at + 1,
        position=position,
        records=records,
        end=end,
        final=True,
    )


def test_a_record_that_a_later_one_of_its_key_replaces_may_be_gone() -> None:
    calls = [OLD, NEW, OTHER, final(10, 20, (1, 1), (2, 2))]
    assert judged(calls).validity == Validity.VALID
    plain = judged(calls, context=replace(CONTEXT, compacted=False))
    assert ids(plain) >= {"lost-acked-write"}
    assert judged(calls, {0: "c", 1: "a", 2: "b"}).validity == Validity.INVALID, "another key"
    assert judged(calls, {}).validity == Validity.INVALID, "no key replaces nothing"


def test_the_last_record_of_a_key_must_stay() -> None:
    verdict = judged([OLD, NEW, OTHER, final(10, 20, (0, 0), (2, 2))])
    assert verdict.validity == Validity.INVALID
    assert "lost-acked-write" in ids(verdict)
    (lost,) = [one for one in verdict.anomalies if one.id == "lost-acked-write"]
    assert lost.count == 1


def test_both_records_of_a_key_gone_are_two_losses() -> None:
    """Nothing in the final log replaces the first one."""
    verdict = judged([OLD, NEW, OTHER, final(10, 20, (2, 2))])
    (lost,) = [one for one in verdict.anomalies if one.id == "lost-acked-write"]
    assert lost.count == 2


def never_committed(*polls: Call, offset: int = 1, **more: Any) -> Verdict:
    """Judges a history in which the later record of a key was acknowledged with acks=1, and lost its offset."""
    calls = [OLD, append(1, offset, at=3, acks=1), append(2, 1, at=5), *polls]
    return judged(calls, **more)


def test_what_was_acknowledged_with_acks_1_and_cut_off_replaces_nothing() -> None:
    verdict = never_committed(final(10, 20, (1, 2), end=2))
    assert verdict.validity == Validity.INVALID
    (lost,) = [one for one in verdict.anomalies if one.id == "lost-acked-write"]
    assert lost.details["values"] == [0]
    assert never_committed(final(10, 20, (0, 0), (1, 2), end=2)).validity == Validity.VALID
    # It may still be there: the final reads did not go over its offset.
    assert never_committed(final(10, 20, (1, 2), end=3), offset=2).validity == Validity.UNKNOWN
    # It is not: they reached the end of the log.
    gone = never_committed(final(10, 20, (1, 2), end=2), offset=2)
    assert "lost-acked-write" in ids(gone)


def test_a_later_record_of_the_key_in_the_final_log_permits_the_removal() -> None:
    more = append(3, 2, at=7)
    keys = {**KEYS, 3: "a"}
    calls = [OLD, append(1, 1, at=3, acks=1), append(2, 1, at=5), more]
    assert judged([*calls, final(10, 20, (1, 2), (2, 3))], keys).validity == Validity.VALID
    assert judged([*calls, final(10, 20, (1, 2), (2, 3))], {**keys, 3: "c"}).validity == "invalid"
    # The record at its offset cannot be read, and may be the later one.
    last = final(10, 20, (1, 2), (2, 3))
    tables = keyed([*calls, last], {**keys, 3: "c"})
    status = ["corrupt", "ok"]
    tables["records_read"] = with_column(tables["records_read"], "status", status)
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"])
    assert records.column("offset").to_pylist() == [0, 1, 2]


def test_an_append_without_an_offset_is_not_replaced_by_a_record_that_is_gone() -> None:
    unknown = replace(OLD, offset=None)
    calls = [unknown, append(1, 1, at=3, acks=1), append(2, 1, at=5)]
    assert judged([*calls, final(10, 20, (1, 2), end=2)]).validity == Validity.INVALID
    calls.append(append(3, 2, at=7))
    last = final(10, 20, (1, 2), (2, 3))
    assert judged([*calls, last], {**KEYS, 3: "a"}).validity == Validity.VALID


BEYOND = [OLD, append(1, 2, at=3, acks=1), append(2, 1, at=5)]


@pytest.mark.parametrize(
    ("more", "log_end", "expected"),
    [
        ({}, None, [1]),
        ({}, 2, [1]),
        # A replica holds more than the final reads were shown.
        ({}, 3, [0, 1]),
        ({"phase_complete": False}, None, [0, 1]),
        # The end was requested at 20 ns, and the record was acknowledged at 4 ns.
        ({"clock_error_ns": 15}, None, [1]),
        ({"clock_error_ns": 16}, None, [0, 1]),
    ],
)
def test_a_record_beyond_the_end_of_the_final_log_permits_no_removal(
    more: dict[str, Any], log_end: int | None, expected: list[int]
) -> None:
    tables = keyed([*BEYOND, final(10, 20, (1, 2), end=2)], KEYS)
    if log_end is not None:
        looks = [replica(1, 1, 3), replica(9, 1, log_end), replica(9, 2, 2), replica(5, 2, 3)]
        more = {**more, "replica_states": run([], replicas=looks)["replica_states"]}
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"], **more)
    assert records.column("offset").to_pylist() == expected
    both = without_place(tables["operations"]), without_place(tables["records_read"])
    if "replica_states" in more:
        more = {**more, "replica_states": without_place(more["replica_states"])}
    assert with_removed_records(*both, **more)[1].column("offset").to_pylist() == expected


def without_place(table: pa.Table) -> pa.Table:
    return table.drop_columns(["topic", "partition"])


def test_a_record_that_was_read_and_then_removed_has_not_vanished() -> None:
    early = Call(op=5, kind="poll", process=8, inv=7, res=8, position=0, records=((0, 0), (1, 1)))
    assert judged([OLD, NEW, OTHER, early, final(10, 20, (1, 1), (2, 2))]).validity == "valid"


def test_a_record_cannot_be_removed_before_the_one_that_replaces_it_exists() -> None:
    """The poll ends before the later record of the key was sent, so nothing had replaced record 0."""
    late = append(3, 3, at=30)
    keys = {0: "a", 1: "b", 2: "c", 3: "a"}
    early = Call(op=5, kind="poll", process=8, inv=10, res=11, position=0, records=((1, 1), (2, 2)))
    last = final(10, 40, (1, 1), (2, 2), (3, 3), end=4)
    assert "lost-record" in ids(judged([OLD, NEW, OTHER, early, late, last], keys))
    after = replace(early, inv=30, res=35)
    assert judged([OLD, NEW, OTHER, after, late, last], keys).validity == Validity.VALID
    skewed = replace(CONTEXT, clock_error_ns=19)
    assert "lost-record" not in ids(judged([OLD, NEW, OTHER, early, late, last], keys, skewed))


def test_an_append_acknowledged_without_an_offset_may_have_been_replaced() -> None:
    unknown = replace(OLD, offset=None)
    calls = [unknown, NEW, OTHER, final(10, 20, (1, 1), (2, 2))]
    assert judged(calls).validity == Validity.VALID
    assert judged(calls, {0: "c", 1: "a", 2: "b"}).validity == Validity.INVALID
    sent_later = replace(unknown, inv=9, res=10)
    assert judged([NEW, OTHER, sent_later, calls[-1]]).validity == Validity.INVALID


NEWER = {0: "a", 1: "b", 2: "a", 3: "z"}
"""Keys in which op 0 may replace op 2, which was sent after it and may have arrived before it."""
UNANSWERED = Call(op=0, kind="append", process=1, inv=1, res=3, outcome="info")
SENT = append(2, None, at=10)


def test_an_append_that_ended_without_a_response_may_arrive_later_and_replace_another_one() -> None:
    rest = [append(1, 0, at=5), SENT, append(3, 3, at=20)]
    last = final(10, 100, (0, 1), (2, 0), (3, 3), end=4)
    no_response = replace(UNANSWERED, outcome="ok", acks=0)
    for late in (UNANSWERED, replace(UNANSWERED, res=None), no_response):
        assert judged([late, *rest, last], NEWER).validity == Validity.VALID
        assert "lost-acked-write" in ids(judged([late, *rest, last], {**NEWER, 2: "c"}))
    # With a response, it was there before op 2 was sent.
    for answered in (replace(no_response, acks=1), replace(no_response, acks=1, offset=2)):
        assert "lost-acked-write" in ids(judged([answered, *rest, last], NEWER))
    seen = Call(op=7, kind="poll", process=8, inv=7, res=8, position=2, records=((2, 0),))
    assert "lost-acked-write" in ids(judged([UNANSWERED, *rest, seen, last], NEWER))
    assert judged([UNANSWERED, *rest, replace(seen, res=11), last], NEWER).validity == "valid"


def test_a_record_below_one_that_was_known_before_an_append_was_sent_cannot_replace_it() -> None:
    early = append(1, 1, at=5)
    rest = [replace(UNANSWERED, res=None), SENT, append(3, 2, at=20)]
    last = final(10, 100, (0, 0), (1, 1), (2, 3))
    verdict = judged([early, *rest, last], NEWER)
    assert (verdict.validity, "lost-acked-write" in ids(verdict)) == (Validity.INVALID, True)
    # There is a place before op 0, and nothing behind it was known when op 2 was sent.
    later = [append(3, 2, at=20), final(10, 100, (1, 0), (2, 3))]
    assert judged([*rest[:2], *later], NEWER).validity == Validity.VALID
    # A log end that was seen shows that there was a record before it, if no election is known.
    latest = Call(op=6, kind="latest", process=8, inv=6, res=7, offset=1)
    assert "lost-acked-write" in ids(judged([*rest[:2], latest, *later], NEWER))
    elected = [replace(later[0], epoch=1), later[1]]
    elsewhere = [*rest[:2], replace(latest, epoch=0), *elected]
    assert judged(elsewhere, NEWER).validity == Validity.VALID
    late = replace(append(1, 0, at=5), res=12)
    taken = [late, *rest[:2], append(3, 2, at=20), final(10, 100, (0, 1), (1, 0), (2, 3))]
    assert "lost-acked-write" in ids(judged(taken, NEWER)), "another record has the place"


@pytest.mark.parametrize(
    ("known", "kept", "validity"),
    [
        (append(1, 2, at=5), False, Validity.INVALID),
        # No election is known that may have lost it, but some are not recorded.
        (append(1, 2, at=5, acks=1), False, Validity.VALID),
        (append(1, 2, at=5, acks=1), True, Validity.INVALID),
        # The election may have lost it, and then op 2 and op 0 got smaller offsets.
        (append(1, 2, at=5, epoch=3), False, Validity.VALID),
        (append(1, 2, at=5, epoch=3), True, Validity.INVALID),
    ],
)
def test_what_an_election_may_have_lost_does_not_show_where_a_log_ended(
    known: Call, kept: bool, validity: Validity
) -> None:
    """Op 1 had offset 2 before op 2 was sent. It may be gone since because op 3 replaced it."""
    later = append(3, 3, at=20, epoch=4)
    left = ((1, 0), (2, 1), (3, 3)) if kept else ((1, 0), (3, 3))
    calls = [replace(UNANSWERED, res=None), known, SENT, later, final(10, 100, *left, end=4)]
    keys = {**NEWER, 3: "b"}
    assert judged(calls, keys).validity == validity
    if known.epoch == 3:
        states = [state(0, 1, [1, 2, 3], epoch=0), state(15, 2, [2, 3], epoch=1)]
        unknown = [replace(call, epoch=-1) for call in calls]
        tables = {**run(unknown, states=states), **keyed(unknown, keys)}
        assert judge_with_final_reads(tables, CONTEXT).validity == validity
        calm = {**tables, **run(unknown, states=states[:1]), **keyed(unknown, keys)}
        assert judge_with_final_reads(calm, CONTEXT).validity == Validity.INVALID


@pytest.mark.parametrize("offset", [0, None])
def test_a_copy_of_an_append_that_was_sent_again_may_replace_what_was_sent_after_its_response(
    offset: int | None,
) -> None:
    first = replace(append(0, offset, at=1), process=1)
    calls = [first, SENT, append(3, 3, at=20), final(10, 100, (2, 0), (3, 3), end=4)]
    again = replace(CONTEXT, at_least_once=True)
    assert judged(calls, NEWER, again).validity == Validity.VALID
    assert "lost-acked-write" in ids(judged(calls, {**NEWER, 2: "c"}, again))


def test_two_final_polls_without_positions_cover_what_lies_between_them() -> None:
    calls = [OLD, NEW, OTHER, append(3, 3, at=9)]
    keys = {0: "b", 1: "a", 2: "a", 3: "c"}
    polls = [
        final(10, 20, (0, 0), position=-1, end=4),
        final(11, 22, (2, 2), (3, 3), position=-1, end=4),
    ]
    assert judged([*calls, *polls], keys).validity == Validity.VALID
    # The second poll may have begun behind record 1.
    assert judged([*calls, *polls], {**keys, 1: "d"}).validity == Validity.UNKNOWN
    known = [polls[0], replace(polls[1], position=1)]
    assert judged([*calls, *known], {**keys, 1: "d"}).validity == Validity.INVALID


def test_a_final_poll_goes_over_what_its_consumer_moves_past_without_a_record() -> None:
    """The leader no longer has record 1, so the consumer goes on from offset 2 without it."""
    calls = [*(append(op, op, at=1 + 2 * op) for op in range(4)), final(10, 20, (0, 0), end=4)]
    keys = {0: "a", 1: "b", 2: "b", 3: "c"}
    rest = final(12, 24, (2, 2), (3, 3), position=2, end=4)
    empty = final(11, 22, position=1, end=4)
    for polls in ([rest], [empty, rest]):
        assert judged([*calls, *polls], keys).validity == Validity.VALID
        assert "lost-acked-write" in ids(judged([*calls, *polls], {**keys, 1: "d"}))
    # What another poll in between returned may not have been recorded.
    for other in (replace(empty, final=False), replace(empty, outcome="fail")):
        verdict = judged([*calls, other, rest], keys)
        assert (verdict.validity, ids(verdict)) == (Validity.UNKNOWN, {"unseen"})


def test_an_append_without_an_offset_does_not_replace_itself_at_the_offset_that_its_batch_shows() -> (
    None
):
    """The final polls return nothing at offsets 1 and 2. Op 2, at offset 3, shows that op 1 was at offset 2."""
    sent = [replace(one, outcome="ok", res=8) for one in BATCH]
    calls = [append(9, 0, at=1), *(replace(one, inv=6) for one in sent), append(3, 4, at=20)]
    polls = [
        final(10, 100, (0, 9), end=5),
        final(11, 102, position=1, end=5),
        final(12, 104, (3, 2), (4, 3), position=3, end=5),
    ]
    keys = {0: "a", 1: "b", 2: "c", 3: "a", 9: "d"}
    verdict = judged([*calls, *polls], keys)
    (lost,) = [one for one in verdict.anomalies if one.id == "lost-acked-write"]
    assert (verdict.validity, lost.details["values"]) == (Validity.INVALID, [1])
    assert judged([*calls, *polls], {**keys, 1: "a"}).validity == Validity.VALID


OFFSETS_FROM = (0, 2**60)
"""The second one is above 2^53, from which on floating-point numbers have no odd values."""


@pytest.mark.parametrize("start", OFFSETS_FROM)
def test_a_poll_without_a_position_went_over_nothing_below_its_first_record(start: int) -> None:
    """Neither a poll that is not final nor the only final poll of a process shows where it began."""
    first, second, third = start, start + 1, start + 2
    calls = [append(0, first, at=1), append(1, second, at=3), append(2, third, at=5)]
    keys = {0: "a", 1: "b", 2: "a"}
    context = replace(CONTEXT, log_start_offset=start)
    early = Call(op=5, kind="poll", process=8, inv=7, res=8, position=-1, records=((third, 2),))
    end = start + 3
    whole = final(10, 20, (first, 0), (second, 1), (third, 2), position=start, end=end)
    assert judged([*calls, early, whole], keys, context).validity == Validity.VALID
    known = replace(early, position=start)
    assert "lost-record" in ids(judged([*calls, known, whole], keys, context))
    cleaned = final(10, 20, (second, 1), (third, 2), position=start, end=end)
    assert judged([*calls, early, cleaned], keys, context).validity == Validity.VALID
    only = final(10, 20, (third, 2), position=-1, end=end)
    for is_compacted in (True, False):
        verdict = judged([*calls, only], keys, replace(context, compacted=is_compacted))
        assert (verdict.validity, ids(verdict)) == (Validity.UNKNOWN, {"unseen"})


@pytest.mark.parametrize("position", [-1, 0])
@pytest.mark.parametrize(("outcome", "res"), [("ok", 8), ("fail", 8), ("info", 8), ("info", None)])
def test_a_poll_may_pass_over_what_the_cleaner_removed_whatever_its_outcome(
    outcome: str, res: int | None, position: int
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), append(2, 2, at=5)]
    end = final(10, 20, (0, 0), (2, 2))
    early = Call(
        op=5,
        kind="poll",
        process=8,
        inv=7,
        res=res,
        position=position,
        records=((0, 0), (2, 2)),
        outcome=outcome,
    )
    assert judged([*calls, early, end], {0: "b", 1: "a", 2: "a"}).validity == Validity.VALID
    kept = judged([*calls, early, end], {0: "a", 1: "b", 2: "a"})
    assert kept.validity == Validity.INVALID, "the last record of its key was there"


def test_a_poll_in_the_wrong_order_is_still_found() -> None:
    poll = Call(op=5, kind="poll", process=8, inv=7, res=8, position=0, records=((2, 2), (1, 1)))
    verdict = judged([OLD, NEW, OTHER, poll, final(10, 20, (1, 1), (2, 2))])
    assert "unordered-poll" in ids(verdict)


def test_what_is_added_stands_in_order_and_is_counted() -> None:
    calls = [OLD, NEW, OTHER, final(10, 20, (1, 1), (2, 2))]
    tables = keyed(calls, KEYS)
    operations, records, added = with_removed_records(tables["operations"], tables["records_read"])
    assert records.column("offset").to_pylist() == [0, 1, 2]
    assert records.column("index_in_poll").to_pylist() == [0, 1, 2]
    assert records.column("key").to_pylist() == ["a", "a", "b"]
    assert operations.column("record_count").to_pylist() == [0, 0, 0, 3]
    assert [(row["op_index"], row["value"]) for row in added.to_pylist()] == [(10, 0)]
    same = with_removed_records(tables["operations"], records)
    assert same[1].equals(records)
    assert same[2].num_rows == 0


def test_of_two_records_that_had_one_offset_the_later_one_was_removed() -> None:
    """An election lost record 0; then record 1 took its place."""
    early = Call(op=5, kind="poll", process=8, inv=2, res=3, position=0, records=((0, 0),))
    calls = [replace(OLD, outcome="info", offset=None), early, append(1, 0, at=9)]
    calls += [append(2, 1, at=11), append(3, 2, at=13), final(10, 20, (1, 2), (2, 3))]
    tables = keyed(calls, {0: "a", 1: "b", 2: "a", 3: "b"})
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"])
    rows = [(row["op_index"], row["offset"], row["value"]) for row in records.to_pylist()]
    assert rows == [(5, 0, 0), (10, 0, 1), (10, 1, 2), (10, 2, 3)]
    # Without a later record of its key it is lost, whatever had its place before.
    tables = keyed(calls, {0: "a", 1: "c", 2: "a", 3: "b"})
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"])
    assert records.num_rows == 3


def test_what_replaced_a_record_may_have_been_removed_before_a_client_saw_it() -> None:
    """The poll ends before record 3, the only later one of its key that was seen, was sent."""
    unseen = replace(append(2, 2, at=5), outcome="info", offset=None)
    early = Call(op=5, kind="poll", process=8, inv=7, res=8, position=0, records=((1, 1),))
    calls = [OLD, NEW, unseen, early, append(3, 3, at=10), final(10, 20, (1, 1), (3, 3), end=4)]
    keys = {0: "a", 1: "b", 2: "a", 3: "a"}
    assert judged(calls, keys).validity == Validity.VALID
    acked = replace(unseen, outcome="ok")
    assert judged([acked if one is unseen else one for one in calls], keys).validity == "valid"
    for changed in (
        [replace(one, outcome="fail") if one is unseen else one for one in calls],
        [replace(one, inv=9, res=10) if one is unseen else one for one in calls],
        [one for one in calls if one is not unseen],
    ):
        assert "lost-record" in ids(judged(changed, keys))
    assert "lost-record" in ids(judged(calls, {**keys, 2: "c"})), "another key"
    assert "lost-record" in ids(judged(calls, {**keys, 3: "c"})), "one of both must be there"


def test_what_replaced_a_record_may_be_beyond_the_final_reads() -> None:
    unseen = replace(append(2, 2, at=5), outcome="info", offset=None)
    calls, keys = [OLD, NEW, unseen], {0: "a", 1: "b", 2: "a"}
    verdict = judged([*calls, final(10, 20, (1, 1), end=3)], keys)
    assert (verdict.validity, ids(verdict)) == (Validity.UNKNOWN, set())
    # Here they reach the end of the log, and record 2 is not there.
    assert judged([*calls, final(10, 20, (1, 1), end=2)], keys).validity == Validity.INVALID
    more = [*calls, append(3, 2, at=9), final(10, 20, (1, 1), (2, 3))]
    assert judged(more, {**keys, 3: "c"}).validity == Validity.INVALID
    assert judged([*calls, final(10, 20, (1, 1), end=3)], {**keys, 2: "c"}).validity == "invalid"
    latest = Call(op=11, kind="latest", process=9, inv=22, res=23, offset=3, final=True)
    last = final(10, 20, (1, 1), end=2)
    assert judged([*calls, last, latest], keys).validity == Validity.UNKNOWN


BATCH = [
    Call(op=op, kind="append", process=1, inv=1, res=None, outcome="info", batch=head)
    for op, head in ((0, None), (1, 0), (2, 0))
]


def test_what_the_cleaner_removed_of_a_batch_without_a_response_is_not_torn_off() -> None:
    """Only the record at offset 1 shows where the other two were."""
    last = final(10, 20, (1, 1), (3, 3), (4, 4), end=5)
    calls = [*BATCH, append(3, 3, at=9), append(4, 4, at=11), last]
    keys = {0: "a", 1: "b", 2: "c", 3: "a", 4: "c"}
    assert judged(calls, keys, IN_BATCHES).validity == Validity.VALID
    for lost in (0, 2):
        verdict = judged(calls, {**keys, lost: "d"}, IN_BATCHES)
        assert (verdict.validity, ids(verdict)) == (Validity.INVALID, {"torn-batch"})


def test_the_rest_of_a_batch_is_added_once_with_the_columns_of_its_appends() -> None:
    early = Call(op=5, kind="poll", process=8, inv=7, res=8, position=0, records=((0, 0), (1, 1)))
    calls = [*BATCH, append(3, 3, at=9), early, final(10, 20, (1, 1), (3, 3), end=4)]
    tables = keyed(calls, {0: "a", 1: "b", 2: "a", 3: "a"})
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"])
    added = [row for row in records.to_pylist() if (row["op_index"], row["value"]) == (10, 2)]
    columns = ("offset", "process", "sequence", "key", "index_in_poll")
    assert [[row[name] for name in columns] for row in added] == [[2, 1, 2, "a", 2]]
    assert records.num_rows == 6


# --- with idempotent producers ---

MISSING = Call(op=1, kind="append", process=7, inv=5, res=None, outcome="info")


def of_session(
    keys: Mapping[int, str],
    *left: tuple[int, int],
    first: int = 0,
    second: int = 2,
    context: RunContext = CONTEXT,
) -> Verdict:
    """Judges a history in which process 7 sends ops 0, 1 and 2, and another one op 3, whose record is the last."""
    last = second + 1
    calls = [
        replace(append(0, first, at=1), process=7),
        MISSING,
        replace(append(2, second, at=6), process=7, res=9),
        append(3, last, at=20),
        final(10, 100, *left, (second, 2), (last, 3), end=last + 1),
    ]
    checkers = (*LOG_CHECKERS, SESSION_CHECKER)
    return judged(calls, keys, replace(context, checkers=checkers))


def test_the_missing_record_of_a_session_may_have_been_replaced() -> None:
    keys = {0: "x", 1: "a", 2: "a", 3: "b"}
    assert of_session(keys, (0, 0)).validity == Validity.VALID
    assert of_session({**keys, 2: "c", 3: "a"}, (0, 0)).validity == Validity.VALID
    removed = {0: "a", 1: "a", 2: "a", 3: "b"}
    assert of_session(removed, second=2).validity == Validity.VALID, "the one before it as well"
    for other in ({**keys, 2: "c"}, {**keys, 0: "a", 2: "c"}, {**keys, 1: "", 2: "", 3: ""}):
        verdict = of_session(other, (0, 0))
        assert (verdict.validity, ids(verdict)) == (Validity.INVALID, {"producer-gap"})


@pytest.mark.parametrize(
    ("others", "left", "anomalies"),
    [
        ([append(4, 1, at=3)], [(1, 4)], {"producer-gap"}),
        # Another append has its key, but it had its offset until then.
        ([append(4, 1, at=3)], [], {"producer-gap"}),
        ([], [], set()),
    ],
)
def test_the_missing_record_of_a_session_was_not_where_another_one_was(
    others: list[Call], left: list[tuple[int, int]], anomalies: set[str]
) -> None:
    calls = [
        replace(append(0, 0, at=1), process=7),
        MISSING,
        replace(append(2, 2, at=6), process=7, res=9),
        append(3, 3, at=20),
        *others,
        final(10, 100, (0, 0), *left, (2, 2), (3, 3), end=4),
    ]
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, SESSION_CHECKER))
    keys = {0: "x", 1: "a", 2: "a", 3: "q", 4: "q"}
    assert ids(judged(calls, keys, context)) == anomalies


def test_nothing_was_before_the_first_record_of_a_log() -> None:
    calls = [
        MISSING,
        replace(append(2, 0, at=6), process=7, res=9),
        append(3, 1, at=20),
        final(10, 100, (0, 2), (1, 3), end=2),
    ]
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, SESSION_CHECKER))
    assert ids(judged(calls, {1: "a", 2: "a", 3: "b"}, context)) == {"producer-gap"}


@pytest.mark.parametrize(
    ("key", "validity"), [("z", Validity.VALID), ("b", Validity.INVALID)], ids=["replaced", "lost"]
)
def test_a_response_without_a_log_end_makes_no_room_before_the_log(
    key: str, validity: Validity
) -> None:
    """Smallest history: op 0 was acknowledged without an offset, after an empty poll, and is gone."""
    empty = Call(op=3, kind="poll", process=5, inv=2, res=3, position=0)
    calls = [empty, append(0, None, at=10), append(1, 1, at=20), final(10, 100, (1, 1), end=2)]
    assert judged(calls, {0: key, 1: "z"}).validity is validity


def gaps_over_an_election(
    calls: list[Call], keys: Mapping[int, str], *, flagged: bool
) -> list[Judgement]:
    """Returns how gaps are judged if broker 3 was elected at 100, from outside of the ISR if flagged."""
    states = [state(0, 1, [1, 2, 3], epoch=0), state(100, 3, [3], epoch=1, flagged=flagged)]
    context = replace(
        CONTEXT,
        checkers=(*LOG_CHECKERS, SESSION_CHECKER),
        elr_on=False,
        unclean_election_enabled=True,
    )
    verdict = judge_with_final_reads(run(calls, states=states) | keyed(calls, keys), context)
    return [one.judgement for one in verdict.anomalies if one.id == "producer-gap"]


@pytest.mark.parametrize(
    ("keys", "flagged", "expected"),
    [
        ({}, True, Judgement.UNDECIDED),
        # Nothing that a client knows of replaces the record.
        ({2: "x"}, True, Judgement.FORBIDDEN),
        ({2: ""}, True, Judgement.FORBIDDEN),
        # No election loses the one that does.
        ({}, False, Judgement.FORBIDDEN),
    ],
)
def test_an_election_may_have_lost_what_replaced_the_missing_record_of_a_session(
    keys: dict[int, str], flagged: bool, expected: Judgement
) -> None:
    """Smallest history: op 1 was removed because of op 2, which an election lost. The batch of op 1 stays, empty.

    So the elected replica knows that the session sent op 1, and accepts op 3.
    """
    calls = [
        replace(append(0, 0, at=10), process=7),
        replace(append(1, None, at=20), process=7, outcome="info", res=None),
        replace(append(2, 2, at=30), process=8),
        replace(append(3, 2, at=200), process=7),
        final(80, 900, (0, 0), (2, 3)),
    ]
    known = {0: "a", 1: "k", 2: "k", 3: "d"} | keys
    assert gaps_over_an_election(calls, known, flagged=flagged) == [expected]


@pytest.mark.parametrize(
    ("offset", "expected"), [(1, Judgement.UNDECIDED), (0, Judgement.FORBIDDEN)]
)
def test_what_replaces_the_missing_record_is_behind_the_record_before_it(
    offset: int, expected: Judgement
) -> None:
    """An election lost op 2, of the same key, which was at that offset; op 0 was sent before op 1."""
    calls = [
        replace(append(0, 0, at=10), process=7, outcome="info", res=None, offset=None),
        replace(append(1, None, at=20), process=7, outcome="info", res=None),
        replace(append(2, offset, at=30), process=8),
        replace(append(3, 1, at=200), process=7),
        final(80, 900, (0, 0), (1, 3), end=2),
    ]
    keys = {0: "a", 1: "k", 2: "k", 3: "d"}
    assert gaps_over_an_election(calls, keys, flagged=True) == [expected]


def test_the_missing_record_of_a_session_needs_an_offset_between_the_others() -> None:
    """At offset 0, the only other one without a record, it would be before the record that was sent before it."""
    keys = {0: "x", 1: "a", 2: "a", 3: "b"}
    assert ids(of_session(keys, (1, 0), first=1)) == {"producer-gap"}
    sparse = replace(CONTEXT, compacted=False, sparse_offsets=True)
    assert ids(of_session(keys, (0, 0), context=sparse)) == {"producer-gap"}
    # The last record of its key is before every offset that it may have had.
    assert ids(of_session({0: "a", 1: "a", 2: "c", 3: "b"}, (0, 0), second=3)) == {"producer-gap"}


# --- with consumer groups ---


def of_group(*left: tuple[int, int]) -> Verdict:
    """Judges a history in which a member of a group goes from offset 2 to 3 and gets no record, and commits 4."""
    calls = [append(op, op, at=1 + 2 * op) for op in range(4)]
    calls += [delivery(30, (0, 0), (1, 1)), delivery(31, (3, 3)), final(80, 900, *left, end=4)]
    group = Group()
    group.commit(4)
    tables = {
        **run(calls, group_events=group.rows),
        **keyed(calls, {0: "a", 1: "b", 2: "c", 3: "c"}),
    }
    checkers = (*LOG_CHECKERS, "consumer-group")
    return judge_with_final_reads(tables, replace(CONTEXT, checkers=checkers))


def test_a_member_may_pass_over_what_the_cleaner_removed() -> None:
    assert of_group((0, 0), (1, 1), (3, 3)).validity == Validity.VALID
    verdict = of_group((0, 0), (1, 1), (2, 2), (3, 3))
    assert (verdict.validity, ids(verdict)) == (Validity.INVALID, {"group-skipped-record"})


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("elected_at", "replaced_at", "key", "judgement"),
    [
        (300, 7, "c", Judgement.UNDECIDED),
        (7, 7, "c", Judgement.UNDECIDED),
        (6, 7, "c", Judgement.FORBIDDEN),  # before there was a later record
        (300, 10, "c", Judgement.UNDECIDED),
        (300, 11, "c", Judgement.FORBIDDEN),  # the commit had been sent before
        (300, 7, "d", Judgement.FORBIDDEN),
        (300, 7, "", Judgement.FORBIDDEN),
    ],
)
def test_the_next_leader_may_have_a_record_that_its_predecessor_had_removed(
    elected_at: int, replaced_at: int, key: str, judgement: Judgement, before: int
) -> None:
    """An append replaced the one before it, so a member passed over that; the last leader still has it."""
    calls = [append(op, op, at=1 + 2 * op) for op in range(before + 1)]
    last = before + 1
    calls.append(append(last, last, at=replaced_at))
    received = [(op, op) for op in range(before)]
    polls = [delivery(30, *received)] if received else []
    # How the member got behind the record is not recorded.
    polls.append(replace(delivery(31, (last, last)), position=-1))
    whole = [(op, op) for op in range(last + 1)]
    calls += [*polls, final(80, 900, *whole, end=last + 1)]
    group = Group()
    group.commit(last + 1)
    states = [state(-2, 1, [1, 2], epoch=0), state(elected_at, 2, [2], epoch=1)]
    keys = {**{op: f"other {op}" for op in range(before)}, before: key and "c", last: key}
    tables = {**run(calls, states=states, group_events=group.rows), **keyed(calls, keys)}
    checkers = (*LOG_CHECKERS, "consumer-group")
    verdict = judge_with_final_reads(tables, replace(CONTEXT, checkers=checkers))
    (anomaly,) = [each for each in verdict.anomalies if each.id == "group-skipped-record"]
    assert (anomaly.details["offsets"], anomaly.judgement) == ([before], judgement)


@pytest.mark.parametrize(
    ("flagged", "judgement"), [(True, Judgement.EXCUSED), (False, Judgement.FORBIDDEN)]
)
def test_a_member_may_pass_what_the_cleaner_removed_from_a_log_that_was_lost(
    flagged: bool, judgement: Judgement
) -> None:
    """Op 2 had replaced op 1 when the member read; an election loses both, and ops 3 and 4 get their offsets."""
    calls = [append(op, op, at=1 + 2 * op) for op in range(3)]
    calls += [delivery(30, (0, 0), (2, 2)), append(3, 1, at=400), append(4, 2, at=410)]
    group = Group()
    group.commit(3)
    states = [state(2, 1, [1, 2], epoch=0), state(300, 2, [2], epoch=1, flagged=flagged)]
    calls.append(final(80, 900, (0, 0), (1, 3), (2, 4)))
    keys = {0: "a", 1: "x", 2: "x", 3: "y", 4: "z"}
    tables = {**run(calls, states=states, group_events=group.rows), **keyed(calls, keys)}
    checkers = (*LOG_CHECKERS, "consumer-group")
    verdict = judge_with_final_reads(tables, replace(CONTEXT, checkers=checkers))
    (anomaly,) = [each for each in verdict.anomalies if each.id == "group-skipped-record"]
    assert (anomaly.count, anomaly.judgement) == (2, judgement)


# --- with questions about offsets ---


def asked_after_cleaning(*left: tuple[int, int], kind: str = "timestamp") -> Verdict:
    """Judges a history in which a leader that is asked about record 0 no longer has it."""
    calls = [
        append(0, 0, at=1),
        Call(op=5, kind="poll", process=8, inv=10, res=11, position=0, records=((0, 0),)),
        append(1, 1, at=20),
        append(2, 2, at=25),
        final(10, 100, *left),
    ]
    answer = offset_query(
        kind,
        op_index=5,
        record_offset=0,
        record_value=0,
        known_epoch=3,
        asked=1000 if kind == "timestamp" else 3,
        found=1001,
        offset=1,
        leader_epoch=3,
        invoked_ns=50,
        completed_ns=51,
    )
    tables = {**run(calls, offset_queries=[answer]), **keyed(calls, KEYS)}
    checkers = (*LOG_CHECKERS, QUERY_CHECKER)
    return judge_with_final_reads(tables, replace(CONTEXT, checkers=checkers))


@pytest.mark.parametrize(
    ("kind", "anomaly"),
    [("timestamp", "lookup-skips-record"), ("leader-epoch", "epoch-ends-early")],
)
def test_a_leader_may_lack_a_record_that_the_cleaner_removed(kind: str, anomaly: str) -> None:
    verdict = asked_after_cleaning((1, 1), (2, 2), kind=kind)
    assert verdict.validity == Validity.VALID
    assert verdict.coverage["offset_queries_judged"] == 0
    kept = asked_after_cleaning((0, 0), (1, 1), (2, 2), kind=kind)
    assert (kept.validity, ids(kept)) == (Validity.INVALID, {anomaly})


# --- with elections ---

UNCLEAN = replace(CONTEXT, elr_on=False, unclean_election_enabled=True)
REPLACING = Call(op=2, kind="append", process=2, inv=30, res=None, outcome="info")


def of_an_election(
    calls: list[Call],
    keys: Mapping[int, str],
    replicas: list[dict[str, Any]],
    *,
    flagged: bool = True,
    min_isr: int = 2,
) -> Verdict:
    """Judges a history whose logs are complete, and in which broker 3 is elected at 300."""
    created = [replica(0, one, 0) for one in (2, 3)]
    created.append(leads(0, 1, 0, epoch=0, cause="load"))
    states = [
        state(0, 1, [1, 2, 3], epoch=0, min_isr=min_isr),
        state(300, 3, [3], epoch=1, flagged=flagged, min_isr=min_isr),
    ]
    tables = run(calls, states=states, replicas=heard(created + replicas, states))
    return judge_with_final_reads({**tables, **keyed(calls, keys)}, UNCLEAN)


def copied_late(
    keys: Mapping[int, str] = {0: "a", 1: "b", 2: "a"},
    *,
    first: Call | None = None,
    last: Call = REPLACING,
    flagged: bool = True,
    left: tuple[tuple[int, int], ...] = ((1, 1),),
) -> Verdict:
    """Judges a history in which broker 3 lost its disk and copied what was left of the log, but not its end."""
    calls = [first or append(0, 0, at=10), append(1, 1, at=20), last]
    end = left[-1][0] + 1
    calls.append(final(50, 900, *left, end=end))
    replicas = []
    for written, at in ((1, 10), (2, 20), (3, 30)):
        replicas.append(leads(at, 1, written, hw=written - 1, epoch=0))
        replicas += [replica(at + 1, one, written, hw=written - 1) for one in (2, 3)]
    replicas.append(leads(40, 1, 3, hw=3, epoch=0, cause="high-watermark"))
    replicas.append(replica(90, 3, 3, hw=3, role="offline", cause="down"))
    replicas += [replica(150, 3, 0, hw=0, cause="load"), replica(200, 3, end, hw=end)]
    replicas.append(leads(310, 3, end, hw=end, epoch=1, cause="role"))
    return of_an_election(calls, keys, replicas, flagged=flagged)


def test_a_replica_that_copied_a_cleaned_log_may_lack_a_record_below_its_log_end() -> None:
    """The record of the same key that permitted the removal is lost, and no client saw it."""
    verdict = copied_late()
    assert (verdict.validity, ids(verdict)) == ("unknown", {"lost-acked-write", "lost-record"})
    without_offset = copied_late(first=replace(append(0, 0, at=10), offset=None))
    assert without_offset.validity == Validity.UNKNOWN


def test_a_replica_has_what_no_cleaner_may_remove() -> None:
    for keys in ({0: "a", 1: "b", 2: "c"}, {0: "", 1: "b", 2: ""}):
        assert copied_late(keys).validity == Validity.INVALID, "no later record of the key"
    assert copied_late(last=replace(REPLACING, outcome="fail", res=40)).validity == "invalid"
    left, last = ((0, 0), (2, 2)), append(2, 2, at=30)
    only_earlier = copied_late({0: "a", 1: "a", 2: "c"}, last=last, left=left)
    assert only_earlier.validity == Validity.INVALID, "only an earlier record of the key"
    assert copied_late(flagged=False).validity == Validity.INVALID, "no election that may lose it"


def elected_without_it(*, flagged: bool = True, acks: int = -1, log_end: int = 1) -> Verdict:
    """Judges a history in which broker 3 is elected without the later record of a key, and the first is gone.

    Args:
        flagged: Whether the election is.
        acks: Of the later record.
        log_end: Of broker 3 when it is elected; 1 if it has the first record.
    """
    later = append(1, 1, at=20, acks=acks)
    calls = [append(0, 0, at=10), later, append(2, log_end, at=400), append(3, log_end + 1, at=410)]
    end = log_end + 2
    calls.append(final(50, 900, (log_end, 2), (log_end + 1, 3), position=0, end=end))
    replicas = [leads(10, 1, 1, epoch=0), replica(11, 3, log_end)]
    replicas.append(leads(20, 1, 2, hw=2 if acks == -1 else 1, epoch=0))
    replicas.append(leads(310, 3, log_end, hw=log_end, epoch=1, cause="role"))
    replicas += [
        leads(at, 3, log_end + n, hw=log_end + n, epoch=1) for at, n in ((400, 1), (410, 2))
    ]
    keys = {0: "a", 1: "a", 2: "b", 3: "c"}
    return of_an_election(calls, keys, replicas, flagged=flagged, min_isr=1)


def test_an_election_that_lost_what_replaced_a_record_decides_what_its_absence_means() -> None:
    """A replica that copied a cleaned log without its end may lack both, lawfully if the election is."""
    verdict = elected_without_it()
    assert verdict.validity == Validity.UNKNOWN
    (undecided,) = [
        one
        for one in verdict.anomalies
        if one.judgement == Judgement.UNDECIDED and one.id == "lost-acked-write"
    ]
    assert undecided.details["values"] == [0]
    assert elected_without_it(log_end=0).validity == Validity.VALID, "it lost both"
    for acks in (-1, 1):
        verdict = elected_without_it(flagged=False, acks=acks)
        assert verdict.validity == Validity.INVALID
        assert "lost-acked-write" in ids(verdict)


def torn(key: str = "a", *, flagged: bool = True) -> Verdict:
    """Judges a history in which a cleaner removed the first record of a batch, and what replaced it is lost."""
    sent = [replace(one, inv=10) for one in BATCH[:2]]
    calls = [
        *sent,
        append(2, 2, at=20),
        append(3, 2, at=400),
        final(50, 900, (1, 1), (2, 3), end=3),
    ]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(300, 3, [3], epoch=1, flagged=flagged)]
    tables = {**run(calls, states=states), **keyed(calls, {0: "a", 1: "b", 2: key, 3: "c"})}
    return judge_with_final_reads(tables, replace(UNCLEAN, checkers=IN_BATCHES.checkers))


def test_a_batch_whose_record_was_replaced_by_one_that_an_election_lost_is_not_torn() -> None:
    assert "torn-batch" not in ids(torn())
    assert "torn-batch" in ids(torn(flagged=False)), "no election may have lost what replaced it"
    assert "torn-batch" in ids(torn("d")), "nothing replaced it"


def sent_early(
    key: str = "b", *, key_later: str = "b", lost_res: int = 11, epochs: tuple[int, int] = (-1, -1)
) -> Verdict:
    """Judges a history in which a record that was sent early arrives late, at the offset of one that was lost."""
    early = Call(op=1, kind="append", process=1, inv=5, res=350, offset=1, epoch=epochs[0])
    lost = replace(append(2, 1, at=10), res=lost_res, epoch=epochs[1])
    calls = [append(0, 0, at=1), early, lost, append(3, 2, at=360)]
    calls.append(final(50, 900, (0, 0), (2, 3), end=3))
    replicas = [leads(1, 1, 1, epoch=0), replica(2, 3, 1), leads(10, 1, 2, hw=2, epoch=0)]
    replicas.append(leads(310, 3, 1, hw=1, epoch=1, cause="role"))
    replicas += [leads(at, 3, end, hw=end, epoch=1) for at, end in ((340, 2), (360, 3))]
    keys = {0: "x", 1: key, 2: "a", 3: key_later}
    return of_an_election(calls, keys, replicas, min_isr=1)


def test_a_record_sent_before_the_one_whose_offset_it_got_may_have_been_removed() -> None:
    assert sent_early().validity == Validity.VALID
    for verdict in (sent_early("c"), sent_early(key_later="d"), sent_early("", key_later="")):
        assert verdict.validity == Validity.INVALID
        assert "lost-acked-write" in ids(verdict)


def test_which_of_two_records_was_last_at_an_offset_is_not_known_if_they_overlap() -> None:
    """The response of the lost record arrives after that of the one that got its offset."""
    for epochs in ((-1, -1), (1, -1)):
        verdict = sent_early(lost_res=355, epochs=epochs)
        undecided = {one.id for one in verdict.anomalies if one.judgement == Judgement.UNDECIDED}
        assert verdict.validity == Validity.UNKNOWN
        assert "lost-acked-write" in undecided
    for epochs in ((1, -1), (1, 0)):
        verdict = sent_early("c", lost_res=355, epochs=epochs)
        assert verdict.validity == Validity.INVALID, "nothing replaced it"
    assert sent_early(lost_res=355, epochs=(1, 0)).validity == Validity.VALID, "epochs show it"


def test_the_stamp_of_a_record_that_no_client_read_is_not_known() -> None:
    calls = [replace(OLD, epoch=4), NEW, OTHER, final(10, 20, (1, 1), (2, 2))]
    tables = keyed(calls, KEYS)
    _, records, _ = with_removed_records(tables["operations"], tables["records_read"])
    assert records.column("leader_epoch").to_pylist() == [-1, -1, -1]


# --- random histories of a correct log, and with one record lost ---

RUNS = 100


class CompactedLog:
    """A correct log with a cleaner, and what clients saw of it. Mutable."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.calls: list[Call] = []
        self.keys: dict[int, str] = {}
        self.now = 0
        self.end = 0
        self.batch_max = random.choice((1, 3))
        self.kept: dict[int, int] = {}  # value by offset
        self.run()

    def run(self) -> None:
        for _ in range(self.random.randint(10, 40)):
            step = self.random.choice((self.append, self.append, self.poll, self.clean))
            self.now += 10
            step()
        for _ in range(2):
            self.now += 10
            self.read_all()

    def append(self) -> None:
        """Appends a batch of one record or more, which has one response."""
        head = len(self.calls)
        outcome = self.random.choice(("ok", "ok", "ok", "info", "lost"))
        for op in range(head, head + self.random.randint(1, self.batch_max)):
            self.keys[op] = self.random.choice("abc")
            call = append(op, self.end, at=self.now)
            call = replace(call, process=head, batch=None if op == head else head)
            if outcome != "lost":
                self.kept[self.end] = op
                self.end += 1
            if outcome != "ok":
                call = replace(call, outcome="info", offset=None)
            self.calls.append(call)

    def clean(self) -> None:
        """Removes some of the records that a later one of their key replaces."""
        for offset, value in list(self.kept.items()):
            later = [one for at, one in self.kept.items() if at > offset]
            is_replaced = any(self.keys[one] == self.keys[value] for one in later)
            if is_replaced and self.random.random() < 0.7:
                del self.kept[offset]

    def poll(self) -> None:
        position = self.random.randint(0, self.end)
        found = [(at, self.kept[at]) for at in sorted(self.kept) if at >= position]
        self._polled(position, found[: self.random.randint(0, 5)])

    def read_all(self) -> None:
        position = 0
        while position < self.end:
            found = [(at, self.kept[at]) for at in sorted(self.kept) if at >= position]
            chunk = found[: self.random.randint(1, 4)]
            self._polled(position, chunk, is_final=True)
            position = chunk[-1][0] + 1
            self.now += 10

    def _polled(
        self, position: int, records: list[tuple[int, int]], *, is_final: bool = False
    ) -> None:
        at = self.now
        self.calls.append(
            Call(
                op=len(self.calls),
                kind="poll",
                process=100 if is_final else 101,
                inv=at,
                res=at + 1,
                position=position,
                records=tuple(records),
                end=self.end,
                final=is_final,
            )
        )


def without(calls: list[Call], offset: int) -> list[Call]:
    """Returns a history in which no poll returned what is at an offset."""
    return [
        replace(call, records=tuple(row for row in call.records if row[0] != offset))
        for call in calls
    ]


@pytest.mark.parametrize("seed", parts(range(RUNS), quick=10))
def test_a_correct_compacted_log_is_never_invalid_and_the_loss_of_a_last_record_always_is(
    seed: int,
) -> None:
    log = CompactedLog(Random(seed))
    assert not judged(log.calls, log.keys, IN_BATCHES).anomalies
    last = {log.keys[value]: offset for offset, value in sorted(log.kept.items())}
    acked = {call.offset for call in log.calls if call.kind == "append" and call.outcome == "ok"}
    for offset in set(last.values()) & acked:
        verdict = judged(without(log.calls, offset), log.keys, IN_BATCHES)
        # Nothing was read behind the last record of all, so it may only not have been reached.
        expected = Validity.INVALID if offset < max(log.kept) else Validity.UNKNOWN
        assert verdict.validity == expected, f"offset {offset} is lost"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_record_of_acks_1_that_nobody_read_may_have_been_lost_before_it_was_cleaned(
    acks: int,
) -> None:
    """Smallest history of a false `torn-batch`: the log is a tombstone's place, x and c."""
    batch = [
        Call(op=op, kind="append", process=0, inv=1, res=5, offset=op, acks=acks, batch=head)
        for op, head in ((0, None), (1, 0))
    ]
    others = [append(2, None, at=10, outcome="info"), append(3, 1, at=20), append(4, 2, at=30)]
    keys = {0: "k", 1: "k", 2: "z", 3: "z", 4: "k"}
    calls = [*batch, *others, final(10, 100, (1, 3), (2, 4))]
    verdict = judged(calls, keys, IN_BATCHES)
    assert (verdict.validity == Validity.VALID) is (acks == 1), verdict.reasons
    # Somebody read it, so it was in the log.
    early = Call(op=9, kind="poll", process=8, inv=6, res=7, position=0, records=((0, 0),))
    assert judged([*calls, early], keys, IN_BATCHES).validity == Validity.INVALID


def test_the_order_in_time_of_records_that_may_have_been_lost_is_no_promise() -> None:
    """Smallest history of a false `order-inversion`."""
    calls = [
        append(0, None, at=0, outcome="info"),
        append(1, 1, at=1, acks=1),
        append(2, 0, at=10),
        append(3, None, at=13, outcome="info"),
        append(4, 2, at=20),
        append(5, 3, at=30),
        final(10, 100, (2, 4), (3, 5), end=4),
    ]
    keys = {0: "z", 1: "k", 2: "z", 3: "z", 4: "z", 5: "k"}
    assert judged(calls, keys).validity == Validity.VALID
    assert judged([calls[0], append(1, 1, at=1), *calls[2:]], keys).validity == Validity.INVALID
