"""Injects faults on local processes: what a signal can do (`nemesis.mechanism.Injector`)."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from nemesis.administration import ACTIONS, inject_action
from nemesis.agent.processes import signals
from nemesis.agent.processes.procfs import cpu_ticks, process_state
from nemesis.agent.processes.signals import ProcessId
from nemesis.fault import Fault
from nemesis.fault_points import FaultPoints, ReportedEvents, fault_points_of
from nemesis.faults import FAULTS
from nemesis.local.nodes import Cluster
from nemesis.local.processes import identity
from nemesis.mechanism import Effect, Injection
from nemesis.message_rules import OF_MESSAGES
from nemesis.parameters import STOP_GRACE_MS

KILL_LIMIT_S = 30.0
EXIT_CODES = {
    # A Java virtual machine that has shut down cleanly says with its exit code that SIGTERM was the reason.
    "stop": frozenset({0, 128 + signal.SIGTERM}),
    "kill": frozenset({-signal.SIGKILL}),
}

SUPPORTED_FAULTS = frozenset({"pause", "stop", "kill", "start", "heal", *ACTIONS})


def make_injector(cluster: Cluster) -> "LocalInjector":
    """Returns the injector for a cluster of local processes."""
    return LocalInjector(cluster, fault_points_of(cluster))


def impossible_faults(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> Mapping[str, str]:
    """Returns why faults cannot be injected on local processes, by fault."""
    supported = sorted({*SUPPORTED_FAULTS, *OF_MESSAGES})
    why = f"local processes support only {', '.join(supported)}"
    return {
        name: f"{why}; --on docker supports most others"
        for name in FAULTS
        if name not in SUPPORTED_FAULTS and name not in OF_MESSAGES
    }


class LocalInjector:
    """Injects faults on local processes. Mutable: it keeps the faults in force.

    Args:
        cluster: The cluster into whose nodes faults are injected.
        points: The fault points of its nodes; None if they have none.

    Attributes:
        events: The events for which faults can wait here.
    """

    def __init__(self, cluster: Cluster, points: FaultPoints | None = None) -> None:
        self._cluster = cluster
        self._points = points
        self.events = ReportedEvents(cluster, points)
        self._pauses: list[Pause] = []

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        return SUPPORTED_FAULTS if self._points is None else SUPPORTED_FAULTS | OF_MESSAGES

    def describe(self) -> dict[str, Any]:
        """Returns nothing for the run's record: signals are the same on all machines."""
        return {}

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        """Injects a fault; returns when it is in force on all nodes that it can affect."""
        if fault.fault in ACTIONS:
            return await inject_action(self._cluster, fault, nodes)
        if fault.fault in OF_MESSAGES:
            assert self._points is not None
            return await self._points.inject(fault)
        servers = tuple(name for name in nodes if name in self._cluster.nodes)
        alive = tuple(name for name in servers if self._cluster.is_alive(name))
        if fault.fault == "start":
            return await Start.begin(self._cluster, servers)
        if fault.fault == "pause":
            return await self._pause(alive)
        return await End.begin(self._cluster, fault, alive)

    async def settle(self) -> None:
        """Resumes all processes that are still paused, and ends all rules about messages."""
        if self._points is not None:
            await self._points.settle()
        for pause in self._pauses:
            await pause.heal()

    async def _pause(self, alive: tuple[str, ...]) -> "Pause":
        processes = {name: identity(self._cluster.nodes[name]) for name in alive}
        self._pauses = [one for one in self._pauses if not one.is_healed]
        paused = {process for pause in self._pauses for process in pause.processes.values()}
        pause = Pause({name: one for name, one in processes.items() if one not in paused})
        # Recorded before anything is awaited: of two pauses at the same instant, only one may resume the node.
        self._pauses.append(pause)
        await pause.begin()
        return pause


class Pause:
    """Processes that are stopped with SIGSTOP.

    Args:
        processes: By node.
    """

    def __init__(self, processes: dict[str, ProcessId]) -> None:
        self.processes = processes
        self.is_healed = False
        self._cpu_ticks: dict[str, int] = {}
        self._stood_still: dict[str, bool] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose process is stopped."""
        return tuple(self.processes)

    async def begin(self) -> None:
        """Stops the processes; returns when every thread of them has stopped."""
        names = list(self.processes)
        await asyncio.gather(
            *(asyncio.to_thread(signals.freeze, self.processes[name]) for name in names)
        )
        self._cpu_ticks = {name: cpu_ticks(one.pid) for name, one in self.processes.items()}

    async def heal(self) -> None:
        """Resumes the processes; does nothing for one that has ended."""
        if not self.is_healed:
            self.is_healed = True
            for process in self.processes.values():
                signals.thaw(process)

    async def effect(self) -> Effect:
        """Returns whether a process was seen stopped and had not used one clock tick of CPU time since."""
        if not self.processes:
            return no_effect()
        for name, process in self.processes.items():
            if process.is_alive and process_state(process.pid) == "T":
                self._stood_still[name] = cpu_ticks(process.pid) == self._cpu_ticks[name]
        evidence: dict[str, Any] = {"paused": list(self.nodes), "cpu_ticks": self._cpu_ticks}
        if self._stood_still:
            evidence["stood_still"] = dict(self._stood_still)
        return Effect(took_effect=any(self._stood_still.values()), evidence=evidence)


class End:
    """Processes that were stopped with SIGTERM or killed with SIGKILL; use `begin`."""

    def __init__(
        self, cluster: Cluster, fault: Fault, pids: dict[str, int], exit_codes: dict[str, Any]
    ) -> None:
        self._cluster = cluster
        self._fault = fault
        self._pids = pids
        self._exit_codes = exit_codes

    @classmethod
    async def begin(cls, cluster: Cluster, fault: Fault, nodes: tuple[str, ...]) -> "End":
        """Ends the processes of nodes; returns when they are gone."""
        pids = {name: cluster.nodes[name].pid for name in nodes}
        limit_s = KILL_LIMIT_S
        if fault.fault == "stop":
            limit_s = int(fault.params.get("grace_ms", STOP_GRACE_MS)) / 1000
        codes = await asyncio.gather(
            *(cluster.end_process(name, fault.fault, limit_s) for name in nodes)
        )
        return cls(cluster, fault, pids, dict(zip(nodes, codes, strict=True)))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose process was ended."""
        return tuple(self._pids)

    async def heal(self) -> None:
        """Starts the nodes; does nothing for those that run again."""
        for name in self.nodes:
            await self._cluster.start_node(name)

    async def effect(self) -> Effect:
        """Returns whether every process ended as it should: cleanly, or by the signal."""
        if not self._pids:
            return no_effect()
        wanted = EXIT_CODES[self._fault.fault]
        evidence: dict[str, Any] = {"pids": self._pids, "exit_codes": self._exit_codes}
        if self._fault.fault == "stop":
            ends = self._exit_codes.items()
            evidence["ended"] = {name: {"in_time": code != -signal.SIGKILL} for name, code in ends}
        return Effect(took_effect=wanted.issuperset(self._exit_codes.values()), evidence=evidence)


class Start:
    """Nodes that were down and have been started; use `begin`."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids

    @classmethod
    async def begin(cls, cluster: Cluster, nodes: tuple[str, ...]) -> "Start":
        """Starts the nodes that are down."""
        down = [name for name in nodes if not cluster.is_alive(name)]
        for name in down:
            await cluster.start_node(name)
        return cls({name: cluster.nodes[name].pid for name in down})

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that were started."""
        return tuple(self._pids)

    async def heal(self) -> None:
        """Does nothing: a start is over when it has happened."""

    async def effect(self) -> Effect:
        """Returns whether a node was down."""
        if not self._pids:
            return no_effect()
        return Effect(took_effect=True, evidence={"pids": self._pids})


def no_effect() -> Effect:
    """Returns the effect of a fault that affects no node."""
    return Effect(took_effect=False, evidence={})
