"""The registry of systems under test; `docs/how-to/test-your-own-system.md` shows how to add one."""

from harness.contracts.registry import Registry
from harness.contracts.system import System

REFERENCE = "reference"
APACHE_KAFKA = "apache-kafka"

SYSTEMS: Registry[System] = Registry(
    kind="system",
    group="laststand.systems",
    built_in={
        REFERENCE: "harness.systems.reference.adapter:SYSTEM",
        APACHE_KAFKA: "harness.systems.apache_kafka.adapter:SYSTEM",
    },
)
