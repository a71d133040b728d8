"""DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.conformance.catalogue.topics import ILLEGAL_NAMES, MIN_ISR
from harness.conformance.probe import READ_TOPIC, Case, Probe

TOPIC, BROKER, GROUP, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 32, 8, 16
"""Kafka's types of resources."""
SET, DELETE, APPEND, SUBTRACT = range(4)
UNCLEAN = "unclean.leader.election.enable"
DESCRIBE_NEWEST, ALTER_NEWEST = 4, 1
BOTH = (MIN_ISR, UNCLEAN)
"""The settings that both systems have for topics and brokers."""


def describe(
    probe: Probe,
    kind: int,
    name: str,
    keys: Sequence[str] | None = BOTH,
    *,
    version: int = DESCRIBE_NEWEST,
    broker: int = 1,
    **fields: Any,
) -> None:
    """Describes settings of one resource."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    values = {"resources": [resource], **fields}
    probe.ask(
        "describe_configs", version, values, to=probe.target.brokers[broker], drops_unknown=True
    )


def _describe(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(
        id=f"describe configs/{case}",
        run=lambda probe: describe(probe, *arguments, **options),
    )


def _describe_cases() -> Iterator[Case]:
    for version in range(1, DESCRIBE_NEWEST + 1):
        yield _describe(f"topic, version {version}", TOPIC, READ_TOPIC, version=version)
    yield _describe("topic, all settings", TOPIC, READ_TOPIC, None)
    yield _describe("topic, no settings", TOPIC, READ_TOPIC, [])
    yield _describe("topic, one setting", TOPIC, READ_TOPIC, [MIN_ISR])
    yield _describe("topic, unknown setting", TOPIC, READ_TOPIC, ["no.such"])
    yield _describe("topic, retention.ms too", TOPIC, READ_TOPIC, [MIN_ISR, "retention.ms"])
    yield _describe("topic, synonyms", TOPIC, READ_TOPIC, include_synonyms=True)
    yield _describe("unknown topic", TOPIC, "nope")
    for name, illegal in ILLEGAL_NAMES.items():
        yield _describe(f"illegal topic, {name}", TOPIC, illegal)
    for broker in (1, 2):
        yield _describe(f"broker 1 at broker {broker}", BROKER, "1", broker=broker)
    yield _describe("broker, synonyms", BROKER, "1", include_synonyms=True)
    yield _describe("broker, all settings", BROKER, "1", None)
    yield _describe("defaults of all brokers", BROKER, "")
    for name in ("99", "x", "-1", "1.0", "01"):
        yield _describe(f"broker {name}", BROKER, name)
    for kind in (0, 1, 3, 77, -1):
        yield _describe(f"resource type {kind}", kind, READ_TOPIC)
    for kind, name in ((BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g")):
        yield _describe(f"resource type {kind}", kind, name)

    def twice(probe: Probe) -> None:
        resource = {
            "resource_type": TOPIC,
            "resource_name": READ_TOPIC,
            "configuration_keys": [MIN_ISR],
        }
        probe.ask("describe_configs", DESCRIBE_NEWEST, {"resources": [resource, resource]})

    yield Case(id="describe configs/same topic twice", run=twice)
    yield Case(
        id="describe configs/no resources",
        run=lambda p: p.ask("describe_configs", DESCRIBE_NEWEST, {"resources": []}),
    )


def alter(
    probe: Probe,
    kind: int,
    name: str,
    *changes: tuple[str, str | None, int],
    validates_only: bool = True,
    version: int = ALTER_NEWEST,
    broker: int = 1,
) -> None:
    """Changes settings of one resource, by default only as validation."""
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, value, operation in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    values = {"resources": [resource], "validate_only": validates_only}
    probe.ask("incremental_alter_configs", version, values, to=probe.target.brokers[broker])


def _alter(case: str, *arguments: Any, **options: Any) -> Case:
    return Case(id=f"alter configs/{case}", run=lambda probe: alter(probe, *arguments, **options))


TOPIC_CHANGES: Mapping[str, Sequence[tuple[str, str | None, int]]] = {
    "min ISR 2": [(MIN_ISR, "2", SET)],
    **{
        f"min ISR {value!r}": [(MIN_ISR, value, SET)]
        for value in ("0", "-1", "x", "", "7", " 2", "2147483648", None)
    },
    "min ISR deleted": [(MIN_ISR, None, DELETE)],
    "min ISR deleted with a value": [(MIN_ISR, "1", DELETE)],
    "min ISR appended": [(MIN_ISR, "1", APPEND)],
    "min ISR subtracted": [(MIN_ISR, "1", SUBTRACT)],
    "operation 9": [(MIN_ISR, "1", 9)],
    "operation -1": [(MIN_ISR, "1", -1)],
    "unknown setting": [("no.such", "1", SET)],
    "unknown setting deleted": [("no.such", None, DELETE)],
    "empty name": [("", "1", SET)],
    "retention.ms": [("retention.ms", "1000000", SET)],
    "one sound, one wrong": [(MIN_ISR, "2", SET), (UNCLEAN, "maybe", SET)],
    "same setting twice": [(MIN_ISR, "1", SET), (MIN_ISR, "2", SET)],
    "unclean election maybe": [(UNCLEAN, "maybe", SET)],
    "unclean election True": [(UNCLEAN, "True", SET)],
    "nothing": [],
}


def _alter_cases() -> Iterator[Case]:
    for version in range(ALTER_NEWEST + 1):
        yield _alter(
            f"topic, version {version}", TOPIC, READ_TOPIC, (MIN_ISR, "2", SET), version=version
        )
    for name, changes in TOPIC_CHANGES.items():
        yield _alter(f"topic, {name}", TOPIC, READ_TOPIC, *changes)
    yield _alter("unknown topic", TOPIC, "nope", (MIN_ISR, "1", SET))
    for name, illegal in ILLEGAL_NAMES.items():
        yield _alter(f"illegal topic, {name}", TOPIC, illegal, (MIN_ISR, "1", SET))
    for name in ("1", "", "99", "x", "-1"):
        yield _alter(f"broker {name!r}", BROKER, name, (MIN_ISR, "2", SET))
    yield _alter("broker 1 at broker 2", BROKER, "1", (MIN_ISR, "2", SET), broker=2)
    for kind in (0, 1, 3, 77, -1):
        yield _alter(f"resource type {kind}", kind, READ_TOPIC, (MIN_ISR, "2", SET))
    for kind, name in ((BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g")):
        yield _alter(f"resource type {kind}", kind, name, (MIN_ISR, "2", SET))

    def twice(probe: Probe) -> None:
        change = {"name": MIN_ISR, "config_operation": SET, "value": "2"}
        resource = {"resource_type": TOPIC, "resource_name": READ_TOPIC, "configs": [change]}
        values = {"resources": [resource, resource], "validate_only": True}
        probe.ask("incremental_alter_configs", ALTER_NEWEST, values)

    yield Case(id="alter configs/same topic twice", run=twice)

    def no_resources(probe: Probe) -> None:
        probe.ask(
            "incremental_alter_configs", ALTER_NEWEST, {"resources": [], "validate_only": True}
        )

    yield Case(id="alter configs/no resources", run=no_resources)


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    yield from _describe_cases()
    yield from _alter_cases()
