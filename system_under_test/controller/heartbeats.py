"""Broker sessions and heartbeats (replication-protocol section 16.3).

Sessions are soft state: only the active controller has them, and a new one starts them afresh (FENCE-4). Whether
a broker is fenced or shutting down is hard state and read from the image; `Sessions` only knows when a broker was
last heard of and how far it has read the metadata.
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
from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.image import BrokerRegistration, ClusterImage
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import broker_heartbeat_response, millis

NEVER_HEARD_NS = -(2**62)


class BrokerState(Enum):
    """What a broker is told to be."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    SHUTDOWN_NOW = "shutdown-now"


@dataclass(slots=True, kw_only=True)
class Session:
    """What the active controller remembers of a broker between heartbeats. Mutable.

    Attributes:
        last_contact_ns: Monotonic time of the last registration or heartbeat.
        metadata_offset: Offset of the last metadata record that the broker has applied, -1 unknown.
        controlled_shutdown_offset: End of the batch that began its shutdown, -1 when it is not shutting down.
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
        """Returns a broker's session, None when it has none."""
        return self._by_broker.get(broker_id)

    def is_valid(self, broker: BrokerRegistration, now_ns: int) -> bool:
        """Whether a broker is unfenced and was heard of within the session timeout."""
        session = self._by_broker.get(broker.broker_id)
        if session is None or broker.fenced:
            return False
        return now_ns <= session.last_contact_ns + self.timeout_ns

    def lowest_active_offset(self, image: ClusterImage) -> int | None:
        """Returns the lowest metadata offset among active brokers, None when there is none of them."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._by_broker.items()
            if image.is_active(broker_id)
        ]
        return min(offsets, default=None)

    def stalest(self, image: ClusterImage) -> tuple[int, int] | None:
        """Returns (deadline, broker id) of the unfenced broker heard of longest ago, None without one.

        Equal last contacts (after a controller fail-over) are decided by the lower id.
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
        """Returns the unfenced brokers whose session is over, the longest silent first (FENCE-3)."""
        late = sorted(
            (session.last_contact_ns, broker_id)
            for broker_id, session in self._by_broker.items()
            if broker_id in image.brokers
            and not image.brokers[broker_id].fenced
            and now_ns > session.last_contact_ns + self.timeout_ns
        )
        return [broker_id for _, broker_id in late]


def sessions_at_activation(image: ClusterImage, now_ns: int, policy: Policy) -> Sessions:
    """Returns the sessions that a new active controller begins with."""
    sessions = Sessions(policy.session_timeout_ns)
    # [FENCE-4] It cannot know when its predecessor heard of a broker, so everybody gets a full session;
    # the alternative fences the whole cluster at every controller fail-over.
    start_ns = now_ns if policy.rules("FENCE-4") else NEVER_HEARD_NS
    for broker_id in sorted(image.brokers):
        sessions.begin(broker_id, start_ns)
    return sessions


def current_state(broker: BrokerRegistration) -> BrokerState:
    """Returns the state that a registration stands for."""
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(
    image: ClusterImage,
    broker: BrokerRegistration,
    session: Session,
    request: Any,
    sessions: Sessions,
) -> BrokerState:
    """Returns the state after a heartbeat: the table of section 16.3, row by row."""
    state = current_state(broker)
    if state is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if not request.want_shut_down:
            return BrokerState.UNFENCED
        leads = image.leads_any(broker.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
    if state is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        has_seen_itself = request.current_metadata_offset >= broker.register_record_offset
        # Who has announced its end is not unfenced again: nothing takes the announcement back but a new
        # registration. An honest broker never asks for it.
        if not request.want_fence and has_seen_itself and not broker.in_controlled_shutdown:
            return BrokerState.UNFENCED
        return BrokerState.FENCED
    # It may go once everybody who serves clients has read that it no longer leads; until then they would send
    # clients to a broker that is gone.
    lowest = sessions.lowest_active_offset(image)
    is_known_to_all = session.controlled_shutdown_offset >= 0 and (
        lowest is None or session.controlled_shutdown_offset <= lowest
    )
    if not image.leads_any(broker.broker_id) and is_known_to_all:
        return BrokerState.SHUTDOWN_NOW
    return BrokerState.CONTROLLED_SHUTDOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatDecision:
    """A decision and the state that the heartbeat ends in, None when the heartbeat was refused."""

    decision: Decision
    state: BrokerState | None


def heartbeat(
    image: ClusterImage, request: Any, sessions: Sessions, now_ns: int, policy: Policy
) -> HeartbeatDecision:
    """Answers a heartbeat and refreshes the session, even one that has expired meanwhile.

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
        state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        state is BrokerState.SHUTDOWN_NOW,
    )
    if state is current_state(broker):
        return HeartbeatDecision(decision=Decision(response=response), state=state)
    changes = _transition(image, policy, broker, state)
    return HeartbeatDecision(
        decision=Decision(records=changes.records, response=response, marks=changes.marks),
        state=state,
    )


def _transition(
    image: ClusterImage, policy: Policy, broker: BrokerRegistration, state: BrokerState
) -> Decision:
    if state is BrokerState.UNFENCED:
        return unfence(image, policy, broker.broker_id)
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(image, policy, broker.broker_id)
    if broker.fenced:
        return Decision()
    return fence(image, policy, broker.broker_id)


@lru_cache(maxsize=8)
def _response(is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> Any:
    # Heartbeats are the controller's only steady load: the eight possible answers are made once.
    return broker_heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=millis(0),
        error_code=ErrorCode.NONE,
        is_caught_up=is_caught_up,
        is_fenced=is_fenced,
        should_shut_down=should_shut_down,
    )


def refused_heartbeat(error: ErrorCode) -> Any:
    """Returns the answer to a heartbeat that was not accepted."""
    return broker_heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=millis(0), error_code=error, should_shut_down=False
    )


_STALE_BROKER_EPOCH = refused_heartbeat(ErrorCode.STALE_BROKER_EPOCH)
