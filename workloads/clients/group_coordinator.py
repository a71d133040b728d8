"""Requests to the coordinator of a group or of a transactional id, and what errors mean for a member of a group.

The coordinator is found through any broker and found again after it has moved. Requests go over a connection of
their own: a broker handles one request of a connection at a time, so a fetch that waits for records would delay a
heartbeat.
"""

import asyncio
from enum import StrEnum
from typing import Any

from harness.contracts.host import ClientHost, Connection
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import find_coordinator_request
from workloads.clients.connections import Connections

GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1


class Meaning(StrEnum):
    """What a response of the coordinator means for a member."""

    DONE = "done"
    """The request had its effect."""
    RETRY = "retry"
    """The coordinator is unknown, moved, loading, or did not respond; its next response decides."""
    REJOIN = "rejoin"
    """A rebalance is in progress: the member has to join again, and may commit before."""
    LOST = "lost"
    """The member is not in this generation any more, so its partitions may belong to others."""
    UNKNOWN = "unknown"
    """Like LOST, and the coordinator does not know the member id either."""
    FENCED = "fenced"
    """Another member took over the instance id; a fenced member ends."""


_MEANINGS = {
    ErrorCode.NONE: Meaning.DONE,
    ErrorCode.REBALANCE_IN_PROGRESS: Meaning.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Meaning.LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: Meaning.UNKNOWN,
    ErrorCode.FENCED_INSTANCE_ID: Meaning.FENCED,
    ErrorCode.FENCED_MEMBER_EPOCH: Meaning.LOST,
}

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class CoordinatorClient:
    """Finds a coordinator and sends it requests. Mutable: connections and the known coordinator.

    Args:
        host: The client host it runs on.
        bootstrap: Addresses of brokers to query for the coordinator, in turn.
        group: Name of the group, or the transactional id.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which a connection attempt is given up.
        key_type: Which of both it is: `GROUP_KEY_TYPE` or `TRANSACTION_KEY_TYPE`.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        group: str,
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
        key_type: int = GROUP_KEY_TYPE,
    ) -> None:
        self._group = group
        self._key_type = key_type
        self._request_timeout_ms = request_timeout_ms
        self._address: str | None = None
        self._connections = Connections(host, bootstrap, connect_timeout_ms)
        # Heartbeats go on while the member fetches and commits; both may find the coordinator gone at once.
        self._finding = asyncio.Lock()

    async def request(self, request: Any, *, wait_ms: int = 0) -> Any:
        """Sends a request to the coordinator.

        Args:
            request: What to send.
            wait_ms: How much longer than other responses this one may take; the responses to JoinGroup and
                SyncGroup wait for other members.

        Returns:
            The response, or None if there was none: the coordinator is unknown or unreachable, or too slow.
        """
        async with self._finding:
            if self._address is None:
                await self._find()
            address = self._address
            connection = None if address is None else await self._connections.open(address)
        if address is None or connection is None:
            self.forget()
            return None
        return await self._send(address, connection, request, self._request_timeout_ms + wait_ms)

    def meaning_of(self, error_code: int) -> Meaning:
        """Returns what an error code means; a coordinator that has moved is forgotten."""
        code = ErrorCode(error_code)
        if code in _MOVED:
            self.forget()
        return _MEANINGS.get(code, Meaning.RETRY)

    def forget(self) -> None:
        """Forgets the coordinator, so that the next request finds it again."""
        self._address = None

    def close(self) -> None:
        """Closes all connections; what waits for a response gets none."""
        self.forget()
        self._connections.close()

    async def _find(self) -> None:
        """Queries one broker, the next in turn."""
        address = self._connections.next_broker()
        connection = await self._connections.open(address)
        if connection is None:
            return
        request = find_coordinator_request.FindCoordinatorRequest(
            key_type=self._key_type, coordinator_keys=(self._group,)
        )
        response = await self._send(address, connection, request, self._request_timeout_ms)
        if response is not None and not response.coordinators[0].error_code:
            found = response.coordinators[0]
            self._address = f"{found.host}:{found.port}"

    async def _send(
        self, address: str, connection: Connection, request: Any, timeout_ms: int
    ) -> Any:
        response = await self._connections.request(address, connection, request, timeout_ms)
        if not isinstance(response, str):
            return response
        if self._address == address:
            self.forget()
        return None
