"""Tables of the controller's decisions: builder, elections, registrations, heartbeats, AlterPartition, topics."""

from uuid import UUID

import pytest

from system_under_test.config import PROFILES
from system_under_test.controller.broker_changes import fence
from system_under_test.controller.election import ElectedFrom
from system_under_test.controller.heartbeats import (
    Sessions,
    heartbeat,
    sessions_at_activation,
)
from system_under_test.controller.isr_changes import alter_partition
from system_under_test.controller.partition_change import ChangeContext, build_change
from system_under_test.controller.topics import create_topics
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import decode, encode
from system_under_test.rules import Rules
from tests.controller_story import (
    SESSION_NS,
    Story,
    alter_request,
    create_request,
    heartbeat_request,
    policy_of,
    registration_request,
)

TOPIC_ID = UUID(int=7)
ELR_ON, ELR_OFF = "kafka-4.1", "kafka-4.0"


def started(profile: str = ELR_ON, min_isr: int = 2, **kwargs) -> Story:
    s = Story(policy_of(profile, **kwargs))
    s.start(1, 2, 3)
    s.topic((1, 2, 3), min_isr)
    s.marks.clear()
    return s


# --- the change builder


def registration(**fields) -> PartitionRegistration:
    defaults = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
    }
    return PartitionRegistration(**{**defaults, **fields})


def built(
    before: PartitionRegistration,
    target_isr=None,
    *,
    alive=(1, 2, 3),
    elr_on=True,
    min_isr=2,
    unclean=False,
    unclean_replicas=(),
    without=(),
    profile=ELR_ON,
    recovery_state=None,
):
    context = ChangeContext(
        acceptable=lambda broker_id: broker_id in alive,
        min_isr=min_isr,
        elr_on=elr_on,
        features=PROFILES[profile],
        unclean_allowed=unclean,
        unclean_replicas=frozenset(unclean_replicas),
        rules=Rules(without),
    )
    return build_change(
        before, context, target_isr=target_isr, target_recovery_state=recovery_state
    )


def test_no_target_and_nothing_to_elect_writes_no_record():
    assert built(registration()) is None


def test_the_same_isr_in_another_order_writes_no_record():
    assert built(registration(), (3, 2, 1)) is None


def test_a_shrink_above_min_isr_writes_the_isr_alone():
    change = built(registration(), (1, 3))
    assert change.record == PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=(1, 3))
    assert change.elected_from is ElectedFrom.NOTHING
    assert [mark.name for mark in change.marks()] == ["isr-shrunk"]


def test_a_shrink_below_min_isr_remembers_the_removed_members():
    change = built(registration(isr=(1, 3), elr=()), (1,))
    assert change.record.eligible_leader_replicas == (3,)
    assert built(registration(isr=(1,), elr=(3,)), (1,)) is None


def test_an_isr_of_min_isr_empties_elr_and_last_known_elr():
    before = registration(isr=(1,), elr=(2, 3), last_known_elr=(1,))
    change = built(before, (1, 2))
    assert change.record.eligible_leader_replicas == ()
    assert change.record.last_known_elr == ()
    assert change.after.partition_epoch == 1


def test_without_elr_1_the_elr_outlives_an_isr_of_min_isr():
    change = built(registration(isr=(1,), elr=(2,)), (1, 3), without=("ELR-1",))
    assert change.after.elr == (2,)
    # It may never be in both.
    assert built(registration(isr=(1,), elr=(2,)), (1, 2), without=("ELR-1",)).after.elr == ()


def test_without_elr_2_no_replica_is_remembered():
    change = built(registration(isr=(1, 3)), (1,), without=("ELR-2",))
    assert change.after.elr == ()


def test_a_broker_outside_the_replicas_never_enters_the_elr():
    before = registration(replicas=(1, 2, 3), isr=(1,), elr=(4,))
    assert built(before, (), alive=(2,)).after.elr == (1,)


def test_the_elected_elr_member_becomes_the_isr_and_leaves_the_elr():
    before = registration(isr=(), leader=-1, elr=(2, 3), last_known_elr=(1,), leader_epoch=4)
    change = built(before)
    assert change.elected_from is ElectedFrom.ELR
    assert (change.after.leader, change.after.isr, change.after.elr) == (2, (2,), (3,))
    assert (change.after.leader_epoch, change.after.last_known_elr) == (5, ())
    assert change.record.leader_recovery_state is None


def test_the_elr_does_not_count_while_the_isr_has_members():
    before = registration(isr=(1,), leader=-1, elr=(2,))
    assert built(before, alive=(2, 3)) is None


def test_the_leader_stays_while_it_is_entitled():
    change = built(registration(leader=3), (2, 3))
    assert change.record.leader == LEADER_UNCHANGED


def test_elections_follow_the_assignment_not_the_isr():
    before = registration(replicas=(3, 1, 2), isr=(1, 2, 3), leader=3)
    assert built(before, (2, 1), alive=(1, 2)).after.leader == 1


def test_with_elr_off_the_last_member_stays_in_the_isr_without_leading():
    change = built(registration(isr=(1,)), (), alive=(2, 3), elr_on=False)
    assert change.record.isr is None
    assert (change.after.leader, change.after.isr) == (-1, (1,))


def test_without_pcb_1_the_last_member_is_forgotten():
    change = built(registration(isr=(1,)), (), alive=(2, 3), elr_on=False, without=("PCB-1",))
    assert (change.after.leader, change.after.isr, change.after.elr) == (-1, (), ())


def test_without_elr_3_the_last_member_stays_unless_another_replica_is_elected():
    stays = built(registration(isr=(1,), elr=(3,)), (), alive=(2,), without=("ELR-3",))
    assert (stays.after.leader, stays.after.isr, stays.after.elr) == (-1, (1,), (3,))
    elected = built(registration(isr=(1,), elr=(3,)), (), alive=(2, 3), without=("ELR-3",))
    assert (elected.after.leader, elected.after.isr, elected.after.elr) == (3, (3,), (1,))


def test_turning_elr_off_drops_the_elr_at_the_next_change():
    change = built(registration(isr=(1,), elr=(3,)), elr_on=False)
    assert change.record == PartitionChangeRecord(
        topic_id=TOPIC_ID, partition_id=0, eligible_leader_replicas=()
    )


def test_an_unclean_replica_enters_no_elr():
    before = registration(isr=(1, 3), elr=())
    change = built(before, (3,), alive=(3,), unclean_replicas=(1,))
    assert (change.after.leader, change.after.isr, change.after.elr) == (3, (3,), ())


LAST_KNOWN = {"isr": (), "leader": -1, "elr": (), "last_known_elr": (1,)}


@pytest.mark.parametrize(
    ("fields", "alive", "rules", "leader"),
    [
        (LAST_KNOWN, (1, 2), (), 1),
        (LAST_KNOWN, (2, 3), (), -1),
        (LAST_KNOWN, (2, 3), ("ELR-8",), 1),
        ({**LAST_KNOWN, "elr": (3,)}, (1, 2), (), -1),
        ({**LAST_KNOWN, "last_known_elr": (1, 2)}, (1, 2), (), -1),
        ({**LAST_KNOWN, "last_known_elr": ()}, (1, 2), (), -1),
    ],
)
def test_the_last_known_leader_leads_only_alone_alive_and_with_both_sets_empty(
    fields, alive, rules, leader
):
    change = built(registration(**fields), alive=alive, without=rules)
    assert (-1 if change is None else change.after.leader) == leader
    if change is not None:
        assert change.elected_from is ElectedFrom.LAST_KNOWN_LEADER
        assert change.after.leader_recovery_state == 1
        assert (change.after.isr, change.after.last_known_elr) == ((1,), ())


def test_no_leader_is_not_remembered_as_last_known_leader():
    # ELR was off when the leader went; then it was switched on (B-47).
    before = registration(isr=(1,), leader=-1)
    change = built(before, (), alive=(2,), unclean_replicas=(1,))
    assert change.after.isr == ()
    assert change.after.last_known_elr == ()


def test_the_last_known_leader_comes_before_an_unclean_election():
    assert built(registration(**LAST_KNOWN), unclean=True).after.leader == 1
    change = built(registration(**LAST_KNOWN), alive=(2, 3), unclean=True)
    assert change.elected_from is ElectedFrom.UNCLEAN
    assert (change.after.leader, change.after.isr, change.after.last_known_elr) == (2, (2,), ())


def test_a_flagged_election_of_a_recovering_partition_writes_no_recovery_state():
    before = registration(**LAST_KNOWN, leader_recovery_state=1)
    assert built(before).record.leader_recovery_state is None


def test_without_el_1_any_live_replica_leads_unflagged():
    before = registration(isr=(1,), elr=(3,))
    change = built(before, (), alive=(2, 3), without=("EL-1",))
    assert change.elected_from is ElectedFrom.ANY_REPLICA
    assert (change.after.leader, change.after.isr, change.after.elr) == (2, (2,), ())
    assert change.after.leader_recovery_state == 0


def test_old_metadata_versions_raise_the_leader_epoch_on_a_shrink_only():
    options = {"elr_on": False, "profile": "kafka-3.4"}
    shrunk = built(registration(), (1, 2), **options)
    assert (shrunk.after.leader, shrunk.after.leader_epoch) == (1, 1)
    grown = built(registration(isr=(1,)), (1, 2), **options)
    assert grown.after.leader_epoch == 0
    swapped = built(registration(isr=(1, 2)), (1, 3), **options)
    assert swapped.after.leader_epoch == 1


def test_recovery_ends_with_the_proposal_that_requests_it():
    before = registration(isr=(1,), leader_recovery_state=1)
    change = built(before, (1,), recovery_state=0)
    assert change.after.leader_recovery_state == 0
    assert change.after.leader_epoch == 0


# --- registrations


def refused(s: Story, **fields) -> int:
    before = len(s.log)
    error = s.send_registration(registration_request(9, **fields)).error_code
    assert len(s.log) == before
    return error


RESERVED = UUID(int=2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (None,)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (RESERVED,)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (UUID(int=5000),) * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (UUID(int=1001),)}, ErrorCode.INVALID_REGISTRATION),
        (
            {"features": (("eligible.leader.replicas.version", 0, 0),)},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_malformed_registrations_are_refused(fields, error):
    assert refused(started(), **fields) == error


def test_a_broker_that_supports_the_finalized_features_may_register():
    features = (("eligible.leader.replicas.version", 0, 1), ("unknown.feature", 0, 3))
    s = started()
    assert s.send_registration(registration_request(9, features=features)).error_code == 0


def test_the_broker_epoch_is_the_next_offset_even_when_clean_up_precedes_the_record():
    s = started()
    s.now_ns += SESSION_NS + SESSION_NS
    next_offset = len(s.log)
    response = s.register(2)
    assert response.broker_epoch == next_offset
    assert s.image.brokers[2].broker_epoch == next_offset
    assert s.image.brokers[2].register_record_offset == next_offset + 1
    assert s.image.brokers[2].address == "b2:9092"


def test_a_second_incarnation_is_refused_while_the_first_has_a_session():
    s = started()
    assert s.register(1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert s.marks == ["registration-refused-duplicate"]
    s.now_ns += SESSION_NS - 3 * 10**6
    assert s.register(1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    s.now_ns += 4 * 10**6
    assert s.register(1).error_code == 0


def test_a_fenced_broker_may_be_replaced_at_once():
    s = started()
    s.fence(1)
    assert s.register(1).error_code == 0


def test_without_reg_1_a_second_incarnation_replaces_the_first():
    assert started(without=("REG-1",)).register(1).error_code == 0


def test_the_same_incarnation_keeps_epoch_and_flags():
    s = started()
    before = s.image.brokers[1]
    response = s.send_registration(registration_request(1, incarnation=1, port=9999))
    after = s.image.brokers[1]
    assert response.broker_epoch == before.broker_epoch
    assert (after.broker_epoch, after.fenced, after.address) == (
        before.broker_epoch,
        False,
        "b1:9999",
    )
    assert s.p.leader == 1
    assert s.p.partition_epoch == 0


def test_registration_of_a_broker_whose_session_expired_unnoticed_cleans_up_first():
    # REG-4: the fencing event did not run; the new incarnation must not lead in the old epoch (KAFKA-18106).
    for profile in (ELR_OFF, ELR_ON):
        s = started(profile)
        s.now_ns += 2 * SESSION_NS
        s.register(1)
        assert isinstance(s.log[-1], RegisterBrokerRecord)
        assert isinstance(s.log[-2], PartitionChangeRecord)
        assert (s.p.leader, s.p.isr, s.p.leader_epoch) == (2, (2, 3), 1)


@pytest.mark.parametrize("profile", ["kafka-3.6", "kafka-3.9"])
def test_old_profiles_leave_the_restarted_broker_in_the_isr(profile):
    s = started(profile)
    s.now_ns += 2 * SESSION_NS
    s.restart(1)
    assert (s.p.leader, s.p.isr, s.p.leader_epoch) == (1, (1, 2, 3), 0)


def test_without_reg_4_the_same_hole_is_open_on_4_0():
    s = started(ELR_OFF, without=("REG-4",))
    s.now_ns += 2 * SESSION_NS
    s.restart(1)
    assert (s.p.leader, s.p.leader_epoch) == (1, 0)


def lone_elr(s: Story) -> Story:
    """ISR [], ELR {1, 3}, last-known leader 1; no broker is back yet."""
    s.fence(2, 3, 1)
    assert set(s.p.elr) == {1, 3}
    return s


def first_registration(s: Story, broker_id: int) -> RegisterBrokerRecord:
    return next(
        record
        for record in s.log
        if isinstance(record, RegisterBrokerRecord) and record.broker_id == broker_id
    )


@pytest.mark.parametrize(
    ("kwargs", "previous_epoch", "elr"),
    [
        ({}, "own", {1, 3}),
        ({}, -1, {3}),
        ({}, 0, {3}),
        ({"without": ("REG-2",)}, 0, {1, 3}),
        ({"without": ("REG-2",)}, -1, {3}),
        ({"without": ("REG-3",)}, -1, {1, 3}),
        ({"without": ("ELR-4",)}, -1, {1, 3}),
        ({"shutdown_detection": "always_unclean"}, "own", {3}),
        ({"shutdown_detection": "none"}, -1, {1, 3}),
    ],
)
def test_only_proof_of_a_clean_shutdown_keeps_the_elr_membership(kwargs, previous_epoch, elr):
    s = lone_elr(started(**kwargs))
    if previous_epoch == "own":
        previous_epoch = s.image.brokers[1].broker_epoch
    s.register(1, previous_epoch=previous_epoch)
    assert set(s.p.elr) == elr
    proved = previous_epoch == first_registration(s, 1).broker_epoch
    assert ("clean-registration" in s.marks) is proved
    assert ("unclean-registration" in s.marks) is not proved


def test_an_unclean_registration_while_still_in_the_isr_masks_the_missing_elr_4():
    s = started(without=("ELR-4",))
    s.fence(2)
    s.now_ns += 2 * SESSION_NS
    s.register(3)
    assert (s.p.isr, s.p.elr) == ((1,), ())


# --- heartbeats


FENCED, UNFENCED, STOPPING = "fenced", "unfenced", "stopping"


def in_state(state: str, leads: bool) -> Story:
    s = Story(policy_of(ELR_ON))
    s.start(1, 2, 3)
    s.topic((2, 3) if not leads else (1, 2, 3), 1)
    if state == FENCED:
        s.fence(1)
    if state == STOPPING:
        # A broker that leads nothing may stop at once; so it leads something until it stops.
        s.create(name="u", assignment={0: (1, 2)})
        s.beat(1, want_stop=True)
        assert s.image.brokers[1].in_controlled_shutdown
    return s


@pytest.mark.parametrize(
    ("state", "leads", "wants", "behind", "is_fenced", "should_stop"),
    [
        (FENCED, False, {"want_stop": True}, False, True, True),
        (FENCED, False, {}, False, False, False),
        (FENCED, False, {}, True, True, False),
        (FENCED, False, {"want_fence": True}, False, True, False),
        (UNFENCED, True, {"want_fence": True}, False, True, False),
        (UNFENCED, True, {"want_fence": True, "want_stop": True}, False, True, True),
        (UNFENCED, True, {"want_stop": True}, False, False, False),
        (UNFENCED, False, {"want_stop": True}, False, True, True),
        (UNFENCED, True, {}, True, False, False),
    ],
)
def test_the_heartbeat_table(state, leads, wants, behind, is_fenced, should_stop):
    s = in_state(state, leads)
    response = s.beat(1, offset=0 if behind else None, **wants)
    assert (response.is_fenced, response.should_shut_down) == (is_fenced, should_stop)
    assert response.is_caught_up is not behind
    assert s.image.brokers[1].fenced is is_fenced
    if is_fenced:
        assert not s.image.partitions_with_in_isr(1)
        assert not s.image.leads_any(1)


def test_a_stopping_broker_waits_until_all_active_brokers_know_the_new_leaders():
    s = in_state(STOPPING, leads=False)
    assert not s.image.leads_any(1)
    assert s.image.partition("u", 0).leader == 2
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(2)
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(3)
    response = s.beat(1, want_stop=True)
    assert response.should_shut_down
    assert response.is_fenced


def test_a_stopping_broker_does_not_wait_for_fenced_ones():
    s = in_state(STOPPING, leads=False)
    s.fence(3)
    s.beat(2)
    assert s.beat(1, want_stop=True).should_shut_down


def test_a_new_controller_does_not_release_a_stopping_broker_on_its_predecessors_decision():
    s = in_state(STOPPING, leads=False)
    s.sessions = sessions_at_activation(s.image, s.now_ns, s.policy)
    s.beat(2)
    s.beat(3)
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(2)
    s.beat(3)
    assert s.beat(1, want_stop=True).should_shut_down


@pytest.mark.parametrize(("broker_id", "epoch_shift"), [(1, 1), (1, -1), (9, 0)])
def test_a_heartbeat_of_another_epoch_is_refused_and_refreshes_nothing(broker_id, epoch_shift):
    s = started()
    epoch = s.image.brokers[1].broker_epoch + epoch_shift
    before = s.sessions.get(1).last_contact_ns
    outcome = heartbeat(
        s.image, heartbeat_request(broker_id, epoch, 5), s.sessions, 10**12, s.policy
    )
    assert outcome.decision.response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert outcome.decision.records == ()
    assert s.sessions.get(1).last_contact_ns == before


def test_unfencing_never_changes_the_epoch_and_enters_the_isr_only_by_election():
    s = started()
    epoch = s.image.brokers[2].broker_epoch
    s.fence(2)
    s.unfence(2)
    assert s.image.brokers[2].broker_epoch == epoch
    assert s.p.isr == (1, 3)


def test_without_fence_1_a_returning_broker_is_not_elected():
    s = started(without=("FENCE-1",))
    s.fence(2, 3, 1)
    s.unfence(3)
    assert s.p.leader == -1


def test_without_fence_2_a_dead_leader_keeps_leading():
    s = started(without=("FENCE-2",))
    s.fence(1)
    assert (s.p.leader, s.p.isr) == (1, (1, 2, 3))


def test_an_expired_session_is_refreshed_by_a_late_heartbeat():
    s = started()
    s.now_ns += 2 * SESSION_NS
    assert s.sessions.expired(s.image, s.now_ns) == [1, 2, 3]
    s.beat(2)
    assert s.sessions.expired(s.image, s.now_ns) == [1, 3]


def test_sessions_expire_in_the_order_of_last_contact_then_of_ids():
    s = started()
    s.beat(1)
    assert s.sessions.expired(s.image, s.now_ns + SESSION_NS) == [2, 3]
    assert s.sessions.stalest(s.image) == (s.sessions.get(2).last_contact_ns + SESSION_NS, 2)
    sessions = sessions_at_activation(s.image, 50, s.policy)
    assert sessions.expired(s.image, 50 + SESSION_NS) == []
    assert sessions.expired(s.image, 51 + SESSION_NS) == [1, 2, 3]


def test_without_fence_4_a_new_controller_grants_no_new_sessions():
    s = started(without=("FENCE-4",))
    sessions = sessions_at_activation(s.image, s.now_ns, s.policy)
    assert sessions.expired(s.image, s.now_ns) == [1, 2, 3]


def test_fenced_brokers_have_no_session_to_expire():
    s = started()
    s.fence(1)
    assert s.sessions.expired(s.image, s.now_ns + 2 * SESSION_NS) == [2, 3]
    assert Sessions(SESSION_NS).stalest(s.image) is None


# --- AlterPartition


def answer_of(s: Story, request) -> int:
    decision = alter_partition(s.image, request, s.policy)
    if decision.response.error_code:
        return decision.response.error_code
    response = decision.response.topics[0].partitions[0]
    assert bool(response.error_code) == (not decision.records)
    return response.error_code


def proposal(s: Story, sender: int = 1, **fields):
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in s.image.brokers.items()}
    defaults = {
        "leader_epoch": s.p.leader_epoch,
        "partition_epoch": s.p.partition_epoch,
        "isr": ((1, epochs[1]), (3, epochs[3])),
    }
    sender_epoch = fields.pop("sender_epoch", epochs[sender])
    topic_id = fields.pop("topic_id", s.p.topic_id)
    return alter_request(sender, sender_epoch, topic_id, **{**defaults, **fields})


def middle(**kwargs) -> Story:
    """A partition with leader epoch 1 and partition epoch 2, led by 1, ISR [1, 3]."""
    s = started(kwargs.pop("profile", ELR_OFF), **kwargs)
    s.fence(1)
    s.unfence(1)
    s.propose(2, 3, 1)
    s.fence(2)
    s.unfence(2)
    assert (s.p.leader, s.p.leader_epoch, s.p.partition_epoch) == (1, 2, 3)
    s.propose(1, 3, 2)
    return s


STALE = 10**6


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"isr": ((1, -1), (3, -1))}, ErrorCode.NONE),
        ({"sender_epoch": STALE}, ErrorCode.STALE_BROKER_EPOCH),
        ({"topic_id": UUID(int=99)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 3}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 3}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((1, -1), (1, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (4, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((3, -1), (2, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1, "isr": ((1, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 2, "isr": ((1, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (3, STALE))}, ErrorCode.INELIGIBLE_REPLICA),
        # The order of the table: the earlier row wins.
        ({"sender_epoch": STALE, "partition": 5}, ErrorCode.STALE_BROKER_EPOCH),
        ({"leader_epoch": 3, "sender": 3}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1, "partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1, "partition_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 3, "partition_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 3, "isr": ()}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((1, -1), (4, STALE))}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_alter_partition_table(fields, error):
    s = middle()
    assert answer_of(s, proposal(s, **fields)) == error


@pytest.mark.parametrize("how", ["fenced", "stopping", "unregistered"])
def test_fenced_stopping_or_unregistered_replicas_are_ineligible(how):
    s = middle()
    s.propose(1, 3)
    if how == "fenced":
        s.fence(2)
    elif how == "stopping":
        s.create(name="u", assignment={0: (2, 3)})
        s.beat(2, want_stop=True)
        assert not s.image.brokers[2].fenced
    else:
        s.unregister(2)
    request = proposal(s, isr=((1, -1), (3, -1), (2, -1)))
    assert answer_of(s, request) == ErrorCode.INELIGIBLE_REPLICA
    off = middle(without=("APC-3",))
    off.propose(1, 3)
    off.fence(2)
    assert answer_of(off, proposal(off, isr=((1, -1), (3, -1), (2, -1)))) == 0


def test_before_kip_903_the_broker_epoch_of_a_member_is_not_checked_but_its_liveness_is():
    s = middle(
        profile="kafka-3.4", isr_broker_epoch_check=False, bump_leader_epoch_on_isr_shrink=False
    )
    assert answer_of(s, proposal(s, isr=((1, -1), (3, STALE)))) == 0
    s.propose(1, 3)
    s.fence(2)
    request = proposal(s, isr=((1, -1), (3, -1), (2, STALE)))
    assert answer_of(s, request) == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("APC-1", {"sender_epoch": STALE}),
        ("APC-2", {"partition_epoch": 3}),
        ("APC-2", {"partition_epoch": 5}),
        ("APC-3", {"isr": ((1, -1), (3, STALE))}),
    ],
)
def test_without_its_rule_a_request_is_accepted(rule, fields):
    s = middle(without=(rule,))
    assert answer_of(s, proposal(s, **fields)) == 0


def test_an_accepted_change_returns_the_new_registration():
    s = middle()
    response = s.propose(1, 3)
    assert (response.leader_id, response.leader_epoch, response.partition_epoch) == (1, 2, 5)
    assert response.isr == (1, 3)


def test_a_proposal_that_changes_nothing_succeeds_without_a_record():
    s = middle()
    before = len(s.log)
    response = s.propose(2, 1, 3)
    assert (response.error_code, response.partition_epoch) == (0, 4)
    assert response.isr == s.p.isr
    assert len(s.log) == before


def test_one_request_cannot_change_a_partition_twice():
    s = middle()
    request = proposal(s)
    topic = request.topics[0]
    twice = type(request)(broker_id=1, broker_epoch=request.broker_epoch, topics=(topic, topic))
    decision = alter_partition(s.image, twice, s.policy)
    errors = [topic.partitions[0].error_code for topic in decision.response.topics]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1


def test_responses_survive_the_codec():
    s = middle()
    responses = [
        alter_partition(s.image, proposal(s), s.policy).response,
        alter_partition(s.image, proposal(s, leader_epoch=1), s.policy).response,
        s.register(2),
        s.beat(1),
        s.create(name="codec", count=2, factor=3),
    ]
    for response in responses[:-1]:
        assert decode(type(response), encode(response)) == response
    request = create_request({"name": "new", "count": 1, "factor": 1}, {"name": "t"})
    response = create_topics(s.image, request, s.new_topic_id, s.policy).response
    assert decode(type(response), encode(response)) == response


# --- topics


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "u", "count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "u", "count": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "u", "factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "u", "factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "u", "assignment": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {1: (1, 2)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 9)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 2), 1: (3,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 2)}, "factor": 2}, ErrorCode.INVALID_REQUEST),
        ({"name": "u", "configs": {"min.insync.replicas": "0"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "u", "configs": {"min.insync.replicas": "two"}}, ErrorCode.INVALID_CONFIG),
        (
            {"name": "u", "configs": {"unclean.leader.election.enable": "1"}},
            ErrorCode.INVALID_CONFIG,
        ),
        ({"name": "u", "configs": {"retention.ms": "1"}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_refused_with_a_message(topic, error):
    s = started()
    before = len(s.log)
    result = s.create(**topic)
    assert result.error_code == error
    assert result.error_message
    assert len(s.log) == before


def test_names_that_differ_only_in_dots_and_underscores_are_refused():
    s = started()
    assert s.create(name="a.b_c").error_code == ErrorCode.NONE
    assert s.create(name="a_b.c").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert s.create(name="a-b_c").error_code == ErrorCode.NONE


def test_the_first_isr_is_the_active_part_of_the_assignment_in_its_order():
    s = started()
    s.fence(3)
    s.create(name="u", assignment={0: (3, 2, 1), 1: (2, 1, 3)})
    first, second = s.image.partition("u", 0), s.image.partition("u", 1)
    assert (first.isr, first.leader, first.replicas) == ((2, 1), 2, (3, 2, 1))
    assert (second.isr, second.leader) == ((2, 1), 2)
    assert (first.leader_epoch, first.partition_epoch, first.elr) == (0, 0, ())
    s.fence(1, 2)
    result = s.create(name="v", assignment={0: (1, 2, 3)})
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert s.create(name="v", factor=1).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_round_robin_spreads_leaders_and_uses_fenced_brokers_last():
    s = started()
    result = s.create(name="u", count=3, factor=2)
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    replicas = [s.image.partition("u", index).replicas for index in range(3)]
    assert replicas == [(2, 3), (3, 1), (1, 2)]
    s.fence(1)
    s.create(name="v", count=2, factor=3)
    assert [s.image.partition("v", index).replicas for index in range(2)] == [(2, 3, 1), (3, 2, 1)]


def test_a_topics_configuration_is_in_the_image_before_its_partitions():
    s = started()
    s.create(name="u", factor=3, configs={"min.insync.replicas": "3"})
    assert s.image.min_insync_replicas("u", 1) == 3
    kinds = [type(record).__name__ for record in s.log[-3:]]
    assert kinds == ["ConfigRecord", "TopicRecord", "PartitionRecord"]


def test_topics_of_one_request_succeed_or_fail_alone():
    s = started()
    request = create_request(
        {"name": "a", "factor": 1}, {"name": "b"}, {"name": "b"}, {"name": "t"}
    )
    decision = create_topics(s.image, request, s.new_topic_id, s.policy)
    assert [result.error_code for result in decision.response.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]
    assert len(decision.records) == 2


def test_validate_only_responds_and_writes_nothing():
    s = started()
    request = create_request({"name": "a", "factor": 1}, validate_only=True)
    decision = create_topics(s.image, request, s.new_topic_id, s.policy)
    assert decision.response.topics[0].error_code == 0
    assert decision.records == ()


# --- the checks


BAD_CHANGES = [
    ({"isr": (1, 4)}, "INV-7"),
    ({"isr": (1, 1)}, "INV-7"),
    ({"isr": (2, 3)}, "INV-7"),
    ({"leader": 2, "isr": (1, 3)}, "INV-7"),
    ({"isr": (1,), "eligible_leader_replicas": (1, 2)}, "INV-7"),
    ({"isr": (1,), "eligible_leader_replicas": (4,)}, "INV-7"),
    ({"isr": (1, 2), "eligible_leader_replicas": (3,)}, "INV-7"),
]


@pytest.mark.parametrize(("fields", "invariant"), BAD_CHANGES)
def test_a_record_that_breaks_the_shape_of_a_partition_ends_the_run(fields, invariant):
    s = started()
    with pytest.raises(InvariantViolation, match=invariant):
        s.write(PartitionChangeRecord(topic_id=s.p.topic_id, partition_id=0, **fields))


def test_a_fenced_broker_in_an_isr_ends_the_run_unless_the_profile_allows_it():
    def fence_without_cleaning(s: Story) -> None:
        epoch = s.image.brokers[2].broker_epoch
        s.write(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=True))

    for profile in (ELR_ON, ELR_OFF):
        with pytest.raises(InvariantViolation, match="INV-7"):
            fence_without_cleaning(started(profile))
    fence_without_cleaning(started("kafka-3.9"))
    fence_without_cleaning(started(ELR_ON, without=("FENCE-2",)))


def test_with_elr_off_a_fenced_last_member_may_stay_but_not_lead():
    s = started(ELR_OFF)
    s.propose(1)
    with pytest.raises(InvariantViolation, match="INV-7"):
        s.write(
            BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=s.image.brokers[1].broker_epoch, fenced=True
            )
        )


def test_a_broker_epoch_that_goes_back_ends_the_run():
    s = started()
    s.fence(1)
    older = RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=5), broker_epoch=0, address="b1:9092"
    )
    with pytest.raises(InvariantViolation, match="INV-8"):
        s.write(older)


def test_fencing_two_brokers_from_one_state_breaks_inv_7_and_fence_3_prevents_it():
    s = started()
    decisions = [fence(s.image, s.policy, broker_id) for broker_id in (1, 2)]
    records = [record for decision in decisions for record in decision.records]
    with pytest.raises(InvariantViolation, match="INV-7"):
        s.write(*records)
