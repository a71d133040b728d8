"""What happens without the rules about a min ISR that changes, and about who acknowledges with how many copies."""

from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect
from tests.mutations.test_mutations_high_watermark import alone

REQUEST_IS_OVER_MS = 700
"""A fetch of metadata that was sent before has timed out: its response would have only a part of them."""

# --- ELR-9-EPOCH


def min_isr_is_raised_behind_the_leader(story: Story) -> None:
    """B-29: 1 knows min ISR 1 only; it wants to continue without 2, when min ISR is 2 already."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    stalled = story.stall_metadata(1)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    story.set_min_isr(2)
    silence = story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.run_ms(2500)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)


@shows("ELR-9-EPOCH", "B-29")
def test_a_leader_that_does_not_know_the_raised_min_isr_commits_alone() -> None:
    expect_defect("B-29", min_isr_is_raised_behind_the_leader, min_isr=1)


# --- META-5-RAISED, META-5-LOWERED


def min_isr_is_raised_in_the_publish_that_shrinks_the_isr(story: Story) -> None:
    """B-29b: the leader learns at once that min ISR is 2 and that 2 has left the ISR."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.hold("FetchResponse", 1, 2)
    story.begin_append()
    stalled = story.stall_metadata(1)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    story.set_min_isr(2)
    away = story.cut_from_controllers(2)
    story.wait(fenced=(2,), isr=(1,), elr=(2,))
    story.run_ms(REQUEST_IS_OVER_MS)
    story.merge_metadata(1)
    story.heal(stalled)
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    story.run_ms(50)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(away)
    story.wait(leader=2)


@shows("META-5-RAISED", "B-29b")
def test_a_smaller_isr_before_the_raised_min_isr_lets_a_leader_commit_alone() -> None:
    expect_defect("B-29b", min_isr_is_raised_in_the_publish_that_shrinks_the_isr, min_isr=1)


def min_isr_is_lowered_in_the_publish_that_deposes_the_leader(story: Story) -> None:
    """B-29c: 1, alone in the ISR, learns at once that min ISR is 1 and that 2 leads."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.wait(isr=(1,), elr=(2,))
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    away = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2)
    story.set_min_isr(1)
    story.run_ms(REQUEST_IS_OVER_MS)
    story.merge_metadata(1)
    story.heal(away)
    story.until(lambda: not story.partition(1).is_leader)


@shows("META-5-LOWERED", "B-29c")
def test_a_lowered_min_isr_before_the_rest_lets_a_deposed_leader_acknowledge() -> None:
    expect_defect("B-29c", min_isr_is_lowered_in_the_publish_that_deposes_the_leader)


# --- ELR-9, ELR-9-LEADERLESS


def min_isr_is_lowered_for_the_last_member(story: Story) -> None:
    """B-30b: 1 is alone and may commit alone now; the others are in the ELR of the older min ISR."""
    tokens = alone(story)
    story.set_min_isr(1)
    story.append_ok(client=story.new_client(asks=1))
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(*tokens)
    story.wait(unfenced=(2, 3))
    story.run_ms(100)


@shows("ELR-9", "B-30b")
def test_an_elr_of_an_older_min_isr_elects_a_replica_without_committed_records() -> None:
    expect_defect("B-30b", min_isr_is_lowered_for_the_last_member)


def min_isr_is_lowered_without_a_leader(story: Story) -> None:
    """B-48: nobody leads, all members of the ELR are away; an operator lowers min ISR, and they return."""
    tokens = alone(story)
    story.kill(1)
    story.wait(fenced=(1,), leader=-1, isr=())
    story.set_min_isr(1)
    story.start(1)
    story.heal(*tokens)
    story.wait(unfenced=(1, 2, 3))
    story.run_ms(500)
    if story.state.leader == -1:
        story.complaints.append("all brokers are back, and nobody is elected")


@shows("ELR-9-LEADERLESS", "B-48")
def test_erasing_the_elr_of_a_leaderless_partition_leaves_nobody_to_elect() -> None:
    expect_defect("B-48", min_isr_is_lowered_without_a_leader)


# --- AP-3


def a_proposal_is_lost(story: Story) -> None:
    """B-45: the connection with the proposal to remove 2 breaks; an append waits for 2."""
    story.begin()
    story.drop("AlterPartitionRequest", 1, None)
    silence = story.hold("FetchResponse", 1, 2)
    task = story.begin_append()
    story.until(task.done)
    if story.is_unacked(task):
        story.complaints.append("an append that the rest of the ISR had was not acknowledged")
    story.heal(silence)


@shows("AP-3", "B-45")
def test_a_proposal_that_is_not_repeated_leaves_the_isr_as_it_is() -> None:
    expect_defect("B-45", a_proposal_is_lost)


# --- PROD-4-ISR


def one_follower_has_no_copy(story: Story) -> None:
    """B-20: 1 and 3 have a record, 2 has not; all are in the ISR; the leader dies."""
    story.begin()
    silence = story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.until(lambda: story.log_end(3) == 11)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)


@shows("PROD-4-ISR", "B-20")
def test_an_acknowledgement_with_min_isr_copies_is_lost_with_the_next_leader() -> None:
    expect_defect("B-20", one_follower_has_no_copy)
