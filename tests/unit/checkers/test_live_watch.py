"""The live watch sees what no log does as soon as it is recorded, and nothing else."""

import random
from collections.abc import Iterable

import pytest

from checkers.anomalies import ANOMALIES
from checkers.kernels.linearizability import check_tables
from checkers.kernels.live_watch import LiveWatch
from harness.history.op import Completion, Outcome, ReadRecord
from tests.property.brute_force import (
    Call,
    ends_table,
    numbered_history,
    operations_table,
    records_table,
)

LIVE = frozenset(
    {
        "order-inversion",
        "future-read",
        "late-insert",
        "skipped-offset",
        "lost-record",
        "torn-fetch",
        "nonmonotonic-poll",
        "unordered-poll",
        "phantom-value",
        "failed-append-visible",
        "corrupt-record",
        "misplaced-record",
    }
)
"""What can be seen without remembering every offset."""


def watched(calls: Iterable[Call], status: str = "ok") -> str:
    """Returns the finding of a watch that is told of the calls in order of time."""
    watch = LiveWatch()
    numbered = sorted(calls, key=lambda call: (call.inv, call.op))
    names = {call.op: number for number, call in enumerate(numbered)}
    events = [(call.inv, 0, call) for call in numbered]
    events += [(call.res, 1, call) for call in numbered if call.res is not None]
    for _, is_end, call in sorted(events, key=lambda event: (*event[:2], names[event[2].op])):
        if not is_end:
            watch.invoke(
                names[call.op],
                kind=call.kind,
                topic="t",
                partition=0,
                invoked_ns=call.inv,
                acks=call.acks if call.kind == "append" else 0,
                position=call.position,
            )
            continue
        records = [
            ReadRecord(
                offset=offset,
                value=names.get(value, 1000 + value),
                status=status,
                process=0,
                sequence=0,
                key="",
                leader_epoch=0,
            )
            for offset, value in call.records
        ]
        completion = Completion(
            outcome=Outcome(call.outcome), offset=call.offset, end_offset=call.end
        )
        watch.complete(names[call.op], call.res or 0, completion, records)
    return watch.finding


def append(op: int, inv: int, res: int | None, offset: int | None = None, **more: object) -> Call:
    return Call(op=op, kind="append", process=op, inv=inv, res=res, offset=offset, **more)  # type: ignore[arg-type]


def poll(op: int, inv: int, res: int, *records: tuple[int, int], position: int = 0) -> Call:
    return Call(
        op=op, kind="poll", process=op, inv=inv, res=res, records=records, position=position
    )


def test_each_kind_of_finding_has_its_sentence() -> None:
    cases = {
        "op 1 is at offset 0, but offset 1 had been seen before it began": [
            append(0, 1, 5, 1),
            append(1, 6, 7, 0),
        ],
        "op 2 returned offset 1 where offset 0 is next": [
            append(0, 1, 5, 0),
            append(1, 1, 5, 1),
            poll(2, 6, 7, (1, 1)),
        ],
        "op 0 failed, yet op 1 read its record at offset 0": [
            append(0, 1, 5, outcome="fail"),
            poll(1, 6, 7, (0, 0)),
        ],
        "which no append sent": [poll(0, 1, 5, (0, 7))],
        "together with the log end 1": [
            append(0, 1, 5, 0),
            append(1, 1, 5, 1),
            Call(
                op=2,
                kind="poll",
                process=2,
                inv=6,
                res=7,
                position=0,
                records=((0, 0), (1, 1)),
                end=1,
            ),
        ],
    }
    for sentence, calls in cases.items():
        assert sentence in watched(calls)
    assert "corrupt record at offset 0" in watched(
        [append(0, 1, 5, 0), poll(1, 6, 7, (0, 0))], "corrupt"
    )


def test_what_kafka_does_not_promise_is_no_finding() -> None:
    stale = Call(op=1, kind="latest", process=1, inv=6, res=7, offset=0)
    assert watched([append(0, 1, 5, 0), stale]) == ""
    assert watched([append(0, 1, 5, 1, acks=1), append(1, 6, 7, 0)]) == ""
    assert watched([append(0, 1, 5, 1), append(1, 5, 7, 0)]) == "", "equal times are concurrent"


def test_a_record_of_acks_1_counts_once_it_was_read() -> None:
    calls = [append(0, 1, 5, 1), append(1, 6, 7, 0, acks=1)]
    assert watched(calls) == ""
    assert "op 1 is at offset 0" in watched([*calls, poll(2, 8, 9, (0, 1), (1, 0))])


def test_a_finding_is_always_confirmed_by_the_kernel_and_most_of_what_it_finds_is_seen_live() -> (
    None
):
    seen = missed = 0
    for number in range(1000):
        calls, sparse, _ = numbered_history(9, number)
        if sparse:
            continue
        report = check_tables(operations_table(calls), records_table(calls), ends_table(calls))
        found = {finding.id for finding in report.findings if not finding.weak.all()}
        finding = watched(calls)
        assert not finding or any(ANOMALIES[each].level != "fresh" for each in found), calls
        seen += bool(finding)
        missed += bool(found & LIVE and not finding)
    assert seen > 30
    assert missed < seen, "it needs no memory of every offset, and misses what needs it"


def test_the_order_of_the_calls_in_the_list_does_not_matter() -> None:
    calls = [append(0, 1, 5, 1), append(1, 6, 7, 0)]
    shuffled = random.Random(1).sample(calls, 2)
    assert watched(calls) == watched(shuffled)


def told(*events: tuple[str, int, int, int | None]) -> str:
    """Returns the finding of a watch of appends (`append`) and of queries for the log end (`latest`).

    Each event is the kind, the number of the operation, the time, and the offset of a response.
    """
    watch = LiveWatch()
    for kind, op, at_ns, offset in events:
        if offset is None:
            watch.invoke(op, kind=kind, topic="t", partition=0, invoked_ns=at_ns, acks=-1)
        else:
            watch.complete(op, at_ns, Completion(outcome=Outcome.OK, offset=offset))
    return watch.finding


@pytest.mark.parametrize("end", [1, 2, 100])
def test_a_log_end_shows_that_the_offset_below_it_exists(end: int) -> None:
    def finding(offset: int) -> str:
        return told(
            ("latest", 0, 1, None),
            ("latest", 0, 5, end),
            ("append", 1, 6, None),
            ("append", 1, 7, offset),
        )

    assert f"op 1 is at offset {end - 1}, but offset {end - 1} had been seen" in finding(end - 1)
    assert finding(end) == ""


def test_an_append_that_begins_when_another_one_ends_may_come_before_it() -> None:
    for begins, is_found in ((5, False), (6, True)):
        finding = told(
            ("append", 0, 1, None),
            ("append", 0, 5, 1),
            ("append", 1, begins, None),
            ("append", 1, 9, 0),
        )
        assert bool(finding) is is_found


@pytest.mark.parametrize(("value", "is_known"), [(-1, False), (0, True), (1, True), (2, False)])
def test_values_of_operations_that_have_not_begun_are_unknown(value: int, is_known: bool) -> None:
    """Operation 0 is an append, operation 1 is the poll."""
    record = ReadRecord(
        offset=0, value=value, status="ok", process=0, sequence=0, key="", leader_epoch=0
    )
    watch = LiveWatch()
    for op, kind in enumerate(("append", "poll")):
        watch.invoke(op, kind=kind, topic="t", partition=0, invoked_ns=op, acks=-1)
    watch.complete(1, 5, Completion(outcome=Outcome.OK), [record])
    assert ("which no append sent" not in watch.finding) is is_known
