"""The self-test finds what it plants in valid runs, and says so when the checkers do not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkers import selftest
from checkers.anomalies import ANOMALIES, IN_DENSE_LOGS_ONLY, NOT_IN_COMPACTED
from checkers.kernels import facts
from checkers.kernels.compose import judge_run
from checkers.planting.cleaner import Cleaner
from checkers.planting.copy import Copy
from checkers.planting.order import OF_REAL_TIME
from checkers.planting.records import OF_HOLES
from checkers.planting.sessions import OF_SESSIONS
from checkers.planting.table import PLANTS, UNPLANTED
from checkers.planting.transactions import CHANGES
from checkers.selftest import Outcome, PlantResult, self_test
from harness.contracts.run_context import (
    LOG_CHECKERS,
    QUERY_CHECKER,
    SESSION_CHECKER,
    RunContext,
)
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.errors import UsageError
from harness.history.schema import TABLES
from harness.runs import experiment_file as experiments
from harness.runs.promises import promised_context
from harness.runs.simulated import simulate
from tests.anomalies.recorded_transactions import valid_run
from tests.anomalies.runs import append, batch, broker, final_read, offset_query, read, state, table
from tests.anomalies.runs import run as run_of
from tests.property.brute_force import Call
from tests.spark.stored_runs import with_column

QUERY_PLANTS = {"lookup-skips-record", "epoch-ends-early"}
IN_BATCHES = {"reordered-send", "torn-batch", "end-in-batch"}
"""What needs producers that send several records in one batch."""
GROUP_PLANTS = {
    "committed-offset-regressed",
    "phantom-commit",
    "group-skipped-record",
    "double-ownership",
}


def _run(
    name: str, seed: int, *, duration_ms: int | None = None, **workload: object
) -> tuple[dict, RunContext]:
    data = experiments.to_data(experiments.load(Path("examples") / name, on="simulation"))
    data["workload"] |= workload
    experiment = experiments.from_data(data)
    if duration_ms is not None:
        experiment = replace(experiment, duration_ms=duration_ms)
    tables = simulate(experiment, seed).tables
    return dict(tables), promised_context(experiment)


@pytest.fixture(scope="module")
def run() -> tuple[dict, RunContext]:
    return _run("one-isolated-follower.toml", 3)


@pytest.fixture(scope="module")
def idempotent_run() -> tuple[dict, RunContext]:
    """With batches, so that a process has several appends in flight."""
    return _run("one-isolated-follower.toml", 3, enable_idempotence=True, records_per_batch_max=3)


@pytest.mark.long
def test_what_a_broken_level_hides_is_not_planted() -> None:
    tables, context = _run("power-cuts.toml", 2)
    results = {result.anomaly: result for result in self_test(tables, context)}
    hidden = results["unplaced-below-end"]
    assert hidden.outcome is Outcome.NOT_PLANTED
    assert hidden.detail == "it is not reported beside stale-end, which the run has"
    assert Outcome.MISSED not in {result.outcome for result in results.values()}


COMPACTED = {
    "lost-acked-write",
    "lost-acked-write-acks1",
    "visible-regress",
    "lost-record",
    "unplaced-append",
    "unplaced-below-end",
    "lost-ack",
    "future-read",
}
"""What a compacted topic can show, and what is about records that its cleaner has to keep."""


def test_in_a_compacted_topic_it_plants_where_the_cleaner_excuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, context = _run("compacted.toml", 3, duration_ms=6000)
    final = pc.field("final") & (pc.field("kind") == "poll")
    polls = tables["operations"].filter(final)
    returned = pc.is_in(tables["records_read"]["op_index"], polls["op_index"].combine_chunks())
    count = len(set(tables["records_read"].filter(returned)["offset"].to_pylist()))
    assert count < pc.max(polls["end_offset"]).as_py(), "the cleaner removed nothing"
    wanted = COMPACTED | IN_DENSE_LOGS_ONLY | NOT_IN_COMPACTED.keys()
    monkeypatch.setattr(selftest, "PLANTS", [one for one in PLANTS if one.anomaly in wanted])
    complete = replace(context, final_phase_complete=True)
    results = {one.anomaly: one for one in self_test(tables, complete)}
    found = {name for name, one in results.items() if one.outcome == Outcome.FOUND}
    assert found == COMPACTED
    assert Outcome.MISSED not in {one.outcome for one in results.values()}
    for name in IN_DENSE_LOGS_ONLY | NOT_IN_COMPACTED.keys():
        assert results[name].detail.startswith("its topics are compacted")


@pytest.mark.long
@pytest.mark.parametrize(
    "more", [{}, {"enable_idempotence": True, "records_per_batch_max": 3, "queries_per_s": 5.0}]
)
def test_nothing_is_missed_in_a_compacted_topic(more: dict[str, object]) -> None:
    tables, context = _run("compacted.toml", 3, duration_ms=8000, **more)
    results = list(self_test(tables, replace(context, final_phase_complete=True)))
    assert [one.anomaly for one in results if one.outcome == Outcome.MISSED] == []
    assert sum(one.outcome == Outcome.FOUND for one in results) > 25


def _in_keys(keys: str, *, sparse: bool = False) -> Iterator[PlantResult]:
    """Yields what becomes of the plants in a log whose records have these keys; the first one is a loss."""
    calls = [append(op, op, at=10 + 10 * op) for op in range(len(keys))]
    tables = run_of([*calls, *final_read(len(keys), *range(len(keys)), at=200)])
    for name, column in (("operations", "op_index"), ("records_read", "value")):
        of_row = dict(enumerate(keys))
        values = [of_row.get(value, "") for value in tables[name][column].to_pylist()]
        tables[name] = with_column(tables[name], "key", values)
    context = RunContext(
        checkers=LOG_CHECKERS,
        final_phase_complete=True,
        compacted=not sparse,
        sparse_offsets=sparse,
    )
    return self_test(tables, context)


def test_the_last_record_of_a_key_is_removed_from_a_compacted_log_and_no_other_one() -> None:
    assert next(_in_keys("aabc")).outcome is Outcome.FOUND
    replaced = next(_in_keys("aaaa"))
    assert replaced.anomaly == "lost-acked-write"
    assert replaced.outcome is Outcome.NOT_PLANTED
    assert replaced.detail.endswith("those that its cleaner may remove do not count")
    # Only one record is the last one of its key, wherever the self-test looks first.
    assert next(_in_keys("abbbbbbbb")).outcome is Outcome.FOUND


def test_in_a_sparse_log_no_empty_offset_is_planted() -> None:
    results = {one.anomaly: one for one in _in_keys("abcd", sparse=True)}
    assert results["lost-acked-write"].outcome is Outcome.FOUND
    for name in IN_DENSE_LOGS_ONLY:
        assert results[name].detail == "its topics may have offsets without a record"


def test_what_no_client_saw_replaces_a_record_only_if_something_is_behind_both() -> None:
    calls = [append(op, op, at=10 + 10 * op) for op in range(3)]
    unseen = Call(op=3, kind="append", process=3, inv=45, res=None, offset=None)
    final = read(4, 200, 0, 1, 2, final=True)

    def keeps(op: int, keys: dict[int, str], *, end: int = 3, until_ns: int = 10**6) -> bool:
        tables = run_of([*calls, unseen, replace(final, end=end)])
        rows = tables["operations"]["op_index"].to_pylist()
        of_row = [keys.get(row, "") for row in rows]
        tables["operations"] = with_column(tables["operations"], "key", of_row)
        copy = Copy(tables, compacted=True)
        return Cleaner(copy).keeps(copy.operations[op], until_ns)

    assert keeps(0, {0: "a", 1: "b", 3: "a"})
    assert not keeps(0, {0: "a", 1: "b", 3: "a"}, end=4)
    assert keeps(0, {0: "a", 1: "b", 3: "a"}, end=4, until_ns=44)
    assert not keeps(0, {0: "a", 2: "a"})
    assert keeps(0, {0: "a", 2: "a"}, until_ns=29)
    assert keeps(2, {0: "a", 2: "a"})
    assert keeps(0, {}), "a record without a key replaces nothing"


@pytest.mark.parametrize(("other_ns", "outcome"), [(9, Outcome.FOUND), (11, Outcome.NOT_PLANTED)])
def test_a_record_is_read_early_only_if_all_below_it_were_sent_before(
    other_ns: int, outcome: Outcome
) -> None:
    first = append(0, 0, at=other_ns)
    second = Call(op=1, kind="append", process=1, inv=10, res=20, offset=1)
    begin = Call(op=2, kind="latest", process=7, inv=1, res=2, offset=0)
    tables = run_of([first, second, begin, read(3, 30, 0, 1), *final_read(4, 0, 1, at=80)])
    context = RunContext(checkers=LOG_CHECKERS, final_phase_complete=True)
    (result,) = (one for one in self_test(tables, context) if one.anomaly == "future-read")
    assert result.outcome is outcome


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seed", "duration_ms"),
    [("all-faults.toml", 3, None), ("power-cuts.toml", 3, 20_000), ("transactions.toml", 1, None)],
)
def test_what_a_run_may_lose_hides_no_plant(name: str, seed: int, duration_ms: int | None) -> None:
    tables, context = _run(name, seed, duration_ms=duration_ms)
    results = list(self_test(tables, replace(context, final_phase_complete=True)))
    assert [one.anomaly for one in results if one.outcome == Outcome.MISSED] == []
    assert sum(one.outcome == Outcome.FOUND for one in results) > 10


@pytest.mark.long
def test_a_broken_checker_is_noticed_beside_what_the_run_may_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, context = _run("power-cuts.toml", 3, duration_ms=20_000)
    monkeypatch.setattr(facts, "_torn_fetches", lambda _: [])
    missed = [one.anomaly for one in self_test(tables, context) if one.outcome == Outcome.MISSED]
    assert missed == ["torn-fetch"]


@pytest.mark.long
def test_a_loss_that_is_excused_everywhere_is_not_planted_and_says_so(
    run: tuple[dict, RunContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    def excused(tables: dict, context: RunContext) -> Verdict:
        verdict = judge_run(tables, context)
        anomalies = tuple(
            replace(one, judgement=Judgement.EXCUSED) if one.id == "lost-acked-write" else one
            for one in verdict.anomalies
        )
        return replace(verdict, anomalies=anomalies)

    monkeypatch.setattr(selftest, "judge_with_final_reads", excused)
    results = {one.anomaly: one for one in self_test(*run)}
    lost = results["lost-acked-write"]
    assert lost.outcome is Outcome.NOT_PLANTED
    assert lost.detail == "wherever it was planted, it is excused by the faults"
    assert results["torn-fetch"].outcome is Outcome.FOUND


def _with_group(tables: dict, context: RunContext) -> tuple[dict, RunContext]:
    """Adds a consumer group of the processes that polled, which committed what they received."""
    partition = tables["operations"].column("partition")[0].as_py()
    rows = [row for row in tables["operations"].to_pylist() if row["partition"] == partition]
    polls = {row["op_index"]: row for row in rows if row["kind"] == "poll" and not row["final"]}
    read = {row["offset"] for row in tables["records_read"].to_pylist() if row["op_index"] in polls}
    committed = next(offset for offset in range(len(read) + 1) if offset not in read)
    member = min(row["process"] for row in polls.values())
    others = {row["process"] for row in polls.values()} - {member}
    end_ns = max(row["invoked_ns"] for row in rows)
    events = [
        *(("assigned", process, -1, -1) for process in (member, *sorted(others))),
        ("commit-sent", member, committed, -1),
        ("commit-acknowledged", member, committed, -1),
        ("committed-asked", member, -1, -1),
        ("committed-seen", member, committed, len(others) + 3),
    ]
    table = pa.Table.from_pylist(
        [
            {
                "event_index": index,
                "at_ns": end_ns + index,
                "group": "g",
                "process": process,
                "topic": rows[0]["topic"],
                "partition": partition,
                "event": event,
                "offset": offset,
                "refers_to": refers_to,
                "generation": index + 1 if event == "assigned" else -1,
            }
            for index, (event, process, offset, refers_to) in enumerate(events)
        ],
        schema=TABLES["group_events"],
    )
    checkers = (*context.checkers, "consumer-group")
    return {**tables, "group_events": table}, replace(context, checkers=checkers)


def _with_queries(tables: dict, context: RunContext) -> tuple[dict, RunContext]:
    """Adds right answers about the first record of each partition that the final reads returned."""
    operations = tables["operations"].to_pylist()
    final = {row["op_index"] for row in operations if row["final"]}
    end_ns = max(row["completed_ns"] or 0 for row in operations)
    first: dict[int, dict] = {}
    for row in tables["records_read"].to_pylist():
        if row["op_index"] in final:
            first.setdefault(row["partition"], row)
    rows = [
        offset_query(
            kind,
            topic=row["topic"],
            partition=row["partition"],
            invoked_ns=end_ns,
            completed_ns=end_ns + 1,
            op_index=row["op_index"],
            record_offset=row["offset"],
            record_value=row["value"],
            known_epoch=0,
            asked=5,
            found=5,
            offset=offset,
            leader_epoch=0,
        )
        for row in first.values()
        for kind, offset in (("timestamp", row["offset"]), ("leader-epoch", row["offset"] + 1))
    ]
    numbered = [row | {"query_index": index} for index, row in enumerate(rows)]
    table = pa.Table.from_pylist(numbered, schema=TABLES["offset_queries"])
    checkers = (*context.checkers, "offset-queries")
    return {**tables, "offset_queries": table}, replace(context, checkers=checkers)


def _not_found(run: tuple[dict, RunContext]) -> dict[str, str]:
    """Returns the anomalies that are not found in a run with groups, questions and transactions, and why."""
    tables, context = _with_queries(*_with_group(*run))
    tables["transaction_events"] = valid_run().table()
    checkers = (*context.checkers, "transactions")
    context = replace(context, checkers=checkers, final_phase_complete=True)
    results = {result.anomaly: result for result in self_test(tables, context)}
    assert set(results) == set(ANOMALIES)
    return {
        name: result.detail for name, result in results.items() if result.outcome != Outcome.FOUND
    }


def test_every_anomaly_is_planted_and_found(
    run: tuple[dict, RunContext], idempotent_run: tuple[dict, RunContext]
) -> None:
    plain, idempotent = _not_found(run), _not_found(idempotent_run)
    assert plain.items() & idempotent.items() == UNPLANTED.items()
    assert plain.keys() - UNPLANTED.keys() == OF_SESSIONS | IN_BATCHES
    assert idempotent.keys() - UNPLANTED.keys() == OF_HOLES
    assert all("may have been at the hole" in idempotent[name] for name in OF_HOLES)


@pytest.mark.long
def test_what_a_run_has_nothing_for_is_not_planted_and_says_why(
    run: tuple[dict, RunContext],
) -> None:
    results = {result.anomaly: result for result in self_test(*run)}
    missing = {name for name, result in results.items() if result.outcome == Outcome.NOT_PLANTED}
    lacking = GROUP_PLANTS | QUERY_PLANTS | {anomaly for anomaly, _, _ in CHANGES}
    lacking |= IN_BATCHES
    assert missing == lacking | OF_SESSIONS | UNPLANTED.keys()
    assert all("it has no" in results[name].detail for name in lacking)
    assert {results[name].detail for name in OF_SESSIONS} == {"its producers are not idempotent"}


def test_a_broken_checker_is_noticed(
    run: tuple[dict, RunContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_torn_fetches", lambda _: [])
    missed = [result.anomaly for result in self_test(*run) if result.outcome == Outcome.MISSED]
    assert missed == ["torn-fetch"]


def test_nothing_is_planted_into_an_invalid_run() -> None:
    calls = [
        Call(op=0, kind="append", process=0, inv=1, res=5, offset=0),
        Call(op=1, kind="append", process=1, inv=2, res=6, offset=0),
    ]
    with pytest.raises(UsageError, match="name another run"):
        list(self_test(run_of(calls), RunContext(checkers=("linearizability", "lost-acked"))))


def _nonmonotonic(calls: list[Call], context: RunContext) -> PlantResult:
    results = self_test(run_of(calls), context)
    return next(one for one in results if one.anomaly == "nonmonotonic-send")


def test_sends_in_flight_together_are_no_nonmonotonic_send() -> None:
    together = [
        Call(op=0, kind="append", process=0, inv=1, res=5, offset=0),
        Call(op=1, kind="append", process=0, inv=2, res=6, offset=1),
    ]
    later = Call(op=2, kind="append", process=0, inv=9, res=12, offset=2)
    values = (0, 1, 2)

    def read(count: int) -> Call:
        records = tuple(enumerate(values[:count]))
        return Call(
            op=3, kind="poll", process=1, inv=20, res=21, position=0, records=records, end=count,
            final=True,
        )  # fmt: skip

    context = RunContext(checkers=("linearizability", "lost-acked"), final_phase_complete=True)
    result = _nonmonotonic([*together, read(2)], context)
    assert result.outcome is Outcome.NOT_PLANTED
    assert result.detail.endswith("the second began after the first was acknowledged")
    with_later = [*together, later, read(3)]
    assert _nonmonotonic(with_later, context).outcome is Outcome.FOUND
    # The second append of the pair is acknowledged at 6, and the later one begins at 9.
    for error_ns, outcome in ((2, Outcome.FOUND), (3, Outcome.NOT_PLANTED)):
        inexact = replace(context, clock_error_ns=error_ns)
        assert _nonmonotonic(with_later, inexact).outcome is outcome


def test_a_plant_changes_the_poll_that_a_query_is_about_and_nobody_asks_then() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(2, 20, 0, 1), *final_read(80, 0, 1)]
    about = {"op_index": 2, "record_offset": 0, "record_value": 0, "known_epoch": 0}
    answer = {"asked": 0, "found": 0, "offset": 1, "leader_epoch": 0}
    query = offset_query("leader-epoch", invoked_ns=40, completed_ns=41, **about, **answer)
    tables = run_of(calls, offset_queries=[query])
    context = RunContext(checkers=(*LOG_CHECKERS, QUERY_CHECKER), final_phase_complete=True)
    outcomes = {result.anomaly: result.outcome for result in self_test(tables, context)}
    assert outcomes["lost-acked-write"] is Outcome.FOUND
    assert outcomes["epoch-ends-early"] is Outcome.FOUND
    copy = Copy(tables)
    assert copy.tables()["offset_queries"].num_rows == 1
    copy.drop_record(1, copy.polls())
    assert copy.tables()["offset_queries"].num_rows == 1
    copy.drop_record(0, copy.polls())
    assert copy.tables()["offset_queries"].num_rows == 0


@pytest.mark.parametrize("error_ns", [0, 1, 7])
def test_what_is_planted_in_the_order_of_time_is_found_however_clocks_differ(error_ns: int) -> None:
    calls = [append(op, op, at=10 + 10 * op) for op in range(6)]
    reads = [read(6, 80, *range(6)), *final_read(7, *range(6), at=200)]
    ends = [
        Call(op=9 + i, kind="latest", process=98, inv=300 + 20 * i, res=301 + 20 * i, offset=6)
        for i in range(2)
    ]
    context = RunContext(checkers=LOG_CHECKERS, clock_error_ns=error_ns, final_phase_complete=True)
    outcomes = {
        one.anomaly: one.outcome for one in self_test(run_of([*calls, *reads, *ends]), context)
    }
    for anomaly in (*OF_REAL_TIME, "hole-before-append", "stale-end", "end-regression", "lost-ack"):
        assert outcomes[anomaly] is Outcome.FOUND, anomaly


def test_a_gap_of_a_session_is_not_planted_if_the_final_reads_need_not_be_whole() -> None:
    calls = [replace(append(op, op, at=10 + 10 * op), process=0) for op in range(4)]
    tables = run_of([*calls, *final_read(4, *range(4), at=200)])
    checkers = (*LOG_CHECKERS, SESSION_CHECKER)
    for is_complete, outcome in ((True, Outcome.FOUND), (False, Outcome.NOT_PLANTED)):
        context = RunContext(checkers=checkers, final_phase_complete=is_complete)
        (result,) = (r for r in self_test(tables, context) if r.anomaly == "producer-gap")
        assert result.outcome is outcome
        assert is_complete or result.detail == "its final phase is not complete"


@pytest.mark.parametrize("has_one", [True, False])
def test_a_plant_that_adds_nothing_to_what_the_run_has_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, has_one: bool
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(2, 0, 1, at=80)]
    lost = run_of([*calls[:2], *final_read(2, 0, at=80)])
    context = RunContext(final_phase_complete=True)
    verdict = judge_run(lost if has_one else run_of(calls), context)
    anomalies = tuple(replace(one, judgement=Judgement.EXCUSED) for one in verdict.anomalies)
    same = replace(verdict, anomalies=anomalies, validity=Validity.VALID)
    monkeypatch.setattr(selftest, "judge_with_final_reads", lambda *_: same)
    results = {result.anomaly: result for result in self_test(run_of(calls), context)}
    loss = next((one.id for one in anomalies), "lost-acked-write")
    assert results[loss].outcome is (Outcome.NOT_PLANTED if has_one else Outcome.MISSED)
    assert not has_one or "is not counted beside those that the run has" in results[loss].detail


def _outcome_of(anomaly: str, tables: dict[str, pa.Table], context: RunContext) -> Outcome:
    return next(one.outcome for one in self_test(tables, context) if one.anomaly == anomaly)


@pytest.mark.parametrize(("isr", "outcome"), [([1, 2], Outcome.FOUND), ([1], Outcome.NOT_PLANTED)])
def test_only_the_logs_of_in_sync_replicas_can_diverge(isr: list[int], outcome: Outcome) -> None:
    calls = [append(0, 0, at=10), *final_read(1, 0, at=200)]
    batches = [batch(number, 0, 7, hw=1, end=1) for number in (1, 2, 3)]
    tables = run_of(calls, states=[state(1, 1, isr, epoch=0)])
    tables["replica_batches"] = table("replica_batches", batches)
    context = RunContext(checkers=(*LOG_CHECKERS, "replicas"), final_phase_complete=True)
    assert _outcome_of("divergent-replicas", tables, context) is outcome


@pytest.mark.parametrize(
    ("restart_ns", "clock_error_ns", "outcome"),
    [
        (250, 0, Outcome.FOUND),
        (312, 0, Outcome.NOT_PLANTED),
        (250, 5, Outcome.FOUND),
        (297, 5, Outcome.NOT_PLANTED),
    ],
)
def test_a_high_watermark_is_lowered_only_while_its_leader_runs(
    restart_ns: int, clock_error_ns: int, outcome: Outcome
) -> None:
    calls = [append(op, op, at=10 + 10 * op) for op in range(3)]
    ends = [
        Call(op=6 + i, kind="latest", process=98, inv=300 + i, res=301 + i, offset=3, epoch=0)
        for i in (0, 20)
    ]
    tables = run_of(
        [
            *calls,
            *final_read(3, *range(3), at=200),
            *(replace(c, op=8 + i) for i, c in enumerate(ends)),
        ],
        states=[state(1, 1, [1], epoch=0)],
        brokers=[broker(0, 1, "registered"), broker(restart_ns, 1, "registered")],
    )
    seen = tables["end_offsets_seen"]
    tables["end_offsets_seen"] = with_column(seen, "leader_epoch", [0] * len(seen))
    context = RunContext(
        checkers=(*LOG_CHECKERS, "replicas"),
        final_phase_complete=True,
        clock_error_ns=clock_error_ns,
    )
    assert _outcome_of("high-watermark-regression", tables, context) is outcome
