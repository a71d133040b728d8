"""What happens to transactions without the rules that protect them."""

import pytest

from harness.defects.playing import play
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
