"""The kernel reports exactly the instances that the definitions give, with their operations, offsets and times."""

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from checkers.kernels.elections import Elections
from checkers.kernels.findings import Finding
from checkers.kernels.linearizability import Options, check_tables
from checkers.kernels.lost_acked import NO_RANGES, LossReport, check_losses, passed_between_polls
from harness.history.schema import TABLES
from tests.anomalies.claims import plain_reader
from tests.property.brute_force import (
    Call,
    ends_table,
    operations_table,
    records_table,
)
from tests.property.findings_by_definition import Definitions, Instance
from tests.property.losses_by_definition import Declared, Losses

HISTORIES = 720
PARTS = [*range(12), *(pytest.param(part, marks=pytest.mark.long) for part in range(12, 24))]
PROCESSES = ((0,), (0, 1), (0, 255, 256, 511), (0, 65535, 65536, 2**40), (-256, -1, 0, 255))
"""Some have the same last bits."""
ABOUT_HOLES = frozenset(
    {"unfilled-hole", "hole-before-append", "unplaced-append", "unplaced-below-end"}
)


def history_of(number: int) -> tuple[list[Call], Options]:
    """Returns a random history in which about every fourth operation is wrong, and how to read it."""
    rng = random.Random(f"instances/{number}")
    options = Options(sparse=rng.random() < 0.4, clock_error_ns=rng.choice((0, 0, 3)))
    processes = rng.choice(PROCESSES)
    final_share = rng.choice((0.0, 0.5))
    wrong = rng.choice((0.0, 0.1, 0.3))
    calls, log = [], []
    for op in range(rng.randint(3, 14)):
        at = 6 * op
        is_append = rng.random() < 0.5
        call = Call(
            op=op,
            kind="append" if is_append else rng.choice(("poll", "latest")),
            process=rng.choice(processes),
            inv=max(0, at - rng.randint(0, 9)),
            res=at + rng.randint(1, 9),
            final=not is_append and rng.random() < final_share,
        )
        end = len(log) if rng.random() >= wrong else rng.randint(0, len(log) + 2)
        if is_append:
            call = random_append(rng, call, end)
            if call.outcome != "fail" or rng.random() < wrong:
                log.append(op)
        elif call.kind == "latest":
            call = replace(call, offset=end)
        else:
            call = random_poll(rng, call, log, end, wrong)
        calls.append(call)
    rng.shuffle(calls)
    scale = rng.choice((1, 1, 1, 3000))
    start = rng.choice((0, 0, 1, 2, 4, 20)) * scale
    return [_scaled(call, scale) for call in calls], replace(options, log_start_offset=start)


def _scaled(call: Call, scale: int) -> Call:
    """Returns an operation on a log whose offsets are far apart; then the kernel keeps no place per offset."""
    return replace(
        call,
        offset=None if call.offset is None else scale * call.offset,
        position=scale * call.position if call.position > 0 else call.position,
        records=tuple((scale * offset, value) for offset, value in call.records),
        end=None if call.end is None else scale * call.end,
    )


def random_append(rng: random.Random, call: Call, end: int) -> Call:
    outcome = rng.choices(("ok", "info", "fail"), (8, 2, 1))[0]
    if outcome == "info":
        return replace(call, outcome="info", res=None)
    acks = rng.choices((-1, 1, 0), (6, 3, 1))[0]
    is_known = outcome == "ok" and acks and rng.random() < 0.85
    return replace(call, outcome=outcome, acks=acks, offset=end if is_known else None)


def random_poll(rng: random.Random, call: Call, log: list[int], end: int, wrong: float) -> Call:
    position = rng.choice((-1, 0, 0, rng.randint(0, len(log))))
    records = list(enumerate(log))[max(position, 0) : max(position, 0) + rng.choice((1, 2, 9))]
    if records and rng.random() < 2 * wrong:
        at = rng.randrange(len(records))
        offset, value = records[at]
        change = rng.randrange(5)
        if change == 0:
            del records[at]
        elif change == 1:
            records[at] = (offset, rng.choice((99, call.op - 1, call.op - 3, *log)))
        elif change == 2:
            records[at] = (max(0, offset + rng.choice((-2, -1, 1, 2))), value)
        elif change == 3:
            rng.shuffle(records)
        else:
            records.append((offset, rng.choice(log)))
    reported = max(end, 0) if rng.random() < 0.5 else None
    outcome = rng.choices(("ok", "info", "fail"), (8, 1, 1))[0]
    return replace(call, position=position, records=tuple(records), end=reported, outcome=outcome)


def reported(calls: list[Call], options: Options) -> list[Instance]:
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)
    return instances_of(f for f in report.findings if f.id not in ABOUT_HOLES)


def instances_of(findings: Iterable[Finding]) -> list[Instance]:
    names = ("first", "second", "third", "offset", "other", "since_ns", "weak", "gap_ns")
    return sorted(
        # Which of several records at an offset a poll skipped is not defined.
        Instance(id=f.id, **values | ({"second": -1} if f.id == "lost-record" else {}))
        for f in findings
        for row in range(f.count)
        for values in [{name: getattr(f, name)[row].item() for name in names}]
    )


@pytest.mark.parametrize("part", PARTS)
def test_the_kernel_reports_what_the_definitions_give(part: int) -> None:
    count = HISTORIES // 24
    for number in range(part * count, (part + 1) * count):
        calls, options = history_of(number)
        definitions = Definitions(
            calls,
            sparse=options.sparse,
            clock_error_ns=options.clock_error_ns,
            log_start_offset=options.log_start_offset,
        )
        assert reported(calls, options) == definitions.instances(), f"history {number}: {calls}"


def test_holes_are_the_offsets_below_the_end_without_a_known_record() -> None:
    for number in range(100):
        calls = history_of(number)[0]
        report = check_tables(operations_table(calls), records_table(calls), ends_table(calls))
        ends = [call.end for call in calls if call.end is not None]
        ends += [c.offset for c in calls if c.kind == "latest" and c.offset is not None]
        records = {offset for call in calls for offset, _ in call.records}
        records |= {
            call.offset
            for call in calls
            if call.kind == "append"
            and call.outcome == "ok"
            and call.acks
            and call.offset is not None
        }
        end = max([0, *ends, *(offset + 1 for offset in records)])
        borders = [-1, *sorted(records), end]
        ranges = [[a + 1, b - 1] for a, b in pairwise(borders) if b - a > 1]
        assert report.coverage["holes"] == sum(b - a + 1 for a, b in ranges)
        assert report.coverage["hole_ranges"] == ranges


def test_every_anomaly_occurs_in_these_histories() -> None:
    found = {
        (instance.id, instance.weak)
        for number in range(HISTORIES)
        for calls, options in [history_of(number)]
        for instance in Definitions(calls, sparse=options.sparse).instances()
    }
    assert len({identifier for identifier, _ in found}) == 18
    assert len(found) >= 27


def loss_history_of(number: int) -> tuple[list[Call], Declared]:
    """Returns a random history with final reads, some of which read everything, and what its run declares."""
    rng = random.Random(f"losses/{number}")
    calls, _ = history_of(number)
    if rng.random() < 0.7:
        places = {c.offset: c.op for c in calls if c.kind == "append" and c.offset is not None}
        records = tuple(sorted(places.items()))[: rng.choice((1, 2, 9))]
        end = max(places, default=-1) + rng.choice((1, 1, 1, 0, 2))
        read = Call(op=50, kind="poll", process=9, inv=190, res=195, position=0, records=records)
        final = replace(read, final=True, end=max(0, end) if rng.random() < 0.7 else None)
        calls.append(final)
    declared = Declared(
        log_start_offset=rng.choice((0, 0, 1, 2, 4)),
        phase_complete=rng.random() < 0.9,
        ends_recorded=rng.random() < 0.8,
        sparse=rng.random() < 0.3,
    )
    if declared.sparse:
        position = 0
        for op in (51, 52, 53):
            position += rng.choice((0, 1, 2, 3))
            inv = 194 + 3 * (op - 50) - rng.choice((0, 0, 0, 4))
            process = rng.choice((9, 9, 9, 8))
            poll = Call(op=op, kind="poll", process=process, inv=inv, res=inv + 1)
            known = rng.choice((position, position, position, -1))
            calls.append(replace(poll, position=known, final=rng.random() < 0.8))
    return calls, declared


def losses_of(calls: list[Call], declared: Declared) -> LossReport:
    operations, records = operations_table(calls), records_table(calls)
    start = declared.log_start_offset
    report = check_tables(operations, records, ends_table(calls), Options(log_start_offset=start))
    nothing = {
        name: TABLES[name].empty_table()
        for name in ("partition_states", "replica_states", "broker_states", "faults")
    }
    elections = Elections(**nothing, elr_on=False)
    reader = plain_reader(report.history, operations, records, elections)
    return check_losses(
        report.history,
        report.facts,
        elections,
        reader,
        log_start_offset=start,
        phase_complete=declared.phase_complete,
        ends_recorded=declared.ends_recorded,
        passed=passed_between_polls(report.history, operations) if declared.sparse else NO_RANGES,
    )


@pytest.mark.parametrize("part", PARTS)
def test_losses_are_what_the_definitions_give(part: int) -> None:
    count = HISTORIES // 24
    for number in range(part * count, (part + 1) * count):
        calls, declared = loss_history_of(number)
        report, losses = losses_of(calls, declared), Losses(calls, declared)
        assert instances_of(report.findings) == losses.instances(), f"history {number}: {calls}"
        assert report.final.end_offset == losses.end_offset
        assert report.final.is_complete == losses.is_complete
