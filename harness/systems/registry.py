"""The registry of systems under test; `docs/how-to/test-your-own-system.md` shows how to add one."""

from harness.contracts.registry import Registry
from harness.contracts.system import System

REFERENCE = "reference"

SYSTEMS: Registry[System] = Registry(
    kind="system",
    group="laststand.systems",
    built_in={REFERENCE: "harness.systems.reference.adapter:SYSTEM"},
)
