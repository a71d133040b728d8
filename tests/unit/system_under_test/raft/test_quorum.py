"""`Quorum` enters states along the transition table only, and makes them durable first."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from system_under_test.config import NodeConfig, Voter
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import MetadataBatch
from system_under_test.metadata.snapshot import MetadataSnapshot
from system_under_test.raft.quorum import Quorum
from system_under_test.raft.state import (
    Candidate,
    Follower,
    Leader,
    State,
    Tally,
    Unattached,
    decode_election,
    election_of,
)
from system_under_test.runtime import SilentObserver
from tests.memory_storage import MemoryStorage

VOTERS = (11, 12, 13)
QUORUM_STATE = "data/__cluster_metadata-0/quorum-state"


class Listener:
    def __init__(self) -> None:
        self.leaders: list[tuple[int, int]] = []

    def on_leader_change(self, quorum_epoch: int, leader_id: int) -> None:
        self.leaders.append((quorum_epoch, leader_id))

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        pass

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        pass

    def snapshot_image(self) -> ClusterImage | None:
        return None


class Story:
    """One voter with an empty disk, started."""

    def __init__(self) -> None:
        self.host: Any = SimpleNamespace(storage=MemoryStorage(), observer=SilentObserver())
        self.listener = Listener()
        self.stored_at_transition: list[State] = []
        self.quorum = Quorum(
            self.host,
            NodeConfig(
                node_id=11,
                role="controller",
                address="c11:9093",
                cluster_id="c",
                voters=tuple(Voter(node_id=voter, address=f"c{voter}:9093") for voter in VOTERS),
            ),
            self.listener,
            self.entered,
        )
        self.quorum.open_log()
        self.quorum.load_state()

    def entered(self, _old: State, new: State) -> None:
        assert decode_election(self.host.storage.read(QUORUM_STATE)) == election_of(new)
        self.stored_at_transition.append(new)


def test_a_legal_transition_is_stored_before_drivers_and_listener_are_notified() -> None:
    story = Story()
    follower = Follower(epoch=3, leader_id=12)
    story.quorum.transition(follower)
    assert story.quorum.state == follower
    assert story.stored_at_transition == [Unattached(epoch=0), follower]
    assert story.listener.leaders == [(3, 12)]


def test_an_unlisted_transition_is_refused_and_changes_nothing() -> None:
    story = Story()
    follower = Follower(epoch=3, leader_id=12)
    story.quorum.transition(follower)
    stored = story.host.storage.read(QUORUM_STATE)
    with pytest.raises(InvariantViolation, match="INV-12"):
        story.quorum.transition(Leader(epoch=3, voted_id=11, leader_id=11))
    assert story.quorum.state == follower
    assert story.host.storage.read(QUORUM_STATE) == stored
    assert story.listener.leaders == [(3, 12)]


def test_a_volatile_change_keeps_the_kind_of_state() -> None:
    """A tally may change without a write, but not the state that it belongs to."""
    story = Story()
    tally = Tally(voters=VOTERS, granted=frozenset({11}))
    story.quorum.transition(Candidate(epoch=1, tally=tally, voted_id=11))
    counted = Candidate(epoch=1, tally=tally.with_response(12, True), voted_id=11)
    story.quorum.remember(counted)
    assert story.quorum.state == counted
    with pytest.raises(InvariantViolation, match="INV-12"):
        story.quorum.remember(Unattached(epoch=1, voted_id=11))
