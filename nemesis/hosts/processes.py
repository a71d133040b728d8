"""Process faults on hosts: pauses, stops, kills, starts, memory and CPU pressure."""

from collections.abc import Mapping
from typing import Any

from nemesis.hosts.mechanism import TRACER, HostInjection, Mechanisms
from nemesis.parameters import STOP_GRACE_MS

STOPPED_STATES = ("T", "t")
"""State letters of a stopped process; "t" is the state of a traced process."""


class Pause(HostInjection):
    """Processes are stopped with SIGSTOP; SIGCONT heals them."""

    is_shown_by_the_living = True
    _pids: dict[str, int]
    _cpu_ticks: dict[str, int]

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the nodes whose process is not paused yet; a node that was restarted has a new process."""
        alive = self.hosts.alive(nodes)
        self._pids = {name: self.hosts.node(name).pid for name in alive}
        self._cpu_ticks = {}
        self._stood_still: dict[str, bool] = {}
        return tuple(
            name
            for name in alive
            if not any(
                isinstance(other, Pause) and other._pids.get(name) == self._pids[name]
                for other in self.hosts.on(name)
            )
        )

    async def begin(self) -> None:
        """Stops the processes."""
        responses = await self.hosts.each(self.nodes, "pause")
        self.nodes = tuple(name for name in self.nodes if responses[name]["stopped"])
        self._pids = {name: responses[name]["pid"] for name in self.nodes}
        self._cpu_ticks = {name: responses[name]["cpu_ticks"] for name in self.nodes}

    async def remove(self) -> None:
        """Resumes the processes; a node that was started again is left alone."""
        for name in self.nodes:
            await self.hosts.request(name, "resume", pid=self._pids[name])

    async def undo_on(self, name: str) -> None:
        """Resumes whatever process a node has."""
        await self.hosts.request(name, "resume")

    async def observe(self) -> None:
        """Compares the CPU time of the processes that are still stopped with what it was at the start."""
        for name in self.nodes:
            status = await self.hosts.request(name, "status")
            if status["state"] in STOPPED_STATES and status["pid"] == self._pids[name]:
                self._stood_still[name] = status["cpu_ticks"] == self._cpu_ticks[name]

    def evidence(self) -> dict[str, Any]:
        """Returns which processes were paused, and which of them did no work since then."""
        evidence: dict[str, Any] = {"paused": list(self.nodes), "cpu_ticks": dict(self._cpu_ticks)}
        if self._stood_still:
            evidence["stood_still"] = dict(self._stood_still)
        return evidence

    def took_effect(self) -> bool:
        """Whether a process was seen stopped and had not used one clock tick of CPU time since."""
        return any(self._stood_still.values())


class Stop(HostInjection):
    """Processes are stopped with SIGTERM, and killed if they take too long."""

    _ended: Mapping[str, Any]
    _exit_codes: Mapping[str, int | None]

    async def begin(self) -> None:
        """Stops the processes."""
        limit_s = int(self.fault.params.get("grace_ms", STOP_GRACE_MS)) / 1000
        self._ended = await self.hosts.end(self.nodes, "stop", limit_s)
        self._exit_codes = {name: await self.hosts.cluster.exit_code(name) for name in self.nodes}

    def evidence(self) -> dict[str, Any]:
        """Returns how each process ended."""
        return {"ended": dict(self._ended), "exit_codes": dict(self._exit_codes)}

    def took_effect(self) -> bool:
        """Whether every process ended by itself within its time."""
        return all(response["in_time"] for response in self._ended.values())


class Restart(Stop):
    """Processes are stopped with SIGTERM, and started again at once."""

    _starts: Mapping[str, int]

    async def begin(self) -> None:
        """Stops and starts the nodes."""
        await super().begin()
        await self.hosts.start(self.nodes)
        self._starts = {name: self.hosts.node(name).starts for name in self.nodes}

    def evidence(self) -> dict[str, Any]:
        """Returns how each process ended, and how often the node was started."""
        return {**super().evidence(), "starts": dict(self._starts)}


class Kill(HostInjection):
    """Processes are killed with SIGKILL."""

    _killed: Mapping[str, Any]

    async def begin(self) -> None:
        """Kills the processes; the agent waits until they are gone."""
        self._killed = await self.hosts.end(self.nodes, "kill")

    def evidence(self) -> dict[str, Any]:
        """Returns which process of each node was killed."""
        return {"killed": dict(self._killed)}

    def took_effect(self) -> bool:
        """Whether there was a process; it is gone."""
        return True


class Start(HostInjection):
    """Nodes that are down are started."""

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the nodes that are down."""
        alive = self.hosts.alive(nodes)
        return tuple(name for name in self.hosts.servers(nodes) if name not in alive)

    async def begin(self) -> None:
        """Starts the nodes."""
        await self.hosts.start(self.nodes)
        self._pids = {name: self.hosts.node(name).pid for name in self.nodes}

    def evidence(self) -> dict[str, Any]:
        """Returns the new processes."""
        return {"pids": self._pids}

    def took_effect(self) -> bool:
        """Whether a node was down; it has been started."""
        return True


class Oom(HostInjection):
    """The kernel kills processes because their control group is out of memory."""

    _killed: Mapping[str, Any]

    async def begin(self) -> None:
        """Takes the memory; returns when the kernel has killed the processes."""
        cluster = self.hosts.cluster
        await self.hosts.before_end(self.nodes)
        for name in self.nodes:
            cluster.expect_end(name)
        self._killed = await self.hosts.each(self.nodes, "oom")
        for name in self.nodes:
            cluster.process_is_gone(name)

    def evidence(self) -> dict[str, Any]:
        """Returns the kernel's counters of kills, before and after."""
        return {"oom": dict(self._killed)}

    def took_effect(self) -> bool:
        """Whether the kernel killed a process; the agent reports an error otherwise."""
        return True


class SlowCpu(HostInjection):
    """Processes get only a part of a core."""

    _mechanism: Mapping[str, Any]
    _throttled: Mapping[str, int] | None = None

    async def begin(self) -> None:
        """Limits the CPU time."""
        self._mechanism = await self.hosts.each(
            self.nodes, "slow_cpu", percent=self.fault.params["percent"]
        )

    async def remove(self) -> None:
        """Removes the limits and keeps their counters."""
        self._count(await self.hosts.each(self.nodes, "cpu_restore"))

    async def observe(self) -> None:
        """Reads how often the processes were held back."""
        self._count(await self.hosts.each(self.nodes, "cpu_evidence"))

    def evidence(self) -> dict[str, Any]:
        """Returns how it is done, and how often each process was held back."""
        evidence: dict[str, Any] = {"mechanism": dict(self._mechanism)}
        if self._throttled is not None:
            evidence["throttled"] = dict(self._throttled)
        return evidence

    def took_effect(self) -> bool:
        """Whether a process was held back."""
        return self._throttled is not None and any(self._throttled.values())

    def _count(self, responses: Mapping[str, Any]) -> None:
        self._throttled = {name: int(response["throttled"]) for name, response in responses.items()}


class StallMetadata(HostInjection):
    """The threads with which brokers apply committed metadata are stopped; the others go on."""

    is_shown_by_the_living = True
    _threads: dict[str, list[str]]
    _committed_before: int

    @property
    def claims(self) -> frozenset[str]:
        """The tracer, in addition to the claim in the fault table."""
        return super().claims | {TRACER}

    async def begin(self) -> None:
        """Stops the threads."""
        self._stood_still: dict[str, bool] = {}
        self._missed = 0
        self._committed_before = self.hosts.cluster.metadata.offset
        pattern = self.hosts.cluster.metadata_thread
        responses = await self.hosts.each(self.nodes, "stop_threads", pattern=pattern)
        self._threads = {name: response["threads"] for name, response in responses.items()}

    async def remove(self) -> None:
        """Resumes the threads."""
        self._compare(await self.hosts.each(self.nodes, "resume_threads"))

    async def undo_on(self, name: str) -> None:
        """Resumes whatever threads of a node are stopped."""
        await self.hosts.request(name, "resume_threads")

    async def observe(self) -> None:
        """Compares the CPU time of the threads that are still stopped with what it was at the start."""
        self._compare(await self.hosts.each(self.nodes, "threads_evidence"))

    def evidence(self) -> dict[str, Any]:
        """Returns which threads were stopped, whose did no work, and how many records were committed meanwhile."""
        return {
            "threads": dict(self._threads),
            "stood_still": dict(self._stood_still),
            "records_committed": self._missed,
        }

    def took_effect(self) -> bool:
        """Whether metadata was committed while the threads of a broker did no work."""
        return self._missed > 0

    def _compare(self, responses: Mapping[str, Any]) -> None:
        # The process may have ended meanwhile; what was seen of it before stays.
        stood_still = {name: True for name, found in responses.items() if found["stood_still"]}
        if stood_still:
            self._stood_still |= stood_still
            self._missed = self.hosts.cluster.metadata.offset - self._committed_before


MECHANISMS: Mechanisms = {
    "pause": Pause,
    "stop": Stop,
    "kill": Kill,
    "restart": Restart,
    "start": Start,
    "oom": Oom,
    "slow_cpu": SlowCpu,
    "stall_metadata": StallMetadata,
}
