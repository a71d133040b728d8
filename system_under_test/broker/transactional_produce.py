"""Produce requests of transactional producers: finds the producers of the batches and passes them to the gate."""

from collections.abc import Callable
from functools import partial
from typing import Any

from system_under_test.broker.produce import ProduceHandler
from system_under_test.broker.produced_batch import sole_batch
from system_under_test.broker.transaction_gate import (
    ADDS_SINCE,
    KNOWS_ABORTABLE_SINCE,
    Producer,
    TransactionGate,
)
from system_under_test.protocol.record_batch import CorruptBatchError, header_at
from system_under_test.transaction.transaction import TopicPartition


def produce_gate(gate: TransactionGate, produce: ProduceHandler) -> Callable[[Any, int], Any]:
    """Returns what `ProduceHandler.gate` calls."""

    def pass_gate(request: Any, api_version: int) -> Any:
        return gate.check(
            request.transactional_id,
            _producers(request, api_version),
            adds=gate.adds_for(api_version, ADDS_SINCE),
            knows_abortable=not 0 <= api_version < KNOWS_ABORTABLE_SINCE,
            then=partial(produce.append, request, api_version),
        )

    return pass_gate


def _producers(request: Any, api_version: int) -> dict[TopicPartition, Producer]:
    """Returns the header of every transactional batch; what is malformed is refused later."""
    found: dict[TopicPartition, Producer] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = sole_batch(data.records or b"", api_version)
            if not isinstance(records, bytes):
                continue
            try:
                header = header_at(records, 0)
            except CorruptBatchError:
                continue
            if header.is_transactional:
                found[(topic.name, data.index)] = header
    return found
