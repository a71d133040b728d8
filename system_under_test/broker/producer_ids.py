"""InitProducerId: every idempotent producer gets an id that no other one has or had.

Ids come from a block that the active controller has given to this broker (KIP-730); the next block is
requested before the present one is used up. A restart discards the rest of a block.

The transaction coordinator serves producers with a transactional id. Of others, the earlier id and epoch that a
producer names are ignored. It gets a new id, as in Kafka, whose brokers do not know the ids of producers without a
transactional id. An id without an epoch, or the reverse, is refused.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import Timings
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    allocate_producer_ids_request,
    init_producer_id_response,
)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
PREFETCH_AT = 100
"""The next block is requested when this many ids are left."""
WAITING_MAX = 10_000
"""Limit on the producers that wait at one broker; others get an error and retry."""


class ProducerIds:
    """Assigns producer ids on one broker.

    Args:
        broker_id: This broker.
        broker_epoch: Returns the epoch of this incarnation.
        channel: A channel to the active controller that nothing else uses.
        timings: Pauses and timeouts.
        scope: Runs the task that requests a block.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: Channel,
        timings: Timings,
        scope: TaskScope,
    ) -> None:
        self.channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._timings = timings
        self._scope = scope
        self._blocks: deque[range] = deque()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._is_requesting = False

    def handle(self, request: Any) -> Any:
        """Serves an InitProducerIdRequest, now or when a block has arrived."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return _response(ErrorCode.INVALID_REQUEST, NO_PRODUCER_ID)
        return self._assign()

    def _assign(self) -> Any:
        producer_id = self._next()
        if producer_id is not None:
            return _response(ErrorCode.NONE, producer_id)
        if len(self._waiting) >= WAITING_MAX:
            return _response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    async def next_id(self) -> int | None:
        """Returns a producer id that no other producer has, None if there is none for now."""
        response = self._assign()
        if isinstance(response, asyncio.Future):
            response = await response
        return None if response.error_code else int(response.producer_id)

    def stop(self) -> None:
        """Completes every waiting request with an error."""
        while self._waiting:
            self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_PRODUCER_ID)

    def _next(self) -> int | None:
        blocks = self._blocks
        left = sum(len(block) for block in blocks)
        if left <= PREFETCH_AT and not self._is_requesting:
            self._is_requesting = True
            self._scope.spawn(self._request_block(), "allocate-producer-ids")
        if not blocks:
            return None
        block = blocks.popleft()
        if len(block) > 1:
            blocks.appendleft(block[1:])
        return block[0]

    async def _request_block(self) -> None:
        """Requests a block until it has one; after a time limit completes the waiting requests with an error."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + self._timings.controller_quorum_request_timeout_ms / 1000 * 5
        try:
            while not await self._attempt():
                if loop.time() > limit_s:
                    while self._waiting:
                        self._finish(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID)
                    return
                await asyncio.sleep(self._timings.alter_partition_retry_ms / 1000)
        finally:
            self._is_requesting = False
        while self._waiting:
            producer_id = self._next()
            if producer_id is None:
                return  # more requests waited than a block has ids; the next block is on its way
            self._finish(ErrorCode.NONE, producer_id)

    async def _attempt(self) -> bool:
        request = allocate_producer_ids_request.AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            response = await self.channel.send(
                request, self._timings.controller_quorum_request_timeout_ms
            )
        except (ConnectionError, TimeoutError):
            return False
        if response.error_code != ErrorCode.NONE or response.producer_id_len < 1:
            return False
        first = response.producer_id_start
        self._blocks.append(range(first, first + response.producer_id_len))
        return True

    def _finish(self, error: ErrorCode, producer_id: int) -> None:
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(_response(error, producer_id))


def _response(error: ErrorCode, producer_id: int) -> Any:
    return init_producer_id_response.InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=0 if error == ErrorCode.NONE else -1,
    )
