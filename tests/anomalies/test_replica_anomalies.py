"""What single replicas promise: high watermarks of one leader in one epoch, and equal records on all replicas."""

import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers.jobs.pieces import leaders_hold, replicas_agree
from checkers.jobs.stored import tasks_of
from checkers.kernels.compose import judge_run
from checkers.kernels.cut_partition import can_be_cut
from checkers.kernels.divergence import LogComparison, find_divergence, windows_of
from checkers.kernels.replicas import LeaderStates, seen_regressions
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity
from harness.history.parquet import table_files, write_tables
from tests.anomalies.runs import (
    Call,
    append,
    batch,
    broker,
    final_read,
    replica,
    run,
    state,
    table,
)

CONTEXT = RunContext(checkers=(*LOG_CHECKERS, "replicas"))
ID = "high-watermark-regression"


def latest(op: int, at: int, end: int, *, until: int | None = None) -> Call:
    return Call(
        op=op,
        kind="latest",
        process=op,
        inv=at,
        res=at + 1 if until is None else until,
        offset=end,
    )


CALLS = [append(0, 0, at=1), append(1, 1, at=3), *final_read(80, 0, 1)]


def found(
    calls: list[Call], sources: dict[int, tuple[str, int]], **tables: Any
) -> tuple[Validity, list[Anomaly]]:
    """Judges calls; `sources` names broker and leader epoch behind the log end that an operation received."""
    tables.setdefault("brokers", [broker(0, number, "registered") for number in (1, 2)])
    judged = run([*CALLS, *calls], **tables)
    rows = judged["end_offsets_seen"].to_pylist()
    for row in rows:
        row["node"], row["leader_epoch"] = sources.get(row["op_index"], ("b9", 99))
    judged["end_offsets_seen"] = table("end_offsets_seen", rows)
    verdict = judge_run(judged, CONTEXT)
    return verdict.validity, [a for a in verdict.anomalies if a.id == ID]


def test_one_leader_may_not_report_a_smaller_log_end_in_the_same_epoch() -> None:
    calls = [latest(10, 20, 2), latest(11, 30, 1)]
    validity, (anomaly,) = found(calls, {10: ("b1", 3), 11: ("b1", 3)})
    assert validity == Validity.INVALID
    assert (anomaly.count, anomaly.level, anomaly.judgement) == (1, "order", Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "op 10 received the log end 2 from b1 in leader epoch 3; op 11, begun 9 ns later, received the log end 1"
        " from it in the same epoch"
    )
    assert [witness.op_index for witness in anomaly.witnesses] == [10, 11]


@pytest.mark.parametrize(
    ("second", "sources"),
    [
        (latest(11, 30, 1), {10: ("b1", 3), 11: ("b1", 4)}),  # a later epoch of the same broker
        (latest(11, 30, 1), {10: ("b1", 3), 11: ("b2", 3)}),  # another broker
        (latest(11, 30, 1), {10: ("b1", -1), 11: ("b1", -1)}),  # the client does not know the epoch
        (latest(11, 30, 1), {10: ("", 3), 11: ("", 3)}),  # nor the broker
        (
            latest(11, 21, 1),
            {10: ("b1", 3), 11: ("b1", 3)},
        ),  # concurrent: begun when 10 was complete
        (latest(11, 30, 2), {10: ("b1", 3), 11: ("b1", 3)}),
    ],
)
def test_every_other_smaller_log_end_is_a_matter_of_freshness(
    second: Call, sources: dict[int, tuple[str, int]]
) -> None:
    assert found([latest(10, 20, 2), second], sources) == (Validity.VALID, [])


@pytest.mark.parametrize(("restart_ns", "count"), [(15, 1), (20, 0), (25, 0), (31, 0), (35, 1)])
def test_nothing_is_compared_across_a_restart(restart_ns: int, count: int) -> None:
    """A broker that is back before its session ends may lead on in the same epoch (kafka-3.9)."""
    calls = [latest(10, 20, 2), latest(11, 30, 1)]
    sources = {10: ("b1", 3), 11: ("b1", 3)}
    brokers = [broker(0, 1, "registered"), broker(restart_ns, 1, "registered")]
    assert len(found(calls, sources, brokers=brokers)[1]) == count
    ended = [replica(restart_ns, 1, 2, epoch=3, role="offline", cause="down")]
    assert len(found(calls, sources, brokers=[], replicas=ended)[1]) == count


def test_a_run_that_records_no_restarts_proves_nothing_about_one_leader() -> None:
    calls = [latest(10, 20, 2), latest(11, 30, 1)]
    assert not found(calls, {10: ("b1", 3), 11: ("b1", 3)}, brokers=[])[1]


@pytest.mark.parametrize(
    ("between", "count"),
    [
        (replica(6, 1, 2, hw=2, epoch=3, role="offline", cause="down"), 0),
        (replica(6, 1, 2, hw=1, epoch=3, cause="load"), 0),
        (replica(6, 2, 2, hw=2, epoch=3, role="offline", cause="down"), 1),
    ],
)
def test_a_leader_that_restarted_may_begin_at_its_checkpoint(
    between: dict[str, Any], count: int
) -> None:
    before = replica(5, 1, 2, hw=2, epoch=3, role="leader")
    after = replica(7, 1, 2, hw=1, epoch=3, role="leader")
    assert len(found([], {}, replicas=[before, between, after])[1]) == count
    registered = [broker(0, 1, "registered"), broker(6, 1, "registered")]
    assert not found([], {}, replicas=[before, after], brokers=registered)[1]


def test_every_smaller_observation_counts_once_and_names_the_largest_before_it() -> None:
    calls = [latest(10, 20, 1), latest(11, 20, 2), latest(12, 30, 0), latest(13, 31, 1)]
    tables = run([*CALLS, *calls])
    ends = [
        {**row, "leader_epoch": 0}
        for row in tables["end_offsets_seen"].to_pylist()
        if row["op_index"] < 80
    ]
    seen = seen_regressions(tables["operations"], table("end_offsets_seen", ends), {})
    assert [(each.first, each.second) for each in seen] == [(11, 12), (11, 13)]
    assert not seen_regressions(
        tables["operations"], table("end_offsets_seen", ends), {}, clock_error_ns=20
    )


def test_a_leaders_own_state_may_not_go_back_in_its_epoch() -> None:
    states = [
        replica(5, 1, 2, hw=1, epoch=3, role="leader"),
        replica(6, 1, 2, hw=2, epoch=3, role="leader"),
        replica(7, 1, 2, hw=1, epoch=3, role="leader"),
    ]
    validity, (anomaly,) = found([], {}, replicas=states[::-1])
    assert validity == Validity.INVALID
    assert anomaly.sentence == (
        "b1 lowered its high watermark from 2 to 1 at 0.000 s, while it led in epoch 3"
    )
    assert not anomaly.witnesses


@pytest.mark.parametrize(("after_ns", "count"), [(6, 0), (7, 1)])
def test_two_states_of_one_moment_may_be_recorded_in_any_order(after_ns: int, count: int) -> None:
    states = [
        replica(6, 1, 2, hw=2, epoch=3, role="leader"),
        replica(after_ns, 1, 2, hw=1, epoch=3, role="leader"),
    ]
    for rows in (states, states[::-1]):
        assert len(found([], {}, replicas=rows)[1]) == count
        # If a later state is still the smaller one, it went back.
        later = replica(8, 1, 2, hw=1, epoch=3, role="leader")
        assert len(found([], {}, replicas=[*rows, later])[1]) == 1


@pytest.mark.parametrize(
    "more",
    [{"epoch": 4, "role": "leader"}, {"epoch": 3}, {"epoch": 3, "role": "offline"}],
)
def test_followers_and_leaders_of_later_epochs_may_have_a_smaller_high_watermark(
    more: dict[str, Any],
) -> None:
    states = [replica(6, 1, 2, hw=2, epoch=3, role="leader"), replica(7, 1, 2, hw=1, **more)]
    other = [replica(8, 2, 2, hw=1, epoch=3, role="leader")]
    assert found([], {}, replicas=[*states, *other]) == (Validity.VALID, [])


@pytest.mark.parametrize(
    ("registered_ns", "error_ns", "count"),
    [(100, 0, 1), (100, 1, 1), (100, 2, 0), (97, 0, 0), (96, 1, 0), (90, 0, 0), (51, 1, 0)],
)
def test_a_state_near_a_registration_may_be_of_the_life_before_or_after_it(
    registered_ns: int, error_ns: int, count: int
) -> None:
    """The smaller high watermark was seen at 98, the larger one at 50."""
    states = [replica(at, 1, 2, hw=hw, epoch=3, role="leader") for at, hw in ((50, 2), (98, 1))]
    brokers = [broker(0, 1, "registered"), broker(registered_ns, 1, "registered")]
    tables = run(CALLS, replicas=states, brokers=brokers)
    context = RunContext(checkers=(*LOG_CHECKERS, "replicas"), clock_error_ns=error_ns)
    assert [a.id for a in judge_run(tables, context).anomalies] == [ID] * count
    # The process that ended stamped its end itself.
    ended = replica(99, 1, 2, epoch=3, role="offline", cause="down")
    tables = run(CALLS, replicas=[*states, ended], brokers=brokers[:1])
    assert [a.id for a in judge_run(tables, context).anomalies] == [ID]


def test_states_can_be_followed_in_pieces() -> None:
    rows = [
        replica(at, broker, 9, hw=hw, epoch=epoch, role="leader")
        for at, broker, epoch, hw in ((1, 1, 0, 4), (2, 2, 1, 3), (3, 1, 0, 3), (4, 2, 1, 3))
    ]
    whole, pieces = LeaderStates({}), LeaderStates({})
    whole.follow(table("replica_states", rows))
    for row in rows:
        pieces.follow(table("replica_states", [row]))
    assert whole.lowered == pieces.lowered
    assert [(each.node, each.before, each.after) for each in whole.lowered] == [("b1", 4, 3)]


# --- divergent replicas ---


def divergence(
    *rows: dict[str, Any], states: Sequence[dict[str, Any]] = (), sparse: bool = False
) -> Any:
    return find_divergence(
        table("replica_batches", list(rows)), table("partition_states", list(states)), sparse=sparse
    )


def divergent(*rows: dict[str, Any], sparse: bool = False) -> list[int]:
    found = divergence(*rows, sparse=sparse)
    assert divergence(*reversed(rows), sparse=sparse) == found, "the order of rows matters"
    assert found is None or found.count == len(found.offsets)
    return list(found.offsets) if found is not None else []


@pytest.mark.parametrize("other", [{"checksum": 9}, {"epoch": 1}, {"last": 2, "end": 3, "hw": 3}])
def test_replicas_differ_if_a_batch_differs_below_both_high_watermarks(
    other: dict[str, int],
) -> None:
    def logs(first: dict[str, int], second: dict[str, int]) -> list[dict[str, Any]]:
        same = {"end": 2, "hw": 2} | first
        more = {"end": 2, "hw": 2, "checksum": 8} | second
        checksum = more.pop("checksum")
        edge = {name: more[name] for name in ("end", "hw")}
        return [
            batch(1, 0, 7, **same),
            batch(1, 1, 8, **same),
            batch(2, 0, 7, **edge),
            batch(2, 1, checksum, **more),
        ]

    assert divergent(*logs({}, other))[0] == 1
    assert divergent(*logs({}, {})) == []
    assert divergent(*logs({"hw": 1}, other)) == [], "above the high watermark of the first"
    assert divergent(*logs({}, other | {"hw": 1})) == [], "above that of the second"


def test_a_replica_that_lacks_a_committed_batch_diverges_unless_the_log_may_have_gaps() -> None:
    whole = [batch(1, offset, offset, hw=3, end=3) for offset in range(3)]
    lacks = [batch(2, offset, offset, hw=3, end=3) for offset in (0, 2)]
    assert divergent(*whole, *lacks) == [1]
    assert divergent(*whole, *lacks, sparse=True) == []
    assert divergent(*whole, batch(2, 2, 2, hw=3, end=3, start=2)) == [], "retention removed it"
    assert divergent(*whole, batch(2, 0, 0, hw=3, end=1)) == [], "its log was not read further"
    assert divergent(*whole, batch(2, 0, 0, hw=1, end=1)) == []


def test_a_tail_of_a_deposed_leader_above_the_high_watermark_does_not_diverge() -> None:
    leader = [batch(1, offset, offset, hw=4, end=4, epoch=offset // 2) for offset in range(4)]
    deposed = [batch(2, offset, offset, hw=2, end=4) for offset in range(4)]
    assert divergent(*leader, *deposed) == []
    cut = [row | {"high_watermark": 3} for row in deposed]
    assert divergent(*leader, *cut) == [2]


def test_only_members_of_the_last_committed_isr_are_compared() -> None:
    rows = [batch(1, 0, 7, hw=1, end=1), batch(2, 0, 9, hw=1, end=1)]
    both, one = state(1, 1, [1, 2], epoch=0), state(2, 1, [1], epoch=1)
    assert divergence(*rows, states=[both]).offsets == (0,)
    assert divergence(*rows, states=[both, one]) is None
    assert divergence(*rows, states=[one, both]) is None
    assert divergence(*rows, states=[state(0, 1, [1], epoch=0), both]).nodes == ("b1", "b2")
    # Two controllers learned of them, by clocks that differ.
    late = both | {"at_ns": 3}
    assert divergence(*rows, states=[late, one]) is None
    assert divergence(*rows, states=[one | {"metadata_offset": 0}, both]).nodes == ("b1", "b2")


def test_every_divergent_offset_counts_once_and_the_first_difference_is_described() -> None:
    rows = [
        batch(1, 0, 7, last=2, hw=6, end=6),
        batch(1, 3, 8, last=5, hw=6, end=6),
        batch(2, 0, 7, last=2, hw=6, end=6),
        batch(2, 3, 9, last=4, hw=6, end=6),
        batch(2, 5, 9, hw=6, end=6),
        batch(3, 0, 7, last=2, hw=3, end=3),
    ]
    found = divergence(*rows)
    assert (found.count, found.offsets, found.nodes) == (3, (3, 4, 5), ("b1", "b2"))
    assert found.sentence == (
        "at offset 3, below the high watermarks of both, b1 holds a batch up to offset 5 of leader epoch 0 with"
        " checksum 00000008 and b2 holds a batch up to offset 4 of leader epoch 0 with checksum 00000009; compared"
        " are the files of the replicas at the end of the run, whether a client read them or not"
    )


def test_equal_rows_are_left_out_of_the_comparison_only_where_all_replicas_agree() -> None:
    rng = random.Random(1)
    for _ in range(300):
        ends = [rng.randrange(1, 9) for _ in range(3)]
        starts = [rng.choice((0, 0, 2)) for _ in range(3)]
        rows = [
            batch(number + 1, offset, offset, hw=ends[number], end=9, start=starts[number])
            for offset in range(9)
            for number in range(3)
            if offset >= starts[number]
        ]
        for _ in range(rng.choice((0, 0, 1, 2))):
            place = rng.randrange(len(rows))
            if rng.random() < 0.5:
                del rows[place]
            else:
                rows[place] = rows[place] | {"checksum": 99}
        stored = table("replica_batches", rows)
        slow = LogComparison(windows_of(stored))
        slow.follow(stored)
        found = find_divergence(stored, table("partition_states", []))
        assert found == slow.end()
        held = {(row["broker"], row["base_offset"]): row["checksum"] for row in rows}
        known = [
            {
                held.get((number + 1, offset))
                for number in range(3)
                if starts[number] <= offset < ends[number]
            }
            for offset in range(9)
        ]
        expected = tuple(offset for offset in range(9) if len(known[offset]) > 1)
        assert (found.offsets if found is not None else ()) == expected


def test_logs_that_are_followed_in_pieces_differ_where_whole_ones_do() -> None:
    rows = [
        batch(number, offset, offset, hw=9, end=9) for offset in range(9) for number in (1, 2, 3)
    ]
    rows[10]["checksum"] = 99
    del rows[20]
    whole = divergence(*rows)
    assert whole.offsets == (3, 6)
    windows = windows_of(table("replica_batches", rows))
    for size in (1, 2, 5):
        pieces = LogComparison(windows)
        for first in range(0, len(rows), size):
            pieces.follow(table("replica_batches", rows[first : first + size]))
        assert pieces.end() == whole


def test_the_checker_forbids_divergent_replicas_after_a_flagged_election_too() -> None:
    tables = run(
        CALLS,
        states=[state(0, 1, [1], epoch=1, flagged=True), state(1, 1, [1, 2], epoch=1)],
    )
    rows = [batch(1, 0, 7, hw=1, end=1), batch(2, 0, 9, hw=1, end=1)]
    verdict = judge_run({**tables, "replica_batches": table("replica_batches", rows)}, CONTEXT)
    (anomaly,) = verdict.anomalies
    assert (anomaly.id, anomaly.judgement) == ("divergent-replicas", Judgement.FORBIDDEN)
    assert verdict.validity == Validity.INVALID


# --- partitions that are judged in buckets ---


@pytest.mark.parametrize(("last", "holds"), [(2, True), (1, False)])
def test_leaders_of_a_stored_partition_are_followed_from_row_group_to_row_group(
    tmp_path: Path, last: int, holds: bool
) -> None:
    states = [replica(at, 1, 9, hw=hw, role="leader") for at, hw in ((5, 1), (6, 2), (7, last))]
    write_tables(tmp_path, run(CALLS, replicas=states))
    (file,) = (file for file in table_files(tmp_path) if file.table == "replica_states")
    pq.write_table(pq.read_table(file.path), file.path, row_group_size=1)
    (task,) = tasks_of(tmp_path, 0, asdict(CONTEXT))
    assert can_be_cut(CONTEXT)
    assert leaders_hold(task, table("broker_states", [])) is holds


def test_states_that_are_not_in_order_are_left_to_the_judgement_of_the_whole(
    tmp_path: Path,
) -> None:
    states = [replica(at, 1, 9, hw=at, role="leader") for at in (5, 6)]
    write_tables(tmp_path, run(CALLS, replicas=states))
    (file,) = (file for file in table_files(tmp_path) if file.table == "replica_states")
    rows = pq.read_table(file.path)
    pq.write_table(rows.take(pa.array([1, 0])), file.path)
    (task,) = tasks_of(tmp_path, 0, asdict(CONTEXT))
    assert not leaders_hold(task, table("broker_states", []))


def test_the_logs_of_replicas_of_a_cut_partition_are_read_in_pieces(tmp_path: Path) -> None:
    rows = [batch(number, offset, offset, hw=9, end=9) for number in (1, 2) for offset in range(9)]
    tables = run(CALLS, states=[state(0, 1, [1, 2], epoch=0)])

    def agree(rows: list[dict[str, Any]], *, sparse: bool = False) -> bool:
        write_tables(tmp_path, {**tables, "replica_batches": table("replica_batches", rows)})
        for file in (file for file in table_files(tmp_path) if file.table == "replica_batches"):
            pq.write_table(pq.read_table(file.path), file.path, row_group_size=4)
        (task,) = tasks_of(tmp_path, 0, asdict(CONTEXT))
        states = tables["partition_states"]
        return replicas_agree(task, states, sparse=sparse)

    assert agree(rows)
    other = [row | {"checksum": 99} if row["base_offset"] == 8 else row for row in rows[:9]]
    assert not agree([*other, *rows[9:]])
    assert not agree([*rows[:12], *rows[13:]])
    assert agree([*rows[:12], *rows[13:]], sparse=True)
    assert agree([])
