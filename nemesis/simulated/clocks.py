"""Clock faults in the simulated world. A node suffers one at a time; the nemesis sees to that."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.contracts.cluster import Effect, InForce
from harness.simulation.clock import TRUE_EPOCH_MS
from harness.simulation.node import SimNode
from harness.simulation.world import World

SEEN = 0.5
"""A step or a rate counts as seen if the node's own clocks show at least so much of it."""


class _Skew:
    """One node's wrong clock, and what its process could see of it; whoever dies has seen it, too."""

    def __init__(self, node: SimNode, read: "Callable[[_Skew], float | None]") -> None:
        self.node = node
        self._read = read
        self._last_reading: float | None = None
        self.is_active = True
        self.backward_jumps = 0
        self.is_away = False
        self.began_ns = node.timeline.now
        self.monotonic_began_ns = node.clock.monotonic_ns()
        self.boots = node.clock.boots
        self.offset_before_ns = node.clock.wall_offset_ns()

    def read_once_more(self, *_: object) -> None:
        """Reads the clock for a process that is just ending."""
        reading = self._read(self)
        if reading is not None:
            self._last_reading = reading

    def reading(self) -> float | None:
        """Returns what the process reads now, or the last one read; None if none lived to read it."""
        if self.node.is_alive:
            self.read_once_more()
        return self._last_reading


class ClockFaults:
    """Steps, bends and strobes the clocks of hosts."""

    faults = ("clock_step", "clock_drift", "clock_strobe")

    def __init__(self, world: World) -> None:
        self._world = world
        self._skews: list[tuple[str, InForce]] = []

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects one of them."""
        skews = {name: _Skew(self._world.nodes[name], _READINGS[fault][0]) for name in nodes}
        in_force = InForce(nodes=nodes, token=(skews, dict(params)))
        for name, skew in skews.items():
            if fault == "clock_step":
                skew.node.clock.step_wall(params["ms"])
            elif fault == "clock_drift":
                skew.node.skew_clock(params["ppm"])
            else:
                self._strobe((skew, params["ms"], max(1, params["period_ms"] * 500_000)))
            self._world.trace.note(self._world.now, f"{fault} {name}")
            skew.node.on_exit.append(skew.read_once_more)
        self._skews.append((fault, in_force))
        return in_force

    def _strobe(self, strobe: tuple[_Skew, int, int]) -> None:
        skew, by_ms, half_ns = strobe
        if not skew.is_active:
            return
        by_ms_now = -by_ms if skew.is_away else by_ms
        skew.is_away = not skew.is_away
        skew.node.clock.step_wall(by_ms_now)
        if by_ms_now < 0 and skew.node.is_alive:
            skew.backward_jumps += 1
        self._world.push(self._world.now + half_ns, self._strobe, strobe)

    def heal(self, fault: str, in_force: InForce) -> None:
        """Takes back what the clocks were moved by; going back is a step of its own."""
        self._look(fault, in_force)
        skews, params = in_force.token
        for name, skew in skews.items():
            if not skew.is_active:
                continue
            skew.is_active = False
            skew.node.on_exit.remove(skew.read_once_more)
            if fault == "clock_drift":
                skew.node.skew_clock(0)
            elif fault == "clock_step" or skew.is_away:
                skew.node.clock.step_wall(-params["ms"])
            self._world.trace.note(self._world.now, f"heal {fault} {name}")

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """A wrong clock bit if a process lived to read it, and what it reads is wrong as it should be."""
        self._look(fault, in_force)
        return Effect(bit=bool(in_force.evidence.get("bit")), evidence=dict(in_force.evidence))

    def settle(self) -> None:
        """Takes back every fault that is in force."""
        for fault, in_force in self._skews:
            self.heal(fault, in_force)

    def _look(self, fault: str, in_force: InForce) -> None:
        skews, params = in_force.token
        key = _READINGS[fault][1]
        shown: dict[str, float] = in_force.evidence.setdefault(key, {})
        for name, skew in skews.items():
            reading = skew.reading() if skew.is_active else None
            if reading is not None:
                shown[name] = reading
        if fault == "clock_strobe":
            in_force.evidence["bit"] = any(jumps > 0 for jumps in shown.values())
        else:
            wanted = params["ms"] if fault == "clock_step" else params["ppm"]
            in_force.evidence["bit"] = any(value / wanted >= SEEN for value in shown.values())


def _ahead_ms(skew: _Skew) -> float | None:
    """Returns by how much more than before the node's own wall clock is ahead of the truth."""
    node = skew.node
    ahead_ms = node.host.clock.wall_ms() - (TRUE_EPOCH_MS + node.timeline.now / 1e6)
    return round(ahead_ms - skew.offset_before_ns / 1e6, 3)


def _gained_ppm(skew: _Skew) -> float | None:
    """Returns how much too fast the node's own monotonic clock runs; None if its machine was booted meanwhile."""
    node = skew.node
    elapsed_ns = node.timeline.now - skew.began_ns
    if not elapsed_ns or node.clock.boots != skew.boots:
        return None
    own_ns = node.host.clock.monotonic_ns() - skew.monotonic_began_ns
    return round((own_ns / elapsed_ns - 1) * 1e6 - node.clock.own_drift_ppm, 1)


def _backward_jumps(skew: _Skew) -> float | None:
    return skew.backward_jumps


_READINGS: dict[str, tuple[Callable[[_Skew], float | None], str]] = {
    "clock_step": (_ahead_ms, "wall_clock_ahead_ms"),
    "clock_drift": (_gained_ppm, "clock_gains_ppm"),
    "clock_strobe": (_backward_jumps, "backward_jumps"),
}
