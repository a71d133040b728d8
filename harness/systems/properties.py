"""Properties with Kafka's names that decide what a verdict may say, for every system that takes them."""

from collections.abc import Mapping

from harness.errors import UsageError

CLEANUP_POLICY = "log.cleanup.policy"
COMPACT = "compact"

RUN_PROPERTIES = {"log.retention.ms": "-1"}
"""What runs set: a stepped clock makes records a week old, and their deletion would look like a loss."""

_DELETES = "retention deletes records, and the checkers would report them as lost"
REFUSED_PROPERTIES = {
    "log.retention.bytes": _DELETES,
    "log.retention.hours": _DELETES,
    "log.retention.minutes": _DELETES,
    "log.retention.ms": _DELETES,
    "min.insync.replicas": "the verdict follows from topic.min_insync_replicas; set that instead",
    "offsets.topic.replication.factor": "the verdict on groups assumes three replicas of their offsets",
    "unclean.leader.election.enable": (
        "the verdict follows from cluster.unclean_leader_election; set that instead"
    ),
}
"""Properties that an experiment cannot set, and why. The record of a run has one log start for all partitions. Its
promises are read from the experiment's other keys."""


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


def is_compacted(given: Mapping[str, str]) -> bool:
    """Whether topics are compacted with these properties."""
    return given.get(CLEANUP_POLICY) == COMPACT
