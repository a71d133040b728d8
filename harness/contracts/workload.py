"""What a workload offers: processes for the main phase, and a final phase that reads everything."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from harness.contracts.client import KeepGoing
from harness.contracts.host import ClientHost
from harness.contracts.recorder import Recorder
from harness.history.op import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContext:
    """What a workload is given.

    Attributes:
        run_id: Written into every payload; the seed of the run.
        topic_partitions: Every (topic, partition) to work on.
        bootstrap: Addresses of all brokers.
        hosts: Names of client hosts. The main phase uses all but the last, which is for the final phase.
        client_host: Returns a client host by name.
        recorder: Takes the history.
        has_fast_timings: Whether the system's timeouts are a tenth of its defaults.
    """

    run_id: int
    topic_partitions: tuple[tuple[str, int], ...]
    bootstrap: tuple[str, ...]
    hosts: tuple[str, ...]
    client_host: Callable[[str], ClientHost]
    recorder: Recorder
    has_fast_timings: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something that runs on one client host during the main phase.

    Attributes:
        host: Name of the client host.
        run: Does operations until its argument returns False, and finishes the operation it is in.
    """

    host: str
    run: Callable[[KeepGoing], Coroutine[Any, Any, None]]


class Workload(Protocol):
    """One run's workload. Mutable: it is the processes."""

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase."""
        ...

    def close(self) -> None:
        """Closes what the phase that has just ended needed; called after the main and after the final phase."""
        ...

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends and reads until every acknowledged record must have been seen; runs on the last client host.

        Returns:
            Whether all of it was done before `keep_going()` returned False.
        """
        ...

    def counters(self) -> Mapping[str, int]:
        """Returns what was counted, for the summary of the run."""
        ...


class ScriptedProcess(Protocol):
    """A process that a scripted scenario drives."""

    async def append(self, topic: str, partition: int, acks: int) -> Completion:
        """Appends one record and records the operation."""
        ...

    async def poll(self, topic: str, partition: int) -> Completion:
        """Polls once from the process's position and records the operation."""
        ...

    async def read_to_end(
        self, topic: str, partition: int, keep_going: KeepGoing, *, final: bool
    ) -> bool:
        """Polls from the present position to the log end."""
        ...


@runtime_checkable
class Scriptable(Protocol):
    """A workload whose processes can be driven by a scripted scenario."""

    def process(self, host: str) -> ScriptedProcess:
        """Makes a process on a client host."""
        ...


class WorkloadConfig(Protocol):
    """Settings of a workload: a frozen dataclass whose fields are the keys of the table `[workload]`."""

    @property
    def client(self) -> str:
        """Name of the kind of client that its processes use."""
        ...

    @property
    def client_hosts(self) -> int:
        """How many client hosts its main phase needs."""
        ...


@runtime_checkable
class HasCheckers(Protocol):
    """Settings of a workload that need checkers besides those of their workload."""

    @property
    def checkers(self) -> tuple[str, ...]:
        """Names of the checkers."""
        ...


@runtime_checkable
class LeavesTransactionsOpen(Protocol):
    """Settings of a workload that leaves transactions open which only their timeout ends."""

    @property
    def left_open_ms(self) -> int:
        """How long the timeout of such a transaction is; 0 if none is left open."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadType:
    """A kind of workload; the entry points of the group `laststand.workloads` name values of this type.

    Attributes:
        name: As in `[workload] name`.
        config: Class of its settings. Its `__post_init__` raises `UsageError` for settings that make no sense.
        make: Makes one from settings and a context.
        checkers: Names of the checkers that judge its histories, beside those that judge every history.
        runs_in_simulation: Whether it needs nothing but its hosts.
    """

    name: str
    config: type[Any]
    make: Callable[[Any, WorkloadContext], Workload]
    checkers: tuple[str, ...] = ()
    runs_in_simulation: bool = True
