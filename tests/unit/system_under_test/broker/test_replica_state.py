"""Which states of a replica may follow which: every pair, and the paths that a partition takes."""

from itertools import product

import pytest

from system_under_test.broker.replica_state import (
    REPORTED_ROLES,
    TRANSITIONS,
    ReplicaState,
)
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol.errors import ErrorCode
from tests.unit.system_under_test.broker.replica_fakes import Broker

UNLOADED, FOLLOWER, LEADER = ReplicaState.UNLOADED, ReplicaState.FOLLOWER, ReplicaState.LEADER
OFFLINE, REMOVED = ReplicaState.OFFLINE, ReplicaState.REMOVED

LEGAL = {
    (UNLOADED, FOLLOWER),
    (UNLOADED, LEADER),
    (UNLOADED, OFFLINE),
    (UNLOADED, REMOVED),
    (FOLLOWER, FOLLOWER),
    (FOLLOWER, LEADER),
    (FOLLOWER, OFFLINE),
    (FOLLOWER, REMOVED),
    (LEADER, LEADER),
    (LEADER, FOLLOWER),
    (LEADER, OFFLINE),
    (LEADER, REMOVED),
    (OFFLINE, REMOVED),
}
PAIRS = list(product(ReplicaState, repeat=2))


def name_of(pair):
    return f"{pair[0].value}-{pair[1].value}"


def replica_in(state):
    """Returns the replica of a broker, brought into a state on a legal path."""
    replica = Broker().follow(2).replica
    replica.state = UNLOADED
    if state in (OFFLINE, LEADER):
        replica.become(LEADER)
    if state is not UNLOADED and state is not LEADER:
        replica.become(state)
    return replica


def test_the_table_has_every_state():
    assert set(TRANSITIONS) == set(REPORTED_ROLES) == set(ReplicaState)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p in LEGAL], ids=name_of)
def test_a_listed_transition_is_accepted(pair):
    before, after = pair
    replica = replica_in(before)
    assert replica.state is before
    replica.become(after)
    assert replica.state is after


@pytest.mark.parametrize("pair", [p for p in PAIRS if p not in LEGAL], ids=name_of)
def test_any_other_transition_is_refused_and_changes_nothing(pair):
    before, after = pair
    replica = replica_in(before)
    log = replica.log
    with pytest.raises(InvariantViolation) as refused:
        replica.become(after)
    assert refused.value.invariant_id == "INV-12"
    assert (refused.value.context["old"], refused.value.context["new"]) == (before, after)
    assert replica.state is before
    assert replica.log is log


def test_removed_is_a_final_state():
    assert TRANSITIONS[REMOVED] == frozenset()


def test_a_partition_starts_without_a_log_and_takes_the_role_of_its_registration():
    broker = Broker()
    assert broker.follow(2).replica.state is FOLLOWER
    assert broker.lead().replica.state is LEADER
    assert broker.lead().replica.state is LEADER
    assert broker.follow(3).replica.state is FOLLOWER


def test_only_a_leader_has_leader_state():
    broker = Broker()
    assert broker.follow(2).leadership is None
    first = broker.lead().leadership
    assert first is not None
    # The next leader epoch of the same broker continues what is known of the followers.
    assert broker.lead().leadership is first
    assert broker.follow(2).leadership is None
    assert broker.lead().leadership not in (None, first)


def test_a_failed_disk_ends_the_leadership_and_closes_the_log():
    broker = Broker()
    partition = broker.lead()
    broker.manager.context.on_disk_error("t", 0, OSError(5, "gone"))
    assert partition.replica.state is OFFLINE
    assert (partition.leadership, partition.log) == (None, None)
    assert broker.observer.states[-1]["role"] == "offline"
    # A second request that finds the disk broken changes nothing.
    broker.manager.context.on_disk_error("t", 0, OSError(5, "gone"))
    assert partition.replica.state is OFFLINE
    assert broker.marks.count("partition-offline") == 1
    assert len(broker.storage_failures) == 2


def test_a_removed_partition_cannot_come_back():
    broker = Broker()
    partition = broker.lead()
    partition.remove(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert partition.replica.state is REMOVED
    with pytest.raises(InvariantViolation):
        partition.take_offline()
