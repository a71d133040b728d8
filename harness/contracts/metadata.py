"""Committed metadata as the harness sees it: the only thing scenarios and nemeses ever wait for.

A cluster (simulated or real) feeds committed changes in order of their offsets; all other code reads the
view or waits for a condition on it. Nothing here depends on how the cluster is reached.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition in committed metadata. Broker ids are numbers; -1 is "no leader"."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    min_isr: int = 1

    @property
    def name(self) -> str:
        """The partition's name, for example "t-0"."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker registration in committed metadata."""

    broker: int
    broker_epoch: int
    fenced: bool
    in_controlled_shutdown: bool


@dataclass(slots=True)
class CommittedMetadata:
    """The newest committed metadata, and callbacks for waiters. Mutable; one per cluster.

    Attributes:
        offset: Offset of the newest record that was applied; -1 before the first.
        active_controller: Last known node id of the quorum leader, -1 if unknown.
    """

    partitions: dict[str, PartitionState] = field(default_factory=dict)
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    offset: int = -1
    active_controller: int = -1
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after every change."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Stops calling `callback`."""
        self._watchers.remove(callback)

    async def comes_to(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Waits for a condition on this metadata for a limited time; returns whether it came true."""
        if condition():
            return True
        here = asyncio.get_running_loop()
        came_true: asyncio.Future[None] = here.create_future()

        def check() -> None:
            # Metadata may change on another loop.
            if not came_true.done() and condition():
                here.call_soon(_finish, came_true)

        self.watch(check)
        try:
            await asyncio.wait_for(came_true, limit_ms / 1e3)
        except TimeoutError:
            return False
        finally:
            self.unwatch(check)
        return True

    def changed(self) -> None:
        """Calls the watchers; called by the cluster after it changed the view."""
        for callback in tuple(self._watchers):
            callback()

    def is_fenced(self, broker: int) -> bool:
        """Whether the broker is fenced or unknown."""
        state = self.brokers.get(broker)
        return state is None or state.fenced

    def broker_epoch(self, broker: int) -> int:
        """The epoch of the broker's newest registration; -1 if it never registered."""
        state = self.brokers.get(broker)
        return -1 if state is None else state.broker_epoch


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
