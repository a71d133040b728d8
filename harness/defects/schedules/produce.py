"""Schedules of defects: produce."""

from harness.defects.schedules.high_watermark import alone
from harness.defects.story import Story


def the_leader_dies_before_replication(story: Story) -> None:
    """B-19: an acks=all record is in the leader's log only, and the leader is killed."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    story.begin_append()
    story.run_ms(20)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def a_lone_leader_gets_an_acks_all_request(story: Story) -> None:
    """B-21: broker 1 is alone, below min ISR, and appends come; then another member of the ELR leads."""
    tokens = alone(story)
    story.append()
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(*tokens)
    story.wait(has_leader=True)


def a_deposed_leader_has_appends_that_wait(story: Story) -> None:
    """B-24: an append waits at 1 for its followers; meanwhile 2 leads, and the same offset gets another record."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    story.begin_append()
    away = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    story.append_ok(client=story.new_client(asks=2))
    story.heal(away)
    story.until(lambda: story.partition(1).high_watermark == 11)
    story.run_ms(50)


def a_lone_leader_refuses_an_append(story: Story) -> None:
    """B-72: broker 1 is alone, below min ISR, and refuses an append; then the others return."""
    tokens = alone(story)
    story.append()
    story.heal(*tokens)


def a_request_names_two_partitions(story: Story) -> None:
    """B-73: broker 1 leads two partitions, and a producer sends a batch for each in one request."""
    story.begin()
    story.append_both(0, 3)


def a_batch_is_sent_again_before_it_is_replicated(story: Story) -> None:
    """B-75: a batch is in the leader's log only when its producer sends it again; the leader is killed."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    append = story.begin_append()
    story.run_ms(1500)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)
    story.until(append.done)
