"""A controller on fakes: virtual time, a quorum whose commits the test decides, and a small cluster's requests."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from system_under_test.config import FAST_TIMINGS, NodeConfig, Voter, profile_features
from system_under_test.controller.controller import Controller
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import LeaderChangeRecord, MetadataBatch, MetadataRecord
from system_under_test.raft.quorum import NotLeaderError
from system_under_test.rules import Rules
from system_under_test.runtime import RequestContext
from tests.controller_story import (
    CLUSTER_ID,
    alter_request,
    heartbeat_request,
    registration_request,
)

CONTEXT = RequestContext(peer="test", connection_id=1)
ME, OTHER = 11, 12


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when nothing is ready."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        due = [handle.when() for handle in self._scheduled if not handle.cancelled()]
        if not self._ready and due:
            self.now_s = max(self.now_s, min(due))
        super()._run_once()


def virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main())

    run.__name__ = main.__name__
    return run


class FakeClock:
    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    def wall_ms(self) -> int:
        raise AssertionError("a controller decides nothing by the wall clock")


class FakeRandom:
    def __init__(self) -> None:
        self.late_fencing = 0
        self._streams: dict[object, random.Random] = {}

    def stream(self, *name: str | int) -> random.Random:
        return self._streams.setdefault(name, random.Random(repr(name)))

    def buggify(self, name: str) -> bool:
        assert name == "late-fencing"
        self.late_fencing -= 1
        return self.late_fencing >= 0


class FakeObserver:
    def __init__(self) -> None:
        self.marks: list[str] = []
        self.committed: list[tuple[int, int, MetadataRecord]] = []

    def mark(self, name: str, **details: Any) -> None:
        self.marks.append(name)

    def metadata_committed(self, offset: int, quorum_epoch: int, record: MetadataRecord) -> None:
        self.committed.append((offset, quorum_epoch, record))


class FakeHost:
    name = "c11"

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.random = FakeRandom()
        self.observer = FakeObserver()


class FakeQuorum:
    """A log whose commits the test decides; commits at once while `auto` is on."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.batches: list[MetadataBatch] = []
        self.delivered = 0
        self.epoch = 0
        self.leads = False
        self.auto = True

    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append(self, records) -> int:
        if not self.leads:
            raise NotLeaderError("not the leader")
        return self.put(records)

    def put(self, records) -> int:
        batch = MetadataBatch(
            base_offset=self.next_offset(), quorum_epoch=self.epoch, records=tuple(records)
        )
        self.batches.append(batch)
        if self.auto:
            asyncio.get_running_loop().call_soon(self.commit)
        return batch.last_offset

    def commit(self) -> None:
        batches = self.batches[self.delivered :]
        self.delivered = len(self.batches)
        if batches:
            self.controller.on_commit(batches)

    def lead(self, epoch: int) -> None:
        self.epoch, self.leads = epoch, True
        self.put([LeaderChangeRecord(leader_id=ME, voters=(ME, OTHER))])
        self.controller.on_leader_change(epoch, ME)

    def follow(self, epoch: int, leader_id: int = OTHER) -> None:
        self.leads = False
        self.epoch = epoch
        # What was not committed is truncated.
        del self.batches[self.delivered :]
        self.controller.on_leader_change(epoch, leader_id)

    @property
    def records(self) -> list[MetadataRecord]:
        return [record for batch in self.batches for record in batch.records]


class Node:
    """A controller with a fake quorum and the requests of a small cluster."""

    def __init__(
        self, *, profile: str = "kafka-4.1", without: tuple[str, ...] = (), balances: bool = True
    ) -> None:
        self.host = FakeHost()
        config = NodeConfig(
            node_id=ME,
            role="controller",
            address="c11:9093",
            cluster_id=CLUSTER_ID,
            voters=(
                Voter(node_id=ME, address="c11:9093"),
                Voter(node_id=OTHER, address="c12:9093"),
            ),
            features=profile_features(profile),
            timings=FAST_TIMINGS,
            min_insync_replicas=2,
            auto_leader_rebalance_enable=balances,
            rules=Rules(without),
        )
        self.controller = Controller(self.host, config)
        self.quorum = FakeQuorum(self.controller)
        self.controller.attach(self.quorum)
        self.controller.start()

    def ask(self, message: Any) -> Any:
        return self.controller.handle_request(message, CONTEXT)

    async def answer(self, message: Any) -> Any:
        response = self.ask(message)
        return await response if asyncio.isfuture(response) else response

    async def begin(self, *broker_ids: int) -> None:
        self.quorum.lead(1)
        await settle()
        assert self.controller.is_active
        for broker_id in broker_ids:
            assert (await self.answer(registration_request(broker_id))).error_code == 0
            assert not (await self.beat(broker_id)).is_fenced

    def heartbeat_of(self, broker_id: int, **wants: bool) -> Any:
        image = self.controller.latest or self.controller.image
        return heartbeat_request(
            broker_id, image.brokers[broker_id].broker_epoch, image.last_offset, **wants
        )

    async def beat(self, broker_id: int, **wants: bool) -> Any:
        return await self.answer(self.heartbeat_of(broker_id, **wants))

    async def propose(self, registration: PartitionRegistration, *isr: int) -> None:
        """The leader of a partition proposes an ISR, which the controller accepts."""
        leader = registration.leader
        request = alter_request(
            leader,
            self.controller.image.brokers[leader].broker_epoch,
            registration.topic_id,
            partition=registration.partition,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            isr=tuple((member, -1) for member in isr),
        )
        response = await self.answer(request)
        assert response.topics[0].partitions[0].error_code == 0

    async def stay_alive_ms(self, duration_ms: float) -> None:
        """Lets time pass while all brokers send heartbeats."""
        left_ms = duration_ms
        while left_ms > 0:
            for broker_id in self.controller.image.brokers:
                await self.beat(broker_id)
            step_ms = min(left_ms, FAST_TIMINGS.broker_heartbeat_interval_ms)
            await sleep_ms(step_ms)
            left_ms -= step_ms

    @property
    def marks(self) -> list[str]:
        return self.host.observer.marks


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def sleep_ms(duration_ms: float) -> None:
    await asyncio.sleep(duration_ms / 1000)
