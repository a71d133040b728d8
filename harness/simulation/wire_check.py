"""Sends a sample of the messages through the codec of the hosted system.

Messages pass the simulated network by reference. A message that cannot be encoded, or that is decoded to another
message, would hide a bug of the system. So a sample of the messages, or all of them, is encoded and decoded.
"""

from random import Random
from typing import Any, Protocol

from harness.simulation.errors import CodecMismatch
from harness.simulation.timeline import Timeline

_NEVER = 1 << 62


class MessageCodec(Protocol):
    """Encodes and decodes the messages of the hosted system."""

    def covers(self, message_type: type[Any]) -> bool:
        """Whether messages of this type have a wire form. Others are passed by reference."""
        ...

    def encode(self, message: Any) -> bytes:
        """Returns the wire form of a message. May raise any exception if there is none."""
        ...

    def decode(self, message_type: type[Any], data: bytes) -> Any:
        """Returns the message of a wire form. May raise any exception if there is none."""
        ...


class WireCheck:
    """Chooses the messages that go through the codec, and reports those that do not survive it.

    Args:
        timeline: Receives the failures and provides the random numbers.
        codec: The codec; None if no message has a wire form.
        sample: Share of the messages that go through the codec; 1.0 for all.

    Attributes:
        until_next: Counts down to the next message that goes through the codec. The caller decrements it for
            every message, and calls `apply` when it is negative.
        count: Number of messages that went through the codec.
    """

    __slots__ = ("_codec", "_random", "_sample", "_timeline", "count", "until_next")

    def __init__(self, timeline: Timeline, codec: MessageCodec | None, sample: float) -> None:
        self._timeline = timeline
        self._codec = codec
        self._sample = sample
        self._random: Random = timeline.random.stream("wire")
        self.count = 0
        self.until_next = self._draw_next()

    def apply(self, message: Any) -> Any:
        """Encodes and decodes a message, and returns what the receiver would have decoded.

        Messages that the codec does not cover (tests send some) are returned unchanged.
        """
        self.until_next = self._draw_next()
        kind = type(message)
        codec = self._codec
        if codec is None or not codec.covers(kind):
            return message
        self.count += 1
        try:
            decoded = codec.decode(kind, codec.encode(message))
        except Exception as error:  # whatever a codec raises, the message could not have been sent
            mismatch = CodecMismatch(f"{kind.__name__} has no wire form: {error!r}")
            mismatch.__cause__ = error
            self._timeline.fail(mismatch)
            return message
        if decoded != message:
            self._timeline.fail(
                CodecMismatch(f"{kind.__name__} changed on the wire: {message} {decoded}")
            )
        return decoded

    def _draw_next(self) -> int:
        if self._codec is None or self._sample <= 0.0:
            return _NEVER
        if self._sample >= 1.0:
            return 0
        return int(self._random.expovariate(self._sample))
