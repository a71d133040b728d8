"""The controller: handles one event after another. Decisions are pure functions; the effects are here.

There are two images. `image` follows the committed records, on every controller. An active controller also
keeps `latest`, which is ahead of it by the controller's own records. All decisions read `latest`, so that each
sees the effects of the decisions before it, and no response leaves the node until the state that it rests on is
committed (CTRL-1). When the leadership is lost, `latest` is dropped and every pending response becomes
NOT_CONTROLLER: the next leader may commit some of those records and not others, and only the log will show
which (CTRL-3).

All of this runs in callbacks of one loop without an await; the loop is the controller's event queue.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from system_under_test.config import NodeConfig
from system_under_test.controller.alarm import Alarm
from system_under_test.controller.broker_changes import (
    fence,
    sweepable_partitions,
    unclean_sweep,
)
from system_under_test.controller.checks import MetadataChecks
from system_under_test.controller.configs import alter_configs
from system_under_test.controller.directories import assign_replicas
from system_under_test.controller.heartbeats import (
    BrokerControlState,
    Sessions,
    heartbeat,
    sessions_at_activation,
)
from system_under_test.controller.isr_changes import alter_partition
from system_under_test.controller.leader_elections import (
    BALANCED_MAX,
    balance_leaders,
    elect_leaders,
)
from system_under_test.controller.new_partitions import create_partitions
from system_under_test.controller.policy import NS_PER_MS, Decision, Mark, Policy, mark
from system_under_test.controller.producer_ids import allocate_producer_ids
from system_under_test.controller.reassignment import alter_reassignments, list_reassignments
from system_under_test.controller.registrations import register_broker
from system_under_test.controller.responses import not_controller
from system_under_test.controller.topics import create_topics, delete_topics
from system_under_test.invariants import check_invariant
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    ELR_FEATURE,
    GROUP_FEATURE,
    METADATA_VERSION_FEATURE,
    MIN_ISR_CONFIG,
    TRANSACTION_FEATURE,
    ClusterImage,
)
from system_under_test.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from system_under_test.metadata.snapshot import MetadataSnapshot, image_of
from system_under_test.protocol.messages import (
    allocate_producer_ids_request,
    alter_partition_request,
    alter_reassignments_request,
    assign_replicas_to_dirs_request,
    broker_heartbeat_request,
    broker_registration_request,
    create_partitions_request,
    create_topics_request,
    delete_topics_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    list_reassignments_request,
)
from system_under_test.raft.quorum import NotLeaderError
from system_under_test.runtime import Host, RequestContext

NO_EPOCH = -1


class QuorumLog(Protocol):
    """The part of the Raft node that the controller uses. `RaftNode` implements it."""

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends one atomic batch and returns the offset of its last record; may raise `NotLeaderError`."""
        ...

    def next_offset(self) -> int:
        """Returns the offset that the next appended record will get."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    offset: int
    message: Any
    response: Any
    future: "asyncio.Future[Any]"


@dataclass(slots=True, kw_only=True)
class _Leadership:
    """State that exists only while this controller is active."""

    quorum_epoch: int
    latest: ClusterImage
    sessions: Sessions
    last_write_ns: int
    activated_ns: int
    pending: deque[_Pending] = field(default_factory=deque)


class Controller:
    """One controller node's state machine; a listener of its Raft node. Mutable, single-threaded.

    Args:
        host: The node's interfaces.
        config: The node's configuration.

    Attributes:
        image: The cluster after the records that this node knows to be committed.
    """

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self.image = ClusterImage()
        self._host = host
        self._config = config
        self._policy = Policy.from_config(config)
        self._checks = MetadataChecks(self._policy)
        self._raft: QuorumLog | None = None
        self._is_running = False
        self._leadership: _Leadership | None = None
        self._claimed_epoch = NO_EPOCH
        self._committed_leader_change = NO_EPOCH
        self._counts: Counter[str] = Counter()
        self._session_alarm = Alarm(host, self._expire_sessions)
        self._idle_alarm = Alarm(host, self._write_when_idle)
        self._sweep_alarm = Alarm(host, self._sweep)
        self._balance_alarm = Alarm(host, self._balance)

    def attach(self, raft: QuorumLog) -> None:
        """Sets the Raft node; called once, before `start`."""
        self._raft = raft

    @property
    def raft(self) -> QuorumLog:
        """The Raft node."""
        assert self._raft is not None, "attach() was not called"
        return self._raft

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller: quorum leader and activated."""
        return self._leadership is not None

    @property
    def latest(self) -> ClusterImage | None:
        """The image including the controller's own uncommitted records; None while not active."""
        return None if self._leadership is None else self._leadership.latest

    def start(self) -> None:
        """Allows the controller to become active."""
        self._is_running = True
        self._activate_if_due()

    def stop(self) -> None:
        """Deactivates the controller: stops timers, completes pending requests with NOT_CONTROLLER."""
        self._is_running = False
        self._deactivate("stopped")

    def gauges(self) -> dict[str, int]:
        """Returns the controller's metrics under Kafka's names."""
        image = self.latest or self.image
        fenced = sum(broker.fenced for broker in image.brokers.values())
        return {
            "ActiveControllerCount": int(self.is_active),
            "ActiveBrokerCount": len(image.brokers) - fenced,
            "FencedBrokerCount": fenced,
            "OfflinePartitionsCount": len(image.leaderless_partitions()),
            "PreferredReplicaImbalanceCount": len(image.imbalanced_partitions()),
            "GlobalTopicCount": len(image.topics),
            "GlobalPartitionCount": len(image.partitions),
            "LastAppliedRecordOffset": image.last_offset,
            "LastCommittedRecordOffset": self.image.last_offset,
            "TimedOutBrokerHeartbeatCount": self._counts["session-expired"],
            "NewActiveControllersCount": self._counts["controller-activated"],
            # An election from the ELR is not unclean (KAFKA-18940).
            "UncleanLeaderElectionsCount": self._counts["elected-unclean"]
            + self._counts["elected-last-known-leader"],
            "ElectionFromEligibleLeaderReplicasCount": self._counts["elected-from-elr"],
        }

    # --- requests ------------------------------------------------------------------------------------

    def handles(self, message: Any) -> bool:
        """Whether the controller handles this kind of request."""
        return type(message) in _REQUESTS

    def handle_request(self, message: Any, context: RequestContext) -> Any:
        """Returns the response to a request, or its future."""
        leadership = self._leadership
        if leadership is None:
            return not_controller(message)
        return _REQUESTS[type(message)](self, leadership, message)

    def _heartbeat(self, leadership: _Leadership, request: Any) -> Any:
        outcome = heartbeat(
            leadership.latest,
            request,
            leadership.sessions,
            self._host.clock.monotonic_ns(),
            self._policy,
        )
        response = self._perform(leadership, request, outcome.decision)
        if outcome.state is BrokerControlState.CONTROLLED_SHUTDOWN:
            session = leadership.sessions.get(request.broker_id)
            if session is not None and session.controlled_shutdown_offset < 0:
                session.controlled_shutdown_offset = leadership.latest.last_offset
        if outcome.decision.records:
            self._set_session_alarm(leadership)
        return response

    def _register(self, leadership: _Leadership, request: Any) -> Any:
        now_ns = self._host.clock.monotonic_ns()
        decision = register_broker(
            leadership.latest,
            request,
            sessions=leadership.sessions,
            now_ns=now_ns,
            # The registration record may get a later offset: clean-up records precede it in the batch.
            next_offset=self.raft.next_offset(),
            policy=self._policy,
        )
        response = self._perform(leadership, request, decision)
        if decision.records:
            leadership.sessions.begin(request.broker_id, now_ns)
            self._set_session_alarm(leadership)
        return response

    def _alter_partition(self, leadership: _Leadership, request: Any) -> Any:
        decision = alter_partition(leadership.latest, request, self._policy)
        return self._perform(leadership, request, decision)

    def _create_topics(self, leadership: _Leadership, request: Any) -> Any:
        decision = create_topics(leadership.latest, request, self._new_topic_id, self._policy)
        return self._perform(leadership, request, decision)

    def _delete_topics(self, leadership: _Leadership, request: Any) -> Any:
        return self._perform(leadership, request, delete_topics(leadership.latest, request))

    def _alter_configs(self, leadership: _Leadership, request: Any) -> Any:
        decision = alter_configs(leadership.latest, request, self._policy)
        return self._perform(leadership, request, decision)

    def _allocate_producer_ids(self, leadership: _Leadership, request: Any) -> Any:
        decision = allocate_producer_ids(leadership.latest, request, self._policy)
        return self._perform(leadership, request, decision)

    def _new_topic_id(self) -> UUID:
        bits = self._host.random.stream("topic-ids").getrandbits(128)
        return UUID(int=bits, version=4)

    def _perform(self, leadership: _Leadership, request: Any, decision: Decision) -> Any:
        """Writes the records of a decision and returns its response, or the response's future."""
        if not self._write(leadership, decision):
            return not_controller(request)
        offset = leadership.latest.last_offset
        # [CTRL-1] A response without records rests on the pending records too. It is delayed until they are
        # committed, because otherwise it could report a state that never comes into effect.
        if offset <= self.image.last_offset or not self._config.rules("CTRL-1"):
            return decision.response
        future = asyncio.get_running_loop().create_future()
        leadership.pending.append(
            _Pending(offset=offset, message=request, response=decision.response, future=future)
        )
        return future

    def _write(self, leadership: _Leadership, decision: Decision) -> bool:
        """Applies a decision's records to `latest` and appends them to the Raft log as one unit (CTRL-2).

        Returns:
            False if this node no longer leads the quorum; nothing was written then.
        """
        if decision.records and not self._append(leadership, decision.records):
            return False
        self._report(decision.marks)
        return True

    def _append(self, leadership: _Leadership, records: tuple[MetadataRecord, ...]) -> bool:
        latest = leadership.latest
        base_offset = self.raft.next_offset()
        check_invariant(
            base_offset == latest.last_offset + 1,
            "INV-5",
            "only the active controller appends to the log of its epoch",
            next_offset=base_offset,
            last_offset=latest.last_offset,
        )
        for offset, record in enumerate(records, base_offset):
            self._checks.replay(latest, offset, record)
        try:
            last_offset = self.raft.append(records)
        except NotLeaderError:
            # The Raft node learnt of it first. The records that were just replayed are dropped with `latest`.
            self._deactivate("lost the leadership while writing")
            return False
        check_invariant(
            last_offset == latest.last_offset,
            "INV-5",
            "a batch is written at the offsets for which it was computed",
            last_offset=last_offset,
            expected=latest.last_offset,
        )
        leadership.last_write_ns = self._host.clock.monotonic_ns()
        self._set_sweep_alarm(leadership)
        if any(isinstance(record, PartitionChangeRecord) for record in records):
            self._set_balance_alarm(leadership)
        return True

    def _report(self, marks: Sequence[Mark]) -> None:
        for rare in marks:
            self._counts[rare.name] += 1
            self._host.observer.mark(rare.name, **rare.details)

    # --- the quorum ----------------------------------------------------------------------------------

    def on_leader_change(self, quorum_epoch: int, leader_id: int) -> None:
        """Claims or gives up the leadership; see `RaftListener`."""
        if leader_id != self._config.node_id:
            self._claimed_epoch = NO_EPOCH
            self._deactivate("another quorum leader or epoch")
            return
        if self._claimed_epoch != quorum_epoch:
            self._deactivate("a new quorum epoch")
            self._claimed_epoch = quorum_epoch
        self._activate_if_due()

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        """Replays committed records, then completes the requests that waited for them; see `RaftListener`."""
        for batch in batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                self.image.replay(offset, record)
                self._host.observer.metadata_committed(offset, batch.quorum_epoch, record)
                if isinstance(record, LeaderChangeRecord):
                    self._committed_leader_change = batch.quorum_epoch
        self._complete_committed()
        self._activate_if_due()

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Continues from a snapshot; see `RaftListener`. Only a controller that is not active gets one."""
        check_invariant(
            self._leadership is None,
            "INV-5",
            "the log of an active controller has everything that is committed",
            snapshot=snapshot.id,
        )
        self.image = image_of(snapshot, like=self.image)

    def snapshot_image(self) -> ClusterImage:
        """Returns the image of the committed records; see `RaftListener`."""
        return self.image

    def _complete_committed(self) -> None:
        if self._leadership is None:
            return
        pending = self._leadership.pending
        while pending and pending[0].offset <= self.image.last_offset:
            completed = pending.popleft()
            # The sender may have closed its connection, which cancels the future.
            if not completed.future.done():
                completed.future.set_result(completed.response)

    def _activate_if_due(self) -> None:
        # [CTRL-4] The LeaderChange record was the last record in the log when this epoch began. Once it is
        # committed and replayed, so are all records of earlier leaders.
        if (
            not self._is_running
            or self._leadership is not None
            or self._claimed_epoch == NO_EPOCH
            or self._committed_leader_change != self._claimed_epoch
        ):
            return
        now_ns = self._host.clock.monotonic_ns()
        leadership = _Leadership(
            quorum_epoch=self._claimed_epoch,
            latest=self.image.copy(),
            sessions=sessions_at_activation(self.image, now_ns, self._policy),
            last_write_ns=now_ns,
            activated_ns=now_ns,
        )
        self._leadership = leadership
        self._report((mark("controller-activated", quorum_epoch=leadership.quorum_epoch),))
        if not self.image.features:
            self._write(leadership, Decision(records=self._bootstrap_records()))
        self._set_session_alarm(leadership)
        self._set_idle_alarm(leadership)
        self._set_sweep_alarm(leadership)
        self._set_balance_alarm(leadership)

    def _deactivate(self, reason: str) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is None:
            return
        self._claimed_epoch = NO_EPOCH
        for alarm in (
            self._session_alarm,
            self._idle_alarm,
            self._sweep_alarm,
            self._balance_alarm,
        ):
            alarm.cancel()
        self._report(
            (
                mark(
                    "controller-deposed",
                    quorum_epoch=leadership.quorum_epoch,
                    pending=len(leadership.pending),
                    reason=reason,
                ),
            )
        )
        # [CTRL-3] Whether these records will be committed is unknown; the brokers repeat their requests elsewhere.
        for incomplete in leadership.pending:
            if not incomplete.future.done():
                incomplete.future.set_result(not_controller(incomplete.message))

    def _bootstrap_records(self) -> tuple[MetadataRecord, ...]:
        features = self._config.features
        records: list[MetadataRecord] = [
            FeatureLevelRecord(
                name=METADATA_VERSION_FEATURE, feature_level=features.metadata_version
            ),
            FeatureLevelRecord(name=ELR_FEATURE, feature_level=features.elr_version),
        ]
        if features.group_version is not None:
            records.append(
                FeatureLevelRecord(name=GROUP_FEATURE, feature_level=features.group_version)
            )
        if features.transaction_version:
            records.append(
                FeatureLevelRecord(
                    name=TRANSACTION_FEATURE, feature_level=features.transaction_version
                )
            )
        if features.elr_on:
            # With ELR on, controller and brokers must agree on min ISR, so the value becomes part of the metadata.
            records.append(
                ConfigRecord(
                    resource_type=BROKER_RESOURCE,
                    resource_name=CLUSTER_DEFAULT,
                    name=MIN_ISR_CONFIG,
                    value=str(self._config.min_insync_replicas),
                )
            )
        return tuple(records)

    # --- timers --------------------------------------------------------------------------------------

    def _set_session_alarm(self, leadership: _Leadership) -> None:
        if self._leadership is not leadership:
            return
        stalest = leadership.sessions.stalest(leadership.latest)
        if stalest is not None:
            # A session expires after its deadline, not at the deadline.
            self._session_alarm.set(stalest[0] + 1)

    def _expire_sessions(self) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        now_ns = self._host.clock.monotonic_ns()
        expired = leadership.sessions.expired(leadership.latest, now_ns)
        # How soon the controller acts on an expired session is not guaranteed. A late event lets a broker register
        # again before it was fenced (REG-4).
        if expired and self._host.random.buggify("late-fencing"):
            self._session_alarm.set(now_ns + self._policy.session_timeout_ns // 2)
            return
        # [FENCE-3] One broker per event, so that each fencing sees the ISRs after the previous one. If two brokers
        # were fenced from one state, each could be elected in place of the other (KAFKA-13173).
        if self._policy.rules("FENCE-3"):
            expired = expired[:1]
        decisions = [fence(leadership.latest, self._policy, broker_id) for broker_id in expired]
        for broker_id in expired:
            self._report((mark("session-expired", broker_id=broker_id),))
        self._write(
            leadership,
            Decision(
                records=tuple(record for decision in decisions for record in decision.records),
                marks=tuple(rare for decision in decisions for rare in decision.marks),
            ),
        )
        self._set_session_alarm(leadership)

    def _set_idle_alarm(self, leadership: _Leadership) -> None:
        if self._leadership is leadership:
            interval_ns = self._config.timings.metadata_max_idle_interval_ms * NS_PER_MS
            self._idle_alarm.set(leadership.last_write_ns + interval_ns)

    def _write_when_idle(self) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        now_ns = self._host.clock.monotonic_ns()
        interval_ns = self._config.timings.metadata_max_idle_interval_ms * NS_PER_MS
        is_idle = now_ns >= leadership.last_write_ns + interval_ns
        if is_idle and leadership.latest.last_offset > self.image.last_offset:
            # Records already wait for a majority; a no-op record would not help.
            self._idle_alarm.set(now_ns + interval_ns)
            return
        if is_idle:
            self._write(leadership, Decision(records=(NoOpRecord(),)))
        self._set_idle_alarm(leadership)

    def _set_sweep_alarm(self, leadership: _Leadership) -> None:
        if self._sweep_alarm.is_set or self._leadership is not leadership:
            return
        if sweepable_partitions(leadership.latest, self._policy):
            interval_ms = self._config.timings.unclean_leader_election_interval_ms
            self._sweep_alarm.set(self._host.clock.monotonic_ns() + interval_ms * NS_PER_MS)

    def _sweep(self) -> None:
        leadership = self._leadership
        if leadership is not None:
            self._write(leadership, unclean_sweep(leadership.latest, self._policy))
            self._set_sweep_alarm(leadership)

    def _set_balance_alarm(self, leadership: _Leadership) -> None:
        # [EL-4] The check is due at every multiple of the interval since the activation. Without an imbalance it
        # would do nothing, so the alarm is set only while there is one.
        if (
            self._balance_alarm.is_set
            or self._leadership is not leadership
            or not self._config.auto_leader_rebalance_enable
            or not self._config.rules("EL-4")
            or not leadership.latest.is_imbalanced()
        ):
            return
        interval_ns = self._config.timings.leader_imbalance_check_interval_ms * NS_PER_MS
        elapsed_ns = self._host.clock.monotonic_ns() - leadership.activated_ns
        self._balance_alarm.set(
            leadership.activated_ns + (elapsed_ns // interval_ns + 1) * interval_ns
        )

    def _balance(self) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        decision = balance_leaders(leadership.latest, self._policy)
        if len(decision.records) >= BALANCED_MAX:
            self._balance_alarm.set(self._host.clock.monotonic_ns())
        self._write(leadership, decision)
        self._set_balance_alarm(leadership)


def _decided_by(
    decide: Callable[[ClusterImage, Any, Policy], Decision],
) -> Callable[[Controller, _Leadership, Any], Any]:
    """Returns the handler of requests whose decision depends on the image and the policy only."""

    def handle(controller: Controller, leadership: _Leadership, request: Any) -> Any:
        decision = decide(leadership.latest, request, controller._policy)
        return controller._perform(leadership, request, decision)

    return handle


_REQUESTS: dict[type, Callable[[Controller, _Leadership, Any], Any]] = {
    allocate_producer_ids_request.AllocateProducerIdsRequest: Controller._allocate_producer_ids,
    alter_partition_request.AlterPartitionRequest: Controller._alter_partition,
    alter_reassignments_request.AlterPartitionReassignmentsRequest: _decided_by(
        alter_reassignments
    ),
    assign_replicas_to_dirs_request.AssignReplicasToDirsRequest: _decided_by(assign_replicas),
    broker_heartbeat_request.BrokerHeartbeatRequest: Controller._heartbeat,
    broker_registration_request.BrokerRegistrationRequest: Controller._register,
    create_partitions_request.CreatePartitionsRequest: _decided_by(create_partitions),
    create_topics_request.CreateTopicsRequest: Controller._create_topics,
    delete_topics_request.DeleteTopicsRequest: Controller._delete_topics,
    elect_leaders_request.ElectLeadersRequest: _decided_by(elect_leaders),
    incremental_alter_configs_request.IncrementalAlterConfigsRequest: Controller._alter_configs,
    list_reassignments_request.ListPartitionReassignmentsRequest: _decided_by(list_reassignments),
}
