"""Brokers with several log directories under the faults and actions of experiments."""

import json
from typing import Any

import pytest

from harness.contracts.verdict import Validity
from harness.errors import UsageError
from harness.runs.experiment import ClusterConfig, Experiment, NemesisConfig, TopicConfig
from harness.runs.judge import judge_result
from harness.runs.scripted import scenario_experiment
from harness.runs.simulated import simulate
from harness.scenarios import find_scenario
from harness.scenarios.outcome import outcome_word
from nemesis.fault import Fault
from tests.parts import parts

TWO = ClusterConfig(log_dirs=2)


def experiment(*schedule: Fault, **more: Any) -> Experiment:
    return Experiment(
        name="directories",
        duration_ms=6000,
        schedule=schedule,
        **{"cluster": TWO, "topic": TopicConfig(partitions=2), **more},
    )


def fault(number: int, name: str, target: str, **more: Any) -> Fault:
    times = {key: more.pop(key) for key in ("at_ms", "for_ms") if key in more}
    return Fault(id=f"f{number}", fault=name, targets=(target,), params=more, **times)


def reassignment(number: int, *, at_ms: int, replicas: list[int]) -> Fault:
    params = {"partition": "t-0", "replicas": replicas}
    return Fault(id=f"f{number}", fault="reassign", at_ms=at_ms, params=params)


def judged(made: Experiment, seed: int = 1) -> tuple[Any, Any]:
    result = simulate(made, seed)
    assert result.stuck == ""
    verdict, _ = judge_result(made, seed, result)
    return verdict, result


def marks_of(result: Any) -> list[str]:
    marks: list[str] = result.tables["marks"].column("mark").to_pylist()
    return marks


def test_a_directory_fails_and_is_repaired() -> None:
    """Of two partitions one is in each directory; the other one must not notice."""
    made = experiment(fault(0, "log_dir_error", "leader:t-1", at_ms=1000, for_ms=2000, log_dir=2))
    verdict, result = judged(made)
    assert verdict.validity is Validity.VALID, verdict.reasons
    (row,) = result.tables["faults"].to_pylist()
    assert row["took_effect"]
    assert "ended_by_itself" not in json.loads(row["evidence"])
    assert {"log-directory-failed", "log-directory-offline", "partition-offline"} <= set(
        marks_of(result)
    )


@pytest.mark.parametrize(("name", "params"), [("io_error", {"every": 5}), ("disk_full", {})])
@pytest.mark.parametrize("log_dirs", parts([2, 1], quick=1))
def test_a_broker_that_goes_on_without_a_directory_is_restarted_when_the_disk_is_repaired(
    name: str, params: dict[str, Any], log_dirs: int
) -> None:
    """Otherwise its replicas there would stay offline, and the run would wait for them for good."""
    made = experiment(
        fault(0, name, "leader:t-1", at_ms=1000, for_ms=1500, **params),
        cluster=ClusterConfig(log_dirs=log_dirs, flush_messages=5, segment_bytes=4096),
    )
    survived = 0
    for seed in range(1, 4):
        verdict, result = judged(made, seed)
        assert verdict.validity is not Validity.INVALID, verdict.reasons
        faults = result.tables["faults"].to_pylist()
        restarts = [row["resolved"] for row in faults if row["fault"] == "restart"]
        ended = "ended_by_itself" in json.loads(faults[0]["evidence"])
        assert restarts == ([] if ended or log_dirs == 1 else [faults[0]["resolved"]])
        survived += not ended and "log-directory-failed" in marks_of(result)
    assert (survived > 0) == ((name, log_dirs) == ("io_error", 2))


def test_a_broker_that_created_its_log_anew_gets_rid_of_the_old_one_with_the_repair() -> None:
    """As in Kafka, it would not start with two logs of one replica; an operator removes the older one."""
    made = experiment(
        fault(0, "log_dir_error", "b2", at_ms=500, for_ms=3000, log_dir=2),
        reassignment(1, at_ms=1000, replicas=[1, 3]),
        reassignment(2, at_ms=2000, replicas=[1, 3, 2]),
    )
    verdict, result = judged(made)
    assert result.violations == []
    assert verdict.validity is Validity.VALID, verdict.reasons
    rows = {row["fault"]: row for row in result.tables["faults"].to_pylist()}
    evidence = json.loads(rows["log_dir_error"]["evidence"])
    assert evidence["removed_logs"] == {"b2": ["data2/t-0"]}


def test_a_replica_moves_while_it_is_used() -> None:
    made = experiment(
        fault(0, "move_replica", "leader:t-0", at_ms=1000, partition="t-0"),
        fault(1, "move_replica", "isr_follower:t-0", at_ms=2000, partition="t-0"),
        fault(2, "kill", "leader:t-0", at_ms=3500, for_ms=500),
    )
    verdict, result = judged(made)
    assert verdict.validity is Validity.VALID, verdict.reasons
    moves = [row for row in result.tables["faults"].to_pylist() if row["fault"] == "move_replica"]
    assert [row["took_effect"] for row in moves] == [True, True]
    assert marks_of(result).count("move-ended") == 2


@pytest.mark.parametrize("seed", parts(range(6), quick=2))
def test_random_failures_and_moves_beside_kills(seed: int) -> None:
    faults = NemesisConfig(
        faults=("admin", "log_dir_error", "kill", "isolate"),
        every_family=True,
        gap_ms=500,
        step_ms=400,
    )
    verdict, result = judged(experiment(nemesis=faults), seed)
    assert verdict.unexcused_lost_records == 0
    assert not result.violations
    assert verdict.validity is Validity.VALID, verdict.reasons


def test_the_same_seed_gives_the_same_trace() -> None:
    made = experiment(
        fault(0, "log_dir_error", "leader:t-1", at_ms=1000, for_ms=1000),
        fault(1, "move_replica", "leader:t-0", at_ms=2500, partition="t-0"),
    )
    assert simulate(made, 3).trace_hash == simulate(made, 3).trace_hash


def test_the_reference_system_keeps_the_elr_when_replicas_move() -> None:
    """B-28 as a scenario: Apache Kafka up to 4.2 loses records here."""
    made = scenario_experiment(find_scenario("kafka-bug", "B-28"), "kafka-4.1")
    verdict, _ = judged(made)
    assert outcome_word(verdict) == "ok"


@pytest.mark.parametrize(
    ("faults", "more", "sentence"),
    [
        ((fault(0, "log_dir_error", "b1"),), {"cluster": ClusterConfig()}, "needs log directory 2"),
        ((fault(0, "log_dir_error", "b1", log_dir=3),), {}, "needs log directory 3"),
        (
            (fault(0, "move_replica", "b1", partition="t-0"),),
            {"cluster": ClusterConfig()},
            "set cluster.log_dirs to 2 or more",
        ),
        ((), {"cluster": ClusterConfig(log_dirs=5)}, "has at most 4"),
        (
            (),
            {"cluster": ClusterConfig(), "nemesis": NemesisConfig(faults=("log_dir_error",))},
            "needs log directory 2",
        ),
    ],
)
def test_directories_that_do_not_exist_are_refused_before_the_run(
    faults: tuple[Fault, ...], more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        experiment(*faults, **more)
