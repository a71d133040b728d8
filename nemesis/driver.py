"""The nemesis: carries out a schedule against a cluster and writes down what it did and whether it bit."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts.cluster import Cluster, Effect, InForce
from harness.errors import UsageError
from harness.names import unknown_name
from nemesis.fault import Fault
from nemesis.faults import Targets
from nemesis.shapes import split
from nemesis.targets import Chooser, check_selector, resolve_all

FaultRow = tuple[Any, ...]

OF_CONTROLLERS = ("active_controller", "one_controller", "controllers")


@dataclass(slots=True)
class _Active:
    fault: Fault
    params: Mapping[str, Any]
    in_force: InForce
    invoked_ns: int
    completed_ns: int
    healed_ns: int | None = None
    effect: Effect | None = None


class Nemesis:
    """Injects and heals faults. One per run; everything it does ends up in the `faults` table.

    Args:
        cluster: Where the faults go.
        record: Takes rows of `harness.history.schema.FAULTS`: one when a fault is in force, one when it is over
            (the last row of a fault id counts).
        chooser: Random stream for selectors that choose.
    """

    def __init__(
        self, cluster: Cluster, record: Callable[[FaultRow], None], chooser: Chooser
    ) -> None:
        self._cluster = cluster
        self._record = record
        self._chooser = chooser
        self._active: dict[str, _Active] = {}
        self.resolved: dict[str, tuple[str, ...]] = {}

    def check(self, schedule: Sequence[Fault]) -> None:
        """Raises `UsageError` if the cluster cannot suffer this schedule; called before the run."""
        population = self._cluster.population()
        for fault in schedule:
            if fault.fault not in self._cluster.supported_faults:
                raise UsageError(
                    f"fault {fault.id}: this environment cannot inject {fault.fault!r} "
                    f"(it can: {', '.join(sorted(self._cluster.supported_faults))})"
                )
            for selector in (*fault.targets, *_named_in_groups(fault)):
                check_selector(selector, population)
                self._check_kind(fault, selector)

    def _check_kind(self, fault: Fault, selector: str) -> None:
        population = self._cluster.population()
        what = ""
        is_for_brokers = fault.type.targets is Targets.BROKERS
        if is_for_brokers:
            if selector in (name for name, _ in population.controllers):
                what = "is a controller"
            elif selector in OF_CONTROLLERS:
                what = "means controllers"
        is_for_servers = is_for_brokers or fault.type.targets is Targets.SERVERS
        if is_for_servers and selector in population.clients:
            what = "is a client"
        if what:
            whom = "brokers" if is_for_brokers else "brokers and controllers"
            raise UsageError(
                f"fault {fault.id}: {selector} {what}, and {fault.fault!r} is for {whom}"
            )

    async def run(self, schedule: Sequence[Fault]) -> None:
        """Carries out a whole schedule; returns when the last fault has been injected and its time is over.

        Faults come in order of `at_ms`; only those of one instant in the order of the schedule.
        """
        start_ns = self._cluster.now_ns()
        tasks = []
        for fault in sorted(schedule, key=lambda fault: fault.at_ms):
            delay_ns = start_ns + fault.at_ms * 1_000_000 - self._cluster.now_ns()
            if delay_ns > 0:
                await asyncio.sleep(delay_ns / 1e9)
            tasks.append(asyncio.get_running_loop().create_task(self._one(fault)))
        for task in tasks:
            await task

    async def inject(self, fault: Fault) -> tuple[str, ...]:
        """Injects one fault now and returns the nodes that it hit.

        A `heal` heals the faults it names, or all. A fault whose selectors resolve to nobody, or to nodes
        that are down already, is recorded with an empty list and hits nobody.
        """
        invoked_ns = self._cluster.now_ns()
        if fault.fault == "heal":
            await self._heal_named(fault, invoked_ns)
            return ()
        nodes, params = self._aim(fault)
        in_force = await self._cluster.inject(fault.fault, nodes, params)
        self.resolved[fault.id] = in_force.nodes
        active = _Active(fault, params, in_force, invoked_ns, self._cluster.now_ns())
        if not fault.type.is_momentary and in_force.nodes:
            self._active[fault.id] = active
        else:
            active.effect = await self._cluster.effect(fault.fault, in_force)
        self._write(active)
        if fault.fault == "start":
            await self._end_outages(in_force.nodes)
        return in_force.nodes

    def _aim(self, fault: Fault) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Returns whom a fault is for at this moment, and its parameters in terms of those nodes."""
        nodes, params = self._resolve(fault.targets), fault.params
        if fault.fault == "partition":
            return self._split(fault, nodes)
        if fault.type.targets is Targets.LINKS and len(nodes) < 2:
            return (), params
        if fault.type.targets is Targets.BROKERS:
            brokers = {name for name, _ in self._cluster.population().brokers}
            nodes = tuple(name for name in nodes if name in brokers)
        kind = fault.type.exclusive
        if kind:
            taken = {
                name
                for active in self._active.values()
                if active.fault.type.exclusive == kind
                for name in active.in_force.nodes
            }
            nodes = tuple(name for name in nodes if name not in taken)
        return nodes, params

    def _split(
        self, fault: Fault, nodes: tuple[str, ...]
    ) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Draws who is split from whom; what was drawn is what the environment and the history are told."""
        named = [self._resolve(tuple(group)) for group in fault.params.get("groups", ())]
        if not fault.targets:
            nodes = tuple(dict.fromkeys(name for group in named for name in group))
        shape = fault.params.get("shape", "halves")
        groups = split(shape, nodes, named, self._chooser)
        params = {**fault.params, "shape": shape, "groups": groups}
        return tuple(name for name in nodes if any(name in group for group in groups)), params

    def _resolve(self, selectors: tuple[str, ...]) -> tuple[str, ...]:
        return resolve_all(
            selectors, self._cluster.population(), self._cluster.metadata, self._chooser
        )

    async def heal(self, fault_id: str) -> None:
        """Heals one fault; does nothing if it is not in force."""
        active = self._active.pop(fault_id, None)
        if active is None:
            return
        before = await self._cluster.effect(active.fault.fault, active.in_force)
        await self._cluster.heal(active.fault.fault, active.in_force)
        after = await self._cluster.effect(active.fault.fault, active.in_force)
        active.healed_ns = self._cluster.now_ns()
        active.effect = after if after.bit else before
        self._write(active)

    async def heal_all(self) -> None:
        """Heals everything that is in force, oldest first."""
        for fault_id in list(self._active):
            await self.heal(fault_id)

    async def _one(self, fault: Fault) -> None:
        await self.inject(fault)
        if fault.for_ms is not None and fault.id in self._active:
            await asyncio.sleep(fault.for_ms / 1e3)
            await self.heal(fault.id)

    async def _end_outages(self, started: tuple[str, ...]) -> None:
        """Ends the faults that had taken these nodes down: starting a node is how they are healed."""
        for fault_id, active in list(self._active.items()):
            if active.fault.type.is_outage and set(active.in_force.nodes) <= set(started):
                await self.heal(fault_id)

    async def _heal_named(self, fault: Fault, invoked_ns: int) -> None:
        names = list(fault.params.get("faults", self._active))
        for name in names:
            if name not in self.resolved:
                raise UsageError(unknown_name("fault of this schedule", name, self.resolved))
            await self.heal(name)
        now_ns = self._cluster.now_ns()
        done = _Active(fault, fault.params, InForce(nodes=()), invoked_ns, now_ns, now_ns)
        done.effect = Effect(bit=True, evidence={"healed": names})
        self._write(done)

    def _write(self, active: _Active) -> None:
        fault, effect = active.fault, active.effect
        traits = fault.type
        evidence = effect.evidence if effect is not None else active.in_force.evidence
        self._record(
            (
                fault.id,
                fault.fault,
                list(fault.targets),
                list(active.in_force.nodes),
                json.dumps(dict(active.params), sort_keys=True, default=list),
                active.invoked_ns,
                active.completed_ns,
                active.healed_ns,
                effect.bit if effect is not None else False,
                json.dumps(evidence, sort_keys=True),
                traits.is_repair,
                traits.can_lose_data,
                traits.ends_uncleanly,
                traits.excuses_death,
                cut_short(evidence) if traits.stops_cleanly else [],
                "error" in evidence,
            )
        )


def cut_short(evidence: Mapping[str, Any]) -> list[str]:
    """Returns the nodes that an orderly stop did not end in time, according to its evidence."""
    # The simulation reports how each process ended in a word, agents whether it ended in time.
    return [
        node
        for node, end in evidence.get("ended", {}).items()
        if not (end.get("in_time") if isinstance(end, dict) else end == "stopped")
    ]


def _named_in_groups(fault: Fault) -> list[str]:
    return [selector for group in fault.params.get("groups", ()) for selector in group]
