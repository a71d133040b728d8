"""Every switchable rule of the metadata quorum, as a pair: with the rule the story ends well, without it not.

The stories are B-35, B-36 and B-37 of `docs/defects.md`, and one for RAFT-5.
"""

from collections.abc import Sequence
from itertools import permutations

import pytest

from system_under_test.invariants import InvariantViolation
from tests.simulation.raft_story import QuorumStory, worlds_closed

__all__ = ["worlds_closed"]


def others(story: QuorumStory, *names: str) -> list[str]:
    return [name for name in story.voters if name not in names]


def a_vote_is_forgotten_in_a_power_cut(off: Sequence[str]) -> QuorumStory:
    """B-35: the first leader's voters lose power before they have a record of its epoch.

    If they forget their votes they elect a second leader in the same epoch, whose records have the same
    offsets with the same epoch: no divergence that a fetch could see.
    """
    story = QuorumStory(off=off)
    holds = [
        story.world.network.hold(source, target, "FetchResponse")
        for source, target in permutations(story.voters, 2)
    ]
    story.until(lambda: any(story.raft(name).is_leader for name in story.voters))
    first = next(name for name in story.voters if story.raft(name).is_leader)
    story.append(first, "only here")
    cut = story.isolate(first)
    story.run(10)
    for name in others(story, first):
        story.power_off(name)
        story.start(name)
    for hold in holds:
        story.world.network.release(hold)
    second = story.await_leader(among=others(story, first))
    story.commit(second, "by the second")
    story.heal(cut)
    story.await_converged()
    return story


def test_with_durable_votes_a_second_leader_has_a_second_epoch() -> None:
    story = a_vote_is_forgotten_in_a_power_cut(off=())
    assert sorted(story.ledger.leaders) == list(range(1, len(story.ledger.leaders) + 1))
    assert len(story.ledger.leaders) >= 2
    assert story.ledger.values() == ["by the second"]


def test_without_raft_1_an_epoch_gets_two_leaders() -> None:
    with pytest.raises(InvariantViolation, match="INV-8: a quorum epoch has one leader"):
        a_vote_is_forgotten_in_a_power_cut(off=["RAFT-1"])


def a_follower_loses_power_after_its_acknowledgement(off: Sequence[str]) -> QuorumStory:
    """B-36: two of three commit a record; the follower among them loses power, the leader is cut off."""
    story = QuorumStory(off=off)
    leader = story.await_leader()
    story.await_converged()
    follower, absent = others(story, leader)
    first_cut = story.isolate(absent)
    story.commit(leader, "committed")
    story.run(5)
    assert story.member("b1").values == ["committed"]
    story.power_off(follower)
    second_cut = story.isolate(leader)
    story.heal(first_cut)
    story.start(follower)
    second = story.await_leader(among=[follower, absent])
    story.commit(second, "later")
    story.heal(second_cut)
    story.await_converged()
    return story


def test_with_fsync_before_the_next_fetch_a_power_cut_loses_nothing() -> None:
    story = a_follower_loses_power_after_its_acknowledgement(off=())
    assert story.ledger.values() == ["committed", "later"]


def test_without_raft_2_a_committed_record_is_replaced() -> None:
    with pytest.raises(InvariantViolation, match="INV-5"):
        a_follower_loses_power_after_its_acknowledgement(off=["RAFT-2"])


def figure_8(off: Sequence[str]) -> QuorumStory:
    """B-37: a record of an old epoch reaches a majority, and is still replaced by a newer one.

    `first` has X of epoch 1 alone; `second` has a record of epoch 2 at the same offset alone; `first` leads
    epoch 3 and replicates X to `third`, but not yet anything of epoch 3. Then `first` is gone, and `second`
    wins, because its last epoch is newer than that of X.
    """
    story = QuorumStory(off=off)
    # So that X travels alone.
    for node in story.world.nodes.values():
        node.host.random.always.add("raft-fetch-one-batch")
    first = story.await_leader()
    story.await_converged()
    start = story.raft(first).log_end_offset
    holds = [
        story.world.network.hold(source, target, "FetchResponse")
        for source, target in permutations((*story.voters, *story.observers), 2)
        if source in story.voters
    ]
    story.append(first, "X")
    story.run(5)
    cut = story.isolate(first)
    story.until(lambda: any(story.raft(name).is_leader for name in others(story, first)))
    second = next(name for name in others(story, first) if story.raft(name).is_leader)
    second_epoch = story.epoch(second)
    (third,) = others(story, first, second)
    story.append(second, "Y")
    story.run(5)
    assert story.raft(third).log_end_offset == start
    story.kill(second)
    story.heal(cut)
    story.until(lambda: story.epoch(third) > second_epoch and story.raft(third).leader_id != -1)
    for hold in holds:
        story.world.network.release(hold)
    story.until(lambda: story.raft(third).log_end_offset == start + 1)
    assert story.values_in_log(third) == ["X"]
    assert story.raft(first).is_leader
    hold = story.world.network.hold(first, third, "FetchResponse")
    story.run(5)
    assert hold.dropped_or_stalled == 1
    story.kill(first)
    story.start(second)
    assert story.await_leader(among=[second, third]) == second
    story.world.network.release(hold)
    story.start(first)
    story.await_converged()
    return story


def test_a_record_of_an_old_epoch_alone_is_not_committed_by_its_majority() -> None:
    story = figure_8(())
    assert story.ledger.values() == ["Y"]


def test_without_raft_7_a_committed_record_is_replaced() -> None:
    with pytest.raises(InvariantViolation, match="INV-5"):
        figure_8(["RAFT-7"])


def a_voter_that_missed_a_commit_stands_for_leader(seed: int, off: Sequence[str]) -> QuorumStory:
    """Two of three commit a record, the leader is cut off, and the one that missed it is back."""
    # Without pre-votes: they would be refused for another reason, a leader that was alive a moment ago.
    story = QuorumStory(seed=seed, off=off, profile="kafka-3.9")
    leader = story.await_leader()
    story.await_converged()
    follower, absent = others(story, leader)
    first_cut = story.isolate(absent)
    story.commit(leader, "committed")
    story.run(5)
    second_cut = story.isolate(leader)
    story.heal(first_cut)
    second = story.await_leader(among=[follower, absent])
    story.commit(second, "later")
    story.heal(second_cut)
    story.await_converged()
    return story


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_log_that_lacks_a_commit_never_wins(seed: int) -> None:
    story = a_voter_that_missed_a_commit_stands_for_leader(seed, ())
    assert story.ledger.values() == ["committed", "later"]


def test_without_raft_5_a_log_that_lacks_a_commit_wins() -> None:
    with pytest.raises(InvariantViolation, match="INV-5"):
        a_voter_that_missed_a_commit_stands_for_leader(1, ["RAFT-5"])
