"""The AlterPartition client of a broker (AP-1 ... AP-4).

One request at a time contains every proposal that is queued; one proposal per partition may be queued or in
flight. A proposal stays queued until the controller has decided about its partition: connection loss, a top-level
error and NOT_CONTROLLER mean that there was no decision, and it is sent again (AP-3). The partition applies the
response (AP-4), under the epoch it has by then.
"""

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

from system_under_test.broker.channel import Channel
from system_under_test.broker.interfaces import IsrProposal, IsrResponse
from system_under_test.broker.tasks import Waker
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import alter_partition_request, alter_partition_response
from system_under_test.runtime import Host

_Key = tuple[UUID, int]


class _Item:
    """One queued proposal."""

    __slots__ = ("on_response", "proposal")

    def __init__(self, proposal: IsrProposal, on_response: Callable[[IsrResponse], None]) -> None:
        self.proposal = proposal
        self.on_response = on_response


class AlterPartitionManager:
    """Queues ISR proposals and sends them to the active controller; implements `AlterPartitionControl`.

    Args:
        host: The node's interfaces to the outside.
        config: Node id and timings.
        channel: A channel to the active controller that nothing else uses (AP-2).
        broker_epoch: Returns the epoch of this incarnation.
    """

    def __init__(
        self, host: Host, config: NodeConfig, channel: Channel, broker_epoch: Callable[[], int]
    ) -> None:
        self._observer = host.observer
        self._rules = config.rules
        self._node_id = config.node_id
        self._timings = config.timings
        self.channel = channel
        self._broker_epoch = broker_epoch
        self._items: dict[_Key, _Item] = {}
        self._waker = Waker()

    @property
    def pending_count(self) -> int:
        """Proposals that are queued or in flight."""
        return len(self._items)

    def submit(self, proposal: IsrProposal, on_response: Callable[[IsrResponse], None]) -> bool:
        """Queues a proposal; False when one is already queued or in flight for the partition."""
        key = (proposal.topic_id, proposal.partition)
        if key in self._items:  # [AP-2]
            return False
        self._items[key] = _Item(proposal, on_response)
        self._waker.wake()
        return True

    async def run(self) -> None:
        """Sends proposals until cancelled."""
        while True:
            if not self._items:
                await self._waker.wait(None)
                continue
            if not await self._send_all():
                # [AP-3] 50 ms in Kafka. Also after an error for a single partition, whose owner may have
                # proposed again already: a controller that refuses must not be called in a tight loop.
                await asyncio.sleep(self._timings.alter_partition_retry_ms / 1000)

    async def _send_all(self) -> bool:
        """Sends what is queued; returns whether every proposal sent was accepted."""
        sent = dict(self._items)
        request = build_request(
            self._node_id, self._broker_epoch(), [item.proposal for item in sent.values()]
        )
        try:
            # [AP-3] A proposal has no timeout; a silent connection has, or a stalled one would hold the
            # ISR for ever (Kafka: controller.socket.timeout.ms).
            response = await self.channel.send(request, self._timings.replica_socket_timeout_ms)
        except (ConnectionError, TimeoutError):
            self._give_up(sent)
            return False
        if response.error_code != ErrorCode.NONE:
            self._observer.mark("alter-partition-refused", error=int(response.error_code))
            self._give_up(sent)
            return False
        decisions = read_response(response)
        accepted = True
        for key, item in sent.items():
            decision = decisions.get(key)
            if decision is None or decision.error == ErrorCode.NOT_CONTROLLER:
                accepted = False  # stays queued
                self._give_up((key,))
                continue
            accepted = accepted and decision.error == ErrorCode.NONE
            # Out of the queue first: the owner may propose again from within its callback.
            del self._items[key]
            item.on_response(decision)
        return accepted

    def _give_up(self, keys: Iterable[_Key]) -> None:
        """Without AP-3: drops proposals that nobody decided about, which stay pending for ever (KAFKA-14010)."""
        if not self._rules("AP-3"):
            for key in keys:
                self._items.pop(key, None)


def build_request(
    broker_id: int, broker_epoch: int, proposals: list[IsrProposal]
) -> alter_partition_request.AlterPartitionRequest:
    """Returns the request with the proposals, grouped by topic (AP-1)."""
    by_topic: dict[UUID, list[alter_partition_request.PartitionData]] = {}
    for proposal in proposals:
        by_topic.setdefault(proposal.topic_id, []).append(
            alter_partition_request.PartitionData(
                partition_index=proposal.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=tuple(
                    alter_partition_request.BrokerState(broker_id=member, broker_epoch=epoch)
                    for member, epoch in proposal.isr_with_epochs
                ),
                leader_recovery_state=proposal.leader_recovery_state,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return alter_partition_request.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=tuple(
            alter_partition_request.TopicData(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
    )


def read_response(
    response: alter_partition_response.AlterPartitionResponse,
) -> dict[_Key, IsrResponse]:
    """Returns the partition-level parts of a response by topic id and partition."""
    return {
        (topic.topic_id, data.partition_index): IsrResponse(
            error=ErrorCode(int(data.error_code)),
            leader_id=data.leader_id,
            leader_epoch=data.leader_epoch,
            isr=tuple(data.isr),
            leader_recovery_state=data.leader_recovery_state,
            partition_epoch=data.partition_epoch,
        )
        for topic in response.topics
        for data in topic.partitions
    }
