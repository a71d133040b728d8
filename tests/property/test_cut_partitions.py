"""However a partition is cut, its judgement is that of the whole, field by field."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkers.examples import EXAMPLES
from checkers.jobs import huge
from checkers.kernels import remainder, suspects
from checkers.kernels.compose import judge_partition
from checkers.kernels.cut_partition import can_be_cut
from checkers.kernels.validation import check_partition, partition_names
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement
from harness.errors import HistoryError
from harness.runs.judge import stored_context
from tests.anomalies.example_histories import Example
from tests.anomalies.runs import append, final_read, read, run, state
from tests.parts import parts
from tests.property.brute_force import Call, random_history
from tests.property.cutting import differences, judged_as_a_whole, judged_in_pieces
from tests.property.damaged_histories import damaged, with_elections, with_faults
from tests.property.election_runs import random_run
from tests.property.stored_corruption import damaged_copy, record_runs
from tests.property.test_corrupted_runs import CORRUPTIONS
from tests.spark.stored_runs import CONTEXT, recounted, replaced, synthetic, with_group

CAN_BE_CUT = (*LOG_CHECKERS, "replicas", "measures", "consumer-group")
Tables = dict[str, pa.Table]


def some_of(rng: random.Random, *names: str) -> tuple[str, ...]:
    return tuple(
        name for name in (*LOG_CHECKERS, *names) if name in LOG_CHECKERS or rng.random() < 0.5
    )


def with_final_reads(rng: random.Random, calls: list[Call]) -> list[Call]:
    """Returns a history that ends with two final reads, which may miss a record."""
    known: dict[int, int] = {}
    for call in calls:
        if call.kind == "append" and call.outcome == "ok" and call.offset is not None:
            known.setdefault(call.offset, call.op)
        known.update({o: v for o, v in call.records if o not in known})
    if known and rng.random() < 0.3:
        del known[rng.choice(sorted(known))]
    records = tuple(sorted(known.items()))
    half = rng.randrange(len(records) + 1)
    begins = 5 + max([call.inv for call in calls] + [call.res or 0 for call in calls])
    end = records[-1][0] + 1 if records and rng.random() < 0.8 else None
    position = records[half - 1][0] + 1 if half else 0
    base = Call(op=len(calls), kind="poll", process=50, inv=begins, res=begins + 1, final=True)
    first = replace(base, position=0, records=records[:half], end=end)
    second = replace(
        base, op=base.op + 1, inv=begins + 2, res=begins + 3, position=position, end=end
    )
    return [*calls, first, replace(second, records=records[half:])]


@pytest.mark.parametrize("part", parts(range(4), quick=1))
def test_small_random_histories(part: int) -> None:
    for number in range(part * 40, part * 40 + 40):
        rng = random.Random(f"small/{number}")
        calls = random_history(rng)
        if rng.random() < 0.6:
            calls = with_final_reads(rng, calls)
        if rng.random() < 0.5:
            processes = rng.randint(1, 3)
            calls = [replace(call, process=call.op % processes) for call in calls]
        if rng.random() < 0.5:
            calls = [replace(call, acks=rng.choice((1, -1))) for call in calls]
        tables = run(calls)
        context = RunContext(
            acked_during_faults_min=0,
            checkers=some_of(rng, "replicas", "measures"),
            log_start_offset=rng.choice((0, 0, 1, 2, 4)),
            clock_error_ns=rng.choice((0, 0, 1, 30)),
        )
        assert differences(tables, context, rng) == [], (number, calls)


@pytest.mark.parametrize("part", parts(range(8), quick=1))
def test_appends_without_an_offset_below_the_log_start(part: int) -> None:
    found = 0
    for number in range(part * 50, part * 50 + 50):
        rng = random.Random(f"low/{number}")
        start, calls = _beyond_its_start(rng)
        tables = run(calls)
        context = RunContext(
            acked_during_faults_min=0,
            checkers=some_of(rng, "replicas", "measures"),
            log_start_offset=start,
            clock_error_ns=rng.choice((0, 0, 0, 5, 30)),
        )
        assert differences(tables, context, rng) == [], (number, calls)
        anomalies = judged_as_a_whole(tables, context).anomalies
        found += any(one.id.startswith("unplaced") for one in anomalies)
    assert 5 < found < 35


def _beyond_its_start(rng: random.Random) -> tuple[int, list[Call]]:
    """Returns the start of a log in the end, and what clients saw of it: some appends below it have no offset.

    Half of these were sent at another time than their neighbours, so that some have no place.
    """
    count, span = rng.randint(6, 40), rng.choice((3, 12, 30))
    start = rng.randint(2, count - 1)
    calls = []
    for op in range(count):
        moment = 100 + 10 * op
        inv, res = moment - rng.randint(1, span), moment + rng.randint(1, span)
        is_somewhere = op < start and rng.random() < 0.25
        is_unknown = not is_somewhere and rng.random() < 0.05
        if is_somewhere and rng.random() < 0.5:
            later = 10 * rng.randint(-6, 6)
            inv, res = max(1, inv + later), max(2, res + later)
        if is_somewhere or is_unknown or op >= start or rng.random() < 0.95:
            calls.append(
                Call(
                    op=op,
                    kind="append",
                    process=op,
                    inv=inv,
                    res=res,
                    outcome="info" if is_unknown else "ok",
                    offset=None if is_somewhere or is_unknown else op,
                    acks=rng.choice((-1, -1, -1, 1)),
                )
            )
    sent = {call.op for call in calls}
    ended = 160 + 10 * count
    for op in range(count, count + rng.choice((0, 0, 1, 3))):
        at, end = 10 * rng.randint(10, ended // 10), rng.randint(0, 1)
        end = min(count, max(0, (at - 100) // 10 + end))
        calls.append(Call(op=op, kind="latest", process=op, inv=at - 1, res=at + 1, offset=end))
    for op in range(count + 3, count + 3 + rng.choice((0, 1, 3))):
        first = rng.randrange(count)
        stop = min(count, first + rng.randint(1, 5))
        # Retention had removed some of what is below the start.
        there = (at for at in range(first, stop) if at >= start or rng.random() < 0.8)
        records = tuple((at, at) for at in there if at in sent)
        at = 135 + 10 * stop
        base = Call(op=op, kind="poll", process=op, inv=at, res=at + 3, position=first)
        calls.append(replace(base, records=records))
    last = Call(op=count + 9, kind="poll", process=99, inv=ended + 500, res=ended + 501, final=True)
    shown = tuple((at, at) for at in range(start, count))
    return start, [*calls, replace(last, position=start, records=shown, end=count)]


SHAPES: tuple[dict[str, Any], ...] = (
    {"operations": 120, "final_read_records": 7},
    {"operations": 300, "final_read_records": 30, "unknown_share": 0.1, "clients": 3},
    {"operations": 150, "final_read_records": 1, "unknown_share": 0.3, "clients": 5},
    {"operations": 700, "final_read_records": 50},
)


def damaged_runs(numbers: range) -> Iterator[tuple[int, random.Random, Tables, RunContext]]:
    """Yields synthetic histories with up to six damages, elections, faults and consumer groups."""
    clean = [synthetic(1, **shape) for shape in SHAPES]
    for number in numbers:
        rng = random.Random(f"damaged/{number}")
        tables = dict(rng.choice(clean))
        checkers = some_of(rng, "replicas", "measures")
        if rng.random() < 0.3:
            skip = rng.choice(((), (14, 60, 3)))
            committed, seen = rng.choice((30, 60, 10**6)), rng.choice((None, 5))
            tables = with_group(tables, committed=committed, skip=skip, seen=seen)
            checkers = (*checkers, "consumer-group")
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            tables = damaged(tables, rng)
        tables = recounted(tables)
        if rng.random() < 0.4:
            tables = with_elections(tables, rng)
        if rng.random() < 0.4:
            tables = with_faults(tables, rng)
        try:
            check_partition(tables, partition_names("t", 0))
        except HistoryError:
            continue  # no run can have recorded it
        yield (
            number,
            rng,
            tables,
            replace(
                CONTEXT,
                checkers=checkers,
                log_start_offset=rng.choice((0, 0, 10, 40, 90)),
                clock_error_ns=rng.choice((0, 0, 10**5)),
                recovery_max_ms=rng.choice((0, 0, 1, 3)),
                final_phase_complete=rng.random() < 0.8,
                unclean_election_enabled=rng.random() < 0.7,
                elr_on=rng.random() < 0.5,
            ),
        )


@pytest.mark.parametrize("part", parts(range(4), quick=1))
def test_longer_histories_with_damages(part: int) -> None:
    judged = found = 0
    for number, rng, tables, context in damaged_runs(range(part * 20, part * 20 + 20)):
        assert differences(tables, context, rng) == [], number
        judged += 1
        found += bool(judged_as_a_whole(tables, context).anomalies)
    assert found > judged // 2 > 5


def test_runs_with_elections_and_logs_of_replicas() -> None:
    for seed in range(40):
        _, tables, context = random_run(seed)
        checkers = tuple(name for name in context.checkers if name in CAN_BE_CUT)
        context = replace(context, checkers=checkers)
        assert differences(tables, context, random.Random(seed)) == [], seed


@pytest.mark.parametrize("read_at", [90, 1000])
def test_a_read_of_a_lost_record_in_another_piece_counts(read_at: int) -> None:
    """The only election that may have lost op 1 is at 100; a read shows op 1 before it or after it."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(4, 20, 0, 1), read(5, read_at, 0, 1)]
    states = [state(0, 1, [1, 2], epoch=0), state(100, 3, [3], epoch=1, flagged=True)]
    tables = run([*calls, *final_read(10, 0, at=2000)], states=states)
    context = RunContext(elr_on=False, unclean_election_enabled=True, acked_during_faults_min=0)
    expected = Judgement.EXCUSED if read_at == 90 else Judgement.UNDECIDED
    for number in range(10):
        assert differences(tables, context, random.Random(number)) == []
    lost = [a for a in judged_as_a_whole(tables, context).anomalies if a.id == "lost-acked-write"]
    assert [anomaly.judgement for anomaly in lost] == [expected]


def test_a_record_that_was_read_in_another_piece_keeps_its_place() -> None:
    """Op 2 has no place: op 3, sent after its response, is at offset 1, where a read showed it."""
    calls = [
        append(1, 0, at=1),
        replace(append(2, None, at=31), res=35),
        replace(append(3, 1, at=40), acks=1),
        replace(read(4, 48, 0, 1), records=((0, 1), (1, 3)), final=True),
    ]
    tables = run(calls)
    context = RunContext(acked_during_faults_min=0)
    for number in range(10):
        assert differences(tables, context, random.Random(number)) == []
    judged = {one.id: one.judgement for one in judged_as_a_whole(tables, context).anomalies}
    assert judged["unplaced-append"] is Judgement.FORBIDDEN


@pytest.mark.parametrize("is_read", [False, True])
def test_an_offset_that_only_acks_1_shows_need_not_be_filled(is_read: bool) -> None:
    """Op 1 is at offset 1, where op 3 cannot be. Nobody can be at offset 2, if op 4 was read at offset 3."""
    reads = [read(5, 30, 4, start=3)] if is_read else []
    calls = [
        append(0, 0, at=1),
        replace(append(1, None, at=2), outcome="info", res=None),
        Call(op=2, kind="latest", process=2, inv=10, res=11, offset=2),
        append(3, 1, at=20, acks=1),
        append(4, 3, at=24, acks=1),
        *reads,
        *final_read(10, 0, at=100),
    ]
    tables = run(calls)
    context = RunContext(acked_during_faults_min=0)
    for number in range(10):
        assert differences(tables, context, random.Random(number)) == []
    broken = {
        anomaly.id
        for anomaly in judged_as_a_whole(tables, context).anomalies
        if anomaly.judgement is Judgement.FORBIDDEN
    }
    assert broken == ({"hole-before-append", "visible-regress"} if is_read else set())


@pytest.mark.parametrize("identifier", EXAMPLES)
def test_the_smallest_histories_and_their_near_misses(identifier: str) -> None:
    for text in (EXAMPLES[identifier].smallest, EXAMPLES[identifier].near_miss):
        example = Example(text)
        checkers = tuple(name for name in example.context.checkers if name in CAN_BE_CUT)
        context = replace(example.context, checkers=checkers)
        assert differences(example.tables(), context, random.Random(identifier)) == []


@pytest.mark.long
def test_corrupted_runs(tmp_path: Path) -> None:
    runs = record_runs(tmp_path)
    rng = random.Random(1)
    compared = 0
    judged = [c for c in CORRUPTIONS if c.edit is not None and c.ending != "refused"]
    for number, corruption in enumerate(judged):
        run = tmp_path / str(number)
        tables = damaged_copy(corruption, runs, run)
        assert tables is not None
        stored = stored_context(run)
        checkers = tuple(name for name in stored.checkers if name in CAN_BE_CUT)
        context = replace(stored, checkers=checkers)
        if not can_be_cut(context):
            continue
        mine = {
            name: table.filter(pa.compute.equal(table.column("partition"), 0))
            if "partition" in table.column_names
            else table
            for name, table in tables.items()
        }
        assert differences(mine, context, rng) == [], corruption.name
        compared += 1
    assert compared > 40


# --- that the reduction reduces ---


def test_of_a_long_history_only_what_matters_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three damages: an acknowledgement with another offset, a record that is lost, a read of another value."""
    tables = synthetic(1, 100_000, final_read_records=500, unknown_share=0.001)
    operations, records = tables["operations"], tables["records_read"]
    offsets = operations.filter(pa.compute.field("kind") == "append").column("offset").drop_null()
    moved, lost, other = (offsets[len(offsets) * share // 4].as_py() for share in (1, 2, 3))
    row = operations.column("offset").to_pylist().index(moved)
    operations = replaced(operations, "offset", row, moved + 5000)
    row = records.column("offset").to_pylist().index(other)
    records = replaced(records, "value", row, 0)
    records = records.filter(pa.compute.field("offset") != lost)
    tables = recounted({**tables, "operations": operations, "records_read": records})
    rows: list[int] = []

    def counted(topic: str, partition: int, kept: Tables, *more: Any) -> Any:
        rows.append(sum(kept[name].num_rows for name in ("operations", "records_read")))
        return judge_partition(topic, partition, kept, *more)

    monkeypatch.setattr(remainder, "judge_partition", counted)
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, "replicas", "measures"))
    whole = judged_as_a_whole(tables, context)
    assert {"lost-acked-write", "divergent-value", "order-inversion"} <= {
        anomaly.id for anomaly in whole.anomalies
    }
    for width in (1000, 7777):
        assert judged_in_pieces(tables, context, random.Random(width), width=width) == whole
    assert max(rows) < 300


def test_of_too_many_suspects_the_same_ones_are_judged_however_it_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A contradiction counts before losses, so the verdict stays invalid; counts are minima then."""
    tables = synthetic(1, 600, final_read_records=30)
    records = tables["records_read"]
    # The last record of every final poll stays, so that these went past the others.
    offset = records.column("offset").to_numpy()
    keep = pa.array((offset < 20) | (offset > 260) | (offset % 30 == 29))
    records = records.filter(keep)
    last = records.num_rows - 1
    records = replaced(records, "value", last, records.column("value")[0].as_py())
    tables = recounted({**tables, "records_read": records})
    # A log end of 0 after everything contradicts every append, another acknowledgement most of what came later.
    operations = tables["operations"]
    kinds = operations.column("kind").to_pylist()
    stale = len(kinds) - 1 - kinds[::-1].index("latest")
    moved = kinds.index("append", 40)
    operations = replaced(operations, "offset", stale, 0)
    tables["operations"] = replaced(operations, "offset", moved, 290)
    whole = judged_as_a_whole(tables, CONTEXT)
    lost = {anomaly.id: anomaly.count for anomaly in whole.anomalies}["lost-acked-write"]
    assert lost > 200
    monkeypatch.setattr(suspects, "SUSPECTS_MAX", 50)
    for most in (10**6, 3):
        monkeypatch.setattr(huge, "SUSPECTS_SENT_MAX", most)
        cut = [
            judged_in_pieces(tables, CONTEXT, random.Random(width), width=width)
            for width in (1, 7, 1000)
        ]
        assert cut[0] == cut[1] == cut[2]
    found = {anomaly.id: anomaly for anomaly in cut[0].anomalies}
    assert found.keys() >= {"corrupt-record", "lost-acked-write"}
    assert 20 < found["lost-acked-write"].count <= 60
    assert found["lost-acked-write"].details["count_is_minimum"] is True
    assert "at least" in found["lost-acked-write"].sentence
    assert cut[0].coverage["suspects_not_judged"] > 150
    assert any("is a minimum" in reason for reason in cut[0].unknown_reasons)
