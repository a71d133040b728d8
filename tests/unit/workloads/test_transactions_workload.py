"""The workload `transactions` on a log in memory: what it records is valid, and a defect of the log is found."""

import asyncio
import random
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.client import ClientType
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.contracts.workload import WorkloadContext
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from tests.unit.workloads.transactional_log import FakeClient, TransactionalLog
from workloads import transaction_processes, transactions
from workloads.transactions import TransactionsWorkload
from workloads.transactions_config import TransactionsConfig

CONTEXT = RunContext(checkers=("transactions",))
KEYS = (("t", 0), ("t", 1), ("t", 2), ("t", 3))
CONFIG = TransactionsConfig(
    transactions_per_s=100_000.0,
    polls_per_s=100_000.0,
    abort_share=0.3,
    zombie_share=0.2,
)
STEPS = 400


def run(
    log: TransactionalLog,
    monkeypatch: pytest.MonkeyPatch,
    config: TransactionsConfig = CONFIG,
    seed: int = 1,
) -> dict[str, Any]:
    """Runs both phases and returns the tables. Every wait lasts one turn of the loop, so a seed is one history."""
    a_turn = partial(asyncio.sleep, 0)
    monkeypatch.setattr(asyncio, "sleep", lambda _: a_turn())
    kind = SimpleNamespace(make=lambda *_, **__: FakeClient(log))
    monkeypatch.setattr(transaction_processes, "CLIENTS", SimpleNamespace(get=lambda _: kind))
    writer = HistoryWriter(None)
    clock = iter(range(10**9))
    stream = random.Random(seed)
    host = SimpleNamespace(random=SimpleNamespace(stream=lambda _: stream))
    workload = TransactionsWorkload(
        config,
        WorkloadContext(
            run_id=seed,
            topic_partitions=KEYS,
            bootstrap=("b1:9092",),
            hosts=tuple(f"client-{number}" for number in range(config.client_hosts + 1)),
            client_host=lambda _: host,  # type: ignore[arg-type, return-value]
            recorder=RunRecorder(lambda: next(clock), writer),
            has_fast_timings=True,
        ),
    )
    for key in KEYS:
        log.records[key] = []

    async def phases() -> bool:
        steps = iter(range(STEPS))
        goes_on = lambda: next(steps, None) is not None  # noqa: E731
        await asyncio.gather(*(task.run(goes_on) for task in workload.tasks()))
        workload.close()
        limit = iter(range(1000))
        return await workload.final_phase(lambda: next(limit, None) is not None)

    assert asyncio.run(phases()), "the final phase did not end"
    workload.close()
    return dict(writer.close())


def forbidden(verdict: Verdict) -> set[str]:
    return {one.id for one in verdict.anomalies if one.judgement is Judgement.FORBIDDEN}


@pytest.mark.parametrize("seed", range(4))
def test_a_correct_log_is_valid(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TransactionalLog()
    tables = run(log, monkeypatch, seed=seed)
    verdict = judge_run(tables, CONTEXT)
    assert verdict.validity is Validity.VALID, verdict.reasons
    counted = verdict.coverage
    assert counted["producer_transactions_committed"] > 30
    assert counted["producer_transactions_aborted"] > 10
    assert counted["producer_transactions_unknown"] == 0
    assert counted["positions_committed"] > 3
    assert counted["records_polled_uncommitted"] > 0
    assert log.fenced, "no zombie tried anything"
    allowed = {one.id for one in verdict.anomalies if one.judgement is Judgement.ALLOWED}
    assert "G1a" in allowed, "read_uncommitted saw no record of an aborted transaction"


def test_lost_responses_make_ends_unknown_and_the_run_stays_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = judge_run(run(TransactionalLog(lost_responses=5), monkeypatch), CONTEXT)
    assert verdict.validity is Validity.VALID, verdict.reasons
    assert verdict.coverage["producer_transactions_unknown"] > 3


def test_the_closing_reads_do_not_end_where_a_deposed_leader_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = TransactionalLog(stale_ends=3)
    verdict = judge_run(run(log, monkeypatch), CONTEXT)
    assert log.stale_ends == 0
    assert verdict.validity is Validity.VALID, verdict.reasons


@pytest.mark.parametrize(
    ("defect", "identifier"),
    [
        ("aborted", "G1a"),
        ("early", "precommitted-read"),
        ("zombies", "zombie-commit"),
        ("positions", "input-processed-twice"),
        ("half", "torn-transaction"),
    ],
)
def test_a_defect_of_the_log_is_found(
    defect: str, identifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = run(TransactionalLog(defect=defect), monkeypatch)
    verdict = judge_run(tables, CONTEXT)
    assert verdict.validity is Validity.INVALID
    assert identifier in forbidden(verdict), verdict.reasons


def test_without_zombies_and_aborts_every_transaction_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = TransactionsConfig(
        transactions_per_s=100_000.0, polls_per_s=100_000.0, abort_share=0.0, zombie_share=0.0
    )
    rows = run(TransactionalLog(), monkeypatch, config)["transaction_events"].to_pylist()
    with_commit = {row["transaction"] for row in rows if row["event"] == "commit-asked"}
    ends = Counter(
        row["event"]
        for row in rows
        if row["transaction"] in with_commit and row["event"] in ("committed", "aborted", "unknown")
    )
    assert set(ends) == {"committed"}
    assert not [row for row in rows if row["event"] == "abort-asked"]


UNHURRIED = replace(
    CONFIG,
    slow_share=0.3,
    short_lived_share=0.3,
    request_timeout_ms=1,
    transaction_timeout_ms=1,
)


def test_slow_and_short_lived_producers_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = run(TransactionalLog(), monkeypatch, UNHURRIED)
    assert judge_run(tables, CONTEXT).validity is Validity.VALID
    rows = tables["transaction_events"].to_pylist()
    of_transaction = defaultdict(list)
    for row in rows:
        of_transaction[row["transaction"]].append(row)
    once = {
        rows[0]["transactional_id"]: {row["event"] for row in rows}
        for rows in of_transaction.values()
        if "-once-" in rows[0]["transactional_id"] and rows[0]["event"] == "begin"
    }
    assert sum("committed" in events for events in once.values()) > 3
    assert sum("abort-asked" in events for events in once.values()) > 3
    left_open = [events for events in once.values() if not events & {"commit-asked", "abort-asked"}]
    assert len(left_open) > 3
    assert all("aborted" in events and "sent" in events for events in left_open)
    # Only slow transactions send to other partitions after an acknowledgement.
    assert any(
        "sent" in [row["event"] for row in rows][:index]
        for rows in of_transaction.values()
        for index, row in enumerate(rows)
        if row["event"] == "send" and not row["transactional_id"].startswith("processor")
    )


def test_a_log_without_transaction_timeouts_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_S", 0)
    with pytest.raises(AssertionError, match="the final phase did not end"):
        run(TransactionalLog(times_out=False), monkeypatch, UNHURRIED)


def test_a_single_partition_has_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "KEYS", (("t", 0),))
    verdict = judge_run(run(TransactionalLog(), monkeypatch), CONTEXT)
    assert verdict.validity is Validity.VALID, verdict.reasons
    assert verdict.coverage["positions_committed"] == 0
    assert verdict.coverage["producer_transactions_committed"] > 30


def test_a_client_without_transactions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    plain = SimpleNamespace(close=lambda: closed.append(True))
    kind = ClientType(name="plain", make=lambda *_, **__: plain)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(transaction_processes, "CLIENTS", SimpleNamespace(get=lambda _: kind))
    places: Any = SimpleNamespace(config=TransactionsConfig(client="plain"), bootstrap=())
    with pytest.raises(UsageError, match="'plain' knows no transactions"):
        transaction_processes.Clients(SimpleNamespace(), places)  # type: ignore[arg-type]
    assert closed


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("producers", 0),
        ("processors", -1),
        ("partitions_per_transaction_max", 0),
        ("records_per_partition_max", 1001),
        ("abort_share", 1.5),
        ("zombie_share", -0.1),
        ("slow_share", 2.0),
        ("short_lived_share", -1.0),
        ("transactions_per_s", 0.0),
        ("transaction_timeout_ms", 100),
        ("poll_max_bytes", 0),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(setting: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"workload\.{setting} is "):
        TransactionsConfig(**{setting: value})  # type: ignore[arg-type]
