"""What a controller that is not active answers (CTRL-5)."""

from typing import Any

from system_under_test.controller.heartbeats import refused_heartbeat
from system_under_test.controller.isr_changes import alter_partition_answer
from system_under_test.controller.producer_ids import producer_ids_answer
from system_under_test.controller.registrations import registration_response
from system_under_test.controller.topics import create_topics_answer, topic_result
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    allocate_producer_ids_request,
    alter_partition_request,
    broker_heartbeat_request,
    broker_registration_request,
)

_NO_HEARTBEAT = refused_heartbeat(ErrorCode.NOT_CONTROLLER)
_NO_ALTER_PARTITION = alter_partition_answer(ErrorCode.NOT_CONTROLLER)
_NO_PRODUCER_IDS = producer_ids_answer(ErrorCode.NOT_CONTROLLER)
_NO_REGISTRATION = registration_response(ErrorCode.NOT_CONTROLLER)


def not_controller(message: Any) -> Any:
    """Returns the NOT_CONTROLLER answer to a request of any kind that the controller handles."""
    if isinstance(message, broker_heartbeat_request.BrokerHeartbeatRequest):
        return _NO_HEARTBEAT
    if isinstance(message, alter_partition_request.AlterPartitionRequest):
        return _NO_ALTER_PARTITION
    if isinstance(message, broker_registration_request.BrokerRegistrationRequest):
        return _NO_REGISTRATION
    if isinstance(message, allocate_producer_ids_request.AllocateProducerIdsRequest):
        return _NO_PRODUCER_IDS
    return create_topics_answer(
        tuple(
            topic_result(topic.name, ErrorCode.NOT_CONTROLLER, "this controller is not active")
            for topic in message.topics
        )
    )
