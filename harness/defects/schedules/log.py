"""Schedules of defects: log."""

from typing import Any

from harness.defects.story import Story


def commit_unheard_of(story: Story) -> list[Any]:
    """A record is committed, and 2 and 3 have it but do not hear that; returns what holds the news."""
    story.begin()
    append = story.begin_append()
    story.until(lambda: story.log_end(2) == 11 and story.log_end(3) == 11)
    holds = [story.hold("FetchResponse", 1, follower) for follower in (2, 3)]
    story.until(append.done)
    return holds


def two_leaders_die_in_a_row(story: Story) -> None:
    """B-01: 2 and 3 have a committed record and have not heard that it is committed."""
    holds = commit_unheard_of(story)
    cut = story.cut(2, 3)
    story.kill(1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    story.heal(*holds)
    story.until(lambda: story.partition(3).leader_epoch == story.state.leader_epoch)
    story.kill(2)
    story.wait(fenced=(2,), leader=3)
    story.heal(cut)


def all_replicas_but_one_stop_in_order(story: Story) -> None:
    """B-07: 2 restarts cleanly and leads at once, with the epochs in its file.

    Broker 1, cut off, has a tail of epoch 0; whether that diverges is decided by where epoch 0 ends at 2.
    """
    story.begin()
    away = story.isolate(1)
    story.append(5, acks=1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    client = story.new_client(asks=2)
    story.append_ok(10, client=client)
    story.read(client)
    story.stop(3, 2)
    story.wait(isr=(), leader=-1)
    story.start(2)
    story.wait(leader=2)
    story.heal(away)
    story.wait(isr=(1, 2))
    story.start(3)
    story.wait(isr=(1, 2, 3))
    story.kill(2)
    story.wait(fenced=(2,), leader=1)
    story.until(lambda: story.partition(1).is_leader)
    story.read(story.new_client(asks=3))


def leadership_goes_there_and_back(story: Story) -> None:
    """1 wrote five records in epoch 0, 2 wrote two in epoch 1, and 1, which never saw epoch 1, leads again.

    Every one of these records was acknowledged with acks=1 only, so they may go. What may not happen is that 2
    keeps its two, and follows 1 from there on.
    """
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    cut = story.isolate(1, planes=("inter-broker",))
    story.append(5, acks=1)
    away_1 = story.isolate(1)
    story.wait(fenced=(1,), leader=2, isr=(2,), elr=(1,))
    client = story.new_client(asks=2)
    story.append_ok(2, acks=1, client=client)
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=-1)
    story.heal(away_1)
    story.wait(leader=1, isr=(1,))
    story.heal(away_2, cut)
    story.wait(unfenced=(2,))


def and_a_follower_keeps_its_records(story: Story) -> None:
    """B-02: afterwards 2 leads once more."""
    leadership_goes_there_and_back(story)
    story.wait(isr=(1, 2))
    client = story.new_client(asks=1)
    story.append_ok(3, client=client)
    story.read(client)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.until(lambda: story.partition(2).is_leader)


def a_new_leader_does_not_know_what_is_committed(story: Story) -> None:
    """2 leads, and neither it nor 3 has heard that their last record is committed; 3 may cut its log."""
    commit_unheard_of(story)
    story.poll()
    story.kill(1)
    story.wait(leader=2)


def and_both_leaders_die(story: Story) -> None:
    """B-77: likewise, and 2 dies as well."""
    a_new_leader_does_not_know_what_is_committed(story)
    # What 3 cuts, if it does, it would copy again a moment later.
    for _ in range(1000):
        if story.log_end(3) < 11:
            break
        story.run_ms(0.1)
    story.cut(2, 3)
    story.kill(2)
    story.wait(fenced=(2,), has_leader=True)
