"""A pipe that reports when messages are sent and when they arrive.

It serves runs that are watched and runs with faults that wait for a message. Other runs use `Pipe` itself, so
watching costs them nothing. What is reported changes nothing in the world: a watched run has the trace of the run
that it repeats.
"""

from harness.simulation.flight import FIN, Flight
from harness.simulation.pipe import Pipe
from harness.simulation.timeline import Timeline


class WatchedPipe(Pipe):
    """One direction of one connection, whose messages the watcher and the listener of the world get."""

    __slots__ = ()

    def push(self, frame: Flight) -> None:
        """Sends a frame."""
        watcher = self.timeline.watcher
        if watcher is not None and frame is not FIN:
            # A frozen process sends it again when it continues; the first time counts.
            key = (self, frame)
            watcher.sent(self.timeline.now, key, self.link.src, self.link.dst, self._message(frame))
        sender = self.sender
        is_leaving = sender.busy_until_ns <= self.timeline.now and not sender.frozen
        super().push(frame)
        listener = self.timeline.listener
        if listener is not None and is_leaving and frame is not FIN:
            listener.message_sent(self.link.src, self.link.dst, self._message(frame))

    def trace(self, frame: Flight) -> None:
        """Records an arrival and counts the message."""
        watcher = self.timeline.watcher
        if watcher is not None and frame is not FIN:
            watcher.arrived(self.timeline.now, (self, frame))
        super().trace(frame)
        listener = self.timeline.listener
        if listener is not None and frame is not FIN:
            listener.message_received(self.link.src, self.link.dst, self._message(frame))

    def _message(self, frame: Flight) -> object:
        return frame.response if self.is_reply else frame.message


def pipe_type(timeline: Timeline) -> type[Pipe]:
    """Returns the class of the pipes of a world."""
    listener = timeline.listener
    is_heard = listener is not None and listener.hears_messages
    return WatchedPipe if is_heard or timeline.watcher is not None else Pipe
