"""What happens without the rules about a min ISR that changes, and about who acknowledges with how many copies."""

from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- ELR-9-EPOCH


@shows("ELR-9-EPOCH", "B-29")
def test_a_leader_that_does_not_know_the_raised_min_isr_commits_alone() -> None:
    expect_defect("B-29")


# --- META-5-RAISED, META-5-LOWERED


@shows("META-5-RAISED", "B-29b")
def test_a_smaller_isr_before_the_raised_min_isr_lets_a_leader_commit_alone() -> None:
    expect_defect("B-29b")


@shows("META-5-LOWERED", "B-29c")
def test_a_lowered_min_isr_before_the_rest_lets_a_deposed_leader_acknowledge() -> None:
    expect_defect("B-29c")


# --- ELR-9, ELR-9-LEADERLESS


@shows("ELR-9", "B-30b")
def test_an_elr_of_an_older_min_isr_elects_a_replica_without_committed_records() -> None:
    expect_defect("B-30b")


@shows("ELR-9-LEADERLESS", "B-48")
def test_erasing_the_elr_of_a_leaderless_partition_leaves_nobody_to_elect() -> None:
    expect_defect("B-48")


# --- AP-3


@shows("AP-3", "B-45")
def test_a_proposal_that_is_not_repeated_leaves_the_isr_as_it_is() -> None:
    expect_defect("B-45")


# --- PROD-4-ISR


@shows("PROD-4-ISR", "B-20")
def test_an_acknowledgement_with_min_isr_copies_is_lost_with_the_next_leader() -> None:
    expect_defect("B-20")
