"""The reports of a broker about where its replicas are (DIR-5)."""

import asyncio
from typing import Any
from uuid import UUID

from system_under_test.broker.directory_assignments import DirectoryAssignments
from system_under_test.broker.tasks import TaskScope
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import assign_replicas_to_dirs_response as r
from system_under_test.protocol.messages import millis
from tests.unit.system_under_test.broker.node_fakes import (
    FakeHost,
    ScriptedChannel,
    broker_config,
    run_virtually,
)

HERE, THERE, ELSEWHERE = UUID(int=1001), UUID(int=2001), UUID(int=3001)
TOPIC_ID = UUID(int=77)


class FakeLogs:
    """Where the replicas are, by partition index."""

    def __init__(self) -> None:
        self.has_several_directories = True
        self.places: dict[int, UUID] = {}

    def directory_id(self, topic: str, index: int) -> UUID | None:
        return self.places.get(index)


def registration(index: int, directory: UUID | None) -> PartitionRegistration:
    return PartitionRegistration(
        topic="t",
        topic_id=TOPIC_ID,
        partition=index,
        replicas=(2, 1),
        isr=(2, 1),
        leader=2,
        directories=() if directory is None else (ELSEWHERE, directory),
    )


def accept(request: Any) -> Any:
    return r.AssignReplicasToDirsResponse(
        throttle_time=millis(0),
        error_code=ErrorCode.NONE,
        directories=tuple(
            r.DirectoryData(
                id_=directory.id_,
                topics=tuple(
                    r.TopicData(
                        topic_id=topic.topic_id,
                        partitions=tuple(
                            r.PartitionData(
                                partition_index=one.partition_index, error_code=ErrorCode.NONE
                            )
                            for one in topic.partitions
                        ),
                    )
                    for topic in directory.topics
                ),
            )
            for directory in request.directories
        ),
    )


def refuse(error: ErrorCode) -> Any:
    return r.AssignReplicasToDirsResponse(throttle_time=millis(0), error_code=error, directories=())


class Story:
    def __init__(self, controller: Any = accept) -> None:
        self.logs = FakeLogs()
        self.registrations: dict[int, PartitionRegistration] = {}
        self.channel = ScriptedChannel(controller)
        self.failures: list[BaseException] = []
        self.scope = TaskScope(self.failures.append)
        self.assignments = DirectoryAssignments(
            FakeHost(),
            broker_config(),
            self.channel,  # type: ignore[arg-type]
            lambda: 41,
            self.logs,  # type: ignore[arg-type]
            lambda topic, index: self.registrations.get(index),
            self.scope,
        )

    def put(self, index: int, directory: UUID) -> None:
        self.logs.places[index] = directory

    def publish(self, index: int, directory: UUID | None) -> None:
        self.registrations[index] = registration(index, directory)
        self.assignments.placed(self.registrations[index])

    async def settle(self, seconds: float = 1) -> None:
        await asyncio.sleep(seconds)
        self.scope.cancel_all()

    @property
    def reports(self) -> list[dict[int, UUID]]:
        """What each request reports: directory by partition."""
        return [
            {
                one.partition_index: directory.id_
                for directory in message.directories
                for topic in directory.topics
                for one in topic.partitions
            }
            for _, message in self.channel.sent
        ]


def test_what_the_metadata_know_is_not_reported() -> None:
    async def main() -> None:
        story = Story()
        story.put(0, HERE)
        story.publish(0, HERE)
        assert story.assignments.pending_count == 0
        await story.settle()
        assert story.reports == []

    run_virtually(main())


def test_a_broker_with_one_directory_reports_only_to_metadata_with_directories() -> None:
    async def main() -> None:
        story = Story()
        story.logs.has_several_directories = False
        story.put(0, HERE)
        story.publish(0, None)
        assert story.assignments.pending_count == 0
        story.publish(0, THERE)
        await story.settle()
        assert story.reports == [{0: HERE}]

    run_virtually(main())


def test_reports_are_batched_and_repeated_until_the_controller_has_decided() -> None:
    answers = [
        ConnectionError(),
        refuse(ErrorCode.NOT_CONTROLLER),
        refuse(ErrorCode.STALE_BROKER_EPOCH),
    ]

    async def main() -> None:
        story = Story(lambda request: answers.pop(0) if answers else accept(request))
        for index, directory in enumerate((UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, THERE)):
            story.put(index, HERE)
            story.publish(index, directory)
        await story.settle()
        assert story.reports == [{0: HERE, 1: HERE, 2: HERE}] * 4
        assert {message.broker_epoch for _, message in story.channel.sent} == {41}
        assert story.assignments.pending_count == 0

    run_virtually(main())


def test_a_replica_in_a_directory_that_was_offline_at_the_start_is_lost_unless_its_id_is_known() -> (
    None
):
    async def main() -> None:
        story = Story()
        story.publish(0, MIGRATING_DIRECTORY)
        story.publish(1, THERE)
        await story.settle()
        assert story.reports == [{0: LOST_DIRECTORY}]

    run_virtually(main())


def test_a_move_is_requested_once_accepted_and_ended() -> None:
    async def main() -> None:
        story = Story()
        story.put(0, HERE)
        story.publish(0, HERE)
        assert not story.assignments.request("t", 0, THERE)
        assert not story.assignments.request("t", 0, THERE)
        await asyncio.sleep(0.1)
        assert story.reports == [{0: THERE}]
        story.publish(0, THERE)
        assert story.assignments.request("t", 0, THERE)
        story.put(0, THERE)
        story.assignments.end_request("t", 0)
        await story.settle()
        assert story.reports == [{0: THERE}], "the replica is where the metadata say"

    run_virtually(main())


def test_a_move_that_is_given_up_is_reported_back() -> None:
    async def main() -> None:
        story = Story()
        story.put(0, HERE)
        story.publish(0, HERE)
        story.assignments.request("t", 0, THERE)
        await asyncio.sleep(0.1)
        story.publish(0, THERE)
        story.assignments.end_request("t", 0)
        await story.settle()
        assert story.reports == [{0: THERE}, {0: HERE}]

    run_virtually(main())
