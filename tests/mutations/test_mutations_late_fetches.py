"""What happens without the rules that recognize a fetch that was on its way for too long."""

from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect
from tests.mutations.test_mutations_isr import let_2_request_again, without_2

# --- FETCH-2


def a_fetch_of_an_older_leader_epoch_arrives(story: Story) -> None:
    """B-06: 1 leads, then 2, then 1 again, which never notices; 3 has truncated a record that waits at 1.

    A fetch that 3 sent in the first epoch, when it had the record, arrives in the last one.
    """
    story.begin()
    beats = story.hold("BrokerHeartbeatRequest", 3, None)
    story.wait(fenced=(3,), isr=(1, 2))
    cut = story.cut(1, 2)
    story.begin_append()
    story.until(lambda: story.log_end(3) == 11)
    late = story.fetch_of(3, 1)
    stalled = story.stall_metadata(1)
    away_1 = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2, isr=(2,), elr=(1,))
    story.until(lambda: story.log_end(3) == 10)
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=-1)
    story.heal(away_1)
    story.wait(leader=1, isr=(1,))
    copying = story.hold("FetchResponse", 1, 3)
    story.merge_metadata(1)
    story.heal(stalled)
    story.until(lambda: story.partition(1).leader_epoch == story.state.leader_epoch)
    story.heal(beats)
    story.until(lambda: story.knows_active(1, 3))
    story.deliver_late(late, 1)
    story.run_ms(200)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(cut, away_2, copying)
    story.wait(has_leader=True)


@shows("FETCH-2", "B-06")
def test_a_fetch_of_an_older_leader_epoch_commits_what_its_sender_has_truncated() -> None:
    expect_defect("B-06", a_fetch_of_an_older_leader_epoch_arrives)


# --- FS-2, FS-4-EPOCH


def a_fetch_of_an_older_incarnation_arrives(story: Story) -> None:
    """B-11: broker 2 has come back empty, and has fetched; then a fetch arrives that it sent before."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: story.log_end(2) == 11)
    late = story.fetch_of(2, 1)
    story.power(2, keep_records=0)
    story.wait(fenced=(2,))
    copying = story.hold("FetchResponse", 1, 2)
    story.heal(proposal)
    story.start(2)
    story.wait(unfenced=(2,))
    story.until(lambda: copying.dropped_or_stalled > 0 and story.knows_active(1, 2))
    story.wait(isr=(1, 3))
    story.deliver_late(late, 1)
    story.run_ms(200)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(copying)


@shows("FS-2", "FS-4-EPOCH", "B-11")
def test_a_fetch_of_an_older_incarnation_lets_an_empty_log_join_and_lead() -> None:
    expect_defect("B-11", a_fetch_of_an_older_incarnation_arrives)
