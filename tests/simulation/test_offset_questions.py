"""Processes of the workload `append` ask for offsets of timestamps and for ends of leader epochs."""

from collections import Counter
from dataclasses import replace

import pytest

from harness.contracts.verdict import Validity
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment, NemesisConfig, TopicConfig
from harness.runs.judge import judge_result
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun
from workloads.append_config import AppendConfig

EXPERIMENT = Experiment(
    name="queries",
    profile="kafka-4.1",
    timings="fast",
    weather="light",
    duration_ms=6_000,
    topic=TopicConfig(partitions=2),
    workload=AppendConfig(
        processes=6, appends_per_s=60, polls_per_s=60, queries_per_s=60, acks=("all", "1")
    ),
    nemesis=NemesisConfig(
        faults=("isolate", "cut", "kill", "pause", "stop"), gap_ms=400, hold_ms=900, step_ms=300
    ),
)
SEED_OF_LO_1 = 7


def run(experiment: Experiment, seed: int) -> RunResult:
    return SimulatedRun(experiment, seed, HistoryWriter(None)).run()


def test_leaders_answer_both_kinds_of_questions_and_the_answers_are_right() -> None:
    result = run(EXPERIMENT, 3)
    rows = result.tables["offset_queries"].to_pylist()
    answered = Counter(row["kind"] for row in rows if row["outcome"] == "ok")
    assert min(answered["timestamp"], answered["leader-epoch"]) > 20
    polls = {row["op_index"]: row for row in result.tables["operations"].to_pylist()}
    for row in rows:
        poll = polls[row["op_index"]]
        assert (poll["kind"], poll["outcome"]) == ("poll", "ok")
        assert poll["completed_ns"] <= row["invoked_ns"] <= row["completed_ns"]
    assert any(row["leader_epoch"] > row["known_epoch"] for row in rows), "no leader changed"
    verdict, _ = judge_result(EXPERIMENT, 3, result)
    assert verdict.coverage["offset_queries_judged"] > 40
    assert not [one for one in verdict.anomalies if "lookup" in one.id or "epoch" in one.id]


def test_a_new_leader_that_does_not_know_its_high_watermark_skips_records() -> None:
    """KIP-207: without the rule it answers before it knows what is committed."""
    experiment = replace(
        EXPERIMENT,
        duration_ms=3_000,
        disabled_rules=("LO-1",),
        check_invariants=False,
        nemesis=replace(EXPERIMENT.nemesis, faults=("isolate", "kill", "stop")),
    )
    for seed in range(SEED_OF_LO_1 + 1):
        verdict, _ = judge_result(experiment, seed, run(experiment, seed))
        if any(one.id == "lookup-skips-record" for one in verdict.anomalies):
            assert verdict.validity == Validity.INVALID
            return
    pytest.fail("no leader skipped a record")


def test_a_run_asks_no_questions_by_default_and_is_the_same_each_time() -> None:
    quiet = replace(
        EXPERIMENT, duration_ms=500, workload=replace(EXPERIMENT.workload, queries_per_s=0)
    )
    result = run(quiet, 1)
    assert result.tables["offset_queries"].num_rows == 0
    assert result.trace_hash == run(quiet, 1).trace_hash


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"queries_per_s": -1}, "workload.queries_per_s is -1; choose 0 or more"),
        (
            {"queries_per_s": 1, "client": "java"},
            "workload.queries_per_s needs the client 'native', not 'java'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        AppendConfig(**changed)  # type: ignore[arg-type]
