"""What members of consumer groups (KIP-848) see without the rules that keep partitions and offsets apart."""

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from tests.mutations.coverage import shows
from tests.simulation.cluster_story import Cluster
from tests.simulation.consumer_group_member import ConsumerMember, settle, shares, started


def cluster(without: tuple[str, ...], **more: object) -> Cluster:
    return started(rules=Rules(without), **more)


@shows("GRP-6")
@pytest.mark.parametrize("without", [(), ("GRP-6",)], ids=["with", "without"])
def test_a_member_of_an_old_epoch_goes_on_with_partitions_of_others(
    without: tuple[str, ...],
) -> None:
    of = cluster(without)
    a, b = ConsumerMember(of, "a"), ConsumerMember(of, "b")
    settle(a, b)
    a.epoch = 1  # as if it had slept since the others were there
    expected = 0 if without else ErrorCode.FENCED_MEMBER_EPOCH
    a.owned |= b.owned
    assert a.heartbeat().error_code == expected


@shows("GRP-7")
@pytest.mark.parametrize("without", [(), ("GRP-7",)], ids=["with", "without"])
def test_a_member_gets_a_partition_that_another_still_has(without: tuple[str, ...]) -> None:
    of = cluster(without)
    a, b = ConsumerMember(of, "a"), ConsumerMember(of, "b")
    a.work()
    b.work()
    assert bool(a.owned & b.owned) is bool(without)


@shows("GRP-8")
@pytest.mark.parametrize("without", [(), ("GRP-8",)], ids=["with", "without"])
def test_a_partition_is_given_away_before_its_owner_has_given_it_up(
    without: tuple[str, ...],
) -> None:
    of = cluster(without)
    a, b = ConsumerMember(of, "a"), ConsumerMember(of, "b")
    a.work()
    b.work()
    a.heartbeat()  # learns that it has to give two up, and still has them
    b.work()
    assert bool(a.owned & b.owned) is bool(without)


@shows("GRP-9")
@pytest.mark.parametrize("without", [(), ("GRP-9",)], ids=["with", "without"])
def test_a_member_is_told_what_only_the_coordinator_knows(without: tuple[str, ...]) -> None:
    of = cluster(without, min_isr=1)
    a = ConsumerMember(of, "a")
    a.work()
    coordinator = a.find()
    for broker in of.brokers:
        if broker != coordinator:
            of.node(broker).pause()
    b = ConsumerMember(of, "b")
    task = of.world.spawn("client", of._ask(coordinator, b.request()))
    of.run_for(0.3)
    assert task.done() is bool(without)
    if without:
        b.take(task.result())
        assert b.epoch == 2


@shows("GRP-10")
@pytest.mark.parametrize("without", [(), ("GRP-10",)], ids=["with", "without"])
def test_two_consumers_with_one_instance_id_take_its_place_from_each_other(
    without: tuple[str, ...],
) -> None:
    of = cluster(without)
    first = ConsumerMember(of, "a", instance_id="one")
    first.work()
    second = ConsumerMember(of, "b", instance_id="one")
    assert second.work().error_code == (0 if without else ErrorCode.UNRELEASED_INSTANCE_ID)
    expected = ErrorCode.FENCED_INSTANCE_ID if without else 0
    assert first.heartbeat().error_code == expected
    assert bool(first.owned & second.owned) is bool(without)


@shows("GRP-11")
@pytest.mark.parametrize("without", [(), ("GRP-11",)], ids=["with", "without"])
def test_a_member_that_is_gone_keeps_its_partitions(without: tuple[str, ...]) -> None:
    of = cluster(without)
    gone, staying = ConsumerMember(of, "a"), ConsumerMember(of, "b")
    settle(gone, staying)
    for _ in range(10):
        of.run_for(5)
        staying.work()
    assert shares(staying) == [[2, 3] if without else [0, 1, 2, 3]]


@shows("GRP-12")
@pytest.mark.parametrize("without", [(), ("GRP-12",)], ids=["with", "without"])
def test_a_member_of_an_old_epoch_commits_offsets_of_others(without: tuple[str, ...]) -> None:
    of = cluster(without)
    a, b = ConsumerMember(of, "a"), ConsumerMember(of, "b")
    settle(a, b)
    assert b.commit(9, partition=2) == 0
    assert a.commit(5, epoch=1, partition=2) == (0 if without else ErrorCode.STALE_MEMBER_EPOCH)
    assert b.fetch(partition=2) == (0, 5 if without else 9)
