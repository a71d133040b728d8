"""An experiment: one frozen value that describes a run completely, except for its seed.

It is read from TOML, flags override the file, and the resolved experiment is stored with the run as TOML that
can be run again (`harness.runs.experiment_file`). Unknown keys are errors with a suggestion: a misspelt key
that is ignored is a fault that was never injected.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from harness.contracts.administration import MoveReplica
from harness.contracts.run_context import LOG_CHECKERS
from harness.contracts.space import Space
from harness.contracts.system import (
    Administrable,
    HasFaultPoint,
    Paced,
    PropertyTaker,
    RecordsMessages,
    SeveralLogDirs,
    System,
    VersionedSystem,
)
from harness.contracts.workload import WorkloadConfig, WorkloadType
from harness.environments.registry import DEFAULT, ENVIRONMENTS, Environment
from harness.errors import UsageError, usage_errors_of
from harness.names import unknown_name
from harness.runs.without_effect import check_copies, check_transactions
from harness.scenarios import find_by_name
from harness.systems.properties import CLEANUP_POLICY, is_compacted
from harness.systems.registry import REFERENCE, SYSTEMS
from nemesis.administration import ACTIONS, action_of
from nemesis.fault import Fault
from nemesis.schedule import ADMIN, DRAWN_ACTIONS, FAMILIES, LOG_DIR, Rhythm
from nemesis.templates import TEMPLATES
from nemesis.trigger import COMMITTED_EVENTS
from results.layout import check_experiment_name
from workloads.append import APPEND
from workloads.append_config import AppendConfig
from workloads.registry import CLIENTS, WORKLOADS

WEATHERS = ("calm", "light", "stormy")
DRAWN = "drawn"
DISKS = (DRAWN, "ext4", "xfs", "posix-strict")
ROUND_ROBIN, SHUFFLED = "round-robin", "shuffled"
AUTO, ON, OFF = "auto", "on", "off"

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]


def _one_of(words: Iterable[str]) -> Meta:
    """Returns what names the choices in the JSON Schema; `__post_init__` checks them, with suggestions."""
    return Meta(extra_json_schema={"enum": list(words)})


EnvironmentName: TypeAlias = Annotated[str, _one_of(ENVIRONMENTS)]
WeatherName: TypeAlias = Annotated[str, _one_of(WEATHERS)]
DiskName: TypeAlias = Annotated[str, _one_of(DISKS)]
TemplateName: TypeAlias = Annotated[str, _one_of(TEMPLATES)]
SwitchName: TypeAlias = Annotated[str, _one_of((AUTO, ON, OFF))]
FamilyName: TypeAlias = Annotated[str, _one_of((*FAMILIES, ADMIN, LOG_DIR))]


def check_choice(kind: str, value: str, known: Iterable[str]) -> None:
    """Raises `UsageError` unless a value is among the known ones; `kind` is what it is, for the message."""
    if value not in known:
        raise UsageError(unknown_name(kind, value, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How many nodes, and the broker settings that experiments vary.

    Attributes:
        brokers: How many brokers: b1, b2 and so on.
        controllers: How many controllers: c11, c12 and so on, so that a node id belongs to one node.
        log_dirs: Log directories of each broker, for systems whose brokers can have several.
        segment_bytes: Kafka's `log.segment.bytes`: a segment file is closed at this size.
        flush_messages: Kafka's `log.flush.interval.messages`: fsync after so many records; practically never by
            default.
        unclean_leader_election: Kafka's `unclean.leader.election.enable`: a replica outside of the ISR may lead.
        disk: What a power cut leaves: of "ext4", of "xfs", or all that POSIX allows ("posix-strict"). "drawn" is
            "ext4", and with stormy weather one of the three per seed.
    """

    brokers: Annotated[int, Meta(ge=1, le=10)] = 3
    controllers: Annotated[int, Meta(ge=1, le=9)] = 3
    log_dirs: Positive = 1
    segment_bytes: Positive = 1 << 30
    flush_messages: Positive = 2**53
    unclean_leader_election: bool = False
    disk: DiskName = DRAWN

    def __post_init__(self) -> None:
        """Checks the name of the disk."""
        check_choice("disk", self.disk, DISKS)

    @property
    def filesystem(self) -> str:
        """The file system on which a power cut happens, unless the weather draws one."""
        return "ext4" if self.disk == DRAWN else self.disk


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The topics under test.

    Attributes:
        name: Name of the topic; of several topics, what their names begin with: "t" gives t1, t2 and t3.
        count: How many topics there are. All have the same settings.
        partitions: How many partitions each topic has.
        replication_factor: How many brokers have each partition; at most the number of brokers.
        min_insync_replicas: Kafka's `min.insync.replicas`: an append with acks=all needs so many in-sync replicas.
        assignment: How replicas are placed: "round-robin": broker 1 leads partition 0 of the first topic first;
            "shuffled": the seed draws the replicas of every partition and their order.

    Raises:
        UsageError: The name or the assignment is wrong.
    """

    name: str = "t"
    count: Annotated[int, Meta(ge=1, le=100)] = 1
    partitions: Annotated[int, Meta(ge=1, le=1000)] = 1
    replication_factor: Positive = 3
    min_insync_replicas: Positive = 2
    assignment: str = ROUND_ROBIN

    def __post_init__(self) -> None:
        """Checks the name and the assignment."""
        check_choice("assignment", self.assignment, (ROUND_ROBIN, SHUFFLED))
        # Kafka's rule for names; topics that begin with two underscores are Kafka's own.
        longest = self.names()[-1]
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", longest) or longest in (".", ".."):
            raise UsageError(
                f"topic.name is {self.name!r}; use 1 to 249 letters, digits, '.', '_' and '-'"
            )
        if self.name.startswith("__"):
            raise UsageError(f"topic.name is {self.name!r}; names beginning with '__' are reserved")

    def names(self) -> tuple[str, ...]:
        """Returns the name of every topic."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}{number}" for number in range(1, self.count + 1))

    def topic_partitions(self) -> tuple[tuple[str, int], ...]:
        """Returns every (topic, partition)."""
        return tuple((name, index) for name in self.names() for index in range(self.partitions))

    def partition_names(self) -> list[str]:
        """Returns the name of every partition, for example "t-0"."""
        return [f"{topic}-{index}" for topic, index in self.topic_partitions()]


@dataclass(frozen=True, slots=True, kw_only=True)
class NemesisConfig:
    """Random faults: which families and templates, and their rhythm. Without either there are no random faults.

    Attributes:
        faults: Enabled families, that is kinds of random faults; none: no random faults. A seed uses a random part
            of them.
        templates: Enabled templates, that is bursts of faults that aim at one kind of moment (docs/faults.md).
            Half of the bursts are drawn from them.
        every_family: A seed uses all enabled families.
        gap_ms: Mean quiet time between bursts of faults.
        hold_ms: Mean time that one fault lasts.
        step_ms: Mean time between the faults of one burst.
    """

    faults: tuple[FamilyName, ...] = ()
    templates: tuple[TemplateName, ...] = ()
    every_family: bool = False
    gap_ms: Positive = 1500
    hold_ms: Positive = 2500
    step_ms: Positive = 700

    def __post_init__(self) -> None:
        """Checks the names of families."""
        for family in self.faults:
            check_choice("fault family", family, (*FAMILIES, ADMIN, LOG_DIR))
        for template in self.templates:
            check_choice("template of faults", template, TEMPLATES)

    def rhythm(self) -> Rhythm:
        """Returns the mean times."""
        return Rhythm(gap_ms=self.gap_ms, hold_ms=self.hold_ms, step_ms=self.step_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A fully resolved experiment.

    Attributes:
        name: Name of the experiment, and of the folder of its runs.
        system: The system under test: "reference", "apache-kafka", or what another package provides; a version may
            follow, as in "apache-kafka:4.1.2".
        version: Which version of the system's program, for a system that has several; "" is its default.
        on: The environment: "simulation", "local" (processes on this machine), "docker" (containers) or "ssh"
            (hosts).
        profile: Which release the system behaves like; "" is the system's default. It follows from the version
            if the system has several.
        timings: The system's timeouts: "fast" (about a tenth of the defaults) or for the reference system "kafka".
        weather: "calm", "light" or "stormy": how irregular the simulated world is apart from the faults.
        time_scale: What `duration_ms`, `final_phase_ms` and all times of faults are multiplied by; 0 is the
            system's own factor, 1 for the reference system. So a seed tests systems of different speed alike.
        duration_ms: Time of the main phase, in which the workload runs and faults are injected; virtual in the
            simulation.
        final_phase_ms: Bound on healing, catching up and final reads.
        recovery_max_ms: How long a partition may take after the last fault in force was healed until appends and
            polls succeed (anomaly `slow-recovery`); 0 for no limit.
        scenario: Name of a scripted scenario ("last-replica-standing:V3b"); it replaces workload and schedule.
        inventory: The hosts, for "ssh": path of a TOML file.
        workload_name: Which workload: "append", "consumer-group", "transactions", or one of another package.
        cluster: How many nodes, and the broker settings that experiments vary.
        topic: The topics under test. Broker 1 leads partition 0 of the first topic at first.
        workload: What clients do; its settings depend on its name. Rates are totals over all processes.
        nemesis: Random faults.
        schedule: Explicit faults; they replace those of `nemesis`.
        space: Choices and ranges from which each seed draws keys of this experiment
            (docs/how-to/draw-configurations.md); empty once it is resolved.
        disabled_rules: Rules of the reference system that are switched off on purpose (docs/rules.md).
        features: Levels of a version's features that differ from its defaults, by name.
        properties: Settings of the system's nodes under the system's own names, which win over all others.
        record_messages: Whether the nodes of a real run record the messages that matter, for the space-time
            diagram of the report: "on", "off", or the system's default ("auto": on for the reference system, off
            for Apache Kafka, whose request log is slow). A simulated run needs no record.
        sim_wire: Send every simulated message through the codec.
        stop_on_violation: End the main phase as soon as what clients have seen contradicts the order in time.
        check_invariants: In the simulation, look into the nodes all the time; a broken invariant ends the run.
            Without it the run shows what clients alone see.

    Raises:
        UsageError: Something is wrong that can be detected without a cluster.
    """

    name: str = "experiment"
    system: str = REFERENCE
    version: str = ""
    on: EnvironmentName = DEFAULT
    profile: str = ""
    timings: str = "fast"
    weather: WeatherName = "light"
    time_scale: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    duration_ms: Positive = 10000
    final_phase_ms: Positive = 60000
    recovery_max_ms: Natural = 0
    scenario: str = ""
    inventory: str = ""
    disabled_rules: tuple[str, ...] = ()
    features: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    record_messages: SwitchName = AUTO
    sim_wire: bool = False
    stop_on_violation: bool = False
    check_invariants: bool = True
    cluster: ClusterConfig = ClusterConfig()
    topic: TopicConfig = TopicConfig()
    workload_name: str = APPEND.name
    workload: WorkloadConfig = field(default_factory=AppendConfig)
    nemesis: NemesisConfig = NemesisConfig()
    schedule: tuple[Fault, ...] = ()
    space: Space = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks everything that can be checked without a cluster."""
        check_experiment_name(self.name)
        check_choice("environment", self.on, ENVIRONMENTS)
        system = self.system_under_test
        self._check_settings(system)
        if not self.time_scale:
            own = system.time_scale if isinstance(system, Paced) else 1.0
            object.__setattr__(self, "time_scale", own)
        if not self.profile:
            object.__setattr__(self, "profile", next(iter(system.profiles)))
        check_choice("profile", self.profile, system.profiles)
        check_choice("timings", self.timings, system.timings)
        check_choice("weather", self.weather, WEATHERS)
        check_choice("record_messages", self.record_messages, (AUTO, ON, OFF))
        for rule in self.disabled_rules:
            check_choice("switchable rule", rule, system.switchable_rules)
        self._check_environment(system)
        self._check_workload()
        self._check_live_watch()
        self._check_compaction()
        if not self.topic.replication_factor <= self.cluster.brokers:
            raise UsageError(
                f"topic.replication_factor is {self.topic.replication_factor}, but there are "
                f"{self.cluster.brokers} brokers; choose 1 to {self.cluster.brokers}"
            )
        self._check_schedule()
        self._check_templates(system)
        self._check_log_dirs()
        self._check_actions(system)

    @property
    def main_phase_ms(self) -> float:
        """How long the main phase takes."""
        return self.duration_ms * self.time_scale

    @property
    def final_phase_max_ms(self) -> float:
        """How long the final phase may take."""
        return self.final_phase_ms * self.time_scale

    @property
    def environment(self) -> Environment:
        """The environment of its cluster."""
        return ENVIRONMENTS[self.on]

    @property
    def system_under_test(self) -> System:
        """The adapter of its system.

        Raises:
            UsageError: There is no system of that name or version, or its package cannot be loaded.
        """
        system = SYSTEMS.get(self.system)
        if isinstance(system, VersionedSystem):
            return system.of_version(self.version or system.default_version, self.features)
        return system

    @property
    def records_messages(self) -> bool:
        """Whether the nodes record the messages that matter."""
        system = self.system_under_test
        if self.environment.is_simulated or not isinstance(system, RecordsMessages):
            return False
        return self.record_messages == ON or (
            self.record_messages == AUTO and system.records_messages_by_default
        )

    @property
    def workload_type(self) -> WorkloadType:
        """The kind of its workload.

        Raises:
            UsageError: There is no workload of that name, or its package cannot be loaded.
        """
        return WORKLOADS.get(self.workload_name)

    def _check_settings(self, system: System) -> None:
        named = SYSTEMS.get(self.system)
        if isinstance(named, VersionedSystem):
            object.__setattr__(self, "version", self.version or named.default_version)
        else:
            for key in ("version", "features"):
                if getattr(self, key):
                    raise UsageError(
                        f"the system {self.system!r} has no versions; leave {key!r} out"
                    )
        if self.record_messages == ON and not isinstance(system, RecordsMessages):
            raise UsageError(
                f"the system {self.system!r} records no messages; leave 'record_messages' out"
            )
        if isinstance(system, PropertyTaker):
            system.check_properties(self.properties)
        elif self.properties:
            raise UsageError(f"the system {self.system!r} takes no properties; leave them out")

    def _check_environment(self, system: System) -> None:
        environment = self.environment
        if self.on not in system.environments:
            raise UsageError(
                f"the system {self.system!r} cannot run in {self.on!r} (it can: "
                f"{', '.join(sorted(system.environments))}); choose one with on or --on"
            )
        if self.cluster.brokers > system.brokers_max:
            raise UsageError(
                f"cluster.brokers is {self.cluster.brokers}, but the system {self.system!r} has "
                f"at most {system.brokers_max}"
            )
        log_dirs_max = system.log_dirs_max if isinstance(system, SeveralLogDirs) else 1
        if self.cluster.log_dirs > log_dirs_max:
            raise UsageError(
                f"cluster.log_dirs is {self.cluster.log_dirs}, but a broker of the system "
                f"{self.system!r} has at most {log_dirs_max}"
            )
        if self.scenario:
            find_by_name(self.scenario)
            if self.space:
                raise UsageError(
                    "a scripted scenario has a configuration of its own; leave 'space' out"
                )
            if not environment.can_run_scenarios:
                raise UsageError(
                    f"the scenario {self.scenario!r} cuts links and power, which is not possible "
                    f"with {environment.summary}; use --on simulation, docker or ssh"
                )
        if environment.needs_inventory and not self.inventory:
            raise UsageError(f"on {self.on} the experiment needs its hosts: use --hosts FILE")
        if self.cluster.filesystem not in environment.disks:
            raise UsageError(
                f"cluster.disk is {self.cluster.disk!r}, which no kernel has; "
                f"use {' or '.join(environment.disks)}"
            )

    def _check_live_watch(self) -> None:
        if not self.stop_on_violation:
            return
        if not set(LOG_CHECKERS) <= set(self.workload_type.checkers):
            raise UsageError(
                "stop_on_violation watches appends and polls, and the workload"
                f" {self.workload_name!r} records none; leave it out"
            )
        if is_compacted(self.properties):
            raise UsageError(
                "stop_on_violation cannot tell lost records from those that the cleaner of a"
                f" compacted topic removed; leave it or {CLEANUP_POLICY} out"
            )

    def _check_compaction(self) -> None:
        if is_compacted(self.properties) and "transactions" in self.workload_type.checkers:
            raise UsageError(
                f"the workload {self.workload_name!r} does not record the keys of its records, so what the cleaner"
                f" of a compacted topic removed would count as lost; leave {CLEANUP_POLICY} out"
            )

    def _check_workload(self) -> None:
        client = CLIENTS.get(self.workload.client)
        if not self.environment.is_simulated:
            return
        if not client.runs_in_simulation:
            raise UsageError(
                f"workload.client is {self.workload.client!r}, which cannot run in a simulation; "
                'use on = "local", or --on local'
            )
        if not self.workload_type.runs_in_simulation:
            raise UsageError(
                f"workload.name is {self.workload_name!r}, which cannot run in a simulation; "
                'use on = "local", or --on local'
            )

    def _check_schedule(self) -> None:
        partitions = self.topic.partition_names()
        ids: set[str] = set()
        for fault in self.schedule:
            if fault.id in ids:
                raise UsageError(f"two faults of the schedule are called {fault.id!r}")
            ids.add(fault.id)
            if fault.at_ms >= self.duration_ms:
                raise UsageError(
                    f"fault {fault.id} comes at {fault.at_ms} ms, but the faults end with the main "
                    f"phase, at {self.duration_ms} ms (duration_ms)"
                )
            self._check_trigger(fault)
            named = (fault.params.get("broker", 1), *fault.params.get("replicas", ()))
            if fault.fault in ACTIONS and max(named) > self.cluster.brokers:
                raise UsageError(
                    f"fault {fault.id} names broker {max(named)}, but there are "
                    f"{self.cluster.brokers} brokers"
                )
            with usage_errors_of(fault.place):
                self._check_names(fault, partitions)
                check_copies(fault)

    def _check_names(self, fault: Fault, partitions: Sequence[str]) -> None:
        """Refuses a fault that names a partition, a topic or a fault that there is not."""
        for target in fault.targets:
            _, separator, partition = target.partition(":")
            if separator:
                check_choice("partition", partition, partitions)
        for pattern in (*fault.triggers, fault.messages):
            for partition in pattern.partitions if pattern is not None else ():
                check_choice("partition", partition, partitions)
        if "partition" in fault.params:
            check_choice("partition", fault.params["partition"], partitions)
        if "topic" in fault.params:
            check_choice("topic", fault.params["topic"], self.topic.names())
        for healed in fault.params.get("faults", ()):
            others = [one.id for one in self.schedule if not one.type.heals_others]
            check_choice("fault of the schedule", healed, others)

    def _check_trigger(self, fault: Fault) -> None:
        if self.environment.is_simulated:
            return
        system = self.system_under_test
        observed = system.events_inside if isinstance(system, HasFaultPoint) else ()
        for one in fault.triggers:
            if not one.kind.is_committed and one.kind.name not in observed:
                possible = ", ".join((*COMMITTED_EVENTS, *observed))
                raise UsageError(
                    f"fault {fault.id} waits for {one.text()!r}, which happens inside of nodes, and nodes of "
                    f"{self.system} do not report it; a fault can wait for these events here: {possible}"
                )

    def _check_templates(self, system: System) -> None:
        for name in self.nemesis.templates:
            template = TEMPLATES[name]
            if template.needs_simulation and not self.environment.is_simulated:
                raise UsageError(
                    f"the template {name!r} draws faults on messages, which are drawn for the simulation only; "
                    "leave it out of nemesis.templates, or write such faults as [[schedule]] tables"
                )
            if template.needs_controllers and not system.has_controllers:
                raise UsageError(
                    f"the template {name!r} is about controllers, and the system {self.system!r} has none; "
                    "leave it out of nemesis.templates"
                )
            check_transactions(name, self.workload_name)

    def _check_log_dirs(self) -> None:
        """Refuses faults of log directories that brokers do not have."""
        needed = [
            (fault.value("log_dir"), fault.fault)
            for fault in self.schedule
            if "log_dir" in fault.type.parameters
        ]
        if LOG_DIR in self.nemesis.faults:
            needed.append((2, LOG_DIR))  # what the parameter is if nothing is drawn for it
        number, name = max(needed, default=(1, ""))
        if number > self.cluster.log_dirs:
            raise UsageError(
                f"{name!r} needs log directory {number}, but brokers have "
                f"{self.cluster.log_dirs}; set cluster.log_dirs"
            )

    def _check_actions(self, system: System) -> None:
        """Refuses administrative actions that the system does not serve."""
        steps = find_by_name(self.scenario).steps if self.scenario else self.schedule
        requested = [step for step in steps if isinstance(step, Fault) and step.fault in ACTIONS]
        if not requested and ADMIN not in self.nemesis.faults:
            return
        if not isinstance(system, Administrable):
            raise UsageError(
                f"the system {self.system!r} serves no administrative actions; leave "
                f"{requested[0].fault if requested else ADMIN!r} out"
            )
        if ADMIN in self.nemesis.faults and not set(DRAWN_ACTIONS) & set(system.actions):
            raise UsageError(
                f"the system {self.system!r} serves no action that the family {ADMIN!r} draws "
                f"({', '.join(DRAWN_ACTIONS)}); leave it out"
            )
        for fault in requested:
            if fault.fault == MoveReplica.name and self.cluster.log_dirs == 1:
                raise UsageError(
                    f"fault {fault.id}: a replica can move only if brokers have several log "
                    "directories; set cluster.log_dirs to 2 or more"
                )
            refusal = system.refusal(action_of(fault))
            if refusal:
                raise UsageError(f"fault {fault.id}: {refusal}")


def with_overrides(experiment: Experiment, **values: Any) -> Experiment:
    """Returns the experiment with those top-level values that are not None."""
    return replace(experiment, **given(values))


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
