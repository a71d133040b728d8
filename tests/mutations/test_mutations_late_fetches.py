"""What happens without the rules that recognize a fetch that was on its way for too long."""

from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- FETCH-2


@shows("FETCH-2", "B-06")
def test_a_fetch_of_an_older_leader_epoch_commits_what_its_sender_has_truncated() -> None:
    expect_defect("B-06")


# --- FS-2, FS-4-EPOCH


@shows("FS-2", "FS-4-EPOCH", "B-11")
def test_a_fetch_of_an_older_incarnation_lets_an_empty_log_join_and_lead() -> None:
    expect_defect("B-11")
