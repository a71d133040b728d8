"""Waiting for the event that begins a fault, or for the one that heals it."""

import asyncio
from collections.abc import Callable
from typing import Any

from nemesis.events import EventSource
from nemesis.trigger import Trigger


class Waiting:
    """Waits for an event, and then for a delay. Mutable; made in a running event loop.

    Args:
        trigger: The event. It counts from now on.
        events: Where events come from.
        now_ns: The clock of the run.
        nth: Which occurrence of the event is waited for, counted from 1.
        delay_ms: The delay.
    """

    def __init__(
        self,
        trigger: Trigger,
        events: EventSource,
        now_ns: Callable[[], int],
        *,
        nth: int = 1,
        delay_ms: int = 0,
    ) -> None:
        self._trigger, self._nth, self._delay_ms = trigger, nth, delay_ms
        self._now_ns = now_ns
        self._seen = 0
        self._event_ns: int | None = None
        self._loop = asyncio.get_running_loop()
        self._decided: asyncio.Future[bool] = self._loop.create_future()
        self._stop_watching = events.watch(trigger, self._happened)

    async def has_come(self) -> bool:
        """Returns when event and delay are over, or when it is too late; the result is which of the two."""
        return await self._decided

    def end(self) -> None:
        """Ends the waiting, also if the event has happened and the delay is not over."""
        self._stop_watching()
        self._decide(has_come=False)

    def why_not(self) -> str:
        """Returns why the fault did not begin, as a sentence without its end."""
        event = f"the event {self._trigger.text()!r}"
        if self._event_ns is not None:
            return f"the main phase ended less than {self._delay_ms} ms after {event}"
        if self._nth == 1:
            return f"{event} did not happen"
        return f"{event} happened {self._seen} of {self._nth} times"

    def evidence(self, name: str) -> dict[str, Any]:
        """Returns the event and when it happened, under a name; empty if it did not happen."""
        if self._event_ns is None:
            return {}
        return {name: self._trigger.text(), f"{name}_ns": self._event_ns}

    def _happened(self) -> None:
        """Counts an event; called within the node in which it happened."""
        self._seen += 1
        if self._seen == self._nth:
            self._stop_watching()
            self._event_ns = self._now_ns()
            # In the simulation, nodes have loops of their own.
            self._loop.call_soon(self._wait_for_delay)

    def _wait_for_delay(self) -> None:
        if self._delay_ms:
            self._loop.call_later(self._delay_ms / 1e3, self._decide)
        else:
            self._decide()

    def _decide(self, *, has_come: bool = True) -> None:
        if not self._decided.done():
            self._decided.set_result(has_come)
