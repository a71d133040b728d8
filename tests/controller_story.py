"""A controller without a quorum, clock or network: the pure decisions applied one after another.

Used by the tests of the controller: a story scripts events of brokers, and reads the resulting metadata.
"""

from dataclasses import replace
from uuid import UUID

from harness.defects.requests import elect_request, reassign_request
from system_under_test.config import profile_features
from system_under_test.controller.broker_changes import fence, unclean_sweep
from system_under_test.controller.checks import MetadataChecks
from system_under_test.controller.heartbeats import BrokerControlState, Sessions, heartbeat
from system_under_test.controller.isr_changes import alter_partition
from system_under_test.controller.leader_elections import elect_leaders
from system_under_test.controller.new_partitions import create_partitions
from system_under_test.controller.policy import Decision, Policy
from system_under_test.controller.reassignment import alter_reassignments, list_reassignments
from system_under_test.controller.registrations import register_broker
from system_under_test.controller.topics import create_topics
from system_under_test.metadata.image import ELR_FEATURE, ClusterImage, PartitionRegistration
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.messages import (
    alter_partition_request,
    broker_heartbeat_request,
    broker_registration_request,
    create_partitions_request,
    create_topics_request,
    list_reassignments_request,
    millis,
)
from system_under_test.rules import Rules

CLUSTER_ID = "story"
TOPIC = "t"
SESSION_NS = 600_000_000
BEAT_NS = 1_000_000


def policy_of(profile: str, *, without: tuple[str, ...] = (), **features: object) -> Policy:
    """Returns the policy of a profile, with rules switched off or features changed."""
    return Policy(
        cluster_id=CLUSTER_ID,
        features=replace(profile_features(profile), **features),
        session_timeout_ns=SESSION_NS,
        rules=Rules(without),
    )


def registration_request(
    broker_id: int,
    *,
    incarnation: int = 1,
    previous_epoch: int = -1,
    cluster_id: str = CLUSTER_ID,
    directories: tuple[UUID | None, ...] | None = None,
    features: tuple[tuple[str, int, int], ...] = (),
    port: int = 9092,
):
    """Returns a BrokerRegistrationRequest."""
    own_directory = (UUID(int=1000 + broker_id),)
    return broker_registration_request.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=broker_id * 1000 + incarnation),
        listeners=(
            broker_registration_request.Listener(
                name="PLAINTEXT", host=f"b{broker_id}", port=port, security_protocol=0
            ),
        ),
        features=tuple(
            broker_registration_request.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, low, high in features
        ),
        rack=None,
        log_dirs=own_directory if directories is None else directories,
        previous_broker_epoch=previous_epoch,
    )


def heartbeat_request(
    broker_id: int,
    epoch: int,
    offset: int,
    *,
    want_fence: bool = False,
    want_stop: bool = False,
    offline: tuple[UUID, ...] = (),
):
    """Returns a BrokerHeartbeatRequest."""
    return broker_heartbeat_request.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_fence=want_fence,
        want_shut_down=want_stop,
        offline_log_dirs=offline,
    )


def alter_request(
    sender: int,
    sender_epoch: int,
    topic_id: UUID,
    *,
    partition: int = 0,
    leader_epoch: int,
    partition_epoch: int,
    isr: tuple[tuple[int, int], ...],
    recovery_state: int = 0,
):
    """Returns an AlterPartitionRequest for one partition."""
    return alter_partition_request.AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=sender_epoch,
        topics=(
            alter_partition_request.TopicData(
                topic_id=topic_id,
                partitions=(
                    alter_partition_request.PartitionData(
                        partition_index=partition,
                        leader_epoch=leader_epoch,
                        new_isr_with_epochs=tuple(
                            alter_partition_request.BrokerState(
                                broker_id=broker_id, broker_epoch=epoch
                            )
                            for broker_id, epoch in isr
                        ),
                        leader_recovery_state=recovery_state,
                        partition_epoch=partition_epoch,
                    ),
                ),
            ),
        ),
    )


def create_request(
    *topics: dict[str, object], validate_only: bool = False
) -> create_topics_request.CreateTopicsRequest:
    """Returns a CreateTopicsRequest; a topic is name, and assignment or count and factor, and configs."""
    return create_topics_request.CreateTopicsRequest(
        topics=tuple(
            create_topics_request.CreatableTopic(
                name=topic.get("name", TOPIC),
                num_partitions=topic.get("count", -1),
                replication_factor=topic.get("factor", -1),
                assignments=tuple(
                    create_topics_request.CreatableReplicaAssignment(
                        partition_index=index, broker_ids=tuple(replicas)
                    )
                    for index, replicas in topic.get("assignment", {}).items()
                ),
                configs=tuple(
                    create_topics_request.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.get("configs", {}).items()
                ),
            )
            for topic in topics
        ),
        validate_only=validate_only,
    )


def list_request(*partitions: tuple[str, int]):
    """Returns a ListPartitionReassignmentsRequest; without partitions it is for all."""
    m = list_reassignments_request
    return m.ListPartitionReassignmentsRequest(
        topics=tuple(
            m.ListPartitionReassignmentsTopics(name=topic, partition_indexes=(index,))
            for topic, index in partitions
        )
        or None,
    )


def partitions_request(
    *topics: tuple[str, int, tuple[tuple[int, ...], ...] | None], validate_only: bool = False
):
    """Returns a CreatePartitionsRequest; a topic is its name, its new count, and replicas or None."""
    m = create_partitions_request
    return m.CreatePartitionsRequest(
        topics=tuple(
            m.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else tuple(m.CreatePartitionsAssignment(broker_ids=one) for one in assignments),
            )
            for name, count, assignments in topics
        ),
        timeout=millis(1000),
        validate_only=validate_only,
    )


class Story:
    """Applies decisions to an image and checks INV-7 and INV-8 after every record."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.image = ClusterImage()
        self.sessions = Sessions(policy.session_timeout_ns)
        self.checks = MetadataChecks(policy)
        self.now_ns = 0
        self.log: list[MetadataRecord] = []
        self.marks: list[str] = []
        self.incarnations: dict[int, int] = {}
        self._topic_ids = 0
        self.write(FeatureLevelRecord(name=ELR_FEATURE, feature_level=policy.features.elr_version))

    def write(self, *records: MetadataRecord) -> None:
        for record in records:
            self.checks.replay(self.image, len(self.log), record)
            self.log.append(record)

    def apply(self, decision: Decision) -> object:
        self.write(*decision.records)
        self.marks += [mark.name for mark in decision.marks]
        return decision.response

    # --- brokers

    def register(self, broker_id: int, *, clean: bool = False, **fields: object):
        """A new incarnation registers; `clean` means with the marker of the registered epoch."""
        known = self.image.brokers.get(broker_id)
        self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
        fields.setdefault("incarnation", self.incarnations[broker_id])
        if clean and known is not None:
            fields.setdefault("previous_epoch", known.broker_epoch)
        return self.send_registration(registration_request(broker_id, **fields))

    def send_registration(self, request):
        decision = register_broker(
            self.image,
            request,
            sessions=self.sessions,
            now_ns=self.now_ns,
            next_offset=len(self.log),
            policy=self.policy,
        )
        response = self.apply(decision)
        if decision.records:
            self.sessions.begin(request.broker_id, self.now_ns)
        return response

    def beat(self, broker_id: int, *, offset: int | None = None, **wants: object):
        """A heartbeat of the registered incarnation that has read everything (or up to `offset`)."""
        self.now_ns += BEAT_NS
        request = heartbeat_request(
            broker_id,
            self.image.brokers[broker_id].broker_epoch,
            len(self.log) - 1 if offset is None else offset,
            **wants,
        )
        outcome = heartbeat(self.image, request, self.sessions, self.now_ns, self.policy)
        response = self.apply(outcome.decision)
        session = self.sessions.get(broker_id)
        if (
            outcome.state is BrokerControlState.CONTROLLED_SHUTDOWN
            and session.controlled_shutdown_offset < 0
        ):
            session.controlled_shutdown_offset = self.image.last_offset
        return response

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert not self.beat(broker_id).is_fenced

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.unfence(broker_id)

    def restart(self, broker_id: int, *, clean: bool = False) -> None:
        self.register(broker_id, clean=clean)
        self.unfence(broker_id)

    def fence(self, *broker_ids: int) -> None:
        """The sessions of these brokers expire, in this order."""
        for broker_id in broker_ids:
            self.apply(fence(self.image, self.policy, broker_id))

    def apply_without_election(self, broker_id: int) -> None:
        """A broker is unfenced and leaderless partitions are not checked."""
        epoch = self.image.brokers[broker_id].broker_epoch
        self.write(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=False)
        )

    def unregister(self, broker_id: int) -> None:
        """An operator removes a broker's registration."""
        epoch = self.image.brokers[broker_id].broker_epoch
        self.write(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))

    def stop(self, broker_id: int) -> None:
        """An orderly stop, up to the controller's permission."""
        for _ in range(3):
            response = self.beat(broker_id, want_stop=True)
            if response.should_shut_down:
                return
            for other in sorted(self.image.brokers):
                if self.image.is_active(other):
                    self.beat(other)
        raise AssertionError(f"broker {broker_id} was not allowed to stop")

    def sweep(self) -> None:
        self.apply(unclean_sweep(self.image, self.policy))

    # --- topics and partitions

    def new_topic_id(self) -> UUID:
        self._topic_ids += 1
        return UUID(int=self._topic_ids + (4 << 76))

    def create(self, **topic: object):
        decision = create_topics(self.image, create_request(topic), self.new_topic_id, self.policy)
        return self.apply(decision).topics[0]

    def topic(self, assignment: tuple[int, ...], min_isr: int, unclean: bool = False) -> None:
        configs = {"min.insync.replicas": str(min_isr)}
        if unclean:
            configs["unclean.leader.election.enable"] = "true"
        assert self.create(assignment={0: assignment}, configs=configs).error_code == 0

    @property
    def p(self) -> PartitionRegistration:
        """The partition of the story."""
        partition = self.image.partition(TOPIC, 0)
        assert partition is not None
        return partition

    def propose(self, *isr: int, **fields: object):
        """The leader proposes an ISR with current epochs; returns the partition's response.

        With `key`, the leader of another partition of the image.
        """
        key = fields.pop("key", (self.p.topic_id, 0))
        partition = self.image.partitions[key]
        sender = fields.pop("sender", partition.leader)
        epochs = {
            "partition": partition.partition,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            **fields,
        }
        request = alter_request(
            sender,
            self.image.brokers[sender].broker_epoch,
            partition.topic_id,
            isr=tuple((member, self.image.brokers[member].broker_epoch) for member in isr),
            **epochs,
        )
        response = self.apply(alter_partition(self.image, request, self.policy))
        assert response.error_code == 0
        return response.topics[0].partitions[0]

    # --- administration

    def elect(self, *, unclean: bool = False):
        """Requests an election of the story's partition; returns the error."""
        decision = elect_leaders(
            self.image, elect_request((TOPIC, 0), unclean=unclean), self.policy
        )
        (topic,) = self.apply(decision).replica_election_results
        return topic.partition_result[0].error_code

    def reassign(self, *replicas: int):
        """Requests other replicas for the story's partition; returns the error."""
        return self._alter_reassignment(replicas)

    def cancel(self):
        """Cancels the reassignment of the story's partition; returns the error."""
        return self._alter_reassignment(None)

    def _alter_reassignment(self, replicas: tuple[int, ...] | None):
        decision = alter_reassignments(
            self.image, reassign_request((TOPIC, 0, replicas)), self.policy
        )
        return self.apply(decision).responses[0].partitions[0].error_code

    def reassignments(self, *partitions: tuple[str, int]):
        """Returns (topic, partition, replicas, adding, removing) of the reassignments in progress."""
        response = self.apply(
            list_reassignments(self.image, list_request(*partitions), self.policy)
        )
        return [
            (
                topic.name,
                one.partition_index,
                one.replicas,
                one.adding_replicas,
                one.removing_replicas,
            )
            for topic in response.topics
            for one in topic.partitions
        ]

    def create_partitions(self, *topics, **options: bool):
        """Requests more partitions; returns the results."""
        request = partitions_request(*topics, **options)
        return self.apply(create_partitions(self.image, request, self.policy)).results

    def state(self) -> dict[str, object]:
        """Returns the fields that the golden traces list."""
        p = self.p
        return {
            "leader": p.leader,
            "isr": p.isr,
            "elr": set(p.elr),
            "lkl": p.last_known_elr,
            "LE": p.leader_epoch,
            "PE": p.partition_epoch,
            "recovering": p.leader_recovery_state == 1,
        }
