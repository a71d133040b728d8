"""An experiment: one frozen value that says everything about a run except its seed.

It is read from TOML, flags override the file, and the resolved experiment is stored with the run as TOML that can
be run again. Unknown keys are errors with a suggestion: a misspelt key that is ignored is a fault that was never
injected.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name
from harness.scenarios import find_by_name
from nemesis.fault import Fault, fault_from_json
from nemesis.schedule import FAMILIES, Rhythm
from results.layout import check_experiment_name
from system_under_test.config import DEFAULT_PROFILE, PROFILES, TIMINGS
from system_under_test.rules import SWITCHABLE_RULES
from workloads.append import CLIENTS, NATIVE, AppendConfig

ACKS_NAMES = {"all": -1, "1": 1, "0": 0}
SIMULATION = "simulation"
LOCAL = "local"
DOCKER = "docker"
SSH = "ssh"
WORLDS = (SIMULATION, LOCAL, DOCKER, SSH)
WEATHERS = ("calm", "light", "stormy")
REAL_DISKS = ("ext4", "xfs")
DISKS = (*REAL_DISKS, "posix-strict")
BROKERS_MAX = 10
"""Controllers are numbered from 11, and a node id belongs to one node."""
CONTROLLERS_MAX = 9
PARTITIONS_MAX = 1000
PROCESSES_MAX = 1000


def _check_choice(kind: str, value: str, known: Mapping[str, Any] | tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(unknown_name(kind, value, known))


def _check_range(name: str, value: int, largest: int | None = None) -> None:
    if value < 1 or (largest is not None and value > largest):
        upper = "or more" if largest is None else f"to {largest}"
        raise UsageError(f"{name} is {value}; choose 1 {upper}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How many nodes, and the broker settings that experiments vary."""

    brokers: int = 3
    controllers: int = 3
    segment_bytes: int = 1 << 30
    flush_messages: int = 2**53
    unclean_leader_election: bool = False
    disk: str = "ext4"

    def __post_init__(self) -> None:
        """Checks names and numbers."""
        _check_range("cluster.brokers", self.brokers, BROKERS_MAX)
        _check_range("cluster.controllers", self.controllers, CONTROLLERS_MAX)
        _check_range("cluster.segment_bytes", self.segment_bytes)
        _check_range("cluster.flush_messages", self.flush_messages)
        _check_choice("disk", self.disk, DISKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The topic under test. Assignments are round robin, so partition 0 is led by broker 1 first."""

    name: str = "t"
    partitions: int = 1
    replication_factor: int = 3
    min_insync_replicas: int = 2

    def __post_init__(self) -> None:
        """Checks the name and the numbers."""
        # Kafka's rule for names; what begins with two underscores is Kafka's own.
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.name) or self.name in (".", ".."):
            raise UsageError(
                f"topic.name is {self.name!r}; use 1 to 249 letters, digits, '.', '_' and '-'"
            )
        if self.name.startswith("__"):
            raise UsageError(f"topic.name is {self.name!r}; names beginning with '__' are reserved")
        _check_range("topic.partitions", self.partitions, PARTITIONS_MAX)
        _check_range("topic.min_insync_replicas", self.min_insync_replicas)

    def topic_partitions(self) -> tuple[tuple[str, int], ...]:
        """Returns every (topic, partition)."""
        return tuple((self.name, index) for index in range(self.partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class NemesisConfig:
    """Random faults: which families, and how they breathe. No families: no random faults.

    Attributes:
        faults: Enabled families. A seed uses a random part of them, or with `every_family` all.
    """

    faults: tuple[str, ...] = ()
    every_family: bool = False
    gap_ms: int = 1500
    hold_ms: int = 2500
    step_ms: int = 700

    def __post_init__(self) -> None:
        """Checks names and times."""
        for family in self.faults:
            _check_choice("fault family", family, FAMILIES)
        for name in ("gap_ms", "hold_ms", "step_ms"):
            _check_range(f"nemesis.{name}", getattr(self, name))

    def rhythm(self) -> Rhythm:
        """Returns the mean times."""
        return Rhythm(gap_ms=self.gap_ms, hold_ms=self.hold_ms, step_ms=self.step_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A fully resolved experiment.

    Attributes:
        name: Folder of its runs.
        on: The world: "simulation", "local" (processes on this machine), "docker" (containers) or "ssh" (hosts).
        profile: Which Kafka the reference system plays (`system_under_test.config.PROFILES`).
        timings: "fast" (Kafka's defaults divided by about ten) or "kafka".
        weather: "calm", "light" or "stormy": how unruly the simulated world is between the faults.
        duration_ms: Virtual time of the main phase, in which the workload runs and faults are injected.
        final_phase_ms: Bound on healing, catching up and final reads, in virtual time.
        scenario: Name of a scripted scenario ("last-replica-standing:V3b"); it replaces workload and schedule.
        schedule: Explicit faults; wins over `nemesis`.
        inventory: The hosts, for "ssh": path of a TOML file (`harness.environments.hosts.inventory`).
        disabled_rules: Rules of the reference system that are switched off (defects).
        sim_wire: Send every message through the codec.
    """

    name: str = "experiment"
    on: str = SIMULATION
    profile: str = DEFAULT_PROFILE
    timings: str = "fast"
    weather: str = "light"
    duration_ms: int = 10000
    final_phase_ms: int = 60000
    scenario: str = ""
    inventory: str = ""
    cluster: ClusterConfig = ClusterConfig()
    topic: TopicConfig = TopicConfig()
    workload: AppendConfig = field(default_factory=AppendConfig)
    nemesis: NemesisConfig = NemesisConfig()
    schedule: tuple[Fault, ...] = ()
    disabled_rules: tuple[str, ...] = ()
    sim_wire: bool = False

    def __post_init__(self) -> None:
        """Checks everything that can be checked without a cluster."""
        _check_choice("world", self.on, WORLDS)
        _check_choice("profile", self.profile, PROFILES)
        _check_choice("timings", self.timings, TIMINGS)
        _check_choice("weather", self.weather, WEATHERS)
        for rule in self.disabled_rules:
            _check_choice("switchable rule", rule, SWITCHABLE_RULES)
        _check_choice("client", self.workload.client, CLIENTS)
        if self.workload.client != NATIVE and self.on == SIMULATION:
            raise UsageError(
                f"workload.client is {self.workload.client!r}, which cannot live in a simulation; "
                'say on = "local", or --on local'
            )
        if self.workload.group_members and self.on == SIMULATION:
            raise UsageError(
                "workload.group_members asks for confluent-kafka, which cannot live in a simulation; "
                'say on = "local", or --on local'
            )
        if self.scenario:
            find_by_name(self.scenario)
            if self.on == LOCAL:
                raise UsageError(
                    f"the scenario {self.scenario!r} cuts links and power, which local processes "
                    "cannot suffer; use --on simulation, docker or ssh"
                )
        if self.on == SSH and not self.inventory:
            raise UsageError("on ssh the experiment needs its hosts: use --hosts FILE")
        if self.on in (DOCKER, SSH) and self.cluster.disk not in REAL_DISKS:
            raise UsageError(
                f"cluster.disk is {self.cluster.disk!r}, which no kernel has; use ext4 or xfs"
            )
        if not 1 <= self.topic.replication_factor <= self.cluster.brokers:
            raise UsageError(
                f"topic.replication_factor is {self.topic.replication_factor}, but there are "
                f"{self.cluster.brokers} brokers; choose 1 to {self.cluster.brokers}"
            )
        _check_range("duration_ms", self.duration_ms)
        _check_range("final_phase_ms", self.final_phase_ms)
        check_experiment_name(self.name)
        self._check_schedule()

    def _check_schedule(self) -> None:
        partitions = [f"{topic}-{index}" for topic, index in self.topic.topic_partitions()]
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
            for target in fault.targets:
                _, separator, partition = target.partition(":")
                if separator:
                    _check_choice("partition", partition, tuple(partitions))
            for healed in fault.params.get("faults", ()):
                _check_choice("fault of the schedule", healed, tuple(f.id for f in self.schedule))

    def vary(self, key: str, value: str) -> "Experiment":
        """Returns the experiment with one key (dotted for tables) set from text, as `--vary` does."""
        data = to_data(self)
        table: dict[str, Any] = data
        *path, last = key.split(".")
        for part in path:
            if not isinstance(table.get(part), dict):
                raise UsageError(unknown_name("table of an experiment", part, data))
            table = table[part]
        if last not in table:
            raise UsageError(unknown_name("key of an experiment", key, _all_keys(data)))
        table[last] = _parse_scalar(key, value, table[last])
        return from_data(data)


def load(path: Path, **overrides: Any) -> Experiment:
    """Reads an experiment from a TOML file.

    Args:
        path: The file.
        overrides: Top-level values that replace those of the file, unless they are None. What only both together
            say, such as a world and its hosts, is checked afterwards.

    Raises:
        UsageError: The file is missing or not TOML (with the line), or a key or value is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no experiment file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the experiment file {path}: {error}") from None
    return loads(text, origin=str(path), default_name=path.stem, **overrides)


def loads(
    text: str, *, origin: str, default_name: str = "experiment", **overrides: Any
) -> Experiment:
    """Reads an experiment from TOML text; see `load`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{origin} is not valid TOML: {error}") from None
    data.setdefault("name", default_name)
    data.update({key: value for key, value in overrides.items() if value is not None})
    try:
        return from_data(data)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None


def from_data(data: Mapping[str, Any]) -> Experiment:
    """Builds an experiment from nested tables; see `to_data`."""
    values = _checked_keys(Experiment, data, "experiment")
    for key, kind in (("cluster", ClusterConfig), ("topic", TopicConfig)):
        if key in values:
            values[key] = _table(kind, values[key], key)
    if "workload" in values:
        values["workload"] = _workload(values["workload"])
    if "nemesis" in values:
        values["nemesis"] = _table(NemesisConfig, values["nemesis"], "nemesis")
    if "schedule" in values:
        if not isinstance(values["schedule"], list | tuple):
            raise UsageError("'schedule' must be an array of tables")
        if not all(isinstance(entry, Mapping) for entry in values["schedule"]):
            raise UsageError("'schedule' must be an array of tables")
        values["schedule"] = tuple(
            fault_from_json(entry, default_id=f"f{index}")
            for index, entry in enumerate(values["schedule"])
        )
    if "disabled_rules" in values:
        values["disabled_rules"] = _strings(values["disabled_rules"], "disabled_rules")
    return Experiment(**values)


def to_data(experiment: Experiment) -> dict[str, Any]:
    """Returns nested tables with every key, JSON- and TOML-compatible."""
    data: dict[str, Any] = {
        item.name: getattr(experiment, item.name)
        for item in fields(Experiment)
        if item.name not in ("cluster", "topic", "workload", "nemesis", "schedule")
    }
    data["disabled_rules"] = list(experiment.disabled_rules)
    data["cluster"] = _table_data(experiment.cluster)
    data["topic"] = _table_data(experiment.topic)
    data["workload"] = _table_data(experiment.workload)
    names = {value: name for name, value in ACKS_NAMES.items()}
    data["workload"]["acks"] = [names[acks] for acks in experiment.workload.acks]
    data["nemesis"] = _table_data(experiment.nemesis)
    data["schedule"] = [fault.to_json() for fault in experiment.schedule]
    return data


def dumps(experiment: Experiment) -> str:
    """Returns the experiment as TOML that `loads` reads back to an equal value."""
    data = to_data(experiment)
    lines = [f"{key} = {_toml(value)}" for key, value in data.items() if not _is_table(value)]
    for key, value in data.items():
        if isinstance(value, dict):
            lines.extend(["", f"[{key}]"])
            lines.extend(f"{name} = {_toml(item)}" for name, item in value.items())
    for fault in data["schedule"]:
        lines.extend(["", "[[schedule]]"])
        lines.extend(f"{name} = {_toml(item)}" for name, item in fault.items())
    return "\n".join(lines) + "\n"


def with_overrides(experiment: Experiment, **values: Any) -> Experiment:
    """Returns the experiment with those top-level values that are not None."""
    return replace(experiment, **{key: value for key, value in values.items() if value is not None})


def _checked_keys(kind: type[Any], data: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {item.name: item for item in fields(kind) if not item.name.startswith("_")}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            raise UsageError(unknown_name(f"key of {where}", key, known))
        expected = known[key].default
        if isinstance(expected, bool | int | float | str):
            value = _checked_scalar(f"{where}.{key}", value, expected)
        values[key] = value
    return values


def _checked_scalar(name: str, value: Any, expected: Any) -> Any:
    if isinstance(expected, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(expected):
        raise UsageError(
            f"{name} must be of type {type(expected).__name__}, not {type(value).__name__}"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UsageError(f"{name} must be a finite number, not {value}")
        if not 0 <= value < 2**63:
            raise UsageError(f"{name} must not be {'negative' if value < 0 else 'that large'}")
    return value


def _table(kind: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where!r} must be a table")
    values = _checked_keys(kind, data, where)
    if "faults" in values:
        values["faults"] = _strings(values["faults"], f"{where}.faults")
    return kind(**values)


def _workload(data: Any) -> AppendConfig:
    if not isinstance(data, Mapping):
        raise UsageError("'workload' must be a table")
    values = _checked_keys(AppendConfig, data, "workload")
    if "acks" in values:
        names = _strings(values["acks"], "workload.acks")
        for name in names:
            _check_choice("acks", name, ACKS_NAMES)
        if not names:
            raise UsageError("workload.acks must name at least one of all, 1, 0")
        values["acks"] = tuple(ACKS_NAMES[name] for name in names)
    config = AppendConfig(**values)
    _check_range("workload.processes", config.processes, PROCESSES_MAX)
    for key in ("request_timeout_ms", "connect_timeout_ms", "poll_max_bytes"):
        _check_range(f"workload.{key}", getattr(config, key))
    if config.appends_per_s + config.polls_per_s + config.latests_per_s <= 0:
        raise UsageError("workload: at least one of the rates must be greater than 0")
    return config


def _strings(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{name} must be a list of strings")
    return tuple(value)


def _table_data(value: Any) -> dict[str, Any]:
    return {
        item.name: list(content) if isinstance(content, tuple) else content
        for item in fields(value)
        for content in (getattr(value, item.name),)
    }


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    )


def _all_keys(data: Mapping[str, Any]) -> list[str]:
    keys: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict):
            keys.extend(f"{key}.{name}" for name in value)
        else:
            keys.append(key)
    return keys


def _parse_scalar(key: str, text: str, old: Any) -> Any:
    try:
        if isinstance(old, bool):
            return {"true": True, "false": False}[text]
        if isinstance(old, int):
            return int(text)
        if isinstance(old, float):
            return float(text)
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(old)]
        raise UsageError(f"{key}: {text!r} is not {kind}") from None
    return text.split("+") if isinstance(old, list) else text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
