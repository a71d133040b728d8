"""How much strangers may take: bounds on connections, memory and time of one node's listener."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a listener, with Kafka's names and defaults where it has them.

    Attributes:
        max_connections: Of the whole node; a connection beyond it is closed at once (`max.connections`).
        max_connections_per_ip: Of one address (`max.connections.per.ip`).
        max_request_bytes: A frame that announces more closes its connection (`socket.request.max.bytes`).
        queued_max_bytes: Received and not yet handled, over all connections; beyond it nothing more is read from
            connections that have a whole request waiting (`queued.max.request.bytes`).
        idle_timeout_ms: A connection on which nothing happens for so long is closed (`connections.max.idle.ms`).
        partial_timeout_ms: So long may a begun frame go without another byte; half-open connections end here.
        write_buffer_bytes: Answers that a reader has not taken yet; beyond it his next request waits.
        write_stall_timeout_ms: So long may a reader take nothing before his connection is closed.
    """

    max_connections: int = 20_000
    max_connections_per_ip: int = 2**31 - 1
    max_request_bytes: int = 104_857_600
    queued_max_bytes: int = 268_435_456
    idle_timeout_ms: int = 600_000
    partial_timeout_ms: int = 30_000
    write_buffer_bytes: int = 1_048_576
    write_stall_timeout_ms: int = 60_000
