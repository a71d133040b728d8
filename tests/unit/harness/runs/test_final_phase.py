"""When clients append and read in the final phase: after recovery, or when waiting for it took too long."""

import asyncio
from typing import Any

import pytest

from harness.contracts.metadata import CommittedMetadata
from harness.runs.phases import Phases


class Recovering(Phases):
    """The final phase of a cluster that recovers when `recover` is called; what happens is noted in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.has_recovered = False
        self.metadata = CommittedMetadata()
        self._nemesis: Any = self
        self._cluster: Any = self
        self.workload: Any = self
        self.clients = ("client-0",)

    async def settle(self) -> None:
        pass

    def now_ns(self) -> int:
        return 0

    async def final_phase(self, keep_going: Any) -> bool:
        self.notes.append("clients")
        return True

    async def call(self, host: str, work: Any) -> Any:
        return await work

    def close(self) -> None:
        pass

    def is_recovered(self) -> bool:
        return self.has_recovered

    def recover(self) -> None:
        self.notes.append("recovered")
        self.has_recovered = True
        self.metadata.changed()


async def _play(patience_ms: float | None, until: str) -> list[str]:
    """Runs a final phase in which the cluster recovers as soon as `until` was noted, or at once."""
    phases = Recovering()

    async def recover_later() -> None:
        while until and until not in phases.notes:
            await asyncio.sleep(0)
        phases.recover()

    async with asyncio.timeout(30):
        await asyncio.gather(phases.final(patience_ms), recover_later())
    phases.notes.append("over")
    return phases.notes


@pytest.mark.parametrize("patience_ms", [None, 20_000.0])
def test_clients_wait_for_recovery(patience_ms: float | None) -> None:
    assert asyncio.run(_play(patience_ms, "")) == ["recovered", "clients", "over"]


def test_clients_try_when_recovery_takes_too_long_and_the_phase_ends_only_after_it() -> None:
    assert asyncio.run(_play(1.0, "clients")) == ["clients", "recovered", "over"]
