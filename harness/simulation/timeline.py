"""The timeline of one run: virtual time, the events that are due, random numbers, the trace, and failures.

Every part of the simulated world is built on it. Time is an integer number of nanoseconds since the run began.
The events of all nodes are on one heap, ordered by time. Events with equal times come first in, first out, or in
an order that is drawn (`Weather.shuffle_ties`).
"""

import contextlib
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from harness.simulation.randomness import RandomTree
from harness.simulation.trace import Trace
from harness.simulation.weather import Weather

COMPACTION_MIN = 256
"""The heap is not searched for cancelled timers while it has fewer of them than this."""

Event = tuple[int, int, int, Callable[[Any], object] | None, Any]
"""Time, tie breaker, sequence number, and a function with its argument; without a function, a `TimerHandle`."""


class Handle:
    """A callback that will be called. `cancel` sets `callback` to None."""

    __slots__ = ("args", "callback", "context")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        """Prevents the call; idempotent."""
        self.callback = None
        self.args = ()
        self.context = None

    def cancelled(self) -> bool:
        """Whether the handle was cancelled."""
        return self.callback is None


class TimerOwner(Protocol):
    """An event loop whose timers are on the heap."""

    def accept(self, handle: "TimerHandle", /) -> None:
        """Takes a timer that is due."""
        ...


class TimerHandle(Handle):
    """A callback that waits for its time.

    `timeline` is set only while the handle is on the heap, so that `cancel` can count the cancelled entries of
    the heap. `loop` is None for events that belong to no node.
    """

    __slots__ = ("loop", "timeline", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        loop: TimerOwner | None = None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.loop = loop
        self.when_s = 0.0
        self.timeline: Timeline | None = None

    def cancel(self) -> None:
        """Prevents the call; idempotent."""
        self.callback = None
        self.args = ()
        self.context = None
        if self.timeline is not None:
            self.timeline.count_dead_timer()
            self.timeline = None

    def when(self) -> float:
        """Returns the loop time for which the timer was set, in seconds."""
        return self.when_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A reason to end a run: a broken invariant, an unexpected crash, or a forbidden access to the real machine.

    Attributes:
        at_ns: When it happened, in nanoseconds since the run began.
        node: The node on which it happened; None if it concerns no particular node.
        error: The exception.
    """

    at_ns: int
    node: str | None
    error: BaseException


class _Inspection:
    """The time in which the harness reads through node interfaces. A class, because it is entered often."""

    __slots__ = ("_timeline",)

    def __init__(self, timeline: "Timeline") -> None:
        self._timeline = timeline

    def __enter__(self) -> None:
        self._timeline.is_inspected = True

    def __exit__(self, *_: object) -> None:
        self._timeline.is_inspected = False


class MessageWatcher(Protocol):
    """Sees the messages of a run that is repeated to show them."""

    def sent(
        self, at_ns: int, key: tuple[object, object], src: str, dst: str, message: object
    ) -> None:
        """Notes a message; `key` identifies it while it is on its way. May be called twice for one message."""
        ...

    def arrived(self, at_ns: int, key: tuple[object, object]) -> None:
        """Notes that a message arrived."""
        ...


class WorldListener(Protocol):
    """Hears what happens in the world at the moment when it happens, to begin faults at that time.

    It must return at once and change nothing; what it starts runs later at the same virtual time.

    Attributes:
        hears_messages: Whether it wants messages. Decided before the first connection.
    """

    hears_messages: bool

    def sync_began(self, node: str, /) -> None:
        """Takes an fsync of a process that began."""
        ...

    def message_sent(self, source: str, target: str, message: object, /) -> None:
        """Takes a message that left its sender."""
        ...

    def message_received(self, source: str, target: str, message: object, /) -> None:
        """Takes a message that arrived and that its receiver has not processed."""
        ...


class Timeline:
    """The time, the events, the random numbers and the trace of one run.

    Args:
        seed: Determines every random draw.
        weather: The irregularities of the run.
        keep_trace: Whether to keep the text of the trace, to compare two runs line by line.

    Attributes:
        now: True time in nanoseconds since the run began.
        failures: All failures, oldest first.
        messages: Number of frames that arrived.
        last_arrived: The type of the frame that arrived last, by node.
        events: Number of events that were due.
        is_running: Whether `World.run` is active.
        is_inspected: Whether the harness, not a node, uses the node interfaces at the moment.
        watcher: Sees messages, if it was set before the first connection; it must not change anything.
        listener: Hears what happens, if it was set.
    """

    # Slots, because every event and every message reads or changes several of these.
    __slots__ = (
        "_dead_timers",
        "_heap",
        "_sequence",
        "_shuffles",
        "_task_number",
        "_tie",
        "events",
        "failures",
        "is_inspected",
        "is_running",
        "last_arrived",
        "listener",
        "messages",
        "now",
        "random",
        "seed",
        "trace",
        "watcher",
        "weather",
    )

    def __init__(self, seed: int, *, weather: Weather, keep_trace: bool) -> None:
        self.seed = seed
        self.weather = weather
        self.now = 0
        self.random = RandomTree(seed, buggify=weather.buggify)
        self.trace = Trace(keep=keep_trace)
        self.failures: list[Failure] = []
        self.watcher: MessageWatcher | None = None
        self.listener: WorldListener | None = None
        self.messages = 0
        self.last_arrived: dict[str, type] = {}
        self.events = 0
        self.is_running = False
        self.is_inspected = False
        self._heap: list[Event] = []
        self._dead_timers = 0
        self._sequence = 0
        self._shuffles = weather.shuffle_ties
        self._tie = self.random.stream("tie").getrandbits
        self._task_number = 0

    def next_task_number(self) -> int:
        """Returns the number of the next asyncio task of the run."""
        self._task_number += 1
        return self._task_number

    def push(self, when_ns: int, function: Callable[[Any], object] | None, argument: Any) -> None:
        """Adds an event that cannot be cancelled, or, if `function` is None, a `TimerHandle`."""
        self._sequence = sequence = self._sequence + 1
        tie = self._tie(16) if self._shuffles else 0
        heappush(self._heap, (when_ns, tie, sequence, function, argument))

    def schedule(self, at_ns: int, fn: Callable[..., object], *args: Any) -> TimerHandle:
        """Adds an event that belongs to no node, such as a fault. The pause of a node does not delay it."""
        handle = TimerHandle(fn, args, None)
        handle.timeline = self
        self.push(max(at_ns, self.now), None, handle)
        return handle

    def count_dead_timer(self) -> None:
        """Counts a cancelled entry of the heap, and removes all of them when they are the majority.

        With a timeout of 1 s around calls of 1 ms, the heap would hold a hundred cancelled timers per live one.
        """
        self._dead_timers += 1
        if self._dead_timers > COMPACTION_MIN and self._dead_timers * 2 > len(self._heap):
            self._heap[:] = [e for e in self._heap if e[3] is not None or e[4].callback is not None]
            heapify(self._heap)
            self._dead_timers = 0

    def retime(self, loop: TimerOwner, true_ns_at: Callable[[float], int]) -> None:
        """Moves the timers of a loop after its clock changed.

        Args:
            loop: The owner of the timers.
            true_ns_at: Converts a time of its clock, in seconds, to true time.
        """
        moved: list[Event] = []
        for event in self._heap:
            when_ns, tie, sequence, function, argument = event
            if function is None and argument.loop is loop and argument.when_s:
                when_ns = max(self.now, true_ns_at(argument.when_s))
                event = (when_ns, tie, sequence, function, argument)
            moved.append(event)
        heapify(moved)
        self._heap[:] = moved

    def _take_due_events(self, when: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= when:
            _, _, _, function, argument = heappop(heap)
            self.events += 1
            if function is not None:
                function(argument)
                continue
            callback = argument.callback
            if callback is None:
                self._dead_timers -= 1
                continue
            argument.timeline = None
            if argument.loop is None:
                self._leave_nodes()
                callback(*argument.args)
            else:
                argument.loop.accept(argument)

    def _leave_nodes(self) -> None:
        """Is called before an event that belongs to no node."""

    def inspecting(self) -> contextlib.AbstractContextManager[None]:
        """Lets the harness read through node interfaces: disk faults neither apply nor are counted."""
        return _Inspection(self)

    def fail(self, error: BaseException, node: str | None = None) -> None:
        """Records that the run failed."""
        self.failures.append(Failure(at_ns=self.now, node=node, error=error))
