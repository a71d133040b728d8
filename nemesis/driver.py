"""The nemesis: runs a schedule against a cluster, and records every fault with its evidence."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.contracts.cluster import Cluster
from harness.errors import UsageError, usage_errors_of
from harness.names import unknown_name
from nemesis.administration import FOR_VERDICTS
from nemesis.events import CommittedEvents, EventSource
from nemesis.fault import Fault
from nemesis.faults import Targets
from nemesis.mechanism import Effect, Injection, Injector
from nemesis.shapes import split
from nemesis.targets import OF_CONTROLLERS, Chooser, check_role, check_selector, resolve_all
from nemesis.trigger import Trigger
from nemesis.waiting import Waiting

FaultRow = tuple[Any, ...]

RESTART = "restart"

_NOT_KNOWN_YET = Effect(took_effect=False, evidence={})


@dataclass(slots=True)
class _Active:
    """One fault that was injected; its last row is written when it is over."""

    fault: Fault
    injection: Injection | None
    invoked_ns: int
    completed_ns: int | None
    healed_ns: int | None = None
    effect: Effect = _NOT_KNOWN_YET

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it affects; empty for a heal."""
        return self.injection.nodes if self.injection is not None else ()


class Nemesis:
    """Injects and heals faults. One per run; everything it does becomes rows of the `faults` table.

    Args:
        cluster: The cluster that gets the faults; the nemesis reads its metadata, its population and its clock.
        injector: Injects the faults.
        record: Takes rows of `harness.history.schema.FAULTS`: one when a fault is in force, one when it is over
            (the last row of a fault id counts).
        chooser: Random stream for selectors that choose.
        events: Where faults that wait for an event get it; without it they can wait for committed changes.
        restarted_after: Faults whose nodes are restarted when they are healed (`RestartedAfter`). Such a restart
            is recorded like any other fault.
    """

    def __init__(
        self,
        cluster: Cluster,
        injector: Injector,
        record: Callable[[FaultRow], None],
        chooser: Chooser,
        events: EventSource | None = None,
        restarted_after: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._restarted_after = restarted_after
        self._events = events or CommittedEvents(cluster)
        self._injector = injector
        self._record = record
        self._chooser = chooser
        self._active: dict[str, _Active] = {}
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._holding: set[str] = set()
        self._waiting: dict[str, Waiting] = {}
        self._healing: dict[str, Waiting] = {}
        self._is_over = False
        self._has_begun_all = False
        self.resolved: dict[str, tuple[str, ...]] = {}

    def check(self, schedule: Sequence[Fault]) -> None:
        """Raises `UsageError` if the cluster does not support this schedule; called before the run."""
        population = self._cluster.population()
        supported = self._injector.supported_faults
        for fault in schedule:
            with usage_errors_of(fault.place):
                for trigger in fault.triggers:
                    self._events.check(trigger)
                for role in () if fault.messages is None else fault.messages.roles:
                    check_role(role, population)
                for selector in _selectors(fault):
                    check_selector(selector, population)
            if not fault.type.heals_others and fault.fault not in supported:
                raise UsageError(
                    f"fault {fault.id}: this environment cannot inject {fault.fault!r} "
                    f"(it can: {', '.join(sorted(supported))})"
                )
            for selector in _selectors(fault):
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
            kinds = "brokers" if is_for_brokers else "brokers and controllers"
            raise UsageError(
                f"fault {fault.id}: {selector} {what}, and {fault.fault!r} is for {kinds}"
            )

    async def run(self, schedule: Sequence[Fault]) -> None:
        """Runs a whole schedule; returns when the last fault has been injected and its time is over.

        Faults are injected in order of `at_ms`, and those of one instant in the order of the schedule. A fault
        that waits for an event begins to wait then; it waits until `end_waiting`.
        """
        start_ns = self._cluster.now_ns()
        for fault in sorted(schedule, key=lambda fault: fault.at_ms):
            delay_ns = start_ns + fault.at_ms * 1_000_000 - self._cluster.now_ns()
            if delay_ns > 0:
                await asyncio.sleep(delay_ns / 1e9)
            if fault.trigger is not None:
                self._waiting[fault.id] = self._waiting_for(
                    fault.trigger, fault.nth, fault.delay_ms
                )
            self._begun[fault.id] = asyncio.get_running_loop().create_task(self._one(fault))
        self._has_begun_all = True
        for task in list(self._begun.values()):
            await task

    def _waiting_for(self, trigger: Trigger, nth: int, delay_ms: int = 0) -> Waiting:
        """Returns a waiting for an event, which is at its end already if `end_waiting` came first."""
        waiting = Waiting(trigger, self._events, self._cluster.now_ns, nth=nth, delay_ms=delay_ms)
        if self._is_over:
            waiting.end()
        return waiting

    def end_waiting(self) -> None:
        """Ends the time in which faults begin and are healed at events.

        Those that still wait to begin are recorded as not started, and those that wait to be healed are healed.
        """
        self._is_over = True
        for waiting in (*self._waiting.values(), *self._healing.values()):
            waiting.end()

    async def cut_short(self, running: "asyncio.Task[None]") -> None:
        """Ends a schedule early: no further fault is injected, and none is healed before its time is asked for.

        What is being injected is completed. Faults in force stay so until `settle`.

        Args:
            running: The task that runs the schedule.
        """
        if not self._has_begun_all:
            running.cancel()
        for fault_id in sorted(self._holding):
            self._begun[fault_id].cancel()
        ends = await asyncio.gather(*self._begun.values(), running, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def inject(self, fault: Fault) -> tuple[str, ...]:
        """Injects one fault now and returns the nodes that it affects.

        A fault that heals others heals those that it names, or all. A fault whose selectors resolve to no node, or
        to nodes that are down already, is recorded with an empty list of nodes.
        """
        invoked_ns = self._cluster.now_ns()
        if fault.type.heals_others:
            await self._heal_named(fault, invoked_ns)
            return ()
        fault, nodes = self._aim(fault)
        injection = await self._injector.inject(fault, nodes)
        self.resolved[fault.id] = injection.nodes
        active = _Active(fault, injection, invoked_ns, self._cluster.now_ns())
        if fault.type.is_momentary:
            active.healed_ns = active.completed_ns
        is_in_force = not fault.type.is_momentary and bool(injection.nodes)
        if not is_in_force or fault.type.is_outage:
            # Other faults have only just begun; their evidence is collected when they are healed.
            active.effect = await _effect_of(injection)
        if is_in_force:
            self._active[fault.id] = active
        self._write(active)
        if fault.type.ends_outages:
            await self._end_outages(injection.nodes)
        return injection.nodes

    def _aim(self, fault: Fault) -> tuple[Fault, tuple[str, ...]]:
        """Returns the nodes that a fault is for at this moment, and the fault in terms of those nodes."""
        nodes = self._resolve(fault.targets)
        if fault.type.is_split_by_draw:
            return self._split(fault, nodes)
        if fault.type.targets is Targets.LINKS and len(nodes) < 2:
            return fault, ()
        if fault.type.targets is Targets.BROKERS:
            brokers = {name for name, _ in self._cluster.population().brokers}
            nodes = tuple(name for name in nodes if name in brokers)
        kind = fault.type.exclusive
        if kind:
            taken = {
                name
                for active in self._active.values()
                if active.fault.type.exclusive == kind
                for name in active.nodes
            }
            nodes = tuple(name for name in nodes if name not in taken)
        return fault, nodes

    def _split(self, fault: Fault, nodes: tuple[str, ...]) -> tuple[Fault, tuple[str, ...]]:
        """Draws which nodes are separated; the environment and the history get the groups that were drawn."""
        named = [self._resolve(tuple(group)) for group in fault.params.get("groups", ())]
        if not fault.targets:
            nodes = tuple(dict.fromkeys(name for group in named for name in group))
        shape = fault.value("shape")
        groups = split(shape, nodes, named, self._chooser)
        params = {**fault.params, "shape": shape, "groups": groups}
        separated = tuple(name for name in nodes if any(name in group for group in groups))
        return replace(fault, params=params, is_drawn=True), separated

    def _resolve(self, selectors: tuple[str, ...]) -> tuple[str, ...]:
        return resolve_all(
            selectors, self._cluster.population(), self._cluster.metadata, self._chooser
        )

    async def heal(self, fault_id: str) -> None:
        """Heals one fault; does nothing if it is not in force."""
        active = self._active.pop(fault_id, None)
        if active is None or active.injection is None:
            return
        before = await active.injection.effect()
        down = self._cluster.population().down
        await active.injection.heal()
        after = await active.injection.effect()
        active.healed_ns = self._cluster.now_ns()
        active.effect = after if after.took_effect else before
        self._write(active)
        if active.fault.fault in self._restarted_after:
            # Those that were down start without what disabled them anyway.
            await self._restart(active.fault, tuple(n for n in active.nodes if n not in down))

    async def _restart(self, healed: Fault, nodes: tuple[str, ...]) -> None:
        """Restarts nodes of a healed fault, unless they are down."""
        down = self._cluster.population().down
        alive = tuple(name for name in nodes if name not in down)
        if alive:
            restart = Fault(
                id=f"{healed.id}-restart", fault=RESTART, targets=alive, at_ms=healed.at_ms
            )
            await self.inject(restart)

    async def heal_all(self) -> None:
        """Heals everything that is in force, oldest first."""
        for fault_id in list(self._active):
            await self.heal(fault_id)

    async def record_effects(self) -> None:
        """Records the evidence so far of everything in force, which stays in force.

        For a run that ends before its faults are healed: without it, they would count as without effect.
        """
        for active in self._active.values():
            if active.injection is not None and not active.effect.took_effect:
                active.effect = await active.injection.effect()
                self._write(active)

    async def settle(self) -> None:
        """Heals everything that is in force, then removes whatever is still wrong."""
        await self.heal_all()
        await self._injector.settle()

    async def _one(self, fault: Fault) -> None:
        waiting = self._waiting.get(fault.id)
        if waiting is not None and not await waiting.has_come():
            self._write_not_started(fault, waiting.why_not())
            return
        await self.inject(fault)
        if fault.for_ms is not None and fault.id in self._active:
            self._holding.add(fault.id)
            await self._hold(fault, fault.for_ms / 1e3)
            self._holding.discard(fault.id)
            await self.heal(fault.id)

    async def _hold(self, fault: Fault, at_most_s: float) -> None:
        """Returns when a fault in force is to be healed."""
        if fault.healing_trigger is None:
            await asyncio.sleep(at_most_s)
            return
        healing = self._waiting_for(fault.healing_trigger, fault.until_nth)
        self._healing[fault.id] = healing
        try:
            await asyncio.wait_for(healing.has_come(), at_most_s)
        except TimeoutError:
            pass
        finally:
            healing.end()

    async def _end_outages(self, started: tuple[str, ...]) -> None:
        """Ends the faults that had taken these nodes down: starting a node is how they are healed."""
        for fault_id, active in list(self._active.items()):
            if active.fault.type.is_outage and set(active.nodes) <= set(started):
                await self.heal(fault_id)

    async def _heal_named(self, fault: Fault, invoked_ns: int) -> None:
        names = list(fault.params.get("faults", self._active))
        for name in names:
            known = {**self.resolved, **self._waiting}
            if name not in known:
                raise UsageError(unknown_name("fault of this schedule", name, known))
            await self.heal(name)
        now_ns = self._cluster.now_ns()
        done = _Active(fault, None, invoked_ns, now_ns, now_ns)
        done.effect = Effect(took_effect=True, evidence={"healed": names})
        self._write(done)

    def _write_not_started(self, fault: Fault, reason: str) -> None:
        """Records a fault that never began: it was in force for no time, and it has no nodes."""
        now_ns = self._cluster.now_ns()
        self._write(
            _Active(
                fault,
                None,
                now_ns,
                None,
                now_ns,
                Effect(took_effect=False, evidence={"not_started": reason}),
            )
        )

    def _write(self, active: _Active) -> None:
        fault, effect = active.fault, active.effect
        traits = fault.type
        evidence = dict(effect.evidence)
        for name, waiting in (("event", self._waiting), ("healing_event", self._healing)):
            if fault.id in waiting:
                evidence |= waiting[fault.id].evidence(name)
        self._record(
            (
                fault.id,
                fault.fault,
                list(fault.targets),
                list(active.nodes),
                json.dumps(dict(fault.params), sort_keys=True, default=list),
                active.invoked_ns,
                active.completed_ns,
                active.healed_ns,
                effect.took_effect,
                json.dumps(evidence, sort_keys=True),
                traits.is_repair,
                traits.can_lose_data,
                traits.ends_uncleanly,
                traits.excuses_death,
                cut_short(effect.evidence) if traits.stops_cleanly else [],
                "error" in effect.evidence,
                *(
                    list(effect.evidence.get(key, ())) if traits.is_administrative else []
                    for key in FOR_VERDICTS
                ),
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


async def _effect_of(injection: Injection) -> Effect:
    """Returns the effect of an injection; without nodes there is none, whatever the evidence."""
    effect = await injection.effect()
    if injection.nodes:
        return effect
    return Effect(took_effect=False, evidence={**effect.evidence, "hit": "nobody"})


def _selectors(fault: Fault) -> list[str]:
    """Returns the targets of a fault, and what its groups name."""
    named = [selector for group in fault.params.get("groups", ()) for selector in group]
    return [*fault.targets, *named]
