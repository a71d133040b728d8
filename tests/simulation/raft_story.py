"""A metadata quorum in a simulated world, as a subject for stories.

Voters are c11, c12, ... and observers b1, b2, ... Every member reports what it learns to be committed to one
ledger, and a different record at the same offset, in any node or incarnation, violates INV-5.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.environments.simulated.world import reference_world
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from system_under_test.config import (
    FAST_TIMINGS,
    MetadataLogConfig,
    NodeConfig,
    Timings,
    Voter,
    profile_features,
)
from system_under_test.invariants import InvariantViolation
from system_under_test.log.log import Log
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import ConfigRecord, LeaderChangeRecord, MetadataBatch
from system_under_test.metadata.snapshot import MetadataSnapshot, image_of
from system_under_test.protocol.metadata_codec import decode_metadata_batches
from system_under_test.raft.node import RaftNode
from system_under_test.raft.state import Election, decode_election
from system_under_test.rules import Rules
from system_under_test.runtime import Host, RequestContext
from tests.simulation.network_helpers import around

MS = 1_000_000
NO_SNAPSHOTS = MetadataLogConfig()
"""Kafka's settings, which call for no snapshot within the time and size of a test."""
DIRECTORY = "data/__cluster_metadata-0"
FIRST_SEGMENT = f"{DIRECTORY}/00000000000000000000.log"
QUORUM_STATE = f"{DIRECTORY}/quorum-state"


_open_worlds: list[World] = []


@pytest.fixture(autouse=True)
def worlds_closed() -> Iterator[None]:
    """Puts the coroutines of killed members away after every story. Test modules import it."""
    yield
    while _open_worlds:
        _open_worlds.pop().close()


class Ledger:
    """What anybody ever learnt to be committed."""

    def __init__(self) -> None:
        self.batches: dict[int, MetadataBatch] = {}
        self.leaders: dict[int, int] = {}

    def committed(self, node: str, batch: MetadataBatch) -> None:
        known = self.batches.setdefault(batch.base_offset, batch)
        if known != batch:
            raise InvariantViolation(
                "INV-5",
                "committed metadata is the same everywhere",
                node=node,
                known=known,
                other=batch,
            )

    def leads(self, epoch: int, node_id: int) -> None:
        known = self.leaders.setdefault(epoch, node_id)
        if known != node_id:
            raise InvariantViolation(
                "INV-8", "a quorum epoch has one leader", epoch=epoch, known=known, other=node_id
            )

    def image_at(self, end_offset: int) -> ClusterImage:
        """Returns the image that all records below an offset make."""
        image = ClusterImage()
        for base_offset, batch in sorted(self.batches.items()):
            if base_offset >= end_offset:
                break
            for offset, record in enumerate(batch.records, base_offset):
                image.replay(offset, record)
        assert image.last_offset == end_offset - 1, "the ledger has all that is committed"
        return image

    def values(self) -> list[str]:
        """Returns the values of all committed ConfigRecords, in order."""
        return _values([self.batches[offset] for offset in sorted(self.batches)])


class Member:
    """One incarnation of a member: a `RaftNode` that listens, and a listener that writes things down."""

    def __init__(self, host: Host, config: NodeConfig, ledger: Ledger) -> None:
        self.name = host.name
        self.raft = RaftNode(host, config, self)
        self.committed: list[MetadataBatch] = []
        self.snapshots: list[MetadataSnapshot] = []
        self.image = ClusterImage()
        self.leader_changes: list[tuple[int, int]] = []
        self._host = host
        self._ledger = ledger

    async def start(self) -> None:
        self._host.network.listen(self._handle)
        await self.raft.start()

    async def stop(self) -> None:
        await self.raft.stop()

    def _handle(self, message: Any, context: RequestContext) -> Any:
        assert self.raft.handles(message)
        return self.raft.handle_request(message, context)

    def on_leader_change(self, quorum_epoch: int, leader_id: int) -> None:
        self.leader_changes.append((quorum_epoch, leader_id))
        if leader_id == self.raft.node_id:
            self._ledger.leads(quorum_epoch, leader_id)

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.image.last_offset + 1
            for offset, record in enumerate(batch.records, batch.base_offset):
                self.image.replay(offset, record)
            self.committed.append(batch)
            self._ledger.committed(self.name, batch)

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        assert snapshot.id.end_offset > self.image.last_offset
        self.snapshots.append(snapshot)
        self.image = image_of(snapshot, like=self.image)
        self.committed.clear()
        known = self._ledger.image_at(snapshot.id.end_offset)
        if known != self.image:
            raise InvariantViolation(
                "INV-5",
                "a snapshot describes the records that it covers",
                node=self.name,
                known=known,
                snapshot=self.image,
            )

    def snapshot_image(self) -> ClusterImage:
        return self.image

    @property
    def values(self) -> list[str]:
        return _values(self.committed)


class Marks:
    """The observer of all members."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def mark(self, name: str, **details: Any) -> None:
        self.seen.append((name, details))

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        raise AssertionError("the metadata quorum has no partition replicas")

    def log_cut(self, topic: str, partition: int, *details: Any) -> None:
        self.seen.append(("log-cut", {"topic": topic, "partition": partition}))

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        raise AssertionError("that is for the controller to say")

    def count(self, name: str) -> int:
        return sum(1 for seen, _ in self.seen if seen == name)


class QuorumStory:
    """A quorum, with operations on it and queries about it."""

    def __init__(
        self,
        *,
        seed: int = 1,
        voters: int = 3,
        observers: int = 1,
        profile: str = "kafka-4.1",
        off: Sequence[str] = (),
        weather: Weather = CALM,
        timings: Timings = FAST_TIMINGS,
        metadata_log: MetadataLogConfig = NO_SNAPSHOTS,
        sim_wire: bool = False,
        boot: bool = True,
    ) -> None:
        self.world = reference_world(seed, weather=weather, sim_wire=sim_wire)
        _open_worlds.append(self.world)
        self.ledger = Ledger()
        self.keeps_values = False
        """Whether every appended value stays part of the image; otherwise the newest one replaces all others."""
        self.marks = Marks()
        ids = tuple(range(11, 11 + voters))
        quorum = tuple(Voter(node_id=i, address=f"c{i}:9093") for i in ids)
        self.voters = tuple(f"c{i}" for i in ids)
        self.observers = tuple(f"b{i}" for i in range(1, observers + 1))
        config = NodeConfig(
            node_id=0,
            role="controller",
            address="nowhere:0",
            cluster_id="story",
            voters=quorum,
            features=profile_features(profile),
            timings=timings,
            metadata_log=metadata_log,
            rules=Rules(off),
        )
        for voter in quorum:
            self._add("controller", replace(config, node_id=voter.node_id, address=voter.address))
        for i in range(1, observers + 1):
            self._add("broker", replace(config, node_id=i, role="broker", address=f"b{i}:9092"))
        if boot:
            for node in self.world.nodes.values():
                node.start()

    def _add(self, kind: str, config: NodeConfig) -> None:
        self.world.add_node(
            config.address.partition(":")[0],
            kind=kind,
            address=config.address,
            main=lambda host: Member(host, config, self.ledger),
            observer=self.marks,
        )

    # What happens

    def run(self, ms: float) -> None:
        self.world.run(limit_ns=int(ms * MS))

    def until(self, condition: Callable[[], bool], *, within_ms: float = 10_000) -> None:
        self.world.run(condition, limit_ns=int(within_ms * MS))

    def await_leader(self, *, among: Sequence[str] = (), within_ms: float = 10_000) -> str:
        """Waits for a leader that has committed a record of its own epoch; returns its name."""
        self.until(lambda: self._ready_leader(among) is not None, within_ms=within_ms)
        name = self._ready_leader(among)
        assert name is not None
        return name

    def append(self, name: str, *values: str) -> int:
        """Lets a leader append one batch; returns the offset of the last record."""
        records = [
            ConfigRecord(
                resource_type=2,
                resource_name="t",
                name=value if self.keeps_values else "n",
                value=value,
            )
            for value in values
        ]
        node = self.world.nodes[name]
        with self.world.inside(node.loop):
            return self.raft(name).append(records)

    def commit(self, name: str, *values: str) -> None:
        """Lets a leader append one batch and waits until it knows it to be committed."""
        offset = self.append(name, *values)
        self.until(lambda: self.raft(name).high_watermark > offset)

    def isolate(self, name: str) -> Any:
        return self.world.network.stall(f"isolate {name}", around(self.world, name))

    def heal(self, *tokens: Any) -> None:
        for token in tokens:
            self.world.network.heal(token)

    def kill(self, name: str) -> None:
        self.world.nodes[name].kill()

    def power_off(self, name: str, mode: str = "lose_all", **options: Any) -> Any:
        return self.world.nodes[name].power_off(mode, **options)

    def start(self, name: str) -> None:
        self.world.nodes[name].start()

    # Queries

    def member(self, name: str) -> Member:
        process = self.world.nodes[name].process
        assert isinstance(process, Member)
        return process

    def raft(self, name: str) -> RaftNode:
        return self.member(name).raft

    def alive(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.world.nodes[name].is_alive]

    def _ready_leader(self, among: Sequence[str]) -> str | None:
        for name in self.alive(among or self.voters):
            raft = self.raft(name)
            if raft.is_leader and raft.high_watermark > raft.epoch_start_offset:
                return name
        return None

    def epoch(self, name: str) -> int:
        return self.raft(name).epoch

    def election_on_disk(self, name: str) -> Election:
        return decode_election(
            self.world.nodes[name].disk.storage_for(self._loop(name)).read(QUORUM_STATE)
        )

    def _loop(self, name: str) -> Any:
        return self.world.nodes[name].loop

    def batches_in_log(self, name: str) -> list[MetadataBatch]:
        """Returns what is in the log of a running member, committed or not."""
        log: Log = self.raft(name)._quorum.log
        if log.log_end_offset == log.log_start_offset:
            return []
        with self.world.inside(self._loop(name)):
            data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
        return list(decode_metadata_batches(data))

    def values_in_log(self, name: str) -> list[str]:
        return _values(self.batches_in_log(name))

    def assert_converged(self, *names: str) -> None:
        """Asserts that members have equal logs and know all of it to be committed."""
        first, *others = names or (*self.voters, *self.observers)
        expected = self.batches_in_log(first)
        end = self.raft(first).log_end_offset
        assert self.raft(first).high_watermark == end
        for name in others:
            batches = self.batches_in_log(name)
            # Logs end alike; where they begin depends on the snapshots that each member wrote.
            common = min(len(batches), len(expected))
            assert batches[len(batches) - common :] == expected[len(expected) - common :], name
            assert self.raft(name).high_watermark == end, name
            assert self.member(name).image == self.member(first).image, name

    def await_converged(self, *names: str, within_ms: float = 10_000) -> None:
        members = names or (*self.voters, *self.observers)

        def converged() -> bool:
            rafts = [self.raft(name) for name in members]
            ends = {(raft.log_end_offset, raft.high_watermark) for raft in rafts}
            return len(ends) == 1 and ends.pop() == (rafts[0].log_end_offset,) * 2

        self.until(converged, within_ms=within_ms)
        self.assert_converged(*members)


def _values(batches: Sequence[MetadataBatch]) -> list[str]:
    return [
        record.value or ""
        for batch in batches
        for record in batch.records
        if isinstance(record, ConfigRecord)
    ]


def leader_changes(batches: Sequence[MetadataBatch]) -> list[int]:
    """Returns the leaders that LeaderChange records name, in order."""
    return [
        record.leader_id
        for batch in batches
        for record in batch.records
        if isinstance(record, LeaderChangeRecord)
    ]
