"""Tables of the controller's decisions: AlterPartition."""

from uuid import UUID

import pytest

from system_under_test.controller.isr_changes import alter_partition
from system_under_test.controller.topics import create_topics
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import decode, encode
from tests.controller_story import Story, alter_request, create_request
from tests.unit.system_under_test.controller.decisions import ELR_OFF, started


def answer_of(s: Story, request) -> int:
    decision = alter_partition(s.image, request, s.policy)
    if decision.response.error_code:
        return decision.response.error_code
    response = decision.response.topics[0].partitions[0]
    assert bool(response.error_code) == (not decision.records)
    return response.error_code


def proposal(s: Story, sender: int = 1, **fields):
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in s.image.brokers.items()}
    defaults = {
        "leader_epoch": s.p.leader_epoch,
        "partition_epoch": s.p.partition_epoch,
        "isr": ((1, epochs[1]), (3, epochs[3])),
    }
    sender_epoch = fields.pop("sender_epoch", epochs[sender])
    topic_id = fields.pop("topic_id", s.p.topic_id)
    return alter_request(sender, sender_epoch, topic_id, **{**defaults, **fields})


def middle(**kwargs) -> Story:
    """A partition with leader epoch 1 and partition epoch 2, led by 1, ISR [1, 3]."""
    s = started(kwargs.pop("profile", ELR_OFF), **kwargs)
    s.fence(1)
    s.unfence(1)
    s.propose(2, 3, 1)
    s.fence(2)
    s.unfence(2)
    assert (s.p.leader, s.p.leader_epoch, s.p.partition_epoch) == (1, 2, 3)
    s.propose(1, 3, 2)
    return s


STALE = 10**6


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"isr": ((1, -1), (3, -1))}, ErrorCode.NONE),
        ({"sender_epoch": STALE}, ErrorCode.STALE_BROKER_EPOCH),
        ({"topic_id": UUID(int=99)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 3}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 3}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((1, -1), (1, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (4, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((3, -1), (2, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1, "isr": ((1, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 2, "isr": ((1, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (3, STALE))}, ErrorCode.INELIGIBLE_REPLICA),
        # The order of the table: the earlier row wins.
        ({"sender_epoch": STALE, "partition": 5}, ErrorCode.STALE_BROKER_EPOCH),
        ({"leader_epoch": 3, "sender": 3}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1, "partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1, "partition_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 3, "partition_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 3, "isr": ()}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((1, -1), (4, STALE))}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_alter_partition_table(fields, error):
    s = middle()
    assert answer_of(s, proposal(s, **fields)) == error


@pytest.mark.parametrize("how", ["fenced", "stopping", "unregistered"])
def test_fenced_stopping_or_unregistered_replicas_are_ineligible(how):
    s = middle()
    s.propose(1, 3)
    if how == "fenced":
        s.fence(2)
    elif how == "stopping":
        s.create(name="u", assignment={0: (2, 3)})
        s.beat(2, want_stop=True)
        assert not s.image.brokers[2].fenced
    else:
        s.unregister(2)
    request = proposal(s, isr=((1, -1), (3, -1), (2, -1)))
    assert answer_of(s, request) == ErrorCode.INELIGIBLE_REPLICA
    off = middle(without=("APC-3",))
    off.propose(1, 3)
    off.fence(2)
    assert answer_of(off, proposal(off, isr=((1, -1), (3, -1), (2, -1)))) == 0


def test_before_kip_903_the_broker_epoch_of_a_member_is_not_checked_but_its_liveness_is():
    s = middle(
        profile="kafka-3.4", isr_broker_epoch_check=False, bump_leader_epoch_on_isr_shrink=False
    )
    assert answer_of(s, proposal(s, isr=((1, -1), (3, STALE)))) == 0
    s.propose(1, 3)
    s.fence(2)
    request = proposal(s, isr=((1, -1), (3, -1), (2, STALE)))
    assert answer_of(s, request) == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("APC-1", {"sender_epoch": STALE}),
        ("APC-2", {"partition_epoch": 3}),
        ("APC-2", {"partition_epoch": 5}),
        ("APC-3-EPOCH", {"isr": ((1, -1), (3, STALE))}),
    ],
)
def test_without_its_rule_a_request_is_accepted(rule, fields):
    s = middle(without=(rule,))
    assert answer_of(s, proposal(s, **fields)) == 0


def test_an_accepted_change_returns_the_new_registration():
    s = middle()
    response = s.propose(1, 3)
    assert (response.leader_id, response.leader_epoch, response.partition_epoch) == (1, 2, 5)
    assert response.isr == (1, 3)


def test_a_proposal_that_changes_nothing_succeeds_without_a_record():
    s = middle()
    before = len(s.log)
    response = s.propose(2, 1, 3)
    assert (response.error_code, response.partition_epoch) == (0, 4)
    assert response.isr == s.p.isr
    assert len(s.log) == before


def test_one_request_cannot_change_a_partition_twice():
    s = middle()
    request = proposal(s)
    topic = request.topics[0]
    twice = type(request)(broker_id=1, broker_epoch=request.broker_epoch, topics=(topic, topic))
    decision = alter_partition(s.image, twice, s.policy)
    errors = [topic.partitions[0].error_code for topic in decision.response.topics]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1


def test_responses_survive_the_codec():
    s = middle()
    responses = [
        alter_partition(s.image, proposal(s), s.policy).response,
        alter_partition(s.image, proposal(s, leader_epoch=1), s.policy).response,
        s.register(2),
        s.beat(1),
        s.create(name="codec", count=2, factor=3),
    ]
    for response in responses[:-1]:
        assert decode(type(response), encode(response)) == response
    request = create_request({"name": "new", "count": 1, "factor": 1}, {"name": "t"})
    response = create_topics(s.image, request, s.new_topic_id, s.policy).response
    assert decode(type(response), encode(response)) == response
