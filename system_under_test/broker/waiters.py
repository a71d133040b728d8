"""What waits for a partition: produce requests with acks=all, and parked fetches.

A produce request waits until the high watermark has passed its last record, a fetch until there is something to
read. The partition decides when that is the case; this module keeps the order and notifies.

A request may complete, and leave the lists, while it is notified. Every walk is therefore over a copy, or removes
what it has passed.
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from system_under_test.broker.produce_wait import ProduceWait
from system_under_test.protocol.errors import ErrorCode


class FetchWait(Protocol):
    """A partition's part of a parked fetch."""

    def bound_moved(self, bound: int) -> None:
        """The offset below which the request may read is now `bound`."""
        ...

    def role_changed(self) -> None:
        """The role or the leader epoch changed."""
        ...


class DeletionWait(Protocol):
    """A partition's part of a parked DeleteRecords request."""

    def low_watermark_is(self, low_watermark: int) -> bool:
        """All replicas that are alive begin at `low_watermark` or later; returns whether that is enough."""
        ...

    def complete(self, error: ErrorCode) -> None:
        """Completes the part with an error."""
        ...


class Waiters:
    """The waiting parts of requests for one partition. Mutable.

    Attributes:
        produces: acks=all appends in the order of their offsets.
        follower_fetches: Parked fetches of followers by the number of their operation.
        consumer_fetches: Those of consumers.
        deletions: DeleteRecords requests.
    """

    __slots__ = ("consumer_fetches", "deletions", "follower_fetches", "produces")

    def __init__(self) -> None:
        self.produces: deque[ProduceWait] = deque()
        self.follower_fetches: dict[int, FetchWait] = {}
        self.consumer_fetches: dict[int, FetchWait] = {}
        self.deletions: list[DeletionWait] = []

    def add_produce(self, wait: ProduceWait) -> None:
        """Adds an acks=all append."""
        waits = self.produces
        index = len(waits)
        # A repeated batch lies below what others wait for.
        while index and waits[index - 1].required_offset > wait.required_offset:
            index -= 1
        waits.insert(index, wait)

    def take_committed(self, high_watermark: int) -> Iterator[ProduceWait]:
        """Removes and yields the appends that a high watermark has passed and that still wait."""
        waits = self.produces
        while waits and waits[0].required_offset <= high_watermark:
            wait = waits.popleft()
            if not wait.is_done:
                yield wait

    def fail_produces(self, error: ErrorCode) -> None:
        """Completes every append that waits with an error."""
        waits, self.produces = self.produces, deque()
        for wait in waits:
            if not wait.is_done:
                wait.complete(error)

    def low_watermark_is(self, low_watermark: int) -> None:
        """Completes the deletions that a low watermark has reached."""
        waits, self.deletions = self.deletions, []
        self.deletions = [wait for wait in waits if not wait.low_watermark_is(low_watermark)]

    def fail_deletions(self, error: ErrorCode) -> None:
        """Completes every deletion that waits with an error."""
        waits, self.deletions = self.deletions, []
        for wait in waits:
            wait.complete(error)

    def wake_followers(self, bound: int) -> None:
        """Notifies the parked fetches of followers that they may read below `bound`."""
        for wait in list(self.follower_fetches.values()):
            wait.bound_moved(bound)

    def wake_consumers(self, bound: int) -> None:
        """Notifies the parked fetches of consumers that they may read below `bound`."""
        for wait in list(self.consumer_fetches.values()):
            wait.bound_moved(bound)

    def role_changed(self) -> None:
        """Makes every parked fetch read again, because the role or the leader epoch changed."""
        for waits in (self.follower_fetches, self.consumer_fetches):
            for wait in list(waits.values()):
                wait.role_changed()
