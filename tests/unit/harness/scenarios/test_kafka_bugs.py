"""The scenarios of Apache Kafka's bugs: what is predicted, for which version, and where they are refused."""

from dataclasses import replace

import pytest

from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from harness.errors import UsageError
from harness.runs.planned import planned_faults
from harness.runs.scripted import scenario_experiment
from harness.scenarios import find_scenario
from harness.scenarios.kafka_bugs import KAFKA, VARIANTS
from harness.scenarios.outcome import STAYS_LEADERLESS, outcome_word, predicted_outcome
from harness.scenarios.steps import ELECTS_NO_CONTROLLER, Observe, VersionOutcome, Wait
from nemesis.message_rules import needs_fault_point


def predicted(variant: str, version: str) -> str:
    return predicted_outcome(VARIANTS[variant], "elr-on", system=KAFKA, version=version)


@pytest.mark.parametrize(
    ("variant", "version", "outcome"),
    [
        ("B-31", "4.0.2", "loss"),
        ("B-31", "4.1.2", "loss"),
        ("B-31", "4.3.1", "loss"),
        ("B-31", "4.4.0", "loss"),
        ("B-34", "4.1.2", "loss"),
        ("B-34", "4.4.0", "loss"),
        ("B-28", "4.1.0", "loss"),
        ("B-28", "4.1.2", "loss"),
        ("B-28", "4.2.1", "loss"),
        ("B-28", "4.3.1", "ok"),
        ("B-28", "4.4.0", "ok"),
        ("B-47", "4.1.2", "stuck"),
        ("B-47", "4.4.0", "stuck"),
        ("B-48", "4.1.2", "stuck"),
        ("B-48", "4.4.0", "stuck"),
        ("B-48r", "4.1.2", "ok"),
        ("B-68", "4.3.1", "loss"),
        ("B-69", "4.4.0", "loss"),
        ("B-31", "3.9.2", ""),
        ("B-31", "trunk", ""),
    ],
)
def test_the_predicted_outcome_follows_from_the_version(
    variant: str, version: str, outcome: str
) -> None:
    assert predicted(variant, version) == outcome


def test_a_system_without_versions_has_the_outcome_of_its_profile() -> None:
    scenario = VARIANTS["B-48"]
    assert predicted_outcome(scenario, "elr-on", system="reference") == "ok"
    assert predicted_outcome(scenario, "elr-off", system="reference") == "loss"
    assert predicted_outcome(VARIANTS["B-31"], "elr-on", system="reference") == "ok"
    assert predicted_outcome(VARIANTS["B-48u"], "elr-on", system="reference") == ""


def test_every_watched_version_is_in_its_range() -> None:
    rows = [row for one in VARIANTS.values() for row in one.versions[KAFKA]]
    assert all(row.covers(version) for row in rows for version in row.watched)
    assert sum(len(row.watched) for row in rows) >= 13


def test_versions_are_compared_by_their_numbers() -> None:
    row = VersionOutcome(first="3.9.0", last="4.10.1", outcome="ok")
    assert row.covers("3.10.0")
    assert row.covers("4.9.9")
    assert not row.covers("4.10.2")
    assert not row.covers("3.8.9")
    assert not row.covers("unknown")


@pytest.mark.parametrize("what", [f"t-0 {STAYS_LEADERLESS}", ELECTS_NO_CONTROLLER])
def test_a_partition_or_a_quorum_that_stays_without_a_leader_makes_the_run_stuck(what: str) -> None:
    reason = f"the run ended early: {what}"
    assert outcome_word(Verdict(validity=Validity.UNKNOWN, reasons=(reason,))) == "stuck"
    assert outcome_word(Verdict(validity=Validity.UNKNOWN, reasons=("late",))) == "unknown"
    lost = Verdict(validity=Validity.INVALID, reasons=(reason,), unexcused_lost_records=1)
    assert outcome_word(lost) == "loss", "what was lost matters more"


def test_the_anomaly_makes_the_run_stuck_unless_something_was_lost() -> None:
    stuck = Anomaly(
        id="stuck",
        level="fresh",
        topic="t",
        partition=0,
        count=1,
        judgement=Judgement.FORBIDDEN,
        rule="",
        sentence="",
    )
    verdict = Verdict(validity=Validity.INVALID, anomalies=(stuck,))
    assert outcome_word(verdict) == "stuck"
    assert outcome_word(replace(verdict, unexcused_lost_records=1)) == "loss"


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        (
            "B-47",
            "the reference system does not serve alter_feature, only alter_config, reassign, elect_leader, "
            "move_replica",
        ),
    ],
)
def test_the_reference_system_refuses_what_it_does_not_serve(variant: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        scenario_experiment(find_scenario("kafka-bug", variant), None)


def test_the_topic_of_a_scenario_is_that_of_its_experiment() -> None:
    scenario = VARIANTS["B-31"]
    assert (scenario.partitions, scenario.partition) == (2, 1)
    experiment = scenario_experiment(VARIANTS["B-48"], None)
    assert (experiment.topic.partitions, experiment.cluster.log_dirs) == (1, 1)
    assert experiment.scenario == "kafka-bug:B-48"


def test_nodes_have_fault_points_if_a_scenario_holds_messages() -> None:
    for variant, expected in (("B-69", True), ("B-68", False)):
        experiment = scenario_experiment(VARIANTS[variant], None, system=KAFKA)
        assert needs_fault_point(planned_faults(experiment, 1)) is expected


def test_a_scenario_sets_properties_of_the_nodes() -> None:
    experiment = scenario_experiment(VARIANTS["B-69"], None)
    assert experiment.properties == {"replica.lag.time.max.ms": "30000"}


def test_the_stored_steps_name_every_step_and_its_condition() -> None:
    steps = VARIANTS["B-48"].steps_json()
    assert {"step": "observe", "until": {"has_leader": True}, "limit_ms": 10_000} in [
        {**step, "until": {"has_leader": step["until"]["has_leader"]}}
        for step in steps
        if step["step"] == "observe"
    ]
    assert Observe(until=Wait(elr=()), limit_ms=1).until.elr == ()


def test_a_broker_is_registered_when_its_epoch_is_newer_than_at_the_last_start() -> None:
    partition = PartitionState(
        topic="t",
        partition=0,
        replicas=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        isr=(1,),
    )
    broker = BrokerState(broker=2, broker_epoch=7, fenced=True, in_controlled_shutdown=False)
    metadata = CommittedMetadata(partitions={"t-0": partition}, brokers={2: broker})
    wait = Wait(registered=(2,))
    assert wait.holds(metadata, "t-0", broker_epochs={2: 6})
    assert not wait.holds(metadata, "t-0", broker_epochs={2: 7})
    assert not Wait(registered=(3,)).holds(metadata, "t-0")
