"""What happens to transactions without the rules that protect them."""

from dataclasses import replace

import pytest

from checkers.examples import LAWFUL
from harness.contracts.verdict import Judgement, Verdict
from harness.defects.playing import forbidden, play
from harness.defects.schedules.transactions import a_marker_arrives_twice
from harness.defects.search_plan import BUILT_IN
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect
from tests.simulation.transaction_plots import offsets_of_an_aborted_transaction
from tests.unit.system_under_test.log import test_log_transactions as logs


@shows("TXN-12", "B-58")
def test_a_late_batch_begins_a_transaction_that_nothing_ends() -> None:
    expect_defect("B-58")


@shows("TXN-6", "B-59")
def test_a_decision_that_only_the_coordinator_has_is_reversed() -> None:
    expect_defect("B-59")


@shows("TXN-7", "B-60")
def test_a_new_coordinator_that_loads_nothing_sends_no_markers() -> None:
    expect_defect("B-60")


@shows("TXN-8", "B-61")
def test_a_marker_that_is_sent_once_may_never_arrive() -> None:
    expect_defect("B-61")


@shows("TXN-10", "B-62")
def test_a_producer_with_the_epoch_of_a_zombie_loses_its_record() -> None:
    expect_defect("B-62")


@shows("TXN-9", "B-63")
def test_a_producer_that_was_too_slow_commits_half_a_transaction() -> None:
    expect_defect("B-63")


@shows("TXN-1", "B-64")
def test_without_a_last_stable_offset_open_transactions_are_read() -> None:
    expect_defect("B-64")


@shows("TXN-5", "B-65")
def test_consumers_cannot_skip_what_is_not_listed() -> None:
    expect_defect("B-65")


@shows("TXN-4", "B-66")
def test_a_marker_of_a_replaced_coordinator_aborts_half_a_transaction() -> None:
    expect_defect("B-66")


@shows("TXN-14", "B-78")
def test_a_marker_that_arrives_twice_aborts_a_half_of_the_next_transaction() -> None:
    expect_defect("B-78")
    # KAFKA-19446: Kafka 4.1 is like that.
    ending = play(a_marker_arrives_twice, profile="kafka-4.1", is_watched=False)
    assert "torn-transaction" in ending.forbidden, str(ending)


@shows("TXN-11", "B-67")
def test_a_transaction_without_a_timeout_is_open_for_ever() -> None:
    expect_defect("B-67")


@shows("TXN-13")
def test_offsets_of_an_aborted_transaction_count_without_the_rule() -> None:
    assert play(offsets_of_an_aborted_transaction).codes == frozenset()
    assert play(offsets_of_an_aborted_transaction, "TXN-13").codes == {"T"}


@shows("TXN-2", "TXN-3", "CLEAN-4")
@pytest.mark.parametrize(
    "test",
    [
        logs.test_without_txn_2_the_last_stable_offset_is_ahead_of_the_marker,
        logs.test_a_marker_of_an_old_producer_epoch_is_refused,
        logs.test_nothing_is_compacted_that_an_open_transaction_may_replace,
    ],
    ids=["TXN-2", "TXN-3", "CLEAN-4"],
)
def test_a_single_log_shows_it(test: object) -> None:
    test()  # type: ignore[operator]


def searched(seed: int, *off: str, profile: str = "kafka-4.2") -> Verdict:
    """Judges a run of the experiment with which defects of transactions are searched for."""
    planned = replace(
        experiments.load(BUILT_IN["transactions"]),
        profile=profile,
        disabled_rules=off,
        check_invariants=False,
    )
    experiment, _ = resolve(planned, seed)
    verdict, _ = judge_result(experiment, seed, simulate(experiment, seed))
    return verdict


SEED_OF_FETCH_9 = 1
LAWFUL_SEEDS = (0, 9, 12, 13, 18, 34, 75)
SEED_OF_A_LATE_MARKER = 34


@shows("FETCH-9")
def test_transactions_pass_over_records_and_go_back_if_segments_come_in_reverse() -> None:
    found = forbidden(searched(SEED_OF_FETCH_9, "FETCH-9"))
    assert {"session-poll-skip", "int-nonmonotonic-poll"} <= found


@pytest.mark.long
def test_runs_of_the_correct_system_have_what_kafka_allows() -> None:
    allowed = set()
    for seed in LAWFUL_SEEDS:
        verdict = searched(seed)
        assert not forbidden(verdict), f"seed {seed}"
        allowed |= {one.id for one in verdict.anomalies if one.judgement is Judgement.ALLOWED}
    assert LAWFUL.keys() <= allowed


def test_random_late_markers_tear_transactions_with_kafka_4_1_only() -> None:
    """KAFKA-19446."""
    assert "torn-transaction" in forbidden(searched(SEED_OF_A_LATE_MARKER, profile="kafka-4.1"))
    assert not forbidden(searched(SEED_OF_A_LATE_MARKER))
