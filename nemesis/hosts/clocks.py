"""Clock faults on hosts: each node reads a small skew file, and reports what its clocks show."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

from nemesis.hosts.mechanism import HostInjection, Mechanisms
from nemesis.hosts.nodes import ClockReading

RATE_SLACK = 0.5
"""How far two readings of one process may seem to be off the possible rates, because they arrive late."""
SHOWN_MIN = 0.5
"""A step or a drift counts as seen when the node shows at least this fraction of it."""


class ClockInjection(HostInjection):
    """A node's clock is wrong. The evidence is what the node itself reports about its clock."""

    _since_ns = 0
    _shown: Mapping[str, tuple[str, bool]] | None = None

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes; a node that is down reads its skew file when it starts."""
        return self.hosts.servers(nodes)

    async def begin(self) -> None:
        """Writes the skew files."""
        await self.skew()
        self._since_ns = time.monotonic_ns()

    async def skew(self) -> None:
        """Makes the clocks wrong."""
        raise NotImplementedError

    def shown_by(self, readings: list[ClockReading], ahead_ms: list[float]) -> tuple[str, bool]:
        """Returns what readings show of the fault, and whether that is enough.

        Args:
            readings: Two or more, since the fault was injected.
            ahead_ms: For each of them, how far the node's wall clock was ahead of the true time.
        """
        raise NotImplementedError

    async def remove(self) -> None:
        """Heals the clocks."""
        await self.hosts.each(self.nodes, "skew")

    async def observe(self) -> None:
        """Evaluates what the nodes have reported so far."""
        shown = {}
        for name in self.nodes:
            cluster = self.hosts.cluster
            readings = [r for r in cluster.clocks[name] if r[0] > self._since_ns]
            ahead_ms = [wall - cluster.true_wall_ms(name, at) for at, wall, _ in readings]
            enough = len(readings) >= 2
            shown[name] = self.shown_by(readings, ahead_ms) if enough else ("no reading", False)
        self._shown = shown

    def evidence(self) -> dict[str, Any]:
        """Returns what the nodes' own clocks showed."""
        if self._shown is None:
            return {}
        return {"shown_by_the_node": {name: text for name, (text, _) in self._shown.items()}}

    def took_effect(self) -> bool:
        """Whether a node's own clock showed the fault."""
        return self._shown is not None and any(is_seen for _, is_seen in self._shown.values())


class ClockStep(ClockInjection):
    """The wall clock is wrong by a constant."""

    async def skew(self) -> None:
        """Moves the wall clocks."""
        offset_ns = int(self.fault.params["ms"] * 1e6)
        await self.hosts.each(self.nodes, "skew", offset_ns=offset_ns)

    def shown_by(self, readings: list[ClockReading], ahead_ms: list[float]) -> tuple[str, bool]:
        """Returns how far the wall clock was ahead, and whether that is most of the step."""
        return f"{ahead_ms[-1]:.0f} ms", ahead_ms[-1] / self.fault.params["ms"] >= SHOWN_MIN


class ClockDrift(ClockInjection):
    """Both clocks run at a wrong rate; of a foreign program, the wall clock only."""

    async def skew(self) -> None:
        """Changes the rate of the clocks."""
        await self.hosts.each(self.nodes, "skew", rate_ppb=int(self.fault.params["ppm"]) * 1000)

    def shown_by(self, readings: list[ClockReading], ahead_ms: list[float]) -> tuple[str, bool]:
        """Returns the rates that the clocks showed, and whether one of them is about the drift."""
        wanted_ppm = self.fault.params["ppm"]
        rates_ppm = {
            "monotonic": rate_ppm([(at, monotonic) for at, _, monotonic in readings], wanted_ppm),
            "wall": rate_ppm([(at, wall * 1_000_000) for at, wall, _ in readings], wanted_ppm),
        }
        text = ", ".join(f"{clock} {ppm:.0f} ppm" for clock, ppm in rates_ppm.items())
        slack_ppm = abs(wanted_ppm) * SHOWN_MIN
        return text, any(abs(ppm - wanted_ppm) <= slack_ppm for ppm in rates_ppm.values())


class ClockStrobe(ClockInjection):
    """The wall clock moves back and forth."""

    _set_back: Mapping[str, int] | None = None

    async def skew(self) -> None:
        """Starts the strobes."""
        params = self.fault.params
        await self.hosts.each(
            self.nodes,
            "strobe",
            offset_ns=int(params["ms"] * 1e6),
            period_ms=params["period_ms"],
        )

    async def remove(self) -> None:
        """Ends the strobes, which leave the clocks healed."""
        responses = await self.hosts.each(self.nodes, "strobe_end")
        self._set_back = {name: response["backward_jumps"] for name, response in responses.items()}

    def shown_by(self, readings: list[ClockReading], ahead_ms: list[float]) -> tuple[str, bool]:
        """Returns how often the wall clock went back between two readings."""
        back = sum(b[1] < a[1] for a, b in itertools.pairwise(readings))
        return f"{back} times back", back > 0

    def evidence(self) -> dict[str, Any]:
        """Returns what the nodes' own clocks showed, and how often the agents set them back."""
        evidence = super().evidence()
        if self._set_back is not None:
            evidence["set_back"] = dict(self._set_back)
        return evidence


def rate_ppm(readings: list[tuple[int, int]], wanted_ppm: float) -> float:
    """Returns how much too fast a clock ran, by its longest stretch of readings without a restart.

    Args:
        readings: (true time, time shown), both in ns of a monotonic clock.
        wanted_ppm: The rate that was injected. Two readings that fit neither this rate nor the true one have a
            restart of the node between them.
    """
    slowest, fastest = sorted((1.0, 1 + wanted_ppm / 1e6))
    stretches = [[readings[0]]]
    for before, after in itertools.pairwise(readings):
        rate = (after[1] - before[1]) / max(after[0] - before[0], 1)
        if not slowest - RATE_SLACK < rate < fastest + RATE_SLACK:
            stretches.append([])  # a new process starts its monotonic clock at another value
        stretches[-1].append(after)
    (at_0, shown_0), *_, (at_1, shown_1) = max(
        (stretch if len(stretch) > 1 else [(0, 0), (1, 1)] for stretch in stretches), key=len
    )
    return ((shown_1 - shown_0) / max(at_1 - at_0, 1) - 1) * 1e6


MECHANISMS: Mechanisms = {
    "clock_step": ClockStep,
    "clock_drift": ClockDrift,
    "clock_strobe": ClockStrobe,
}
