"""What a transaction coordinator does by itself: aborts slow transactions, forgets unused transactional ids.

Source:
    Kafka's `TransactionCoordinator.abortTimedOutTransactions` and
    `TransactionStateManager.removeExpiredTransactionalIds`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transaction_shard import Entry, TransactionShard
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.runtime import Host
from system_under_test.transaction.transaction import TransactionState

Abort = Callable[[TransactionShard, Entry], Coroutine[Any, Any, None]]
"""Aborts a transaction that nothing else may change any more, and fences its producer."""


class TransactionDeadlines:
    """Looks for timeouts at Kafka's intervals.

    Args:
        host: The node's interfaces to the outside.
        config: Settings, rules, timings.
        shards: The partitions of `__transaction_state` that this broker leads; changed by the coordinator.
        abort: Aborts a transaction.
        scope: Runs the tasks.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        shards: Mapping[int, TransactionShard],
        *,
        abort: Abort,
        scope: TaskScope,
    ) -> None:
        self._host = host
        self._config = config
        self._shards = shards
        self._abort = abort
        self._scope = scope
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Starts the timers; idempotent."""
        if self._timers:
            return
        timings = self._config.timings
        self._every(
            "timeouts",
            timings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.abort_timed_out,
        )
        self._every(
            "expiration",
            timings.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.expire_ids,
        )

    def stop(self) -> None:
        """Stops the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, period_ms: int, task: Callable[[], None]) -> None:
        def run() -> None:
            arm()
            task()

        def arm() -> None:
            self._timers[name] = asyncio.get_running_loop().call_later(period_ms / 1000, run)

        arm()

    def abort_timed_out(self) -> None:
        """Aborts the transactions that exceed their timeout (TXN-11)."""
        if not self._config.rules("TXN-11"):
            return
        now_ms = self._host.clock.wall_ms()
        for shard in self._loaded():
            for entry in shard.entries.values():
                found = entry.transaction
                if (
                    found.state is TransactionState.ONGOING
                    and not entry.is_changing
                    and now_ms > found.started_ms + found.timeout_ms
                ):
                    self._host.observer.mark(
                        "transaction-timed-out",
                        transactional_id=found.transactional_id,
                        producer_id=found.producer_id,
                        producer_epoch=found.producer_epoch,
                    )
                    # From here on nothing else may change it, also before the task runs.
                    entry.is_changing = True
                    self._scope.spawn(self._abort(shard, entry), "abort-timed-out-transaction")

    def expire_ids(self) -> None:
        """Forgets transactional ids that had no transaction for transactional.id.expiration.ms."""
        limit_ms = self._config.transaction.transactional_id_expiration_ms
        oldest_ms = self._host.clock.wall_ms() - limit_ms
        for shard in self._loaded():
            expired = [
                (transactional_id, entry)
                for transactional_id, entry in shard.entries.items()
                if _is_idle(entry) and entry.transaction.changed_ms < oldest_ms
            ]
            for _, entry in expired:
                entry.is_changing = True
            if expired:
                self._scope.spawn(_remove(shard, expired), "expire-transactional-ids")

    def _loaded(self) -> list[TransactionShard]:
        return [shard for _, shard in sorted(self._shards.items()) if shard.is_loaded]


def _is_idle(entry: Entry) -> bool:
    state = entry.transaction.state
    return not entry.is_changing and (state is TransactionState.EMPTY or state.is_complete)


async def _remove(shard: TransactionShard, expired: list[tuple[str, Entry]]) -> None:
    error = await shard.remove([transactional_id for transactional_id, _ in expired])
    for transactional_id, entry in expired:
        entry.is_changing = False
        if error is ErrorCode.NONE:
            del shard.entries[transactional_id]
