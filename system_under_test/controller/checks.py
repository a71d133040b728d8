"""Checks INV-7 and INV-8 after every record that the active controller writes.

Some parts of INV-7 hold only because of a rule. In a profile that lacks the rule (Kafka 3.9 registers brokers
without cleaning ISRs), or with the rule switched off by a defect, that part does not hold and is not checked:
the run must continue until the clients see the consequence. All other parts are checked in every profile.
"""

from system_under_test.controller.policy import Policy
from system_under_test.invariants import check_invariant
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

RULES_OF_ACTIVE_ISR = ("APC-3", "EL-1", "ELR-3", "ELR-8", "FENCE-2", "FENCE-3", "REG-4")
"""Rules without which a fenced or stopping broker can be in an ISR. None of them is applied here."""
RULES_OF_LEADER_IN_ISR = ("FENCE-3",)
"""Rules without which a leader can be outside the ISR."""
RULES_OF_ASSIGNED_ELR = ("REAS-4",)
"""Rules without which the ELR can name a broker that is not a replica."""
RULES_OF_EMPTY_ELR = ("ELR-1",)
"""Rules without which an ISR of min ISR members can coexist with an ELR."""


class MetadataChecks:
    """Replays records into an image and checks the result. Mutates only that image."""

    def __init__(self, policy: Policy) -> None:
        rules, features = policy.rules, policy.features
        self._policy = policy
        self._isr_is_active = (
            all(map(rules, RULES_OF_ACTIVE_ISR))
            and features.shutdown_detection == "epoch_match"
            and features.last_known_leader_must_be_alive
        )
        self._leader_is_in_isr = all(map(rules, RULES_OF_LEADER_IN_ISR))
        self._elr_is_assigned = all(map(rules, RULES_OF_ASSIGNED_ELR))
        self._elr_is_empty_at_min_isr = all(map(rules, RULES_OF_EMPTY_ELR))

    def replay(self, image: ClusterImage, offset: int, record: MetadataRecord) -> None:
        """Replays one record.

        Raises:
            InvariantViolation: INV-7 or INV-8 does not hold afterwards.
        """
        if isinstance(record, PartitionChangeRecord):
            key = (record.topic_id, record.partition_id)
            before = image.partitions.get(key)
            image.replay(offset, record)
            if before is not None:
                self._check_epochs(before, image.partitions[key])
            self._check_shape(image, image.partitions[key])
        elif isinstance(record, PartitionRecord):
            image.replay(offset, record)
            self._check_shape(image, image.partitions[(record.topic_id, record.partition_id)])
        elif isinstance(record, RegisterBrokerRecord):
            known = image.brokers.get(record.broker_id)
            registered_epoch = -1 if known is None else known.broker_epoch
            image.replay(offset, record)
            check_invariant(
                record.broker_epoch >= registered_epoch,
                "INV-8",
                "a broker epoch never decreases",
                broker_id=record.broker_id,
                before=registered_epoch,
                after=record.broker_epoch,
            )
            self._check_memberships(image, record.broker_id)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            image.replay(offset, record)
            self._check_memberships(image, record.broker_id)
        else:
            image.replay(offset, record)

    def _check_epochs(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        where = {"topic": after.topic, "partition": after.partition}
        check_invariant(
            after.partition_epoch > before.partition_epoch,
            "INV-8",
            "every change of a partition raises its partition epoch",
            **where,
            before=before.partition_epoch,
            after=after.partition_epoch,
        )
        check_invariant(
            after.leader_epoch >= before.leader_epoch,
            "INV-8",
            "a leader epoch never decreases",
            **where,
            before=before.leader_epoch,
            after=after.leader_epoch,
        )
        check_invariant(
            after.leader == before.leader or after.leader_epoch > before.leader_epoch,
            "INV-8",
            "a leader epoch has at most one leader",
            **where,
            leader_epoch=after.leader_epoch,
            before=before.leader,
            after=after.leader,
        )

    def _check_memberships(self, image: ClusterImage, broker_id: int) -> None:
        for registration in image.partitions_with_in_isr(broker_id):
            self._check_shape(image, registration)

    def _check_shape(self, image: ClusterImage, registration: PartitionRegistration) -> None:
        isr, elr = set(registration.isr), set(registration.elr)
        replicas = set(registration.replicas)
        context = {
            "topic": registration.topic,
            "partition": registration.partition,
            "replicas": registration.replicas,
            "isr": registration.isr,
            "elr": registration.elr,
            "leader": registration.leader,
        }
        check_invariant(isr <= replicas, "INV-7", "the ISR is a subset of the replicas", **context)
        if self._elr_is_assigned:
            check_invariant(
                elr <= replicas, "INV-7", "the ELR is a subset of the replicas", **context
            )
        check_invariant(not isr & elr, "INV-7", "ISR and ELR are disjoint", **context)
        check_invariant(
            len(isr) == len(registration.isr), "INV-7", "the ISR has no duplicates", **context
        )
        if self._elr_is_empty_at_min_isr:
            check_invariant(
                not elr or len(isr) < self._policy.min_isr(image, registration),
                "INV-7",
                "an ISR of min ISR members leaves the ELR empty",
                **context,
            )
        if self._leader_is_in_isr:
            check_invariant(
                registration.leader == NO_LEADER or registration.leader in isr,
                "INV-7",
                "the leader is in the ISR",
                **context,
            )
        if self._isr_is_active:
            self._check_liveness(image, registration, context)

    def _check_liveness(
        self, image: ClusterImage, registration: PartitionRegistration, context: dict[str, object]
    ) -> None:
        inactive = [member for member in registration.isr if not image.is_active(member)]
        # With ELR off the last member stays even when it is fenced, but it does not lead (PCB-1).
        may_stay = (
            not image.elr_on and len(registration.isr) == 1 and registration.leader == NO_LEADER
        )
        check_invariant(
            not inactive or may_stay,
            "INV-7",
            "no fenced or stopping broker is in the ISR, except the last member with ELR off",
            **context,
            inactive=tuple(inactive),
        )
