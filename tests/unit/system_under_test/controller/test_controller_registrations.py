"""Tables of the controller's decisions: registrations of brokers."""

from uuid import UUID

import pytest

from system_under_test.metadata.records import PartitionChangeRecord, RegisterBrokerRecord
from system_under_test.protocol.errors import ErrorCode
from tests.controller_story import SESSION_NS, Story, registration_request
from tests.unit.system_under_test.controller.decisions import ELR_OFF, ELR_ON, started


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
    """LIFE-2."""
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
    """CS-4: the marker of an earlier session proves nothing."""
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
