"""Hostile frames against nodes in memory: a broker and the active controller of a simulated cluster.

Half of the frames are mutations of the corpus and of freshly made valid frames; the other half are valid for
the codec and have extreme values. Each goes through the codec of the listener and, when it is a request,
to the node's handler. What has to hold:

1. the codec returns a request or raises `MalformedRequestError`, nothing else;
2. the handler raises nothing but `ConnectionAbortedError`, and its response can be encoded, whenever it comes;
3. no node of the cluster ends or breaks an invariant, whatever it receives, except for a broker under
   whose id a client has registered, which must leave;
4. afterwards every log of every broker is intact.

A world is thrown away after a few thousand frames: topics, groups and members pile up in it.
"""

import asyncio
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from harness.simulation.world import World
from system_under_test.protocol.apis import APIS
from system_under_test.protocol.record_batch import spans
from system_under_test.protocol.wire import MalformedRequestError, ServerCodec, WireRequest
from system_under_test.runtime import RequestContext
from tests.fuzz import corpus
from tests.fuzz.mutate import mutate
from tests.fuzz.report import Finding
from tests.simulation.cluster_story import Cluster

FRAMES_PER_WORLD = 5_000
BATCH = 100
PAUSE_NS = 20_000_000
ROLES = ("broker", "broker", "broker", "controller")


class _Victims:
    """A running cluster, the nodes that get the frames, and what they owe."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed).start()
        self.cluster.create_topic()
        self.cluster.produce(b"before")
        partition = self.cluster.partition()
        assert partition is not None
        self.ids: tuple[UUID, ...] = (partition.topic_id,)
        self.codecs = {role: ServerCodec(role) for role in ("broker", "controller")}
        self.problems: list[tuple[int, str, bytes]] = []
        self.current: tuple[int, bytes] = (0, b"")
        self._connection = 0

    @property
    def world(self) -> World:
        return self.cluster.world

    def name_of(self, role: str) -> str:
        if role == "broker":
            return f"b{self.cluster.brokers[0]}"
        for name in ("c11", "c12", "c13"):
            process = self.world.nodes[name].process
            if process is not None and process.controller.is_active:
                return name
        return "c11"

    async def take(self, role: str, frames: list[tuple[int, bytes]]) -> None:
        """Passes frames to the node whose loop this runs on."""
        node: Any = self.world.nodes[self.name_of(role)].process
        codec = self.codecs[role]
        self._connection += 1
        for case, frame in frames:
            self.current = (case, frame)
            try:
                request = codec.decode_request(frame)
            except MalformedRequestError:
                continue
            if request.direct is not None:
                continue
            context = RequestContext(
                peer="6.6.6.6:1",
                connection_id=1_000_000 + self._connection,
                client_id=request.client_id,
                api_version=request.version,
            )
            try:
                response = node.handle(request.message, context)
            except ConnectionAbortedError:
                continue
            if isinstance(response, asyncio.Future):
                response.add_done_callback(
                    lambda done, r=request, c=case, f=frame: self._late(codec, r, done, c, f)
                )
            elif response is not None:
                self._encode(codec, request, response, case, frame)

    def _late(
        self, codec: ServerCodec, request: WireRequest, done: Any, case: int, frame: bytes
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._encode(codec, request, done.result(), case, frame)
        elif not isinstance(error, ConnectionAbortedError):
            self.problems.append((case, f"late {type(error).__name__}: {error}", frame))

    def _encode(
        self, codec: ServerCodec, request: WireRequest, response: Any, case: int, frame: bytes
    ) -> None:
        try:
            codec.encode_response(request, response)
        except Exception as error:
            what = (
                f"{request.api.name} v{request.version}: the response cannot be encoded: {error!r}"
            )
            self.problems.append((case, what, frame))

    def failures(self) -> str | None:
        """Returns why a node is not as it should be, None if all are."""
        for failure in self.world.failures:
            return f"{failure.node}: {type(failure.error).__name__}: {failure.error}"
        for name, node in self.world.nodes.items():
            if name != "client" and not node.is_alive:
                return f"{name} is not alive"
        return None

    def a_broker_was_superseded(self) -> bool:
        return bool(self.cluster.marks("broker-superseded"))

    def damaged_log(self) -> str | None:
        """Returns which log is damaged, None if none is."""
        for broker in self.cluster.brokers:
            process = self.cluster.node(broker).process
            for (topic, index), partition in process.replica_manager.partitions.items():
                log = partition.log
                if log is None or log.log_end_offset == log.log_start_offset:
                    continue
                try:
                    spans(
                        log.read(log.log_start_offset, 1 << 30, log.log_end_offset), verify_crc=True
                    )
                except Exception as error:
                    return f"the log of {topic}-{index} on broker {broker}: {error}"
        return None


def run(seed: int, count: int) -> Iterator[Finding | None]:
    """Yields a finding, or None, for every case."""
    done = 0
    number = 0
    while done < count:
        for finding in _one_world(seed, number, done, min(FRAMES_PER_WORLD, count - done)):
            done += 1
            yield finding
        number += 1


def _one_world(seed: int, number: int, first: int, size: int) -> Iterator[Finding | None]:
    stream = random.Random(f"{seed} world {number}")
    victims = _Victims(number)
    makers = {role: _Maker(role, stream, victims.ids) for role in set(ROLES)}
    case = first
    try:
        while case < first + size:
            role = stream.choice(ROLES)
            frames = [
                (case + i, makers[role].frame()) for i in range(min(BATCH, first + size - case))
            ]
            finding = _one_batch(victims, role, frames)
            if victims.a_broker_was_superseded():
                # As in Kafka without authentication: a client that registers under a broker's id ends its session,
                # and the broker leaves cleanly. The next world continues.
                yield from (None for _ in frames)
                return
            if finding is not None:
                # This world is no longer sound; the next one continues.
                yield finding
                return
            yield from (None for _ in frames)
            case += len(frames)
        damage = victims.damaged_log()
        if damage is not None:
            yield Finding(case=case, what=damage, data="")
    finally:
        victims.world.close()


def _one_batch(victims: _Victims, role: str, frames: list[tuple[int, bytes]]) -> Finding | None:
    case, frame = frames[0]
    try:
        task = victims.world.spawn(victims.name_of(role), victims.take(role, frames))
        victims.world.run(task.done, limit_ns=60 * 10**9)
        task.result()
        victims.world.run_for(PAUSE_NS)
    except Exception as error:
        case, frame = victims.current
        return Finding(case=case, what=f"{role}: {type(error).__name__}: {error}", data=frame.hex())
    what = victims.failures()
    if what is None and victims.problems:
        case, what, frame = victims.problems[0]
    if what is None:
        return None
    return Finding(case=case, what=f"{role}: {what}", data=frame.hex())


class _Maker:
    """Makes frames for one role."""

    def __init__(self, role: str, stream: random.Random, ids: tuple[UUID, ...]) -> None:
        self._stream = stream
        self._ids = ids
        self._stored = corpus.stored(role)
        self._places = [
            (api, version)
            for api in APIS
            if role in api.roles
            for version in range(api.min_version, api.max_version + 1)
        ]

    def frame(self) -> bytes:
        """Returns the next frame."""
        stream = self._stream
        kind = stream.random()
        if kind < 0.35:
            return mutate(stream.choice(self._stored), stream, stream.choice(self._stored))
        api, version = stream.choice(self._places)
        made = corpus.frame_of(api, version, stream, self._ids)
        return made if kind < 0.75 else mutate(made, stream, stream.choice(self._stored))
