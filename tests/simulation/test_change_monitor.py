"""What is wrong for a moment only: found at the change, and not by comparing replicas now and then."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness.experiments
from harness.environments.simulated.cluster import SimulatedCluster
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_record
from harness.runs.resolved import resolve
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun, simulate
from nemesis.fault import Fault
from system_under_test.broker.fetch import FetchHandler
from system_under_test.broker.leadership import Leadership
from system_under_test.log.log import Log
from system_under_test.protocol.entities import fetched_data
from system_under_test.protocol.record_batch import encode_batch, spans

EXPERIMENT = Path(harness.experiments.__path__[0]) / "search.toml"
SEED = 12
"""With this seed a wrong high watermark is right again before the next comparison of all replicas."""


def experiment() -> Experiment:
    found = experiments.load(EXPERIMENT)
    space = {key: draws for key, draws in found.space.items() if key != "profile"}
    found = replace(found, profile="kafka-4.1", duration_ms=1000, space=space)
    return resolve(found, SEED)[0]


def run() -> RunResult:
    return simulate(experiment(), SEED)


@pytest.fixture
def too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the high watermark follow the fastest follower, so that the slower ones lack records for a moment."""
    real = Leadership._committed_end

    def early(self: Leadership, log: Log, enough: int | None) -> int:
        fetched = [follower.log_end_offset for follower in self.followers.values()]
        end = real(self, log, enough)
        return max([end, *(offset for offset in fetched if offset <= log.log_end_offset)])

    monkeypatch.setattr(Leadership, "_committed_end", early)


def without_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedCluster, "watch_changes", lambda *_: None)


@pytest.mark.usefixtures("too_early")
def test_a_high_watermark_that_is_wrong_between_two_comparisons_is_found_when_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = run().violations
    assert "INV-2: every member of ISR and ELR has all committed records" in found
    without_changes(monkeypatch)
    assert run().violations == []


def forged(records: bytes) -> bytes:
    """Returns batches at the same offsets, in the same leader epochs, with valid checksums and other records."""
    return b"".join(
        encode_batch(
            [(None, b"other")] * span.record_count,
            timestamp_ms=1,
            base_offset=span.base_offset,
            leader_epoch=span.leader_epoch,
        )
        for span in spans(records, verify_crc=True)
    )


@pytest.mark.parametrize(("to_followers", "invariant"), [(False, "INV-6"), (True, "INV-4")])
def test_a_fetch_that_returns_other_records_than_were_committed_is_found_when_it_is_served(
    monkeypatch: pytest.MonkeyPatch, *, to_followers: bool, invariant: str
) -> None:
    real = FetchHandler._data

    def other(self: FetchHandler, fetch: Any, entry: Any, partition: Any, log: Log) -> Any:
        data = real(self, fetch, entry, partition, log)
        wanted = entry.wanted
        is_committed = wanted.fetch_offset < partition.high_watermark
        if data is None or fetch.is_follower != to_followers or not is_committed:
            return data
        return fetched_data(
            wanted.partition, 0, data.high_watermark, data.log_start_offset, forged(data.records)
        )

    monkeypatch.setattr(FetchHandler, "_data", other)
    # Followers fetch what is committed only if they lag: here one starts with an empty disk.
    wiped = replace(
        experiment(),
        schedule=(Fault(id="f1", fault="wipe", targets=("b1",), at_ms=300, for_ms=100),),
    )
    result = simulate(wiped if to_followers else experiment(), SEED)
    (found,) = result.violations
    assert f"{invariant}: a fetch returns the record that was committed at an offset" in found


def test_a_consumer_that_reads_above_the_high_watermark_is_found_when_it_is_served() -> None:
    result = simulate(replace(experiment(), disabled_rules=("FETCH-6",)), SEED)
    (found,) = result.violations
    assert "INV-6: a consumer gets committed records only" in found


def test_a_leader_that_counts_on_too_few_is_found_when_its_isr_state_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Leadership._submit

    def forgetful(self: Leadership, pending: Any, proposal: Any) -> bool:
        """Forgets a member from when it proposes something until it gets the response."""
        self.state = replace(pending, maximal_isr=(self._context.broker_id,))
        return real(self, self.state, proposal)  # type: ignore[arg-type]

    monkeypatch.setattr(Leadership, "_submit", forgetful)
    paused = replace(
        experiment(),
        schedule=(Fault(id="f1", fault="pause", targets=("b1", "b2"), at_ms=200, for_ms=600),),
    )
    (found,) = simulate(paused, SEED).violations
    assert "INV-3: the maximal ISR covers the controller's ISR and ELR" in found


def test_a_correct_system_breaks_nothing_and_is_not_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = SimulatedRun(experiment(), SEED, HistoryWriter(None))
    result = watched.run()
    assert result.violations == []
    assert watched.monitor.changes.change_count > 100
    assert watched.monitor.changes.served_count > 50
    without_changes(monkeypatch)
    assert run().trace_hash == result.trace_hash


@pytest.mark.usefixtures("too_early")
def test_a_run_that_a_violation_ends_records_what_its_faults_had_done_until_then() -> None:
    slow = Fault(id="f1", fault="delay", targets=("b3",), params={"ms": 40}, for_ms=60_000)
    never = Fault(id="f2", fault="kill", targets=("b1",), on="mark:became-leader at c11")
    found = simulate(Experiment(duration_ms=60_000, schedule=(slow, never)), 1)
    (violation,) = found.tables["violations"].to_pylist()
    (row,) = found.tables["faults"].to_pylist()
    assert row["took_effect"], row
    assert row["healed_ns"] is None, "it was in force at the end"
    assert json.loads(row["evidence"])["packets_delayed"] > 0
    verdict = judge_record(found.tables, Experiment())
    assert not any("never took effect" in reason for reason in verdict.reasons)
    assert violation["sentence"] in " ".join(verdict.reasons)
