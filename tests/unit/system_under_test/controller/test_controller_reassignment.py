"""Tables of the controller's decisions: other replicas for existing partitions."""

import pytest

from harness.defects.requests import reassign_request
from system_under_test.config import PROFILES
from system_under_test.controller.assignment import Assignment, complete
from system_under_test.controller.reassignment import alter_reassignments
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from tests.controller_story import Story, policy_of
from tests.unit.system_under_test.controller.decisions import ELR_OFF, ELR_ON


def four(*, assignment=(1, 2, 3), min_isr=2, unclean=False, **policy) -> Story:
    """A partition among four brokers."""
    s = Story(policy_of(policy.pop("profile", ELR_ON), **policy))
    s.start(1, 2, 3, 4)
    s.topic(assignment, min_isr, unclean=unclean)
    s.marks.clear()
    return s


def parts(s: Story) -> tuple[tuple[int, ...], ...]:
    return s.p.replicas, s.p.adding_replicas, s.p.removing_replicas


def test_a_reassignment_begins_with_all_replicas_and_ends_when_the_new_one_is_in_the_isr():
    s = four()
    assert s.reassign(1, 2, 4) == ErrorCode.NONE
    assert parts(s) == ((1, 2, 4, 3), (4,), (3,))
    assert (s.p.isr, s.p.leader, s.p.leader_epoch, s.p.partition_epoch) == ((1, 2, 3), 1, 0, 1)
    assert s.propose(1, 2, 3, 4).error_code == ErrorCode.NONE
    assert parts(s) == ((1, 2, 4), (), ())
    assert (s.p.isr, s.p.leader) == ((1, 2, 4), 1)
    assert s.p.leader_epoch == 1, "a replica left"
    assert s.marks == ["reassignment-began", "reassignment-ended"]


def test_without_reas_2_the_leader_epoch_stays_when_a_replica_leaves():
    s = four(without=("REAS-2",))
    s.reassign(1, 2, 4)
    s.propose(1, 2, 3, 4)
    assert (s.p.replicas, s.p.leader_epoch) == ((1, 2, 4), 0)


def test_adding_alone_starts_no_leader_epoch():
    s = four()
    s.reassign(1, 2, 3, 4)
    assert parts(s) == ((1, 2, 3, 4), (4,), ())
    s.propose(1, 2, 3, 4)
    assert parts(s) == ((1, 2, 3, 4), (), ())
    assert s.p.leader_epoch == 0


@pytest.mark.parametrize("target", [(3, 1, 2), (2, 3, 1)])
def test_another_order_completes_at_once_and_keeps_the_leader(target):
    s = four()
    s.reassign(*target)
    assert parts(s) == (target, (), ())
    assert (s.p.leader, s.p.leader_epoch, s.p.partition_epoch) == (1, 0, 1)


def test_fewer_replicas_complete_at_once_and_move_the_leadership():
    s = four()
    s.reassign(2, 3)
    assert parts(s) == ((2, 3), (), ())
    assert (s.p.leader, s.p.isr, s.p.leader_epoch) == (2, (2, 3), 1)


def test_the_same_replicas_write_no_record():
    s = four()
    before = len(s.log)
    assert s.reassign(1, 2, 3) == ErrorCode.NONE
    assert len(s.log) == before


def test_a_leader_that_is_removed_by_its_own_proposal_learns_that_another_one_leads():
    s = four()
    s.reassign(2, 3, 4)
    response = s.propose(1, 2, 3, 4)
    assert response.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (s.p.leader, s.p.replicas, s.p.isr) == (2, (2, 3, 4), (2, 3, 4))


def test_fencing_a_replica_that_is_removed_can_complete_a_reassignment():
    s = four()
    s.fence(2)
    s.reassign(1, 3)
    assert parts(s) == ((1, 3), (), ())
    s = four(min_isr=1)
    s.fence(3)
    s.reassign(1, 3)
    assert parts(s) == ((1, 3, 2), (), (2,)), "replica 3 of the target is not in the ISR"
    s.unfence(3)
    s.propose(1, 2, 3)
    assert parts(s) == ((1, 3), (), ())


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_targets_are_refused(replicas, error):
    s = four()
    before = len(s.log)
    assert s.reassign(*replicas) == error
    assert len(s.log) == before


def test_unknown_and_repeated_partitions_are_refused_and_others_are_not():
    s = four()
    request = reassign_request(("t", 0, (2, 1, 3)), ("t", 7, (1,)), ("x", 0, (1,)))
    response = s.apply(alter_reassignments(s.image, request, s.policy))
    errors = [topic.partitions[0].error_code for topic in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [ErrorCode.NONE, unknown, unknown]
    request = reassign_request(("t", 0, (1, 2)), ("t", 0, (1, 3)))
    decision = alter_reassignments(s.image, request, s.policy)
    assert not decision.records
    assert all(
        one.partitions[0].error_code == ErrorCode.INVALID_REQUEST
        for one in decision.response.responses
    )


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((1, 2, 4), ErrorCode.NONE),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 3, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_request_can_insist_on_the_number_of_replicas(target, error):
    s = four()
    s.reassign(2, 3, 4)  # in progress; three replicas afterwards
    request = reassign_request(("t", 0, target), may_change_count=False)
    response = s.apply(alter_reassignments(s.image, request, s.policy))
    assert response.responses[0].partitions[0].error_code == error
    assert response.allow_replication_factor_change is False


def test_reassignments_in_progress_are_listed():
    s = four()
    s.create(name="u", assignment={0: (1, 2), 1: (1, 2)})
    assert s.reassignments() == []
    s.reassign(1, 2, 4)
    assert s.reassignments() == [("t", 0, (1, 2, 4, 3), (4,), (3,))]
    assert s.reassignments(("u", 0), ("x", 0), ("t", 5)) == []
    assert len(s.reassignments(("t", 0))) == 1


# --- when it completes


@pytest.mark.parametrize(
    ("waits_for", "target", "isr", "completes"),
    [
        ("added", (1, 2, 4), (1, 4), True),
        ("target", (1, 2, 4), (1, 4), False),
        ("target-if-fewer", (1, 2, 4), (1, 4), True),
        ("added", (2, 4), (1, 4), True),
        ("target", (2, 4), (1, 4), False),
        ("target-if-fewer", (2, 4), (1, 4), False),
        ("target-if-fewer", (2, 4), (1, 2, 4), True),
        ("added", (2, 4), (1, 3), False),
        ("added", (2,), (1, 3), False),
        ("added", (1, 2), (1, 3), True),
        ("target", (1, 2), (1, 3), False),
    ],
)
def test_which_replicas_a_release_waits_for(waits_for, target, isr, completes):
    policy = policy_of(ELR_OFF, reassignment_waits_for=waits_for)
    removing = tuple(sorted({1, 2, 3} - set(target)))
    begun = Assignment(
        replicas=(*target, *removing),
        adding=tuple(sorted(set(target) - {1, 2, 3})),
        removing=removing,
    )
    done = complete(begun, isr, policy.features, policy.rules)
    expected = (
        Assignment(replicas=target),
        tuple(member for member in isr if member not in removing),
    )
    assert done == (expected if completes else None)


def test_every_profile_has_the_completion_of_its_release():
    assert {name: features.reassignment_waits_for for name, features in PROFILES.items()} == {
        "kafka-3.4": "added",
        "kafka-3.6": "added",
        "kafka-3.9": "target",
        "kafka-4.0": "target",
        "kafka-4.1": "target",
        "kafka-4.2": "target",
        "kafka-4.3": "target-if-fewer",
        "kafka-4.4": "target-if-fewer",
    }


def test_without_reas_1_a_reassignment_completes_below_min_isr():
    for off, replicas in (((), (4, 2, 1, 3)), (("REAS-1",), (4, 2))):
        s = four(assignment=(3, 1, 2), without=off)
        s.fence(2)
        s.reassign(4, 2)
        s.propose(3, 1, 4)
        assert s.p.replicas == replicas
        assert set(s.p.isr) == ({4} if off else {3, 1, 4})


# --- cancelling, and a second reassignment


def test_a_cancelled_reassignment_keeps_what_would_have_been_removed():
    s = four()
    s.reassign(4, 2)
    assert parts(s) == ((4, 2, 1, 3), (4,), (1, 3))
    assert s.cancel() == ErrorCode.NONE
    assert parts(s) == ((2, 1, 3), (), ())
    assert (s.p.isr, s.p.leader, s.p.leader_epoch) == ((1, 2, 3), 1, 1)
    assert s.marks == ["reassignment-began", "reassignment-ended"]


def test_a_cancelled_reassignment_takes_added_members_from_the_isr():
    s = four()
    s.fence(2)
    s.reassign(1, 2, 4)
    s.propose(1, 3, 4)
    assert s.p.isr == (1, 3, 4)
    s.cancel()
    assert (s.p.replicas, s.p.isr) == ((1, 2, 3), (1, 3))


def test_without_a_reassignment_there_is_nothing_to_cancel():
    s = four()
    assert s.cancel() == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def only_the_added_one_is_left(**options) -> Story:
    """Broker 4 was added and is the only member of the ISR."""
    s = four(profile=ELR_OFF, min_isr=1, **options)
    s.fence(2)
    s.reassign(4, 2)
    s.propose(1, 3, 4)
    s.fence(1, 3)
    assert (s.p.isr, s.p.leader, s.p.adding_replicas) == ((4,), 4, (4,))
    return s


def test_a_cancellation_that_leaves_no_member_needs_a_topic_that_allows_unclean_elections():
    s = only_the_added_one_is_left()
    assert s.cancel() == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert s.p.adding_replicas == (4,)


def test_a_cancellation_that_leaves_no_member_is_an_unclean_election():
    s = only_the_added_one_is_left(unclean=True)
    assert s.cancel() == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no remaining replica is alive"
    s.unfence(3)
    assert s.cancel() == ErrorCode.NONE
    assert (s.p.replicas, s.p.isr, s.p.leader) == ((2, 1, 3), (3,), 3)
    assert s.p.leader_recovery_state == 1
    assert "elected-unclean" in s.marks


def test_a_second_target_is_computed_from_all_replicas_of_the_moment():
    s = four()
    s.reassign(1, 2, 4)
    assert s.reassign(1, 2, 3) == ErrorCode.NONE
    assert parts(s) == ((1, 2, 3), (), ()), "all of the target are in the ISR"


def test_a_replica_that_was_being_removed_leaves_although_a_second_target_names_it():
    """As in Kafka, where nothing new to remove leaves the old list in force."""
    s = four()
    s.reassign(1, 2, 4)
    s.reassign(1, 2, 3, 4)
    assert parts(s) == ((1, 2, 3, 4), (4,), (3,))
    s.propose(1, 2, 3, 4)
    assert parts(s) == ((1, 2, 4), (), ())


# --- the ELR


def the_added_replica_is_in_the_elr(without=()) -> Story:
    """B-34 up to the cancellation: 4 was added, joined the ISR, and left it below min ISR."""
    s = four(without=without)
    s.reassign(1, 2, 4)
    s.fence(2)
    s.propose(1, 3, 4)
    s.fence(3, 4)
    assert (s.p.isr, s.p.elr) == ((1,), (4,))
    return s


def test_a_broker_that_is_no_longer_a_replica_leaves_the_elr():
    s = the_added_replica_is_in_the_elr()
    assert s.cancel() == ErrorCode.NONE
    assert (s.p.replicas, s.p.elr) == ((1, 2, 3), ())


def test_without_reas_4_a_broker_with_an_empty_log_may_be_elected():
    s = the_added_replica_is_in_the_elr(without=("REAS-4",))
    s.cancel()
    assert s.p.elr == (4,)
    s.unfence(4)
    s.reassign(1, 2, 4)
    s.fence(1)
    assert s.p.leader == 4


def test_rules_of_reassignments_are_known():
    assert Rules(("REAS-1", "REAS-2", "REAS-4")).disabled
    with pytest.raises(ValueError, match="REAS-3"):
        Rules(("REAS-3",))
