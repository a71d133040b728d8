"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), and what other requests do with consumer groups.

Member ids are the client's, so they are the same in both systems. No case waits for a timeout.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.conformance.catalogue.group_administration import delete, describe, list_groups
from harness.conformance.catalogue.groups import commit, leave
from harness.conformance.probe import READ_TOPIC, Case, Probe

NEWEST = 1
ID = "c0000000-0000-0000-0000-000000000001"
OTHER_ID = "c0000000-0000-0000-0000-000000000002"
REBALANCE_MS = 10_000
JOIN: Mapping[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout": REBALANCE_MS,
    "subscribed_topic_names": [READ_TOPIC],
    "topic_partitions": [],
}


class Consumer:
    """A member of a consumer group; joins if it is told to."""

    def __init__(self, probe: Probe, *, joins: bool = True, name: str = ID, **join: Any) -> None:
        self.probe = probe
        self.group = probe.group()
        self.to = probe.coordinator(self.group)
        self.name = name
        self.fixed = {"instance_id": join["instance_id"]} if "instance_id" in join else {}
        if joins:
            self.send(**{**JOIN, **join})

    def send(self, *, version: int = NEWEST, **fields: Any) -> Any:
        """Sends a heartbeat; fields that are left out are unchanged."""
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": 1,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
            **self.fixed,
            **fields,
        }
        return self.probe.ask(
            "consumer_group_heartbeat", version, values, to=self.to, drops_unknown=True
        )

    def describe(self, *, version: int = NEWEST) -> Any:
        """Describes the group."""
        values = {"group_ids": [self.group], "include_authorized_operations": False}
        return self.probe.ask(
            "consumer_group_describe", version, values, to=self.to, drops_unknown=True
        )


Run = Callable[[Consumer], Any]


def _sends(version: int = NEWEST, **fields: Any) -> Run:
    return lambda c: c.send(version=version, **fields)


def _describes(version: int) -> Run:
    return lambda c: c.describe(version=version)


def _case(case: str, run: Run, **options: Any) -> Case:
    return Case(id=f"consumer group/{case}", run=lambda probe: run(Consumer(probe, **options)))


def cases() -> Iterator[Case]:
    """Yields every case about consumer groups."""
    yield from _heartbeats()
    yield from _refused()
    yield from _static()
    yield from _around()


def _heartbeats() -> Iterator[Case]:
    for version in range(NEWEST + 1):
        yield _case(f"join, version {version}", _sends(version, **JOIN), joins=False)
        yield _case(f"describe, version {version}", _describes(version))
    yield _case("nothing changed", lambda c: c.send())
    yield _case("everything again", lambda c: c.send(**{**JOIN, "member_epoch": 1}))
    yield _case("join twice", lambda c: c.send(**JOIN))
    yield _case("no topics", lambda c: c.describe(), subscribed_topic_names=[])
    yield _case("unknown topic", lambda c: c.describe(), subscribed_topic_names=["missing"])
    yield _case("assignor range", lambda c: c.describe(), server_assignor="range")

    def left(c: Consumer) -> None:
        c.send(member_epoch=-1)
        c.describe()
        c.send(member_epoch=-1)

    yield _case("leave twice", left)

    def second(c: Consumer) -> None:
        Consumer(c.probe, name=OTHER_ID)
        c.send(topic_partitions=[])
        c.send(topic_partitions=[])

    yield _case("second member", second)


def _refused() -> Iterator[Case]:
    wrong: Mapping[str, Mapping[str, Any]] = {
        "empty group": {"group_id": ""},
        "empty member id": {"member_id": ""},
        "blank instance id": {"instance_id": " "},
        "blank rack id": {"rack_id": " "},
        "epoch -3": {"member_epoch": -3},
        "leave as static without instance id": {"member_epoch": -2},
        "no rebalance timeout": {"rebalance_timeout": -1},
        "no owned partitions": {"topic_partitions": None},
        "no subscription": {"subscribed_topic_names": None},
        "unknown assignor": {"server_assignor": "sticky"},
        "bad pattern": {"subscribed_topic_names": None, "subscribed_topic_regex": "("},
        "unknown member": {"member_epoch": 5},
    }
    for name, fields in wrong.items():
        yield _case(name, _sends(**{**JOIN, **fields}), joins=False)
    yield _case("epoch ahead", lambda c: c.send(member_epoch=2))

    def behind(c: Consumer) -> None:
        c.send()
        c.send(member_epoch=0, **_rest())

    yield _case("epoch behind", behind)
    yield _case("another member", lambda c: c.send(member_id=OTHER_ID))
    yield _case("leave as another member", lambda c: c.send(member_id=OTHER_ID, member_epoch=-1))
    yield _case("describe unknown group", lambda c: c.describe(), joins=False)


def _rest() -> dict[str, Any]:
    return {key: value for key, value in JOIN.items() if key != "member_epoch"}


def _static() -> Iterator[Case]:
    def again(c: Consumer, name: str) -> None:
        Consumer(c.probe, name=name, instance_id="i1")

    yield _case("static", lambda c: c.describe(), instance_id="i1")
    yield _case("instance id in use", lambda c: again(c, OTHER_ID), instance_id="i1")

    def paused(c: Consumer) -> None:
        c.send(member_epoch=-2)
        c.describe()
        again(c, OTHER_ID)
        c.describe()

    yield _case("static leaves for a moment", paused, instance_id="i1")
    yield _case("fenced instance id", lambda c: c.send(member_id=OTHER_ID), instance_id="i1")
    yield _case("unknown instance id", lambda c: c.send(instance_id="i2"))


def _around() -> Iterator[Case]:
    yield _case("commit in its epoch", lambda c: _commit(c, 1))
    yield _case("commit in another epoch", lambda c: _commit(c, 2))
    yield _case("list groups", lambda c: list_groups(c.probe, c.to))
    yield _case("describe as classic group", lambda c: describe(c.probe, [c.group], c.to))
    yield _case("delete with members", lambda c: delete(c.probe, [c.group], c.to))

    def deleted(c: Consumer) -> None:
        c.send(member_epoch=-1)
        delete(c.probe, [c.group], c.to)
        c.describe()

    yield _case("delete without members", deleted)
    yield _case(
        "leave with the classic protocol",
        lambda c: leave(c.probe, c.group, c.to, [{"member_id": c.name}]),
    )


def _commit(c: Consumer, epoch: int) -> None:
    commit(
        c.probe,
        c.group,
        c.to,
        version=9,
        generation_id_or_member_epoch=epoch,
        member_id=c.name,
    )
