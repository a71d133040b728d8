"""Schedules of defects: idempotent producers."""

from typing import Any

from harness.defects.requests import create_topic_request, idempotent_produce_request
from harness.defects.story import Story
from system_under_test.protocol.errors import ErrorCode

OTHER_TOPIC = "produced"
ATTEMPTS_MAX = 100


def a_retry_meets_a_new_leader(story: Story) -> None:
    """B-52: the response to a batch is lost with the leader, and the producer sends the batch to the next one.

    The clients of a run have no idempotent producer, so that it writes to a topic of its own.
    """
    story.begin()
    story.send_to_controller(create_topic_request(OTHER_TOPIC, (1, 2, 3)))
    first = _send(story)
    story.run_ms(500)
    story.kill(story.cluster.metadata.partitions[f"{OTHER_TOPIC}-0"].leader)
    again = _send(story)
    if again.base_offset != first.base_offset:
        story.complain(
            f"a batch of offset {first.base_offset} was appended again at offset {again.base_offset}",
            "U",
        )


def _send(story: Story) -> Any:
    """Sends the batch to the leader until it is acknowledged."""
    message = idempotent_produce_request(OTHER_TOPIC, producer_id=77, base_sequence=0)
    for _ in range(ATTEMPTS_MAX):
        leader = story.cluster.metadata.partitions.get(f"{OTHER_TOPIC}-0")
        if leader is not None and story.is_running(leader.leader):
            response = story.send_to_broker(leader.leader, message)
            part = response.responses[0].partition_responses[0]
            if part.error_code == ErrorCode.NONE:
                return part
        story.run_ms(20)
    raise AssertionError(f"no batch was acknowledged in {ATTEMPTS_MAX} attempts")
