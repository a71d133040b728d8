"""One fault that waits for its event."""

import asyncio
from collections.abc import Callable
from typing import Any

from nemesis.events import EventSource
from nemesis.fault import Fault


class Waiting:
    """Waits for the event of one fault, and then for its delay. Mutable; made in a running event loop.

    Args:
        fault: A fault with a trigger. Events count from now on.
        events: Where events come from.
        now_ns: The clock of the run.
    """

    def __init__(self, fault: Fault, events: EventSource, now_ns: Callable[[], int]) -> None:
        assert fault.trigger is not None
        self._fault = fault
        self._now_ns = now_ns
        self._seen = 0
        self._event_ns: int | None = None
        self._loop = asyncio.get_running_loop()
        self._begins: asyncio.Future[bool] = self._loop.create_future()
        self._stop_watching = events.watch(fault.trigger, self._happened)

    async def has_come(self) -> bool:
        """Returns when the fault is to begin, or when it is too late; the result is whether it begins."""
        return await self._begins

    def end(self) -> None:
        """Ends the waiting, also if the event has happened and the delay is not over."""
        self._stop_watching()
        self._decide(begins=False)

    def why_not(self) -> str:
        """Returns why the fault did not begin, as a sentence without its end."""
        event = f"the event {self._fault.on!r}"
        if self._event_ns is not None:
            return f"the main phase ended less than {self._fault.delay_ms} ms after {event}"
        if self._fault.nth == 1:
            return f"{event} did not happen"
        return f"{event} happened {self._seen} of {self._fault.nth} times"

    def evidence(self) -> dict[str, Any]:
        """Returns what began the fault, and when it happened; empty if nothing did."""
        if self._event_ns is None:
            return {}
        return {"event": self._fault.on, "event_ns": self._event_ns}

    def _happened(self) -> None:
        """Counts an event; called within the node in which it happened."""
        self._seen += 1
        if self._seen == self._fault.nth:
            self._stop_watching()
            self._event_ns = self._now_ns()
            # In the simulation, nodes have loops of their own.
            self._loop.call_soon(self._wait_for_delay)

    def _wait_for_delay(self) -> None:
        if self._fault.delay_ms:
            self._loop.call_later(self._fault.delay_ms / 1e3, self._decide)
        else:
            self._decide()

    def _decide(self, *, begins: bool = True) -> None:
        if not self._begins.done():
            self._begins.set_result(begins)
