"""What the checks of the metadata refuse."""

from uuid import UUID

import pytest

from system_under_test.controller.broker_changes import fence
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tests.controller_story import Story
from tests.unit.system_under_test.controller.decisions import ELR_OFF, ELR_ON, started

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
