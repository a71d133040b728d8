import asyncio
import json
from dataclasses import replace
from random import Random

import pytest
from test_nemesis import POPULATION, FakeCluster, FakeInjector

from harness.contracts.metadata import BrokerState
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from nemesis.driver import Nemesis
from nemesis.events import CommittedEvents, broker_events, partition_events
from nemesis.fault import Fault, fault_from_json
from nemesis.targets import has_role
from nemesis.trigger import Event, parse_messages, parse_trigger


@pytest.mark.parametrize(
    "text",
    [
        "isr-shrink",
        "isr-shrink of t-0",
        "fencing at b1",
        "mark:elected-from-elr at leader:t-0",
        "sent:Fetch from follower:t-0 to leader:t-0",
        "received:AlterPartitionResponse",
    ],
)
def test_a_trigger_is_read_and_written_alike(text):
    assert parse_trigger(text).text() == text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("isr-shrinks", "did you mean 'isr-shrink'"),
        ("Election of t-0", "no event is called 'Election'; did you mean 'election'"),
        ("isr-shrink at b1", "'isr-shrink' takes 'of', each once at most"),
        ("isr-shrink of t-0 of t-1", "once at most"),
        ("isr-shrink:t-0", "takes nothing after a colon"),
        ("mark", "needs a mark after a colon"),
        ("sent:Fetch at b1", "takes 'from' and 'to', each once at most"),
        ("isr-shrink of", "cannot be read"),
        ("when the ISR shrinks", "cannot be read"),
    ],
)
def test_a_trigger_that_cannot_be_is_refused_in_one_sentence(text, hint):
    with pytest.raises(UsageError, match=hint):
        parse_trigger(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sent:Fetch from b1", "name the message without 'sent:', as in 'Fetch from b1'"),
        ("received:Fetch", "name the message without 'received:', as in 'Fetch'"),
        ("Fetch at b1", "write the name of a message, and then 'from' and 'to'"),
    ],
)
def test_messages_that_cannot_be_read_are_refused_without_a_word_about_triggers(text, hint):
    with pytest.raises(UsageError, match=hint) as refusal:
        parse_messages(text)
    assert "trigger" not in str(refusal.value)


def state(cluster):
    return cluster.metadata.partitions["t-0"]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"leader": 2, "leader_epoch": 1}, {"leader-change", "election"}),
        (
            {"leader": -1, "leader_epoch": 1, "isr": ()},
            {"leader-change", "leader-loss", "isr-shrink"},
        ),
        ({"leader_epoch": 1}, {"election"}),
        ({"isr": (1,)}, {"isr-shrink"}),
        ({"isr": (1, 2, 3)}, {"isr-expand"}),
        ({"isr": (1, 3)}, {"isr-shrink", "isr-expand"}),
        ({"isr": (2, 1)}, set()),
        ({"elr": (3,)}, {"elr-change"}),
        ({"replicas": (1, 2, 4)}, {"replicas-change"}),
        ({"partition_epoch": 9, "min_isr": 1}, set()),
    ],
)
def test_a_change_of_a_partition_is_the_events_that_it_shows_and_no_others(changes, kinds):
    before = state(FakeCluster())
    assert set(partition_events(before, replace(before, **changes))) == kinds


def registration(**changes):
    plain = BrokerState(broker=1, broker_epoch=5, fenced=True, in_controlled_shutdown=False)
    return replace(plain, **changes)


def test_a_change_of_a_registration_is_one_event_or_none():
    assert list(broker_events(None, registration())) == ["registration"]
    assert list(broker_events(registration(), registration(broker_epoch=6))) == ["registration"]
    assert list(broker_events(registration(), registration(fenced=False))) == ["unfencing"]
    assert list(broker_events(registration(fenced=False), registration())) == ["fencing"]
    assert list(broker_events(registration(), registration(in_controlled_shutdown=True))) == []


@pytest.mark.parametrize(
    ("node", "roles"),
    [
        ("b1", {"b1", "broker", "leader", "leader:t-0", "isr_member"}),
        ("b2", {"b2", "broker", "follower", "follower:t-0", "isr_member", "isr_follower:t-0"}),
        ("b3", {"b3", "broker", "follower", "follower:t-0"}),
        ("c12", {"c12", "controller", "active_controller"}),
        ("c11", {"c11", "controller"}),
        ("client-0", {"client-0", "client"}),
        ("harness", {"client"}),
    ],
)
def test_a_role_is_that_of_the_moment(node, roles):
    every = {"leader:t-1", "last_in_isr", "elr_member", "last_known_leader"}
    every |= {"b1", "b2", "b3", "broker", "leader", "leader:t-0", "isr_member", "follower"}
    every |= {"isr_follower:t-0", "follower:t-0", "c11", "c12", "controller", "active_controller"}
    every |= {"client-0", "client"}
    metadata = FakeCluster().metadata
    assert {role for role in every if has_role(node, role, POPULATION, metadata)} == roles


def test_a_message_matches_by_its_name_and_both_ends():
    trigger = parse_trigger("sent:Fetch from follower to leader")
    metadata = FakeCluster().metadata

    def matches(name, *nodes):
        event = Event(kind="sent", name=name, nodes=nodes)
        return trigger.matches(event, POPULATION, metadata)

    assert matches("FetchRequest", "b2", "b1")
    assert not matches("FetchResponse", "b2", "b1")
    assert not matches("FetchRequest", "b1", "b2")
    assert not matches("FetchRequest", "client-0", "b1")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("registration at c11", "happens at a broker, and 'c11' is none"),
        ("fencing at client", "happens at a broker, and 'client' is none"),
        ("controller-election at leader:t-0", "happens at a controller, and 'leader:t-0' is none"),
        ("fsync at client-0", "happens at a broker or a controller, and 'client-0' is none"),
        ("mark:elected-from-elr at client", "happens at a broker or a controller"),
        ("unfencing at nobody", "no node or role is called 'nobody'"),
    ],
)
def test_an_event_that_no_such_node_can_have_is_refused(text, hint):
    events = CommittedEvents(FakeCluster())
    with pytest.raises(UsageError, match=hint):
        events.check_names(parse_trigger(text))


@pytest.mark.parametrize(
    "text",
    [
        "registration at b1",
        "unfencing at leader",
        "fencing at elr_member:t-0",
        "controller-election at active_controller",
        "fsync at controller",
        "mark:elected-from-elr at leader:t-0",
        "sent:Fetch from client to broker",
    ],
)
def test_an_event_that_such_a_node_can_have_is_accepted(text):
    CommittedEvents(FakeCluster()).check_names(parse_trigger(text))


@pytest.mark.parametrize("key", ["on", "until"])
def test_an_empty_event_is_no_event(key):
    with pytest.raises(UsageError, match=f"fault w: '{key}' is empty; write an event"):
        fault_from_json({**WAITS.to_json(), key: ""}, default_id="w")


WAITS = Fault(
    id="w",
    fault="kill",
    targets=("leader:t-0",),
    on="isr-shrink of t-0",
    nth=2,
    delay_ms=1,
    for_ms=1,
)


ENDS = replace(WAITS, nth=1, for_ms=100, until="isr-expand of t-0", until_nth=2)
"""Begins at the first shrink of the ISR, and is healed at the second expansion after that."""


def test_a_fault_with_a_trigger_survives_json():
    assert fault_from_json(json.loads(json.dumps(WAITS.to_json())), default_id="x") == WAITS
    assert fault_from_json(json.loads(json.dumps(ENDS.to_json())), default_id="x") == ENDS
    plain = replace(WAITS, on="", nth=1, delay_ms=0).to_json()
    assert not {"on", "nth", "delay_ms", "until", "until_nth"} & set(plain)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"on": "isr-shrnk"}, "fault w: no event is called"),
        ({"nth": 0}, "nth must be > 0"),
        ({"delay_ms": -1}, "delay_ms must be >= 0"),
        ({"on": ""}, "need an event"),
        ({"until": "isr-shrnk"}, "fault w: no event is called"),
        ({"until": "isr-shrink", "for_ms": None}, "until needs a fault that lasts, and for_ms"),
        ({"until": "isr-shrink", "fault": "restart"}, "until needs a fault that lasts"),
        ({"until": "isr-shrink", "until_nth": 0}, "until_nth must be > 0"),
        ({"until_nth": 2}, "until_nth must be > 0, and needs until"),
    ],
)
def test_a_fault_with_a_wrong_trigger_is_refused(changes, hint):
    with pytest.raises(UsageError, match=hint):
        replace(WAITS, **changes)


def play(fault, *states, end_at=None):
    """Runs a nemesis whose only fault waits, while committed metadata goes through states; returns its rows."""

    async def story():
        running = asyncio.get_running_loop().create_task(nemesis.run([fault]))
        for _ in range(3):
            await asyncio.sleep(0)
        for index, changes in enumerate(states):
            cluster.metadata.partitions["t-0"] = replace(state(cluster), **changes)
            cluster.metadata.changed()
            if index == end_at:
                nemesis.end_waiting()
            await asyncio.sleep(0.01)
        nemesis.end_waiting()
        await running
        await nemesis.settle()

    cluster, injector, rows = FakeCluster(), FakeInjector(), []
    nemesis = Nemesis(cluster, injector, rows.append, Random(1))
    asyncio.run(story())
    return injector.calls, rows


SHRUNK, GROWN = {"isr": (1,)}, {"isr": (1, 2)}


def test_a_fault_begins_at_the_nth_event_and_its_selectors_are_resolved_then():
    calls, rows = play(WAITS, SHRUNK, GROWN, {"isr": (2,), "leader": 2})
    assert calls == [("inject", "kill", ("b2",)), ("heal", "kill", ("b2",))]
    evidence = json.loads(rows[-1][9])
    assert evidence["event"] == "isr-shrink of t-0"
    assert evidence["event_ns"] < rows[-1][5]


@pytest.mark.parametrize(
    ("states", "healed_early"),
    [
        ((GROWN, SHRUNK, GROWN, SHRUNK, GROWN), True),
        ((GROWN, SHRUNK, GROWN, SHRUNK), False),
        ((GROWN, SHRUNK, SHRUNK), False),
    ],
)
def test_a_fault_is_healed_at_an_event_or_when_its_time_is_over(states, healed_early):
    calls, rows = play(ENDS, *states)
    assert calls == [("inject", "kill", ("b1",)), ("heal", "kill", ("b1",))]
    evidence = json.loads(rows[-1][9])
    assert evidence.get("healing_event") == ("isr-expand of t-0" if healed_early else None)
    assert ("healing_event_ns" in evidence) is healed_early


@pytest.mark.parametrize("key", ["at_ms", "nth", "delay_ms", "until_nth"])
def test_only_the_time_of_a_stored_fault_may_be_null(key):
    stored = {"fault": "kill", "targets": ["b1"], "for_ms": None}
    assert fault_from_json(stored, default_id="x").for_ms is None
    with pytest.raises(UsageError, match=f"fault x: '{key}' must be a whole number"):
        fault_from_json({**stored, key: None}, default_id="x")


def test_what_waits_to_be_healed_at_an_event_is_healed_when_the_main_phase_ends():
    """Its own time would last for an hour."""
    calls, rows = play(replace(ENDS, for_ms=3_600_000), GROWN, SHRUNK)
    assert calls == [("inject", "kill", ("b1",)), ("heal", "kill", ("b1",))]
    assert "healing_event" not in json.loads(rows[-1][9])


def test_a_fault_whose_injection_outlasts_the_main_phase_does_not_wait_to_be_healed():
    class Slow(FakeInjector):
        async def inject(self, fault, nodes):
            nemesis.end_waiting()
            return await super().inject(fault, nodes)

    injector = Slow()
    nemesis = Nemesis(FakeCluster(), injector, lambda _: None, Random(1))
    asyncio.run(nemesis.run([replace(ENDS, on="", delay_ms=0, for_ms=3_600_000)]))
    assert injector.calls == [("inject", "kill", ("b1",)), ("heal", "kill", ("b1",))]


@pytest.mark.parametrize(
    ("states", "end_at", "reason"),
    [
        ((SHRUNK, GROWN, GROWN), None, "happened 1 of 2 times"),
        ((SHRUNK, GROWN, SHRUNK), 2, "the main phase ended less than 1 ms after"),
        ((GROWN,), None, "happened 0 of 2 times"),
    ],
)
def test_a_fault_whose_event_is_missing_is_recorded_as_not_started(states, end_at, reason):
    calls, rows = play(WAITS, *states, end_at=end_at)
    assert calls == []
    (row,) = rows
    assert reason in json.loads(row[9])["not_started"]
    assert row[3] == []
    assert row[6] is None
    assert row[7] == row[5]
    assert row[8] is False


def test_an_event_before_at_ms_does_not_count():
    late = replace(WAITS, nth=1, at_ms=10_000)

    async def story():
        running = asyncio.get_running_loop().create_task(nemesis.run([late]))
        await asyncio.sleep(0)
        cluster.metadata.partitions["t-0"] = replace(state(cluster), **SHRUNK)
        cluster.metadata.changed()
        nemesis.end_waiting()
        await nemesis.cut_short(running)

    cluster, injector = FakeCluster(), FakeInjector()
    nemesis = Nemesis(cluster, injector, lambda _: None, Random(1))
    asyncio.run(story())
    assert injector.calls == []


def test_healing_a_fault_that_still_waits_does_nothing():
    async def story():
        running = asyncio.get_running_loop().create_task(nemesis.run([WAITS]))
        for _ in range(3):
            await asyncio.sleep(0)
        await nemesis.inject(Fault(id="h", fault="heal", params={"faults": ["w"]}))
        nemesis.end_waiting()
        await running

    injector = FakeInjector()
    nemesis = Nemesis(FakeCluster(), injector, lambda _: None, Random(1))
    asyncio.run(story())
    assert injector.calls == []


@pytest.mark.parametrize(
    ("trigger", "hint"),
    [
        ("mark:truncated", "only the simulation and fault points observe"),
        ("fencing at b9", "no node or role is called 'b9'"),
        ("fencing at leeder", "did you mean 'leader'"),
    ],
)
def test_a_trigger_that_cannot_happen_is_refused_before_the_run(trigger, hint):
    nemesis = Nemesis(FakeCluster(), FakeInjector(), lambda _: None, Random(1))
    with pytest.raises(UsageError, match=f"^fault {WAITS.id}: .*{hint}"):
        nemesis.check([replace(WAITS, on=trigger)])
    with pytest.raises(UsageError, match=f"^fault {ENDS.id}: .*{hint}"):
        nemesis.check([replace(ENDS, until=trigger)])


EXPERIMENT = """
on = "{on}"
[[schedule]]
fault = "kill"
targets = ["b1"]
on = "{trigger}"
"""


def test_an_experiment_refuses_events_that_its_environment_cannot_observe():
    def load(on, trigger):
        return experiments.loads(EXPERIMENT.format(on=on, trigger=trigger), origin="x")

    assert load("simulation", "fsync at b1").schedule[0].on == "fsync at b1"
    assert load("local", "isr-shrink of t-0").schedule[0].nth == 1
    assert load("local", "fsync at b1").schedule[0].on == "fsync at b1"
    until = 'isr-shrink"\nfor_ms = 9\nuntil = "'
    kafka = 'local"\nsystem = "apache-kafka'
    for trigger in ("fsync at b1", until + "fsync at b1"):
        with pytest.raises(
            UsageError, match="waits for 'fsync at b1', which happens inside of nodes"
        ):
            load(kafka, trigger)
    with pytest.raises(UsageError, match="no partition is called 't-7'"):
        load("simulation", until + "isr-shrink of t-7")
    with pytest.raises(UsageError, match="no partition is called 't-7'"):
        load("simulation", "sent:Fetch to leader:t-7")
    with pytest.raises(UsageError, match="no partition is called 't-7'"):
        load("simulation", "isr-shrink of t-7")
