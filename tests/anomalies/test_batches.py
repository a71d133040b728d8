"""Record batches are in the log as a whole."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from checkers.kernels.batches import BATCHES, batch_heads
from checkers.kernels.compose import judge_run
from checkers.kernels.partition_tables import PartitionTables
from harness.contracts.run_context import BATCH_CHECKER, LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity
from harness.errors import HistoryError
from harness.history.schema import TABLES
from tests.anomalies.runs import Call, heard, leads, replica, run, state
from tests.property.brute_force import operations_table, records_table

CONTEXT = RunContext(
    checkers=(*LOG_CHECKERS, BATCH_CHECKER), enabled_faults=(), acked_during_faults_min=0
)


def sent(op: int, *, batch: int | None = None, offset: int | None = None, at: int = 1) -> Call:
    """Returns an append of process 1, without a response unless it has an offset."""
    return Call(
        op=op,
        kind="append",
        process=1,
        inv=at,
        res=None if offset is None else at + 8,
        outcome="info" if offset is None else "ok",
        offset=offset,
        batch=batch,
    )


def final(*records: tuple[int, int], op: int = 90, position: int = 0, end: int = 9) -> Call:
    return Call(
        op=op,
        kind="poll",
        process=9,
        inv=100 + op,
        res=101 + op,
        position=position,
        records=records,
        end=end,
        final=True,
    )


THREE = [sent(0), sent(1, batch=0), sent(2, batch=0)]
OTHER = sent(5, at=20)


def latest(op: int, end: int, *, at: int = 50, epoch: int = -1) -> Call:
    return Call(op=op, kind="latest", process=8, inv=at, res=at + 1, offset=end, epoch=epoch)


def counted(
    calls: list[Call], context: RunContext = CONTEXT, *, unreadable: int | None = None
) -> Counter[str]:
    """Counts what the checker alone finds; one offset may be unreadable."""
    tables = {name: schema.empty_table() for name, schema in TABLES.items()} | run(calls)
    if unreadable is not None:
        tables["records_read"] = records_table(calls, statuses={unreadable: "corrupt"})
    report = BATCHES.check(PartitionTables(tables), context)
    assert {one.id for one in report.findings} <= {"torn-batch", "end-in-batch", "unsent-in-batch"}
    return Counter({one.id: one.count for one in report.findings})


def torn(calls: list[Call], context: RunContext = CONTEXT, *, unreadable: int | None = None) -> int:
    """Returns how many records are missing from batches."""
    return counted(calls, context, unreadable=unreadable)["torn-batch"]


def test_a_whole_batch_and_no_batch_are_right() -> None:
    assert torn([*THREE, final((0, 0), (1, 1), (2, 2), end=3)]) == 0
    assert torn([*THREE, OTHER, final((0, 5), end=1)]) == 0
    assert torn([*THREE, final(end=0)]) == 0


@pytest.mark.parametrize("missing", range(3))
def test_every_missing_record_of_a_batch_is_found(missing: int) -> None:
    records = [(offset, offset) for offset in range(3) if offset != missing]
    rest = [OTHER, final(*records, (3, 5), end=4)]
    assert torn([*THREE, *rest]) == 1
    assert torn([*THREE, OTHER, final((0, 0), (3, 5), end=4)]) == 2


@pytest.mark.parametrize("unreadable", range(3))
def test_a_record_that_cannot_be_read_may_be_the_missing_one(unreadable: int) -> None:
    whole = final((0, 0), (1, 1), (2, 2), end=3)
    assert torn([*THREE, whole], unreadable=unreadable) == 0
    assert torn([*THREE, OTHER, final((0, 0), (1, 5), (2, 2), end=3)], unreadable=2) == 1
    # Another record is at the place of the last one.
    assert torn([*THREE, final(*whole.records[:2], (2, 7), end=3)], unreadable=unreadable) == (
        unreadable != 2
    )


def test_another_record_at_its_place_does_not_replace_it() -> None:
    assert torn([*THREE, OTHER, final((0, 0), (1, 5), (2, 2), end=3)]) == 1
    assert torn([*THREE, OTHER, final((0, 0), (1, 1), (2, 5), end=3)]) == 1


def test_records_of_a_batch_in_the_wrong_order_are_not_at_their_places() -> None:
    assert torn([*THREE, final((0, 0), (1, 2), (2, 1), end=3)]) > 0


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        # The settled log ends behind the first record of three.
        ([*THREE, final((0, 0), end=1), final(op=95, position=1, end=1)], 2),
        ([*THREE, final((0, 0), (1, 1), end=2), final(op=95, position=2, end=2)], 1),
        # The end was asked for before the record was there to be seen, or the log goes on.
        ([*THREE, final((0, 0), end=1)], 0),
        ([*THREE, final((0, 0), end=1), final(op=95, position=1, end=2)], 0),
        # A batch cannot begin before offset 0.
        ([*THREE, final((0, 1), (1, 2), end=2)], 1),
        ([*THREE, final((0, 2), end=1)], 2),
        ([*THREE, final((1, 1), (2, 2), position=1, end=3)], 0),
    ],
)
def test_a_log_that_is_too_short_for_a_batch_has_torn_it(calls: list[Call], count: int) -> None:
    assert torn(calls) == count


def test_a_batch_may_go_on_beyond_the_end_that_clients_see() -> None:
    """Near miss: the leader has two records, of which one is not committed."""
    calls = [*THREE[:2], final((0, 0), end=1), final(op=95, position=1, end=1)]
    states = [state(0, 1, [1, 2, 3], epoch=0)]
    for end, expected in ((1, [Judgement.FORBIDDEN]), (2, [])):
        logs = [leads(50, 1, end, epoch=0)]
        verdict = judge_run(run(calls, states=states, replicas=logs), CONTEXT)
        assert [one.judgement for one in verdict.anomalies if one.id == "torn-batch"] == expected


@pytest.mark.parametrize(("error_ns", "count"), [(4, 1), (5, 0)])
def test_an_end_counts_that_was_asked_for_after_the_record_was_seen(
    error_ns: int, count: int
) -> None:
    """The record was seen at 191; clocks may differ."""
    calls = [*THREE[:2], final((0, 0), end=1), replace(final(op=95, position=1, end=1), inv=196)]
    assert torn(calls, replace(CONTEXT, clock_error_ns=error_ns)) == count


def test_what_was_not_reached_may_be_there() -> None:
    assert torn([*THREE, final((0, 0), (1, 1), end=3)]) == 0
    assert torn([*THREE, final((1, 1), (2, 2), position=1, end=3)]) == 0
    cut = replace(CONTEXT, log_start_offset=1)
    assert torn([*THREE, final((1, 1), (2, 2), position=0, end=3)], cut) == 0


def test_several_final_reads_together_show_a_batch() -> None:
    first, second = final((0, 0), end=3), final((1, 1), (2, 2), op=91, position=1, end=3)
    assert torn([*THREE, first, second]) == 0
    assert torn([*THREE, first, replace(second, records=((2, 2),))]) == 1


def test_a_batch_that_was_sent_twice_is_whole_each_time() -> None:
    twice = [(offset, offset % 3) for offset in range(6)]
    assert torn([*THREE, final(*twice, end=6)]) == 0
    assert torn([*THREE, OTHER, final(*twice[:4], (4, 5), twice[5], end=6)]) == 1


def test_the_verdict_names_it_and_nothing_excuses_it() -> None:
    acked = [sent(0, offset=0), sent(1, batch=0), sent(2, offset=1, at=20)]
    verdict = judge_run(run([*acked, final((0, 0), (1, 2), end=2)]), CONTEXT)
    assert verdict.validity is Validity.INVALID
    (anomaly,) = verdict.anomalies
    assert (anomaly.id, anomaly.judgement) == ("torn-batch", Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "the final reads returned the record of op 0 at offset 0, but not that of op 1,"
        " which was sent in the same batch and belongs at offset 1"
    )
    assert [witness.op_index for witness in anomaly.witnesses] == [0, 1]
    assert verdict.levels["integrity"] == "broken"


@pytest.mark.parametrize(
    "calls",
    [
        [sent(0), sent(1, batch=7)],
        [sent(0), sent(1, batch=0), sent(2, batch=1)],
        [sent(0), replace(sent(1, batch=0), process=2)],
        [sent(0, batch=1), sent(1)],
        [final(op=0, end=0), sent(1, batch=0)],
        [sent(0), replace(final(op=1, end=0), batch=0)],
    ],
    ids=["no operation", "behind the first", "other process", "later", "a poll", "of a poll"],
)
def test_a_batch_that_cannot_be_is_refused(calls: list[Call]) -> None:
    with pytest.raises(
        HistoryError, match=r"operations.*, row \d: batch is \d, which is not the first append"
    ):
        judge_run(run(calls), CONTEXT)


def test_heads_are_by_append() -> None:
    calls = [sent(0), sent(3, batch=0), sent(1), sent(4), sent(5, batch=4)]
    ops, heads = batch_heads(operations_table(calls))
    assert (ops.tolist(), heads.tolist()) == ([0, 3, 4, 5], [0, 0, 4, 4])
    assert isinstance(operations_table(calls), pa.Table)
    assert BATCHES.per_partition, "operations of several partitions have no order"


# --- by definition ---


def copies_seen(polls: list[Call], batches: dict[int, list[int]]) -> dict[tuple[int, int], int]:
    """Returns when the first record of each copy of a batch was seen, by its first append and where it begins."""
    seen: dict[tuple[int, int], int] = {}
    for call in polls:
        for offset, shown in call.records:
            for head, members in batches.items():
                if shown in members:
                    copy = head, offset - members.index(shown)
                    assert call.res is not None
                    seen[copy] = min(seen.get(copy, call.res), call.res)
    return seen


def counts_by_definition(calls: list[Call]) -> Counter[str]:
    """Counts the missing records of batches, and the log ends inside of the others, one by one."""
    batches: dict[int, list[int]] = {}
    for call in calls:
        if call.kind == "append":
            batches.setdefault(call.op if call.batch is None else call.batch, []).append(call.op)
    polls = [call for call in calls if call.kind == "poll" and call.records]
    there = {row for call in polls for row in call.records}
    passed = {offset for call in polls for offset in range(call.position, call.records[-1][0] + 1)}
    end = max([call.end for call in calls if call.final] + [offset + 1 for offset in passed])
    # A consumer moves past what is not there any more.
    for before, after in pairwise(sorted((c for c in calls if c.final), key=lambda c: c.inv)):
        reach = max(before.position, before.records[-1][0] + 1 if before.records else 0)
        passed.update(range(reach, after.position))
    asked = max((call.inv for call in calls if call.final and call.end == end), default=-1)
    is_complete = passed >= set(range(end))
    seen = copies_seen(polls, batches)
    count: Counter[str] = Counter()
    inside: set[int] = set()
    for (head, begin), seen_at in seen.items():
        missing = 0
        for place, value in enumerate(batches[head]):
            offset = begin + place
            is_beyond = is_complete and offset >= end and seen_at < asked
            if (offset, value) not in there and (offset in passed or offset < 0 or is_beyond):
                missing += 1
        count["torn-batch"] += missing
        if not missing:
            inside.update(range(begin + 1, begin + len(batches[head])))
    for call in calls:
        count["end-in-batch"] += (call.offset if call.kind == "latest" else call.end) in inside
    return +count


def random_history(random: Random) -> list[Call]:
    calls: list[Call] = []
    while len(calls) < 7:
        head = len(calls)
        size = random.randint(1, 3)
        calls += [sent(head + at, batch=head if at else None, at=1 + head) for at in range(size)]
    values = [random.choice(range(len(calls))) for _ in range(random.randint(1, 7))]
    order = sorted(values) if random.random() < 0.7 else values
    first = random.randint(0, 2)
    records, offset = [], first
    for value in order:
        records.append((offset, value))
        offset += random.choice((1, 1, 1, 2))
    at = random.randint(0, len(records))
    for number, part in enumerate((records[:at], records[at:])):
        if part:
            position = part[0][0] - random.choice((0, 0, min(1, part[0][0])))
            calls.append(final(*part, op=90 + number, position=position, end=offset))
    if random.random() < 0.5:
        # A later read shows where the log ends.
        later = random.choice((0, 0, 1))
        calls.append(replace(final(op=95, position=offset, end=offset + later), inv=195, res=199))
    ends = [latest(96 + at, random.randint(0, 9)) for at in range(random.randint(0, 3))]
    return [*calls, *ends]


@pytest.mark.parametrize("seed", range(400))
def test_the_kernel_counts_what_the_definition_does(seed: int) -> None:
    calls = random_history(Random(seed))
    context = replace(CONTEXT, sparse_offsets=True, at_least_once=True)
    assert counted(calls, context) == counts_by_definition(calls)


WHOLE = final((0, 0), (1, 1), (2, 2), end=3)


@pytest.mark.parametrize(("end", "count"), [(0, 0), (1, 1), (2, 1), (3, 0), (4, 0)])
def test_a_log_end_between_two_records_of_a_batch_is_found(end: int, count: int) -> None:
    assert counted([*THREE, WHOLE, latest(50, end)]) == +Counter({"end-in-batch": count})


def test_each_operation_that_received_such_an_end_counts_once() -> None:
    twice = [*THREE, final(*((offset, offset % 3) for offset in range(6)), end=6)]
    early = replace(final((0, 0), end=1), op=40, final=False)
    ends = [early, latest(50, 2), latest(51, 2), latest(52, 3), latest(53, 5)]
    assert counted([*twice, *ends]) == {"end-in-batch": 4}


def test_of_copies_over_each_other_the_longer_one_counts() -> None:
    """Only a broken log has them: a short batch is in the middle of a long one."""
    calls = [*THREE, sent(3, batch=0), sent(6), sent(7, batch=6)]
    over = final((0, 0), (1, 6), end=2)
    beside = [
        replace(over, op=91, records=((1, 1), (2, 7))),
        final((2, 2), (3, 3), op=92, position=2, end=4),
    ]
    found = counted([*calls, over, *beside, latest(50, 3)], replace(CONTEXT, at_least_once=True))
    assert found == {"end-in-batch": 2 + 1}


def test_an_end_inside_of_a_torn_batch_is_the_same_mistake() -> None:
    calls = [*THREE, OTHER, final((0, 0), (1, 5), (2, 2), end=3), latest(50, 1)]
    assert counted(calls) == {"torn-batch": 1}


def test_a_batch_of_which_only_a_part_was_read_has_its_whole_place() -> None:
    assert counted([*THREE, final((0, 0), end=3), latest(50, 2)]) == {"end-in-batch": 1}
    assert counted([*THREE, final((2, 2), position=2, end=3), latest(50, 1)]) == {"end-in-batch": 1}


def test_the_verdict_names_an_end_inside_of_a_batch() -> None:
    acked = [sent(0, offset=0), sent(1, batch=0, offset=1)]
    read = final((0, 0), (1, 1), end=2)
    verdict = judge_run(run([*acked, read, latest(50, 1)]), CONTEXT)
    (anomaly,) = (one for one in verdict.anomalies if one.id == "end-in-batch")
    assert (verdict.validity, anomaly.judgement) == (Validity.INVALID, Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "the final reads returned the record of op 0 at offset 0, and op 50 received the log end 1, which is"
        " inside of its batch"
    )
    assert [witness.op_index for witness in anomaly.witnesses] == [0, 50]
    assert verdict.levels["integrity"] == "broken"


def over_an_election(
    polls: list[Call], identifier: str = "torn-batch", *, flagged: bool = True
) -> list[Judgement]:
    """Judges ops 6 and 7, one batch, which were written at offset 0 after an election at 950 had lost op 5."""
    calls = [OTHER, sent(6, at=400), sent(7, batch=6, at=400)]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(950, 2, [2], epoch=1, flagged=flagged)]
    context = replace(CONTEXT, elr_on=False, unclean_election_enabled=True)
    verdict = judge_run(run([*calls, *polls], states=states), context)
    return [one.judgement for one in verdict.anomalies if one.id == identifier]


@pytest.mark.parametrize("position", [0, -1])
@pytest.mark.parametrize(
    ("flagged", "epochs", "expected"),
    [
        (True, (0, 1), Judgement.UNDECIDED),
        (True, (-1, 1), Judgement.UNDECIDED),
        (True, (-1, -1), Judgement.UNDECIDED),
        (True, (0, 0), Judgement.FORBIDDEN),
        (True, (1, 1), Judgement.FORBIDDEN),
        (False, (0, 1), Judgement.FORBIDDEN),
    ],
)
def test_two_final_polls_may_show_two_logs(
    flagged: bool, epochs: tuple[int, int], expected: Judgement, position: int
) -> None:
    """Smallest history: one poll before the election, and one from offset 1 on after it."""
    first = final((0, 5), op=80, end=1, position=position)
    polls = [
        replace(first, inv=900, res=901, epoch=epochs[0]),
        replace(final((1, 7), op=81, position=1, end=2), inv=980, res=981, epoch=epochs[1]),
    ]
    assert over_an_election(polls, flagged=flagged) == [expected]


@pytest.mark.parametrize(
    "records",
    [((0, 5), (1, 7)), ((1, 7),), ((0, 6), (1, 5))],
    ids=["another-record", "nothing", "the-second"],
)
def test_one_poll_shows_one_log(records: tuple[tuple[int, int], ...]) -> None:
    """Near miss: the second poll went over the missing record, too."""
    polls = [
        replace(final((0, 5), op=80, end=1), inv=900, res=901, epoch=0),
        replace(final(*records, op=81, end=2), inv=980, res=981, epoch=1),
    ]
    assert over_an_election(polls) == [Judgement.FORBIDDEN]


@pytest.mark.parametrize(
    ("at", "epoch", "read_in", "flagged", "expected"),
    [
        (900, -1, 1, True, Judgement.EXCUSED),
        (900, 0, 1, True, Judgement.EXCUSED),
        # Perhaps the leader that had been deposed returned the end.
        (960, -1, 1, True, Judgement.UNDECIDED),
        (960, 0, 1, True, Judgement.EXCUSED),
        # Or the batch.
        (960, 1, -1, True, Judgement.EXCUSED),
        (960, 1, 0, True, Judgement.EXCUSED),
        # One leader returned both.
        (960, 1, 1, True, Judgement.FORBIDDEN),
        (900, 0, 0, True, Judgement.FORBIDDEN),
        (900, 0, 1, False, Judgement.FORBIDDEN),
    ],
)
def test_an_end_may_be_of_a_log_that_an_election_gave_up(
    at: int, epoch: int, read_in: int, flagged: bool, expected: Judgement
) -> None:
    """Smallest history: the log ended at 1, and an election at 950 lost what another batch replaced."""
    read = replace(final((0, 6), (1, 7), end=2), inv=980, res=981, epoch=read_in)
    polls = [latest(60, 1, at=at, epoch=epoch), read]
    assert over_an_election(polls, "end-in-batch", flagged=flagged) == [expected]


@pytest.mark.parametrize(("at", "epoch"), [(900, 0), (960, 1)])
def test_one_leader_returned_both_if_the_batch_was_read_in_its_epoch_at_any_time(
    at: int, epoch: int
) -> None:
    reads = [
        replace(final((0, 6), (1, 7), op=80, end=2), inv=910, res=911, epoch=0),
        replace(final((0, 6), (1, 7), op=81, end=2), inv=980, res=981, epoch=1),
    ]
    polls = [latest(60, 1, at=at, epoch=epoch), *reads]
    assert over_an_election(polls, "end-in-batch") == [Judgement.FORBIDDEN]


@pytest.mark.parametrize(("copied", "expected"), [(1, Judgement.EXCUSED), (2, Judgement.FORBIDDEN)])
def test_the_record_before_the_end_must_have_been_lost(copied: int, expected: Judgement) -> None:
    """Smallest history with logs: the end was 2, and the elected replica had one record or both."""
    states = [state(0, 1, [1, 2], epoch=0), state(950, 2, [2], epoch=1, flagged=True)]
    logs = [leads(10 * end, 1, end, hw=end, epoch=0) for end in (1, 2)]
    logs += [replica(10 * end + 5, 2, end, hw=end) for end in range(1, copied + 1)]
    logs += [leads(951, 2, copied, hw=copied, epoch=1, cause="role")]
    logs += [leads(970, 2, 4, hw=4, epoch=1)]
    calls = [sent(5, at=5), sent(6, at=955), sent(7, batch=6, at=955), sent(8, batch=6, at=955)]
    calls += [latest(60, 2, at=900, epoch=0)]
    read = replace(final((0, 5), (1, 6), (2, 7), (3, 8), end=4), inv=980, res=981, epoch=1)
    verdict = judge_run(run([*calls, read], states=states, replicas=heard(logs, states)), CONTEXT)
    assert [one.judgement for one in verdict.anomalies if one.id == "end-in-batch"] == [expected]


def test_an_end_of_the_log_that_replaced_a_batch_is_excused() -> None:
    """Smallest history: a final poll before the election shows the batch, and a log end after it another log."""
    before = replace(final((0, 6), (1, 7), op=80, end=2), inv=900, res=901, epoch=0)
    after = replace(final((0, 5), op=81, end=1), inv=980, res=981, epoch=1)
    assert over_an_election([before, after], "end-in-batch") == [Judgement.EXCUSED]
    assert over_an_election([before, after], "end-in-batch", flagged=False) == [Judgement.FORBIDDEN]


# --- a batch is written after all of its records were sent ---

SENT_APART = [sent(0, offset=0), sent(1, batch=0, offset=1, at=5)]


@pytest.mark.parametrize(("res", "error_ns", "count"), [(3, 0, 1), (4, 0, 1), (5, 0, 0), (3, 2, 0)])
@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_no_record_is_read_before_the_last_one_of_its_batch_was_sent(
    res: int, error_ns: int, count: int, outcome: str
) -> None:
    early = Call(op=40, kind="poll", process=8, inv=2, res=res, records=((0, 0),), outcome=outcome)
    calls = [*SENT_APART, early, final((0, 0), (1, 1), end=2)]
    found = counted(calls, replace(CONTEXT, clock_error_ns=error_ns))
    assert found == +Counter({"unsent-in-batch": count})


def test_a_record_that_was_read_before_it_was_sent_itself_is_a_future_read() -> None:
    early = Call(op=40, kind="poll", process=8, inv=2, res=3, records=((1, 1),))
    assert counted([*SENT_APART, early, final((0, 0), (1, 1), end=2)]) == {}


def test_a_record_that_was_read_as_it_was_sent_is_none() -> None:
    """What is found of it is that a later one of its batch had not been sent."""
    calls = [sent(0), sent(1, batch=0, at=5), sent(2, batch=0, at=9)]
    early = Call(op=40, kind="poll", process=8, inv=2, res=5, records=((1, 1),))
    found = counted([*calls, early, final((0, 0), (1, 1), (2, 2), end=3)])
    assert found == {"unsent-in-batch": 1}


def test_every_record_that_was_read_too_early_counts() -> None:
    early = Call(op=40, kind="poll", process=8, inv=2, res=3, records=((0, 0), (1, 1)))
    calls = [sent(0), sent(1, batch=0), sent(2, batch=0, at=5), early, OTHER]
    calls = [*calls, final((0, 0), (1, 1), (2, 2), (3, 5), end=4)]
    assert counted(calls) == {"unsent-in-batch": 2}
    verdict = judge_run(run(calls), CONTEXT)
    (anomaly,) = (one for one in verdict.anomalies if one.id == "unsent-in-batch")
    assert (verdict.validity, anomaly.judgement) == (Validity.INVALID, Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "op 40 had returned the record at offset 0 2 ns before op 2, which was sent in its batch, began"
    )


# --- what lies between final polls ---


def test_what_a_consumer_moved_past_is_missing_from_a_sparse_log() -> None:
    """Smallest history: the record at offset 2 should be between two polls that follow each other."""
    calls = [OTHER, sent(6), sent(7, batch=6)]
    polls = [final((0, 5), (1, 6), end=3), final(op=95, position=3, end=3)]
    sparse = replace(CONTEXT, sparse_offsets=True)
    assert counted([*calls, *polls], sparse) == {"torn-batch": 1}
    # Another process need not have moved past it, nor a consumer that was sent somewhere else.
    assert counted([*calls, polls[0], replace(polls[1], process=10)], sparse) == {}
    assert counted([*calls, polls[0], replace(polls[1], position=2)], sparse) == {}
