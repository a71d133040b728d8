"""Power cuts on hosts: nodes go silent, lose their processes and what was not durable, at one instant."""

import functools
import zlib
from collections.abc import Mapping
from typing import Any

from nemesis.hosts.mechanism import HostInjection, Mechanisms
from nemesis.hosts.network import remove_rules


class PowerCut(HostInjection):
    """The power of nodes is cut; it comes back when they are started."""

    _responses: list[Any]
    _stood: tuple[str, ...]

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes: one without a process may still lose what it had written."""
        return self.hosts.servers(nodes)

    async def begin(self) -> None:
        """Cuts the power of all nodes at one instant."""
        cluster = self.hosts.cluster
        self._stood = self.hosts.alive(self.nodes)
        await self.hosts.before_end(self._stood)
        for name in self._stood:
            cluster.expect_end(name)
        plans = {name: self._plan(name) for name in self.nodes}
        self._responses = await self.hosts.per_agent(
            self.nodes,
            "power_cut",
            lambda names: {
                "nodes": names,
                "token": self.token,
                "plans": {name: plans[name] for name in names},
            },
        )
        for name in self.nodes:
            self.hosts.before_start_of[name] = functools.partial(self._power_on, name)
            if name in self._stood:
                cluster.process_is_gone(name)

    async def undo_on(self, name: str) -> None:
        """Ends the silence of a node and resumes its process."""
        await remove_rules(self, (name,))
        await self.hosts.request(name, "resume")

    def evidence(self) -> dict[str, Any]:
        """Returns the mode, what each node kept and lost, and how long the steps took."""
        evidence: dict[str, Any] = {"mode": self._mode}
        for response in self._responses:
            evidence.update(response["nodes"])
            evidence.setdefault("timings_ms", []).append(response["timings_ms"])
        return evidence

    def took_effect(self) -> bool:
        """Whether there was a process, which is gone, or a node that was down lost data."""
        return bool(self._stood) or any(
            node["took_effect"]
            for response in self._responses
            for node in response["nodes"].values()
        )

    async def _power_on(self, name: str) -> None:
        """Ends the silence of a node that is about to be started."""
        await self.hosts.node(name).agent.request("power_on", nodes=[name], token=self.token)

    @property
    def _mode(self) -> str:
        return str(self.fault.params.get("mode", "lose_all"))

    def _plan(self, name: str) -> Mapping[str, Any]:
        keep = self.fault.params.get("keep_records")
        if isinstance(keep, Mapping):
            keep = keep.get(name)
        return {
            "mode": self._mode,
            "seed": zlib.crc32(f"{self.token}/{name}".encode()),
            "keep_records": keep,
            "torn_bytes": int(self.fault.params.get("torn_bytes", 0)),
        }


MECHANISMS: Mechanisms = {"power": PowerCut}
