"""Scripted scenarios, by name."""

from harness.errors import UsageError
from harness.names import unknown_name
from harness.scenarios import kafka_bugs
from harness.scenarios.last_replica_standing import VARIANTS
from harness.scenarios.steps import Scenario

FAMILIES = {"last-replica-standing": VARIANTS, "kafka-bug": kafka_bugs.VARIANTS}
DEFAULT_VARIANT = {"last-replica-standing": "V3b", "kafka-bug": "B-31"}


def find_scenario(family: str, variant: str | None = None) -> Scenario:
    """Returns a scenario of a family.

    Raises:
        UsageError: There is no such family or variant; the sentence suggests one.
    """
    if family not in FAMILIES:
        raise UsageError(unknown_name("scenario", family, FAMILIES))
    variants = FAMILIES[family]
    name = variant or DEFAULT_VARIANT[family]
    if name not in variants:
        requests = kafka_bugs.REQUESTS if variants is kafka_bugs.VARIANTS else {}
        raise UsageError(unknown_name(f"variant of {family}", name, [*variants, *requests]))
    return variants[name]


def find_by_name(name: str) -> Scenario:
    """Returns a scenario by its full name, for example "last-replica-standing:V3b"."""
    family, _, variant = name.partition(":")
    return find_scenario(family, variant or None)
