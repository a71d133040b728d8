"""What an administrator does to a running cluster, and what became of it.

An action is a value; a system that serves it implements `harness.contracts.system.Administrable`. The names of the
actions are those of the faults that request them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfig:
    """Sets one configuration key, or deletes it.

    Attributes:
        topic: Whose configuration; "" for that of brokers.
        broker: Whose configuration if there is no topic; None for the default of all brokers.
        key: Kafka's name of the setting.
        value: Its new value; None deletes the setting, so that its default applies.
    """

    name: ClassVar[str] = "alter_config"
    topic: str = ""
    broker: int | None = None
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterFeature:
    """Changes the level of a feature of the cluster, up or down."""

    name: ClassVar[str] = "alter_feature"
    feature: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Assigns other replicas to a partition, or cancels the assignment that is under way.

    Attributes:
        topic, partition: Which partition.
        replicas: Broker ids, the preferred leader first; () cancels.
    """

    name: ClassVar[str] = "reassign"
    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReplica:
    """Moves the replica that a broker has of a partition to the broker's other log directory."""

    name: ClassVar[str] = "move_replica"
    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeader:
    """Requests an election: of the preferred leader, or, if `unclean`, of any replica that is alive."""

    name: ClassVar[str] = "elect_leader"
    topic: str
    partition: int
    unclean: bool


Action = AlterConfig | AlterFeature | Reassign | MoveReplica | ElectLeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """What became of an action.

    Attributes:
        broker: The broker that responded, or else the last one that a request was sent to; None if there is none.
        is_accepted: Whether the cluster accepted it.
        is_known: Whether that is certain. A request without a response may have been executed.
        evidence: The codes of the responses and other facts (JSON-compatible).
    """

    broker: int | None
    is_accepted: bool
    is_known: bool = True
    evidence: Mapping[str, Any] = field(default_factory=dict)
