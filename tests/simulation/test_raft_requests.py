"""Responses of a member to valid and invalid requests: votes, fetches and resignations."""

from dataclasses import replace
from typing import Any

import pytest

from system_under_test.config import FAST_TIMINGS, NodeConfig, Voter
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_request, millis, to_millis
from system_under_test.raft import messages
from system_under_test.raft.state import LogPosition
from system_under_test.runtime import RequestContext
from tests.simulation.raft_story import QuorumStory, worlds_closed

__all__ = ["worlds_closed"]

CONFIG = NodeConfig(
    node_id=1,
    role="broker",
    address="b1:9092",
    cluster_id="story",
    voters=tuple(Voter(node_id=i, address=f"c{i}:9093") for i in (11, 12, 13)),
    timings=FAST_TIMINGS,
)
CONTEXT = RequestContext(peer="test", connection_id=10_000)


def ask(story: QuorumStory, name: str, request: Any) -> Any:
    raft = story.raft(name)
    assert raft.handles(request)
    with story.world.inside(story.world.nodes[name].loop):
        return raft.handle_request(request, CONTEXT)


def fetch(epoch: int, offset: int, last_epoch: int) -> Any:
    log = LogPosition(last_epoch=last_epoch, end_offset=offset)
    return messages.build_fetch(CONFIG, epoch=epoch, log=log, max_bytes=1 << 20)


def led_story() -> tuple[QuorumStory, str]:
    story = QuorumStory(observers=0)
    leader = story.await_leader()
    story.commit(leader, "a")
    story.await_converged()
    return story, leader


def partition_of(response: Any) -> Any:
    return response.responses[0].partitions[0]


# --- fetch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_fetch_of_another_epoch_is_refused_and_names_the_leader(
    epoch: int, error: ErrorCode
) -> None:
    story, leader = led_story()
    for name in story.voters:
        partition = partition_of(ask(story, name, fetch(epoch, 0, 0)))
        assert partition.error_code == error
        assert partition.current_leader.leader_epoch == 1
        assert partition.current_leader.leader_id == story.raft(leader).node_id


def test_a_follower_refuses_a_fetch_and_names_the_leader() -> None:
    story, leader = led_story()
    follower = next(name for name in story.voters if name != leader)
    partition = partition_of(ask(story, follower, fetch(1, 0, 0)))
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == story.raft(leader).node_id


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        # The log is [LeaderChange, a], both of epoch 1.
        (0, 0, None),
        (1, 1, None),
        (2, 1, None),
        (3, 1, (1, 2)),
        (1, 0, (0, 0)),
        (2, 7, (1, 2)),
    ],
)
def test_a_diverging_fetch_position_gets_the_point_of_divergence(
    offset: int, last_epoch: int, diverging: tuple[int, int] | None
) -> None:
    story, leader = led_story()
    partition = partition_of(ask(story, leader, fetch(1, offset, last_epoch)))
    assert partition.error_code == ErrorCode.NONE
    found = (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
    assert found == (diverging or (-1, -1))
    assert bool(partition.records) == (diverging is None and offset < 2)
    assert partition.high_watermark == 2


def test_a_fetch_at_the_log_end_is_parked_until_new_records_or_the_timeout() -> None:
    story, leader = led_story()
    # The first response on a connection has the high watermark; the second fetch has to wait.
    assert partition_of(ask(story, leader, fetch(1, 2, 1))).high_watermark == 2
    parked = ask(story, leader, fetch(1, 2, 1))
    began = story.world.now
    story.until(parked.done)
    assert (story.world.now - began) / 1e6 == to_millis(fetch(1, 2, 1).max_wait)
    assert not partition_of(parked.result()).records

    parked = ask(story, leader, fetch(1, 2, 1))
    story.append(leader, "b")
    story.until(parked.done, within_ms=FAST_TIMINGS.controller_quorum_append_linger_ms + 2)
    assert partition_of(parked.result()).records


@pytest.mark.parametrize(
    ("profile", "waits"), [("kafka-4.0-late-commits", True), ("kafka-4.1", False)]
)
def test_an_observer_hears_of_a_commit_at_once_with_kip_1166(profile: str, waits: bool) -> None:
    """RAFT-9: it has the record, and its next fetch waits; without other records only its end tells."""
    story = QuorumStory(profile=profile)
    leader = story.await_leader()
    story.commit(leader, "a")
    story.await_converged()
    (observer,) = story.observers
    offset = story.append(leader, "b")
    story.until(lambda: story.raft(observer).log_end_offset > offset)
    began = story.world.now
    story.until(lambda: story.raft(observer).high_watermark > offset)
    waited_ms = (story.world.now - began) / 1e6
    assert (waited_ms > FAST_TIMINGS.controller_quorum_fetch_wait_ms / 2) is waits


def test_a_parked_fetch_is_refused_when_the_leader_resigns() -> None:
    story, leader = led_story()
    ask(story, leader, fetch(1, 2, 1))
    parked = ask(story, leader, fetch(1, 2, 1))
    with story.world.inside(story.world.nodes[leader].loop):
        story.raft(leader).resign("for the test")
    assert partition_of(parked.result()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_with_zero_wait_time_gets_its_response_at_once() -> None:
    story, leader = led_story()
    ask(story, leader, fetch(1, 2, 1))
    response = ask(story, leader, replace(fetch(1, 2, 1), max_wait=millis(0)))
    assert not partition_of(response).records


def with_partition(request: Any, **values: Any) -> Any:
    topic = request.topics[0]
    field = topic.partitions[0]
    return replace(request, topics=(replace(topic, partitions=(replace(field, **values),)),))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(fetch(1, 0, 0), cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (with_partition(fetch(1, 0, 0), fetch_offset=-1), ErrorCode.INVALID_REQUEST),
        (with_partition(fetch(1, 0, 0), last_fetched_epoch=-1), ErrorCode.INVALID_REQUEST),
        (with_partition(fetch(1, 0, 0), current_leader_epoch=-1), ErrorCode.INVALID_REQUEST),
        (with_partition(fetch(1, 0, 0), partition=1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_malformed_fetch_is_refused_as_a_whole(request_: Any, error: ErrorCode) -> None:
    story, leader = led_story()
    assert ask(story, leader, request_).error_code == error


def test_the_quorum_does_not_serve_fetches_of_other_topics() -> None:
    story, leader = led_story()
    request = fetch(1, 0, 0)
    other = fetch_request.FetchTopic(topic_id=None, partitions=request.topics[0].partitions)
    raft = story.raft(leader)
    assert not raft.handles(replace(request, topics=(other,)))
    assert not raft.handles(replace(request, topics=(*request.topics, other)))
    assert not raft.handles(replace(request, topics=()))


# --- vote ----------------------------------------------------------------------------------------------


def vote(voter: int, epoch: int, *, pre_vote: bool = False, last_epoch: int = 1) -> Any:
    candidate = replace(CONFIG, node_id=13)
    return messages.build_vote_request(
        candidate,
        voter_id=voter,
        epoch=epoch,
        log=LogPosition(last_epoch=last_epoch, end_offset=2),
        pre_vote=pre_vote,
    )


def test_a_vote_in_an_older_epoch_is_fenced() -> None:
    story, _ = led_story()
    request = vote(11, 0, pre_vote=True, last_epoch=0)
    response = messages.read_response(ask(story, "c11", request))
    assert (response.error, response.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 1)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(vote(11, 9), cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(11, 9, last_epoch=9), ErrorCode.INVALID_REQUEST),
        (vote(11, 9, last_epoch=10, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (with_partition(vote(11, 9), last_offset=-1), ErrorCode.INVALID_REQUEST),
        (with_partition(vote(11, 9), partition_index=1), ErrorCode.INVALID_REQUEST),
        (replace(vote(11, 9), topics=()), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_malformed_vote_request_is_refused_and_changes_nothing(
    request_: Any, error: ErrorCode
) -> None:
    story, _ = led_story()
    response = messages.read_response(ask(story, "c11", request_))
    assert (response.error, response.vote_granted) == (error, False)
    assert story.epoch("c11") == 1


def test_a_vote_request_for_another_node_is_refused() -> None:
    story, _ = led_story()
    response = messages.read_response(ask(story, "c11", vote(12, 9)))
    assert (response.error, response.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_a_vote_in_a_higher_epoch_is_granted_once_and_durable_before_the_response() -> None:
    story, _ = led_story()
    response = messages.read_response(ask(story, "c11", vote(11, 9)))
    assert (response.error, response.vote_granted, response.epoch) == (ErrorCode.NONE, True, 9)
    election = story.election_on_disk("c11")
    assert (election.epoch, election.voted_id, election.leader_id) == (9, 13, -1)
    assert messages.read_response(ask(story, "c11", vote(11, 9))).vote_granted
    rival = with_partition(vote(11, 9), replica_id=12)
    assert not messages.read_response(ask(story, "c11", rival)).vote_granted
    report = story.power_off("c11")
    assert all(not file.path.endswith("quorum-state") for file in report.files)


def test_a_pre_vote_is_refused_while_the_leader_is_known_to_be_alive() -> None:
    story, _ = led_story()
    for name in story.voters:
        node_id = story.raft(name).node_id
        response = messages.read_response(ask(story, name, vote(node_id, 1, pre_vote=True)))
        assert (response.error, response.vote_granted, response.epoch) == (ErrorCode.NONE, False, 1)
    assert story.marks.count("pre-vote-rejected") == 3


def test_a_pre_vote_stores_nothing() -> None:
    story, leader = led_story()
    with story.world.inside(story.world.nodes[leader].loop):
        story.raft(leader).resign("for the test")
    before = story.election_on_disk(leader)
    node_id = story.raft(leader).node_id
    response = messages.read_response(ask(story, leader, vote(node_id, 1, pre_vote=True)))
    assert response.vote_granted
    assert story.election_on_disk(leader) == before


def test_a_broker_handles_vote_requests_by_the_same_rules() -> None:
    story = QuorumStory(observers=1)
    story.await_leader()
    story.await_converged()
    assert messages.read_response(ask(story, "b1", vote(1, 9))).vote_granted


# --- begin and end of an epoch -------------------------------------------------------------------------


def begin(voter: int, leader: int, epoch: int) -> Any:
    config = replace(CONFIG, node_id=leader, address=f"c{leader}:9093")
    return messages.build_begin_quorum_epoch(config, voter_id=voter, epoch=epoch)


def test_a_new_leaders_announcement_is_followed() -> None:
    story, _ = led_story()
    response = messages.read_response(ask(story, "c11", begin(11, 13, 9)))
    assert (response.error, response.epoch, response.leader_id) == (ErrorCode.NONE, 9, 13)
    assert (story.epoch("c11"), story.raft("c11").leader_id) == (9, 13)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (begin(11, 13, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (begin(12, 13, 9), ErrorCode.INVALID_VOTER_KEY),
        (begin(11, 99, 9), ErrorCode.INVALID_REQUEST),
        (begin(11, 13, -1), ErrorCode.INVALID_REQUEST),
        (replace(begin(11, 13, 9), cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (replace(begin(11, 13, 9), topics=()), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_impossible_announcement_is_refused(request_: Any, error: ErrorCode) -> None:
    story, _ = led_story()
    assert messages.read_response(ask(story, "c11", request_)).error == error
    assert story.epoch("c11") == 1


def test_a_second_leader_of_the_epoch_is_refused_and_reported() -> None:
    story, leader = led_story()
    leader_id = story.raft(leader).node_id
    other_id = next(story.raft(name).node_id for name in story.voters if name != leader)
    for name in story.voters:
        node_id = story.raft(name).node_id
        if node_id != other_id:
            response = messages.read_response(ask(story, name, begin(node_id, other_id, 1)))
            assert (response.error, response.leader_id) == (ErrorCode.INVALID_REQUEST, leader_id)
        assert story.raft(name).leader_id == leader_id
    assert story.marks.count("quorum-epoch-with-two-leaders") == 2


def test_the_first_successor_becomes_candidate_at_once_when_its_leader_ends_the_epoch() -> None:
    story, leader = led_story()
    leader_id = story.raft(leader).node_id
    follower = next(name for name in story.voters if name != leader)
    config = replace(CONFIG, node_id=leader_id, address=f"{leader}:9093")
    request = messages.build_end_quorum_epoch(
        config, epoch=1, successors=[story.raft(follower).node_id]
    )
    fetch_timeouts = story.marks.count("quorum-fetch-timeout")
    assert messages.read_response(ask(story, follower, request)).error == ErrorCode.NONE
    story.run(1)
    assert story.marks.count("quorum-fetch-timeout") == fetch_timeouts + 1


def test_a_member_that_is_not_ready_responds_with_an_error() -> None:
    story, _ = led_story()
    story.world.nodes["c11"].stop()
    story.run(500)
    raft = story.raft("c11")
    for request in (fetch(1, 0, 0), vote(11, 9), begin(11, 13, 9)):
        response = raft.handle_request(request, CONTEXT)
        assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE
