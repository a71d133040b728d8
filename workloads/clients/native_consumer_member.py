"""Members of a consumer group on the native client that use the consumer protocol (KIP-848).

They record the same rows as members of the classic protocol; their epoch stands for the generation. The
coordinator assigns; a member sends ConsumerGroupHeartbeat only:

1. *Join*: a heartbeat with epoch 0 and a member id of its own choice. Its response, or that of a later heartbeat,
   has the assignment, with ids of topics, whose names come from Metadata.
2. *Work*: as in the classic protocol. Between two fetches the member follows the newest assignment: it commits and
   gives up what it lost, and starts what it got at the committed offset. Heartbeats report what it has.
3. *Fenced*: on FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID it has lost its partitions, so it gives them up without a
   commit and joins again with the same id. On FENCED_INSTANCE_ID it ends.
4. *End*: it commits and leaves with epoch -1. A static member leaves with -2, so that its successor gets its
   partitions; after a crash the successor waits until the session is over (UNRELEASED_INSTANCE_ID).

After a heartbeat without a response the next one is a full one, because what the coordinator said may be lost.
"""

import asyncio
from typing import Any
from uuid import UUID

from harness.contracts.client import KeepGoing
from harness.contracts.host import ClientHost
from system_under_test.protocol.messages import (
    consumer_group_heartbeat_request,
    metadata_request,
    millis,
    to_millis,
)
from workloads.clients.group_coordinator import Meaning
from workloads.clients.native_group import RETRY_S, GroupSetup, NativeMember, Place
from workloads.group import Key

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2


class NativeConsumerMember(NativeMember):
    """One member of the consumer protocol. Mutable: it is the member.

    Args:
        setup: Common to all members.
        host: The client host it runs on.
        place: Its place in the group.
        process: Its number in the history.
    """

    def __init__(self, setup: GroupSetup, host: ClientHost, place: Place, process: int) -> None:
        super().__init__(setup, host, place, process)
        draw = host.random.stream("group-member-ids").random
        self._member_id = "".join(f"{int(draw() * 2**32):08x}" for _ in range(4))
        self._names: dict[UUID, str] = {}
        self._assigned: frozenset[Key] = frozenset()
        """What the coordinator said last; `_positions` has what the member consumes."""
        self._is_full = True
        self._interval_s = self._config.heartbeat_interval_ms / 1e3

    # --- joining ---------------------------------------------------------------------------------------

    async def _join(self) -> bool:
        """Joins the group; false if that has to be tried again."""
        self._ends_generation = Meaning.DONE
        self._generation, self._assigned, self._is_full = JOIN_EPOCH, frozenset(), True
        return await self._beat_once()

    async def _start(self, goes_on: KeepGoing) -> bool:
        """Nothing: partitions are started while the member works, when it gets them."""
        return goes_on()

    async def _beat_once(self) -> bool:
        """Sends one heartbeat and takes what it says; whether it was accepted."""
        response = await self._coordinator.request(self._heartbeat(self._generation))
        if response is None:
            self._is_full = True
            return False
        if not self._accepts(response.error_code):
            return False
        assigned = self._assigned
        if response.assignment is not None:
            found = await self._named(response.assignment)
            if found is None:
                self._is_full = True
                return False
            assigned = found
        self._generation, self._assigned, self._is_full = response.member_epoch, assigned, False
        self._interval_s = to_millis(response.heartbeat_interval) / 1e3
        return True

    def _heartbeat(self, epoch: int) -> Any:
        messages = consumer_group_heartbeat_request
        owned: dict[UUID, list[int]] = {}
        ids = {name: topic_id for topic_id, name in self._names.items()}
        for topic, index in sorted(self._positions):
            owned.setdefault(ids[topic], []).append(index)
        is_full = self._is_full and epoch >= JOIN_EPOCH
        return messages.ConsumerGroupHeartbeatRequest(
            group_id=self._config.group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._place.instance_id,
            rebalance_timeout=millis(self._rebalance_timeout_ms if is_full else -1),
            subscribed_topic_names=tuple(sorted(self._setup.partition_counts)) if is_full else None,
            topic_partitions=tuple(
                messages.TopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in owned.items()
            ),
        )

    async def _named(self, assignment: Any) -> frozenset[Key] | None:
        """Returns an assignment with names of topics, None if some of them are not known yet."""
        if any(one.topic_id not in self._names for one in assignment.topic_partitions):
            await self._learn_names()
        found: set[Key] = set()
        for one in assignment.topic_partitions:
            name = self._names.get(one.topic_id)
            if name is None:
                return None
            found.update((name, index) for index in one.partitions)
        return frozenset(found)

    async def _learn_names(self) -> None:
        request = metadata_request.MetadataRequest(
            topics=tuple(
                metadata_request.MetadataRequestTopic(topic_id=None, name=name)
                for name in sorted(self._setup.partition_counts)
            ),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        response = await self._coordinator.request(request)
        for topic in () if response is None else response.topics:
            if topic.name is not None and topic.topic_id is not None:
                self._names[topic.topic_id] = topic.name

    # --- working ---------------------------------------------------------------------------------------

    async def _work(self, goes_on: KeepGoing) -> None:
        """Follows the assignment, fetches, processes and commits until the member ends or is fenced."""
        with self._heartbeats():
            while goes_on() and self._ends_generation is Meaning.DONE:
                await self._follow()
                has_fetched = False
                for key in tuple(self._positions):
                    # What was lost meanwhile is given up before anything else is fetched.
                    if goes_on() and self._is_current:
                        has_fetched |= await self._poll(key)
                if not has_fetched:
                    await asyncio.sleep(RETRY_S)
                if self._ends_generation is Meaning.DONE:
                    await self._commit()
        if self._ends_generation is not Meaning.DONE:
            self._give_up_partitions()

    @property
    def _is_current(self) -> bool:
        is_member = self._ends_generation is Meaning.DONE
        return is_member and self._positions.keys() <= self._assigned

    async def _follow(self) -> None:
        """Gives up what was lost, after a commit, and starts what was assigned."""
        lost = self._positions.keys() - self._assigned
        if lost:
            await self._commit()
            for key in sorted(lost):
                self._events.revoked(key)
                del self._positions[key]
                self._processed.pop(key, None)
                self._epochs.pop(key, None)
        fresh = sorted(self._assigned - self._positions.keys())
        if not fresh or not await self._fetch_committed(fresh):
            # What was fetched for only some of them is not used: all are started together, or later.
            return
        for key in fresh:
            if self._ends_generation is not Meaning.DONE or key not in self._assigned:
                del self._positions[key]
                continue
            self._events.assigned(key, self._positions[key], self._recorded_generation())
            self.started.add(key)
        self._place.generations.add(self._generation)

    async def _beat(self) -> None:
        while self._ends_generation is Meaning.DONE:
            await asyncio.sleep(self._interval_s)
            await self._beat_once()

    # --- the end ---------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Commits and leaves the group; one attempt, because the session ends by itself."""
        if self._positions:
            await self._commit()
        is_static = self._place.instance_id is not None
        await self._coordinator.request(
            self._heartbeat(STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH)
        )
