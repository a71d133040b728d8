"""Stories of the metadata quorum: elections, replication, crashes, hand-over."""

import pytest

from system_under_test.config import KAFKA_TIMINGS
from system_under_test.raft.node import NotLeaderError, QuorumStateError
from system_under_test.raft.state import Election, Follower, Resigned
from tests.simulation.network_helpers import between
from tests.simulation.raft_story import (
    DIRECTORY,
    QUORUM_STATE,
    QuorumStory,
    leader_changes,
    worlds_closed,
)

__all__ = ["worlds_closed"]


def test_three_voters_elect_one_leader_that_every_member_follows() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    story.await_converged()
    leader_id = story.raft(leader).node_id
    for name in (*story.voters, *story.observers):
        raft = story.raft(name)
        assert (raft.epoch, raft.leader_id) == (1, leader_id)
        assert raft.is_leader == (name == leader)
        assert raft.leader_address() == f"{leader}:9093"
        assert story.member(name).leader_changes[-1] == (1, leader_id)
    assert leader_changes(story.batches_in_log("b1")) == [leader_id]
    assert story.marks.count("quorum-leader-elected") == 1


def test_a_single_voter_leads_at_once_and_commits_what_it_fsynced() -> None:
    story = QuorumStory(voters=1)
    leader = story.await_leader(within_ms=10)
    story.commit(leader, "a")
    report = story.power_off(leader)
    assert report.lost_bytes == 0
    story.start(leader)
    story.await_leader()
    assert story.values_in_log(leader) == ["a"]


def test_every_member_learns_every_batch_once_and_in_order() -> None:
    story = QuorumStory(observers=3)
    leader = story.await_leader()
    story.append(leader, "a", "b")
    story.append(leader, "c")
    story.commit(leader, "d")
    story.await_converged()
    for name in (*story.voters, *story.observers):
        member = story.member(name)
        assert member.values == ["a", "b", "c", "d"]
        assert member.committed == story.batches_in_log(name)
    # The records of one append are one batch.
    assert [len(batch.records) for batch in story.member("b1").committed] == [1, 2, 1, 1]


def test_append_returns_the_offset_that_the_record_gets() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    assert story.raft(leader).next_offset() == 1
    assert story.append(leader, "a", "b") == 2
    assert story.raft(leader).next_offset() == 3
    assert story.append(leader, "c") == 3
    story.until(lambda: story.ledger.values() == ["a", "b", "c"])
    story.await_converged()
    assert [batch.base_offset for batch in story.batches_in_log("b1")] == [0, 1, 3]


def test_only_the_leader_accepts_records() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    for name in (*story.voters, *story.observers):
        if name != leader:
            with pytest.raises(NotLeaderError):
                story.append(name, "a")
    story.run(100)
    assert story.ledger.values() == []


def test_observers_learn_of_a_commit_without_waiting_for_the_next_record() -> None:
    """Two round trips and two fsyncs, with Kafka's timings; the fetch wait is 500 ms."""
    story = QuorumStory(timings=KAFKA_TIMINGS)
    leader = story.await_leader()
    story.await_converged()
    story.append(leader, "a")
    story.until(lambda: story.member("b1").values == ["a"], within_ms=30)


def test_an_idle_quorum_is_quiet() -> None:
    story = QuorumStory(timings=KAFKA_TIMINGS)
    story.await_leader()
    story.run(1_000)
    messages, callbacks = story.world.messages, story.world.callbacks
    story.run(10_000)
    # Per second: three fetchers at 2 fetches, the leader's announcement to two voters; requests and responses.
    assert story.world.messages - messages < 200
    assert story.world.callbacks - callbacks < 600


def test_an_isolated_leader_resigns_and_later_rolls_back_what_it_could_not_commit() -> None:
    """RAFT-4: without a majority a leader resigns."""
    story = QuorumStory()
    old = story.await_leader()
    story.commit(old, "a")
    cut = story.isolate(old)
    story.append(old, "lost")
    others = [name for name in story.voters if name != old]
    new = story.await_leader(among=others)
    story.commit(new, "b")
    story.until(lambda: not story.raft(old).is_leader)
    assert isinstance(story.raft(old).state, Resigned)
    assert story.values_in_log(old) == ["a", "lost"]
    with pytest.raises(NotLeaderError):
        story.append(old, "refused")
    story.heal(cut)
    story.await_converged()
    assert story.values_in_log(old) == ["a", "b"]
    assert story.marks.count("metadata-truncated") == 1
    assert story.ledger.values() == ["a", "b"]


def test_a_leader_that_shuts_down_cleanly_passes_leadership_at_once() -> None:
    """Without EndQuorumEpoch the others would wait for their fetch timeout of 300 ms."""
    story = QuorumStory()
    old = story.await_leader()
    story.commit(old, "a")
    story.world.nodes[old].stop()
    others = [name for name in story.voters if name != old]
    story.await_leader(among=others, within_ms=50)
    story.until(lambda: story.world.nodes[old].state == "dead", within_ms=1_000)
    assert story.marks.count("quorum-resigned") == 1
    assert story.marks.count("quorum-fetch-timeout") == 1


def test_a_leader_that_resigned_on_request_never_leads_its_epoch_again() -> None:
    story = QuorumStory()
    old = story.await_leader()
    with story.world.inside(story.world.nodes[old].loop):
        story.raft(old).resign("for the story")
    assert not story.raft(old).is_leader
    assert story.raft(old).leader_id == -1
    assert story.member(old).leader_changes[-1] == (1, -1)
    story.await_leader()
    assert story.epoch(story.await_leader()) > 1
    story.await_converged()


def test_a_killed_leader_restarts_as_resigned_and_follows() -> None:
    story = QuorumStory()
    old = story.await_leader()
    story.commit(old, "a")
    # No other node may take over before it is back.
    cuts = [story.isolate(name) for name in story.voters if name != old]
    story.kill(old)
    story.start(old)
    story.run(2)
    assert isinstance(story.raft(old).state, Resigned)
    assert story.epoch(old) == 1
    assert story.marks.count("quorum-restarted-as-resigned") == 1
    story.heal(*cuts)
    story.await_leader()
    story.await_converged()
    assert story.values_in_log(old) == ["a"]


def test_an_observer_finds_the_next_leader_when_its_leader_is_gone() -> None:
    story = QuorumStory(observers=3)
    old = story.await_leader()
    story.await_converged()
    story.kill(old)
    new = story.await_leader()
    story.commit(new, "a")
    others = [name for name in story.voters if name != old]
    story.await_converged(*others, *story.observers)
    for name in story.observers:
        assert story.raft(name).state == Follower(
            epoch=story.epoch(new), leader_id=story.raft(new).node_id, has_fetched=True
        )


def test_an_observer_that_the_leader_cannot_reach_continues_after_healing() -> None:
    story = QuorumStory(observers=2)
    leader = story.await_leader()
    story.await_converged()
    cut = story.world.network.stall("cut", between("b1", leader))
    story.commit(leader, "a")
    story.run(2_000)
    assert cut.dropped_or_stalled > 0
    assert story.member("b1").values == []
    assert story.member("b2").values == ["a"]
    story.heal(cut)
    story.await_converged()
    # It never stopped following, and no other node was disrupted.
    assert story.epoch("b1") == 1


def test_five_voters_continue_without_two() -> None:
    story = QuorumStory(voters=5)
    first = story.await_leader()
    story.commit(first, "a")
    story.kill(first)
    second = story.await_leader()
    story.commit(second, "b")
    story.power_off(second)
    third = story.await_leader()
    story.commit(third, "c")
    story.start(first)
    story.start(second)
    story.await_converged()
    assert story.ledger.values() == ["a", "b", "c"]


def test_without_a_majority_nothing_is_committed_and_no_node_leads_for_long() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    others = [name for name in story.voters if name != leader]
    for name in others:
        story.kill(name)
    story.append(leader, "a")
    story.run(2_000)
    assert story.ledger.values() == []
    assert not story.raft(leader).is_leader
    story.start(others[0])
    story.await_leader()
    # Its record was on the old leader's disk, and the current leader has it or never received it.
    story.await_converged(leader, others[0], "b1")
    assert story.ledger.values() in ([], ["a"])


def test_a_vote_survives_a_power_cut() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    leader_id = story.raft(leader).node_id
    before = {name: story.election_on_disk(name) for name in story.voters}
    assert before[leader] == Election(epoch=1, leader_id=leader_id, voted_id=leader_id)
    assert [e.voted_id for e in before.values()].count(leader_id) >= 2
    assert all(election.leader_id == leader_id for election in before.values())
    for name in story.voters:
        story.power_off(name)
    for name in story.voters:
        story.start(name)
    story.run(1)
    assert {name: story.election_on_disk(name) for name in story.voters} == before


def test_a_power_cut_of_all_voters_loses_nothing_that_was_committed() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    for value in "abcde":
        story.commit(leader, value)
    for name in (*story.voters, *story.observers):
        story.power_off(name)
    for name in (*story.voters, *story.observers):
        story.start(name)
    story.await_leader()
    story.await_converged()
    assert story.ledger.values() == list("abcde")
    assert story.member("b1").values == list("abcde")


def test_an_observer_does_not_fsync_and_fetches_again_what_it_lost() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    story.commit(leader, "a", "b", "c")
    story.await_converged()
    report = story.power_off("b1")
    assert report.lost_bytes > 0
    story.start("b1")
    story.await_converged()
    assert story.member("b1").values == ["a", "b", "c"]


def test_a_voter_that_lost_its_disk_fetches_the_whole_log() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    story.commit(leader, "a", "b")
    wiped = next(name for name in story.voters if name != leader)
    story.kill(wiped)
    story.world.nodes[wiped].disk.wipe()
    story.start(wiped)
    story.await_converged()
    assert story.values_in_log(wiped) == ["a", "b"]


def test_a_damaged_quorum_state_file_stops_the_node_with_an_error_message() -> None:
    story = QuorumStory()
    story.await_leader()
    story.kill("c11")
    story.world.nodes["c11"].disk.bit_flip(QUORUM_STATE, 0)
    story.start("c11")
    with pytest.raises(QuorumStateError, match="is damaged"):
        story.run(10)


def test_a_disk_error_ends_a_voter_and_the_others_continue() -> None:
    story = QuorumStory()
    leader = story.await_leader()
    story.world.nodes[leader].disk.io_error("fsync", DIRECTORY)
    story.append(leader, "a")
    story.until(lambda: not story.world.nodes[leader].is_alive)
    new = story.await_leader()
    story.commit(new, "b")
    assert story.ledger.values()[-1] == "b"


def isolate_a_follower_for_two_seconds(profile: str) -> tuple[QuorumStory, int]:
    story = QuorumStory(profile=profile)
    leader = story.await_leader()
    epoch = story.epoch(leader)
    follower = next(name for name in story.voters if name != leader)
    cut = story.isolate(follower)
    story.run(2_000)
    story.heal(cut)
    story.await_converged()
    story.commit(story.await_leader(), "after")
    return story, story.epoch(follower) - epoch


def test_pre_vote_keeps_an_isolated_node_from_inflating_the_epoch() -> None:
    story, epochs = isolate_a_follower_for_two_seconds("kafka-4.1")
    assert epochs == 0
    assert story.marks.count("quorum-fetch-timeout") > 0


def test_without_pre_vote_an_isolated_node_disrupts_the_others_on_its_return() -> None:
    _, epochs = isolate_a_follower_for_two_seconds("kafka-3.9")
    assert epochs >= 2


def test_messages_survive_the_codec() -> None:
    story = QuorumStory(sim_wire=True)
    old = story.await_leader()
    story.commit(old, "a")
    cut = story.isolate(old)
    story.append(old, "lost")
    new = story.await_leader(among=[name for name in story.voters if name != old])
    story.commit(new, "b")
    story.run(600)
    story.heal(cut)
    story.await_converged()
    story.world.nodes[new].stop()
    story.await_leader(among=[name for name in story.voters if name != new])
    assert story.world.network.wire_checks > 100


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> tuple[str, int]:
        story = QuorumStory(seed=7)
        leader = story.await_leader()
        story.commit(leader, "a")
        story.kill(leader)
        story.commit(story.await_leader(), "b")
        return story.world.trace_hash, story.world.now

    assert history() == history()
