"""The `consumer-group` workload: the `append` workload with a consumer group that reads beside it.

Several members of one group subscribe to the topics of the run, poll, process, commit what was processed, and
rebalance. From time to time a member leaves, or crashes without leaving the group, so that the coordinator has
to notice; a new member takes its place.

With the native client the members use it as well (`workloads.clients.native_group`); they run everywhere, also in
the simulation, each on a client host of its own. With every other client the members use confluent-kafka
(`workloads.consumer_group`), which needs a cluster on TCP.

Analyses: those of `append`, and what the group promises (`checkers.kernels.consumer_group`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.contracts.client import KeepGoing
from harness.contracts.workload import Task, WorkloadContext, WorkloadType
from harness.errors import UsageError
from workloads.append import AppendWorkload
from workloads.append_config import AppendConfig
from workloads.clients.native_consumer_member import NativeConsumerMember
from workloads.clients.native_group import NativeGroup, NativeMember
from workloads.consumer_group import ConsumerGroup
from workloads.group import GroupWorkloadConfig

NATIVE = "native"
CLASSIC = "classic"
MEMBERS: Mapping[str, type[NativeMember]] = {
    CLASSIC: NativeMember,
    "consumer": NativeConsumerMember,
}
"""What native members are, by group protocol."""
FAST_SESSION_TIMEOUT_MS = 2000
SESSION_TIMEOUT_MS = 10_000
MEAN_LIFE_SESSIONS = 2.5
"""Mean life of a member in session timeouts; with a shorter one members would be gone before a rebalance ends."""
MEMBERS_MAX = 100


class Group(Protocol):
    """The members of one run."""

    def tasks(self) -> Sequence[Task]:
        """Makes the members of the main phase."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Returns what was counted, for the summary of the run."""
        ...

    async def drain(self, keep_going: KeepGoing) -> bool:
        """Lets one more member read and commit everything that is there now.

        Returns:
            False when `keep_going()` turned false before that.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig(AppendConfig):
    """Settings of the workload: those of `append`, and the size of the group.

    Attributes:
        members: How many members the group has at a time.
        static_members: How many of them are static, that is, have an instance id (KIP-345); native members only.
        group_protocol: "classic", or "consumer" (KIP-848; native members only, Kafka 4.0 and later).
    """

    members: int = 3
    static_members: int = 0
    group_protocol: str = CLASSIC

    def __post_init__(self) -> None:
        """Checks names and numbers."""
        # Not super(): a dataclass with slots is a new class, which the zero-argument form does not find.
        AppendConfig.__post_init__(self)
        if not 1 <= self.members <= MEMBERS_MAX:
            raise UsageError(f"workload.members is {self.members}; choose 1 to {MEMBERS_MAX}")
        if not 0 <= self.static_members <= self.members:
            raise UsageError(
                f"workload.static_members is {self.static_members}; choose 0 to {self.members} (members)"
            )
        if self.static_members and self.client != NATIVE:
            raise UsageError(
                f"workload.static_members needs the client {NATIVE!r}, not {self.client!r}"
            )

        if self.group_protocol not in MEMBERS:
            raise UsageError(
                f"workload.group_protocol is {self.group_protocol!r}; choose one of {', '.join(MEMBERS)}"
            )
        if self.group_protocol != CLASSIC and self.client != NATIVE:
            raise UsageError(
                f"workload.group_protocol {self.group_protocol!r} needs the client {NATIVE!r}, not {self.client!r}"
            )

    @property
    def client_hosts(self) -> int:
        """Every process and every member has its own client host."""
        return self.processes + self.members


class ConsumerGroupWorkload(AppendWorkload):
    """The workload of one run. Implements `Workload`.

    Args:
        config: Settings.
        context: The run.
    """

    def __init__(self, config: ConsumerGroupConfig, context: WorkloadContext) -> None:
        super().__init__(config, context)
        session_timeout_ms = (
            FAST_SESSION_TIMEOUT_MS if context.has_fast_timings else SESSION_TIMEOUT_MS
        )
        settings = GroupWorkloadConfig(
            members=config.members,
            static_members=config.static_members,
            session_timeout_ms=session_timeout_ms,
            mean_life_s=MEAN_LIFE_SESSIONS * session_timeout_ms / 1e3,
        )
        self.group: Group
        if config.client == NATIVE:
            hosts = context.hosts[config.processes : config.client_hosts]
            member = MEMBERS[config.group_protocol]
            self.group = NativeGroup(context, settings, hosts, self.process_ids, member)
        else:
            self.group = _confluent_group(context, settings, self)

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase, and the group."""
        return [*super().tasks(), *self.group.tasks()]

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends and reads everything, then lets a last member read and commit everything."""
        return await super().final_phase(keep_going) and await self.group.drain(keep_going)

    def counters(self) -> Mapping[str, int]:
        """Returns what the members counted."""
        return self.group.counters()


def _confluent_group(
    context: WorkloadContext, settings: GroupWorkloadConfig, workload: AppendWorkload
) -> ConsumerGroup:
    host = context.hosts[-1]
    return ConsumerGroup(
        context.bootstrap,
        settings,
        context.recorder,
        run_id=context.run_id,
        topic_partitions=context.topic_partitions,
        ids=workload.process_ids,
        host=host,
        random=context.client_host(host).random.stream("group"),
    )


CONSUMER_GROUP = WorkloadType(
    name="consumer-group",
    config=ConsumerGroupConfig,
    make=ConsumerGroupWorkload,
    checkers=(
        "linearizability",
        "lost-acked",
        "replicas",
        "measures",
        "progress",
        "consumer-group",
    ),
)
