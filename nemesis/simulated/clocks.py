"""Clock faults in the simulated world. A node has one at a time; the nemesis guarantees that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from harness.simulation.clock import TRUE_EPOCH_MS
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection
from nemesis.simulated.mechanism import Inject

SEEN = 0.5
"""A step or a rate took effect if the node's own clocks show at least this share of it."""


class Skew(Protocol):
    """What is wrong with one node's clock."""

    def begin(self) -> None:
        """Makes the clock wrong."""
        ...

    def end(self) -> None:
        """Corrects the clock."""
        ...

    def reading(self) -> float | None:
        """Returns what the node's own clock shows of it now; None if it cannot show anything."""
        ...

    def is_seen(self, reading: float) -> bool:
        """Whether a reading proves the fault."""
        ...


class _Step:
    """A wall clock that was stepped."""

    def __init__(self, node: SimNode, by_ms: int) -> None:
        self._node = node
        self._by_ms = by_ms
        self._offset_before_ns = node.clock.wall_offset_ns()

    def begin(self) -> None:
        self._node.clock.step_wall(self._by_ms)

    def end(self) -> None:
        self._node.clock.step_wall(-self._by_ms)

    def reading(self) -> float | None:
        """Returns by how much more than before the node's own wall clock is ahead of the true time."""
        node = self._node
        ahead_ms = node.host.clock.wall_ms() - (TRUE_EPOCH_MS + node.timeline.now / 1e6)
        return round(ahead_ms - self._offset_before_ns / 1e6, 3)

    def is_seen(self, reading: float) -> bool:
        return reading / self._by_ms >= SEEN


class _Drift:
    """Two clocks that run at a wrong rate."""

    def __init__(self, node: SimNode, ppm: int) -> None:
        self._node = node
        self._ppm = ppm
        self._began_ns = node.timeline.now
        self._monotonic_began_ns = node.clock.monotonic_ns()
        self._boots = node.clock.boots

    def begin(self) -> None:
        self._node.skew_clock(self._ppm)

    def end(self) -> None:
        self._node.skew_clock(0)

    def reading(self) -> float | None:
        """Returns how much too fast the node's own monotonic clock runs; None after a boot of its machine."""
        node = self._node
        elapsed_ns = node.timeline.now - self._began_ns
        if not elapsed_ns or node.clock.boots != self._boots:
            return None
        own_ns = node.host.clock.monotonic_ns() - self._monotonic_began_ns
        return round((own_ns / elapsed_ns - 1) * 1e6 - node.clock.own_drift_ppm, 1)

    def is_seen(self, reading: float) -> bool:
        return reading / self._ppm >= SEEN


class _Strobe:
    """A wall clock that is stepped back and forth by its own timer."""

    def __init__(self, node: SimNode, by_ms: int, period_ms: int) -> None:
        self._node = node
        self._by_ms = by_ms
        self._half_ns = max(1, period_ms * 500_000)
        self._is_active = True
        self._is_away = False
        self._backward_jumps = 0

    def begin(self) -> None:
        self._step(None)

    def end(self) -> None:
        self._is_active = False
        if self._is_away:
            self._node.clock.step_wall(-self._by_ms)

    def reading(self) -> float | None:
        """Returns how often the wall clock went back while there was a process."""
        return self._backward_jumps

    def is_seen(self, reading: float) -> bool:
        return reading > 0

    def _step(self, _: None) -> None:
        if not self._is_active:
            return
        by_ms = -self._by_ms if self._is_away else self._by_ms
        self._is_away = not self._is_away
        self._node.clock.step_wall(by_ms)
        if by_ms < 0 and self._node.is_alive:
            self._backward_jumps += 1
        timeline = self._node.timeline
        timeline.push(timeline.now + self._half_ns, self._step, None)


class _Witness:
    """Reads one wrong clock for the node's process, which may end before the fault is healed."""

    def __init__(self, node: SimNode, skew: Skew) -> None:
        self.node = node
        self.skew = skew
        self.is_active = True
        self.last_reading: float | None = None

    def read(self, *_: object) -> None:
        """Keeps what the clock shows now; also called when the process ends."""
        reading = self.skew.reading()
        if reading is not None:
            self.last_reading = reading

    def read_if_alive(self) -> None:
        """Keeps what the clock shows now, if there is a process to read it."""
        if self.is_active and self.node.is_alive:
            self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedClocks:
    """Clocks that one fault made wrong.

    Attributes:
        world: The world in which the nodes live.
        fault: The name of the fault, for the trace.
        shown_as: The name of the readings in the evidence.
        witnesses: One per node.
    """

    world: World
    fault: str
    shown_as: str
    witnesses: Mapping[str, _Witness] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose clocks are wrong."""
        return tuple(self.witnesses)

    async def heal(self) -> None:
        """Corrects the clocks."""
        self.correct()

    def correct(self) -> None:
        """Corrects the clocks; the correction is itself a step."""
        for witness in self.witnesses.values():
            witness.read_if_alive()
        for name, witness in self.witnesses.items():
            if not witness.is_active:
                continue
            witness.is_active = False
            witness.node.on_exit.remove(witness.read)
            witness.skew.end()
            self.world.trace.note(self.world.now, f"heal {self.fault} {name}")

    async def effect(self) -> Effect:
        """Returns what the nodes' own clocks show; one that shows the fault is enough."""
        for witness in self.witnesses.values():
            witness.read_if_alive()
        readings = {
            name: witness.last_reading
            for name, witness in self.witnesses.items()
            if witness.last_reading is not None
        }
        took_effect = any(
            self.witnesses[name].skew.is_seen(reading) for name, reading in readings.items()
        )
        return Effect(took_effect=took_effect, evidence={self.shown_as: readings})


class ClockFaults:
    """Steps, skews and strobes the clocks of hosts.

    Args:
        world: The world in which the nodes live.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._in_force: list[SkewedClocks] = []

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected."""
        return {
            "clock_step": self._step,
            "clock_drift": self._drift,
            "clock_strobe": self._strobe,
        }

    def settle(self) -> None:
        """Corrects every clock."""
        for clocks in self._in_force:
            clocks.correct()

    async def _step(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        by_ms = fault.value("ms")
        skews = {name: _Step(self._world.nodes[name], by_ms) for name in nodes}
        return self._begin(fault, skews, "wall_clock_ahead_ms")

    async def _drift(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        ppm = fault.value("ppm")
        skews = {name: _Drift(self._world.nodes[name], ppm) for name in nodes}
        return self._begin(fault, skews, "clock_gains_ppm")

    async def _strobe(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        by_ms, period_ms = fault.value("ms"), fault.value("period_ms")
        skews = {name: _Strobe(self._world.nodes[name], by_ms, period_ms) for name in nodes}
        return self._begin(fault, skews, "backward_jumps")

    def _begin(self, fault: Fault, skews: Mapping[str, Skew], shown_as: str) -> SkewedClocks:
        witnesses = {name: _Witness(self._world.nodes[name], skew) for name, skew in skews.items()}
        clocks = SkewedClocks(
            world=self._world, fault=fault.fault, shown_as=shown_as, witnesses=witnesses
        )
        for name, witness in witnesses.items():
            witness.skew.begin()
            self._world.trace.note(self._world.now, f"{fault.fault} {name}")
            witness.node.on_exit.append(witness.read)
        self._in_force.append(clocks)
        return clocks
