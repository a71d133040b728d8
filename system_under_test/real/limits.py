"""Limits for unauthenticated peers: connections, memory and time of one node's listener."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a listener, with Kafka's names and defaults where Kafka has them.

    Attributes:
        max_connections: Connections of the whole node; further ones are closed at once (`max.connections`).
        max_connections_per_ip: Connections of one address (`max.connections.per.ip`).
        max_request_bytes: Size of a frame; a larger one closes its connection (`socket.request.max.bytes`).
        queued_max_bytes: Bytes received but not yet handled, of all connections. Beyond the limit, connections
            that hold much data are not read any more (`queued.max.request.bytes`).
        idle_timeout_ms: Time after which an idle connection is closed (`connections.max.idle.ms`).
        partial_timeout_ms: Time without another byte after which a connection with an incomplete frame is closed.
            This also ends half-open connections.
        write_buffer_bytes: Response bytes that a client has not read yet; beyond the limit its next request waits.
        write_stall_timeout_ms: Time after which a connection is closed if its client reads no response.
    """

    max_connections: int = 20_000
    max_connections_per_ip: int = 2**31 - 1
    max_request_bytes: int = 104_857_600
    queued_max_bytes: int = 268_435_456
    idle_timeout_ms: int = 600_000
    partial_timeout_ms: int = 30_000
    write_buffer_bytes: int = 1_048_576
    write_stall_timeout_ms: int = 60_000
