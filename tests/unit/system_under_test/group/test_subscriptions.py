"""Topics of a consumer's subscription."""

import struct

import pytest

from system_under_test.group.subscriptions import topics_of_subscription
from tests.simulation.group_member import subscription_of


@pytest.mark.parametrize("topics", [(), ("a",), ("a", "bé")])
def test_topics_are_read_from_every_version(topics: tuple[str, ...]) -> None:
    names = b"".join(struct.pack(">h", len(one.encode())) + one.encode() for one in topics)
    for version in range(4):
        data = struct.pack(">hi", version, len(topics)) + names + b"later fields"
        assert topics_of_subscription(data) == topics


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 5) + b"ab",
        struct.pack(">hih", 0, 1, 1) + b"\xff",
        subscription_of("abc")[:-5],
    ],
)
def test_bytes_that_are_no_subscription_have_no_topics(data: bytes) -> None:
    assert topics_of_subscription(data) is None
