"""What happens without the rules of the metadata quorum, in a whole cluster."""

import pytest

from system_under_test.invariants import InvariantViolation
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect
from tests.simulation import test_raft_rules as quorum

# --- RAFT-2


@shows("RAFT-2", "B-36")
def test_a_voter_that_acknowledges_before_its_sync_lets_committed_metadata_vanish() -> None:
    expect_defect("B-36")


# --- RAFT-1


@shows("RAFT-1", "B-35")
def test_a_voter_that_forgets_its_vote_gives_one_epoch_two_leaders() -> None:
    expect_defect("B-35")


# --- RAFT-7


@shows("RAFT-7", "B-37")
def test_a_record_of_an_old_epoch_is_replaced_after_its_commit() -> None:
    expect_defect("B-37")


# --- RAFT-5: the quorum alone


@shows("RAFT-5")
def test_a_candidate_that_missed_a_commit_wins_and_replaces_it() -> None:
    story = quorum.a_voter_that_missed_a_commit_stands_for_leader(1, ())
    assert story.ledger.values() == ["committed", "later"]
    with pytest.raises(InvariantViolation, match="INV-5"):
        quorum.a_voter_that_missed_a_commit_stands_for_leader(1, ["RAFT-5"])


# --- RAFT-8


@shows("RAFT-8", "B-53")
def test_a_snapshot_without_the_elr_lets_a_replica_lead_that_lost_its_tail() -> None:
    """The controllers elect the last-known leader, although an eligible replica with all records is alive."""
    ending = expect_defect("B-53")
    assert ending.marks["metadata-snapshot-loaded"] > 0
    assert ending.marks["elected-last-known-leader"] == 1


@shows("RAFT-11", "B-79")
def test_a_controller_that_trusts_the_page_cache_after_a_failed_fsync_forgets_what_it_committed() -> (
    None
):
    expect_defect("B-79")
