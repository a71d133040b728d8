"""Faults of clocks, on hosts: each node reads a small file, and tells what its clocks show."""

import itertools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nemesis.adapter import InForce
from nemesis.hosts.mechanism import FaultKind, Handler

if TYPE_CHECKING:
    from harness.environments.hosts.cluster import HostCluster

RATE_SLACK = 0.5
"""How much off the rates that are possible two readings of one process may seem, as they come late."""
STEP_SEEN = 0.5
"""A step or a drift counts as seen when the node shows at least so much of it."""


class ClockFaults(FaultKind):
    """Steps, drift and strobes."""

    def __init__(self, cluster: "HostCluster", in_force: dict[str, InForce]) -> None:
        super().__init__(cluster, in_force)
        # A node has one skew file: whose fault is in it. Noted before anything is awaited.
        self._skewed: dict[str, str] = {}

    def forget(self, name: str, token: str) -> None:
        """Forgets a skew that did not come about."""
        if self._skewed.get(name) == token:
            del self._skewed[name]

    def handlers(self) -> dict[str, Handler]:
        """Returns how each fault of this kind is done."""
        return {
            **dict.fromkeys(
                ("clock_step", "clock_drift", "clock_strobe"),
                Handler(inject=self._clock, heal=self._heal_clock, effect=self._effect_clock),
            ),
        }

    async def _clock(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = tuple(name for name in nodes if name not in self._skewed)
        for name in free:
            self._skewed[name] = token
        fault = params["fault"]
        if fault == "clock_strobe":
            period_ms = params["period_ms"]
            await self._each(free, "strobe", offset_ns=int(params["ms"] * 1e6), period_ms=period_ms)
        elif fault == "clock_drift":
            await self._each(free, "skew", rate_ppb=int(params["ppm"]) * 1000)
        else:
            await self._each(free, "skew", offset_ns=int(params["ms"] * 1e6))
        token_data = {
            "since_ns": time.monotonic_ns(),
            "fault": fault,
            "ms": params.get("ms", 0),
            "ppm": params.get("ppm", 0),
        }
        return InForce(nodes=free, token=token_data)

    async def _heal_clock(self, in_force: InForce, token: str) -> None:
        in_force.token["is_removed"] = True
        for name in in_force.nodes:
            self._skewed.pop(name, None)
        if in_force.token["fault"] == "clock_strobe":
            answers = await self._each(in_force.nodes, "strobe_end")
            in_force.evidence["set_back"] = {
                name: answer["backward_jumps"] for name, answer in answers.items()
            }
        else:
            await self._each(in_force.nodes, "skew")

    async def _effect_clock(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        shown = {name: self._shown(name, in_force) for name in in_force.nodes}
        in_force.evidence["shown_by_the_node"] = {name: text for name, (text, _) in shown.items()}
        in_force.evidence["bit"] = any(bit for _, bit in shown.values())

    def _shown(self, name: str, in_force: InForce) -> tuple[str, bool]:
        """Returns what a node's own readings show of a skew, and whether that is enough."""
        data = in_force.token
        readings = [r for r in self._cluster.clocks[name] if r[0] > data["since_ns"]]
        if len(readings) < 2:
            return "no reading", False
        ahead = [wall - self._cluster.true_wall_ms(name, at) for at, wall, _ in readings]
        if data["fault"] == "clock_step":
            return f"{ahead[-1]:.0f} ms", ahead[-1] / data["ms"] >= STEP_SEEN
        if data["fault"] == "clock_strobe":
            back = sum(b[1] < a[1] for a, b in itertools.pairwise(readings))
            return f"{back} times back", back > 0
        ppm = _rate_ppm([(at, monotonic) for at, _, monotonic in readings], data["ppm"])
        return f"{ppm:.0f} ppm", abs(ppm - data["ppm"]) <= abs(data["ppm"]) * STEP_SEEN


def _rate_ppm(readings: list[tuple[int, int]], wanted_ppm: float) -> float:
    """Returns how much too fast a clock ran, by its longest stretch of readings without a restart in between."""
    slowest, fastest = sorted((1.0, 1 + wanted_ppm / 1e6))
    stretches = [[readings[0]]]
    for before, after in itertools.pairwise(readings):
        rate = (after[1] - before[1]) / max(after[0] - before[0], 1)
        if not slowest - RATE_SLACK < rate < fastest + RATE_SLACK:
            stretches.append([])  # a new process begins its monotonic clock somewhere else
        stretches[-1].append(after)
    (at_0, shown_0), *_, (at_1, shown_1) = max(
        (stretch if len(stretch) > 1 else [(0, 0), (1, 1)] for stretch in stretches), key=len
    )
    return ((shown_1 - shown_0) / max(at_1 - at_0, 1) - 1) * 1e6
