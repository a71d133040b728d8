"""Builds the responses of a controller that is not active (CTRL-5)."""

from typing import Any

from system_under_test.controller.configs import alter_configs_response, config_result
from system_under_test.controller.directories import assignment_response
from system_under_test.controller.heartbeats import refused_heartbeat
from system_under_test.controller.isr_changes import alter_partition_response_of
from system_under_test.controller.producer_ids import producer_ids_response
from system_under_test.controller.registrations import registration_response
from system_under_test.controller.topics import (
    create_topics_response_of,
    delete_result,
    delete_topics_response_of,
    topic_result,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    allocate_producer_ids_request,
    alter_partition_request,
    assign_replicas_to_dirs_request,
    broker_heartbeat_request,
    broker_registration_request,
    delete_topics_request,
    incremental_alter_configs_request,
)
from system_under_test.protocol.refusals import REFUSABLE, refused

NOT_ACTIVE = "this controller is not active"
_NO_HEARTBEAT = refused_heartbeat(ErrorCode.NOT_CONTROLLER)
_NO_ALTER_PARTITION = alter_partition_response_of(ErrorCode.NOT_CONTROLLER)
_NO_ASSIGNMENT = assignment_response(ErrorCode.NOT_CONTROLLER)
_NO_PRODUCER_IDS = producer_ids_response(ErrorCode.NOT_CONTROLLER)
_NO_REGISTRATION = registration_response(ErrorCode.NOT_CONTROLLER)


def not_controller(message: Any) -> Any:
    """Returns the NOT_CONTROLLER response to a request of any kind that the controller handles."""
    if isinstance(message, REFUSABLE):
        return refused(message, ErrorCode.NOT_CONTROLLER, NOT_ACTIVE)
    if isinstance(message, broker_heartbeat_request.BrokerHeartbeatRequest):
        return _NO_HEARTBEAT
    if isinstance(message, alter_partition_request.AlterPartitionRequest):
        return _NO_ALTER_PARTITION
    if isinstance(message, assign_replicas_to_dirs_request.AssignReplicasToDirsRequest):
        return _NO_ASSIGNMENT
    if isinstance(message, broker_registration_request.BrokerRegistrationRequest):
        return _NO_REGISTRATION
    if isinstance(message, allocate_producer_ids_request.AllocateProducerIdsRequest):
        return _NO_PRODUCER_IDS
    if isinstance(message, delete_topics_request.DeleteTopicsRequest):
        return delete_topics_response_of(
            tuple(
                delete_result(topic.name, topic.topic_id, ErrorCode.NOT_CONTROLLER, NOT_ACTIVE)
                for topic in message.topics
            )
        )
    if isinstance(message, incremental_alter_configs_request.IncrementalAlterConfigsRequest):
        return alter_configs_response(
            tuple(
                config_result(
                    one.resource_type, one.resource_name, ErrorCode.NOT_CONTROLLER, NOT_ACTIVE
                )
                for one in message.resources
            )
        )
    return create_topics_response_of(
        tuple(
            topic_result(topic.name, ErrorCode.NOT_CONTROLLER, NOT_ACTIVE)
            for topic in message.topics
        )
    )
