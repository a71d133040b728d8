"""Broker sessions and heartbeats.

Sessions are soft state: only the active controller has them, and a new active controller begins new ones
(FENCE-4). Whether a broker is fenced or shutting down is hard state and read from the image; `Sessions` knows
only the time of a broker's last heartbeat and its metadata offset.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from system_under_test.controller.broker_changes import (
    begin_controlled_shutdown,
    fence,
    unfence,
)
from system_under_test.controller.directories import directories_failed
from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.image import BrokerRegistration, ClusterImage
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import broker_heartbeat_response, millis

NEVER_HEARD_NS = -(2**62)


class BrokerControlState(Enum):
    """State of a broker as the controller decides it; Kafka's `BrokerControlState`."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    SHUTDOWN_NOW = "shutdown-now"


@dataclass(slots=True, kw_only=True)
class Session:
    """The active controller's knowledge of a broker between heartbeats. Mutable.

    Attributes:
        last_contact_ns: Monotonic time of the last registration or heartbeat.
        metadata_offset: Offset of the last metadata record that the broker has applied, -1 if unknown.
        controlled_shutdown_offset: End of the batch that began its shutdown, -1 if it is not shutting down.
    """

    last_contact_ns: int
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1


class Sessions:
    """The sessions of all registered brokers. Mutable, lost with the leadership."""

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns = timeout_ns
        self._by_broker: dict[int, Session] = {}

    def begin(self, broker_id: int, now_ns: int) -> Session:
        """Replaces a broker's session by a new one."""
        session = Session(last_contact_ns=now_ns)
        self._by_broker[broker_id] = session
        return session

    def get(self, broker_id: int) -> Session | None:
        """Returns a broker's session, None without one."""
        return self._by_broker.get(broker_id)

    def is_valid(self, broker: BrokerRegistration, now_ns: int) -> bool:
        """Whether a broker is unfenced and has sent a heartbeat within the session timeout."""
        session = self._by_broker.get(broker.broker_id)
        if session is None or broker.fenced:
            return False
        return now_ns <= session.last_contact_ns + self.timeout_ns

    def lowest_active_offset(self, image: ClusterImage) -> int | None:
        """Returns the lowest metadata offset of all active brokers, None without active brokers."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._by_broker.items()
            if image.is_active(broker_id)
        ]
        return min(offsets, default=None)

    def stalest(self, image: ClusterImage) -> tuple[int, int] | None:
        """Returns (deadline, broker id) of the unfenced broker with the oldest contact, None without one.

        Among equal contacts (after a controller fail-over) the lower id comes first.
        """
        return min(
            (
                (session.last_contact_ns + self.timeout_ns, broker_id)
                for broker_id, session in self._by_broker.items()
                if broker_id in image.brokers and not image.brokers[broker_id].fenced
            ),
            default=None,
        )

    def expired(self, image: ClusterImage, now_ns: int) -> list[int]:
        """Returns the unfenced brokers whose session has expired, the oldest contact first."""
        late = sorted(
            (session.last_contact_ns, broker_id)
            for broker_id, session in self._by_broker.items()
            if broker_id in image.brokers
            and not image.brokers[broker_id].fenced
            and now_ns > session.last_contact_ns + self.timeout_ns
        )
        return [broker_id for _, broker_id in late]


def sessions_at_activation(image: ClusterImage, now_ns: int, policy: Policy) -> Sessions:
    """Returns the first sessions of a new active controller."""
    sessions = Sessions(policy.session_timeout_ns)
    # [FENCE-4] It does not know when its predecessor last heard of a broker, so every broker gets a full session.
    # Otherwise every controller fail-over would fence the whole cluster.
    start_ns = now_ns if policy.rules("FENCE-4") else NEVER_HEARD_NS
    for broker_id in sorted(image.brokers):
        sessions.begin(broker_id, start_ns)
    return sessions


def current_state(broker: BrokerRegistration) -> BrokerControlState:
    """Returns the state according to a registration."""
    if broker.fenced:
        return BrokerControlState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.UNFENCED


def next_state(
    image: ClusterImage,
    broker: BrokerRegistration,
    session: Session,
    request: Any,
    sessions: Sessions,
) -> BrokerControlState:
    """Returns the state after a heartbeat."""
    state = current_state(broker)
    if state is BrokerControlState.UNFENCED:
        if request.want_fence:
            return (
                BrokerControlState.SHUTDOWN_NOW
                if request.want_shut_down
                else BrokerControlState.FENCED
            )
        if not request.want_shut_down:
            return BrokerControlState.UNFENCED
        leads = image.leads_any(broker.broker_id)
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    if state is BrokerControlState.FENCED:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        has_seen_itself = request.current_metadata_offset >= broker.register_record_offset
        # Also a broker that was fenced in its controlled shutdown, as in Kafka. A correct broker never requests
        # it, but a delayed heartbeat may; the broker stays in controlled shutdown.
        if not request.want_fence and has_seen_itself:
            return BrokerControlState.UNFENCED
        return BrokerControlState.FENCED
    # It may stop once all active brokers have read that it no longer leads. Until then they would direct
    # clients to a broker that does not exist.
    lowest = sessions.lowest_active_offset(image)
    is_known_to_all = session.controlled_shutdown_offset >= 0 and (
        lowest is None or session.controlled_shutdown_offset <= lowest
    )
    if not image.leads_any(broker.broker_id) and is_known_to_all:
        return BrokerControlState.SHUTDOWN_NOW
    return BrokerControlState.CONTROLLED_SHUTDOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatDecision:
    """A decision and the state after the heartbeat, None if the heartbeat was refused."""

    decision: Decision
    state: BrokerControlState | None


def heartbeat(
    image: ClusterImage, request: Any, sessions: Sessions, now_ns: int, policy: Policy
) -> HeartbeatDecision:
    """Decides on a heartbeat and refreshes the session, even one that has expired meanwhile.

    Args:
        image: The latest image.
        request: A BrokerHeartbeatRequest.
        sessions: Soft state; the sender's session is refreshed in place.
        now_ns: Monotonic time.
        policy: The static part.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        stale = mark(
            "heartbeat-of-stale-epoch",
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
        )
        return HeartbeatDecision(
            decision=Decision(response=_STALE_BROKER_EPOCH, marks=(stale,)), state=None
        )
    session = sessions.get(broker.broker_id) or sessions.begin(broker.broker_id, now_ns)
    state = next_state(image, broker, session, request, sessions)
    session.last_contact_ns = now_ns
    session.metadata_offset = request.current_metadata_offset
    response = _response(
        request.current_metadata_offset >= broker.register_record_offset,
        state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        state is BrokerControlState.SHUTDOWN_NOW,
    )
    if state is current_state(broker) and not request.offline_log_dirs:
        return HeartbeatDecision(decision=Decision(response=response), state=state)
    changes = Decision()
    if state is not current_state(broker):
        changes = _transition(image, policy, broker, state)
    if request.offline_log_dirs:
        changes = directories_failed(
            image, policy, broker.broker_id, request.offline_log_dirs, after=changes
        )
    return HeartbeatDecision(
        decision=Decision(records=changes.records, response=response, marks=changes.marks),
        state=state,
    )


def _transition(
    image: ClusterImage, policy: Policy, broker: BrokerRegistration, state: BrokerControlState
) -> Decision:
    if state is BrokerControlState.UNFENCED:
        return unfence(image, policy, broker.broker_id)
    if state is BrokerControlState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(image, policy, broker.broker_id)
    if broker.fenced:
        return Decision()
    return fence(image, policy, broker.broker_id)


@lru_cache(maxsize=8)
def _response(is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> Any:
    # Heartbeats are the controller's only steady load, so the eight possible responses are built once.
    return broker_heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=millis(0),
        error_code=ErrorCode.NONE,
        is_caught_up=is_caught_up,
        is_fenced=is_fenced,
        should_shut_down=should_shut_down,
    )


def refused_heartbeat(error: ErrorCode) -> Any:
    """Returns the response to a refused heartbeat."""
    return broker_heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=millis(0), error_code=error, should_shut_down=False
    )


_STALE_BROKER_EPOCH = refused_heartbeat(ErrorCode.STALE_BROKER_EPOCH)
