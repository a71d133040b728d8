"""What happens without the rules about ISR membership."""

from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect, play

LAG_IS_OVER_MS = 1100
"""A little more than `replica.lag.time.max.ms`."""


def without_2(story: Story) -> object:
    """Ten records are on all replicas, an eleventh only on 1 and 3: broker 2 is cut off and out of the ISR."""
    story.begin()
    away = story.isolate(2)
    story.wait(fenced=(2,), isr=(1, 3))
    story.append_ok()
    return away


def let_2_request_again(story: Story, away: object) -> None:
    """Lets broker 2 back, and lets its fetches through only when 1 knows that it may join."""
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2) and asking.dropped_or_stalled > 0)
    story.heal(asking)


# --- ISR-4


def a_follower_joins_below_the_epochs_start(story: Story) -> None:
    """B-09: the new leader 2 does not know yet that offset 7 is committed; 3, which lacks it, catches up."""
    story.append_ok(7)
    story.until(lambda: all(story.log_end(broker) == 7 for broker in (2, 3)))
    story.until(lambda: story.partition(2).high_watermark == 7)
    away = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    # Broker 2 gets the record, and never learns that it is committed.
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 8)
    silence = story.hold("FetchResponse", 1, 2)
    story.until(task.done)
    story.kill(1)
    story.wait(leader=2, isr=(2,), elr=(1,))
    story.heal(silence)
    copying = story.hold("FetchResponse", 2, 3)
    asking = story.hold("FetchRequest", 3, 2)
    story.heal(away)
    story.until(lambda: story.knows_active(2, 3) and asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.run_ms(50)
    story.kill(2)
    story.wait(fenced=(2,))
    story.heal(copying)


@shows("ISR-4", "B-09")
def test_a_follower_below_the_epochs_start_joins_and_leads_without_committed_records() -> None:
    expect_defect("B-09", a_follower_joins_below_the_epochs_start)


# --- ISR-5, APC-3


def an_empty_incarnation_joins(story: Story) -> None:
    """B-10: broker 2 has caught up; while the proposal to add it is under way, it comes back empty."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    story.power(2, keep_records=0)
    story.wait(fenced=(2,))
    copying = story.hold("FetchResponse", 1, 2)
    story.start(2)
    story.wait(unfenced=(2,))
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.heal(proposal)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(copying)


@shows("APC-3-EPOCH", "B-10")
def test_an_incarnation_that_lost_everything_joins_and_leads_with_an_empty_log() -> None:
    expect_defect("B-10", an_empty_incarnation_joins)


def a_fenced_replica_joins(story: Story) -> None:
    """B-12: broker 2 fetches, but is fenced; in the ISR, its power loss would go unnoticed."""
    away = without_2(story)
    fenced = story.cut_from_controllers(2)
    story.heal(away)
    story.until(lambda: story.log_end(2) == 11)
    story.run_ms(200)
    story.power(2, keep_records=0)
    story.heal(fenced)
    copying = story.hold("FetchResponse", 1, 2)
    story.start(2)
    story.wait(unfenced=(2,))
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(copying)


@shows("ISR-5", "APC-3", "B-12")
def test_a_fenced_replica_joins_and_leads_with_an_empty_log() -> None:
    expect_defect("B-12", a_fenced_replica_joins)


def test_each_of_the_two_checks_alone_keeps_a_fenced_replica_out() -> None:
    for rule in ("ISR-5", "APC-3"):
        ending = play(a_fenced_replica_joins, rule, profile="kafka-3.9")
        assert ending.is_clean, f"{rule} is off: {ending}"


@shows("ISR-5")
def test_without_its_own_check_a_leader_keeps_proposing_a_fenced_replica() -> None:
    assert not play(a_fenced_replica_joins, profile="kafka-3.9").marks("alter-partition-refused")
    ending = play(a_fenced_replica_joins, "ISR-5", profile="kafka-3.9")
    assert ending.marks("alter-partition-refused") > 0


# --- ISR-2


def a_shrink_is_only_proposed(story: Story) -> None:
    """B-14: the leader wants to continue without 2, and its proposal never reaches the controller."""
    story.begin()
    story.hold("FetchResponse", 1, 2)
    story.append(acks=1)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("ISR-2", "B-14")
def test_a_shrink_that_takes_effect_before_its_commit_loses_acknowledged_records() -> None:
    expect_defect("B-14", a_shrink_is_only_proposed)


# --- APC-2


def a_proposal_arrives_twice(story: Story) -> None:
    """B-15: the network delivers a copy of "add 2" again, after 2 has left once more."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    copy = story.pending_proposal(1)
    story.heal(proposal)
    story.wait(isr=(1, 2, 3))
    story.cut(1, 2)
    story.append(acks=1)
    story.wait(isr=(1, 3))
    story.append_ok()
    story.send_to_controller(copy)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("APC-2", "B-15")
def test_a_proposal_that_arrives_twice_brings_back_a_replica_that_lags() -> None:
    expect_defect("B-15", a_proposal_arrives_twice)


# --- AP-4


def a_response_gets_lost(story: Story) -> None:
    """B-16: "add 2" is applied, its response is lost, and the second attempt is refused as outdated."""
    away = without_2(story)
    story.drop("AlterPartitionResponse", None, 1)
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2))
    story.stall_metadata(1)
    story.heal(asking)
    story.wait(isr=(1, 2, 3))
    story.run_ms(100)
    story.cut(1, 2)
    story.run_ms(LAG_IS_OVER_MS)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("AP-4", "B-16")
def test_a_leader_that_treats_an_unclear_response_as_a_refusal_loses_acknowledged_records() -> None:
    expect_defect("B-16", a_response_gets_lost)


# --- HW-3


def an_expansion_is_applied_before_the_leader_knows(story: Story) -> None:
    """B-13: the controller has added 2; the leader waits for the response."""
    away = without_2(story)
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2))
    story.hold("AlterPartitionResponse", None, 1)
    story.stall_metadata(1)
    story.heal(asking)
    story.wait(isr=(1, 2, 3))
    story.cut(1, 2)
    # For so long the high watermark would wait for 2 anyway (HW-4).
    story.run_ms(LAG_IS_OVER_MS)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("HW-3", "B-13")
def test_a_high_watermark_that_ignores_a_proposed_member_moves_past_it() -> None:
    expect_defect("B-13", an_expansion_is_applied_before_the_leader_knows)


# --- FS-1


def a_diverging_fetch_counts(story: Story) -> None:
    """B-08: broker 1 has a tail that no other replica has; its first fetch shows how long its log is."""
    story.begin()
    away = story.isolate(1)
    story.append(5, acks=1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    client = story.new_client(asks=2)
    story.append_ok(2, client=client)
    copying = story.hold("FetchResponse", 2, 1)
    asking = story.hold("FetchRequest", 1, 2)
    story.heal(away)
    story.until(lambda: story.knows_active(2, 1) and asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.run_ms(50)
    story.append_ok(client=client)
    story.read(client)
    story.kill(2)
    story.wait(fenced=(2,), has_leader=True)
    story.read(story.new_client(asks=3))
    story.heal(copying)


@shows("FS-1", "B-08")
def test_a_follower_that_diverges_joins_and_overwrites_committed_records() -> None:
    expect_defect("B-08", a_diverging_fetch_counts)


# --- LEAD-5, LEAD-2


def only_the_lagging_replica_leaves(story: Story) -> None:
    """B-43: a record waits for 2 alone; when 2 has left the ISR, nothing else happens."""
    story.begin()
    cut = story.cut(1, 2)
    task = story.begin_append()
    story.wait(isr=(1, 3))
    story.until(task.done)
    if story.is_unacked(task):
        story.complaints.append("an append that all of the ISR had was not acknowledged")
    story.heal(cut)


@shows("LEAD-5", "B-43")
def test_after_a_shrink_the_high_watermark_of_an_idle_partition_does_not_move() -> None:
    expect_defect("B-43", only_the_lagging_replica_leaves)


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
