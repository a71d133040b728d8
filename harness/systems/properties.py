"""Properties with Kafka's names that decide what a verdict may say, for every system that takes them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.contracts.administration import AlterConfig
from harness.errors import UsageError

if TYPE_CHECKING:
    from system_under_test.metadata.topic_configs import TopicConfigKey

CLEANUP_POLICY = "log.cleanup.policy"
COMPACT = "compact"

RUN_PROPERTIES = {"log.retention.ms": "-1"}
"""What runs set: a stepped clock makes records a week old, and their deletion would look like a loss."""

_DELETES = "retention deletes records, and the checkers would report them as lost"
_RETENTION = (
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
)
REFUSED_PROPERTIES = {
    **dict.fromkeys(_RETENTION, _DELETES),
    "min.insync.replicas": "the verdict follows from topic.min_insync_replicas; set that instead",
    "offsets.topic.replication.factor": "the verdict on groups assumes three replicas of their offsets",
    "unclean.leader.election.enable": (
        "the verdict follows from cluster.unclean_leader_election; set that instead"
    ),
}
"""Properties that an experiment cannot set, and why. The record of a run has one log start for all partitions. Its
promises are read from the experiment's other keys."""

REFUSED_SETTINGS = frozenset(
    {*_RETENTION, CLEANUP_POLICY, "retention.bytes", "retention.ms", "cleanup.policy"}
)
"""Settings of topics and brokers that no fault can alter: they decide which records are removed."""


def refuse_misleading_properties(given: Mapping[str, str]) -> None:
    """Raises `UsageError` if a property would make a verdict wrong."""
    for name in given:
        if name in REFUSED_PROPERTIES:
            raise UsageError(f"properties cannot contain {name}: {REFUSED_PROPERTIES[name]}")
    policy = given.get(CLEANUP_POLICY, COMPACT)
    if policy not in (COMPACT, "delete"):
        raise UsageError(
            f'properties: {CLEANUP_POLICY} is {policy!r}; use "{COMPACT}", or leave it out: retention deletes'
            " records, and the checkers would report them as lost"
        )


def refuse_impossible_values(given: Mapping[str, str]) -> None:
    """Raises `UsageError` if a value is not of the type of its property, or too small in the unit of the topic's.

    Properties that the reference system does not know may have any value.
    """
    from system_under_test.metadata.topic_configs import SYNONYMS, TopicConfigKey
    from system_under_test.properties import PROPERTIES

    for name, text in given.items():
        if name in PROPERTIES:
            kind = PROPERTIES[name].kind
            key = TopicConfigKey(name=name, kind=kind, default="", documentation="")
            _refuse_value(key, name, text)
        elif name in SYNONYMS:
            key, synonym = SYNONYMS[name]
            # The limits are those of the topic's setting, which may have a smaller unit.
            _refuse_value(key if synonym.factor == 1 else replace(key, check=None), name, text)
            if synonym.factor > 1 and (least := _least(key, int(text), synonym.factor)):
                raise UsageError(f"properties: {name} is {text}; use {least}")


def _least(key: "TopicConfigKey", number: int, factor: int) -> str:
    """Returns what a number must be instead, in a unit that is `factor` times that of a setting; "" if nothing."""
    return (key.check(str(max(number * factor, -1))) or "") if key.check is not None else ""


def _refuse_value(key: "TopicConfigKey", name: str, text: str) -> None:
    if problem := _problem(key, name, text):
        raise UsageError(f"properties: {problem}")


def misleading_setting(action: AlterConfig) -> str:
    """Returns why an action would make a verdict wrong; "" if it would not."""
    if action.key not in REFUSED_SETTINGS:
        return ""
    return (
        f"{action.key} cannot be altered: it decides which records are removed, and the checkers would report them"
        " as lost"
    )


def impossible_setting(action: AlterConfig) -> str:
    """Returns why no cluster accepts the value that an action sets; "" if it may, or if the setting is unknown."""
    from system_under_test.metadata.topic_configs import CLUSTER_CONFIGS, TOPIC_CONFIGS

    key = (TOPIC_CONFIGS if action.topic else CLUSTER_CONFIGS).get(action.key)
    if key is None or action.value is None:
        return ""
    return _problem(key, action.key, action.value)


def _problem(key: "TopicConfigKey", name: str, text: str) -> str:
    from system_under_test.metadata.topic_configs import InvalidConfigError, canonical

    try:
        canonical(key, text, name=name)
    except InvalidConfigError as error:
        return str(error)
    return ""


def is_compacted(given: Mapping[str, str]) -> bool:
    """Whether topics are compacted with these properties."""
    return given.get(CLEANUP_POLICY) == COMPACT
