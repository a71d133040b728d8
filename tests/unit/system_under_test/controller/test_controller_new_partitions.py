"""Tables of the controller's decisions: more partitions for existing topics."""

import pytest

from system_under_test.protocol.errors import ErrorCode
from tests.unit.system_under_test.controller.decisions import started


def test_new_partitions_follow_the_existing_ones_with_as_many_replicas():
    s = started()
    (result,) = s.create_partitions(("t", 4, None))
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.NONE, None)
    added = [s.image.partition("t", index) for index in (1, 2, 3)]
    assert [one.replicas for one in added] == [(2, 3, 1), (3, 1, 2), (1, 2, 3)]
    assert all(one.isr == one.replicas and one.leader == one.replicas[0] for one in added)
    assert s.image.partition("t", 4) is None
    assert s.p.partition_epoch == 0, "the existing partition is not touched"


def test_new_partitions_can_have_given_replicas_of_which_the_active_ones_are_in_sync():
    s = started()
    s.fence(3)
    (result,) = s.create_partitions(("t", 3, ((3, 2, 1), (2, 1, 3))))
    assert result.error_code == ErrorCode.NONE
    first, second = s.image.partition("t", 1), s.image.partition("t", 2)
    assert (first.replicas, first.isr, first.leader) == ((3, 2, 1), (2, 1), 2)
    assert (second.replicas, second.isr, second.leader) == ((2, 1, 3), (2, 1), 2)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error"),
    [
        ("x", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 10_001, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 3, ((1, 2, 3),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, ((1, 2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, ((1, 2, 2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, ((1, 2, 9),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, ((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_requests_are_refused_with_a_message(name, count, assignments, error):
    s = started()
    before = len(s.log)
    (result,) = s.create_partitions((name, count, assignments))
    assert result.error_code == error
    assert result.error_message
    assert len(s.log) == before


def test_without_an_active_broker_no_partition_can_be_placed():
    s = started()
    s.fence(1, 2, 3)
    (result,) = s.create_partitions(("t", 2, None))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    (result,) = s.create_partitions(("t", 2, ((1, 2, 3),)))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_request_that_only_validates_creates_nothing():
    s = started()
    before = len(s.log)
    good, bad = s.create_partitions(("t", 3, None), ("x", 3, None), validate_only=True)
    assert (good.error_code, bad.error_code) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert len(s.log) == before


def test_a_topic_that_is_named_twice_gets_one_error():
    s = started()
    (result,) = s.create_partitions(("t", 3, None), ("t", 4, None))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert s.image.partition("t", 1) is None


def test_the_number_of_replicas_is_that_of_the_first_partition():
    s = started()
    s.reassign(1, 2)
    s.create_partitions(("t", 2, None))
    assert len(s.image.partition("t", 1).replicas) == 2
