"""Faults that wait for events begin at the virtual time of the event; what the world recorded itself proves it.

The faults of most tests here are repairs that repair nothing (`heal` of no fault): they change nothing, so many of
them can wait in one run.
"""

import json
from typing import Any

import pytest

from harness.campaigns.effects import effects_of
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file as experiments
from harness.runs.simulated import SimulatedRun, simulate
from harness.simulation.device import Device
from harness.simulation.weather import CALM

EXPERIMENT = """
weather = "{weather}"
duration_ms = 3000
final_phase_ms = 30000
[workload]
processes = 3
appends_per_s = 60.0
polls_per_s = 20.0
"""

STIMULUS = """
[[schedule]]
id = "follower-is-away"
fault = "kill"
targets = ["b2"]
at_ms = 300
for_ms = 700
[[schedule]]
id = "controller-is-away"
fault = "isolate"
targets = ["active_controller"]
at_ms = 1700
for_ms = 1200
"""


def probes(*triggers: str, at_ms: int = 200, **values: int) -> str:
    """Returns faults without effect that wait for events, each with its trigger as its id."""
    more = "".join(f"{key} = {value}\n" for key, value in values.items())
    return "".join(
        f'[[schedule]]\nid = "{trigger}"\nfault = "heal"\nparams = {{ faults = [] }}\n'
        f'at_ms = {at_ms}\non = "{trigger}"\n{more}'
        for trigger in triggers
    )


class Witness:
    """What happened in a run, from other sources than triggers."""

    def __init__(self, schedule: str, monkeypatch: pytest.MonkeyPatch, weather: str) -> None:
        text = EXPERIMENT.format(weather=weather) + schedule
        self.messages: list[tuple[str, int, str, str, str]] = []
        self.syncs: list[tuple[int, str]] = []
        self.states: list[Any] = []
        self._on_the_way: dict[Any, tuple[str, str, str]] = {}
        begin_sync = Device.begin_sync

        def noted(device: Device, path: str, inode: Any) -> Any:
            self.syncs.append((device.timeline.now, device.node_name))
            return begin_sync(device, path, inode)

        monkeypatch.setattr(Device, "begin_sync", noted)
        run = SimulatedRun(experiments.loads(text, origin="x"), 1, HistoryWriter(None))
        run.world.watcher = self
        self.result = run.run()
        self.rows = {row["fault_id"]: row for row in self.result.tables["faults"].to_pylist()}
        self.start_ns = self.rows["follower-is-away"]["invoked_ns"] - 100 * 1_000_000

    def sent(self, at_ns: int, key: Any, src: str, dst: str, message: object) -> None:
        if key not in self._on_the_way:
            self._on_the_way[key] = (type(message).__name__, src, dst)
            self.messages.append(("sent", at_ns, *self._on_the_way[key]))

    def arrived(self, at_ns: int, key: Any) -> None:
        self.messages.append(("received", at_ns, *self._on_the_way.pop(key)))

    def first_message(self, kind: str, name: str, src: str, dst: str) -> int:
        return next(
            at
            for what, at, *rest in self.messages
            if at >= self.start_ns and (what, rest) == (kind, [name, src, dst])
        )

    def first_row(self, table: str, **values: Any) -> int:
        return next(
            int(row["at_ns"])
            for row in self.result.tables[table].to_pylist()
            if row["at_ns"] >= self.start_ns and values.items() <= row.items()
        )

    def began(self, trigger: str) -> int:
        row = self.rows[trigger]
        assert row["took_effect"], row
        evidence = json.loads(row["evidence"])
        assert evidence["event"] == trigger
        assert evidence["event_ns"] == row["invoked_ns"]
        return int(row["invoked_ns"])

    def why_not(self, trigger: str) -> str:
        row = self.rows[trigger]
        assert not row["took_effect"]
        assert row["resolved"] == []
        assert row["completed_ns"] is None
        return str(json.loads(row["evidence"])["not_started"])


HAPPEN = (
    "isr-shrink of t-0",
    "isr-expand",
    "fencing at b2",
    "registration at b2",
    "unfencing at b2",
    "controller-election",
    "mark:isr-expand-proposed at leader:t-0",
    "mark:broker-fenced at active_controller",
    "fsync at b2",
    "sent:AlterPartition from leader:t-0 to active_controller",
    "received:AlterPartition from b1 to controller",
    "sent:AlterPartitionResponse from active_controller to leader",
    "received:AlterPartitionResponse to b1",
    "received:Fetch from b3 to leader:t-0",
)
DO_NOT_HAPPEN = (
    "fencing at b1",
    "registration at b3",
    "leader-change of t-0",
    "leader-loss",
    "election of t-0",
    "replicas-change",
    "mark:isr-expand-proposed at follower:t-0",
    "mark:isr-expanded at b3",
    "sent:AlterPartition from follower:t-0",
    "sent:AlterPartition from leader:t-0 to broker",
    "received:AlterPartitionResponse from leader:t-0",
    "received:Fetch from b1 to b1",
)


@pytest.mark.parametrize("weather", ["calm", "light"])
def test_faults_begin_at_the_virtual_time_of_their_events(
    monkeypatch: pytest.MonkeyPatch, weather: str
) -> None:
    schedule = STIMULUS + probes(*HAPPEN, *DO_NOT_HAPPEN)
    seen = Witness(schedule, monkeypatch, weather)
    partitions = [
        row
        for row in seen.result.tables["partition_states"].to_pylist()
        if row["at_ns"] >= seen.start_ns
    ]
    assert seen.began("isr-shrink of t-0") == partitions[0]["at_ns"]
    assert partitions[0]["isr"] == [1, 3]
    grown = next(row for row in partitions if len(row["isr"]) == 3)
    assert seen.began("isr-expand") == grown["at_ns"]
    for trigger, change in (
        ("fencing at b2", "fenced"),
        ("registration at b2", "registered"),
        ("unfencing at b2", "unfenced"),
    ):
        assert seen.began(trigger) == seen.first_row("broker_states", broker=2, change=change)
    elected = seen.first_row("marks", mark="quorum-leader-elected")
    assert 0 < seen.began("controller-election") - elected < 500_000_000
    (active,) = seen.rows["controller-is-away"]["resolved"]
    for trigger, node in ((HAPPEN[6], "b1"), (HAPPEN[7], active)):
        mark = trigger.split()[0].removeprefix("mark:")
        assert seen.began(trigger) == seen.first_row("marks", node=node, mark=mark)
    synced = next(at for at, node in seen.syncs if node == "b2" and at >= seen.start_ns)
    assert seen.began("fsync at b2") == synced
    for trigger, name, src, dst in (
        (HAPPEN[9], "AlterPartitionRequest", "b1", active),
        (HAPPEN[10], "AlterPartitionRequest", "b1", active),
        (HAPPEN[11], "AlterPartitionResponse", active, "b1"),
        (HAPPEN[12], "AlterPartitionResponse", active, "b1"),
        (HAPPEN[13], "FetchRequest", "b3", "b1"),
    ):
        received_ns = seen.first_message("received", name, src, dst)
        if trigger.startswith("received"):
            assert seen.began(trigger) == received_ns
        else:
            # The watcher also sees messages that wait for their sender, which is busy; the trigger does not.
            sent_ns = seen.first_message("sent", name, src, dst)
            assert sent_ns <= seen.began(trigger) < received_ns
            if weather == "calm":
                assert seen.began(trigger) == received_ns - CALM.latency_base_ns
    assert seen.began(HAPPEN[9]) < seen.began(HAPPEN[10]) < seen.began(HAPPEN[11])
    for trigger in DO_NOT_HAPPEN:
        assert seen.why_not(trigger) == f"the event {trigger!r} did not happen"


def run_of(schedule: str, weather: str = "light", more: str = "") -> tuple[Any, dict[str, Any]]:
    experiment = experiments.loads(EXPERIMENT.format(weather=weather) + more + schedule, origin="x")
    result = simulate(experiment, 1)
    return result, {row["fault_id"]: row for row in result.tables["faults"].to_pylist()}


def test_a_power_cut_on_an_fsync_finds_it_in_flight() -> None:
    schedule = """
[[schedule]]
id = "cut"
fault = "power"
targets = ["leader:t-0"]
at_ms = 500
on = "fsync at leader:t-0"
for_ms = 500
"""
    _, rows = run_of(schedule, "calm", "[cluster]\nflush_messages = 1\n")
    row = rows["cut"]
    (leader,) = row["resolved"]
    evidence = json.loads(row["evidence"])
    assert evidence["event_ns"] == row["completed_ns"]
    assert evidence[leader]["unsynced_bytes_before"] > 0


def test_a_link_that_is_cut_on_a_sent_message_drops_that_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = """
[[schedule]]
id = "cut"
fault = "cut"
targets = ["leader:t-0", "active_controller"]
on = "sent:AlterPartition from leader:t-0 to active_controller"
for_ms = 400
"""
    seen = Witness(STIMULUS + schedule, monkeypatch, "calm")
    cut = seen.rows["cut"]
    assert cut["took_effect"]
    leader, active = cut["resolved"]
    sent_ns = seen.first_message("sent", "AlterPartitionRequest", leader, active)
    assert sent_ns <= cut["invoked_ns"] < sent_ns + CALM.latency_base_ns + 1_000_000
    received_ns = seen.first_message("received", "AlterPartitionRequest", leader, active)
    assert received_ns >= cut["healed_ns"]


def test_a_fault_is_healed_at_the_virtual_time_of_an_event() -> None:
    """Messages are held until another broker has begun to lead; without that event until their time is over."""
    schedule = """
[[schedule]]
id = "{event}"
fault = "hold_messages"
at_ms = 250
for_ms = 1500
until = "{event}"
params = {{ messages = "Fetch from b3 to b1" }}
"""
    wanted, missing = "registration at b2", "registration at b3"
    result, rows = run_of(
        STIMULUS + "".join(schedule.format(event=event) for event in (wanted, missing)), "calm"
    )
    assert not result.violations
    held, late = rows[wanted], rows[missing]
    evidence = json.loads(held["evidence"])
    back_ns = rows["follower-is-away"]["healed_ns"]
    assert evidence["healing_event"] == wanted
    assert back_ns < evidence["healing_event_ns"] == held["healed_ns"] < back_ns + 500_000_000
    assert "healing_event" not in json.loads(late["evidence"])
    assert late["healed_ns"] == late["invoked_ns"] + 1_500_000_000


def test_a_fault_may_be_healed_by_a_message_where_no_other_fault_waits_for_one() -> None:
    schedule = """
[[schedule]]
id = "cut"
fault = "cut"
targets = ["b1", "b3"]
at_ms = 500
for_ms = 1500
until = "received:Fetch from b2 to b1"
until_nth = 3
"""
    result, rows = run_of(STIMULUS + schedule, "calm")
    assert not result.violations
    assert json.loads(rows["cut"]["evidence"])["healing_event_ns"] == rows["cut"]["healed_ns"]


def test_the_nth_event_after_at_ms_and_the_delay_decide() -> None:
    fetch = "received:Fetch from b3 to b1"
    schedule = probes(fetch) + probes(fetch, nth=3).replace(f'id = "{fetch}"', 'id = "third"')
    schedule += probes(fetch, delay_ms=40).replace(f'id = "{fetch}"', 'id = "later"')
    schedule += probes(fetch, at_ms=1200).replace(f'id = "{fetch}"', 'id = "armed-later"')
    schedule += probes(fetch, nth=10_000_000).replace(f'id = "{fetch}"', 'id = "never"')
    schedule += probes(fetch, delay_ms=60_000).replace(f'id = "{fetch}"', 'id = "too-late"')
    _, rows = run_of(schedule, "calm")
    events = {name: json.loads(row["evidence"]).get("event_ns") for name, row in rows.items()}
    first_ns = events[fetch]
    assert events["later"] == events["too-late"] == first_ns
    assert rows["later"]["invoked_ns"] == first_ns + 40_000_000
    assert first_ns < events["third"] < first_ns + 2_000_000_000
    assert events["armed-later"] >= first_ns + 900_000_000
    assert "of 10000000 times" in json.loads(rows["never"]["evidence"])["not_started"]
    assert "the main phase ended less than 60000 ms" in rows["too-late"]["evidence"]


def test_triggers_that_wait_change_nothing_and_runs_with_them_repeat_exactly() -> None:
    def trace(schedule: str) -> str:
        run = SimulatedRun(
            experiments.loads(EXPERIMENT.format(weather="light") + STIMULUS + schedule, origin="x"),
            1,
            HistoryWriter(None),
        )
        run.run()
        return run.world.trace_hash

    waiting = probes("sent:Vote from broker", "mark:elected-from-elr", "isr-shrink", nth=99)
    assert trace(waiting) == trace(
        probes("leader-loss", "leader-loss of t-0", "isr-shrink", nth=99)
    )
    kills = probes("isr-shrink").replace(
        '"heal"\nparams = { faults = [] }', '"kill"\ntargets = ["b3"]\nfor_ms = 300'
    )
    assert trace(kills) == trace(kills)
    assert trace(kills) != trace(waiting)


def test_the_beginning_of_the_main_phase_is_not_taken_from_a_fault_that_waited() -> None:
    result, rows = run_of(STIMULUS + probes("isr-shrink", at_ms=0))
    began_ns = rows["follower-is-away"]["invoked_ns"] - 300_000_000
    main_ns = effects_of(result)["main_ns"]
    assert abs(main_ns - began_ns) < 5_000_000
