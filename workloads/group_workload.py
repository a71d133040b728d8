"""The `consumer-group` workload: the `append` workload with a consumer group that reads beside it.

The members are those of `workloads.consumer_group`; they use confluent-kafka, so the workload needs a cluster
on TCP.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.contracts.client import KeepGoing
from harness.contracts.workload import Task, WorkloadContext, WorkloadType
from harness.errors import UsageError
from workloads.append import AppendConfig, AppendWorkload
from workloads.consumer_group import ConsumerGroup, GroupWorkloadConfig

FAST_SESSION_TIMEOUT_MS = 2000
SESSION_TIMEOUT_MS = 10_000
MEMBERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig(AppendConfig):
    """Settings of the workload: those of `append`, and the size of the group.

    Attributes:
        members: How many members the group has at a time.
    """

    members: int = 3

    def __post_init__(self) -> None:
        """Checks names and numbers."""
        # Not super(): a dataclass with slots is a new class, which the zero-argument form does not find.
        AppendConfig.__post_init__(self)
        if not 1 <= self.members <= MEMBERS_MAX:
            raise UsageError(f"workload.members is {self.members}; choose 1 to {MEMBERS_MAX}")


class ConsumerGroupWorkload(AppendWorkload):
    """The workload of one run. Implements `Workload`.

    Args:
        config: Settings.
        context: The run.
    """

    def __init__(self, config: ConsumerGroupConfig, context: WorkloadContext) -> None:
        super().__init__(config, context)
        self._group_host = context.hosts[-1]
        self.group = ConsumerGroup(
            context.bootstrap,
            GroupWorkloadConfig(
                members=config.members,
                session_timeout_ms=(
                    FAST_SESSION_TIMEOUT_MS if context.has_fast_timings else SESSION_TIMEOUT_MS
                ),
            ),
            context.recorder,
            run_id=context.run_id,
            topic_partitions=context.topic_partitions,
            ids=self.process_ids,
            random=context.client_host(self._group_host).random.stream("group"),
        )

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase, and the group."""
        return [*super().tasks(), Task(host=self._group_host, run=self.group.run)]

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends and reads everything, then lets a last member read and commit everything."""
        return await super().final_phase(keep_going) and await self.group.drain(keep_going)


CONSUMER_GROUP = WorkloadType(
    name="consumer-group",
    config=ConsumerGroupConfig,
    make=ConsumerGroupWorkload,
    checkers=("linearizability", "lost-acked", "replicas", "measures", "consumer-group"),
    runs_in_simulation=False,
)
