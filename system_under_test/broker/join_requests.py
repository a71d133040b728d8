"""The JoinGroup request as a value."""

from typing import Any

from system_under_test.group.members import JoinRequest
from system_under_test.protocol.messages import to_millis
from system_under_test.runtime import RequestContext

MEMBER_ID_REQUIRED_SINCE = 4
"""First version of JoinGroup in which a new client gets an id first (KIP-394)."""


def join_request(request: Any, context: RequestContext) -> JoinRequest:
    """Returns the content of a JoinGroup request."""
    session_timeout_ms = int(to_millis(request.session_timeout))
    rebalance_timeout_ms = int(to_millis(request.rebalance_timeout))
    return JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host="/" + context.peer.rpartition(":")[0],
        session_timeout_ms=session_timeout_ms,
        # Version 0 knows the session timeout only.
        rebalance_timeout_ms=rebalance_timeout_ms
        if rebalance_timeout_ms >= 0
        else session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        needs_known_member_id=not 0 <= context.api_version < MEMBER_ID_REQUIRED_SINCE,
    )
