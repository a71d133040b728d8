"""Schedules of defects with a topic of their own, to which the batches of an idempotent producer are sent."""

from typing import Any

from harness.defects.requests import (
    create_topic_request,
    idempotent_produce_request,
    reassign_request,
)
from harness.defects.story import Story
from system_under_test.protocol.errors import ErrorCode

OTHER_TOPIC = "produced"
ATTEMPTS_MAX = 100


def a_retry_meets_a_new_leader(story: Story) -> None:
    """B-52: the response to a batch is lost with the leader, and the producer sends the batch to the next one."""
    story.begin()
    story.send_to_controller(create_topic_request(OTHER_TOPIC, (1, 2, 3)))
    first = send(story)
    story.run_ms(500)
    story.kill(state(story).leader)
    again = send(story)
    if again.base_offset != first.base_offset:
        story.complain(
            f"a batch of offset {first.base_offset} was appended again at offset {again.base_offset}",
            "U",
        )


def the_first_partition_has_one_replica(story: Story) -> None:
    """B-31: partition 0 has one replica and partition 1 three; of partition 1 the last member loses its log."""
    story.begin()
    story.send_to_controller(create_topic_request(OTHER_TOPIC, (1,), (1,)))
    story.send_to_controller(reassign_request((OTHER_TOPIC, 1, (1, 2, 3))))
    name, partitions = state(story, index=1).name, story.cluster.metadata.partitions
    story.until(lambda: len(partitions[name].isr) == 3)
    first = send(story, index=1)
    away = [story.isolate(2)]
    story.until(lambda: partitions[name].isr == (1, 3))
    away.append(story.isolate(3))
    story.until(lambda: partitions[name].isr == (1,))
    story.power(1)
    story.wait(fenced=(1,))
    story.heal(*away)
    story.start(1)
    again = send(story, index=1, producer_id=78)
    if again.base_offset <= first.base_offset:
        story.complain(
            f"offset {again.base_offset} was acknowledged to a second producer: the first record is gone",
            "A",
        )


def state(story: Story, index: int = 0) -> Any:
    """Returns a partition of the topic in committed metadata."""
    story.until(lambda: f"{OTHER_TOPIC}-{index}" in story.cluster.metadata.partitions)
    return story.cluster.metadata.partitions[f"{OTHER_TOPIC}-{index}"]


def send(story: Story, *, index: int = 0, producer_id: int = 77) -> Any:
    """Sends a producer's first batch to the partition's leader until it is acknowledged; returns that response."""
    message = idempotent_produce_request(OTHER_TOPIC, index, producer_id=producer_id)
    for _ in range(ATTEMPTS_MAX):
        leader = state(story, index).leader
        if story.is_running(leader):
            response = story.send_to_broker(leader, message)
            part = response.responses[0].partition_responses[0]
            if part.error_code == ErrorCode.NONE:
                return part
        story.run_ms(20)
    raise AssertionError(f"no batch was acknowledged in {ATTEMPTS_MAX} attempts")
