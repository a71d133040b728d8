"""Administrative actions as faults of the simulated reference system."""

import json

import pytest

from harness.contracts.verdict import Validity
from harness.errors import UsageError
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from nemesis.fault import Fault
from tests.parts import parts
from tests.simulation.fault_bench import FaultBench

MIN_ISR = "min.insync.replicas"


def test_a_changed_min_isr_takes_effect_and_committed_metadata_shows_it() -> None:
    bench = FaultBench()
    fault = bench.inject("alter_config", topic="t", key=MIN_ISR, value=1)
    assert bench.took_effect(fault)
    assert bench.hit(fault) == ["b1"], "the broker that responded"
    evidence = bench.evidence(fault)
    assert evidence["codes"] == {"t": "NONE"}
    (change,) = evidence["committed"].values()
    assert (change["before"]["min_isr"], change["after"]["min_isr"]) == (2, 1)
    assert bench.state().min_isr == 1


def test_a_deleted_setting_has_its_default_again() -> None:
    bench = FaultBench()
    bench.inject("alter_config", topic="t", key=MIN_ISR, value=1)
    assert bench.took_effect(bench.inject("alter_config", topic="t", key=MIN_ISR))
    default = bench.state().min_isr
    assert bench.took_effect(bench.inject("alter_config", key=MIN_ISR, value=3))
    assert (default, bench.state().min_isr) != (1, 1)
    assert bench.state().min_isr == 3, "the topic has no setting of its own any more"


def test_an_action_that_is_refused_affects_no_node_and_does_not_count() -> None:
    bench = FaultBench()
    fault = bench.inject("alter_config", topic="t", key=MIN_ISR, value="many")
    assert not bench.took_effect(fault)
    assert bench.hit(fault) == []
    assert bench.evidence(fault)["codes"] == {"t": "INVALID_CONFIG"}
    assert bench.state().min_isr == 2


def test_an_action_reaches_the_cluster_through_any_broker_that_responds() -> None:
    bench = FaultBench()
    bench.inject("kill", "b1")
    bench.inject("isolate", "b2")
    fault = bench.inject("alter_config", topic="t", key=MIN_ISR, value=1)
    assert bench.took_effect(fault)
    assert bench.hit(fault) == ["b3"]


def test_an_action_that_reaches_no_broker_did_not_happen() -> None:
    bench = FaultBench()
    for broker in ("b1", "b2", "b3"):
        bench.inject("kill", broker)
    fault = bench.inject("alter_config", topic="t", key=MIN_ISR, value=1)
    assert (bench.took_effect(fault), bench.hit(fault)) == (False, [])
    assert bench.evidence(fault)["requests"] == 0


def test_an_action_without_a_response_names_the_broker_and_takes_no_effect() -> None:
    bench = FaultBench()
    bench.inject("isolate", "c11", "c12", "c13", planes=("controller",))
    fault = bench.inject("alter_config", topic="t", key=MIN_ISR, value=1)
    assert not bench.took_effect(fault)
    evidence = bench.evidence(fault)
    assert evidence["requests"] > 0


def test_a_reassignment_reorders_replicas_and_an_election_moves_the_leadership_to_the_first() -> (
    None
):
    bench = FaultBench()
    fault = bench.inject("reassign", partition="t-0")
    assert bench.took_effect(fault)
    assert bench.evidence(fault)["codes"] == {"request": "NONE", "t-0": "NONE"}
    assert (bench.state().replicas, bench.state().leader) == ((2, 3, 1), 1)
    fault = bench.inject("elect_leader", partition="t-0")
    assert bench.took_effect(fault)
    assert (bench.state().leader, sorted(bench.state().isr)) == (2, [1, 2, 3])


def test_a_replica_that_is_removed_deletes_its_log_and_copies_it_again_when_added() -> None:
    bench = FaultBench()
    assert bench.took_effect(bench.inject("reassign", partition="t-0", replicas=(1, 2)))
    bench.until(lambda: ("t", 0) not in bench.broker("b3").replica_manager.partitions)
    assert not any("t-0/" in path for path in bench.node("b3").disk.files)
    assert bench.took_effect(bench.inject("reassign", partition="t-0", replicas=(3, 1, 2)))
    bench.until(lambda: len(bench.state().isr) == 3)
    assert bench.state().replicas == (3, 1, 2)
    assert bench.log_end("b3") >= bench.high_watermark() > 0


def test_an_election_that_is_not_needed_affects_no_node_and_does_not_count() -> None:
    bench = FaultBench()
    for election in ("preferred", "unclean"):
        fault = bench.inject("elect_leader", partition="t-0", election=election)
        assert not bench.took_effect(fault)
        assert bench.hit(fault) == []
        assert bench.evidence(fault)["codes"]["t-0"] == "ELECTION_NOT_NEEDED"


def experiment(**more: object) -> Experiment:
    return Experiment(name="admin", duration_ms=3000, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "params", "sentence"),
    [
        ("alter_feature", {"feature": "kraft.version", "level": 1}, "does not serve alter_feature"),
        ("alter_config", {"topic": "t", "key": "retention.ms", "value": 1}, "retention.ms"),
        ("alter_config", {"broker": 1, "key": MIN_ISR, "value": 1}, "all brokers only"),
        ("alter_config", {"topic": "u", "key": MIN_ISR, "value": 1}, "no topic is called 'u'"),
        ("reassign", {"partition": "t-1"}, "no partition is called 't-1'"),
        ("reassign", {"partition": "t-0", "replicas": [1, 4]}, "names broker 4, but there are 3"),
    ],
)
def test_what_the_reference_system_does_not_serve_is_refused_before_the_run(
    fault: str, params: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        experiment(schedule=(Fault(id="f0", fault=fault, params=params),))


@pytest.mark.parametrize(
    ("targets", "params", "sentence"),
    [
        (("b1",), {"key": MIN_ISR}, "takes no targets"),
        ((), {"key": MIN_ISR, "topic": "t", "broker": 1}, "not of both"),
        ((), {"topic": "t"}, "needs the parameter key"),
        ((), {"key": MIN_ISR, "value": 1.5}, "text, a whole number, true or false"),
    ],
)
def test_impossible_actions_are_refused(
    targets: tuple[str, ...], params: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        Fault(id="f0", fault="alter_config", targets=targets, params=params)


@pytest.mark.parametrize("seed", parts(range(6), quick=2))
def test_random_actions_beside_power_cuts_leave_the_reference_system_valid(seed: int) -> None:
    faults = NemesisConfig(
        faults=("admin", "power", "isolate", "kill"), every_family=True, gap_ms=300, step_ms=300
    )
    made = Experiment(name="admin", duration_ms=20_000, nemesis=faults)
    result = simulate(made, seed)
    verdict, _ = judge_result(made, seed, result)
    rows = result.tables["faults"].to_pylist()
    assert {row["fault"] for row in rows} & {"alter_config", "reassign", "elect_leader"}
    for row in rows:
        if row["fault"] == "alter_config":
            assert json.loads(row["params"])["key"] == MIN_ISR
    # An action without a response may have happened, and does not count as one that took effect.
    others = [one for one in verdict.reasons if "never took effect" not in one]
    assert verdict.validity is not Validity.INVALID
    assert not others
