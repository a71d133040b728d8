"""The frames that travel over simulated connections, and an estimate of their length on the wire."""

from dataclasses import fields, is_dataclass
from typing import Any, Final

MESSAGE_OVERHEAD_BYTES = 128


class Flight:
    """One request and its response.

    Attributes:
        message: The request.
        future: Receives the response; None for a request without a response.
        deadline_ns: True time at which the future fails.
        response: The response, once it exists.
        refusal: The response that the server gives instead of processing the request; usually None.
    """

    __slots__ = ("deadline_ns", "future", "message", "refusal", "response")

    def __init__(self, message: Any, future: Any, deadline_ns: int) -> None:
        self.message = message
        self.future = future
        self.deadline_ns = deadline_ns
        self.response: Any = None
        self.refusal: Any = None


FIN: Final = Flight(None, None, 0)
"""The end of the stream; the last frame of a pipe."""


def estimated_bytes(value: Any) -> int:
    """Estimates the length of a message on the wire without encoding it: its payloads and a constant."""
    return MESSAGE_OVERHEAD_BYTES + _payload_bytes(value)


def _payload_bytes(value: Any) -> int:
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(_payload_bytes(item) for item in value)
    if is_dataclass(value):
        return sum(_payload_bytes(getattr(value, field.name)) for field in fields(value))
    return 0
