"""Tables of the controller's decisions: new topics."""

import pytest

from system_under_test.controller.topics import create_topics
from system_under_test.protocol.errors import ErrorCode
from tests.controller_story import create_request
from tests.unit.system_under_test.controller.decisions import started


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "u", "count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "u", "count": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "u", "factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "u", "factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "u", "assignment": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {1: (1, 2)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 9)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 2), 1: (3,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "u", "assignment": {0: (1, 2)}, "factor": 2}, ErrorCode.INVALID_REQUEST),
        ({"name": "u", "configs": {"min.insync.replicas": "0"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "u", "configs": {"min.insync.replicas": "two"}}, ErrorCode.INVALID_CONFIG),
        (
            {"name": "u", "configs": {"unclean.leader.election.enable": "1"}},
            ErrorCode.INVALID_CONFIG,
        ),
        ({"name": "u", "configs": {"retention.ms": "-2"}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_refused_with_a_message(topic, error):
    s = started()
    before = len(s.log)
    result = s.create(**topic)
    assert result.error_code == error
    assert result.error_message
    assert len(s.log) == before


def test_names_that_differ_only_in_dots_and_underscores_are_refused():
    s = started()
    assert s.create(name="a.b_c").error_code == ErrorCode.NONE
    assert s.create(name="a_b.c").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert s.create(name="a-b_c").error_code == ErrorCode.NONE


def test_the_first_isr_is_the_active_part_of_the_assignment_in_its_order():
    s = started()
    s.fence(3)
    s.create(name="u", assignment={0: (3, 2, 1), 1: (2, 1, 3)})
    first, second = s.image.partition("u", 0), s.image.partition("u", 1)
    assert (first.isr, first.leader, first.replicas) == ((2, 1), 2, (3, 2, 1))
    assert (second.isr, second.leader) == ((2, 1), 2)
    assert (first.leader_epoch, first.partition_epoch, first.elr) == (0, 0, ())
    s.fence(1, 2)
    result = s.create(name="v", assignment={0: (1, 2, 3)})
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert s.create(name="v", factor=1).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_round_robin_spreads_leaders_and_uses_fenced_brokers_last():
    s = started()
    result = s.create(name="u", count=3, factor=2)
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    replicas = [s.image.partition("u", index).replicas for index in range(3)]
    assert replicas == [(2, 3), (3, 1), (1, 2)]
    s.fence(1)
    s.create(name="v", count=2, factor=3)
    assert [s.image.partition("v", index).replicas for index in range(2)] == [(2, 3, 1), (3, 2, 1)]


def test_a_topics_configuration_is_in_the_image_before_its_partitions():
    s = started()
    s.create(name="u", factor=3, configs={"min.insync.replicas": "3"})
    assert s.image.min_insync_replicas("u", 1) == 3
    kinds = [type(record).__name__ for record in s.log[-3:]]
    assert kinds == ["ConfigRecord", "TopicRecord", "PartitionRecord"]


def test_topics_of_one_request_succeed_or_fail_alone():
    s = started()
    request = create_request(
        {"name": "a", "factor": 1}, {"name": "b"}, {"name": "b"}, {"name": "t"}
    )
    decision = create_topics(s.image, request, s.new_topic_id, s.policy)
    assert [result.error_code for result in decision.response.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]
    assert len(decision.records) == 2


def test_validate_only_responds_and_writes_nothing():
    s = started()
    request = create_request({"name": "a", "factor": 1}, validate_only=True)
    decision = create_topics(s.image, request, s.new_topic_id, s.policy)
    assert decision.response.topics[0].error_code == 0
    assert decision.records == ()
