"""Faults on single messages of real nodes, and faults that wait for what happens inside of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.real import check_possible, run_real
from harness.systems.apache_kafka.adapter import ApacheKafka
from tests.kafka_jars import kafka_or_skip

pytestmark = pytest.mark.wire

KAFKA = "4.0.2"
EXPERIMENT = """
on = "{world}"
duration_ms = {duration_ms}
[workload]
processes = 4
appends_per_s = 100.0
polls_per_s = 40.0
"""


def run(
    directory: Path, *faults: str, world: str = "local", duration_ms: int = 4500
) -> dict[str, dict[str, Any]]:
    """Runs faults against real nodes, which must lose nothing; returns the recorded faults by id."""
    schedule = "".join(f"[[schedule]]\n{fault}\n" for fault in faults)
    text = EXPERIMENT.format(world=world, duration_ms=duration_ms) + schedule
    experiment = experiments.loads(text, origin="x")
    check_possible(experiment, [1])
    result = run_real(experiment, 1, directory=directory)
    verdict, _ = judge_result(experiment, 1, result)
    assert result.violations == []
    assert verdict.unexcused_lost_records == 0
    assert str(verdict.validity) != "invalid", verdict.reasons
    rows = result.tables["faults"].to_pylist()
    return {row["fault_id"]: {**row, "evidence": json.loads(row["evidence"])} for row in rows}


def on_messages(kind: str, at_ms: int, messages: str, params: str = "") -> str:
    return (
        f'id = "{kind}"\nfault = "{kind}_messages"\nat_ms = {at_ms}\nfor_ms = 600\n'
        f'params = {{ messages = "{messages}"{params} }}'
    )


EVIDENCE = {
    "hold": "messages_held",
    "drop": "messages_dropped",
    "duplicate": "copies_delivered",
    "delay": "messages_delayed",
    "reorder": "messages_overtaken",
    "refuse": "requests_refused",
}


def test_every_fault_on_messages_takes_effect_and_loses_nothing(tmp_path: Path) -> None:
    rows = run(
        tmp_path,
        on_messages("hold", 200, "Fetch from follower:t-0 to leader:t-0"),
        on_messages("drop", 900, "FetchResponse from leader:t-0", ", count = 2"),
        on_messages("duplicate", 1600, "Fetch from follower:t-0 to leader:t-0"),
        on_messages("delay", 2300, "Produce from client", ", ms = 30"),
        on_messages(
            "reorder", 3000, "BrokerHeartbeat from broker to active_controller", ", ms = 50"
        ),
        on_messages("refuse", 3700, "BrokerHeartbeat from broker", ', error = "NOT_CONTROLLER"'),
    )
    effects = {
        kind: (rows[kind]["took_effect"], rows[kind]["evidence"].get(name, 0) > 0)
        for kind, name in EVIDENCE.items()
    }
    assert effects == dict.fromkeys(EVIDENCE, (True, True)), rows
    assert rows["drop"]["evidence"]["messages_dropped"] <= 2


@pytest.mark.long
def test_faults_wait_for_messages_marks_and_fsyncs(tmp_path: Path) -> None:
    def pause(name: str, event: str) -> str:
        return f'id = "{name}"\nfault = "pause"\ntargets = ["b2"]\non = "{event}"\nfor_ms = 100'

    rows = run(
        tmp_path,
        pause("sent", "sent:Fetch from follower:t-0 to leader:t-0"),
        pause("received", "received:FetchResponse from leader:t-0"),
        pause("of-a-client", "received:Produce from client to leader:t-0"),
        pause("fsync", "fsync at controller"),
        # A broker that is killed registers uncleanly when it is back.
        'id = "kill"\nfault = "kill"\ntargets = ["b3"]\nat_ms = 500\nfor_ms = 200',
        pause("mark", "mark:unclean-registration"),
        duration_ms=15_000,  # on a busy machine a broker takes seconds to start
    )
    for name in ("sent", "received", "of-a-client", "fsync", "mark"):
        assert "event_ns" in rows[name]["evidence"], (name, rows[name])


@pytest.mark.long
def test_apache_kafka_has_a_proxy_as_its_fault_point(tmp_path: Path) -> None:
    kafka_or_skip(KAFKA)
    rows = run(
        tmp_path,
        on_messages("hold", 200, "Fetch from follower:t-0 to leader:t-0"),
        on_messages("refuse", 900, "BrokerHeartbeat from broker", ', error = "NOT_CONTROLLER"'),
        on_messages("drop", 1600, "FetchResponse from leader:t-0", ", count = 2"),
        'id = "kill"\nfault = "kill"\ntargets = ["follower:t-0"]\nfor_ms = 500\nat_ms = 2300\n'
        'on = "received:Fetch from follower:t-0 to leader:t-0"',
        world=f'local"\nsystem = "apache-kafka"\nversion = "{KAFKA}',
    )
    for kind in ("hold", "refuse", "drop"):
        evidence = rows[kind]["evidence"]
        assert (rows[kind]["took_effect"], evidence[EVIDENCE[kind]] > 0) == (True, True), rows
    assert "event_ns" in rows["kill"]["evidence"]
    assert list(rows["kill"]["evidence"]["exit_codes"].values()) == [-9]


def test_what_no_fault_point_of_a_system_can_do_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = EXPERIMENT.format(world="local", duration_ms=4500)
    text = 'system = "apache-kafka"\n' + base + "[[schedule]]\n"
    waiting = 'fault = "kill"\ntargets = ["b1"]\non = "fsync at b1"'
    with pytest.raises(UsageError, match="nodes of apache-kafka do not report it"):
        experiments.loads(text + waiting, origin="x")
    refused = on_messages("refuse", 200, "Produce", ', error = "NOT_CONTROLLER"')
    with pytest.raises(UsageError, match="a Produce cannot be refused as a whole"):
        check_possible(experiments.loads(text + refused, origin="x"), [1])
    monkeypatch.delattr(ApacheKafka, "with_fault_point")
    held = on_messages("hold", 200, "Fetch")
    with pytest.raises(UsageError, match="have no fault point"):
        check_possible(experiments.loads(text + held, origin="x"), [1])
    waiting = 'fault = "kill"\ntargets = ["b1"]\non = "sent:Fetch"'
    with pytest.raises(UsageError, match="nodes of apache-kafka do not report it"):
        experiments.loads(text + waiting, origin="x")
