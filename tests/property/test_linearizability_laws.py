"""What must not matter to the kernel, what may only make things better, and the borders."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.facts import derive_facts
from checkers.kernels.findings import Finding
from checkers.kernels.history import ABSENT, OK_AT, OK_SOMEWHERE, PartitionHistory, read_history
from checkers.kernels.linearizability import Options, check_tables
from checkers.kernels.monoid import (
    BucketElement,
    RealTimeFacts,
    bucket_element,
    bucket_of,
    combine,
    fold,
    real_time_facts,
)
from checkers.kernels.real_time import check_real_time
from checkers.kernels.time_order import LiveMonitor
from checkers.synthetic import Shape, synthetic_tables
from harness.history.schema import END_OFFSETS_SEEN, OPERATIONS, RECORDS_READ
from tests.parts import parts
from tests.property.brute_force import (
    Call,
    ends_table,
    kernel_accepts,
    operations_table,
    random_history,
    records_table,
)


def histories(count: int, seed: int) -> list[list[Call]]:
    rng = random.Random(seed)
    return [random_history(rng) for _ in range(count)]


def arrays(calls: list[Call]) -> PartitionHistory:
    return read_history(operations_table(calls), records_table(calls), ends_table(calls))


def as_rows(findings: tuple[Finding, ...]) -> list[tuple[object, ...]]:
    return [
        (
            f.id,
            sorted(zip(f.first.tolist(), f.second.tolist(), f.offset.tolist(), strict=True)),
            [int(column[f.worst()]) for column in (f.first, f.second, f.third, f.offset, f.other)],
        )
        for f in findings
    ]


# --- invariances ---


def test_row_order_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    for calls in histories(300, seed=11):
        tables = (operations_table(calls), records_table(calls), ends_table(calls))
        shuffled = [t.take(pa.array(rng.permutation(t.num_rows))) for t in tables]
        assert as_rows(check_tables(*tables).findings) == as_rows(check_tables(*shuffled).findings)


def in_time_order(history: PartitionHistory) -> set[bool]:
    """Returns which kinds of violations the time-order form sees: True for appends, False for observations."""
    facts, _ = derive_facts(history)
    revealed: dict[int, list[int]] = {}
    for append, at in zip(facts.pinned.tolist(), facts.pinned_place.tolist(), strict=True):
        revealed.setdefault(append, []).append(at)
    monitor = LiveMonitor()
    events = [*_append_events(history, revealed, monitor), *_observation_events(history, monitor)]
    for _, _, act in sorted(events, key=lambda event: event[:2]):
        act()
    for append, places in sorted(revealed.items()):
        for at in places:
            monitor.place(int(history.append_op[append]), at)
    return {violation.is_append for violation in monitor.violations}


Event = tuple[int, int, Callable[[], None]]
"""When, in which order at that time (invocation, own needs, proofs), and what it tells the monitor."""


def _append_events(
    history: PartitionHistory, revealed: dict[int, list[int]], monitor: LiveMonitor
) -> Iterator[Event]:
    for i, op in enumerate(history.append_op.tolist()):
        inv, res = int(history.append_inv[i]), int(history.append_res[i])
        yield inv, 0, partial(monitor.invoke, op, is_append=True)
        if history.append_status[i] == OK_AT:
            offset = int(history.append_offset[i])
            yield res, 1, partial(monitor.place, op, offset)
            yield res, 2, partial(monitor.prove, offset)
        if history.append_status[i] == OK_SOMEWHERE:
            for at in revealed.get(i, ()):
                yield res, 2, partial(monitor.prove, at)


def _observation_events(history: PartitionHistory, monitor: LiveMonitor) -> Iterator[Event]:
    for i in np.flatnonzero(history.poll_last >= 0).tolist():
        yield int(history.poll_res[i]), 2, partial(monitor.prove, int(history.poll_last[i]))
    for i, op in enumerate(history.end_op.tolist()):
        end, res = int(history.end_offset[i]), int(history.end_res[i])
        yield int(history.end_inv[i]), 0, partial(monitor.invoke, op, is_append=False)
        yield res, 1, partial(monitor.observe_end, op, end)
        yield res, 2, partial(monitor.prove, end - 1)


def test_time_order_and_offset_order_agree() -> None:
    seen = set()
    for calls in histories(800, seed=12):
        history = arrays(calls)
        facts, _ = derive_facts(history)
        ids = {f.id for f in check_real_time(history, facts)}
        by_offset = {
            identifier in ("order-inversion", "future-read", "late-insert") for identifier in ids
        }
        by_time = in_time_order(history)
        assert by_time == by_offset
        seen |= by_time
    assert seen == {True, False}


def elements(facts: RealTimeFacts, width: int) -> list[BucketElement]:
    absent, present = bucket_of(facts.absent_offset, width), bucket_of(facts.present_offset, width)
    found = []
    for bucket in np.unique(np.concatenate((absent, present))).tolist():
        a, b = absent == bucket, present == bucket
        found.append(
            bucket_element(
                RealTimeFacts(
                    absent_offset=facts.absent_offset[a],
                    absent_ns=facts.absent_ns[a],
                    absent_op=facts.absent_op[a],
                    present_offset=facts.present_offset[b],
                    present_ns=facts.present_ns[b],
                    present_op=facts.present_op[b],
                )
            )
        )
    return found


def test_bucket_width_does_not_matter_and_the_fold_agrees_with_the_scan() -> None:
    seen = set()
    for calls in histories(400, seed=13):
        history = arrays(calls)
        facts, _ = derive_facts(history)
        findings = {f.id: f for f in check_real_time(history, facts)}
        for level, of_level in real_time_facts(history, facts).items():
            whole = fold(elements(of_level, 10**6))
            for width in (1, 2, 7):
                assert fold(elements(of_level, width)) == whole
            order = {"order-inversion", "future-read", "late-insert"}
            mine = [f for f in findings.values() if (f.id in order) == (level == "order")]
            assert (whole.slack_ns > 0) == bool(mine)
            if mine:
                assert whole.slack_ns == max(int(f.gap_ns.max()) for f in mine)
                assert whole.first != ABSENT
                assert whole.second != ABSENT
            seen.add((level, bool(mine)))
    assert len(seen) == 4


def test_combining_buckets_is_associative() -> None:
    for calls in histories(300, seed=14):
        history = arrays(calls)
        facts, _ = derive_facts(history)
        for of_level in real_time_facts(history, facts).values():
            parts = elements(of_level, 1)
            for a, b, c in zip(parts, parts[1:], parts[2:]):  # noqa: B905 - the shortest ends it
                assert combine(combine(a, b), c) == combine(a, combine(b, c))


# --- monotonicity ---


def _wider(rng: random.Random, calls: list[Call]) -> list[Call]:
    at = rng.randrange(len(calls))
    call = calls[at]
    later = None if call.res is None else call.res + rng.randint(0, 9)
    return [
        *calls[:at],
        replace(call, inv=call.inv - rng.randint(0, 9), res=later),
        *calls[at + 1 :],
    ]


def _fewer(rng: random.Random, calls: list[Call]) -> list[Call]:
    reads = [i for i, call in enumerate(calls) if call.kind != "append"]
    if not reads:
        return calls
    at = rng.choice(reads)
    return [*calls[:at], *calls[at + 1 :]]


def _less_certain(rng: random.Random, calls: list[Call]) -> list[Call]:
    appends = [i for i, call in enumerate(calls) if call.kind == "append" and call.outcome == "ok"]
    if not appends:
        return calls
    at = rng.choice(appends)
    return [*calls[:at], replace(calls[at], outcome="info", offset=None), *calls[at + 1 :]]


def _one_more(rng: random.Random, calls: list[Call]) -> list[Call]:
    return [
        *calls,
        Call(op=50, kind="append", process=50, inv=rng.randint(0, 40), res=None, outcome="info"),
    ]


@pytest.mark.parametrize("change", [_wider, _fewer, _less_certain, _one_more])
@pytest.mark.parametrize("seed", parts([16, 17], quick=1))
def test_losing_information_never_makes_a_valid_history_invalid(change: object, seed: int) -> None:
    rng = random.Random(15)
    valid = [calls for calls in histories(250, seed=seed) if kernel_accepts(calls)]
    assert len(valid) > 75
    for calls in valid:
        assert kernel_accepts(change(rng, calls))  # type: ignore[operator]


# --- borders ---


def test_an_empty_partition_is_valid() -> None:
    report = check_tables(
        OPERATIONS.empty_table(), RECORDS_READ.empty_table(), END_OFFSETS_SEEN.empty_table()
    )
    assert report.is_linearizable
    assert report.coverage["operations"] == 0


BORDERS: dict[str, tuple[list[Call], bool]] = {
    "only an end observation of 0": (
        [Call(op=0, kind="latest", process=0, inv=1, res=2, offset=0)],
        True,
    ),
    "only an end observation of 1": (
        [Call(op=0, kind="latest", process=0, inv=1, res=2, offset=1)],
        False,
    ),
    "only reads of records that were never written": (
        [Call(op=0, kind="poll", process=0, inv=1, res=2, position=0, records=((0, 9),))],
        False,
    ),
    "only an empty poll": ([Call(op=0, kind="poll", process=0, inv=1, res=2, position=5)], True),
    "a single append": ([Call(op=0, kind="append", process=0, inv=1, res=2, offset=0)], True),
    "a single append far from 0": (
        [Call(op=0, kind="append", process=0, inv=1, res=2, offset=1_000_000)],
        False,
    ),
    "everything unknown": (
        [Call(op=i, kind="append", process=i, inv=1, res=None, outcome="info") for i in range(5)],
        True,
    ),
    "all at one time": (
        [Call(op=i, kind="append", process=i, inv=1, res=1, offset=4 - i) for i in range(5)],
        True,
    ),
}


@pytest.mark.parametrize("name", BORDERS)
def test_border_cases_are_judged_correctly(name: str) -> None:
    calls, is_valid = BORDERS[name]
    assert kernel_accepts(calls) == is_valid


def test_a_log_that_starts_far_from_0_is_valid_with_its_start_declared() -> None:
    calls = [Call(op=0, kind="append", process=0, inv=1, res=2, offset=10**12)]
    tables = (operations_table(calls), records_table(calls), ends_table(calls))
    report = check_tables(*tables, Options(log_start_offset=10**12))
    assert report.is_linearizable
    assert report.facts.places.count == 1


# --- any size ---


@pytest.mark.parametrize("clients", [1, 5, 100])
@pytest.mark.parametrize("unknown_share", [0.0, 0.05])
def test_synthetic_histories_are_valid(clients: int, unknown_share: float) -> None:
    tables = synthetic_tables(Shape(operations=5000, clients=clients, unknown_share=unknown_share))
    report = check_tables(tables["operations"], tables["records_read"], tables["end_offsets_seen"])
    assert [f.id for f in report.findings] == []
    assert report.coverage["acked_read_back"] == report.coverage["appends_acked"] > 1000


def _changed(table: pa.Table, name: str, rows: list[int], values: list[object]) -> pa.Table:
    column = table.column(name).to_pylist()
    for row, value in zip(rows, values, strict=True):
        column[row] = value
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, table.schema.field(at), pa.array(column, table.schema.field(at).type)
    )


@pytest.mark.parametrize("size", [200, 20_000])
def test_a_planted_violation_is_found_in_any_size_with_its_operations(size: int) -> None:
    """Each plant changes one or two rows; the kernel must name the class and exactly those operations."""
    tables = synthetic_tables(Shape(operations=size, clients=5, unknown_share=0.0))
    ops, records = tables["operations"], tables["records_read"]
    kind = np.array(ops.column("kind").to_pylist(), dtype=object)
    appends = np.flatnonzero(kind == "append")
    ends = np.flatnonzero(kind == "latest")
    early, late = int(appends[len(appends) // 4]), int(appends[3 * len(appends) // 4])
    offset = ops.column("offset").to_pylist()

    def run(ops: pa.Table, records: pa.Table, seen: pa.Table) -> dict[str, Finding]:
        return {f.id: f for f in check_tables(ops, records, seen).findings}

    seen = tables["end_offsets_seen"]
    none = seen.slice(0, 0)
    # Two acknowledgements for one offset; the readers agree with the first.
    plant = run(_changed(ops, "offset", [late], [offset[early]]), records, none)
    assert {early, late} == {
        *plant["two-acks-one-offset"].first,
        *plant["two-acks-one-offset"].second,
    }
    # Two appends swap their offsets, and the readers agree.
    swapped = _changed(ops, "offset", [early, late], [offset[late], offset[early]])
    value = np.array(records.column("value").to_pylist())
    rows = np.flatnonzero((value == early) | (value == late)).tolist()
    flipped = _changed(records, "value", rows, [early + late - int(value[r]) for r in rows])
    plant = run(swapped, flipped, none)
    assert early in plant["order-inversion"].first
    assert late in plant["order-inversion"].second
    # A reader sees a record that was never written.
    plant = run(ops, _changed(records, "value", [rows[0]], [10**9]), none)
    reader = records.column("op_index")[rows[0]].as_py()
    assert plant["phantom-value"].first.tolist() == [reader]
    assert plant["phantom-value"].other.tolist() == [10**9]
    # A record is missing from a long final poll.
    last = records.num_rows - 5
    fewer = pa.concat_tables([records.slice(0, last), records.slice(last + 1)])
    plant = run(ops, fewer, none)
    assert plant["lost-record"].second.tolist() == [int(value[last])]
    # A log end goes back by a lot.
    end = int(ends[-1])
    plant = run(_changed(ops, "offset", [end], [offset[early]]), records, none)
    assert plant["stale-end"].second.tolist().count(end) == plant["stale-end"].count
    assert {*plant} <= {"stale-end", "end-regression"}
    # A failed append is visible.
    plant = run(_changed(ops, "outcome", [early], ["fail"]), records, none)
    assert plant["failed-append-visible"].first.tolist() == [early]


def test_arrays_do_not_depend_on_chunks() -> None:
    tables = synthetic_tables(Shape(operations=3000))
    names = ("operations", "records_read", "end_offsets_seen")
    whole = check_tables(*(tables[n] for n in names))
    cut = check_tables(
        *(pa.concat_tables([tables[n].slice(0, 100), tables[n].slice(100)]) for n in names)
    )
    assert as_rows(whole.findings) == as_rows(cut.findings)
    assert whole.coverage == cut.coverage
