"""DescribeTransactions and ListTransactions (KIP-664, patterns: KIP-1152).

Source:
    Kafka's `TransactionCoordinator.handleDescribeTransactions` and `handleListTransactions`.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from system_under_test.broker.transaction_coordinator import TransactionCoordinator
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    describe_transactions_request,
    describe_transactions_response,
    list_transactions_request,
    list_transactions_response,
    millis,
)
from system_under_test.runtime import Host, RequestContext
from system_under_test.transaction.transaction import Transaction, TransactionState

_EPOCH = datetime.fromtimestamp(0, UTC)
_LABELS = {state.label for state in TransactionState}


class TransactionQueries:
    """Serves requests about the transactional ids that this broker coordinates.

    Args:
        host: Has the clock.
        coordinator: Has the transactional ids.
    """

    def __init__(self, host: Host, coordinator: TransactionCoordinator) -> None:
        self._host = host
        self._coordinator = coordinator

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request."""
        return {
            describe_transactions_request.DescribeTransactionsRequest: self._describe,
            list_transactions_request.ListTransactionsRequest: self._list,
        }

    def _describe(self, request: Any, _context: RequestContext) -> Any:
        return describe_transactions_response.DescribeTransactionsResponse(
            throttle_time=NO_THROTTLE,
            transaction_states=tuple(self._description(one) for one in request.transactional_ids),
        )

    def _description(self, transactional_id: str) -> Any:
        if not transactional_id:
            return _described(transactional_id, ErrorCode.INVALID_REQUEST)
        shard = self._coordinator.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return _described(transactional_id, shard)
        entry = shard.entries.get(transactional_id)
        if entry is None:
            return _described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return _described(transactional_id, ErrorCode.NONE, entry.transaction)

    def _list(self, request: Any, _context: RequestContext) -> Any:
        shards = [shard for _, shard in sorted(self._coordinator.shards.items())]
        is_loading = any(not shard.is_loaded for shard in shards if shard.is_current)
        unknown = tuple(one for one in request.state_filters if one not in _LABELS)
        now_ms = self._host.clock.wall_ms()
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        try:
            pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
        except re.error:
            return _listed(ErrorCode.INVALID_REGULAR_EXPRESSION)
        found = [
            entry.transaction
            for shard in shards
            if shard.is_current and not is_loading
            for entry in shard.entries.values()
            if pattern.fullmatch(entry.transaction.transactional_id)
            and _is_wanted(entry.transaction, request, now_ms)
        ]
        return _listed(error, unknown, found)


def _listed(
    error: ErrorCode, unknown: Sequence[str] = (), found: Sequence[Transaction] = ()
) -> Any:
    return list_transactions_response.ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        unknown_state_filters=tuple(unknown),
        transaction_states=tuple(
            list_transactions_response.TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for one in found
        ),
    )


def _is_wanted(one: Transaction, request: Any, now_ms: int) -> bool:
    if request.state_filters and one.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and one.producer_id not in request.producer_id_filters:
        return False
    return bool(
        request.duration_filter < 0
        or (one.started_ms >= 0 and now_ms - one.started_ms > request.duration_filter)
    )


def _described(transactional_id: str, error: ErrorCode, found: Transaction | None = None) -> Any:
    by_topic: dict[str, list[int]] = {}
    for topic, index in found.partitions if found is not None else ():
        by_topic.setdefault(topic, []).append(index)
    # Kafka reports -1 where there is no time, which kio cannot read.
    started_ms = 0 if found is None else max(found.started_ms, 0)
    return describe_transactions_response.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if found is None else found.state.label,
        transaction_timeout=millis(0 if found is None else found.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=started_ms),
        producer_id=0 if found is None else found.producer_id,
        producer_epoch=0 if found is None else found.producer_epoch,
        topics=tuple(
            describe_transactions_response.TopicData(topic=topic, partitions=tuple(indexes))
            for topic, indexes in by_topic.items()
        ),
    )
