"""Faults on single messages of real nodes, and faults that wait for what happens inside of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.real import check_possible, run_real

pytestmark = pytest.mark.wire

EXPERIMENT = """
on = "{world}"
duration_ms = 4500
[workload]
processes = 4
appends_per_s = 100.0
polls_per_s = 40.0
"""


def run(directory: Path, *faults: str, world: str = "local") -> dict[str, dict[str, Any]]:
    """Runs faults against real nodes, which must lose nothing; returns the recorded faults by id."""
    schedule = "".join(f"[[schedule]]\n{fault}\n" for fault in faults)
    text = EXPERIMENT.format(world=world) + schedule
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
    )
    for name in ("sent", "received", "of-a-client", "fsync", "mark"):
        assert "event_ns" in rows[name]["evidence"], (name, rows[name])


def test_a_system_without_fault_points_refuses_them_before_the_run() -> None:
    text = 'system = "apache-kafka"\n' + EXPERIMENT.format(world="local") + "[[schedule]]\n"
    held = on_messages("hold", 200, "Fetch")
    with pytest.raises(UsageError, match="have no fault point"):
        check_possible(experiments.loads(text + held, origin="x"), [1])
    waiting = 'fault = "kill"\ntargets = ["b1"]\non = "fsync at b1"'
    with pytest.raises(UsageError, match="nodes of apache-kafka have none"):
        experiments.loads(text + waiting, origin="x")
