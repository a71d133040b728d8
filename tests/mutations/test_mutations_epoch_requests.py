"""What happens without the rules about leader epochs where followers ask for the ends of epochs (TRUNC-4).

Before KIP-595 a follower compared its log with the leader's once per leader epoch, with OffsetForLeaderEpoch, and
fetches compared nothing. What that comparison missed stayed in the log.
"""

import pytest

from harness.defects.playing import play
from harness.defects.schedules.fetch import a_deposed_leader_has_a_short_tail
from harness.defects.schedules.log import (
    and_a_follower_keeps_its_records,
    two_leaders_die_in_a_row,
)
from system_under_test.defects import EPOCH_REQUESTS
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect


@pytest.mark.parametrize(
    "plot",
    [
        a_deposed_leader_has_a_short_tail,
        and_a_follower_keeps_its_records,
        two_leaders_die_in_a_row,
    ],
)
def test_with_all_rules_epoch_requests_find_every_divergence(plot: object) -> None:
    ending = play(plot, profile=EPOCH_REQUESTS)  # type: ignore[arg-type]
    assert ending.is_clean, ending


@shows("EC-3", "B-02")
def test_an_end_offset_without_its_epoch_makes_a_diverged_log_look_equal() -> None:
    expect_defect("B-02")


# --- LEAD-3


@shows("LEAD-3", "B-03")
def test_a_leader_without_an_entry_lets_a_follower_cut_a_committed_record() -> None:
    expect_defect("B-03")


# --- FOLL-2


@shows("FOLL-2", "B-04")
def test_a_fetcher_that_is_not_restarted_keeps_records_that_its_leader_truncated() -> None:
    expect_defect("B-04")
