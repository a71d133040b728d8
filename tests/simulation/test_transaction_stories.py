"""Transactions in the simulated world: epochs, fencing, timeouts, and the deaths of leaders and coordinators."""

import pytest

from harness.defects.playing import play
from tests.simulation import transaction_plots as plots

PLOTS = [
    plots.every_transaction_has_an_epoch,
    plots.an_abort_waits_for_the_markers_of_the_commit_before_it,
    plots.a_transaction_begins_before_the_marker_of_the_one_before,
    plots.transactions_are_described,
    plots.a_zombie_is_fenced_everywhere,
    plots.a_timeout_fences_the_producer,
    plots.coordinators_lose_power_in_a_row,
    plots.a_leader_dies_with_an_open_transaction,
    plots.offsets_of_an_aborted_transaction,
]


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_transactions(plot: object) -> None:
    ending = play(plot)  # type: ignore[arg-type]
    assert ending.is_clean, str(ending)


def test_unused_transactional_ids_are_forgotten() -> None:
    properties = {
        "transactional.id.expiration.ms": "100",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    ending = play(plots.unused_transactional_ids_are_forgotten, properties=properties)
    assert ending.is_clean, str(ending)


def test_one_schedule_gives_one_trace() -> None:
    first, second = (play(plots.a_zombie_is_fenced_everywhere) for _ in range(2))
    assert first.mark_counts() == second.mark_counts()
