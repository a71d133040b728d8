"""What happens without the rules about when an append is acknowledged."""

from harness.defects.playing import play
from harness.defects.schedules.high_watermark import alone
from harness.defects.schedules.produce import (
    a_lone_leader_gets_an_acks_all_request,
)
from harness.defects.story import Story
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- PROD-4


@shows("PROD-4", "B-19")
def test_an_acknowledgement_before_the_commit_is_broken_by_a_killed_leader() -> None:
    expect_defect("B-19")


# --- PROD-2, PROD-5


@shows("PROD-2", "PROD-5", "HW-1", "B-21")
def test_a_lone_leader_below_min_isr_acknowledges_records_that_are_lost() -> None:
    expect_defect("B-21")


def test_for_a_late_request_any_one_of_the_three_checks_suffices() -> None:
    off = ("PROD-2", "PROD-5", "HW-1")
    for applied in off:
        others = tuple(rule for rule in off if rule != applied)
        ending = play(a_lone_leader_gets_an_acks_all_request, *others, is_watched=False)
        assert "lost-acked-write" not in ending.forbidden, f"only {applied} applies: {ending}"


@shows("PROD-2")
def test_without_prod_2_a_lone_leader_writes_what_it_should_refuse() -> None:
    """NOT_ENOUGH_REPLICAS means that nothing was written; without the rule the client waits long."""

    def plot(story: Story) -> None:
        alone(story)
        (completion,) = story.append()
        assert completion.outcome in ("fail", "info")
        if completion.outcome == "info":
            story.complain("it is unknown whether the append took place")

    assert play(plot).is_clean
    assert play(plot, "PROD-2").codes == {"L"}


# --- PROD-7, PROD-8, PID-6


@shows("PROD-7", "B-72")
def test_a_batch_that_is_refused_when_it_is_written_is_read_later() -> None:
    expect_defect("B-72")


@shows("PROD-8", "B-73")
def test_a_request_whose_first_batch_goes_to_all_partitions_loses_the_others() -> None:
    expect_defect("B-73")


@shows("PID-6", "B-75")
def test_a_batch_that_is_acknowledged_because_it_was_sent_before_dies_with_the_leader() -> None:
    expect_defect("B-75")


# --- FOLL-3


@shows("FOLL-3", "B-24")
def test_a_deposed_leader_acknowledges_what_it_has_truncated() -> None:
    expect_defect("B-24")
