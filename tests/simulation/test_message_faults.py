"""Faults on single messages: each acts on the messages that it names, at their arrival, and on no others."""

import json
from typing import Any

import pytest

from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file as experiments
from harness.runs.simulated import SimulatedRun, check_possible
from harness.runs.without_effect import ONLY_FROM_CLIENTS
from system_under_test.protocol.apis import MESSAGE_NAMES

MS = 1_000_000
EXPERIMENT = """
weather = "calm"
duration_ms = 2500
final_phase_ms = 30000
[workload]
processes = 2
appends_per_s = 60.0
polls_per_s = 20.0
[[schedule]]
id = "follower-is-away"
fault = "kill"
targets = ["b2"]
at_ms = 300
for_ms = 500
[[schedule]]
id = "f"
fault = "{fault}"
params = {{ {params} messages = "{messages}" }}
at_ms = 350
for_ms = 1800
"""


class Played:
    """A run in which a follower leaves the ISR and joins it again, and what its messages did."""

    def __init__(self, fault: str, messages: str, params: str = "") -> None:
        text = EXPERIMENT.format(fault=fault, messages=messages, params=params)
        run = SimulatedRun(experiments.loads(text, origin="x"), 1, HistoryWriter(None))
        run.world.watcher = self
        run.world.trace.keep = True
        self.sent_ns: list[tuple[int, Any, str]] = []
        self.arrived_ns: list[tuple[int, Any, str]] = []
        self._messages: dict[Any, Any] = {}
        self.result = run.run()
        self.lines = run.world.trace.lines()
        rows = {row["fault_id"]: row for row in self.result.tables["faults"].to_pylist()}
        self.row = rows["f"]
        assert self.result.violations == []
        assert self.result.final_phase_complete

    def sent(self, at_ns: int, key: Any, src: str, dst: str, message: object) -> None:
        if key not in self._messages:
            self._messages[key] = message
            self.sent_ns.append((at_ns, key, f"{type(message).__name__} {src}>{dst}"))

    def arrived(self, at_ns: int, key: Any) -> None:
        message, (pipe, _) = self._messages[key], key
        name = f"{type(message).__name__} {pipe.link.src}>{pipe.link.dst}"
        self.arrived_ns.append((at_ns, key, name))

    def travels_ms(self, beginning: str) -> list[float | None]:
        """Returns how long messages were on their way after the fault began; None for those that were lost."""
        arrivals = {key: at for at, key, _ in self.arrived_ns}
        return [
            (arrivals[key] - at) / MS if key in arrivals else None
            for at, key, name in self.sent_ns
            if name.startswith(beginning) and at >= self.row["invoked_ns"]
        ]

    def isr_grew_ns(self) -> int:
        return next(
            int(row["at_ns"])
            for row in self.result.tables["partition_states"].to_pylist()
            if len(row["isr"]) == 3 and row["at_ns"] > self.row["invoked_ns"]
        )

    def error_of_first(self, beginning: str) -> str:
        first = next(
            key
            for at, key, name in self.sent_ns
            if name.startswith(beginning) and at >= self.row["invoked_ns"]
        )
        return str(self._messages[first].error_code.name)


PROPOSAL = "AlterPartition from leader:t-0 to active_controller"


def test_a_held_message_arrives_when_the_fault_is_healed() -> None:
    played = Played("hold_messages", PROPOSAL)
    assert played.row["took_effect"]
    (held_ms, *_) = played.travels_ms("AlterPartitionRequest")
    assert held_ms is not None
    assert held_ms > 500
    assert played.isr_grew_ns() >= played.row["healed_ns"]


def test_only_as_many_messages_are_held_as_counted() -> None:
    played = Played("hold_messages", "Fetch from follower to leader", "count = 1,")
    evidence = json.loads(played.row["evidence"])
    assert evidence["messages_held"] == 1
    late = [one for one in played.travels_ms("FetchRequest") if one is None or one > 5]
    # What is behind it on its connection waits with it; followers have one request in flight.
    assert len(late) == 1


def test_a_delayed_message_is_late_by_that_time_and_only_as_many_as_counted() -> None:
    played = Played(
        "delay_messages", "AlterPartitionResponse to leader:t-0", "ms = 150, count = 1,"
    )
    assert played.row["took_effect"]
    (late_ms, *others) = played.travels_ms("AlterPartitionResponse")
    assert late_ms is not None
    assert 150 <= late_ms < 151
    assert all(other is not None and other < 1 for other in others)
    fetches = played.travels_ms("FetchRequest b3>b1")
    assert all(one is not None and one < 1 for one in fetches)


def test_a_dropped_request_is_not_processed_and_the_next_one_is() -> None:
    played = Played("drop_messages", PROPOSAL, "count = 1,")
    assert played.row["took_effect"]
    (dropped, again, *_) = played.travels_ms("AlterPartitionRequest")
    assert dropped is None
    assert again is not None
    arrivals = [at for at, _, name in played.arrived_ns if name.startswith("AlterPartitionRequest")]
    assert played.isr_grew_ns() >= arrivals[-1]


def test_a_request_whose_response_is_dropped_was_processed() -> None:
    played = Played("drop_messages", "AlterPartitionResponse", "count = 1,")
    (dropped, *_) = played.travels_ms("AlterPartitionResponse")
    assert dropped is None
    second = [at for at, _, name in played.sent_ns if name.startswith("AlterPartitionRequest")][1]
    assert played.isr_grew_ns() < second


def test_a_copy_of_a_request_is_processed_later_and_its_response_goes_nowhere() -> None:
    played = Played("duplicate_messages", PROPOSAL, "ms = 40, count = 1,")
    assert played.row["took_effect"]
    (copy,) = [line for line in played.lines if "copy of AlterPartitionRequest" in line]
    at_ns = round(float(copy.split()[0]) * 1e9)
    arrivals = [at for at, _, name in played.arrived_ns if name.startswith("AlterPartitionRequest")]
    assert at_ns == next(at for at in arrivals if at >= played.row["invoked_ns"]) + 40 * MS
    requests, responses = (
        len(played.travels_ms(f"AlterPartition{kind}")) for kind in ("Request", "Response")
    )
    assert responses == requests


def test_a_copy_that_has_not_arrived_yet_arrives_when_the_fault_is_healed() -> None:
    played = Played("duplicate_messages", PROPOSAL, "ms = 60000, count = 1,")
    (copy,) = [line for line in played.lines if "copy of AlterPartitionRequest" in line]
    assert round(float(copy.split()[0]) * 1e9) == played.row["healed_ns"]


def test_a_reordered_message_arrives_after_one_of_another_connection() -> None:
    played = Played("reorder_messages", "BrokerHeartbeat from b3", "ms = 400, count = 1,")
    assert played.row["took_effect"]
    at_ns, key, name = next(
        one
        for one in played.sent_ns
        if one[2].startswith("BrokerHeartbeatRequest b3>") and one[0] >= played.row["invoked_ns"]
    )
    order = [each for _, each, other in played.arrived_ns if other.endswith(name.split()[1])]
    earlier = [each for sent, each, _ in played.sent_ns if sent <= at_ns]
    overtakers = [each for each in order[: order.index(key)] if each not in earlier]
    assert overtakers
    assert all(pipe is not key[0] for pipe, _ in overtakers)


def test_a_refused_request_gets_an_error_and_is_not_processed() -> None:
    played = Played("refuse_messages", PROPOSAL, 'count = 1, error = "NOT_CONTROLLER",')
    assert played.row["took_effect"]
    assert played.error_of_first("AlterPartitionResponse") == "NOT_CONTROLLER"
    arrivals = [at for at, _, name in played.arrived_ns if name.startswith("AlterPartitionRequest")]
    after = [at for at in arrivals if at >= played.row["invoked_ns"]]
    assert len(after) >= 2
    assert played.isr_grew_ns() >= after[1]


@pytest.mark.parametrize("error", ["UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT"])
def test_followers_and_brokers_survive_refusals(error: str) -> None:
    fetches = ("Fetch from follower to leader", "Fetch to controller")
    for messages in (*fetches, "BrokerHeartbeat", "BrokerRegistration"):
        played = Played("refuse_messages", messages, f'count = 5, error = "{error}",')
        assert played.row["took_effect"]


@pytest.mark.parametrize(
    ("fault", "messages", "params"),
    [
        ("hold_messages", "AlterPartition from follower:t-0 to controller", ""),
        ("delay_messages", "AlterPartition from leader:t-0 to broker", "ms = 100,"),
        ("drop_messages", "AlterPartitionResponse from broker", ""),
        ("duplicate_messages", "AlterPartition from b3", "ms = 10,"),
        ("reorder_messages", "AlterPartition from b3", ""),
        ("refuse_messages", "Fetch from b1 to b3", ""),
    ],
)
def test_messages_between_other_roles_are_left_alone(
    fault: str, messages: str, params: str
) -> None:
    played = Played(fault, messages, params)
    assert not played.row["took_effect"]
    travels = played.travels_ms("AlterPartition")
    assert travels
    assert all(one is not None and one < 1 for one in travels)
    assert not any("copy of" in line for line in played.lines)


@pytest.mark.parametrize(
    ("fault", "messages", "hint"),
    [
        ("hold_messages", "AlterPartitions", "did you mean 'AlterPartition'"),
        ("hold_messages", "Fetch from b9", "no node or role is called 'b9'"),
        ("duplicate_messages", "FetchResponse", "is about requests"),
        ("refuse_messages", "Produce", "cannot be refused as a whole"),
    ],
)
def test_messages_that_do_not_exist_are_refused_before_the_run(
    fault: str, messages: str, hint: str
) -> None:
    text = EXPERIMENT.format(fault=fault, messages=messages, params="")
    with pytest.raises(UsageError, match=hint):
        check_possible(experiments.loads(text, origin="x"), 1)


@pytest.mark.parametrize(
    "messages",
    [
        "Produce",
        "Produce from client to leader:t-0",
        "Fetch from client-0",
        "CreateTopics from harness",
        "OffsetCommit to broker",
    ],
)
def test_a_copy_of_what_only_clients_send_is_refused_before_the_run(messages: str) -> None:
    text = EXPERIMENT.format(fault="duplicate_messages", messages=messages, params="")
    with pytest.raises(
        UsageError, match=r"fault .*: messages is .* never duplicated.*name requests of nodes"
    ):
        experiments.loads(text, origin="x")
    experiments.loads(text.replace("duplicate_messages", "drop_messages"), origin="x")


@pytest.mark.parametrize("messages", ["Fetch", "Fetch to leader", "ListOffsets", "AlterPartition"])
def test_a_copy_of_what_servers_send_as_well_is_accepted(messages: str) -> None:
    text = EXPERIMENT.format(fault="duplicate_messages", messages=messages, params="")
    assert experiments.loads(text, origin="x").schedule


def test_every_request_that_only_clients_send_exists() -> None:
    assert set(MESSAGE_NAMES) >= ONLY_FROM_CLIENTS


def test_a_message_fault_with_a_wrong_text_or_partition_is_refused_when_it_is_read() -> None:
    for messages, hint in (
        ("Fetch at b1", "once at most"),
        ("Fetch from leader:t-9", "no partition is called 't-9'"),
    ):
        text = EXPERIMENT.format(fault="hold_messages", messages=messages, params="")
        with pytest.raises(UsageError, match=hint):
            experiments.loads(text, origin="x")
