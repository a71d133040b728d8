"""Scripted scenarios: steps as data, and the interpreter that runs them.

A step waits for conditions on committed metadata, never for time, so a scenario means the same on every machine
and in every world. The steps of a scenario are stored with the run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from harness.contracts.cluster import Cluster
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.workload import ScriptedProcess
from harness.history.op import Completion, Outcome
from nemesis.administration import ACTIONS
from nemesis.driver import Nemesis
from nemesis.fault import Fault

WAIT_LIMIT_MS = 120_000
"""Longest wait for a condition, in (virtual) time: far more than any protocol timeout."""
ELECTS_NO_CONTROLLER = "the quorum elects no leader"
"""Part of the reason of a run in which no controller became active although a majority of them was up."""
_NO_EPOCHS: Mapping[int, int] = MappingProxyType({})


class ScenarioStuck(Exception):  # noqa: N818 - it is a finding, not a harness error
    """A condition did not come true in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Waits until committed metadata matches; None means "anything".

    Attributes:
        isr, elr: Exact sets.
        leader: Broker id, or -1 for none.
        has_leader: Whether there is any leader.
        fenced, unfenced: Brokers that must be so.
        registered: Brokers that must have registered since a broker was last started.
        new_controller: Whether another controller must be active than when this was last true, or the run began.
        partition: Which partition it is about; None for the scenario's own.
    """

    isr: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    leader: int | None = None
    has_leader: bool | None = None
    fenced: tuple[int, ...] = ()
    unfenced: tuple[int, ...] = ()
    registered: tuple[int, ...] = ()
    new_controller: bool | None = None
    partition: int | None = None

    def holds(
        self,
        metadata: CommittedMetadata,
        partition: str,
        controller: int = -1,
        broker_epochs: Mapping[int, int] = _NO_EPOCHS,
    ) -> bool:
        """Whether the condition is true now.

        Args:
            metadata: The newest committed metadata.
            partition: Name of the partition that it is about.
            controller: Node id of the controller that was active before.
            broker_epochs: Of each broker when one was last started.
        """
        state = metadata.partitions.get(partition)
        if state is None:
            return False
        if self.new_controller and metadata.active_controller in (-1, controller):
            return False
        return (
            (self.isr is None or set(state.isr) == set(self.isr))
            and (self.elr is None or set(state.elr) == set(self.elr))
            and (self.leader is None or state.leader == self.leader)
            and (self.has_leader is None or (state.leader >= 0) == self.has_leader)
            and all(metadata.is_fenced(broker) for broker in self.fenced)
            and not any(metadata.is_fenced(broker) for broker in self.unfenced)
            and all(
                metadata.broker_epoch(broker) > broker_epochs.get(broker, -1)
                for broker in self.registered
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Appends records one after the other.

    Attributes:
        count: How many.
        acks: -1 (all), 1 or 0.
        until_ok: Whether each must be acknowledged, with new records appended until `count` were.
        in_background: Starts the appends and continues; `Join` waits for them.
    """

    count: int
    acks: int = -1
    until_ok: bool = True
    in_background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Waits for the appends in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The consumer reads from its position to the log end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The consumer polls from its position until a number of polls succeeded, with or without records."""

    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Waits until a condition is true, for a limited time, and continues in either case.

    Attributes:
        until: The condition.
        limit_ms: How long at most: longer than it takes a version that does what the condition says.
    """

    until: Wait
    limit_ms: int


Step = Wait | Append | Join | Read | Poll | Observe | Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOutcome:
    """The expected outcome for a range of versions of a system.

    Attributes:
        first, last: The oldest and the newest of them.
        outcome: The outcome word.
        watched: The versions in which it was observed; for the others it follows from their source code.
    """

    first: str
    last: str
    outcome: str
    watched: tuple[str, ...] = ()

    def covers(self, version: str) -> bool:
        """Whether a version is in the range."""
        return _numbers(self.first) <= _numbers(version) <= _numbers(self.last)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version, which compare in the order of versions; () if it has others parts."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scripted scenario.

    Attributes:
        name: For example "last-replica-standing:V3b".
        title: One line.
        replication_factor, min_insync_replicas, partitions: The topic it needs.
        steps: In order.
        expected: Outcome word per profile family: "elr-off-no-gate", "elr-off", "elr-on".
        versions: Outcome words for versions of systems that have versions, by system; they win over `expected`.
        partition: The partition to which it appends, and about which it waits.
        brokers: How many it needs.
        log_dirs: Log directories that every broker needs.
        features: Levels of the features that it needs, for systems that have versions.
        properties: Kafka's properties of the nodes.
        disabled_rules: Rules of the reference system that are switched off.
        is_watched: Whether the invariant monitor watches the run. It would end the run at the first consequence of
            a defect; without it, what clients see decides the outcome.
        is_simulated_only: Whether only the simulation has what its steps need.
    """

    name: str
    title: str
    replication_factor: int
    min_insync_replicas: int
    steps: tuple[Step, ...]
    expected: dict[str, str]
    versions: Mapping[str, tuple[VersionOutcome, ...]] = field(default_factory=dict)
    partitions: int = 1
    partition: int = 0
    brokers: int = 3
    log_dirs: int = 1
    features: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    disabled_rules: tuple[str, ...] = ()
    is_watched: bool = True
    is_simulated_only: bool = False

    def steps_json(self) -> list[dict[str, Any]]:
        """Returns the steps for the replay file."""
        return [{"step": type(step).__name__.lower(), **_plain(step)} for step in self.steps]


class Story:
    """Runs the steps of a scenario. Mutable: it keeps track of what runs in the background.

    Args:
        cluster: Where it happens.
        nemesis: Injects the faults of the scenario.
        producer, consumer: The two processes.
        topic, partition: What they work on.
    """

    def __init__(
        self,
        cluster: Cluster,
        nemesis: Nemesis,
        producer: ScriptedProcess,
        consumer: ScriptedProcess,
        *,
        topic: str,
        partition: int,
        run_on_client: Callable[[ScriptedProcess, Any], "asyncio.Future[Any]"],
    ) -> None:
        self._cluster = cluster
        self._nemesis = nemesis
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._partition = partition
        self._run_on_client = run_on_client
        self._background: list[asyncio.Future[Any]] = []
        self._controller = cluster.metadata.active_controller
        self._broker_epochs: dict[int, int] = {}

    async def run(self, steps: Sequence[Step]) -> None:
        """Runs the steps in order.

        Raises:
            ScenarioStuck: A condition did not come true within `WAIT_LIMIT_MS`.
        """
        for step in steps:
            await self._step(step)

    async def _step(self, step: Step) -> None:
        if isinstance(step, Fault):
            if step.fault == "start":
                metadata = self._cluster.metadata
                self._broker_epochs = {one: metadata.broker_epoch(one) for one in metadata.brokers}
            nodes = await self._nemesis.inject(step)
            if step.fault in ACTIONS and not nodes:
                raise ScenarioStuck(
                    f"the cluster refused {step.id} ({step.fault}); the table faults has its response"
                )
        elif isinstance(step, Wait):
            if not await self._came_true(step, WAIT_LIMIT_MS):
                raise ScenarioStuck(
                    f"waited {WAIT_LIMIT_MS / 1e3:.0f} s for {_describe(step)}; "
                    + self._situation(step)
                )
        elif isinstance(step, Observe):
            await self._came_true(step.until, step.limit_ms)
        elif isinstance(step, Append):
            work = self._run_on_client(self._producer, self._append(step))
            if step.in_background:
                self._background.append(work)
            else:
                await work
        elif isinstance(step, Read):
            await self._run_on_client(
                self._consumer,
                self._consumer.read_to_end(self._topic, self._partition, lambda: True, final=False),
            )
        elif isinstance(step, Poll):
            await self._run_on_client(self._consumer, self._poll(step.count))
        else:
            for work in self._background:
                await work
            self._background.clear()

    async def _append(self, step: Append) -> None:
        done = 0
        while done < step.count:
            completion: Completion = await self._producer.append(
                self._topic, self._partition, step.acks
            )
            if completion.outcome == Outcome.OK or not step.until_ok or step.acks == 0:
                done += 1
            else:
                await asyncio.sleep(0.02)

    async def _poll(self, count: int) -> None:
        done = 0
        while done < count:
            completion = await self._consumer.poll(self._topic, self._partition)
            if completion.outcome == Outcome.OK:
                done += 1
            else:
                # The consumer may not know yet that the leader has a new epoch.
                await asyncio.sleep(0.02)

    def _situation(self, wait: Wait) -> str:
        """Returns what committed metadata say of something that was waited for in vain."""
        if not wait.new_controller:
            return (
                f"committed metadata is {self._cluster.metadata.partitions.get(self._name(wait))}"
            )
        population = self._cluster.population()
        up = [node_id for name, node_id in population.controllers if name not in population.down]
        if self._controller in up:
            return f"controller {self._controller} is active and up"
        majority = len(population.controllers) // 2 + 1
        if len(up) < majority:
            return f"only {len(up)} of {len(population.controllers)} controllers are up"
        return f"{ELECTS_NO_CONTROLLER}, although controllers {up} are up"

    def _name(self, wait: Wait) -> str:
        partition = self._partition if wait.partition is None else wait.partition
        return f"{self._topic}-{partition}"

    async def _came_true(self, wait: Wait, limit_ms: int) -> bool:
        """Waits for a condition for a limited time; returns whether it came true."""
        metadata, name = self._cluster.metadata, self._name(wait)
        before, epochs = self._controller, self._broker_epochs
        is_true = await metadata.comes_to(
            lambda: wait.holds(metadata, name, before, epochs), limit_ms
        )
        if is_true and wait.new_controller:
            self._controller = metadata.active_controller
        return is_true


def _plain(step: Step) -> dict[str, Any]:
    if isinstance(step, Fault):
        return step.to_json()
    if isinstance(step, Observe):
        return {"until": _plain(step.until), "limit_ms": step.limit_ms}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(step).items()
        if value is not None
    }


def _describe(wait: Wait) -> str:
    parts = [f"{key}={value}" for key, value in _plain(wait).items() if value != []]
    return ", ".join(parts)
