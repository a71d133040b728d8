"""What happens without the rules about ISR membership."""

from harness.defects.playing import play
from harness.defects.schedules.isr import (
    a_fenced_replica_joins,
    let_2_request_again,
    without_2,
)
from harness.defects.story import Story
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- ISR-4


@shows("ISR-4", "B-09")
def test_a_follower_below_the_epochs_start_joins_and_leads_without_committed_records() -> None:
    expect_defect("B-09")


# --- ISR-5, APC-3


@shows("APC-3-EPOCH", "B-10")
def test_an_incarnation_that_lost_everything_joins_and_leads_with_an_empty_log() -> None:
    expect_defect("B-10")


@shows("ISR-5", "APC-3", "B-12")
def test_a_fenced_replica_joins_and_leads_with_an_empty_log() -> None:
    expect_defect("B-12")


def test_each_of_the_two_checks_alone_keeps_a_fenced_replica_out() -> None:
    for rule in ("ISR-5", "APC-3"):
        ending = play(a_fenced_replica_joins, rule, profile="kafka-3.9")
        assert ending.is_clean, f"{rule} is off: {ending}"


@shows("ISR-5")
def test_without_its_own_check_a_leader_keeps_proposing_a_fenced_replica() -> None:
    assert not play(a_fenced_replica_joins, profile="kafka-3.9").mark_counts()[
        "alter-partition-refused"
    ]
    ending = play(a_fenced_replica_joins, "ISR-5", profile="kafka-3.9")
    assert ending.mark_counts()["alter-partition-refused"] > 0


# --- ISR-2


@shows("ISR-2", "B-14")
def test_a_shrink_that_takes_effect_before_its_commit_loses_acknowledged_records() -> None:
    expect_defect("B-14")


# --- APC-2


@shows("APC-2", "B-15")
def test_a_proposal_that_arrives_twice_brings_back_a_replica_that_lags() -> None:
    expect_defect("B-15")


# --- AP-4


@shows("AP-4", "B-16")
def test_a_leader_that_treats_an_unclear_response_as_a_refusal_loses_acknowledged_records() -> None:
    expect_defect("B-16")


# --- HW-3


@shows("HW-3", "B-13")
def test_a_high_watermark_that_ignores_a_proposed_member_moves_past_it() -> None:
    expect_defect("B-13")


# --- FS-1


@shows("FS-1", "B-08")
def test_a_follower_that_diverges_joins_and_overwrites_committed_records() -> None:
    expect_defect("B-08")


# --- LEAD-5, LEAD-2, LEAD-6


@shows("LEAD-5", "B-43")
def test_after_a_shrink_the_high_watermark_of_an_idle_partition_does_not_move() -> None:
    expect_defect("B-43")


def the_controller_changes_the_isr_meanwhile(story: Story) -> None:
    """While "add 2" is under way the controller removes 3, so that the proposal comes too late."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    gone = story.isolate(3)
    story.wait(fenced=(3,), isr=(1,), elr=(3,))
    story.heal(proposal, gone)
    story.run_ms(500)


@shows("LEAD-2")
def test_a_proposal_that_is_never_cancelled_leaves_the_isr_incomplete_forever() -> None:
    assert play(the_controller_changes_the_isr_meanwhile).is_clean
    ending = play(the_controller_changes_the_isr_meanwhile, "LEAD-2", is_watched=False)
    assert ending.codes == {"L"}, ending


@shows("LEAD-6", "B-69")
def test_a_leader_that_forgets_its_proposal_commits_without_a_member_of_the_isr() -> None:
    expect_defect("B-69")
