"""The bytes that members of a group exchange, and the range assignor."""

import pytest

from workloads.clients.group_protocol import (
    Subscriber,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    range_assignment,
)


def member(name: str, *topics: str, instance: str | None = None) -> Subscriber:
    return Subscriber(member_id=name, instance_id=instance, topics=topics or ("t",))


def test_every_topic_is_divided_into_ranges_and_the_first_members_get_one_more() -> None:
    """The example of Kafka's RangeAssignor: two consumers, two topics with three partitions each."""
    assert range_assignment(
        [member("b", "t0", "t1"), member("a", "t0", "t1")], {"t0": 3, "t1": 3}
    ) == {
        "a": (("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)),
        "b": (("t0", 2), ("t1", 2)),
    }


def test_a_member_too_many_gets_nothing() -> None:
    shares = range_assignment([member("c"), member("a"), member("b")], {"t": 2})
    assert shares == {"a": (("t", 0),), "b": (("t", 1),), "c": ()}


def test_a_member_gets_only_what_it_subscribed_to() -> None:
    shares = range_assignment([member("a", "t"), member("b", "u")], {"t": 2, "u": 1, "v": 9})
    assert shares == {"a": (("t", 0), ("t", 1)), "b": (("u", 0),)}


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    members = [member("a"), member("x", instance="2"), member("z", instance="1")]
    assert range_assignment(members, {"t": 3}) == {
        "z": (("t", 0),),
        "x": (("t", 1),),
        "a": (("t", 2),),
    }


@pytest.mark.parametrize("members", range(1, 6))
@pytest.mark.parametrize("count", range(8))
def test_every_partition_has_exactly_one_owner(members: int, count: int) -> None:
    shares = range_assignment([member(f"m{i}") for i in range(members)], {"t": count})
    owned = sorted(key for share in shares.values() for key in share)
    assert owned == [("t", partition) for partition in range(count)]
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


def test_subscriptions_and_assignments_survive_the_wire() -> None:
    assert decode_subscription(encode_subscription(("t", "größe"))) == ("t", "größe")
    keys = (("a", 0), ("a", 7), ("b", 1))
    assert decode_assignment(encode_assignment(keys)) == keys
    assert decode_assignment(encode_assignment(())) == ()
    assert decode_assignment(b"") == ()


def test_the_bytes_are_those_of_kafkas_version_0() -> None:
    assert encode_subscription(("t",)).hex() == "000000000001000174ffffffff"
    assert encode_assignment([("t", 2)]).hex() == "0000000000010001740000000100000002ffffffff"


@pytest.mark.parametrize("size", range(1, 16))
def test_truncated_bytes_are_refused(size: int) -> None:
    whole = encode_assignment([("t", 2)])
    with pytest.raises(ValueError, match="bytes are missing"):
        decode_assignment(whole[: min(size, len(whole) - 5)])
